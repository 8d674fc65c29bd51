//! An operator ends the rebuild of metadata from blocks. From now on, blocks that the metadata do not know count
//! as unknown, and garbage is deleted again.

use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_wire::message::RebuildStatus;

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<RebuildStatus> {
    let refused = |expected: &str, got: String| CoordinatorError::Conflict {
        what: "finishing the rebuild".into(),
        expected: expected.into(),
        got,
    };
    if !cluster.is_rebuilding() {
        return Err(refused("a rebuild under way", "none".into()));
    }
    let living: Vec<NodeId> = cluster.members().iter().filter(|(_, m)| m.up).map(|(node, _)| node).collect();
    let unfinished = cluster.rebuild().unfinished(&living);
    if let Some((expected, got)) = unfinished {
        return Err(refused(expected, got));
    }
    cluster.meta.off(|meta| meta.end_rebuild()).await?;
    cluster.gate().catch_up();
    tracing::warn!("the rebuild is finished");
    cluster.sweep.notify_one();
    Ok(cluster.rebuild().status(false))
}
