//! Metadata: what exists, where it is, and what must be done about it, in an embedded
//! transactional store (redb).
//!
//! One operation is one transaction: it is durable when the call returns, unless the call says otherwise, and a crash
//! at any moment leaves all of it or none. All access goes through [`Meta`]; no other module knows the tables. This module decides nothing:
//! callers pass in placements and repairs.
//!
//! Invariants, each kept by the one function of `Tables` that changes its rows:
//! - a block with a digest has exactly one `by_node` row, and a node at most one block of a stripe;
//! - a block is flagged lost in its stripe exactly when it has a `lost` row;
//! - `tally` counts the rows of `by_node` and their lost flags;
//! - no block is a home and garbage on the same node at once;
//! - ids of stripes, puts and nodes are never used twice;
//! - a stripe has a row in `put_stripes` exactly while a put under way has it;
//! - a pack has a row exactly while one of its members is there; the row counts them and their bytes;
//! - what has a row in `loose` exists, and has a stripe of small objects alone.
//!
//! Cost: opening reads a few pages, whatever the number of stripes (every durable commit saves the state of the
//! page allocator, so that the file need not be scanned after a crash), and the cache is bounded. Calls block on
//! the disk: asynchronous callers use [`Meta::off`].

mod blocks;
pub(crate) mod change;
mod codes;
mod commit;
mod dump;
mod enroll;
mod failure;
mod fence;
mod found;
mod found_packs;
mod history;
mod loose;
mod moves;
mod names;
mod nodes;
mod objects;
pub(crate) mod packs;
mod puts;
mod rates;
pub(crate) mod record;
mod restore;
mod settings;
pub(crate) mod snapshots;
mod tables;
mod together;
mod tombstones;
mod version2;
pub(crate) mod volumes;
mod write;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::backends::FileBackend;
use redb::{
    Database, Durability, ReadOnlyTable, ReadTransaction, ReadableDatabase, ReadableTableMetadata,
    StorageBackend, WriteTransaction,
};

use crate::config::Medium;
use crate::error::{CoordinatorError, Result};

pub use change::{Landing, LostBlock, Parity};
pub use codes::missing as missing_code;
pub use commit::Commit;
pub use failure::Failure;
pub use found::{Noted, Shown};
pub use found_packs::ShownPack;
pub use history::{Behind, MOST_BOOTS, MOST_ID};
pub use names::Making;
pub use puts::{Granted, NewPut};
pub use record::{
    BlockRecord, CodeRecord, Fence, NodeRecord, ObjectRecord, PackRecord, PendingPut, PendingStripe,
    StripeRecord,
};
pub use restore::{present, refuse_present, restore};
pub use volumes::{StripeLogs, Volume, VolumeRecord};
use write::Tables;

/// File name of the store in the coordinator's directory.
pub const FILE: &str = "metadata.redb";

/// Most operations that may wait to become durable.
const MOST_UNSETTLED: u64 = 64;

/// The metadata store. Cheap to clone.
#[derive(Clone)]
pub struct Meta {
    db: Arc<Database>,
    failure: Arc<Failure>,
    /// Transactions committed, over all starts.
    history: Arc<AtomicU64>,
    /// Operations since the last durable transaction, which made all earlier ones durable too. Changes only while the
    /// transaction is open: there is one at a time.
    unsettled: Arc<AtomicU64>,
    /// The transaction that callers share.
    line: Arc<together::Line>,
}

/// A consistent view of the metadata at one moment.
pub struct Snapshot {
    txn: ReadTransaction,
    /// Opened once, because scans look up one stripe per row.
    stripes: ReadOnlyTable<u64, &'static [u8]>,
}

/// Totals that are read from counters, without a scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Totals {
    /// Objects visible.
    pub objects: u64,
    /// Bytes of objects.
    pub object_bytes: u64,
    /// Stripes.
    pub stripes: u64,
    /// Stripes that have no parity yet.
    pub plain: u64,
    /// Blocks known to be lost.
    pub lost: u64,
    /// Puts under way.
    pub puts: u64,
    /// Block files waiting to be deleted.
    pub garbage: u64,
}

impl Meta {
    /// Opens the store in `dir`, or creates it, with at most `cache_bytes` of cache.
    ///
    /// # Errors
    /// Another process has it open; its version is not known; the disk fails.
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<Self> {
        Self::open_in(dir, cache_bytes, None)
    }

    /// The same, on another medium than a file in `dir`.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub fn open_in(dir: &Path, cache_bytes: usize, medium: Option<&dyn Medium>) -> Result<Self> {
        let io = |source| CoordinatorError::Io { what: format!("cannot create {}", dir.display()), source };
        std::fs::create_dir_all(dir).map_err(io)?;
        let path = dir.join(FILE);
        let failure = Failure::new(dir);
        let db = match medium {
            Some(medium) => medium.open().map_err(redb::DatabaseError::from),
            None => {
                let open = File::options().read(true).write(true).create(true).truncate(false).open(&path);
                file_backend(open.map_err(io)?)
            }
        };
        let db = db.and_then(|backend| database(backend, cache_bytes, failure.clone()));
        let db = match db {
            Err(redb::DatabaseError::DatabaseAlreadyOpen) => return Err(in_use(dir)),
            other => other.map_err(|e| failure.explain(e.into()))?,
        };
        let meta = Self {
            db: Arc::new(db),
            failure,
            history: Arc::default(),
            unsettled: Arc::default(),
            line: Arc::default(),
        };
        let version = meta.note(|t| {
            let found = t.counter(tables::COUNT_VERSION)?;
            let known = found == 0 || (tables::OLDEST_VERSION..=tables::VERSION).contains(&found);
            if known {
                // From now on, programs that know only older versions refuse to open the store.
                t.set_counter(tables::COUNT_VERSION, tables::VERSION)?;
                if found < tables::VERSION {
                    version2::take_over(t)?;
                    loose::take_over(t)?;
                }
                objects::begin_to_count_plain(t)?;
            }
            Ok(if known { tables::VERSION } else { found })
        })?;
        if version != tables::VERSION {
            return Err(CoordinatorError::Corrupt {
                what: format!("{}", path.display()),
                expected: format!("version {} to {}", tables::OLDEST_VERSION, tables::VERSION),
                got: format!("version {version}"),
            });
        }
        Ok(meta)
    }

    /// Runs a call that blocks on the disk on a thread outside the asynchronous ones.
    ///
    /// # Errors
    /// Those of `f`.
    pub async fn off<T, F>(&self, f: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Meta) -> Result<T> + Send + 'static,
    {
        let meta = self.clone();
        match kintsu_wire::ambient::blocking(move || meta.here(f)).await {
            Ok(result) => result,
            Err(e) if e.is_panic() => std::panic::resume_unwind(e.into_panic()),
            Err(e) => Err(CoordinatorError::Storage(e.to_string())),
        }
    }

    /// Runs a call that reads a few rows on this thread. Their pages are nearly always in memory, and then another thread
    /// would cost more than the reading.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn here<T>(&self, f: impl FnOnce(&Meta) -> Result<T>) -> Result<T> {
        self.failure.check()?;
        f(self).map_err(|e| self.failure.explain(e))
    }

    /// Handles on the store, with this one. Each call to the disk that is under way has one.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.db)
    }

    /// Whether the disk has failed. After a failure no call works any more.
    pub fn failure(&self) -> &Failure {
        &self.failure
    }

    /// A view of what is committed now.
    ///
    /// # Errors
    /// The disk fails.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.failure.check()?;
        let open = || -> Result<Snapshot> {
            let txn = self.db.begin_read()?;
            Ok(Snapshot { stripes: txn.open_table(tables::STRIPES)?, txn })
        };
        open().map_err(|e| self.failure.explain(e))
    }

    /// Transactions committed, over all starts.
    pub fn history(&self) -> u64 {
        self.history.load(Ordering::Acquire)
    }

    /// Makes the row of a put unreadable.
    #[cfg(test)]
    pub(crate) fn spoil_put(&self, put: u64) {
        let spoil = |t: &mut Tables<'_>| Ok(t.puts.insert(put, [0xc1].as_slice()).map(drop)?);
        self.write(spoil).expect("the row of a put");
    }

    /// One transaction: all changes of `f` become durable, or none.
    fn write<T>(&self, f: impl FnOnce(&mut Tables<'_>) -> Result<T>) -> Result<T> {
        self.transaction(1, true, f)
    }

    /// A transaction that the history does not count: if an older copy lacks it, nobody misses it.
    fn note<T>(&self, f: impl FnOnce(&mut Tables<'_>) -> Result<T>) -> Result<T> {
        self.transaction(0, true, f)
    }

    /// A transaction of work that starts again after a crash. It becomes durable with the next durable
    /// transaction, after [`MOST_UNSETTLED`] such operations at the latest, because freed space is reused only after
    /// that. Until then [`Meta::history`] does not include it.
    fn soon<T>(&self, counted: u64, f: impl FnOnce(&mut Tables<'_>) -> Result<T>) -> Result<T> {
        self.transaction(counted, false, f)
    }

    /// Makes all earlier transactions durable.
    ///
    /// # Errors
    /// The disk fails.
    pub fn settle(&self) -> Result<()> {
        self.note(|_| Ok(()))
    }

    /// Whether operations wait to become durable.
    pub fn is_unsettled(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed) > 0
    }

    fn transaction<T>(
        &self,
        counted: u64,
        durable: bool,
        f: impl FnOnce(&mut Tables<'_>) -> Result<T>,
    ) -> Result<T> {
        self.failure.check()?;
        let done = move || {
            let (txn, value, history) = operate(self.db.begin_write()?, counted, f)?;
            self.commit(txn, (1, durable), history)?;
            Ok(value)
        };
        done().map_err(|e| self.failure.explain(e))
    }

    /// Commits a transaction of this many operations, after which the history is as given. It becomes durable if it must,
    /// or if too many operations wait for that.
    fn commit(
        &self,
        mut txn: WriteTransaction,
        (operations, durable): (u64, bool),
        history: u64,
    ) -> Result<()> {
        let unsettled = self.unsettled.load(Ordering::Relaxed) + operations;
        let settles = durable || unsettled >= MOST_UNSETTLED;
        txn.set_quick_repair(settles);
        txn.set_durability(if settles { Durability::Immediate } else { Durability::None })?;
        self.unsettled.store(if settles { 0 } else { unsettled }, Ordering::Relaxed);
        txn.commit()?;
        if settles {
            // If two transactions commit one right after the other, the later one may get here first.
            self.history.fetch_max(history, Ordering::AcqRel);
        }
        Ok(())
    }
}

/// Runs one operation in a transaction, which is rolled back if that fails; returns the transaction, the operation's
/// value, and the history with it.
fn operate<T>(
    txn: WriteTransaction,
    counted: u64,
    f: impl FnOnce(&mut Tables<'_>) -> Result<T>,
) -> Result<(WriteTransaction, T, u64)> {
    let mut opened = Tables::open(&txn)?;
    let done = f(&mut opened).and_then(|value| {
        let history = opened.counter(tables::COUNT_HISTORY)? + counted;
        opened.set_counter(tables::COUNT_HISTORY, history)?;
        Ok((value, history))
    });
    drop(opened);
    match done {
        Ok((value, history)) => Ok((txn, value, history)),
        Err(error) => {
            txn.abort()?;
            Err(error)
        }
    }
}

fn file_backend(file: File) -> Result<Box<dyn StorageBackend>, redb::DatabaseError> {
    Ok(Box::new(FileBackend::new(file)?))
}

/// The store on this medium, whose failures are noted.
fn database(
    backend: Box<dyn StorageBackend>,
    cache_bytes: usize,
    failure: Arc<Failure>,
) -> Result<Database, redb::DatabaseError> {
    let watched = failure::Watched::new(backend, failure);
    Database::builder().set_cache_size(cache_bytes).create_with_backend(watched)
}

fn in_use(dir: &Path) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: format!("cannot use {}", dir.display()),
        expected: "a directory that no other coordinator uses".into(),
        got: "one that is locked by a running coordinator".into(),
    }
}

impl Snapshot {
    /// The totals of the store.
    ///
    /// # Errors
    /// The disk fails.
    pub fn totals(&self) -> Result<Totals> {
        let counters = self.txn.open_table(tables::COUNTERS)?;
        let stripes_of_volumes = self.txn.open_table(tables::VOLUME_STRIPES)?.len()?;
        Ok(Totals {
            // The stripes of volumes are no objects of users.
            objects: self.txn.open_table(tables::OBJECTS)?.len()?.saturating_sub(stripes_of_volumes),
            object_bytes: counters.get(tables::COUNT_BYTES)?.map_or(0, |v| v.value()),
            stripes: self.stripes.len()?,
            plain: counters.get(tables::COUNT_PLAIN)?.map_or(0, |v| v.value()),
            lost: self.txn.open_table(tables::LOST)?.len()?,
            puts: self.txn.open_table(tables::PUTS)?.len()?,
            garbage: self.txn.open_table(tables::GARBAGE)?.len()?,
        })
    }

    /// A code by its key.
    ///
    /// # Errors
    /// No such code: the metadata contradict themselves.
    pub fn code(&self, key: u16) -> Result<CodeRecord> {
        let table = self.txn.open_table(tables::CODES)?;
        let row = table.get(key)?;
        write::code_of(row.as_ref().map(|r| r.value()), key)
    }
}

#[cfg(test)]
pub(crate) mod move_tests;
#[cfg(test)]
mod pack_tests;
#[cfg(test)]
mod stream_tests;
#[cfg(test)]
pub(crate) mod tests;
