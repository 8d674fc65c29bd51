//! Has nodes read blocks again that were reported as bad, and records the results ([`crate::engine::doubt`]).
//! Few blocks are read again at the same time.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{BlockRef, Fault, HeldBlock};

use super::guard::guarded;
use super::ticks::repair_now;
use crate::answer::answer;
use crate::cluster::Cluster;
use crate::engine::census::Proof;
use crate::engine::doubt::{self, Rereading, Shown};
use crate::error::{CoordinatorError, Result};
use crate::meta::{LostBlock, Meta};

/// How long a node may take to read a block.
const PATIENCE: Duration = Duration::from_secs(60);
/// Flagged blocks per page.
const PAGE: usize = 1024;

/// Has reported blocks read again, and the bad ones repaired at once. Returns without waiting for either.
pub fn report(cluster: &Arc<Cluster>, suspects: Vec<LostBlock>) {
    for suspect in suspects {
        if cluster.verifying().is_full() {
            tracing::warn!("too many reports of bad blocks at once: the one about {} is dropped", suspect.id);
            return;
        }
        let worker = cluster.clone();
        cluster.spawn(async move {
            match guarded(doubt(&worker, suspect)).await {
                Ok(true) => repair_now(&worker, vec![suspect.id], None),
                Ok(false) => {}
                Err(error) => tracing::warn!("{} may be bad: {error}", suspect.id),
            }
        });
    }
}

/// Has the node of a block read it once more. Flags the block lost if it is bad; removes its flag if it is
/// sound. Returns whether this call found it lost; false also if another call is reading it already.
///
/// # Errors
/// The node cannot be reached: nothing is changed.
pub async fn doubt(cluster: &Arc<Cluster>, suspect: LostBlock) -> Result<bool> {
    let LostBlock { id, node, .. } = suspect;
    if !cluster.verifying().begin((node, id)) {
        return Ok(false);
    }
    let _once = Once { cluster, place: (node, id) };
    if is_back(FixedFault::ReportsBelieved) {
        return flag(cluster, suspect, None, "as reported").await;
    }
    let _turn = cluster.doubts.acquire().await.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    // A block that has moved or is gone by now is not lost.
    let at_home = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let stripe = snapshot.stripe(id.stripe)?.filter(|stripe| stripe.at_home(id.index, node).is_some());
        stripe.map(|stripe| Ok((stripe, snapshot.fence(node)?))).transpose()
    };
    let Some((stripe, fence)) = cluster.meta.off(at_home).await? else { return Ok(false) };
    let generation = stripe.generation_of(id.index);
    let shown = match verify(cluster, node, BlockRef { id, generation }).await? {
        Err(fault) => doubt::unread(suspect, fault),
        Ok(held) => {
            let stripe = cluster.load(id.stripe).await?.map(|(stripe, _)| stripe);
            doubt::reread(suspect, &held, stripe.as_ref())
        }
    };
    match shown {
        // A commit may have given it a next version meanwhile, which was not looked at.
        Shown::Lost(lost, detail) => flag(cluster, lost, Some(generation), &detail).await,
        Shown::Sound => {
            tracing::info!("{id} on {node} was reported ({:?}), but is sound", suspect.why);
            cluster.meta.off(move |meta| meta.mark_found(&[(id, node)], Proof::Read, Some(fence))).await?;
            Ok(false)
        }
        Shown::Elsewhere => Ok(false),
        Shown::Nothing(fault) => Err(CoordinatorError::Unavailable { node, reason: fault.to_string() }),
    }
}

/// Has nodes read blocks again that are flagged lost, and removes the flag from those that are sound; returns
/// these. Those that are bad are repaired at once. If a node cannot be reached, its blocks stay as they are.
///
/// # Errors
/// The disk fails.
pub async fn reverify(cluster: &Arc<Cluster>, blocks: Vec<(BlockId, NodeId)>) -> Result<Vec<BlockId>> {
    let mut rereading = Rereading::default();
    for (id, node) in blocks {
        if !rereading.reads(node) {
            continue;
        }
        let why_lost = move |meta: &Meta| meta.snapshot()?.why_lost(id);
        let Some(why) = cluster.meta.off(why_lost).await? else { continue };
        match doubt(cluster, LostBlock { id, node, why }).await {
            Ok(lost) => rereading.read(id, lost, cluster.meta.off(why_lost).await?.is_some()),
            Err(CoordinatorError::Unavailable { reason, .. }) => {
                tracing::info!("{id} cannot be read again on {node}: {reason}");
                rereading.away(node);
            }
            Err(error) => return Err(error),
        }
    }
    if !rereading.bad.is_empty() {
        repair_now(cluster, rereading.bad, None);
    }
    Ok(rereading.sound)
}

/// As [`reverify`], for all blocks of a node whose flag only reading them can clear.
///
/// # Errors
/// The disk fails.
pub async fn reverify_node(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    let mut after = None;
    loop {
        let look = move |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            let rows = snapshot.lost(after, PAGE)?;
            let last = rows.last().map(|(id, _)| id.stripe);
            let mut blocks = Vec::new();
            for (id, why) in rows.into_iter().filter(|(_, why)| !Proof::Header.clears(*why)) {
                let stripe = snapshot.stripe(id.stripe)?;
                let home = stripe.as_ref().and_then(|s| s.block(id.index)).map(|b| b.node);
                if home == Some(node) {
                    tracing::debug!("{id} on {node} is flagged ({why:?}): it is read again");
                    blocks.push((id, node));
                }
            }
            Ok((last, blocks))
        };
        let (last, blocks) = cluster.meta.off(look).await?;
        if last.is_none() {
            return Ok(());
        }
        after = last;
        reverify(cluster, blocks).await?;
    }
}

/// Has a node read a block: returns what it holds, or what is wrong with it.
async fn verify(cluster: &Arc<Cluster>, node: NodeId, block: BlockRef) -> Result<Result<HeldBlock, Fault>> {
    let mut agent = cluster.agent(node)?;
    let late = format!("it did not read {} in time", block.id);
    Ok(answer(node, PATIENCE, &late, agent.verify(block)).await?.result)
}

async fn flag(
    cluster: &Arc<Cluster>,
    lost: LostBlock,
    generation: Option<u32>,
    detail: &str,
) -> Result<bool> {
    let marked = cluster.meta.off(move |meta| meta.mark_lost_of(lost, generation)).await?;
    if marked {
        tracing::warn!("{} on {} is bad: {detail}", lost.id, lost.node);
    }
    Ok(marked)
}

/// Lets a block be verified again when this is dropped.
struct Once<'a> {
    cluster: &'a Cluster,
    place: (NodeId, BlockId),
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        self.cluster.verifying().end(self.place);
    }
}
