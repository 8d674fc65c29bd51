//! Makes the logs of a volume's stripe complete on the nodes that are to have them.
//!
//! All that answer refuse the present epoch; then one that has the log gives it to those that have it not. The caller records
//! the new row (`volumes.rs` says why in this order).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::update::parity_homes;
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{
    AppendUpdates, Durability, FenceVolume, FencedVolume, LoggedUpdate, ReadUpdates, ReleaseUpdates,
    UpdatesOf,
};
use kintsu_wire::version::{DELTAS, Spoken};
use kintsu_wire::{AgentChannel, FolderId};
use tonic::{Code, Status};

use super::upgrade::check_volumes;
use super::volumes::{failed, has_log, within};
use crate::cluster::Cluster;
use crate::engine::stripe::Stripe;
use crate::engine::volumes::Logged;
use crate::error::{CoordinatorError, Result};
use crate::meta::change::Landing;
use crate::meta::volumes::Relogged;
use crate::meta::{Meta, StripeLogs, VolumeRecord};

/// What is copied at once of a log.
const PIECE_BYTES: u64 = 1 << 20;

/// How far a change of logs goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// Nodes get what they are to log from now on. What others keep is left as it is: each has all that was acknowledged.
    Move,
    /// Also what others keep is made the same everywhere. A user may have seen a write that only one of them has.
    Align,
    /// Also these logs begin empty elsewhere, if they are on no node that answers.
    Abandon(GivenUp),
}

/// Logs that may begin empty elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GivenUp {
    /// None.
    None,
    /// All of them.
    All,
    /// Those that no other nodes had than these.
    Of(BTreeSet<NodeId>),
}

impl GivenUp {
    /// Whether a log that these nodes had is among them.
    pub fn includes(&self, nodes: &[NodeId]) -> bool {
        match self {
            Self::None => false,
            Self::All => true,
            Self::Of(confirmed) => nodes.iter().all(|node| confirmed.contains(node)),
        }
    }
}

/// Makes the logs of a stripe complete on nodes that answer, as if `landings` had happened: there blocks have new homes. The
/// caller has the turn, and records it ([`record`](super::volumes::record), or with the landings).
///
/// # Errors
/// A log is on no node that answers; too few nodes.
pub async fn relog(
    cluster: &Arc<Cluster>,
    volume: u64,
    index: u64,
    landings: &[Landing],
    how: How,
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
    // The writer that has taken the volume since may have seen what only one of them has.
    let align = how != How::Move || fenced > from.epoch;
    let given_up = match how {
        // What only a log has was acknowledged, unless the scheme waits for the parities: then nothing is lost with it.
        _ if record.scheme.row().at_once => GivenUp::All,
        How::Abandon(given_up) => given_up,
        How::Move | How::Align => GivenUp::None,
    };
    let mut change = Change {
        cluster,
        volume,
        epoch,
        taken: fenced,
        newest: fenced.max(from.epoch),
        given_up,
        align,
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
    /// Logs that begin empty if no node has them.
    given_up: GivenUp,
    /// Whether nodes that go on logging get what they lack.
    align: bool,
    /// Whether all nodes with parities of a block log for it.
    parities: bool,
    /// The logs of the nodes that log its updates until now, by folder ([`FolderId::log`]).
    folders: &'a BTreeMap<NodeId, FolderId>,
    stripe: &'a Stripe,
    landings: BTreeMap<BlockIndex, NodeId>,
    /// Nodes that were asked to refuse the epochs before: the newest that they knew, and the folders that answered, or why they do
    /// not. What the metadata say of a folder may be old: its node may be registering with another one.
    answers: BTreeMap<NodeId, std::result::Result<FencedVolume, Status>>,
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
            let sound = self.sound(members);
            if sound.is_empty() && !members.is_empty() && !self.given_up.includes(members) {
                return Err(self.no_log(BlockId { stripe: self.stripe.id, index: block }, members));
            }
            let nodes = self.choose(block, &sound, replicas).await?;
            all.push((nodes, sound));
        }
        Ok(all)
    }

    /// Which of these nodes have what was acknowledged. A log that was damaged at its end, or cut off by a crash, counts only if all
    /// others are lost: while one of them is away with its log, nobody knows whether something is missing.
    fn sound(&self, members: &[NodeId]) -> Vec<NodeId> {
        let is_sound = |node: &&NodeId| has_log(self.folder(**node), self.folders, **node);
        let sound: Vec<NodeId> = members.iter().filter(is_sound).copied().collect();
        let continues = |node: &&NodeId| self.answer(**node).is_some_and(|answer| answer.continues);
        let (doubtful, others): (Vec<&NodeId>, Vec<&NodeId>) = members.iter().partition(continues);
        let is_given_up = self.given_up.includes(members);
        if sound.is_empty() && (is_given_up || others.iter().all(|node| self.has_lost_log(**node))) {
            return doubtful.into_iter().copied().collect();
        }
        sound
    }

    /// Whether a node that does not have its log any more will never have it: it has another one, or is forgotten.
    fn has_lost_log(&self, node: NodeId) -> bool {
        self.answer(node).is_some() || self.cluster.members().node(node).is_none()
    }

    fn no_log(&self, block: BlockId, members: &[NodeId]) -> CoordinatorError {
        let is_full = |node: &NodeId| matches!(self.answers.get(node), Some(Err(why)) if why.code() == Code::ResourceExhausted);
        if members.iter().all(is_full) {
            let what = format!("log of {block}{}", self.reasons(members));
            return CoordinatorError::Io { what, source: std::io::ErrorKind::StorageFull.into() };
        }
        let names = |nodes: &[NodeId]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        let (answer, silent): (Vec<NodeId>, Vec<NodeId>) =
            members.iter().partition(|node| self.answer(**node).is_some());
        let got = match &answer[..] {
            [] => format!("none{}; start one of them again with its folder", self.reasons(&silent)),
            damaged => format!("one from {}, whose log is another or may lack updates", names(damaged)),
        };
        let asked = if silent.is_empty() { members } else { &silent };
        CoordinatorError::Conflict {
            what: format!("log of {block}"),
            expected: format!("an answer from {}, which have acknowledged writes", names(asked)),
            got,
        }
    }

    /// Why nodes do not answer, in parentheses; nothing if no reason is known.
    fn reasons<'n>(&self, nodes: impl IntoIterator<Item = &'n NodeId>) -> String {
        let why = |node: &NodeId| {
            Some(format!("{node}: {}", kintsu_wire::words(self.answers.get(node)?.as_ref().err()?)))
        };
        let reasons: Vec<String> = nodes.into_iter().filter_map(why).collect();
        if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
    }

    /// The home of a block after the landings.
    fn home(&self, block: BlockIndex) -> Option<NodeId> {
        let recorded = self.stripe.record.block(block).filter(|b| !b.lost).map(|b| b.node);
        self.landings.get(&block).copied().or(recorded)
    }

    fn answer(&self, node: NodeId) -> Option<FencedVolume> {
        self.answers.get(&node)?.as_ref().ok().copied()
    }

    fn folder(&self, node: NodeId) -> Option<FolderId> {
        self.answer(node).map(|answer| answer.folder)
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
                    Some(answer) => answer.is_ok(),
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
                got: format!("{there}{}", self.reasons(self.answers.keys())),
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
            async move {
                (node, if down { Err(Status::unavailable("it is down")) } else { this.fence_one(node).await })
            }
        });
        let answers = futures::future::join_all(ask).await;
        self.answers.extend(answers);
    }

    async fn fence_one(&self, node: NodeId) -> std::result::Result<FencedVolume, Status> {
        let (volume, epoch) = (self.volume, self.epoch);
        let known = self.folders.get(&node).copied();
        let request = FenceVolume { volume, stripe: Some(self.stripe.id), epoch, known };
        let fence = async |mut agent: AgentChannel| agent.fence_volume(request).await;
        let fenced = within(fence(self.cluster.agent(node)?)).await;
        if let Err(error) = &fenced {
            tracing::warn!("{}: {node} cannot be fenced at epoch {epoch}: {error}", self.stripe.id);
        }
        fenced
    }

    /// Gives the log of a block to all nodes that have it not, or have it in another role; where logs are aligned, the others get what of
    /// the source's log they lack.
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
        let is_same = |node: NodeId| sound.contains(&node) && is_replica(node) == had_replica(node);
        let others = nodes.iter().copied().filter(|&node| !is_same(node) || (self.align && node != source));
        let others: Vec<NodeId> = others.collect();
        if others.is_empty() {
            return Ok(());
        }
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
                sum: None,
            })
            .map(LoggedUpdate::summed)
            .collect();
        for node in others {
            let mut agent = self.cluster.agent(node)?;
            let replica = is_replica(node);
            let mut lacks = updates.clone();
            if is_same(node) {
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
            if !logged.is_sound(block) {
                let damaged = format!("log of {block}: what it sent was damaged on its way here");
                return Err(failed(node)(Status::data_loss(damaged)));
            }
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
