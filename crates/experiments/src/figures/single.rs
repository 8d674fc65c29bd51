//! One repair or one copy of blocks of a stripe. The planners plan it and a conductor runs it on the agents. At
//! the end the blocks must be durable and equal to what was written.
//!
//! Only the planner treats the blocks as lost. The rebuilt blocks are deleted from the requestors afterwards, so
//! that every repetition finds the same lab.

use std::time::Instant;

use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_plan::{Account, MOST_STEP_BYTES, Method, Plan, ProgramContext, RunId, RunMode, predicted};
use kintsu_wire::message::{BlockRef, DeleteBlocks};
use tokio_util::sync::CancellationToken;

use super::declare::Slice;
use super::meter::Meter;
use super::report::Sample;
use super::simulated::{planned, played};
use super::site::{Site, Stored};
use crate::error::{ExperimentError, Result};

/// The blocks that count as lost in a repetition: consecutive data blocks, different ones each time.
pub fn lost_blocks(stored: &Stored, count: usize, repetition: usize) -> Vec<BlockIndex> {
    let k = stored.view.code.k();
    (0..count.min(k)).map(|i| BlockIndex(((repetition * count + i) % k) as u8)).collect()
}

/// Nodes without a block of the stripe: first `preferred` if it has none, then those in the rack of the first lost
/// block.
pub fn requestors(
    stored: &Stored,
    lost: &[BlockIndex],
    preferred: Option<NodeId>,
    repetition: usize,
) -> Result<Vec<NodeId>> {
    let home = lost.first().and_then(|block| stored.view.homes[usize::from(block.0)]);
    let rack = home.and_then(|home| stored.topology.rack(home));
    let mut free: Vec<NodeId> = stored
        .topology
        .nodes
        .keys()
        .copied()
        .filter(|node| !stored.view.homes.contains(&Some(*node)))
        .collect();
    if free.len() < lost.len() {
        let expected = format!("{} nodes without a block of the stripe", lost.len());
        return Err(ExperimentError::invalid("requestors", expected, free.len()));
    }
    let turn = repetition % free.len();
    free.rotate_left(turn);
    free.sort_by_key(|node| (Some(*node) != preferred, stored.topology.rack(*node) != rack));
    free.truncate(lost.len());
    Ok(free)
}

/// Copies a block to the requestor.
///
/// # Errors
/// When it cannot be planned or run.
pub async fn copy_one(
    site: &Site,
    stored: &Stored,
    block: BlockIndex,
    to: NodeId,
    slice: Slice,
) -> Result<Sample> {
    run(site, stored, &[(block, to)], None, Steps { slice, run_mode: RunMode::Streamed }).await
}

/// How slices are moved.
#[derive(Debug, Clone, Copy)]
pub struct Steps {
    /// Bytes in a slice.
    pub slice: Slice,
    /// How the plan is run.
    pub run_mode: RunMode,
}

impl Steps {
    /// Sets the run mode of the plan. With whole blocks, a block larger than one step is refused, because it
    /// would be divided and the result would be another measurement.
    fn in_mode(self, plan: Plan, stored: &Stored) -> Result<Plan> {
        let block = stored.block_bytes();
        if self.run_mode == RunMode::WholeBlocks && block > u64::from(MOST_STEP_BYTES) {
            let expected = format!("at most {MOST_STEP_BYTES} bytes");
            return Err(ExperimentError::invalid("block sent whole", expected, block));
        }
        Ok(Plan { run_mode: self.run_mode, ..plan })
    }
}

/// Repairs blocks.
///
/// # Errors
/// When it cannot be planned or run, or the bytes differ.
pub async fn repair_one(
    site: &Site,
    stored: &Stored,
    lost: &[BlockIndex],
    to: &[NodeId],
    method: Method,
    steps: Steps,
) -> Result<Sample> {
    let goals: Vec<_> = lost.iter().copied().zip(to.iter().copied()).collect();
    run(site, stored, &goals, Some(method), steps).await
}

/// Plans and runs; the time is from before planning until all blocks are durable. Without a method a block is
/// copied.
async fn run(
    site: &Site,
    stored: &Stored,
    goals: &[(BlockIndex, NodeId)],
    method: Option<Method>,
    steps: Steps,
) -> Result<Sample> {
    let meter = Meter::start(site).await?;
    let started = Instant::now();
    let view = &stored.view;
    let plan = steps.in_mode(planned(view, &stored.topology, goals, method)?, stored)?;
    let programs = plan.programs(&ProgramContext {
        generations: &[],
        job: new_job()?,
        view,
        generation: stored.generation,
        window: (0, u64::MAX),
        slice_bytes: slice_bytes(steps.slice),
        expect: &stored.digests,
        label: &[],
        peers: &|node| site.host(node).map(|host| host.data),
        resume_key: 0,
    })?;
    let step_bytes = programs.first().map_or(0, |program| program.window.step_bytes);
    let control = |node: NodeId| site.host(node).map(|host| host.control);
    let cancel = CancellationToken::new();
    let ended = site.conductor.conduct(programs, &control, None, None, &cancel).await;
    let seconds = started.elapsed().as_secs_f64();
    let mut sample = meter.stop(site, seconds).await?;
    clean(site, stored, goals).await?;
    if let Some(fault) = ended.fault {
        return Err(ExperimentError::invalid("run", "no fault", fault));
    }
    for (block, node) in goals {
        let held = ended.outcomes.iter().filter(|o| o.node == *node).flat_map(|o| &o.written);
        let digests: Vec<_> =
            held.filter(|held| held.id.index == *block).map(|held| Some(held.digest)).collect();
        if digests != [stored.digests[usize::from(block.0)]] {
            let what = format!("{block} on {node}");
            return Err(ExperimentError::invalid(
                what,
                "the digest that was recorded",
                format!("{digests:?}"),
            ));
        }
    }
    let account = Account::of(&plan, &stored.topology, stored.block_bytes())?;
    sample.simulated_seconds = Some(played(&plan, &stored.topology, view, step_bytes)?);
    sample.trial = Some(stored.trial(goals, step_bytes));
    sample.goal_bytes = goals.iter().map(|(block, _)| stored.view.block_len(*block)).sum();
    sample.planned_bytes = account.bytes_moved;
    sample.planned_cross_rack_bytes = account.bytes_across_racks;
    sample.bound_seconds = predicted(&plan, &stored.topology, stored.block_bytes())?;
    Ok(sample)
}

/// Deletes the rebuilt blocks.
async fn clean(site: &Site, stored: &Stored, goals: &[(BlockIndex, NodeId)]) -> Result<()> {
    for (index, node) in goals {
        let id = BlockId { stripe: stored.view.id, index: *index };
        let blocks = vec![BlockRef { id, generation: stored.generation }];
        let host = site.host(*node);
        let host = host.ok_or_else(|| ExperimentError::invalid("requestor", "a node of the lab", node))?;
        let agent = site.conductor.agent(host.control);
        let mut agent = agent.map_err(|e| ExperimentError::invalid("agent", "an address", e))?;
        let deleted = agent.delete(DeleteBlocks { blocks, ..DeleteBlocks::default() }).await;
        deleted.map_err(|status| ExperimentError::invalid("deletion", "success", status.message()))?;
    }
    Ok(())
}

/// The slice for this choice.
pub fn slice_bytes(slice: Slice) -> u32 {
    match slice {
        Slice::Bytes(bytes) => bytes,
        Slice::Auto => 0,
    }
}

fn new_job() -> Result<RunId> {
    let id = getrandom::u64();
    id.map(RunId).map_err(|e| ExperimentError::invalid("random numbers", "some", e))
}
