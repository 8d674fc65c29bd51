//! Blocks that the metadata do not know: set aside on their nodes, taken back when they are wanted after all, purged after a
//! long time.
//!
//! Nothing is moved before the gate is open, and nothing is purged on a node where many blocks looked unknown at once
//! until an operator confirms.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{AsideBlock, BlockRef, HeldBlock, Purge, SetAside, TakeBack};
use tonic::Status;

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Landing, Meta};

/// Unknown blocks of one call.
const BATCH: usize = 250;
/// Unknown blocks that are looked up at once.
const LOOKED: usize = 8192;
/// How often it is looked whether the gate is open.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often nodes are told to purge.
const PURGE_EVERY: Duration = Duration::from_secs(600);
/// More unknown blocks than this, and more than one in a hundred, are no accident of a single block.
const FEW: u64 = 10;
const ONE_IN: u64 = 100;

/// Blocks on a node that the metadata do not know.
#[derive(Debug, Clone)]
pub struct Unknown {
    /// Which node.
    pub node: NodeId,
    /// Which blocks, as far as they are remembered.
    pub blocks: Vec<BlockRef>,
    /// How many there are.
    pub count: u64,
    /// Of so many that the node holds.
    pub of: u64,
}

impl Unknown {
    /// Whether so many look unknown at once that rather the metadata may be wrong.
    fn many(&self) -> bool {
        self.count > FEW && self.count.saturating_mul(ONE_IN) > self.of
    }
}

/// Takes back what the metadata miss of a node's quarantine, then sets aside what they do not know.
pub async fn settle_quarantine(cluster: Arc<Cluster>, unknown: Unknown, aside: Vec<AsideBlock>) {
    let node = unknown.node;
    if let Err(error) = take_back(&cluster, node, aside).await {
        tracing::warn!("the quarantine of {node}: {error}");
    }
    if let Err(error) = set_aside(&cluster, unknown).await {
        tracing::warn!("unknown blocks stay where they are on {node}: {error}");
    }
}

async fn take_back(cluster: &Arc<Cluster>, node: NodeId, aside: Vec<AsideBlock>) -> Result<()> {
    for block in aside {
        let Some(held) = block.held else { continue };
        let wanted = cluster.meta.off(move |meta| meta.snapshot()?.misses(node, &held)).await?;
        if wanted.is_none() {
            continue;
        }
        let name = block.name;
        let taken = cluster.agent(node)?.take_back(TakeBack { name }).await.map_err(unavailable(node))?;
        welcome(cluster, node, &taken.into_inner()).await?;
    }
    Ok(())
}

/// A whole block has come to its place on a node: where the metadata miss it, it counts as found there.
///
/// # Errors
/// The disk fails.
pub async fn welcome(cluster: &Arc<Cluster>, node: NodeId, held: &HeldBlock) -> Result<()> {
    let held = held.clone();
    let found = move |meta: &Meta| {
        let Some(home) = meta.snapshot()?.misses(node, &held)? else { return Ok(()) };
        let BlockId { stripe, index } = held.id;
        let landing = Landing { index, from: home, to: node, digest: held.digest };
        meta.rehome(stripe, held.generation, &[landing])?;
        tracing::info!("{} was found in the quarantine of {node}", held.id);
        Ok(())
    };
    cluster.meta.off(found).await
}

/// Sets unknown blocks aside once the gate is open, unless somebody knows them by then.
///
/// # Errors
/// The node cannot be reached, the disk fails.
pub async fn set_aside(cluster: &Arc<Cluster>, unknown: Unknown) -> Result<()> {
    let node = unknown.node;
    if unknown.blocks.is_empty() {
        return Ok(());
    }
    while !cluster.gate().is_open() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let (mut still, mut known) = (Vec::new(), 0);
    for batch in unknown.blocks.chunks(LOOKED) {
        let (batch, worker) = (batch.to_vec(), cluster.clone());
        let looked = batch.len();
        let look = move |meta: &Meta| {
            let keep: HashSet<BlockId> = worker.written_to(node);
            meta.snapshot()?.unknown(node, &batch, &keep)
        };
        let unknown = cluster.meta.off(look).await?;
        known += looked - unknown.len();
        still.extend(unknown);
    }
    // Metadata may have been made anew from blocks meanwhile. Of those that were not remembered as many are known now.
    let share = |count: u64| count.saturating_mul(still.len() as u64) / (still.len() + known).max(1) as u64;
    let unknown = Unknown { count: share(unknown.count), blocks: still, ..unknown };
    if unknown.blocks.is_empty() {
        return Ok(());
    }
    if unknown.many() {
        let count = unknown.count;
        tracing::error!(
            "{count} of {} blocks of {node} are unknown to the metadata: nothing of it is purged until `kintsu quarantine \
             confirm {}`",
            unknown.of,
            node.0
        );
        cluster.meta.off(move |meta| meta.change_node(node, |record| record.held = count)).await?;
        cluster.members().recorded(node, |record| record.held = count);
    }
    for batch in unknown.blocks.chunks(BATCH) {
        let (batch, worker) = (batch.to_vec(), cluster.clone());
        let still = move |meta: &Meta| {
            let keep: HashSet<BlockId> = worker.written_to(node);
            meta.snapshot()?.unknown(node, &batch, &keep)
        };
        let blocks = cluster.meta.off(still).await?;
        if !blocks.is_empty() {
            cluster.agent(node)?.set_aside(SetAside { blocks }).await.map_err(unavailable(node))?;
        }
    }
    Ok(())
}

/// Has nodes purge what has been set aside for long. Runs until the coordinator ends.
pub async fn purge(cluster: Arc<Cluster>) {
    loop {
        let keep = cluster.config.quarantine_keep;
        tokio::time::sleep(PURGE_EVERY.min(keep.max(Duration::from_millis(200)))).await;
        if !cluster.gate().is_open() {
            continue;
        }
        let nodes: Vec<NodeId> = {
            let members = cluster.members();
            members.iter().filter(|(_, m)| m.up && m.record.held == 0).map(|(node, _)| node).collect()
        };
        for node in nodes {
            let worker = cluster.clone();
            cluster.spawn(async move {
                if let Err(error) = purge_node(&worker, node, keep).await {
                    tracing::info!("the quarantine of {node}: {error}");
                }
            });
        }
    }
}

async fn purge_node(cluster: &Arc<Cluster>, node: NodeId, keep: Duration) -> Result<()> {
    let purge = Purge { older_than_s: keep.as_secs() };
    let purged = cluster.agent(node)?.purge(purge).await.map_err(unavailable(node))?.into_inner().blocks;
    if purged > 0 {
        tracing::info!(
            "{purged} blocks that were set aside {} days ago are deleted on {node}",
            keep.as_secs() / 86_400
        );
    }
    Ok(())
}

fn unavailable(node: NodeId) -> impl Fn(Status) -> CoordinatorError {
    move |status| CoordinatorError::Unavailable { node, reason: status.message().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_unknown_blocks_are_an_accident_and_many_are_not() {
        let many = |count, of| Unknown { node: NodeId(0), blocks: Vec::new(), count, of }.many();
        assert!(!many(10, 10) && many(11, 11) && many(11, 1099) && !many(11, 1100) && many(12, 1100));
    }
}
