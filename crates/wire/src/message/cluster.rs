//! Nodes and their coordinator.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use bytes::Bytes;
use kintsu_dag::{BlockId, NodeId, RackId, StripeId};
use serde::{Deserialize, Serialize};

use super::{BadBlock, DigestBytes, DiskUsage, Fullness, HealthSummary, LastCopy, RepairLimit};
use crate::{ClusterId, FolderId, Seen};

/// A block that a node holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlock {
    /// Which block.
    pub id: BlockId,
    /// Its generation.
    pub generation: u32,
    /// Its length in bytes.
    pub len: u64,
    /// Its digest.
    pub digest: DigestBytes,
}

/// An agent starts and introduces itself. The list of its blocks follows in [`BlockPage`]s.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Register {
    /// Its id: from its folder, where it was recorded at the first start, or as its user demands.
    pub node: Option<NodeId>,
    /// A name for people; `None` keeps the present one.
    pub name: Option<String>,
    /// Its rack, as a number.
    pub rack: RackId,
    /// Its rack, as a name; if given, the number is ignored.
    pub rack_name: Option<String>,
    /// Its gRPC listener.
    pub control: SocketAddr,
    /// Its slice listener.
    pub data: SocketAddr,
    /// Its data directory, for people.
    pub dir: String,
    /// Random, new at every start: so a message from before a restart is recognised as old.
    pub incarnation: u64,
    /// The cluster that the folder belongs to; `None` for a new folder.
    pub cluster: Option<ClusterId>,
    /// The id of the folder.
    pub folder: FolderId,
    /// The id of the log in it, if that was damaged ([`FolderId::log`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<FolderId>,
    /// The last point of the metadata's history that is recorded in the folder.
    pub seen: Option<Seen>,
    /// How many blocks it holds.
    pub blocks: u64,
    /// One more than the largest stripe id among its blocks.
    pub next_stripe: u64,
    /// This folder replaces the node's former folder, which is gone.
    pub replace: bool,
    /// The node was moved to another rack together with its blocks.
    pub moved: bool,
    /// The newest version of the protocol that it speaks: what the call says, not the message.
    #[serde(skip)]
    pub protocol: u32,
}

/// The answer to [`Register`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registered {
    /// The agent's id from now on.
    pub node: NodeId,
    /// The cluster that it belongs to from now on.
    pub cluster: ClusterId,
    /// How often it must send a heartbeat.
    pub heartbeat_ms: u64,
    /// What it must remember; `None` while the coordinator does not trust its own metadata.
    pub seen: Option<Seen>,
    /// Whether it must report the labels of its blocks.
    #[serde(default)]
    pub labels: bool,
    /// The node's key, with which it checks tickets ([`crate::ticket`]), and the coordinator's time now, in seconds since
    /// 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tickets: Option<(Bytes, u64)>,
    /// As in [`HeartbeatReply::agents_too`].
    #[serde(default)]
    pub agents_too: bool,
}

/// One page of the list of an agent's blocks, in order of stripes. It has all blocks of the stripes after the
/// previous page, up to and including `upto`. The node counts as alive after the last page.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BlockPage {
    /// The agent.
    pub node: NodeId,
    /// Its start, from [`Register::incarnation`].
    pub incarnation: u64,
    /// Number of the page, counted from 0.
    pub number: u64,
    /// The last stripe of the page; `None` for the last page.
    pub upto: Option<StripeId>,
    /// What it holds.
    pub blocks: Vec<HeldBlock>,
    /// Blocks whose headers cannot be read.
    pub damaged: Vec<BadBlock>,
    /// Everything in its quarantine; in the last page only.
    pub aside: Vec<AsideBlock>,
    /// The label of each stripe of the page that has one, if the coordinator asked for labels.
    #[serde(default)]
    pub labels: Vec<(StripeId, Bytes)>,
}

/// A block in a node's quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideBlock {
    /// Its name in the quarantine, for restores and purges.
    pub name: String,
    /// Which block it was.
    pub id: BlockId,
    /// What its header says, if that can be read.
    pub held: Option<HeldBlock>,
    /// Why it is there.
    pub reason: String,
    /// How long it has been there, by the clock of its node.
    pub age_s: u64,
    /// Bytes of its file.
    pub bytes: u64,
}

/// What a node has in quarantine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsideList {
    /// In order of name.
    pub aside: Vec<AsideBlock>,
}

/// Move blocks that the metadata do not know into the quarantine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SetAside {
    /// Which blocks; a block that is missing or of another generation is skipped.
    pub blocks: Vec<BlockRef>,
}

/// How many blocks were set aside, taken back or purged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Number of blocks.
    pub blocks: u64,
}

/// Move a block from the quarantine back to its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TakeBack {
    /// From [`AsideBlock::name`].
    pub name: String,
}

/// Delete old blocks in the quarantine.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Purge {
    /// Only blocks that have been there longer than this.
    pub older_than_s: u64,
}

/// A node by its id.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct NodeRef {
    /// Its id.
    pub node: NodeId,
}

/// The quarantine of a cluster, or of one node.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Quarantine {
    /// Only this node.
    pub node: Option<NodeId>,
}

/// One node's quarantine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeQuarantine {
    /// Which node.
    pub node: NodeId,
    /// Number of blocks that looked unknown at once, if suspiciously many: then nothing is purged until an
    /// operator confirms. Else 0.
    pub held: u64,
    /// What is in it.
    pub aside: Vec<AsideBlock>,
    /// Why the node did not answer.
    pub error: Option<String>,
}

/// The answer to [`Quarantine`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuarantineList {
    /// By node.
    pub nodes: Vec<NodeQuarantine>,
    /// Seconds after which blocks are purged.
    pub keep_s: u64,
}

/// Make a node move a block from its quarantine back to its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RestoreBlock {
    /// Which node.
    pub node: NodeId,
    /// From [`AsideBlock::name`].
    pub name: String,
}

/// A block of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockRef {
    /// Which block.
    pub id: BlockId,
    /// Its generation.
    pub generation: u32,
}

/// An agent reports that it is alive.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The agent.
    pub node: NodeId,
    /// Its start, from [`Register::incarnation`].
    pub incarnation: u64,
    /// Its disk.
    pub usage: DiskUsage,
    /// Programs running now.
    pub running: u32,
    /// Why its folder can no longer be used; `None` if it can.
    pub failed: Option<String>,
    /// What its links and its disk have carried.
    pub counters: Counters,
}

/// What an agent's host has carried, in bytes since some moment, at a time of the agent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Milliseconds since the agent started.
    pub at_ms: u64,
    /// The interface of its data listener; `None` on loopback, or if the system does not tell.
    pub link: Option<LinkCounters>,
    /// The device of its folder: bytes read and written.
    pub disk: Option<(u64, u64)>,
    /// Milliseconds in which that device had requests; `None` if the system or an older agent does not tell.
    #[serde(default)]
    pub disk_busy_ms: Option<u64>,
    /// The part that was background work of this agent.
    pub background: Moved,
}

/// What a network interface has carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCounters {
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// The speed that the hardware negotiated, in bytes a second.
    pub speed: Option<u64>,
}

/// Bytes that an agent has moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Sent to other nodes.
    pub sent: u64,
    /// Received from other nodes.
    pub received: u64,
    /// Read from blocks.
    pub read: u64,
    /// Written to blocks.
    pub written: u64,
}

/// The answer to [`Heartbeat`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// The coordinator does not know this incarnation: register again.
    pub register_again: bool,
    /// What it must remember; `None` while the coordinator does not trust its own metadata.
    pub seen: Option<Seen>,
    /// Bytes a second that repairs and other background work may send, receive and read on this node; `None`: no limit.
    #[serde(default)]
    pub repair_rate: Option<NonZeroU64>,
    /// From now on agents need tickets too: all of them and all writers of volumes speak
    /// [`HANDS_ON_TICKETS`](crate::version::HANDS_ON_TICKETS). It stays so; older coordinators do not say it.
    #[serde(default)]
    pub agents_too: bool,
}

/// Whether a node can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeState {
    /// Heartbeats arrive.
    Alive,
    /// Alive, but being emptied: it gets no new blocks.
    Draining,
    /// Heartbeats are missing.
    Dead,
    /// Stopped on purpose.
    Stopped,
    /// Its agent lives, but its disk or folder is gone.
    Failed,
}

impl NodeState {
    /// For people; what needs attention is in capitals.
    pub fn word(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Dead => "DEAD",
            Self::Stopped => "stopped",
            Self::Failed => "DISK FAILED",
        }
    }
}

/// One node as the coordinator sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeInfo {
    /// Its id.
    pub id: NodeId,
    /// Its rack.
    pub rack: RackId,
    /// Its state.
    pub state: NodeState,
    /// Its gRPC listener.
    pub control: SocketAddr,
    /// Its slice listener.
    pub data: SocketAddr,
    /// Its data directory.
    pub dir: String,
    /// Milliseconds since its last heartbeat.
    pub silent_ms: u64,
    /// Its disk; `None` if its agent has not told it yet.
    pub usage: Option<DiskUsage>,
    /// Bytes of its disk that are kept free.
    #[serde(default)]
    pub reserve_bytes: u64,
    /// How full it is.
    #[serde(default)]
    pub fullness: Fullness,
    /// Blocks that the metadata places on it.
    pub placed_blocks: u64,
    /// Those of them that are known to be lost.
    pub lost_blocks: u64,
    /// Its name, if it has one.
    #[serde(default)]
    pub name: Option<String>,
    /// The name of its rack, if that has one.
    #[serde(default)]
    pub rack_name: Option<String>,
    /// Why its disk cannot be used, if so.
    #[serde(default)]
    pub failed: Option<String>,
    /// Its folder.
    #[serde(default)]
    pub folder: Option<FolderId>,
    /// Number of its blocks that looked unknown at once, if suspiciously many: then none is purged until an
    /// operator confirms. Else 0.
    #[serde(default)]
    pub held: u64,
    /// How far its blocks have been verified by the scrub that runs by itself.
    #[serde(default)]
    pub scrub: Option<NodeScrub>,
    /// Until then no repair of its blocks begins by itself, in seconds since 1970.
    #[serde(default)]
    pub paused_until: Option<u64>,
    /// The newest version of the protocol that its agent speaks; 0: not known yet.
    #[serde(default)]
    pub protocol: u32,
}

/// How far the blocks of a node have been verified by the scrub that runs by itself. It goes through them in order of
/// their stripes, pass after pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScrub {
    /// When the last pass began, in seconds since 1970.
    pub began: u64,
    /// Blocks that it has verified.
    pub done: u64,
    /// The last stripe that it has come to.
    pub upto: Option<StripeId>,
    /// Whether it has come to the end.
    pub ended: bool,
    /// When a pass last came to the end, in seconds since 1970.
    pub verified: Option<u64>,
}

/// How far the blocks of stripes have been compared with each other. That runs by itself beside the scrub.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComparedStripes {
    /// The last pass over all stripes, as that of a node, but it counts stripes. None has begun yet if it is missing.
    pub pass: Option<NodeScrub>,
    /// Stripes that could not be compared when their turn came, because a block could not be read: each is tried again.
    pub waiting: u64,
    /// Stripes that the pass under way has come to and left out: they have no parity yet or no more blocks than needed, their
    /// codes have sub-blocks, or too many wait already.
    pub not_compared: u64,
    /// The same of the pass that came to the end last.
    pub not_compared_before: u64,
}

/// All nodes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeList {
    /// By id.
    pub nodes: Vec<NodeInfo>,
}

/// The cluster in numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// Visible objects.
    pub objects: u64,
    /// Bytes of objects.
    pub object_bytes: u64,
    /// Stripes.
    pub stripes: u64,
    /// Nodes alive.
    pub alive: u32,
    /// Nodes dead or stopped.
    pub dead: u32,
    /// Stripes with one or more blocks unavailable now.
    pub degraded_stripes: u64,
    /// Stripes that cannot be read now.
    pub unreadable_stripes: u64,
    /// Blocks waiting for or under repair.
    pub repairs_pending: u64,
    /// Puts under way.
    pub puts_pending: u64,
    /// Blocks waiting to be deleted on some node.
    pub garbage: u64,
    /// The cluster's id.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
    /// Why the coordinator does not delete and repair automatically now, and what to do about it.
    #[serde(default)]
    pub held_back: Vec<String>,
    /// The newest copy of the metadata that agents keep, if any.
    #[serde(default)]
    pub metadata_copy: Option<LastCopy>,
    /// How well the cluster is.
    #[serde(default)]
    pub health: HealthSummary,
    /// How fast repairs may be, and why.
    #[serde(default)]
    pub repair_limit: Option<RepairLimit>,
    /// How far stripes have been compared with their codes; `None` if the scrub is switched off.
    #[serde(default)]
    pub compared: Option<ComparedStripes>,
}

/// What to do with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeAction {
    /// End its agent.
    Stop,
    /// Start its agent again (only where the coordinator started it: `kintsu up`). A drain goes on.
    Start,
    /// Delete all its blocks.
    Wipe,
    /// Move all its blocks elsewhere; it gets no new ones.
    Drain,
    /// End its drain: it gets new blocks again.
    Undrain,
    /// For a time, begin no repair of its blocks by itself while it is away.
    Pause,
    /// End its pause.
    Resume,
}

impl std::fmt::Display for NodeAction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Stop => "stop",
            Self::Start => "start",
            Self::Wipe => "wipe",
            Self::Drain => "drain",
            Self::Undrain => "undrain",
            Self::Pause => "pause",
            Self::Resume => "resume",
        })
    }
}

/// See [`NodeAction`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeCommand {
    /// Which node.
    pub node: NodeId,
    /// What to do.
    pub action: NodeAction,
    /// Do it even if that makes objects unreadable.
    #[serde(default)]
    pub force: bool,
    /// How long a pause lasts, in seconds.
    #[serde(default)]
    pub seconds: u64,
}
