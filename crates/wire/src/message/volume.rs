//! Volumes: fixed-size virtual disks on updated stripes (`docs/adr/0008-updates-in-place.md`, `0010-volumes.md`).

use std::collections::{BTreeMap, BTreeSet};

use kintsu_code::Definition;
use kintsu_dag::{BlockIndex, NodeId};
use serde::{Deserialize, Serialize};

use super::{NodeAddress, StripeInfo};
use crate::ticket::Ticket;
use crate::{ClusterId, FolderId};

/// What an acknowledged write survives until a commit brings it into its block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// The loss of a node, or of a rack: its replica is in another rack if there is one.
    #[default]
    Rack,
    /// The loss of a node: its replica may be in the same rack.
    Node,
    /// As many losses of nodes as the code bears.
    Parity,
}

impl std::fmt::Display for Durability {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rack => "rack",
            Self::Node => "node",
            Self::Parity => "parity",
        })
    }
}

/// Make a volume; it reads as zeros.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateVolume {
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Name of its code.
    pub code: String,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What an acknowledged write survives.
    #[serde(default)]
    pub durability: Durability,
    /// How parities follow, by name; `None` for the scheme with the least traffic.
    #[serde(default)]
    pub scheme: Option<String>,
}

/// A stripe of a volume that is to be made. The object that it becomes has the name that [`MapVolume`] would find it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeOfVolume {
    /// The volume.
    pub volume: u64,
    /// Its position.
    pub index: u64,
    /// The epoch at which its writer took the volume.
    pub epoch: u64,
}

/// A volume by its name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeName {
    /// Its name.
    pub name: String,
}

/// Change the size of a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ResizeVolume {
    /// Its name.
    pub name: String,
    /// Its new size in bytes.
    pub size: u64,
}

/// Make a snapshot of a volume: a volume to read, with all that was acknowledged until now.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SnapshotVolume {
    /// The volume.
    pub name: String,
    /// The name of the snapshot.
    pub snapshot: String,
}

/// The answer to [`SnapshotVolume`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenSnapshot {
    /// The snapshot.
    pub snapshot: VolumeInfo,
    /// Stripes that are still to be committed, each with the reason. What was being written to them when the snapshot was made, and
    /// was not acknowledged, may still come to be in it or not.
    pub left: Vec<String>,
}

/// A volume, as people see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeInfo {
    /// Its id, which no other volume ever has.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Name of its code.
    pub code: String,
    /// Data blocks of a stripe.
    pub k: u16,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How parities follow, by name; empty for the scheme with the least traffic.
    #[serde(default)]
    pub scheme: String,
    /// Seconds since 1970 when it was made.
    pub created: u64,
    /// The newest epoch: each writer has one of its own, and each change of where its writes are logged makes a new one.
    pub epoch: u64,
    /// Stripes that exist, because something was written to them. Of a snapshot: those that it does not share any more.
    pub stripes: u64,
    /// Whether somebody holds the lease to write.
    pub writer: bool,
    /// Of a snapshot: the name of the volume that it was taken of; empty if that was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_of: Option<String>,
    /// The names of its snapshots, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub snapshots: Vec<String>,
}

impl VolumeInfo {
    /// Bytes of a stripe.
    pub fn stripe_bytes(&self) -> u64 {
        self.block_bytes.saturating_mul(u64::from(self.k))
    }
}

/// All volumes, in order of name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeList {
    /// The volumes.
    pub volumes: Vec<VolumeInfo>,
}

/// Open a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenVolume {
    /// Its name.
    pub name: String,
    /// A random number of who wants to write; `None` to read only.
    #[serde(default)]
    pub writer: Option<u64>,
    /// Take the lease from a writer that still has it.
    #[serde(default)]
    pub take: bool,
}

/// An open volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpenedVolume {
    /// The volume.
    pub volume: VolumeInfo,
    /// The epoch at which the writer took it.
    pub taken: u64,
    /// The writer must renew its lease within this time.
    pub lease_ms: u64,
    /// The definition of a registered code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Definition>,
    /// The cluster, which agents want to be shown.
    pub cluster: ClusterId,
}

/// Who writes to a volume.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct VolumeWriter {
    /// The volume.
    pub volume: u64,
    /// As in [`OpenVolume::writer`].
    pub writer: u64,
}

/// A volume's size, and how long its writer may go on.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct VolumeLease {
    /// Its size in bytes.
    pub size: u64,
    /// The lease must be renewed within this time.
    pub lease_ms: u64,
}

/// Where stripes of a volume are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MapVolume {
    /// The volume.
    pub volume: u64,
    /// The first stripe wanted, counted in the volume.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Who is going to write to them; `None` to read.
    #[serde(default)]
    pub writer: Option<u64>,
    /// A call under this epoch was refused, or a write was not answered: log these stripes under a newer one, where nodes
    /// answer.
    #[serde(default)]
    pub failed: Option<u64>,
    /// Whether the writer is about to write, so that stripes which a snapshot shares must become its own; `None` of callers who do
    /// not know of snapshots, and may be.
    #[serde(default)]
    pub own: Option<bool>,
}

/// One stripe of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStripe {
    /// Which one, counted in the volume.
    pub index: u64,
    /// The stripe.
    pub stripe: StripeInfo,
    /// The volume by whose name the stripe goes, and whose epochs nodes know; `None`: the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u64>,
    /// A snapshot shares it: nothing may be written to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// It belongs to snapshots alone: its blocks are all of it, and what they hold never changes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub frozen: bool,
    /// The epoch under which its updates are logged.
    pub epoch: u64,
    /// For each data block the nodes that log its updates, all of them before a write is acknowledged. The block's home
    /// is the first, unless it is gone.
    pub logs: Vec<Vec<NodeId>>,
    /// The logs of these nodes: their folders, or ids of logs that were damaged ([`FolderId::log`]).
    #[serde(default)]
    pub folders: BTreeMap<NodeId, FolderId>,
    /// For each block a ticket for each node that logs its updates, in order, and last for its home: to log updates there
    /// or to read them. Only if certificates say who may do what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log_tickets: Vec<Vec<Ticket>>,
}

/// The answer to [`MapVolume`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeMap {
    /// The newest epoch that all its nodes may know: at which its writer took the volume, or its newest snapshot was taken.
    pub taken: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The stripes that exist; the others are zeros.
    pub stripes: Vec<VolumeStripe>,
    /// All nodes.
    pub nodes: Vec<NodeAddress>,
}

/// Bring what is logged into the blocks and parities of a volume.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommitVolume {
    /// Its name.
    pub name: String,
    /// How parities follow, by name; `None` for the scheme of the volume.
    #[serde(default)]
    pub scheme: Option<String>,
    /// Only these blocks; `None`: all.
    #[serde(default)]
    pub blocks: Option<LoggedBlocks>,
}

/// Blocks of a stripe to which something was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedBlocks {
    /// The stripe, counted in the volume.
    pub index: u64,
    /// The epoch under which it was logged: if another one has begun by now, nothing is committed.
    pub epoch: u64,
    /// The blocks.
    pub blocks: Vec<BlockIndex>,
}

/// The answer to [`CommitVolume`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommittedVolume {
    /// Stripes that were dirty and are not any more.
    pub stripes: u64,
    /// Data blocks that were updated in them.
    pub blocks: u64,
    /// Parity blocks that were updated in them.
    pub parities: u64,
    /// Bytes that crossed racks for that.
    pub across_racks: u64,
    /// Stripes that stay dirty, each with the reason.
    pub left: Vec<String>,
}

/// Ask which logs of a volume are only on nodes that are gone, or go on without them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AbandonLogs {
    /// Its name.
    pub name: String,
    /// Whether to go on without them: what they alone have is lost then.
    pub abandon: bool,
    /// Only without logs that no other nodes had than these, which somebody has confirmed; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<BTreeSet<NodeId>>,
}

/// The answer to [`AbandonLogs`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbandonedLogs {
    /// One for each block, ascending.
    pub logs: Vec<LostLog>,
}

/// A log of one block that no node which answers has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostLog {
    /// Where the block begins in the volume.
    pub offset: u64,
    /// Its bytes.
    pub len: u64,
    /// The nodes that had it.
    pub nodes: Vec<NodeId>,
}
