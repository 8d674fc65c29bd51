//! Progress of a rebuild of the metadata from blocks.

use serde::{Deserialize, Serialize};

/// What a rebuild has found and restored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Whether a rebuild is active.
    pub active: bool,
    /// Nodes that have reported all their blocks since the coordinator's start.
    pub agents: u64,
    /// Blocks of stripes that the metadata did not know.
    pub blocks: u64,
    /// Blocks of an old format, without a label, of stripes that the metadata do not know.
    pub without_label: u64,
    /// Objects that are visible again.
    pub shown: u64,
    /// Objects that became visible and were removed again, because an agent remembers their removal.
    pub removed: u64,
    /// Objects that were found but cannot be made visible.
    pub incomplete: u64,
    /// The first of the incomplete objects, newest first.
    pub first_incomplete: Vec<Incomplete>,
    /// Objects that were found whole, but have a newer version that is visible.
    pub covered: u64,
    /// The first of these, newest first.
    pub first_covered: Vec<Covered>,
    /// What the rebuild waits for, if anything.
    pub waiting: Option<String>,
}

/// An object of which too little was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incomplete {
    /// Its name.
    pub name: String,
    /// Its id, which is also its version.
    pub version: u64,
    /// Its length in bytes.
    pub size: u64,
    /// What is missing.
    pub missing: String,
}

/// An older version of an object, found whole. Usually the newer one replaced it and it only waits to be deleted; but the
/// newer one may also be of a put that failed after all its blocks were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Covered {
    /// Its name.
    pub name: String,
    /// Its id, which is also its version.
    pub version: u64,
    /// Its length in bytes.
    pub size: u64,
    /// When it was put, in seconds since 1970.
    pub created: u64,
    /// The visible version.
    pub by: u64,
}
