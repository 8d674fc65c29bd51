//! Has agents delete what nobody needs. A row of garbage goes only when its node has confirmed.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::DeleteBlocks;

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// Files that one call deletes.
const BATCH: usize = 250;
/// How often nodes that could not be reached are tried again.
const PERIOD: Duration = Duration::from_secs(2);
/// How long an agent may take for a batch.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs until the coordinator ends.
pub async fn sweep(cluster: Arc<Cluster>) {
    loop {
        tokio::select! {
            () = cluster.sweep.notified() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
        if !cluster.gate().may_delete() {
            continue;
        }
        match cluster.meta.off(|meta| meta.snapshot()?.any_garbage()).await {
            Ok(false) => continue,
            Ok(true) => {}
            Err(error) => tracing::error!("{error}"),
        }
        let (_, living) = cluster.nodes();
        futures::future::join_all(living.into_iter().map(|node| sweep_node(&cluster, node))).await;
    }
}

async fn sweep_node(cluster: &Arc<Cluster>, node: NodeId) {
    if let Err(error) = batches(cluster, node).await {
        tracing::info!("garbage stays on {node} for now: {error}");
    }
}

async fn batches(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    loop {
        let blocks = cluster.meta.off(move |meta| meta.snapshot()?.garbage(node, BATCH)).await?;
        if blocks.is_empty() {
            return Ok(());
        }
        let mut agent = cluster.agent(node)?;
        let unavailable = |reason: String| CoordinatorError::Unavailable { node, reason };
        tokio::time::timeout(PATIENCE, agent.delete(DeleteBlocks { blocks: blocks.clone() }))
            .await
            .map_err(|_| unavailable("it did not delete in time".into()))?
            .map_err(|status| unavailable(status.message().into()))?;
        cluster.meta.off(move |meta| meta.swept(node, &blocks)).await?;
    }
}
