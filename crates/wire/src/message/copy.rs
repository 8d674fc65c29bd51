//! Copies of the metadata: fetched by people and by agents, kept by agents.

use bytes::Bytes;
use kintsu_dag::NodeId;
use serde::{Deserialize, Serialize};

use crate::copy::CopySum;

/// Asks a coordinator for a copy of its metadata.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Backup {
    /// The number of a copy that the coordinator offers now; `None` for a new copy.
    pub number: Option<u64>,
}

/// A piece of a copy, at most 1 MiB.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyChunk {
    /// The next bytes.
    pub bytes: Bytes,
    /// Stripes in the pieces so far, if the sender knows.
    #[serde(default)]
    pub done: u64,
}

/// Tells an agent to get a copy from its coordinator and to keep it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeepCopy {
    /// The number under which the coordinator offers it.
    pub number: u64,
}

/// A copy that an agent keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptCopy {
    /// Its number: the larger, the newer.
    pub number: u64,
    /// When its snapshot was taken, in seconds since 1970.
    pub time: u64,
    /// Transactions committed until then.
    pub history: u64,
    /// Objects in it.
    pub objects: u64,
    /// Stripes in it.
    pub stripes: u64,
    /// Its length.
    pub bytes: u64,
    /// Its sum.
    pub sum: CopySum,
}

/// All copies that an agent keeps.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CopyList {
    /// The newest first. Their sums are checked when they are read.
    pub copies: Vec<KeptCopy>,
}

/// Asks an agent for a copy that it keeps.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadCopy {
    /// Its number.
    pub number: u64,
}

/// The copy that was given to agents last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCopy {
    /// Seconds since its snapshot was taken.
    pub age_seconds: u64,
    /// The agents that took it since the coordinator's last start.
    pub nodes: Vec<NodeId>,
}
