//! Keeps the logs of a volume's stripes where they are known to be complete.
//!
//! A write is acknowledged when all nodes that the stripe's row names have logged it. So each of them alone has all
//! acknowledged writes, as long as it accepts nothing that the others do not get. Before the nodes change, all that answer
//! refuse the present epoch; then one that has the log gives it to those that have it not; then the row changes, with a new
//! epoch (`docs/adr/0010-volumes.md`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_wire::FolderId;
use kintsu_wire::message::{BlockRef, FenceVolume, HeldBlock, PromoteBlocks, VolumeStripe};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tonic::Status;

use super::snapshots::{Ends, part};
use super::upgrade::{check_volumes, hands_on};
use super::volume_relog::{How, relog};
use crate::cluster::Cluster;
use crate::engine::members::Members;
use crate::error::{CoordinatorError, Result};
use crate::meta::change::Landing;
use crate::meta::snapshots::OwnedRow;
use crate::meta::volumes::Relogged;
use crate::meta::{Meta, StripeLogs};

/// How long a node may take for one step with its log.
const PATIENCE: Duration = Duration::from_secs(4);

/// Logs that were changed on nodes, which is not recorded yet; nobody else changes logs of the stripe until this is dropped.
pub struct Changed {
    /// What is to be recorded.
    pub relogged: Relogged,
    _turn: OwnedMutexGuard<()>,
    _moving: Option<OwnedSemaphorePermit>,
}

/// What a user of a volume asks for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// The volume or snapshot.
    pub volume: u64,
    /// The first position.
    pub first: u64,
    /// How many positions.
    pub count: u64,
    /// The user is the writer.
    pub writes: bool,
    /// It is about to write: what snapshots share must become its own.
    pub own: bool,
    /// A call under this epoch was refused, or a write was not answered.
    pub failed: Option<u64>,
}

/// The stripes of a volume as its users see them, its size, and the newest epoch that nodes may know. For the writer, they are logged
/// under an epoch of its own, on nodes that answer, unless it shares them with a snapshot and only reads.
///
/// # Errors
/// A log is on no node that answers; too few nodes; a stripe that a snapshot shares cannot be copied now.
pub async fn map(cluster: &Arc<Cluster>, wanted: Wanted) -> Result<(u64, u64, Vec<VolumeStripe>)> {
    check_volumes(cluster)?;
    let Wanted { volume, first, count, writes, own, failed } = wanted;
    let rows = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        snapshot.owned_rows(&snapshot.volume_by_id(volume)?.record, first, count)
    };
    if writes || failed.is_some() {
        let cut = cluster.turns.cut(volume);
        let _cut = cut.read().await;
        for row in cluster.meta.off(rows).await? {
            let index = row.index;
            if row.shared && own {
                part(cluster, volume, index, Ends::Copied).await?;
            }
            // A reader needs no log where nobody has written.
            let is_logged = (writes && (own || !row.shared)) || !row.logs.logs.is_empty();
            let now = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(row.owner, index, 1)?.pop());
            let Some((_, logs)) = cluster.meta.off(now).await? else { continue };
            let failed = failed.filter(|_| writes || !logs.logs.is_empty());
            if is_logged && !row.frozen && is_due(cluster, row.owner, &logs, failed).await? {
                let _turn = cluster.turns.of(StripeId(logs.stripe)).await;
                renew(cluster, row.owner, index, failed).await?;
            }
        }
    }
    let worker = cluster.clone();
    let view = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let record = snapshot.volume_by_id(volume)?.record;
        let mut out = Vec::new();
        for OwnedRow { owner, index, logs, shared, frozen } in snapshot.owned_rows(&record, first, count)? {
            let name = crate::meta::volumes::stripe_name(owner, index);
            let Some(stripe) = snapshot.view(&name, (0, None), 1)?.1.1.pop() else { continue };
            let (owner, log_tickets) = (Some(owner).filter(|owner| *owner != volume), Vec::new());
            let StripeLogs { epoch, logs, folders, .. } = logs;
            let mut mapped =
                VolumeStripe { index, stripe, owner, shared, frozen, epoch, logs, folders, log_tickets };
            if let Some(tickets) = &worker.tickets {
                match writes && !shared {
                    true => tickets.log(&mut mapped, owner.unwrap_or(volume), |node| hands_on(&worker, node)),
                    false => tickets.read_log(&mut mapped),
                }
            }
            out.push(mapped);
        }
        // What a snapshot still shares is logged for its volume.
        let logged_for = match record.snapshot {
            None => record.fenced(),
            Some(of) if snapshot.was_removed(of.origin)? => 0,
            Some(of) => snapshot.volume_by_id(of.origin)?.record.fenced(),
        };
        Ok((record.size, logged_for, out))
    };
    cluster.meta.off(view).await
}

/// Whether a node's log is the one that it had.
pub fn has_log(now: Option<FolderId>, folders: &BTreeMap<NodeId, FolderId>, node: NodeId) -> bool {
    now.is_some() && now == folders.get(&node).copied()
}

fn log(members: &Members, node: NodeId) -> Option<FolderId> {
    members.node(node).and_then(|member| member.record.log())
}

/// Whether the logs of a stripe must be renewed before anybody relies on them. `failed`: a write under this epoch was refused
/// or not answered.
///
/// # Errors
/// The volume is gone.
pub async fn is_due(
    cluster: &Arc<Cluster>,
    volume: u64,
    logs: &StripeLogs,
    failed: Option<u64>,
) -> Result<bool> {
    let record = cluster.meta.off(move |meta| Ok(meta.snapshot()?.volume_by_id(volume)?.record)).await?;
    let members = cluster.members();
    let down = members.down();
    let is_gone = |node: &NodeId| down.contains(node) || !has_log(log(&members, *node), &logs.folders, *node);
    let gone = logs.logs.iter().flatten().any(is_gone);
    Ok(logs.logs.is_empty() || logs.epoch < record.taken || was_refused(logs, failed) || gone)
}

/// Whether the write that failed was one under the present epoch of the stripe.
fn was_refused(logs: &StripeLogs, failed: Option<u64>) -> bool {
    failed.is_some_and(|failed| logs.epoch <= failed)
}

/// Renews the logs of a stripe if that is due; the caller has the turn.
///
/// # Errors
/// As [`map`].
pub async fn renew(cluster: &Arc<Cluster>, volume: u64, index: u64, failed: Option<u64>) -> Result<()> {
    let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
    let Some((_, logs)) = cluster.meta.off(row).await? else { return Ok(()) };
    if is_due(cluster, volume, &logs, failed).await? {
        let how = if was_refused(&logs, failed) { How::Align } else { How::Move };
        let relogged = relog(cluster, volume, index, &[], how).await?;
        record(cluster, relogged).await?;
    }
    Ok(())
}

/// Data blocks of a stripe are about to get new homes: if it is one of a volume, the logs of these blocks go there too.
/// Returns what must be recorded together with the new homes, and kept until then.
///
/// # Errors
/// As [`map`].
pub async fn carry(
    cluster: &Arc<Cluster>,
    stripe: StripeId,
    landings: &[Landing],
) -> Result<Option<Changed>> {
    let Some((volume, index)) = cluster.meta.off(move |meta| meta.snapshot()?.of_volume(stripe)).await?
    else {
        return Ok(None);
    };
    let moving = cluster.turns.moving().await;
    let turn = cluster.turns.of(stripe).await;
    let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
    let Some((_, logs)) = cluster.meta.off(row).await? else { return Ok(None) };
    let moves = |l: &&Landing| l.from != l.to && usize::from(l.index.0) < logs.logs.len();
    let landings: Vec<Landing> = landings.iter().filter(moves).copied().collect();
    if landings.is_empty() {
        return Ok(None);
    }
    let relogged = relog(cluster, volume, index, &landings, How::Move).await?;
    Ok(Some(Changed { relogged, _turn: turn, _moving: moving }))
}

/// Records what [`relog`] did.
pub async fn record(cluster: &Arc<Cluster>, relogged: Relogged) -> Result<()> {
    cluster.meta.off(move |meta| meta.set_logs(&relogged)).await
}

/// One call to an agent, in bounded time.
///
/// # Errors
/// Those of the call, or that there was no answer.
pub async fn within<T>(
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> std::result::Result<T, Status> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(answer) => answer.map(tonic::Response::into_inner),
        Err(_) => Err(Status::unavailable(format!("no answer within {PATIENCE:?}"))),
    }
}

/// The error for a node that did not do its part.
pub fn failed(node: NodeId) -> impl Fn(Status) -> CoordinatorError {
    move |status| CoordinatorError::Unavailable { node, reason: kintsu_wire::words(&status) }
}

/// Has all nodes that answer refuse the epochs of a volume before this one; returns these, with their folders.
pub async fn fence_everywhere(cluster: &Arc<Cluster>, volume: u64, epoch: u64) -> BTreeMap<NodeId, FolderId> {
    let nodes = cluster.members().usable();
    let ask = nodes.into_iter().map(async |node| {
        let mut agent = cluster.agent(node).ok()?;
        let fence = FenceVolume { volume, stripe: None, epoch, known: None };
        match within(agent.fence_volume(fence)).await {
            Ok(fenced) => Some((node, fenced.folder)),
            Err(error) => {
                // Its logs are fenced before anybody writes there under the new epoch.
                tracing::info!("volume {volume}: {node} is not fenced yet: {error}");
                None
            }
        }
    });
    futures::future::join_all(ask).await.into_iter().flatten().collect()
}

/// Blocks that a node reported in an older version than the one that was decided: has it put that in their places, if it has
/// it, and corrects what it reported. A crash may have come between a commit's decision and that.
///
/// # Errors
/// The disk fails.
pub async fn promote_decided(cluster: &Arc<Cluster>, node: NodeId, blocks: &mut [HeldBlock]) -> Result<()> {
    let listed: Vec<(usize, BlockId, u32)> =
        blocks.iter().enumerate().map(|(at, held)| (at, held.id, held.generation)).collect();
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut older = Vec::new();
        for (at, id, generation) in listed {
            let Some(stripe) = snapshot.stripe(id.stripe)? else { continue };
            let recorded = stripe.at_home(id.index, node).map(|block| block.generation);
            older.extend(
                recorded.filter(|recorded| *recorded > generation).map(|recorded| (at, id, recorded)),
            );
        }
        Ok(older)
    };
    for (at, id, generation) in cluster.meta.off(find).await? {
        let blocks_wanted = vec![BlockRef { id, generation }];
        let Ok(mut agent) = cluster.agent(node) else { return Ok(()) };
        match within(agent.promote_blocks(PromoteBlocks { blocks: blocks_wanted })).await {
            Ok(promoted) => {
                if let (Some(slot), Some(held)) = (blocks.get_mut(at), promoted.blocks.into_iter().next()) {
                    *slot = held;
                }
            }
            Err(error) => tracing::warn!("{id} on {node} has no version {generation}: {error}"),
        }
    }
    Ok(())
}
