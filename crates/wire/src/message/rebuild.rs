//! How far metadata are that are being made anew from blocks.

use serde::{Deserialize, Serialize};

/// What a rebuild has found, and what it has made of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebuildStatus {
    /// Whether metadata are being made anew.
    pub active: bool,
    /// Nodes that have told of all their blocks since the start.
    pub agents: u64,
    /// Blocks of stripes that the metadata did not know.
    pub blocks: u64,
    /// Blocks without a label, of an old format, of stripes that the metadata do not know.
    pub without_label: u64,
    /// Objects that are back.
    pub shown: u64,
    /// Visible objects that were removed, because an agent remembers that they are gone.
    pub removed: u64,
    /// Objects that were found but cannot be shown.
    pub incomplete: u64,
    /// The first of them, those that were written last coming first.
    pub first_incomplete: Vec<Incomplete>,
    /// What keeps the rebuild from going on now, if something does.
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
