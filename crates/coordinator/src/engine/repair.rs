//! Decides about repairs: pure state machines and their bookkeeping. The driver does the work.
//!
//! - [`Queue`]: which stripes are repaired, for which jobs, and in which order; `flight`: how many at once.
//! - [`StripeRepair`]: the repair of one stripe, from the first plan through faults and new plans to the blocks' new
//!   homes.
//! - [`Rounds`]: its blocks together, or one by one; [`WaitBudget`] and [`MayReturn`]: whether it waits for news of nodes.
//! - [`RepairSpeed`] and [`suspects`]: whether a repair is so slow that it is worth avoiding the nodes that delay
//!   it, and which nodes these are; [`SlowNodes`]: which nodes have delayed repairs lately.
//! - [`Phases`]: when the stripes that wait are planned again, where they do not begin in phases; [`Courses`]: which repairs are postponed, woken or sent along other trees, by how far each has come.
//! - [`Auto`]: when repairs start automatically; [`held`]: when they do not, because too much is gone at once.
//! - [`Tally`]: what was read and moved; [`Losses`]: how fast it could have been at best.
//!
//! Nothing here reads a clock, does I/O or touches metadata. The driver (`driver::repair`) runs what these
//! machines order and tells them how it ended.

mod auto;
mod courses;
mod flight;
mod hold;
mod losses;
mod may_return;
mod phases;
mod queue;
mod rounds;
mod slow_nodes;
mod speed;
mod stripe_repair;
mod suspects;
mod tally;

pub use auto::Auto;
pub use courses::{Courses, Steer};
pub use flight::{LinkLoads, fit_together, loads};
pub use hold::{Held, Holder, held};
pub use losses::Losses;
pub use may_return::{MayReturn, Planned, WaitBudget, plan};
pub use phases::Phases;
pub use queue::{Command, Outcome, Queue, RepairJobId, RepairResult, Want};
pub use rounds::Rounds;
pub use slow_nodes::SlowNodes;
pub use speed::{RepairSpeed, RepairSpeeds, Slow};
pub use stripe_repair::{Absent, Attempt, Circumstances, StripeRepair, Verdict};
pub use suspects::{others_are_fine, suspects};
pub use tally::Tally;

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_plan::{Method, PlanError, Schedule, Topology};

/// How a repair is to be done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Order {
    /// The shape of the plan.
    pub method: Method,
    /// Slice in bytes.
    pub slice_bytes: u32,
    /// Repair a block on the node that has it, if that node is alive (single rotten blocks). Otherwise
    /// requestors are spread over the nodes (recovery of whole nodes).
    pub in_place: bool,
    /// How helpers and requestors are chosen.
    pub schedule: Schedule,
    /// The only nodes that may get blocks; `None`: all.
    pub requestors: Option<Arc<BTreeSet<NodeId>>>,
    /// Most stripes that one node may take part in at once, whatever is in flight; 0 for as many as keep the links
    /// busy.
    pub per_node: u32,
}

impl Order {
    /// Whether the trees of its stripes are planned together ([`kintsu_plan::Recovery::window`]).
    pub fn together(&self) -> bool {
        self.schedule.together(self.method)
    }

    /// Whether its stripes begin phase by phase.
    pub fn in_phases(&self) -> bool {
        self.schedule.in_phases(self.method)
    }

    /// The nodes as this order sees them: only its requestors are usable for new blocks.
    pub fn narrow(&self, mut topology: Topology) -> Topology {
        if let Some(requestors) = &self.requestors {
            for (id, node) in &mut topology.nodes {
                node.usable &= requestors.contains(id);
            }
        }
        topology
    }

    /// Adds the requestors that were asked for to an error that says why a block has no place.
    pub fn explain(&self, error: PlanError) -> PlanError {
        match (error, &self.requestors) {
            (PlanError::Placement { expected, got }, Some(requestors)) => {
                let names: Vec<_> = requestors.iter().map(NodeId::to_string).collect();
                let expected = format!("{expected} among the requestors {}", names.join(", "));
                PlanError::Placement { expected, got }
            }
            (error, _) => error,
        }
    }
}
