//! The space of a cluster: what is stored, what is free, and how much data still fits.

use kintsu_dag::NodeId;
use serde::{Deserialize, Serialize};

/// Space on a node's disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    /// Blocks stored.
    pub blocks: u64,
    /// Bytes of block files.
    pub bytes: u64,
    /// Bytes still free.
    pub free_bytes: u64,
    /// Size of the file system; 0 if not known.
    #[serde(default)]
    pub capacity_bytes: u64,
    /// A number for the file system: nodes with the same number share it. `None` if not known.
    #[serde(default)]
    pub medium: Option<u64>,
    /// Blocks in quarantine.
    #[serde(default)]
    pub aside_blocks: u64,
    /// Bytes of their files.
    #[serde(default)]
    pub aside_bytes: u64,
}

impl DiskUsage {
    /// This, if its agent could tell the size of its file system.
    pub fn known(self) -> Option<Self> {
        (self.capacity_bytes > 0).then_some(self)
    }
}

/// How full a node is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fullness {
    /// Its agent has not said it yet.
    #[default]
    Unknown,
    /// There is room.
    Roomy,
    /// Soon it gets no new blocks.
    NearlyFull,
    /// It gets no new blocks: only the reserve is free.
    Full,
}

/// Asks how much data still fits.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct AskSpace {
    /// With these codes; if empty, with all codes that the cluster has used.
    pub codes: Vec<String>,
}

/// How much data of one code still fits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CodeSpace {
    /// Its name.
    pub code: String,
    /// Bytes stored for each byte of an object.
    pub overhead: f64,
    /// Bytes of objects that still fit; `None` if too few nodes have room.
    pub usable_bytes: Option<u64>,
    /// Whether stripes survive the loss of any rack; if not, there are too few racks.
    pub rack_safe: bool,
    /// Why nothing fits, or what else is to be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The space of the cluster, over the nodes that are alive and have reported it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Size of all file systems; one that nodes share counts once.
    pub raw_bytes: u64,
    /// Bytes of blocks.
    pub used_bytes: u64,
    /// Bytes of blocks in quarantine.
    pub aside_bytes: u64,
    /// Bytes of everything else on these file systems.
    pub other_bytes: u64,
    /// Free bytes that are kept free.
    pub reserved_bytes: u64,
    /// Free bytes that new blocks may take; on nodes that get new blocks.
    pub free_bytes: u64,
    /// File systems counted.
    pub media: u64,
    /// Nodes counted.
    pub nodes: u64,
    /// Nodes that are alive and have not reported their space yet.
    pub unknown: Vec<NodeId>,
    /// Nodes that get no new blocks: down, draining, or full.
    pub closed: Vec<NodeId>,
    /// By code.
    pub codes: Vec<CodeSpace>,
}
