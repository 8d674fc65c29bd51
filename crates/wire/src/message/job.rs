//! Jobs: long work that the coordinator conducts (encode, repair, scrub, drain).

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_plan::{Binding, Method, Schedule};
use serde::{Deserialize, Serialize};

use super::{FaultKind, RepairLimit};

/// The kinds of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobKind {
    /// Blocks that cannot be read are rebuilt.
    Repair,
    /// The parity of an object is computed.
    Encode,
    /// Blocks are verified.
    Scrub,
    /// The blocks of a node are moved elsewhere.
    Drain,
    /// The blocks of a node are deleted.
    Wipe,
    /// Blocks are moved from fuller to emptier nodes.
    Rebalance,
}

impl JobKind {
    /// What its progress counts.
    pub fn unit(self) -> JobUnit {
        match self {
            Self::Repair | Self::Encode | Self::Rebalance => JobUnit::Bytes,
            Self::Scrub | Self::Drain => JobUnit::Blocks,
            Self::Wipe => JobUnit::Seconds,
        }
    }
}

impl std::fmt::Display for JobKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Repair => "repair",
            Self::Encode => "encode",
            Self::Scrub => "scrub",
            Self::Drain => "drain",
            Self::Wipe => "wipe",
            Self::Rebalance => "rebalance",
        })
    }
}

/// What the progress of a job counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobUnit {
    /// Bytes of blocks or objects.
    Bytes,
    /// Blocks.
    Blocks,
    /// Seconds; the total is not known.
    Seconds,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// It runs.
    Running,
    /// It finished what it had begun, and waits until it is resumed or cancelled.
    Paused,
    /// It was cancelled, and finishes what it cannot leave half done.
    Cancelling,
    /// It has ended, and everything was done.
    Done,
    /// It has ended, and not everything was done.
    Failed,
    /// It was cancelled and has ended.
    Cancelled,
}

impl JobState {
    /// Whether the job has ended.
    pub fn has_ended(self) -> bool {
        !matches!(self, Self::Running | Self::Paused | Self::Cancelling)
    }
}

/// A job in the table of jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Names it in later calls.
    pub id: u64,
    /// What kind of job it is.
    pub kind: JobKind,
    /// What it works on, for people: `node 3`.
    pub what: String,
    /// Whether the coordinator began it by itself.
    pub automatic: bool,
    /// Where it stands.
    pub state: JobState,
    /// When it began, in seconds since 1970.
    pub began: u64,
    /// How long it has been running, or ran.
    pub seconds: f64,
    /// What is done, in units of [`JobKind::unit`].
    pub done: u64,
    /// What there is to do, as far as known.
    pub total: u64,
    /// For people: what is being done, or why it ended.
    pub note: String,
}

/// A job for programs: with the unit of its progress.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobShown {
    /// The job.
    #[serde(flatten)]
    pub job: JobInfo,
    /// What its progress counts.
    pub unit: JobUnit,
}

impl From<JobInfo> for JobShown {
    fn from(job: JobInfo) -> Self {
        Self { unit: job.kind.unit(), job }
    }
}

/// A job by its id.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct JobId {
    /// From [`JobInfo::id`].
    pub id: u64,
}

/// The table of jobs: those that run, and the last ones that have ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct JobList {
    /// By id.
    pub jobs: Vec<JobInfo>,
    /// How fast repairs may be, and why.
    #[serde(default)]
    pub repair_limit: Option<RepairLimit>,
}

/// Encode an object that was written offline.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Encode {
    /// Its name.
    pub name: String,
    /// Where parities are computed.
    #[serde(default)]
    pub binding: Binding,
}

/// What to repair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepairTarget {
    /// All blocks that the metadata place on this node and that cannot be read there.
    Node(NodeId),
    /// All unavailable blocks of an object.
    Object(String),
    /// Everything unavailable.
    All,
}

impl std::fmt::Display for RepairTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(node) => write!(f, "{node}"),
            Self::Object(name) => write!(f, "object {name:?}"),
            Self::All => f.write_str("all that is lost"),
        }
    }
}

/// The requestors of a repair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Requestors {
    /// All nodes that are alive; a single one if the schedule has only one requestor.
    #[default]
    Any,
    /// This many nodes, chosen by the coordinator.
    Count(u32),
    /// These nodes.
    Nodes(Vec<NodeId>),
}

/// Repair now, without waiting for the grace time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    /// What to repair.
    pub target: RepairTarget,
    /// How slices move.
    pub method: Method,
    /// Slice in bytes; 0 for the best size for the plan.
    pub slice_bytes: u32,
    /// How helpers and requestors are chosen.
    #[serde(default)]
    pub schedule: Schedule,
    /// The requestors.
    #[serde(default)]
    pub requestors: Requestors,
    /// Most stripes in whose repair one node takes part at the same time; 0 for the default.
    #[serde(default)]
    pub per_node: u32,
}

impl Repair {
    /// A repair with default settings.
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

/// Verify all blocks on all nodes, and repair bad ones.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Scrub {
    /// Only this node.
    pub node: Option<NodeId>,
}

/// A block that cannot be used in the place where the metadata have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadBlock {
    /// Which block.
    pub id: BlockId,
    /// The node that it is on.
    pub node: NodeId,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// For people.
    pub detail: String,
}

/// What a job reports.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum JobEvent {
    /// The job is in the table of jobs; always the first event of a job.
    Began(JobInfo),
    /// The job's progress.
    Progress {
        /// What is done, in units of [`JobKind::unit`].
        done: u64,
        /// What there is to do, as far as known.
        total: u64,
        /// For people: what is being done.
        note: String,
    },
    /// The job has ended.
    Ended(JobReport),
}

/// The part of one node in a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLoad {
    /// Which node.
    pub node: NodeId,
    /// Bytes it sent.
    pub up_bytes: u64,
    /// Bytes it received.
    pub down_bytes: u64,
    /// Blocks that it read as a helper.
    pub helped: u64,
    /// Blocks that it received as a requestor.
    pub requested: u64,
}

impl JobReport {
    /// Bytes of repaired blocks a second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }

    /// The least and the largest `what` over all nodes where it is not zero.
    pub fn spread(&self, what: impl Fn(&NodeLoad) -> u64) -> Option<(u64, u64)> {
        let all = || self.nodes.iter().map(&what).filter(|count| *count > 0);
        Some((all().min()?, all().max()?))
    }
}

/// What a job did.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// `encode`, `repair`, `scrub`, `drain`, ...
    pub kind: String,
    /// How a repair moved its slices.
    pub method: Option<Method>,
    /// Blocks repaired, encoded or moved.
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
    /// Bytes of the blocks that were repaired, encoded or moved.
    #[serde(default)]
    pub bytes: u64,
    /// How a repair chose helpers and requestors.
    #[serde(default)]
    pub schedule: Option<Schedule>,
    /// What each node did, by id; nodes that did nothing are left out.
    #[serde(default)]
    pub nodes: Vec<NodeLoad>,
    /// Lower bound on the time of any repair of these blocks, were there no users; known only if the rates of all nodes are.
    #[serde(default)]
    pub bound_seconds: Option<f64>,
    /// Blocks that were checked (scrub).
    pub blocks_checked: u64,
    /// Bad blocks that were found.
    pub bad: Vec<BadBlock>,
    /// Failures, with the reason.
    pub failed: Vec<String>,
    /// Nodes that running repairs were planned around.
    #[serde(default)]
    pub around: Vec<GoneAround>,
}

/// A node that a running repair was planned around: it was lost, stalled, slow, or its block was bad.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneAround {
    /// The stripe under repair.
    pub stripe: StripeId,
    /// Which node.
    pub node: NodeId,
    /// The byte of every block up to which the repair was done, and from which it continued.
    pub upto: u64,
    /// For people.
    pub why: String,
}
