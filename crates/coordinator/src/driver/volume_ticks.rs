//! Commits what volumes have logged: when many stripes are dirty, when some have been so for long, when logs grow large, or
//! when somebody asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_plan::update::Scheme;
use kintsu_wire::message::{
    CommittedVolume, LoggedBlocks, Nothing, PendingUpdate, PendingUpdates, ReleaseUpdates, UpdatesOf,
};

use super::guard::guarded;
use super::upgrade::check_volumes;
use super::volume_commit::{Committed, commit_stripe};
use super::volumes::within;
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Meta, Snapshot};

/// How often logs are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Stripes that are committed at the same time.
const AT_ONCE: usize = 8;

/// Runs until the coordinator ends.
pub async fn volumes(cluster: Arc<Cluster>) {
    let mut since: BTreeMap<StripeId, u64> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Err(error) = guarded(look(&cluster, &mut since)).await {
            tracing::warn!("volumes: {error}");
        }
    }
}

/// Commits what is due. `since`: when each dirty stripe was first seen.
async fn look(cluster: &Arc<Cluster>, since: &mut BTreeMap<StripeId, u64>) -> Result<()> {
    let any = cluster.meta.off(|meta| meta.snapshot()?.had_volumes()).await?;
    if !any || !cluster.gate().is_open() || check_volumes(cluster).is_err() {
        return Ok(());
    }
    let logs = pending(cluster).await;
    let now_ms = cluster.now_ms();
    let dirty = dirty(&logs);
    since.retain(|stripe, _| dirty.contains(stripe));
    dirty.iter().for_each(|stripe| {
        since.entry(*stripe).or_insert(now_ms);
    });
    let full = logs.iter().any(|(_, log)| log.log_bytes >= cluster.config.largest_log_bytes);
    let all = full || dirty.len() >= cluster.config.most_dirty;
    let longest_ms = cluster.config.longest_dirty.as_millis() as u64;
    let due = |stripe: &StripeId| all || since.get(stripe).is_some_and(|from| now_ms - from >= longest_ms);
    let stripes: Vec<StripeId> = dirty.iter().copied().filter(due).collect();
    let done = commit_stripes(cluster, stripes, None, None).await?;
    for left in &done.left {
        tracing::info!("still dirty: {left}");
    }
    // Also while there is much to commit: a log cannot become smaller than what its strays keep.
    release_strays(cluster, &logs).await
}

/// Has nodes forget what they log for a block whose row does not name them any more, or for a volume that was removed.
async fn release_strays(cluster: &Arc<Cluster>, logs: &[(NodeId, PendingUpdates)]) -> Result<()> {
    for (node, log) in logs {
        let (node, pending) = (*node, log.pending.clone());
        let find = move |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            let strays = pending.into_iter().map(|pending| {
                let stray = is_stray(&snapshot, node, &pending)?;
                Ok(stray.then_some(pending))
            });
            strays.filter_map(Result::transpose).collect::<Result<Vec<_>>>()
        };
        for pending in cluster.meta.off(find).await? {
            let (block, replica) = (pending.block, pending.replica);
            // Nobody makes it one of the row's nodes meanwhile.
            let _turn = cluster.turns.of(block.stripe).await;
            if cluster.meta.off(move |meta| is_stray(&meta.snapshot()?, node, &pending)).await? {
                release_stray(cluster, node, block, replica).await;
            }
        }
    }
    Ok(())
}

fn is_stray(snapshot: &Snapshot, node: NodeId, pending: &PendingUpdate) -> Result<bool> {
    let PendingUpdate { volume: logged_for, block, replica, .. } = *pending;
    if snapshot.was_removed(logged_for)? || snapshot.was_dropped(block.stripe)? {
        return Ok(true);
    }
    let Some((volume, index)) = snapshot.of_volume(block.stripe)? else { return Ok(false) };
    let Some((_, row)) = snapshot.volume_logs(volume, index, 1)?.pop() else { return Ok(false) };
    let Some(stripe) = snapshot.stripe(block.stripe)? else { return Ok(false) };
    // A snapshot has blocks alone; what was logged for them was never acknowledged, or is in them.
    if row.logs.is_empty() && volume != logged_for {
        return Ok(true);
    }
    let Some(members) = row.logs.get(usize::from(block.index.0)) else { return Ok(false) };
    let is_home = stripe.block(block.index).is_some_and(|home| home.node == node);
    Ok(!members.contains(&node) || is_home == replica)
}

async fn release_stray(cluster: &Arc<Cluster>, node: NodeId, block: BlockId, replica: bool) {
    let updates = vec![UpdatesOf { block, replica, upto: u64::MAX }];
    let Ok(mut agent) = cluster.agent(node) else { return };
    if let Err(error) = within(agent.release_updates(ReleaseUpdates { updates })).await {
        tracing::info!("{node} keeps an old log of {block}: {error}");
    }
}

/// Commits all dirty stripes of a volume.
///
/// # Errors
/// The metadata cannot be read.
pub async fn commit_volume(cluster: &Arc<Cluster>, volume: u64, scheme: Scheme) -> Result<CommittedVolume> {
    let logs = pending(cluster).await;
    commit_stripes(cluster, dirty(&logs).into_iter().collect(), Some(volume), Some(scheme)).await
}

/// Commits what was logged for some blocks of a stripe.
///
/// # Errors
/// It was logged under another epoch; whatever keeps the commit from its end.
pub async fn commit_blocks(
    cluster: &Arc<Cluster>,
    volume: u64,
    blocks: LoggedBlocks,
    scheme: Scheme,
) -> Result<CommittedVolume> {
    let done = commit_stripe(cluster, volume, blocks.index, scheme, Some(&blocks)).await?;
    let mut sum = CommittedVolume::default();
    add(&mut sum, done);
    Ok(sum)
}

fn add(sum: &mut CommittedVolume, done: Committed) {
    let Committed { blocks, parities, across_racks, left } = done;
    sum.stripes += u64::from(blocks > 0);
    sum.blocks += blocks;
    sum.parities += parities;
    sum.across_racks += across_racks;
    sum.left.extend(left);
}

/// Commits stripes, of one volume or of all, by one scheme or by that of their volume.
async fn commit_stripes(
    cluster: &Arc<Cluster>,
    stripes: Vec<StripeId>,
    of: Option<u64>,
    scheme: Option<Scheme>,
) -> Result<CommittedVolume> {
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut found = Vec::new();
        for stripe in stripes {
            let Some((volume, index)) = snapshot.of_volume(stripe)? else { continue };
            if of.is_none_or(|of| of == volume) {
                let own = || Ok::<_, CoordinatorError>(snapshot.volume_by_id(volume)?.record.scheme);
                found.push((volume, index, scheme.map_or_else(own, Ok)?));
            }
        }
        Ok(found)
    };
    let found = cluster.meta.off(find).await?;
    let commit = found.into_iter().map(|(volume, index, scheme)| async move {
        (index, commit_stripe(cluster, volume, index, scheme, None).await)
    });
    let mut ended = futures::stream::iter(commit).buffer_unordered(AT_ONCE);
    let mut sum = CommittedVolume::default();
    while let Some((index, ended)) = ended.next().await {
        match ended {
            Ok(done) => add(&mut sum, done),
            Err(error) => sum.left.push(format!("stripe {index}: {error}")),
        }
    }
    Ok(sum)
}

/// What the logs of all nodes that answer hold.
async fn pending(cluster: &Arc<Cluster>) -> Vec<(NodeId, PendingUpdates)> {
    let nodes = cluster.members().usable();
    let ask = nodes.into_iter().map(async |node| {
        let mut agent = cluster.agent(node).ok()?;
        Some((node, within(agent.pending_updates(Nothing {})).await.ok()?))
    });
    futures::future::join_all(ask).await.into_iter().flatten().collect()
}

fn dirty(logs: &[(NodeId, PendingUpdates)]) -> BTreeSet<StripeId> {
    logs.iter().flat_map(|(_, log)| &log.pending).map(|pending| pending.block.stripe).collect()
}

/// Has all nodes that answer forget what they logged for a volume that is gone.
pub async fn release_volume(cluster: &Arc<Cluster>, volume: u64) {
    let release = pending(cluster).await.into_iter().map(async |(node, log)| {
        let of_volume = log.pending.iter().filter(|pending| pending.volume == volume);
        let updates: Vec<UpdatesOf> = of_volume
            .map(|pending| UpdatesOf { block: pending.block, replica: pending.replica, upto: u64::MAX })
            .collect();
        let Ok(mut agent) = cluster.agent(node) else { return };
        if let Err(error) = within(agent.release_updates(ReleaseUpdates { updates })).await {
            tracing::warn!("{node} keeps what it logged for volume {volume}: {error}");
        }
    });
    futures::future::join_all(release).await;
}
