//! The health of a cluster: a verdict, its causes, and what to do about them.

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use serde::{Deserialize, Serialize};

/// How well the cluster is, or how serious a cause is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// All is well. Of a cause: only to be known.
    #[default]
    Healthy,
    /// All data can be read, but something needs attention.
    Warning,
    /// Data cannot be read, or may be missing, or nothing can be written.
    Error,
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Healthy => "healthy",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl CauseKind {
    /// The kind that says nearly the same to whoever is older than [`LOG_CAUSES`](crate::version::LOG_CAUSES).
    pub fn older(self) -> Self {
        match self {
            Self::LostLogs | Self::ContradictingStripes => Self::UnreadableStripes,
            Self::FewLogs => Self::ReducedRedundancy,
            Self::UncomparedStripes => Self::UnverifiedNodes,
            known => known,
        }
    }
}

/// What kind of thing a [`Cause`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// Stripes from which more blocks are lost than their code bears.
    UnreadableStripes,
    /// Logs of volumes that no living node has: their blocks cannot be read.
    LostLogs,
    /// Stripes whose blocks contradict each other.
    ContradictingStripes,
    /// The metadata are older than what agents remember.
    OlderMetadata,
    /// Too few nodes can take blocks of a code.
    NoPlace,
    /// The metadata are being rebuilt from blocks.
    Rebuild,
    /// Not all nodes have reported their blocks since the start.
    Unreported,
    /// Stripes that bear fewer losses than when they were written.
    ReducedRedundancy,
    /// Logs of volumes that are on fewer nodes than needed.
    FewLogs,
    /// Stripes that have no parity yet.
    NotEncoded,
    /// Nodes whose disk failed.
    FailedDisks,
    /// Nodes that send no heartbeats.
    DeadNodes,
    /// Nodes that were stopped by command.
    StoppedNodes,
    /// Nodes that were registered or recorded, but never heard of.
    UnheardNodes,
    /// Nodes that somebody could not reach since their last heartbeat.
    SuspectedNodes,
    /// Nodes with so little free space that they get no new blocks.
    FullNodes,
    /// Nodes that will soon get no new blocks.
    NearlyFullNodes,
    /// Nodes that are being emptied, or were.
    DrainingNodes,
    /// Nodes that are being wiped.
    WipingNodes,
    /// Repairs that ended with failures.
    FailedRepairs,
    /// Automatic repairs that were cancelled.
    CancelledRepairs,
    /// Too much is gone at once for automatic repairs.
    HeldRepairs,
    /// Many blocks at once were unknown to the metadata.
    HeldBlocks,
    /// Blocks in quarantine.
    Quarantine,
    /// Too few or too old copies of the metadata.
    MetadataCopies,
    /// Puts that ended and cannot be undone.
    HangingPuts,
    /// The clock of the coordinator's host was set back.
    Clock,
    /// Nodes whose space is not known yet.
    UnknownSpace,
    /// Nodes that are paused.
    PausedNodes,
    /// Nodes whose blocks have not been verified for a long time.
    UnverifiedNodes,
    /// Stripes that have not been compared with their codes for a long time.
    UncomparedStripes,
}

/// A block that cannot be read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbsentBlock {
    /// Its index in the stripe.
    pub index: BlockIndex,
    /// The node where it should be.
    pub node: NodeId,
    /// Whether it is known to be lost (missing or rotten); else its node is down.
    pub lost: bool,
}

/// A stripe with blocks that cannot be read now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamagedStripe {
    /// Which stripe.
    pub stripe: StripeId,
    /// The object that it is part of; one of them if several share it. Of a stripe of a volume or snapshot its name.
    pub object: String,
    /// Whether that is a volume or snapshot.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub volume: bool,
    /// How many other objects share it.
    #[serde(default)]
    pub others: u64,
    /// Its code.
    pub code: String,
    /// Whether it can still be read.
    pub readable: bool,
    /// How many more blocks it can lose for sure; 0 also if it cannot be read.
    pub bears: u64,
    /// The blocks that cannot be read.
    pub absent: Vec<AbsentBlock>,
}

/// One reason for a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// How serious it is; [`Level::Healthy`] if it does not count.
    pub level: Level,
    /// What kind of thing it is.
    pub kind: CauseKind,
    /// One line for people.
    pub title: String,
    /// What to do about it, or what happens by itself.
    pub advice: String,
    /// How many things it is about: stripes, nodes, blocks or puts.
    pub count: u64,
    /// The first nodes that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeId>,
    /// The first stripes that it is about; `count` says how many there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stripes: Vec<DamagedStripe>,
    /// More lines for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

/// How well the cluster is, and why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// The verdict: that of the most serious cause.
    pub verdict: Level,
    /// The verdict in one line.
    pub headline: String,
    /// The most serious first.
    pub causes: Vec<Cause>,
}

/// The verdict alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthSummary {
    /// The verdict.
    pub verdict: Level,
    /// The verdict in one line.
    pub headline: String,
}

/// Asks for the health of the cluster.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct AskHealth {
    /// Name at most this many stripes for each cause, the most damaged ones.
    pub stripes: u32,
}
