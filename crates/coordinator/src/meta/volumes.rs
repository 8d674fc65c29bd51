//! Volumes, and where the updates of their stripes are logged.
//!
//! Each stripe of a volume is an object of one stripe, with a reserved name, so that placement, repair, drain, scrub, census
//! and the rebuild from blocks treat it like any other. It has a row here as long as its object exists. The row names the
//! nodes that log its updates; `docs/adr/0010-volumes.md` says when they may change.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::update::Scheme;
use kintsu_wire::FolderId;
use kintsu_wire::message::{DigestBytes, Durability, FaultKind, StripeOfVolume, VolumeInfo};
use redb::{ReadableTable, ReadableTableMetadata};
use serde::{Deserialize, Serialize};

use super::blocks::byte_of;
use super::objects::drop_object;
use super::record::{self, CodeRecord, PendingPut, StripeRecord};
use super::snapshots::{self, SnapshotOf};
use super::write::Tables;
use super::{Meta, Snapshot, tables};
use crate::error::{CoordinatorError, Result};

/// Names that begin like this belong to the stripes of volumes.
pub const RESERVED: &str = ".volume/";

/// The name under which a removed volume is remembered; no volume has it.
const REMOVED: &str = "";

/// The name of the object that is a stripe of a volume.
pub fn stripe_name(volume: u64, index: u64) -> String {
    format!("{RESERVED}{volume:016x}/{index:016x}")
}

/// Which stripe of a volume has this name, if it is one.
pub fn stripe_named(name: &str) -> Option<(u64, u64)> {
    let (volume, index) = name.strip_prefix(RESERVED)?.split_once('/')?;
    Some((u64::from_str_radix(volume, 16).ok()?, u64::from_str_radix(index, 16).ok()?))
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Its id, random: logs on agents name it, and they may be older than metadata that were restored.
    pub id: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Its code.
    pub code: u16,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// What an acknowledged write survives.
    pub durability: Durability,
    /// How parities follow.
    #[serde(default)]
    pub scheme: Scheme,
    /// Seconds since 1970 when it was made.
    pub created: u64,
    /// The newest epoch.
    pub epoch: u64,
    /// The epoch at which the last writer took it.
    pub taken: u64,
    /// Who has the lease to write.
    #[serde(default)]
    pub writer: Option<u64>,
    /// Stripes that exist.
    #[serde(default)]
    pub stripes: u64,
    /// Of a snapshot: of which volume.
    #[serde(default)]
    pub snapshot: Option<SnapshotOf>,
    /// How many snapshots were taken of it.
    #[serde(default)]
    pub cuts: u64,
    /// The epoch that began with the newest of them.
    #[serde(default)]
    pub cut: u64,
    /// Its removal has begun.
    #[serde(default)]
    pub removing: bool,
}

impl VolumeRecord {
    /// The newest epoch that all nodes were told to refuse older ones than.
    pub fn fenced(&self) -> u64 {
        self.taken.max(self.cut)
    }
}

/// Where the updates of a stripe are logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StripeLogs {
    /// The stripe.
    pub stripe: u64,
    /// The epoch under which they are logged; all these nodes refuse older ones.
    pub epoch: u64,
    /// For each data block the nodes that log its updates; none before the first writer has asked.
    pub logs: Vec<Vec<NodeId>>,
    /// The logs of these nodes: their folders, or ids of logs that were damaged ([`FolderId::log`]). A node with another one has lost its log.
    pub folders: BTreeMap<NodeId, FolderId>,
    /// The newest generation that was handed out to a commit.
    pub generation: u32,
    /// How many snapshots had been taken of the volume when the stripe was made.
    #[serde(default)]
    pub made: u64,
}

/// The logs of a stripe before and after a change.
#[derive(Debug, Clone)]
pub struct Relogged {
    /// The volume.
    pub volume: u64,
    /// The position of the stripe in it.
    pub index: u64,
    /// As they are recorded.
    pub from: StripeLogs,
    /// As they are on the nodes now, which is to be recorded.
    pub to: StripeLogs,
    /// What [`VolumeRecord::fenced`] was then.
    pub taken: u64,
}

/// A volume by its name, with its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// What is recorded of it.
    pub record: VolumeRecord,
    /// Its code.
    pub code: CodeRecord,
    /// Of a snapshot: the name of its volume; empty if that is gone.
    pub snapshot_of: Option<String>,
    /// The names of its snapshots, oldest first.
    pub snapshots: Vec<String>,
}

impl Volume {
    /// As people see it; `writer` says whether somebody has the lease.
    pub fn info(&self, writer: bool) -> VolumeInfo {
        let VolumeRecord { id, size, block_bytes, durability, created, epoch, stripes, .. } = self.record;
        let (name, code, k) = (self.name.clone(), self.code.name.clone(), self.code.k);
        let scheme = self.record.scheme.to_string();
        VolumeInfo {
            id,
            name,
            size,
            code,
            k,
            block_bytes,
            durability,
            scheme,
            created,
            epoch,
            stripes,
            writer,
            snapshot_of: self.snapshot_of.clone(),
            snapshots: self.snapshots.clone(),
        }
    }
}

/// What a commit starts from, and what it made: the new version of each touched block.
#[derive(Debug, Clone)]
pub struct Decision {
    /// The stripe as the commit read it.
    pub from: StripeRecord,
    /// The new generation.
    pub generation: u32,
    /// The digests of the new versions; `None` for a parity that could not be updated and counts as lost.
    pub blocks: BTreeMap<BlockIndex, Option<DigestBytes>>,
}

impl Meta {
    /// Records a new volume.
    ///
    /// # Errors
    /// The name is taken.
    pub fn create_volume(&self, name: &str, code: &CodeRecord, volume: VolumeRecord) -> Result<()> {
        self.write(|t| {
            if t.volumes.get(name)?.is_some() {
                return Err(taken(name));
            }
            let record = VolumeRecord { code: t.code_key(code)?, ..volume };
            if t.volume_names.insert(record.id, name)?.is_some() {
                return Err(taken(&format!("id {}", record.id)));
            }
            set(t, name, &record)
        })
    }

    /// Changes a volume; `change` sees it as it is now.
    ///
    /// # Errors
    /// No such volume; those of `change`, and nothing is recorded then.
    pub fn change_volume<T>(
        &self,
        id: u64,
        change: impl FnOnce(&mut VolumeRecord) -> Result<T>,
    ) -> Result<T> {
        self.write(|t| {
            let (name, mut record) = by_id(t, id)?;
            let value = change(&mut record)?;
            set(t, &name, &record)?;
            Ok(value)
        })
    }

    /// Changes the size of a volume.
    ///
    /// # Errors
    /// No such volume; a snapshot; a stored stripe that the new end cuts or leaves behind it.
    pub fn resize_volume(&self, id: u64, size: u64) -> Result<()> {
        self.write(|t| {
            let (name, mut volume) = by_id(t, id)?;
            if volume.snapshot.is_some() {
                return Err(CoordinatorError::Invalid {
                    what: "volume to resize",
                    expected: "one that is not a snapshot, which keeps the size that its volume had".into(),
                    got: name,
                });
            }
            let stripe = stripe_bytes(t, &volume)?;
            if size < volume.size {
                let mut cut = t.volume_stripes.range((id, size / stripe)..=(id, u64::MAX))?;
                if let Some(last) = cut.next_back() {
                    let least = ((last?.0.value().1 + 1) * stripe).min(volume.size);
                    return Err(CoordinatorError::Conflict {
                        what: format!("resize of volume {name:?} to {size} bytes"),
                        expected: format!("at least {least} bytes, which keep every stored stripe whole"),
                        got: format!(
                            "{} stored stripes that the new end cuts or leaves behind it",
                            1 + cut.count()
                        ),
                    });
                }
            }
            volume.size = size;
            set(t, &name, &volume)
        })
    }

    /// Forgets at most `limit` stripes of a volume from `first` on; their blocks become garbage. What another snapshot has too becomes
    /// its own, if this is a snapshot; if not, it is left for [`Meta::give`]. Returns where to go on.
    ///
    /// # Errors
    /// No such volume; the disk fails.
    pub fn drop_volume_stripes(&self, id: u64, first: u64, limit: usize) -> Result<Option<u64>> {
        self.write(|t| {
            let (_, volume) = by_id(t, id)?;
            let mut found = Vec::new();
            for row in t.volume_stripes.range((id, first)..=(id, u64::MAX))?.take(limit) {
                let (key, row) = row?;
                let row: StripeLogs = record::unpack("stripe of a volume", row.value())?;
                found.push((key.value().1, row));
            }
            for (index, row) in &found {
                match snapshots::heir_of(t, &volume, row)? {
                    Some(to) if volume.snapshot.is_some() => snapshots::hand(t, (id, *index), to, row)?,
                    Some(_) => {}
                    None => {
                        let name = stripe_name(id, *index);
                        if let Some(object) = t.object(&name)? {
                            drop_object(t, &name, &object)?;
                        }
                        t.volume_stripes.remove((id, *index))?;
                        if volume.snapshot.is_some() {
                            snapshots::note_dropped(t, row.stripe)?;
                        }
                    }
                }
            }
            Ok(found.last().filter(|_| found.len() == limit).map(|(last, _)| last + 1))
        })
    }

    /// Forgets a volume that has no stripes.
    ///
    /// # Errors
    /// No such volume; it has stripes.
    pub fn remove_volume(&self, id: u64) -> Result<()> {
        self.write(|t| {
            let (name, record) = by_id(t, id)?;
            if record.stripes > 0 {
                return Err(CoordinatorError::Conflict {
                    what: format!("removal of volume {name:?}"),
                    expected: "no stripe of it".into(),
                    got: format!("{}; try again", record.stripes),
                });
            }
            t.volumes.remove(name.as_str())?;
            // Nobody else ever has this id. Nodes that were away have logged for it still.
            t.volume_names.insert(id, REMOVED)?;
            Ok(())
        })
    }

    /// Records where the updates of a stripe are logged from now on; the volume's epoch is at least that of the row then.
    ///
    /// # Errors
    /// The row is not `from` any more; another writer has taken the volume; the stripe is gone.
    pub fn set_logs(&self, change: &Relogged) -> Result<()> {
        self.write(|t| set_logs(t, change))
    }

    /// A generation for a commit of a stripe, which no other one gets.
    ///
    /// # Errors
    /// The stripe is gone.
    pub fn next_generation(&self, volume: u64, index: u64) -> Result<u32> {
        self.write(|t| {
            let mut logs = logs(t, volume, index)?.ok_or_else(|| gone(volume, index))?;
            let newest = t
                .stripe(StripeId(logs.stripe))?
                .map_or(0, |stripe| stripe.generations().into_iter().max().unwrap_or(stripe.generation));
            logs.generation = logs.generation.max(newest) + 1;
            t.volume_stripes.insert((volume, index), record::pack(&logs).as_slice())?;
            Ok(logs.generation)
        })
    }

    /// The new versions of all touched blocks count from now on, if the stripe is as the commit read it; false, and nothing
    /// changed, if not. `check` says whether what was written is still there.
    ///
    /// # Errors
    /// The disk fails; those of `check`.
    pub fn decide(&self, id: StripeId, decision: &Decision, check: impl Fn() -> Result<()>) -> Result<bool> {
        self.write(|t| {
            check()?;
            let Some(mut stripe) = t.stripe(id)? else { return Ok(false) };
            if !stripe.same_blocks(&decision.from) {
                return Ok(false);
            }
            for (&index, digest) in &decision.blocks {
                let slot = stripe.blocks.get_mut(usize::from(index.0)).and_then(Option::as_mut);
                let Some(block) = slot else { continue };
                let before = std::mem::replace(&mut block.generation, decision.generation);
                match digest {
                    Some(digest) => block.digest = Some(*digest),
                    None => {
                        // What its node may still have is of no stripe any more.
                        t.trash(id, index, before, block.node)?;
                        block.digest = Some(kintsu_plan::DIGEST_UNKNOWN);
                        t.flag(id, index, block, Some(byte_of(FaultKind::Missing)))?;
                    }
                }
            }
            t.set_stripe(id, &stripe)?;
            Ok(true)
        })
    }
}

impl Snapshot {
    /// The volume of this name.
    ///
    /// # Errors
    /// No volume of this name.
    pub fn volume(&self, name: &str) -> Result<Volume> {
        let table = self.txn.open_table(tables::VOLUMES)?;
        let row = table.get(name)?.ok_or_else(|| missing(name))?;
        let record: VolumeRecord = record::unpack("volume", row.value())?;
        let code = self.code(record.code)?;
        let mut volume =
            Volume { name: name.to_owned(), record, code, snapshot_of: None, snapshots: Vec::new() };
        if volume.record.snapshot.is_some() || volume.record.cuts > 0 {
            self.relate(std::slice::from_mut(&mut volume))?;
        }
        Ok(volume)
    }

    /// Finds the names of the volumes of snapshots, and of the snapshots of volumes.
    fn relate(&self, volumes: &mut [Volume]) -> Result<()> {
        let names = self.txn.open_table(tables::VOLUME_NAMES)?;
        let name = |id: u64| {
            Ok::<_, CoordinatorError>(names.get(id)?.map_or_else(String::new, |row| row.value().into()))
        };
        for volume in volumes {
            volume.snapshot_of = volume.record.snapshot.map(|of| name(of.origin)).transpose()?;
            if volume.record.cuts > 0 {
                let family = self.family(volume.record.id)?;
                volume.snapshots = family.into_iter().map(|taken| name(taken.id)).collect::<Result<_>>()?;
            }
        }
        Ok(())
    }

    /// The volume with this id.
    ///
    /// # Errors
    /// No such volume.
    pub fn volume_by_id(&self, id: u64) -> Result<Volume> {
        self.volume(&self.volume_name(id)?.ok_or_else(|| missing(&format!("id {id}")))?)
    }

    /// The name of the volume with this id, if it is there.
    ///
    /// # Errors
    /// The disk fails.
    pub fn volume_name(&self, id: u64) -> Result<Option<String>> {
        let table = self.txn.open_table(tables::VOLUME_NAMES)?;
        Ok(table.get(id)?.map(|row| row.value().to_owned()).filter(|name| name != REMOVED))
    }

    /// Whether this volume was removed.
    ///
    /// # Errors
    /// The disk fails.
    pub fn was_removed(&self, id: u64) -> Result<bool> {
        let table = self.txn.open_table(tables::VOLUME_NAMES)?;
        Ok(table.get(id)?.is_some_and(|row| row.value() == REMOVED))
    }

    /// Whether there was ever a volume.
    ///
    /// # Errors
    /// The disk fails.
    pub fn had_volumes(&self) -> Result<bool> {
        Ok(!self.txn.open_table(tables::VOLUME_NAMES)?.is_empty()?)
    }

    /// All volumes, in order of name.
    ///
    /// # Errors
    /// The disk fails.
    pub fn volumes(&self) -> Result<Vec<Volume>> {
        let table = self.txn.open_table(tables::VOLUMES)?;
        let mut out = Vec::new();
        for row in table.iter()? {
            let (name, row) = row?;
            let record: VolumeRecord = record::unpack("volume", row.value())?;
            let code = self.code(record.code)?;
            let name = name.value().to_owned();
            out.push(Volume { name, record, code, snapshot_of: None, snapshots: Vec::new() });
        }
        self.relate(&mut out)?;
        Ok(out)
    }

    /// The rows of at most `count` stripes of a volume from `first` on, with their positions.
    ///
    /// # Errors
    /// The disk fails.
    pub fn volume_logs(&self, id: u64, first: u64, count: u64) -> Result<Vec<(u64, StripeLogs)>> {
        let table = self.txn.open_table(tables::VOLUME_STRIPES)?;
        let mut out = Vec::new();
        for row in table.range((id, first)..(id, first.saturating_add(count)))? {
            let (key, row) = row?;
            out.push((key.value().1, record::unpack("stripe of a volume", row.value())?));
        }
        Ok(out)
    }

    /// The rows of the first `most` stripes of a volume that are at `first` or behind it, with their positions.
    ///
    /// # Errors
    /// The disk fails.
    pub fn volume_rows(&self, id: u64, first: u64, most: u64) -> Result<Vec<(u64, StripeLogs)>> {
        let table = self.txn.open_table(tables::VOLUME_STRIPES)?;
        let mut out = Vec::new();
        for row in table.range((id, first)..=(id, u64::MAX))?.take(most as usize) {
            let (key, row) = row?;
            out.push((key.value().1, record::unpack("stripe of a volume", row.value())?));
        }
        Ok(out)
    }

    /// Which stripe of a volume this stripe is, if it is one.
    ///
    /// # Errors
    /// The disk fails.
    pub fn of_volume(&self, stripe: StripeId) -> Result<Option<(u64, u64)>> {
        let Some(record) = self.stripe(stripe)? else { return Ok(None) };
        Ok(self.name(record.owner)?.as_deref().and_then(stripe_named))
    }
}

/// Checks that a put may make a stripe of a volume now: its writer was not replaced, and the volume did not become too small for it.
pub(super) fn check_writer(t: &Tables<'_>, put: &PendingPut) -> Result<()> {
    let Some(StripeOfVolume { volume, epoch, index }) = put.volume else { return Ok(()) };
    let (name, record) = by_id(t, volume)?;
    if record.taken != epoch {
        return Err(stale(&name, record.taken, epoch));
    }
    if index >= record.size.div_ceil(stripe_bytes(t, &record)?) {
        return Err(CoordinatorError::Conflict {
            what: format!("write to volume {name:?}"),
            expected: format!("a stripe before its end, at {} bytes", record.size),
            got: format!("stripe {index}"),
        });
    }
    Ok(())
}

/// The bytes of a volume in each of its stripes; at least 1.
fn stripe_bytes(t: &Tables<'_>, volume: &VolumeRecord) -> Result<u64> {
    Ok((volume.block_bytes * u64::from(t.code(volume.code)?.k)).max(1))
}

/// Notes that the stripe that a put made exists.
pub(super) fn add_stripe(t: &mut Tables<'_>, put: &PendingPut) -> Result<()> {
    let (Some(StripeOfVolume { volume, index, .. }), Some((stripe, _))) = (put.volume, put.runs.first())
    else {
        return Ok(());
    };
    let made = by_id(t, volume)?.1.cuts;
    let row = StripeLogs { stripe: *stripe, made, ..StripeLogs::default() };
    t.volume_stripes.insert((volume, index), record::pack(&row).as_slice())?;
    count(t, volume, 1)
}

/// Notes that an object is gone, if it was a stripe of a volume.
pub(super) fn forget_stripe(t: &mut Tables<'_>, name: &str) -> Result<()> {
    let Some((volume, index)) = stripe_named(name) else { return Ok(()) };
    if t.volume_stripes.remove((volume, index))?.is_some() {
        count(t, volume, -1)?;
    }
    Ok(())
}

/// Blocks of a stripe have got new homes: if they are logged, their logs must be there too.
pub(super) fn land(
    t: &mut Tables<'_>,
    owner: u64,
    moved: &[BlockIndex],
    carried: Option<&Relogged>,
) -> Result<()> {
    let named = t.names.get(owner)?.and_then(|name| stripe_named(name.value()));
    let Some((volume, index)) = named else { return Ok(()) };
    let Some(row) = logs(t, volume, index)? else { return Ok(()) };
    let logged = |block: &BlockIndex| row.logs.get(usize::from(block.0)).is_some_and(|log| !log.is_empty());
    match carried {
        Some(change) if !moved.is_empty() => set_logs(t, change),
        None if moved.iter().any(logged) => Err(CoordinatorError::Conflict {
            what: format!("new home for blocks of stripe {}", row.stripe),
            expected: "their logs there".into(),
            got: "none; a repair brings them".into(),
        }),
        _ => Ok(()),
    }
}

pub(super) fn count(t: &mut Tables<'_>, volume: u64, more: i64) -> Result<()> {
    let (name, mut record) = by_id(t, volume)?;
    record.stripes = record.stripes.saturating_add_signed(more);
    set(t, &name, &record)
}

/// Changes where the updates of a stripe are logged.
pub(super) fn set_logs(t: &mut Tables<'_>, change: &Relogged) -> Result<()> {
    let Relogged { volume, index, ref from, ref to, taken } = *change;
    let now = logs(t, volume, index)?.ok_or_else(|| gone(volume, index))?;
    // A commit may have taken a generation meanwhile.
    if (&now.logs, now.epoch, now.stripe) != (&from.logs, from.epoch, from.stripe) {
        return Err(CoordinatorError::Conflict {
            what: format!("logs of stripe {index} of volume {volume}"),
            expected: format!("those of epoch {}", from.epoch),
            got: format!("those of epoch {}", now.epoch),
        });
    }
    let (name, mut record) = by_id(t, volume)?;
    // The new writer's epoch may be the same, or that of a snapshot.
    match record.fenced() {
        now if now == taken => {}
        now if now == record.taken => return Err(stale(&name, now, taken)),
        now => {
            return Err(CoordinatorError::Conflict {
                what: format!("logs of stripe {index} of volume {name:?}"),
                expected: format!("no snapshot since epoch {taken}"),
                got: format!("one of epoch {now}; it is tried again"),
            });
        }
    }
    record.epoch = record.epoch.max(to.epoch);
    set(t, &name, &record)?;
    let row = StripeLogs { generation: now.generation, ..to.clone() };
    t.volume_stripes.insert((volume, index), record::pack(&row).as_slice())?;
    Ok(())
}

pub(super) fn logs(t: &Tables<'_>, volume: u64, index: u64) -> Result<Option<StripeLogs>> {
    let row = t.volume_stripes.get((volume, index))?;
    row.map(|row| record::unpack("stripe of a volume", row.value())).transpose()
}

pub(super) fn by_id(t: &Tables<'_>, id: u64) -> Result<(String, VolumeRecord)> {
    let name = t.volume_names.get(id)?.map(|row| row.value().to_owned()).filter(|name| name != REMOVED);
    let name = name.ok_or_else(|| missing(&format!("id {id}")))?;
    let row = t.volumes.get(name.as_str())?.map(|row| record::unpack("volume", row.value())).transpose()?;
    Ok((name.clone(), row.ok_or_else(|| missing(&name))?))
}

pub(super) fn set(t: &mut Tables<'_>, name: &str, record: &VolumeRecord) -> Result<()> {
    t.volumes.insert(name, record::pack(record).as_slice())?;
    Ok(())
}

/// The error for a writer that was replaced.
pub fn stale(name: &str, expected: u64, got: u64) -> CoordinatorError {
    CoordinatorError::Fenced {
        what: format!("write to volume {name:?}"),
        expected: format!("its writer, of epoch {expected}"),
        got: format!("one of epoch {got}, from whom it was taken over"),
    }
}

pub(super) fn taken(name: &str) -> CoordinatorError {
    CoordinatorError::Exists { what: "volume", name: name.into(), hint: String::new() }
}

fn missing(name: &str) -> CoordinatorError {
    CoordinatorError::NotFound { what: "volume", name: name.into() }
}

fn gone(volume: u64, index: u64) -> CoordinatorError {
    CoordinatorError::NotFound { what: "stripe of a volume", name: stripe_name(volume, index) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_which_stripe_it_is() {
        assert_eq!(stripe_named(&stripe_name(u64::MAX, 7)), Some((u64::MAX, 7)));
        assert!(
            ["a", ".volume/", ".volume/1", ".volume/x/1"]
                .into_iter()
                .all(|name| stripe_named(name).is_none())
        );
    }
}
