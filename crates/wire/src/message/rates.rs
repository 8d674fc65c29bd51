//! What links and disks can carry, and how that is known.

use kintsu_dag::{NodeId, RackId};
use serde::{Deserialize, Serialize};

/// All links of which something is known.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRates {
    /// The links, nodes first.
    pub links: Vec<KnownLink>,
}

/// One direction of a link or a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownLink {
    /// Whose.
    pub end: LinkEnd,
    /// Which direction.
    pub way: Way,
    /// What it can carry, in bytes a second, and how that is known.
    pub capacity: Option<(u64, RateSource)>,
    /// What others than repairs take of it now, in bytes a second; `None` if it is not counted. Of a rack's link the most that
    /// it can be: all that they take of its nodes' links.
    pub foreground: Option<u64>,
}

/// Whose link it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkEnd {
    /// A node's link to its rack.
    Node(NodeId),
    /// A rack's link to the core.
    Rack(RackId),
    /// From one node to another.
    Pair(NodeId, NodeId),
}

/// A direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Sending.
    Up,
    /// Receiving.
    Down,
    /// Reading from the disk.
    Read,
    /// Writing to the disk.
    Write,
}

impl Way {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// How a rate is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateSource {
    /// An operator set it.
    Set,
    /// A short probe measured it.
    Measured,
    /// It once carried so much; a disk, while repairs kept it busy all the time.
    Seen,
    /// The hardware negotiated it.
    Hardware,
}
