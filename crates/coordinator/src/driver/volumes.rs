//! Keeps the logs of a volume's stripes where they are known to be complete.
//!
//! A write is acknowledged when all nodes that the stripe's row names have logged it. So each of them alone has all
//! acknowledged writes, as long as it accepts nothing that the others do not get. Before the nodes change, all that answer
//! refuse the present epoch; then one that has the log gives it to those that have it not; then the row changes, with a new
//! epoch (`docs/adr/0010-volumes.md`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::update::parity_homes;
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{
    AppendUpdates, BlockRef, Durability, FenceVolume, FencedVolume, HeldBlock, LoggedUpdate, PromoteBlocks,
    ReadUpdates, ReleaseUpdates, UpdatesOf, VolumeStripe,
};
use kintsu_wire::version::{DELTAS, Spoken};
use kintsu_wire::{AgentChannel, FolderId};
use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tonic::Status;

use super::snapshots::{Ends, part};
use super::upgrade::check_volumes;
use crate::cluster::Cluster;
use crate::engine::members::Members;
use crate::engine::stripe::Stripe;
use crate::engine::volumes::Logged;
use crate::error::{CoordinatorError, Result};
use crate::meta::change::Landing;
use crate::meta::snapshots::OwnedRow;
use crate::meta::volumes::Relogged;
use crate::meta::{Meta, StripeLogs, VolumeRecord};

/// How long a node may take for one step with its log.
const PATIENCE: Duration = Duration::from_secs(4);
/// What is copied at once of a log.
const PIECE_BYTES: u64 = 1 << 20;

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
                tickets.log(&mut mapped, writes && !shared);
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

/// Whether a node has the folder in which it logged.
pub fn has_log(now: Option<FolderId>, folders: &BTreeMap<NodeId, FolderId>, node: NodeId) -> bool {
    now.is_some() && now == folders.get(&node).copied()
}

fn folder(members: &Members, node: NodeId) -> Option<FolderId> {
    members.node(node).and_then(|member| member.record.folder)
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
    let refused = failed.is_some_and(|failed| logs.epoch <= failed);
    let members = cluster.members();
    let down = members.down();
    let is_gone =
        |node: &NodeId| down.contains(node) || !has_log(folder(&members, *node), &logs.folders, *node);
    let gone = logs.logs.iter().flatten().any(is_gone);
    Ok(logs.logs.is_empty() || logs.epoch < record.taken || refused || gone)
}

/// Renews the logs of a stripe if that is due; the caller has the turn.
///
/// # Errors
/// As [`map`].
pub async fn renew(cluster: &Arc<Cluster>, volume: u64, index: u64, failed: Option<u64>) -> Result<()> {
    let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
    let Some((_, logs)) = cluster.meta.off(row).await? else { return Ok(()) };
    if is_due(cluster, volume, &logs, failed).await? {
        let relogged = relog(cluster, volume, index, &[]).await?;
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
    let relogged = relog(cluster, volume, index, &landings).await?;
    Ok(Some(Changed { relogged, _turn: turn, _moving: moving }))
}

/// Records what [`relog`] did.
pub async fn record(cluster: &Arc<Cluster>, relogged: Relogged) -> Result<()> {
    cluster.meta.off(move |meta| meta.set_logs(&relogged)).await
}

/// Makes the logs of a stripe complete on nodes that answer, as if `landings` had happened: there blocks have new homes. The
/// caller has the turn, and records it ([`record`], or with the landings).
///
/// # Errors
/// A log is on no node that answers; too few nodes.
pub async fn relog(
    cluster: &Arc<Cluster>,
    volume: u64,
    index: u64,
    landings: &[Landing],
) -> Result<Relogged> {
    relog_or_abandon(cluster, volume, index, landings, false).await
}

/// The same; with `abandon` a log that is on no node that answers begins empty elsewhere.
///
/// # Errors
/// As [`relog`].
pub async fn relog_or_abandon(
    cluster: &Arc<Cluster>,
    volume: u64,
    index: u64,
    landings: &[Landing],
    abandon: bool,
) -> Result<Relogged> {
    check_volumes(cluster)?;
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let row = snapshot.volume_logs(volume, index, 1)?.pop();
        Ok((row, snapshot.volume_by_id(volume)?.record))
    };
    let (row, record) = cluster.meta.off(look).await?;
    let gone = || CoordinatorError::NotFound { what: "stripe of volume", name: format!("{volume} {index}") };
    let (_, from) = row.ok_or_else(gone)?;
    let (stripe, _) = cluster.load(StripeId(from.stripe)).await?.ok_or_else(gone)?;
    // What was fenced when the writer took the volume is enough, as long as the same nodes log.
    let fenced = record.fenced();
    let epoch = if fenced > from.epoch { fenced } else { from.epoch + 1 };
    // What only a log has was acknowledged, unless the scheme waits for the parities: then nothing is lost with it.
    let abandon = abandon || record.scheme.row().at_once;
    let mut change = Change {
        cluster,
        volume,
        epoch,
        taken: fenced,
        newest: fenced.max(from.epoch),
        abandon,
        parities: record.scheme.row().old_first,
        folders: &from.folders,
        stripe: &stripe,
        landings: landings.iter().map(|landing| (landing.index, landing.to)).collect(),
        answers: BTreeMap::new(),
    };
    let logs = change.logs(&from.logs, replicas(&record, &stripe)).await?;
    let folders = change.folders_of(&logs);
    let to = StripeLogs { epoch: change.epoch, logs, folders, ..from.clone() };
    tracing::debug!(
        "logs of {}: {:?} of epoch {} become {:?} of epoch {}",
        stripe.id,
        from.logs,
        from.epoch,
        to.logs,
        to.epoch
    );
    Ok(Relogged { volume, index, from, to, taken: fenced })
}

/// Replicas of a write besides its home.
fn replicas(record: &VolumeRecord, stripe: &Stripe) -> usize {
    match record.durability {
        // A write is acknowledged when it is in its block and in all parities.
        _ if record.scheme.row().at_once => 0,
        Durability::Rack | Durability::Node => 1,
        Durability::Parity => stripe.code.distance().saturating_sub(1).max(1),
    }
}

/// One change of a stripe's logs.
struct Change<'a> {
    cluster: &'a Arc<Cluster>,
    volume: u64,
    /// The epoch that begins.
    epoch: u64,
    /// The epoch at which the writer took the volume, or a snapshot was taken: it was fenced for all stripes.
    taken: u64,
    /// The newest epoch that readers may know for the stripe.
    newest: u64,
    /// Whether a log that no node has begins empty.
    abandon: bool,
    /// Whether all nodes with parities of a block log for it.
    parities: bool,
    /// The folders of the nodes that log its updates until now: another folder is another log.
    folders: &'a BTreeMap<NodeId, FolderId>,
    stripe: &'a Stripe,
    landings: BTreeMap<BlockIndex, NodeId>,
    /// Nodes that were asked to refuse the epochs before: the newest that they knew, and the folders that answered; `None` if they
    /// did not answer. What the metadata say of a folder may be old: its node may be registering with another one.
    answers: BTreeMap<NodeId, Option<FencedVolume>>,
}

impl Change<'_> {
    async fn logs(&mut self, old: &[Vec<NodeId>], replicas: usize) -> Result<Vec<Vec<NodeId>>> {
        let k = self.stripe.code.k();
        let homes: Vec<NodeId> = (0..k).filter_map(|i| self.home(BlockIndex(i as u8))).collect();
        let nodes: BTreeSet<NodeId> = old.iter().flatten().chain(&homes).copied().collect();
        self.fence(nodes.clone()).await;
        let all = match self.members(old, replicas).await? {
            // A reader that knows the epoch already would not notice that a node logs no more, or lost its log.
            all if !old.is_empty()
                && !is_back(FixedFault::EpochsKnown)
                && self.epoch <= self.newest
                && !all.iter().zip(old).all(|((nodes, sound), old)| nodes == old && sound == old) =>
            {
                self.epoch = self.newest + 1;
                self.answers.clear();
                self.fence(nodes).await;
                self.members(old, replicas).await?
            }
            all => all,
        };
        let copies = all.iter().enumerate().map(|(i, (nodes, sound))| {
            let source = sound.first().copied();
            self.copy(BlockIndex(i as u8), source, sound, nodes)
        });
        futures::future::try_join_all(copies).await?;
        Ok(all.into_iter().map(|(nodes, _)| nodes).collect())
    }

    /// For each data block the nodes that are to log its updates, and those that have its log.
    async fn members(
        &mut self,
        old: &[Vec<NodeId>],
        replicas: usize,
    ) -> Result<Vec<(Vec<NodeId>, Vec<NodeId>)>> {
        let k = self.stripe.code.k();
        let mut all = Vec::with_capacity(k);
        for i in 0..k {
            let block = BlockIndex(i as u8);
            let members = old.get(i).map_or(&[][..], Vec::as_slice);
            let is_sound = |node: &&NodeId| has_log(self.folder(**node), self.folders, **node);
            let sound: Vec<NodeId> = members.iter().filter(is_sound).copied().collect();
            if sound.is_empty() && !members.is_empty() && !self.abandon {
                return Err(no_log(BlockId { stripe: self.stripe.id, index: block }, members));
            }
            let nodes = self.choose(block, &sound, replicas).await?;
            all.push((nodes, sound));
        }
        Ok(all)
    }

    /// The home of a block after the landings.
    fn home(&self, block: BlockIndex) -> Option<NodeId> {
        let recorded = self.stripe.record.block(block).filter(|b| !b.lost).map(|b| b.node);
        self.landings.get(&block).copied().or(recorded)
    }

    fn folder(&self, node: NodeId) -> Option<FolderId> {
        self.answers.get(&node).copied().flatten().map(|answer| answer.folder)
    }

    fn folders_of(&self, logs: &[Vec<NodeId>]) -> BTreeMap<NodeId, FolderId> {
        logs.iter().flatten().filter_map(|&node| Some((node, self.folder(node)?))).collect()
    }

    /// Whether a node logs for a block as its home, before the landings.
    fn was_home(&self, block: BlockIndex, node: NodeId) -> bool {
        self.stripe.record.block(block).is_some_and(|b| b.node == node)
    }

    /// Chooses nodes that answer.
    async fn choose(&mut self, block: BlockIndex, sound: &[NodeId], replicas: usize) -> Result<Vec<NodeId>> {
        loop {
            let (mut topology, usable) = self.cluster.nodes();
            for (node, known) in &mut topology.nodes {
                known.usable = match self.answers.get(node) {
                    Some(answer) => answer.is_some(),
                    None => known.usable && usable.contains(node),
                };
            }
            let mut view = self.stripe.view(|index, block| self.landings.contains_key(&index) || !block.lost);
            for (index, node) in &self.landings {
                view.homes[usize::from(index.0)] = Some(*node);
            }
            let leaves = self.stripe.record.block(block).map(|b| b.node);
            let leaves = leaves.filter(|node| self.home(block) != Some(*node));
            let parities = if self.parities { parity_homes(&view, block) } else { Vec::new() };
            let logged =
                Logged { view: &view, topology: &topology, replicas, parities: &parities, sound, leaves };
            let nodes = logged.nodes(block).map_err(|(needed, there)| CoordinatorError::Conflict {
                what: format!("log for {}.{block}", self.stripe.id),
                expected: format!("{needed} nodes that answer"),
                got: there.to_string(),
            })?;
            let new: BTreeSet<NodeId> =
                nodes.iter().copied().filter(|node| !self.answers.contains_key(node)).collect();
            if new.is_empty() {
                return Ok(nodes);
            }
            self.fence(new).await;
        }
    }

    /// Has nodes refuse the epochs before this one.
    async fn fence(&mut self, nodes: BTreeSet<NodeId>) {
        self.ask(nodes).await;
        // A node that missed the writer's coming may have another log than the one that it had: a new epoch makes sure that
        // no writer goes on there under an old one.
        let missed = self.answers.values().flatten().any(|known| known.before < self.taken);
        // Metadata that were restored may lack epochs that nodes know.
        let known = self.answers.values().flatten().map(|known| known.before).max().unwrap_or(0);
        if (missed && self.epoch <= self.newest) || known > self.epoch {
            self.newest = self.newest.max(known);
            self.epoch = self.newest + 1;
            self.ask(self.answers.keys().copied().collect()).await;
        }
    }

    async fn ask(&mut self, nodes: BTreeSet<NodeId>) {
        let down = self.cluster.members().down();
        let ask = nodes.into_iter().map(|node| {
            let down = down.contains(&node);
            let this = &*self;
            async move { (node, if down { None } else { this.fence_one(node).await }) }
        });
        let answers = futures::future::join_all(ask).await;
        self.answers.extend(answers);
    }

    async fn fence_one(&self, node: NodeId) -> Option<FencedVolume> {
        let (volume, epoch) = (self.volume, self.epoch);
        let request = FenceVolume { volume, stripe: Some(self.stripe.id), epoch };
        let fence = async |mut agent: AgentChannel| agent.fence_volume(request).await;
        let fenced = within(fence(self.cluster.agent(node).ok()?)).await;
        if let Err(error) = &fenced {
            tracing::warn!("{}: {node} cannot be fenced at epoch {epoch}: {error}", self.stripe.id);
        }
        fenced.ok()
    }

    /// Gives the log of a block to all nodes that have it not, or have it in another role; the others get what of the source's log they
    /// lack.
    async fn copy(
        &self,
        block: BlockIndex,
        source: Option<NodeId>,
        sound: &[NodeId],
        nodes: &[NodeId],
    ) -> Result<()> {
        let Some(source) = source else { return Ok(()) };
        let id = BlockId { stripe: self.stripe.id, index: block };
        let home = self.home(block);
        let is_replica = |node: NodeId| home != Some(node);
        let had_replica = |node: NodeId| !self.was_home(block, node);
        let (volume, epoch) = (self.volume, self.epoch);
        let updates: Vec<LoggedUpdate> = self
            .logged(id, source, had_replica(source))
            .await?
            .into_iter()
            .map(|Piece { offset, data, delta_of }| LoggedUpdate {
                volume,
                epoch,
                block: id,
                offset,
                data,
                zeros: 0,
                delta_of,
            })
            .collect();
        for &node in nodes {
            let same = sound.contains(&node) && is_replica(node) == had_replica(node);
            if node == source && same {
                continue;
            }
            let mut agent = self.cluster.agent(node)?;
            let replica = is_replica(node);
            let mut lacks = updates.clone();
            if same {
                let has = self.logged(id, node, replica).await?;
                lacks.retain(|update| !holds(&has, update));
            } else {
                // What it has of an earlier time may be older than what was acknowledged since.
                let updates = vec![UpdatesOf { block: id, replica, upto: u64::MAX }];
                within(agent.release_updates(ReleaseUpdates { updates })).await.map_err(failed(node))?;
            }
            if !lacks.is_empty() {
                let has_deltas = lacks.iter().any(|update| update.delta_of.is_some());
                let append = AppendUpdates { updates: lacks, replica, ..AppendUpdates::default() };
                let version = self.cluster.speaks.now();
                // An older agent must refuse deltas.
                let append = Spoken::over(append, if has_deltas { version.max(DELTAS) } else { version });
                within(agent.append_updates(append)).await.map_err(failed(node))?;
            }
        }
        Ok(())
    }

    /// What a node has logged for a block.
    async fn logged(&self, block: BlockId, node: NodeId, replica: bool) -> Result<Vec<Piece>> {
        let mut agent = self.cluster.agent(node)?;
        let (len, folder) = (self.stripe.block_len(block.index), self.folder(node));
        let mut pieces = Vec::new();
        for offset in (0..len).step_by(PIECE_BYTES as usize) {
            let of = UpdatesOf { block, replica, upto: 0 };
            let len = PIECE_BYTES.min(len - offset) as u32;
            let read =
                ReadUpdates { of, offset, len, epochs: None, folder, over: None, plain: false, ticket: None };
            let logged = within(agent.read_updates(read)).await.map_err(failed(node))?;
            let piece = |offset, data, delta_of| Piece { offset, data, delta_of };
            pieces.extend(logged.pieces.into_iter().map(|(offset, data)| piece(offset, data, None)));
            pieces.extend(logged.deltas.into_iter().map(|(offset, data, of)| piece(offset, data, Some(of))));
        }
        Ok(pieces)
    }
}

/// A part of what a log has of a block: new bytes, or what is to be added to a generation of the block.
struct Piece {
    offset: u64,
    data: Bytes,
    delta_of: Option<u32>,
}

/// Whether these pieces of a block have what an update writes, in the same form.
fn holds(pieces: &[Piece], update: &LoggedUpdate) -> bool {
    pieces.iter().filter(|piece| piece.delta_of == update.delta_of).any(|piece| {
        let from = update.offset.checked_sub(piece.offset).map(|from| from as usize);
        let part = from.and_then(|from| piece.data.get(from..)?.get(..update.data.len()));
        part.is_some_and(|part| part == update.data)
    })
}

fn no_log(block: BlockId, members: &[NodeId]) -> CoordinatorError {
    let names: Vec<_> = members.iter().map(ToString::to_string).collect();
    CoordinatorError::Conflict {
        what: format!("log of {block}"),
        expected: format!("an answer from {}, which have acknowledged writes", names.join(" or ")),
        got: "none; start one of them again with its folder".into(),
    }
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
        let fence = FenceVolume { volume, stripe: None, epoch };
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
