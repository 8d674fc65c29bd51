//! Names in a cluster's folder: a folder for the coordinator and one for each node, so that one command can continue
//! with the cluster of another.

use std::path::{Path, PathBuf};

/// Where the coordinator of the cluster in `dir` keeps its metadata.
pub fn coordinator_dir(dir: &Path) -> PathBuf {
    dir.join("coordinator")
}

/// Where node `id` of the cluster in `dir` keeps its blocks.
pub fn node_dir(dir: &Path, id: u32) -> PathBuf {
    dir.join(format!("node-{id}"))
}

/// The rack of node `id`: nodes are assigned to racks in turn.
pub fn rack_of(id: u32, racks: u32) -> u32 {
    id % racks.max(1)
}
