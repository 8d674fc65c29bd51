//! Has nodes read blocks again that somebody found bad, and records what that shows ([`crate::engine::doubt`]).
//! Only a few blocks at once are read again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::ambient::{Mended, is_back};
use kintsu_wire::message::{BlockRef, Fault, HeldBlock};

use super::guard::guarded;
use super::ticks::mend_now;
use crate::answer::answer;
use crate::cluster::Cluster;
use crate::engine::census::Proof;
use crate::engine::doubt::{self, Shown};
use crate::error::{CoordinatorError, Result};
use crate::meta::{LostBlock, Meta};

/// How long a node may take to read a block.
const PATIENCE: Duration = Duration::from_secs(60);
/// Flagged blocks of a page.
const PAGE: usize = 1024;

/// Looks into reports of bad blocks, and has mended at once what is bad. Returns without waiting for that.
pub fn report(cluster: &Arc<Cluster>, suspects: Vec<LostBlock>) {
    for suspect in suspects {
        if cluster.verifying().is_full() {
            tracing::warn!("too many reports of bad blocks at once: that of {} is dropped", suspect.id);
            return;
        }
        let worker = cluster.clone();
        cluster.spawn(async move {
            match guarded(doubt(&worker, suspect)).await {
                Ok(true) => mend_now(&worker, vec![suspect.id], None),
                Ok(false) => {}
                Err(error) => tracing::warn!("{} may be bad: {error}", suspect.id),
            }
        });
    }
}

/// Has a block's node read it once more; flags it lost when it is bad, and takes the flag off when it is
/// sound. Returns whether the block is lost now, where this was looked into (and not by somebody else already).
///
/// # Errors
/// The node cannot be reached: nothing is changed.
pub async fn doubt(cluster: &Arc<Cluster>, suspect: LostBlock) -> Result<bool> {
    let LostBlock { id, node, .. } = suspect;
    if !cluster.verifying().begin((node, id)) {
        return Ok(false);
    }
    let _once = Once { cluster, place: (node, id) };
    if is_back(Mended::ReportsBelieved) {
        return flag(cluster, suspect, "as is said").await;
    }
    let _turn = cluster.doubts.acquire().await.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    // What has moved or is gone by now is nobody's loss.
    let at_home = move |meta: &Meta| {
        let stripe = meta.snapshot()?.stripe(id.stripe)?;
        Ok(stripe.filter(|stripe| stripe.at_home(id.index, node).is_some()))
    };
    let Some(stripe) = cluster.meta.off(at_home).await? else { return Ok(false) };
    let shown = match verify(cluster, node, BlockRef { id, generation: stripe.generation }).await? {
        Err(fault) => doubt::unread(suspect, fault),
        Ok(held) => {
            let stripe = cluster.load(id.stripe).await?.map(|(stripe, _)| stripe);
            doubt::reread(suspect, &held, stripe.as_ref())
        }
    };
    match shown {
        Shown::Lost(lost, detail) => flag(cluster, lost, &detail).await,
        Shown::Sound => {
            tracing::info!("{id} on {node} was reported ({:?}), but is sound", suspect.why);
            cluster.meta.off(move |meta| meta.mark_found(&[(id, node)], Proof::Read)).await?;
            Ok(false)
        }
        Shown::Elsewhere => Ok(false),
        Shown::Nothing(fault) => Err(CoordinatorError::Unavailable { node, reason: fault.to_string() }),
    }
}

/// Has nodes read blocks again that are flagged lost, and takes the flag from those that are sound; returns
/// these. Those that are bad indeed are mended at once. Nodes that cannot be reached change nothing.
///
/// # Errors
/// The disk fails.
pub async fn reverify(cluster: &Arc<Cluster>, blocks: Vec<(BlockId, NodeId)>) -> Result<Vec<BlockId>> {
    let (mut sound, mut bad, mut away) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (id, node) in blocks {
        if away.contains(&node) {
            continue;
        }
        let why = cluster.meta.off(move |meta| meta.snapshot()?.why_lost(id)).await?;
        let Some(why) = why else { continue };
        match doubt(cluster, LostBlock { id, node, why }).await {
            Ok(true) => bad.push(id),
            Ok(false) => {
                if cluster.meta.off(move |meta| meta.snapshot()?.why_lost(id)).await?.is_none() {
                    sound.push(id);
                }
            }
            Err(CoordinatorError::Unavailable { reason, .. }) => {
                tracing::info!("{id} cannot be read again on {node}: {reason}");
                away.insert(node);
            }
            Err(error) => return Err(error),
        }
    }
    if !bad.is_empty() {
        mend_now(cluster, bad, None);
    }
    Ok(sound)
}

/// As [`reverify`], for all blocks of a node that are flagged for what only reading them can disprove.
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

/// The block as its node has it, or why the node cannot read it.
async fn verify(cluster: &Arc<Cluster>, node: NodeId, block: BlockRef) -> Result<Result<HeldBlock, Fault>> {
    let mut agent = cluster.agent(node)?;
    let late = format!("it did not read {} in time", block.id);
    Ok(answer(node, PATIENCE, &late, agent.verify(block)).await?.result)
}

async fn flag(cluster: &Arc<Cluster>, lost: LostBlock, detail: &str) -> Result<bool> {
    let marked = cluster.meta.off(move |meta| meta.mark_lost(&[lost])).await?;
    if !marked.is_empty() {
        tracing::warn!("{} on {} is bad: {detail}", lost.id, lost.node);
    }
    Ok(!marked.is_empty())
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
