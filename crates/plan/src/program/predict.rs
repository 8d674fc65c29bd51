//! What a plan moves, and its least time, from the load that it puts on each link.

use std::collections::BTreeMap;

use kintsu_dag::{NodeId, NodeTasks};

use crate::traffic::Moved;
use crate::{Lane, Plan, PlanError, Topology};

/// Seconds that the busiest link needs for what the plan sends over it, for blocks of `block_bytes`, at the rates
/// of the topology. It does not include the time to fill a pipeline, the overhead of each slice, or other traffic.
/// 0 where no rates are known.
///
/// # Errors
/// `Graph` when a lane does not lower.
pub fn predicted(plan: &Plan, topology: &Topology, block_bytes: u64) -> Result<f64, PlanError> {
    Ok(plan.moved(block_bytes)?.loads(topology).seconds(&topology.rates))
}

impl Plan {
    /// What the plan moves from node to node, for blocks of `block_bytes`.
    ///
    /// # Errors
    /// `Graph` when a lane does not lower.
    pub fn moved(&self, block_bytes: u64) -> Result<Moved, PlanError> {
        let mut moved = Moved::default();
        for lane in &self.lanes {
            self.count_sent(lane, &lane.placed.lower()?, block_bytes, &mut moved);
        }
        Ok(moved)
    }

    /// Adds what the lane moves to `moved`. `lowered` is the lane, lowered.
    pub(crate) fn count_sent(&self, lane: &Lane, lowered: &[NodeTasks], block_bytes: u64, moved: &mut Moved) {
        let mut counts: BTreeMap<(NodeId, NodeId), u64> = BTreeMap::new();
        for tasks in lowered {
            for (_, to) in &tasks.sends {
                *counts.entry((tasks.node, *to)).or_default() += 1;
            }
        }
        for ((from, to), vertices) in counts {
            moved.add(from, to, self.bytes_of(lane, vertices, block_bytes));
        }
    }

    /// Bytes of this many vertices in the lane's share of the slices.
    pub(crate) fn bytes_of(&self, lane: &Lane, vertices: u64, block_bytes: u64) -> u64 {
        let period: u64 = self.lanes.iter().map(|lane| u64::from(lane.share)).sum();
        let w = lane.placed.graph.w().max(1) as u64;
        let parts = u128::from(vertices) * u128::from(lane.share) * u128::from(block_bytes);
        (parts / u128::from(period * w).max(1)) as u64
    }
}
