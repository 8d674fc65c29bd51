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
    if let Some(node) = living.into_iter().find(|node| !cluster.rebuild().has_told(*node)) {
        return Err(refused("block reports from all living nodes", format!("none from {node} yet")));
    }
    if !cluster.rebuild().is_settled() {
        let waiting = cluster.rebuild().status(true).waiting;
        let got = waiting.unwrap_or_else(|| "reports that have just come: try again in a moment".into());
        return Err(refused("all reports of agents to be processed", got));
    }
    cluster.meta.off(|meta| meta.end_rebuild()).await?;
    cluster.gate().catch_up();
    tracing::warn!("the rebuild is finished");
    cluster.sweep.notify_one();
    Ok(cluster.rebuild().status(false))
}
