//! Runs the attempts of a repair and watches their speed. If a slow helper delays an attempt and others can
//! replace it, the attempt is ended and the rest is planned without that helper. `engine::repair` decides
//! what is slow and which nodes are to blame.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::{PlanError, Program, Topology};
use kintsu_runtime::{Conducted, Observed};
use tokio::sync::watch;

use super::run::{Job, run_watched};
use crate::cluster::Cluster;
use crate::engine::repair::{Attempt, Mend, Pace, Slow, suspects};

/// Time between two measurements of the speed, in milliseconds.
const LOOK_MS: u64 = 250;
/// The nodes that others wait for are judged over at least this many measurements, and over at least as long
/// a time as the speed is measured.
const LOOKS: usize = 5;

/// Watches the speed of one repair, as long as it lasts.
pub struct Pacing {
    cluster: Arc<Cluster>,
    pace: Pace,
    repair: u64,
    began_ms: u64,
    made: u64,
}

impl Pacing {
    /// A repair begins whose blocks have at most `whole` bytes.
    pub fn new(cluster: &Arc<Cluster>, whole: u64) -> Self {
        let repair = cluster.next_job().0;
        cluster.paces().begun(repair);
        let pace = Pace::new(repair, whole);
        Self { cluster: cluster.clone(), pace, repair, began_ms: cluster.now_ms(), made: 0 }
    }
}

impl Drop for Pacing {
    fn drop(&mut self) {
        let now_ms = self.cluster.now_ms();
        let took_ms = now_ms.saturating_sub(self.began_ms);
        self.cluster.paces().ended(self.repair, now_ms, self.made, took_ms);
    }
}

/// Runs an attempt to its end, or until it is worth replanning without the nodes that delay it.
///
/// # Errors
/// The plan does not become programs.
pub async fn run_on(
    cluster: &Arc<Cluster>,
    mend: &mut Mend,
    attempt: &Attempt,
    job: Job<'_>,
    pacing: &mut Pacing,
) -> Result<(Vec<Program>, Conducted), PlanError> {
    let cancel = cluster.stop.child_token();
    let (watcher, seen) = watch::channel(Observed::default());
    let running = run_watched(cluster, job, Some(watcher), &cancel);
    tokio::pin!(running);
    let ran = tokio::select! {
        ran = &mut running => ran,
        (slow, nodes) = pacing.hold_up(mend, attempt, seen) => {
            cancel.cancel();
            let ran = running.await;
            // The attempt may have ended by itself meanwhile; then no node is to be avoided.
            if let Ok((_, Conducted { upto, fault: Some(_), .. })) = &ran {
                let why = describe(slow, &nodes);
                tracing::warn!("{}: {why}; the rest is planned around", mend.id());
                mend.turn(&nodes, *upto, &why);
                pacing.pace.turned(slow, &cluster.paces());
                let now_ms = cluster.now_ms();
                nodes.iter().for_each(|node| cluster.laggards().found(*node, pacing.repair, now_ms));
            }
            ran
        }
    };
    if let Ok((_, conducted)) = &ran {
        pacing.made += conducted.upto.saturating_sub(attempt.start);
    }
    ran
}

impl Pacing {
    /// Completes when an attempt is slow because of nodes that it can do without; returns these nodes.
    async fn hold_up(
        &mut self,
        mend: &Mend,
        attempt: &Attempt,
        seen: watch::Receiver<Observed>,
    ) -> (Slow, Vec<NodeId>) {
        self.pace.begin(self.cluster.now_ms(), attempt.start);
        let nodes = [attempt.helpers(), attempt.plan.requestors.clone()].concat();
        self.cluster.paces().goes(self.repair, nodes);
        let mut looks = VecDeque::from([Observed::default()]);
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            let now = seen.borrow().clone();
            let upto = now.upto.max(attempt.start);
            let slow = self.pace.note(self.cluster.now_ms(), upto, &mut self.cluster.paces());
            if let Some(slow) = slow {
                let suspected = suspects(&looks[0], &now, &attempt.plan.requestors);
                let (topology, _) = self.cluster.nodes();
                // Checking whether other nodes can replace these means planning again, so it comes last.
                if !self.any_busy(&suspected, &topology) {
                    let (mend, attempt) = (mend.clone(), attempt.clone());
                    let plan = move || mend.could_spare(&attempt, &suspected, &topology);
                    // If planning panics, no node is avoided.
                    let nodes = kintsu_wire::ambient::blocking(plan).await.unwrap_or_default();
                    if !nodes.is_empty() {
                        return (slow, nodes);
                    }
                }
            }
            looks.push_back(now);
            let kept = (self.cluster.paces().window_ms() / LOOK_MS) as usize;
            while looks.len() > kept.max(LOOKS) {
                looks.pop_front();
            }
        }
    }

    /// Whether all repairs together keep one of these nodes busy.
    fn any_busy(&self, nodes: &[NodeId], topology: &Topology) -> bool {
        let paces = self.cluster.paces();
        // The rate that the cluster was told for the node, in bytes per millisecond.
        let told = |node| topology.rate(node, node).map(|rate| rate.get() as f64 / 1000.0);
        nodes.iter().any(|&node| paces.is_busy(node, self.repair, told(node)))
    }
}

fn describe(slow: Slow, nodes: &[NodeId]) -> String {
    // Bytes per millisecond are kilobytes per second.
    let names: Vec<_> = nodes.iter().map(ToString::to_string).collect();
    format!(
        "slow: expected {:.0} KB/s of every block, got {:.0} KB/s; all waited for {}",
        slow.expected,
        slow.rate,
        names.join(" or ")
    )
}
