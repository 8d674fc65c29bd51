//! Repairs while they run: what an operator who looks wants to see.

use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, PlacedData, StripeId};
use kintsu_plan::Method;
use serde::{Deserialize, Serialize};

use super::{GoneAround, LinkEnd, Way};

/// Asks what is repaired now and what waits.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct AskRepairs {
    /// Describe at most this many of the running repairs, the oldest.
    pub running: u32,
    /// Name at most this many of those that wait, the next ones.
    pub waiting: u32,
}

/// What is repaired now, what waits, and what the links have to carry for it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RunningRepairs {
    /// Stripes under repair.
    pub count: u64,
    /// The oldest of them.
    pub running: Vec<RunningRepair>,
    /// Stripes that wait.
    pub waiting_count: u64,
    /// The first of them, in the order in which they begin if nothing is in the way.
    pub waiting: Vec<WaitingRepair>,
    /// The links that have something to carry for repairs, the busiest first.
    pub links: Vec<LinkInFlight>,
}

/// The repair of one stripe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunningRepair {
    /// Which stripe.
    pub stripe: StripeId,
    /// The object that it is part of.
    pub object: String,
    /// Its code.
    pub code: String,
    /// How slices move.
    pub method: Method,
    /// The lost blocks.
    pub lost: Vec<BlockIndex>,
    /// The node that gets each of them, in the same order.
    pub requestors: Vec<NodeId>,
    /// The nodes that supply blocks.
    pub helpers: Vec<NodeId>,
    /// The byte of every block at which this attempt began.
    pub start: u64,
    /// The byte of every block up to which the repair is done.
    pub upto: u64,
    /// Bytes of the longest block.
    pub whole: u64,
    /// Seconds since the repair began.
    pub seconds: f64,
    /// Bytes a second of each block that the plan allows itself; `None` for as fast as it goes.
    pub rate: Option<NonZeroU64>,
    /// The last progress report of each node.
    pub nodes: Vec<NodeReached>,
    /// The nodes that it was planned around, with the reasons.
    pub around: Vec<GoneAround>,
    /// Graphs among which the slices are divided.
    pub lanes: u32,
    /// The first of these graphs.
    pub graph: Option<PlacedData>,
}

/// How far a node is in a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReached {
    /// Which node.
    pub node: NodeId,
    /// The byte of every block up to which it is done.
    pub upto: u64,
    /// Bytes that it has read from its disk.
    pub bytes_read: u64,
}

/// A stripe that waits for its repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingRepair {
    /// Which stripe.
    pub stripe: StripeId,
    /// How many more blocks it can lose for sure.
    pub bears: u64,
    /// Somebody asked for it to be repaired soon.
    pub urgent: bool,
    /// Why it has not begun.
    pub why: WhyWaits,
}

/// Why a stripe waits for its repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyWaits {
    /// Nothing is in its way: it begins at once.
    Nothing,
    /// As many stripes are under repair as may be at once.
    Limit,
    /// A link that it needs has enough to carry.
    Full(LinkEnd, Way),
    /// A node takes part in as many repairs as its order allows.
    Busy(NodeId),
    /// It would begin, but a stripe that waited long goes first.
    Passed,
}

/// What a link has to carry for repairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkInFlight {
    /// Whose.
    pub end: LinkEnd,
    /// Which direction.
    pub way: Way,
    /// Bytes of started repairs that it has not carried yet.
    pub bytes: u64,
    /// With as many bytes it is given no further repair.
    pub enough: u64,
    /// What it can carry, in bytes a second, if that is known.
    pub rate: Option<NonZeroU64>,
}
