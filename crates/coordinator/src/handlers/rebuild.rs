//! Reports the progress of rebuilding the metadata from blocks.

use std::sync::Arc;

use kintsu_wire::message::RebuildStatus;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<RebuildStatus> {
    let active = cluster.is_rebuilding();
    Ok(cluster.rebuild().status(active))
}
