//! Long work that the coordinator conducts: encode, repair, scrub, drain.

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_plan::{Method, Schedule};
use serde::{Deserialize, Serialize};

use super::FaultKind;

/// Encode an object that was written offline.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Encode {
    /// Its name.
    pub name: String,
}

/// What to repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepairTarget {
    /// All blocks that the metadata places on this node and that cannot be read there.
    Node(NodeId),
    /// All unavailable blocks of an object.
    Object(String),
    /// Everything unavailable.
    All,
}

/// Who gets repaired blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requestors {
    /// All nodes that are alive, unless the schedule has one requestor only.
    #[default]
    Any,
    /// So many nodes, chosen by the coordinator.
    Count(u32),
    /// These nodes.
    Nodes(Vec<NodeId>),
}

/// Repair now, without waiting for the grace time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// What.
    pub target: RepairTarget,
    /// How.
    pub method: Method,
    /// Slice in bytes; 0 for what suits the plan.
    pub slice_bytes: u32,
    /// Which helpers and requestors are taken.
    #[serde(default)]
    pub schedule: Schedule,
    /// Who gets the blocks.
    #[serde(default)]
    pub requestors: Requestors,
    /// Stripes that one node may have a part in at once; 0 for the default.
    #[serde(default)]
    pub per_node: u32,
}

impl Repair {
    /// By the defaults.
    pub fn new(target: RepairTarget) -> Self {
        Self {
            target,
            method: Method::default(),
            slice_bytes: 0,
            schedule: Schedule::default(),
            requestors: Requestors::default(),
            per_node: 0,
        }
    }
}

/// Verify all blocks on all nodes, and mend what is found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scrub {
    /// Only this node.
    pub node: Option<NodeId>,
}

/// A block that cannot be used where the metadata says it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadBlock {
    /// Which.
    pub id: BlockId,
    /// Where.
    pub node: NodeId,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// For people.
    pub detail: String,
}

/// What long work reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum JobEvent {
    /// How far it is.
    Progress {
        /// Bytes done.
        done: u64,
        /// Bytes in all, as far as known.
        total: u64,
        /// For people: what is being done.
        note: String,
    },
    /// It has ended.
    Ended(JobReport),
}

/// The part of one node in long work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Which node.
    pub node: NodeId,
    /// Bytes it sent.
    pub up_bytes: u64,
    /// Bytes it received.
    pub down_bytes: u64,
    /// Blocks that it read for others.
    pub helped: u64,
    /// Blocks that it got.
    pub requested: u64,
}

impl JobReport {
    /// Bytes of repaired blocks a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }

    /// The least and the most that `what` is for any node where it is not zero.
    pub fn spread(&self, what: impl Fn(&NodeLoad) -> u64) -> Option<(u64, u64)> {
        let all = || self.nodes.iter().map(&what).filter(|count| *count > 0);
        Some((all().min()?, all().max()?))
    }
}

/// What long work did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// `encode`, `repair`, `scrub`, `drain`, ...
    pub kind: String,
    /// How a repair moved its slices.
    pub method: Option<Method>,
    /// Blocks repaired, made or moved.
    pub blocks: u64,
    /// Blocks that were read.
    pub blocks_read: u64,
    /// Bytes read from disks.
    pub bytes_read: u64,
    /// Bytes sent between nodes.
    pub bytes_moved: u64,
    /// Those of them that crossed racks.
    pub bytes_across_racks: u64,
    /// Largest number of bytes that one node sent or received (its link's load).
    pub max_link_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes of the blocks that were repaired, made or moved.
    #[serde(default)]
    pub bytes: u64,
    /// Which helpers and requestors a repair took.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// What each node did, by id; nodes that did nothing are not among them.
    #[serde(default)]
    pub nodes: Vec<NodeLoad>,
    /// Where all rates of nodes are known: no repair of these blocks takes less time than this.
    #[serde(default)]
    pub bound_seconds: Option<f64>,
    /// Blocks that were checked (scrub).
    pub blocks_checked: u64,
    /// Bad blocks that were found.
    pub bad: Vec<BadBlock>,
    /// What could not be done, with the reason.
    pub failed: Vec<String>,
    /// Whom repairs under way went around.
    #[serde(default)]
    pub around: Vec<GoneAround>,
}

/// A node that a repair under way went around: it was lost, stalled, slow, or its block was bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneAround {
    /// Of which stripe.
    pub stripe: StripeId,
    /// Which node.
    pub node: NodeId,
    /// Up to which byte of every block the repair was through, and went on from.
    pub upto: u64,
    /// For people.
    pub why: String,
}
