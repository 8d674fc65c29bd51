//! Programs on agents: how they are started and what they report.

use bytes::Bytes;
use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_plan::{Program, RunId};
use serde::{Deserialize, Serialize};

use super::{BlockRef, HeldBlock};
use crate::ticket::Ticket;

/// Run these programs of one run; the reply streams until all have ended. Ending the call
/// (cancelling it) aborts them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RunPrograms {
    /// All for the same node and run; one for each lane.
    pub programs: Vec<Program>,
    /// Nobody waits for it: it is repair, not what users asked for.
    pub background: bool,
    /// Short slice streams to these programs, which have no connection of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enclosed: Vec<EnclosedStream>,
    /// What the caller may do with the blocks that the programs read or write; a client or operator needs one for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tickets: Vec<Ticket>,
    /// What the programs send to the caller is a part of the answer, and has no connections. They wait for nobody, and send little, to
    /// the caller alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encloses: bool,
}

/// All slices that one node sends to another in a lane, in the call that starts the receiver's programs, or in the answer to
/// that which starts the sender's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnclosedStream {
    /// The lane.
    pub lane: u16,
    /// Who sends them.
    pub from: NodeId,
    /// The frames, as a connection would carry them after its `Hello`: slices, then `End`.
    pub frames: Bytes,
}

/// Names the programs of one run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct JobRef {
    /// Which run.
    pub job: RunId,
}

/// What a run reports: its progress several times a second, and at last one end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RunEvent {
    /// The run goes on.
    Progress {
        /// Which run.
        job: RunId,
        /// Its progress, and what it waits for.
        standing: Standing,
    },
    /// What the programs have sent to the caller, if it is enclosed; comes before their end, if they did not fail.
    Enclosed(Vec<EnclosedStream>),
    /// All programs of the run have ended here.
    Ended(RunOutcome),
}

/// The progress of a run on one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// When this was so, by the node's clock: milliseconds since the run began there.
    pub at_ms: u64,
    /// Block offset up to which everything is done (in all lanes, without gaps from the start).
    pub upto: u64,
    /// Bytes read from local blocks.
    pub bytes_read: u64,
    /// Its lanes that have steps.
    pub lanes: Vec<LaneStanding>,
}

/// The progress of one lane on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneStanding {
    /// Which lane.
    pub lane: u16,
    /// Block offset up to which its steps are done.
    pub upto: u64,
    /// What the lane waited for, sampled at equal intervals: how many samples found each wait.
    pub waits: Vec<(Wait, u64)>,
}

/// What a lane waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Wait {
    /// Its own node: the disk or the processor.
    Own,
    /// Slices from a node.
    From(NodeId),
    /// Room to send to a node.
    To(NodeId),
    /// Nobody: as a background run it keeps the limit of repairs.
    Held,
}

/// How a run ended on one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOutcome {
    /// Which node.
    pub node: NodeId,
    /// What went wrong, if anything.
    pub fault: Option<Fault>,
    /// Block offset up to which everything is done (persisted, if this node persists). A re-planned attempt with
    /// the same resume key may start there.
    pub upto: u64,
    /// Bytes read from local blocks. A unit of which a part was needed counts in full.
    pub bytes_read: u64,
    /// Bytes of slices sent, by receiver.
    pub sent: Vec<(NodeId, u64)>,
    /// The blocks that are durable now.
    pub written: Vec<HeldBlock>,
}

/// What went wrong, and on which node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{kind:?} on {node}: {detail}")]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The node at fault, as far as known; not always the node that reports.
    pub node: NodeId,
    /// The block that the fault is about, if any.
    pub block: Option<BlockId>,
    /// For people: what was expected, what came.
    pub detail: String,
}

/// Kinds of [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FaultKind {
    /// The node cannot be reached or its connection broke.
    Lost,
    /// The node is alive but sends nothing, or too little.
    Stalled,
    /// A block there does not match its checksums.
    Corrupt,
    /// A block is not there.
    Missing,
    /// A block there has another generation.
    Stale,
    /// Its disk is full.
    Full,
    /// What was computed differs from what was recorded; nothing was made visible.
    Mismatch,
    /// The programs or frames made no sense.
    Invalid,
    /// The run was cancelled.
    Aborted,
    /// Any other I/O error.
    Io,
}

impl FaultKind {
    /// Whether the node was not heard of: it may be slow, behind a broken link, or dead.
    pub const fn is_silence(self) -> bool {
        matches!(self, Self::Lost | Self::Stalled)
    }
}

/// Delete blocks.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DeleteBlocks {
    /// Which blocks; a missing block is not an error.
    pub blocks: Vec<BlockRef>,
    /// Objects that are removed for good: their ids are made durable before a block is deleted.
    #[serde(default)]
    pub removed: Vec<u64>,
    /// Grows from call to call; a call that arrives after a later one is refused. 0: not numbered.
    #[serde(default)]
    pub number: u64,
}

/// The result of a [`DeleteBlocks`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deleted {
    /// No longer there: deleted now, never there, or there only in another generation.
    pub gone: Vec<BlockRef>,
    /// Still there, with the reason.
    pub failed: Vec<(BlockRef, String)>,
}

/// What a node found when it read a whole block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// The block as it is on disk, or what is wrong with it.
    pub result: Result<HeldBlock, Fault>,
}

/// The removed objects that an agent remembers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedObjects {
    /// Ranges of object ids (first and last), in order, neither overlapping nor touching.
    pub ranges: Vec<(u64, u64)>,
}

/// Does the node hold these blocks? It reads their headers only.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LookBlocks {
    /// Which blocks.
    pub blocks: Vec<BlockRef>,
}

/// The answer to [`LookBlocks`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundBlocks {
    /// For each block asked for, in order, what the node holds; `None` if it is not there in that generation, or its
    /// header is rotten.
    pub blocks: Vec<Option<HeldBlock>>,
}

/// Verify the blocks of a range of stripes; without ends, of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubBlocks {
    /// Only stripes after this one.
    pub after: Option<StripeId>,
    /// Only stripes up to this one.
    pub upto: Option<StripeId>,
}

impl ScrubBlocks {
    /// Whether the blocks of a stripe are among them.
    pub fn contains(&self, stripe: StripeId) -> bool {
        self.after.is_none_or(|after| stripe > after) && self.upto.is_none_or(|upto| stripe <= upto)
    }
}

/// What a scrub of one node reports, block by block.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScrubEvent {
    /// Blocks of the range on this node.
    pub total: u64,
    /// Blocks checked so far.
    pub checked: u64,
    /// Bytes read so far.
    pub bytes: u64,
    /// The block just checked as it is on disk, or what is wrong with it.
    pub result: Result<HeldBlock, Fault>,
}
