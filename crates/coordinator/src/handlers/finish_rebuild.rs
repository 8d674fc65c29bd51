//! An operator ends the making of metadata from blocks: from now on what they do not know counts as unknown, and what is
//! garbage is deleted again.

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
        return Err(refused("metadata that are being made anew", "none".into()));
    }
    let living: Vec<NodeId> = cluster.members().iter().filter(|(_, m)| m.up).map(|(node, _)| node).collect();
    if let Some(node) = living.into_iter().find(|node| !cluster.rebuild().has_told(*node)) {
        return Err(refused("that all living nodes have told of their blocks", format!("not {node} yet")));
    }
    if !cluster.rebuild().is_settled() {
        let waiting = cluster.rebuild().status(true).waiting;
        let got = waiting.unwrap_or_else(|| "some that told just now: try again in a moment".into());
        return Err(refused("that everything which agents told is worked in", got));
    }
    cluster.meta.off(|meta| meta.end_rebuild()).await?;
    cluster.gate().catch_up();
    tracing::warn!("the rebuild is finished");
    cluster.sweep.notify_one();
    Ok(cluster.rebuild().status(false))
}
