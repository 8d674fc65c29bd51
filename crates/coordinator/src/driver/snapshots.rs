//! Takes snapshots of volumes, and gives a volume stripes of its own where it writes to what it shares with one
//! (`docs/adr/0012-snapshots.md`; [`crate::engine::snapshots`] decides).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::{Division, Duplicate, duplicate};
use kintsu_wire::FolderId;
use kintsu_wire::message::{
    Attributes, DigestBytes, Encoding, FaultKind, FenceVolume, Label, ObjectLabel, ReadUpdates,
    StripeOfVolume, TakenSnapshot, UpdatesOf,
};
use tokio::time::Instant;

use super::pages::Source;
use super::repair_jobs::start_repairs;
use super::ticks::AUTOMATIC_SLICE;
use super::upgrade::check_snapshots;
use super::volume_commit::commit_held;
use super::volume_ticks::commit_volume;
use super::volumes::{fence_everywhere, renew, within};
use crate::cluster::Cluster;
use crate::engine::repair::Order;
use crate::engine::snapshots::{Waits, closed, copies, is_closed};
use crate::engine::stripe::Stripe;
use crate::error::{CoordinatorError, Result};
use crate::meta::snapshots::{Fork, may_have_snapshots, stays};
use crate::meta::volumes::stripe_name;
use crate::meta::{Meta, NewPut, PendingStripe, StripeLogs};

/// How long nodes may take to refuse the epochs before a snapshot.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes a snapshot of a volume.
///
/// # Errors
/// The name is taken; the volume is a snapshot, or is being removed; older agents are there; of some block no node that logs it
/// answers.
pub async fn take(
    cluster: &Arc<Cluster>,
    (volume, name): (u64, String),
    (id, created): (u64, u64),
) -> Result<TakenSnapshot> {
    check_snapshots(cluster)?;
    let turn = cluster.turns.cut(volume);
    let end = Instant::now() + PATIENCE;
    {
        // Nobody has the logs of its stripes changed to write meanwhile.
        let _cut = turn.write().await;
        while let Err(index) = attempt(cluster, volume, &name, (id, created)).await? {
            if Instant::now() > end {
                return Err(CoordinatorError::Conflict {
                    what: format!("snapshot {name:?}"),
                    expected: "an answer of a node that logs each block of the volume".into(),
                    got: format!("none for a block of its stripe {index}; try again when its nodes are back"),
                });
            }
            tokio::time::sleep(PAUSE).await;
            let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
            if let Some((_, logs)) = cluster.meta.off(row).await? {
                let _turn = cluster.turns.of(StripeId(logs.stripe)).await;
                if let Err(error) = renew(cluster, volume, index, None).await {
                    tracing::info!("snapshot {name:?} waits: {error}");
                }
            }
        }
    }
    let find = move |meta: &Meta| Ok(meta.snapshot()?.volume_by_id(volume)?.record.scheme);
    let scheme = cluster.meta.off(find).await?;
    let left = commit_volume(cluster, volume, scheme).await?.left;
    let snapshot = cluster.meta.off(move |meta| Ok(meta.snapshot()?.volume_by_id(id)?.info(false))).await?;
    Ok(TakenSnapshot { snapshot, left })
}

/// One attempt; the position of a stripe to which somebody might still write, if there is one.
async fn attempt(
    cluster: &Arc<Cluster>,
    volume: u64,
    name: &str,
    (id, created): (u64, u64),
) -> Result<std::result::Result<(), u64>> {
    let epoch = begin_epoch(cluster, volume, may_have_snapshots).await?;
    let refuse = fence_everywhere(cluster, volume, epoch).await;
    let name = name.to_owned();
    let cut = move |meta: &Meta| {
        let left = |row: &StripeLogs| closed((row.epoch, &row.logs, &row.folders), epoch, &refuse);
        meta.take_snapshot(volume, (&name, id, created), epoch, left)
    };
    cluster.meta.off(cut).await
}

/// A new epoch of a volume.
async fn begin_epoch(
    cluster: &Arc<Cluster>,
    volume: u64,
    check: impl FnOnce(&str, &crate::meta::VolumeRecord) -> Result<()> + Send + 'static,
) -> Result<u64> {
    let begin = move |meta: &Meta| {
        let name = meta.snapshot()?.volume_by_id(volume)?.name;
        meta.change_volume(volume, |record| {
            check(&name, record)?;
            record.epoch += 1;
            Ok(record.epoch)
        })
    };
    cluster.meta.off(begin).await
}

/// What is to become of a stripe that a volume shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The volume gets a copy, to write to it.
    Copied,
    /// The volume is removed.
    Given,
}

/// Gives a stripe that a volume shares to the youngest snapshot that has it; the volume gets a copy, or none. Whatever ends this
/// early leaves it shared; what was copied is garbage then.
///
/// # Errors
/// What is logged for the stripe cannot be committed; its nodes do not answer; it was changed meanwhile.
pub async fn part(cluster: &Arc<Cluster>, volume: u64, index: u64, ends: Ends) -> Result<()> {
    check_snapshots(cluster)?;
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let volume = snapshot.volume_by_id(volume)?;
        let row = snapshot.owned_rows(&volume.record, index, 1)?.pop();
        Ok((volume, row.filter(|row| row.shared).map(|row| row.logs)))
    };
    let Some(shared) = cluster.meta.off(find).await?.1 else { return Ok(()) };
    let before = shared.stripe;
    let _turn = cluster.turns.of(StripeId(before)).await;
    let (volume_now, shared) = cluster.meta.off(find).await?;
    // Another one is not ours to change now; the caller sees that it is shared.
    if shared.is_none_or(|now| now.stripe != before) {
        return Ok(());
    }
    // Its blocks alone are what the snapshot has from now on.
    let committed = commit_held(cluster, volume, index, volume_now.record.scheme, None).await?;
    let row = move |meta: &Meta| Ok(meta.snapshot()?.volume_logs(volume, index, 1)?.pop());
    let Some((_, row)) = cluster.meta.off(row).await? else { return Ok(()) };
    let Some((stripe, label)) = cluster.load(StripeId(row.stripe)).await? else { return Ok(()) };
    let parting = Parting { cluster, volume, index, row: &row, stripe: &stripe };
    if committed.left.is_some() {
        parting.check_clean().await?;
    }
    match ends {
        Ends::Given => parting.give().await,
        Ends::Copied => {
            let (_, usable) = cluster.nodes();
            let down = cluster.members().down();
            let (copied, lost) = copies(&stripe, &usable, &down).map_err(|waits| parting.refused(waits))?;
            let copy = parting.begin(&volume_now, label.object.attributes.clone()).await?;
            let made = parting.copy(&copy, label, (&copied, &lost), down).await;
            cluster.leases().end(copy.put);
            if made.is_err() {
                cluster.meta.off(move |meta| meta.abort_put(copy.put).map(drop)).await?;
                cluster.sweep.notify_one();
            }
            made
        }
    }
}

/// A stripe that a volume shares, committed; nobody else changes its logs.
struct Parting<'a> {
    cluster: &'a Arc<Cluster>,
    volume: u64,
    index: u64,
    row: &'a StripeLogs,
    stripe: &'a Stripe,
}

impl Parting<'_> {
    /// Nothing is logged for blocks whose homes are gone: a commit left them out. If something is, the stripe waits for their
    /// repair, and those that are dead are repaired now.
    async fn check_clean(&self) -> Result<()> {
        let usable = self.cluster.members().usable();
        let mut dirty = Vec::new();
        for (i, log) in self.row.logs.iter().enumerate().filter(|(_, log)| !log.is_empty()) {
            let index = BlockIndex(i as u8);
            let home = self.stripe.record.block(index).filter(|block| !block.lost).map(|block| block.node);
            if log.first() == home.as_ref() && home.is_some_and(|home| usable.contains(&home)) {
                continue;
            }
            let id = BlockId { stripe: self.stripe.id, index };
            if self.is_logged(id, log).await? {
                dirty.push(id);
            }
        }
        if dirty.is_empty() {
            return Ok(());
        }
        self.repair(&dirty);
        let got = format!(
            "updates of {} blocks whose homes are gone; it waits for them or their repair",
            dirty.len()
        );
        Err(self.conflict(got))
    }

    /// Has the stripe repaired if some of these blocks are gone. The user who waits for it does not wait for the grace of nodes.
    fn repair(&self, waits: &[BlockId]) {
        let down = self.cluster.members().down();
        let is_gone = |id: &BlockId| {
            self.stripe.record.block(id.index).is_some_and(|block| block.lost || down.contains(&block.node))
        };
        let under_way = self.cluster.queue().has(self.stripe.id);
        if !under_way && waits.iter().any(is_gone) && self.cluster.gate().may_repair(false) {
            let order = Order { slice_bytes: AUTOMATIC_SLICE, ..Order::default() };
            let source = Source::Object(stripe_name(self.volume, self.index));
            start_repairs(self.cluster, source, order, None);
        }
    }

    /// Whether something is logged for a block, on a node that has its log.
    async fn is_logged(&self, block: BlockId, log: &[NodeId]) -> Result<bool> {
        let home = self.stripe.record.block(block.index).map(|block| block.node);
        for &node in log {
            let of = UpdatesOf { block, replica: home != Some(node), upto: 0 };
            let (len, folder) =
                (self.stripe.block_len(block.index) as u32, self.row.folders.get(&node).copied());
            let read = ReadUpdates {
                of,
                offset: 0,
                len,
                epochs: None,
                folder,
                over: None,
                plain: false,
                ticket: None,
            };
            let Ok(mut agent) = self.cluster.agent(node) else { continue };
            if let Ok(found) = within(agent.read_updates(read)).await {
                return Ok(!found.pieces.is_empty() || !found.deltas.is_empty());
            }
        }
        Err(self.conflict(format!("no answer of a node that logs {block}")))
    }

    /// The copy begins as a put: if the coordinator dies, what was written of it is garbage.
    async fn begin(&self, volume: &crate::meta::Volume, attributes: Attributes) -> Result<PendingStripe> {
        let layout = self.stripe.record.layout;
        let (k, w) = (self.stripe.code.k(), self.stripe.code.w());
        let (size, block_bytes) = (layout.data_bytes, layout.block_bytes);
        let division = Division::new(size, k, w, layout.kind, block_bytes, layout.cell_bytes)?;
        let (id, epoch) = (self.volume, volume.record.taken);
        let new = NewPut {
            name: stripe_name(id, self.index),
            size: Some(size),
            code: volume.code.clone(),
            encoding: Encoding::Online,
            replace: true,
            volume: Some(StripeOfVolume { volume: id, index: self.index, epoch }),
            attributes,
            members: Vec::new(),
            division,
            batch: 1,
        };
        let homes: Vec<_> = self.stripe.record.blocks.iter().map(|block| block.map(|b| b.node)).collect();
        let begin = move |meta: &Meta| meta.begin_put(new, move |_, _| Ok(homes.clone()));
        let (put, granted) = self.cluster.meta.off(begin).await?;
        self.cluster.leases().grant(put, self.cluster.now_ms());
        let stripe = granted.stripes.into_iter().next();
        stripe.ok_or_else(|| CoordinatorError::Internal(format!("put {put} of a copy has no stripe")))
    }

    async fn copy(
        &self,
        copy: &PendingStripe,
        label: Label,
        (copied, lost): (&[BlockIndex], &[BlockIndex]),
        down: BTreeSet<NodeId>,
    ) -> Result<()> {
        let (cluster, stripe, created) = (self.cluster, self.stripe, self.cluster.unix_seconds());
        let object = ObjectLabel { id: copy.put, created, ..label.object };
        let label = Label { object, ..label }.pack();
        let duplicates: Vec<Duplicate> =
            copied.iter().filter_map(|index| self.duplicate(*index, copy)).collect();
        let programs = duplicate(cluster.new_run(), &duplicates, &label)?;
        let control = |node| cluster.control(node);
        let ran = cluster.conductor.conduct(programs, &control, None, None, &cluster.stop).await;
        if let Some(fault) = ran.fault {
            if fault.kind == FaultKind::Lost {
                cluster.members().suspect(fault.node);
            }
            return Err(CoordinatorError::Unavailable { node: fault.node, reason: fault.to_string() });
        }
        let written: BTreeMap<BlockId, DigestBytes> = ran
            .outcomes
            .iter()
            .flat_map(|outcome| &outcome.written)
            .map(|held| (held.id, held.digest))
            .collect();
        let is_written =
            |d: &Duplicate| written.get(&BlockId { stripe: copy.id, index: d.from.index }) == Some(&d.digest);
        if let Some(missing) = duplicates.iter().find(|duplicate| !is_written(duplicate)) {
            return Err(self.conflict(format!("no copy of {} on {}", missing.from, missing.at)));
        }
        let epoch = self.close().await?;
        let (volume, index, id, put) = (self.volume, self.index, stripe.id, copy.put);
        let (from, lost) = (stripe.record.clone(), lost.to_vec());
        let fork = move |meta: &Meta| {
            let (from, lost, down) = (&from, &lost, &down);
            meta.fork(&Fork { put, volume, index, id, from, lost, down, epoch, created })
        };
        match cluster.meta.off(fork).await? {
            true => Ok(()),
            false => Err(self.conflict("one that was changed; it is tried again".into())),
        }
    }

    fn duplicate(&self, index: BlockIndex, copy: &PendingStripe) -> Option<Duplicate> {
        let block = self.stripe.record.block(index)?;
        Some(Duplicate {
            from: BlockId { stripe: self.stripe.id, index },
            generation: block.generation,
            digest: block.digest?,
            to: copy.id,
            to_generation: copy.generation,
            at: block.node,
            layout: self.stripe.record.layout,
            len: self.stripe.block_len(index),
        })
    }

    async fn give(&self) -> Result<()> {
        let epoch = self.close().await?;
        let (volume, index, id, from) = (self.volume, self.index, self.stripe.id, self.stripe.record.clone());
        let give = move |meta: &Meta| {
            let (from, down) = (&from, &BTreeSet::new());
            meta.give(&Fork { put: 0, volume, index, id, from, lost: &[], down, epoch, created: 0 })
        };
        match self.cluster.meta.off(give).await? {
            true => Ok(()),
            false => Err(self.conflict("one that was changed; try again".into())),
        }
    }

    /// Has nodes refuse those who know the old stripe: of each block one at least that logs it. Returns the epoch before which they
    /// refuse, which no reader knows.
    async fn close(&self) -> Result<u64> {
        let epoch = begin_epoch(self.cluster, self.volume, |_, _| Ok(())).await?;
        let nodes: BTreeSet<NodeId> = self.row.logs.iter().flatten().copied().collect();
        let fence = FenceVolume { volume: self.volume, stripe: Some(self.stripe.id), epoch, known: None };
        let ask = nodes.into_iter().map(|node| {
            let fence = fence.clone();
            async move {
                let mut agent = self.cluster.agent(node).ok()?;
                Some((node, within(agent.fence_volume(fence)).await.ok()?.folder))
            }
        });
        let refuse: BTreeMap<NodeId, FolderId> =
            futures::future::join_all(ask).await.into_iter().flatten().collect();
        let StripeLogs { epoch: at, logs, folders, .. } = self.row;
        match is_closed((*at, logs, folders), epoch, &refuse) {
            true => Ok(epoch),
            false => Err(self.conflict("blocks of which no node that logs them answers".into())),
        }
    }

    fn refused(&self, waits: Waits) -> CoordinatorError {
        match waits {
            Waits::Silent(node) => {
                let reason = format!("it has a block of {}, which is to be copied", self.stripe.id);
                CoordinatorError::Unavailable { node, reason }
            }
            Waits::Beyond(lost) => self.conflict(format!("one without {} of its blocks", lost.len())),
        }
    }

    fn conflict(&self, got: String) -> CoordinatorError {
        CoordinatorError::Conflict {
            what: format!("stripe {}, which a snapshot shares", self.stripe.id),
            expected: "one that is committed, and whose nodes answer".into(),
            got,
        }
    }
}

/// Gives what a volume that is removed shares with snapshots to these.
///
/// # Errors
/// As [`part`].
pub async fn give_all(cluster: &Arc<Cluster>, volume: u64) -> Result<()> {
    let find = move |meta: &Meta| meta.snapshot()?.volume_rows(volume, 0, 256);
    loop {
        let rows = cluster.meta.off(find).await?;
        if rows.is_empty() {
            return Ok(());
        }
        for (index, _) in rows {
            part(cluster, volume, index, Ends::Given).await?;
        }
        // What was shared with a snapshot that was removed meanwhile is nobody's.
        cluster.meta.off(move |meta| meta.drop_volume_stripes(volume, 0, 256).map(drop)).await?;
    }
}

/// Refuses what is done to a volume that is being removed.
///
/// # Errors
/// Its removal has begun.
pub fn check_stays(volume: &crate::meta::Volume) -> Result<()> {
    stays(&volume.name, &volume.record)
}
