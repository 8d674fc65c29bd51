//! Repairs, decided here and done elsewhere: pure state machines and their book-keeping.
//!
//! - [`Queue`]: which stripes are to be mended, for whom, and how many at once.
//! - [`Mend`]: one stripe, from the first plan over faults and re-planning to the blocks' new homes.
//! - [`Rounds`]: its blocks together, or one by one; [`Waits`] and [`Hope`]: whether it waits for news of nodes.
//! - [`Pace`] and [`suspects`]: whether a repair is so slow that it is worth going around whoever holds it up, and
//!   who that is; [`Laggards`]: who lately did.
//! - [`Auto`]: when repairs start without being asked.
//! - [`Tally`]: what was read and moved; [`Losses`]: how fast it could have been.
//!
//! Nothing here reads a clock, does I/O or touches metadata. The driver (`driver::mend`) runs what
//! they order and tells them how it ended.

mod auto;
mod hope;
mod laggards;
mod losses;
mod mend;
mod pace;
mod queue;
mod rounds;
mod suspects;
mod tally;

pub use auto::Auto;
pub use hope::{Hope, Planned, Waits, plan};
pub use laggards::Laggards;
pub use losses::Losses;
pub use mend::{Absent, Attempt, Circumstances, Mend, Verdict};
pub use pace::{Pace, Paces, Slow};
pub use queue::{AskId, Asked, Command, Outcome, Queue, Want};
pub use rounds::Rounds;
pub use suspects::suspects;
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
    /// Mend a block on the node it is on, where that lives (single rotten blocks); else requestors are
    /// spread over nodes (recovery of whole nodes).
    pub in_place: bool,
    /// Which helpers and requestors are taken.
    pub schedule: Schedule,
    /// The only nodes that may get blocks; `None`: all.
    pub requestors: Option<Arc<BTreeSet<NodeId>>>,
    /// Stripes that one node may have a part in at once; 0 for the default.
    pub per_node: u32,
}

impl Order {
    /// Whether the trees of its stripes are planned together ([`kintsu_plan::Recovery::window`]).
    pub fn together(&self) -> bool {
        self.schedule.together(self.method)
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

    /// Why a block has no place, with the requestors that were asked for.
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
