//! The cluster of these metadata, and the length of their history.
//!
//! Every counted transaction makes the history longer by one. Every start of a coordinator is noted with a random
//! number and with the length of the history at that moment. Agents remember the last point that they were told.
//! If this history does not contain that point, newer or other metadata told it: an older copy was restored.

use kintsu_wire::message::MOST_MEMBERS;
use kintsu_wire::{ClusterId, Seen};
use redb::ReadableTable;
use serde::{Deserialize, Serialize};

use super::write::Tables;
use super::{MOST_UNSETTLED, Meta, Snapshot, puts, record, tables};
use crate::error::{CoordinatorError, Result};

/// Number of ids that are skipped if metadata turn out to be older than what agents hold, so that no id is given
/// twice.
pub(super) const LEAP: u64 = 1 << 32;
/// The same for ids of nodes.
pub(super) const NODE_LEAP: u64 = 1000;

/// Start numbers from agents are believed only below this: with larger ones the numbers of jobs would run out.
pub const MOST_BOOTS: u64 = 1 << 22;

/// Ids of stripes and objects that agents tell are believed only up to this: with larger ones the ids would run out.
pub const MOST_ID: u64 = 1 << 62;

/// Key of the cluster's id in the table of settings.
const CLUSTER: &str = "cluster";
/// Key of the [`Behind`] row, which exists while the metadata are older than what agents hold.
const BEHIND: &str = "behind";
/// Key of the starts whose lost history an operator has accepted.
const ACCEPTED: &str = "accepted";
/// Key of the last start whose lost history is accepted, because the metadata were rebuilt from blocks since.
const ACCEPTED_UPTO: &str = "accepted_upto";

/// Metadata that are older than what agents remember.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Behind {
    /// What was noticed, as text for people.
    pub why: String,
    /// The starts that are missing here: (boot, nonce).
    pub starts: Vec<(u64, u64)>,
}

impl Meta {
    /// Notes one more start of the coordinator, and gives the cluster its id if it has none. Ids that puts of the last
    /// start may have got without being durable are skipped, unless the metadata are `restored`: then ids that agents
    /// know show that something is missing ([`Meta::fall_behind`]).
    ///
    /// # Errors
    /// The disk fails.
    pub fn begin(&self, fresh: ClusterId, nonce: u64, restored: bool) -> Result<(ClusterId, Seen)> {
        self.write(|t| {
            let known = t.settings.get(CLUSTER)?.map(|row| cluster_of(row.value())).transpose()?;
            if known.is_none() {
                t.settings.insert(CLUSTER, fresh.0.as_slice())?;
            }
            if known.is_some() && !restored {
                t.next(tables::COUNT_PUT, MOST_UNSETTLED * (1 + MOST_MEMBERS as u64))?;
                t.next(tables::COUNT_STRIPE, MOST_UNSETTLED * puts::SMALL)?;
            }
            let (boot, history) = (t.next(tables::COUNT_BOOT, 1)?, t.counter(tables::COUNT_HISTORY)?);
            t.boots.insert(boot, (nonce, history))?;
            Ok((known.unwrap_or(fresh), Seen { boot, nonce, history }))
        })
    }

    /// From now on the metadata count as older than what agents hold, and no id that may be in use is given again.
    /// `next_stripe` is one more than the largest stripe id seen. Returns whether this was not known before.
    ///
    /// # Errors
    /// The disk fails.
    pub fn fall_behind(&self, why: &str, start: Option<(u64, u64)>, next_stripe: u64) -> Result<bool> {
        self.write(|t| {
            let known = t.settings.get(BEHIND)?.map(|row| unpack_behind(row.value())).transpose()?;
            let news = known.is_none();
            let mut behind = known.unwrap_or_else(|| Behind { why: why.to_owned(), starts: Vec::new() });
            if let Some(start) = start.filter(|start| !behind.starts.contains(start)) {
                behind.starts.push(start);
            }
            let leap = |t: &mut Tables<'_>, name, floor: u64, leap: u64| -> Result<()> {
                let next = t.counter(name)?;
                if news || next < floor {
                    t.set_counter(name, next.max(floor).saturating_add(leap))?;
                }
                Ok(())
            };
            // The next start gets a number that no agent knows.
            let boot =
                start.map(|(boot, _)| boot).filter(|boot| *boot < MOST_BOOTS).map_or(0, |boot| boot + 2);
            if t.counter(tables::COUNT_BOOT)? < boot {
                t.set_counter(tables::COUNT_BOOT, boot)?;
            }
            leap(t, tables::COUNT_STRIPE, next_stripe, LEAP)?;
            leap(t, tables::COUNT_PUT, 0, LEAP)?;
            leap(t, tables::COUNT_NODE, 0, NODE_LEAP)?;
            t.settings.insert(BEHIND, record::pack(&behind).as_slice())?;
            Ok(news)
        })
    }

    /// An operator has decided to go on with these metadata, even if they are older. Returns whether they were
    /// older.
    ///
    /// # Errors
    /// The disk fails.
    pub fn accept_older(&self) -> Result<bool> {
        self.write(|t| {
            let behind = t.settings.remove(BEHIND)?.map(|row| unpack_behind(row.value())).transpose()?;
            let Some(behind) = behind else { return Ok(false) };
            let mut accepted = accepted(t)?;
            accepted.extend(behind.starts);
            t.settings.insert(ACCEPTED, record::pack(&accepted).as_slice())?;
            Ok(true)
        })
    }
}

impl Snapshot {
    /// Whether a point that an agent remembers belongs to this history, or was accepted as lost.
    ///
    /// # Errors
    /// The disk fails.
    pub fn holds(&self, seen: Seen) -> Result<bool> {
        let settings = self.txn.open_table(tables::SETTINGS)?;
        if let Some(row) = settings.get(ACCEPTED)? {
            let accepted: Vec<(u64, u64)> = record::unpack("accepted starts", row.value())?;
            if accepted.contains(&(seen.boot, seen.nonce)) {
                return Ok(true);
            }
        }
        let upto = settings.get(ACCEPTED_UPTO)?;
        let upto: Option<u64> = upto.map(|row| record::unpack("accepted starts", row.value())).transpose()?;
        let boots = self.txn.open_table(tables::BOOTS)?;
        let own = boots.get(seen.boot)?.is_some_and(|row| row.value().0 == seen.nonce);
        if !own {
            return Ok(upto.is_some_and(|upto| seen.boot <= upto));
        }
        let after = boots.range(seen.boot.saturating_add(1)..)?.next().transpose()?;
        let end = match after {
            Some((_, row)) => row.value().1,
            None => self.counter(tables::COUNT_HISTORY)?,
        };
        Ok(seen.history <= end)
    }

    /// Why the metadata count as older than what agents hold, if they do.
    ///
    /// # Errors
    /// The disk fails.
    pub fn behind(&self) -> Result<Option<Behind>> {
        let settings = self.txn.open_table(tables::SETTINGS)?;
        settings.get(BEHIND)?.map(|row| unpack_behind(row.value())).transpose()
    }

    /// The next stripe id that will be given.
    ///
    /// # Errors
    /// The disk fails.
    pub fn next_stripe(&self) -> Result<u64> {
        Ok(self.counter(tables::COUNT_STRIPE)?.max(1))
    }

    fn counter(&self, name: &str) -> Result<u64> {
        Ok(self.txn.open_table(tables::COUNTERS)?.get(name)?.map_or(0, |v| v.value()))
    }
}

/// Accepts that these metadata lack history that agents remember, up to the last such start: the content was
/// rebuilt from blocks.
pub(super) fn accept_upto(t: &mut Tables<'_>) -> Result<()> {
    let behind = t.settings.remove(BEHIND)?.map(|row| unpack_behind(row.value())).transpose()?;
    let Some(last) = behind.and_then(|behind| behind.starts.into_iter().map(|start| start.0).max()) else {
        return Ok(());
    };
    let before: Option<u64> = match t.settings.get(ACCEPTED_UPTO)? {
        Some(row) => Some(record::unpack("accepted starts", row.value())?),
        None => None,
    };
    let upto = before.map_or(last, |before| before.max(last));
    t.settings.insert(ACCEPTED_UPTO, record::pack(&upto).as_slice())?;
    Ok(())
}

fn accepted(t: &Tables<'_>) -> Result<Vec<(u64, u64)>> {
    match t.settings.get(ACCEPTED)? {
        Some(row) => record::unpack("accepted starts", row.value()),
        None => Ok(Vec::new()),
    }
}

fn unpack_behind(bytes: &[u8]) -> Result<Behind> {
    record::unpack("missing history", bytes)
}

fn cluster_of(bytes: &[u8]) -> Result<ClusterId> {
    let id = bytes.try_into().map_err(|_| CoordinatorError::Corrupt {
        what: "cluster id".into(),
        expected: "16 bytes".into(),
        got: format!("{} bytes", bytes.len()),
    })?;
    Ok(ClusterId(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::{open, store};

    const A: ClusterId = ClusterId([1; 16]);

    #[test]
    fn a_cluster_keeps_its_id_and_counts_its_starts() {
        let dir = tempfile::tempdir().unwrap();
        let (id, first) = open(dir.path()).begin(A, 11, false).unwrap();
        let (same, second) = open(dir.path()).begin(ClusterId([2; 16]), 12, false).unwrap();
        assert_eq!((id, same), (A, A));
        assert_eq!((first.boot, second.boot), (1, 2));
        assert!(second.history > first.history);
    }

    #[test]
    fn an_older_copy_does_not_hold_what_was_told_after_it() {
        let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let meta = open(dir.path());
        let (_, start) = meta.begin(A, 11, false).unwrap();
        store(&meta, "a", 16, 0);
        let early = Seen { history: meta.history(), ..start };
        assert!(meta.snapshot().unwrap().holds(early).unwrap());
        drop(meta);
        let file = crate::meta::FILE;
        std::fs::copy(dir.path().join(file), copy.path().join(file)).unwrap();
        let meta = open(dir.path());
        store(&meta, "b", 16, 0);
        let late = Seen { history: meta.history(), ..start };
        assert!(meta.snapshot().unwrap().holds(late).unwrap());
        let (_, next) = meta.begin(A, 12, false).unwrap();
        assert!(meta.snapshot().unwrap().holds(late).unwrap(), "a restart does not break the history");

        let old = open(copy.path());
        old.begin(A, 13, true).unwrap();
        for name in ["c", "d", "e", "f"] {
            store(&old, name, 16, 0);
        }
        assert!(old.history() > late.history, "the copy has a longer history by now");
        let holds = |seen| old.snapshot().unwrap().holds(seen).unwrap();
        assert!(holds(early) && !holds(late) && !holds(next));
        let before = old.snapshot().unwrap().next_stripe().unwrap();
        assert!(old.fall_behind("why", Some((late.boot, late.nonce)), before + 10).unwrap());
        assert!(!old.fall_behind("why", Some((next.boot, next.nonce)), before).unwrap());
        assert!(old.snapshot().unwrap().next_stripe().unwrap() > before + LEAP);
        assert_eq!(old.snapshot().unwrap().behind().unwrap().unwrap().starts.len(), 2);
        assert!(old.accept_older().unwrap() && !old.accept_older().unwrap());
        assert!(holds(late) && holds(next) && !holds(Seen { nonce: 99, ..late }));
        assert_eq!(old.snapshot().unwrap().behind().unwrap(), None);
    }
}
