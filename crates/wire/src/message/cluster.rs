//! Nodes and their coordinator.

use std::net::SocketAddr;

use kintsu_dag::{BlockId, NodeId, RackId};
use serde::{Deserialize, Serialize};

use super::DigestBytes;

/// A block that a node holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBlock {
    /// Which.
    pub id: BlockId,
    /// Its generation.
    pub generation: u32,
    /// Its length in bytes.
    pub len: u64,
    /// Its digest.
    pub digest: DigestBytes,
}

/// An agent starts: who it is and everything it holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Register {
    /// The id it was given at its first start, kept in its directory, or asked for by its user.
    pub node: Option<NodeId>,
    /// Its rack.
    pub rack: RackId,
    /// Its gRPC listener.
    pub control: SocketAddr,
    /// Its slice listener.
    pub data: SocketAddr,
    /// Its data directory, for people.
    pub dir: String,
    /// Random, new at every start: tells a restarted agent from a late message.
    pub incarnation: u64,
    /// All its blocks.
    pub blocks: Vec<HeldBlock>,
}

/// The answer to [`Register`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Registered {
    /// The agent's id from now on.
    pub node: NodeId,
    /// How often it must send a heartbeat.
    pub heartbeat_ms: u64,
    /// Blocks it holds that nobody needs any more: to be deleted.
    pub delete: Vec<BlockRef>,
}

/// A block of a certain generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockRef {
    /// Which.
    pub id: BlockId,
    /// Its generation.
    pub generation: u32,
}

/// An agent lives.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Who.
    pub node: NodeId,
    /// Of which start.
    pub incarnation: u64,
    /// Its disk.
    pub usage: DiskUsage,
    /// Programs running now.
    pub running: u32,
}

/// Space on a node's disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Blocks stored.
    pub blocks: u64,
    /// Bytes of block files.
    pub bytes: u64,
    /// Bytes still free.
    pub free_bytes: u64,
}

/// The answer to [`Heartbeat`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// The coordinator does not know this incarnation: register again.
    pub register_again: bool,
    /// Blocks to be deleted.
    pub delete: Vec<BlockRef>,
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
    /// Its disk.
    pub usage: DiskUsage,
    /// Blocks that the metadata places on it.
    pub placed_blocks: u64,
    /// Those of them that are known to be lost.
    pub lost_blocks: u64,
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
    /// Objects visible.
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
}

/// What to do with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeAction {
    /// End its agent.
    Stop,
    /// Start its agent again (only where the coordinator started it: `kintsu up`).
    Start,
    /// Delete all its blocks.
    Wipe,
    /// Move all its blocks elsewhere; it gets no new ones.
    Drain,
}

/// See [`NodeAction`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeCommand {
    /// Which node.
    pub node: NodeId,
    /// What to do.
    pub action: NodeAction,
    /// Also when that makes objects unreadable.
    #[serde(default)]
    pub force: bool,
}
