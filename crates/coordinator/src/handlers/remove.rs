//! Removes an object; its blocks become garbage.

use std::sync::Arc;

use kintsu_wire::message::{ObjectInfo, Remove};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Remove) -> Result<ObjectInfo> {
    let removed = cluster.meta.off(move |meta| meta.remove(&request.name)).await?;
    cluster.sweep.notify_one();
    Ok(removed)
}
