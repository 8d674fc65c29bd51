//! Snapshots of volumes, and whose the stripes are that they share ([`crate::engine::snapshots`] decides).
//!
//! A snapshot is a volume that nobody writes to. The stripe of each position has one row, that of its owner; the object that it is has
//! the owner's name.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use redb::{ReadableTable, ReadableTableMetadata as _};
use serde::{Deserialize, Serialize};

use super::record::StripeRecord;
use super::volumes::{StripeLogs, VolumeRecord, by_id, count, logs, set, stripe_name, taken};
use super::write::Tables;
use super::{Meta, Snapshot, commit, fence, puts, record, tables};
use crate::engine::snapshots::{Taken, has, heir, owners, sharer};
use crate::error::{CoordinatorError, Result};

/// How many of the stripes that were dropped with snapshots are remembered, the newest ones.
const MOST_DROPPED: u64 = 200_000;

/// Of which volume a snapshot is, and which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotOf {
    /// The id of the volume.
    pub origin: u64,
    /// How many were taken before it.
    pub number: u64,
}

/// The stripe of a position, as users of a volume or a snapshot see it.
#[derive(Debug, Clone)]
pub struct OwnedRow {
    /// Whose row it is.
    pub owner: u64,
    /// The position.
    pub index: u64,
    /// The row.
    pub logs: StripeLogs,
    /// A volume has it together with a snapshot.
    pub shared: bool,
    /// Only snapshots have it.
    pub frozen: bool,
}

/// A stripe that a volume gets instead of one that it shares: the copy that a put under way has made.
#[derive(Debug)]
pub struct Fork<'f> {
    /// The put.
    pub put: u64,
    /// The volume.
    pub volume: u64,
    /// The position.
    pub index: u64,
    /// The stripe that was copied.
    pub id: StripeId,
    /// As it was then.
    pub from: &'f StripeRecord,
    /// Blocks that were not copied.
    pub lost: &'f [BlockIndex],
    /// Nodes that are dead.
    pub down: &'f BTreeSet<NodeId>,
    /// The epoch that nodes which log for the old stripe refuse older ones than.
    pub epoch: u64,
    /// Seconds since 1970.
    pub created: u64,
}

impl Meta {
    /// Records a snapshot, whose `record` says of what, unless a stripe of the volume is not `closed`: then that position. Of each log
    /// only the nodes stay that `closed` names. Stripes that an older snapshot shares are closed already. One lookup for each stripe of the volume.
    ///
    /// # Errors
    /// The name is taken; there is no such volume; it is a snapshot, or is being removed.
    pub fn take_snapshot(
        &self,
        origin: u64,
        (name, id, created): (&str, u64, u64),
        epoch: u64,
        closed: impl Fn(&StripeLogs) -> Option<Vec<Vec<NodeId>>>,
    ) -> Result<std::result::Result<(), u64>> {
        self.write(|t| {
            if t.volumes.get(name)?.is_some() {
                return Err(taken(name));
            }
            let (origin_name, mut record) = by_id(t, origin)?;
            may_have_snapshots(&origin_name, &record)?;
            let family = family(&t.volumes, origin)?;
            let mut changed = Vec::new();
            for row in t.volume_stripes.range((origin, 0)..=(origin, u64::MAX))? {
                let (key, row) = row?;
                let (key, row) =
                    (key.value(), record::unpack::<StripeLogs>("stripe of a volume", row.value())?);
                if sharer(row.made, &family).is_some() {
                    continue;
                }
                let Some(logs) = closed(&row) else { return Ok(Err(key.1)) };
                if logs != row.logs {
                    changed.push((key, StripeLogs { logs, ..row }));
                }
            }
            for (key, row) in &changed {
                t.volume_stripes.insert(*key, record::pack(row).as_slice())?;
            }
            let of = SnapshotOf { origin, number: record.cuts };
            (record.cuts, record.cut) = (record.cuts + 1, epoch);
            record.epoch = record.epoch.max(epoch);
            set(t, &origin_name, &record)?;
            if t.volume_names.insert(id, name)?.is_some() {
                return Err(taken(&format!("id {id}")));
            }
            let snapshot = VolumeRecord {
                id,
                created,
                snapshot: Some(of),
                epoch: 0,
                taken: 0,
                writer: None,
                stripes: 0,
                cuts: 0,
                cut: 0,
                ..record
            };
            set(t, name, &snapshot)?;
            Ok(Ok(()))
        })
    }

    /// The volume has the copy from now on, and the youngest snapshot the old stripe. False, and nothing changed, if the old stripe is
    /// not what was copied any more, is not shared any more, or the copy may be gone.
    ///
    /// # Errors
    /// The put has ended; the disk fails.
    pub fn fork(&self, fork: &Fork<'_>) -> Result<bool> {
        self.write(|t| {
            let put = t.put(fork.put)?.ok_or_else(|| puts::unknown(fork.put))?;
            let at_lost = |node: &NodeId| {
                fork.lost.iter().any(|index| fork.from.block(*index).is_some_and(|block| block.node == *node))
            };
            let doubtful = fence::doubtful(t, &put, fork.down)?;
            let Some((row, to)) = self::shared(t, fork)? else { return Ok(false) };
            let Some((copy, _)) = put.runs.first().copied() else { return Ok(false) };
            if doubtful.keys().any(|node| !at_lost(node)) {
                return Ok(false);
            }
            hand(t, (fork.volume, fork.index), to, &row)?;
            let digests: Vec<_> = fork.from.blocks.iter().map(|block| block.and_then(|b| b.digest)).collect();
            let last = [(StripeId(copy), digests.as_slice())].into_iter().collect();
            let stripe = StripeId(copy);
            let lost = fork.lost.iter().map(|&index| BlockId { stripe, index }).collect();
            commit::show(t, fork.put, put, &last, &lost, (fork.created, None))?;
            Ok(true)
        })
    }

    /// The youngest snapshot has a stripe of a volume alone from now on. False, and nothing changed, as [`Meta::fork`].
    ///
    /// # Errors
    /// The disk fails.
    pub fn give(&self, fork: &Fork<'_>) -> Result<bool> {
        self.write(|t| {
            let Some((row, to)) = self::shared(t, fork)? else { return Ok(false) };
            hand(t, (fork.volume, fork.index), to, &row)?;
            Ok(true)
        })
    }
}

impl Snapshot {
    /// The snapshots of a volume, oldest first.
    ///
    /// # Errors
    /// The disk fails.
    pub fn family(&self, origin: u64) -> Result<Vec<Taken>> {
        family(&self.txn.open_table(tables::VOLUMES)?, origin)
    }

    /// Whether a stripe was dropped with the snapshots that had it.
    ///
    /// # Errors
    /// The disk fails.
    pub fn was_dropped(&self, stripe: StripeId) -> Result<bool> {
        Ok(self.txn.open_table(tables::DROPPED)?.get(stripe.0)?.is_some())
    }

    /// The rows of a volume or a snapshot at `count` positions from `first` on; where nothing is stored there is none.
    ///
    /// # Errors
    /// The disk fails.
    pub fn owned_rows(&self, volume: &VolumeRecord, first: u64, count: u64) -> Result<Vec<OwnedRow>> {
        let row = |owner, (index, logs)| OwnedRow { owner, index, logs, shared: false, frozen: false };
        let Some(of) = volume.snapshot else {
            let family = if volume.cuts > 0 { self.family(volume.id)? } else { Vec::new() };
            let rows = self.volume_logs(volume.id, first, count)?.into_iter();
            let shared = |logs: &StripeLogs| sharer(logs.made, &family).is_some();
            return Ok(rows.map(|at| OwnedRow { shared: shared(&at.1), ..row(volume.id, at) }).collect());
        };
        let mut found = std::collections::BTreeMap::new();
        for owner in owners(of.number, &self.family(of.origin)?, of.origin) {
            for at in self.volume_logs(owner, first, count)? {
                let frozen = owner != of.origin;
                found.entry(at.0).or_insert(OwnedRow { frozen, ..row(owner, at) });
            }
        }
        found.retain(|_, row| has(of.number, row.logs.made));
        Ok(found.into_values().collect())
    }
}

/// The row of a stripe that is still shared and as it was, and the snapshot that gets it. No reader may know an epoch which the nodes that
/// were told to refuse older ones accept.
fn shared(t: &Tables<'_>, fork: &Fork<'_>) -> Result<Option<(StripeLogs, u64)>> {
    let (_, volume) = by_id(t, fork.volume)?;
    let Some(row) = logs(t, fork.volume, fork.index)?.filter(|row| row.stripe == fork.id.0) else {
        return Ok(None);
    };
    let same = t.stripe(fork.id)?.is_some_and(|now| now.same_blocks(fork.from));
    if !same || volume.fenced() >= fork.epoch || row.epoch >= fork.epoch {
        return Ok(None);
    }
    Ok(sharer(row.made, &family(&t.volumes, fork.volume)?).map(|to| (row, to)))
}

/// Gives a stripe to a snapshot: its row, and the name of its object. Nobody logs for it any more.
pub(super) fn hand(t: &mut Tables<'_>, (from, index): (u64, u64), to: u64, row: &StripeLogs) -> Result<()> {
    let (old, new) = (stripe_name(from, index), stripe_name(to, index));
    let object = t.object(&old)?.ok_or_else(|| CoordinatorError::Corrupt {
        what: format!("stripe {index} of volume {from:016x}"),
        expected: "an object of its name".into(),
        got: "none".into(),
    })?;
    t.objects.remove(old.as_str())?;
    t.set_object(&new, &object)?;
    t.names.insert(object.id, new.as_str())?;
    t.volume_stripes.remove((from, index))?;
    let StripeLogs { stripe, made, generation, .. } = *row;
    let row = StripeLogs { stripe, made, generation, ..StripeLogs::default() };
    t.volume_stripes.insert((to, index), record::pack(&row).as_slice())?;
    count(t, from, -1)?;
    count(t, to, 1)
}

/// Remembers a stripe that was dropped with a snapshot, so that nodes that were away are told to forget what they logged for it.
pub(super) fn note_dropped(t: &mut Tables<'_>, stripe: u64) -> Result<()> {
    t.dropped.insert(stripe, ())?;
    if t.dropped.len()? > MOST_DROPPED {
        t.dropped.pop_first()?;
    }
    Ok(())
}

/// Who gets a stripe of a volume or snapshot that is removed.
pub(super) fn heir_of(t: &Tables<'_>, volume: &VolumeRecord, row: &StripeLogs) -> Result<Option<u64>> {
    Ok(match volume.snapshot {
        Some(of) => heir(row.made, of.number, &family(&t.volumes, of.origin)?),
        None if volume.cuts > 0 => sharer(row.made, &family(&t.volumes, volume.id)?),
        None => None,
    })
}

/// The snapshots of a volume, oldest first.
pub(super) fn family(
    volumes: &impl ReadableTable<&'static str, &'static [u8]>,
    origin: u64,
) -> Result<Vec<Taken>> {
    let mut family = Vec::new();
    for row in volumes.iter()? {
        let record: VolumeRecord = record::unpack("volume", row?.1.value())?;
        if let Some(of) = record.snapshot.filter(|of| of.origin == origin) {
            family.push(Taken { id: record.id, number: of.number, leaves: record.removing });
        }
    }
    family.sort_by_key(|snapshot| snapshot.number);
    Ok(family)
}

/// Whether a snapshot may be taken of a volume.
///
/// # Errors
/// It is a snapshot, or is being removed.
pub fn may_have_snapshots(name: &str, record: &VolumeRecord) -> Result<()> {
    if record.snapshot.is_some() {
        let expected = "a volume that is not a snapshot itself: nobody writes to those".into();
        return Err(CoordinatorError::Invalid { what: "volume of a snapshot", expected, got: name.into() });
    }
    stays(name, record)
}

/// Whether a volume is not being removed.
///
/// # Errors
/// It is.
pub fn stays(name: &str, record: &VolumeRecord) -> Result<()> {
    if !record.removing {
        return Ok(());
    }
    Err(CoordinatorError::Conflict {
        what: format!("volume {name:?}"),
        expected: "one that is not being removed".into(),
        got: "one whose removal has begun; `kintsu volume rm` ends it".into(),
    })
}
