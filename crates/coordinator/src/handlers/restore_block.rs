//! Has a node take a block back out of its quarantine. If the metadata list the block as lost, it counts as found.

use std::sync::Arc;

use kintsu_wire::message::{HeldBlock, RestoreBlock};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, RestoreBlock { node, name }: RestoreBlock) -> Result<HeldBlock> {
    driver::restore(cluster, node, name).await
}
