//! Runs a plan on agents: makes its programs, has them run, and returns how they ended.

use std::sync::Arc;

use kintsu_plan::{Plan, PlanError, Program, ProgramContext, StripeView};
use kintsu_runtime::{Conducted, Observed};
use kintsu_wire::message::{DigestBytes, FaultKind};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::ticks::AUTOMATIC_SLICE;
use crate::cluster::Cluster;

/// A plan, ready to be run.
pub struct ReadyPlan<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// The stripe it was made for.
    pub view: &'a StripeView,
    /// The generations of its blocks, by index; may be shorter than n for blocks that are not stored.
    pub generations: &'a [u32],
    /// First byte of every block.
    pub start: u64,
    /// Slice in bytes; 0 lets the plan choose.
    pub slice_bytes: u32,
    /// The recorded digests, by block index.
    pub expect: &'a [Option<DigestBytes>],
    /// The label of the blocks that the plan writes.
    pub label: &'a [u8],
    /// Joins attempts: one with the same key continues the earlier one; 0 for none.
    pub resume_key: u64,
}

impl<'a> ReadyPlan<'a> {
    /// A plan over whole blocks that continues nothing, and that writes no block. The plan chooses the slice.
    pub fn of(plan: &'a Plan, view: &'a StripeView) -> Self {
        Self {
            plan,
            view,
            generations: &[],
            start: 0,
            slice_bytes: AUTOMATIC_SLICE,
            expect: &[],
            label: &[],
            resume_key: 0,
        }
    }
}

/// Runs a plan on the agents. A node that could not be reached is not used until it is heard of again.
///
/// # Errors
/// The plan does not become programs.
pub async fn run(
    cluster: &Arc<Cluster>,
    ready: ReadyPlan<'_>,
) -> Result<(Vec<Program>, Conducted), PlanError> {
    run_watched(cluster, ready, None, &cluster.stop).await
}

/// As [`run`]. `watcher` receives the progress of the nodes. `cancel` ends the run early; what was done until
/// then is returned.
///
/// # Errors
/// As [`run`].
pub async fn run_watched(
    cluster: &Arc<Cluster>,
    ready: ReadyPlan<'_>,
    watcher: Option<watch::Sender<Observed>>,
    cancel: &CancellationToken,
) -> Result<(Vec<Program>, Conducted), PlanError> {
    let peers = |node| cluster.data(node);
    let programs = ready.plan.programs(&ProgramContext {
        job: cluster.new_run(),
        view: ready.view,
        generation: 0,
        generations: ready.generations,
        window: (ready.start, u64::MAX),
        slice_bytes: ready.slice_bytes,
        expect: ready.expect,
        label: ready.label,
        peers: &peers,
        resume_key: ready.resume_key,
    })?;
    let control = |node| cluster.control(node);
    let conducted = cluster.conductor.conduct(programs.clone(), &control, None, watcher, cancel).await;
    if let Some(fault) = &conducted.fault {
        tracing::warn!("{}: {fault}", ready.view.id);
        if fault.kind == FaultKind::Lost {
            cluster.members().suspect(fault.node);
        }
    }
    Ok((programs, conducted))
}

#[cfg(test)]
mod tests {
    use crate::handlers::tests::cluster;

    #[tokio::test]
    async fn nobody_can_guess_the_number_of_the_next_run() {
        let (_dir, cluster) = cluster(0, 1).await;
        let runs: Vec<u64> = (0..8).map(|_| cluster.new_run().0).collect();
        assert!(runs.windows(2).all(|two| two[0].abs_diff(two[1]) > 1 << 20), "{runs:x?}");
    }
}
