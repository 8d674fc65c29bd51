//! The log of updates that have not reached their blocks yet: every append is durable when it returns.
//!
//! A volume overwrites parts of blocks. Such a write goes here first, at the home of its block and as a replica in
//! another rack (CAU, sections 3.1 and 3.4), and is acknowledged; a commit brings it into the block and its parities
//! later. Reads of a block lay over it what is here.
//!
//! - appends that come at once share one write and one sync (group commit);
//! - a volume has one writer: an append of an older epoch than the newest that was fenced, for the volume or for the
//!   stripe alone, is refused;
//! - [`AppendLog::freeze`] fixes what a commit takes: what comes later waits for the next one, however often the
//!   commit is tried;
//! - [`AppendLog::release`] forgets what reached its block. If a crash loses that, the same bytes are laid over the
//!   block again, which changes nothing;
//! - a replica may be a delta ([`Data::Delta`]), or there may be the bytes that it replaces ([`Data::Old`]): then a node
//!   without the block knows what a commit adds to it ([`FrozenDelta`]);
//! - a delta counts for one version of the block. [`AppendLog::is_settled`] says when a home may send one, so that every
//!   later version has what the delta says ([`Logged::lay_over`]).
//!
//! Invariants: what was acknowledged is read back byte for byte after any crash, or the log is another one from then on
//! ([`Break`]); what was not acknowledged is read back whole or not at all. Memory: an entry for each range that is not
//! overwritten, no data.
//!
//! Byte layout: `docs/format.md`, "Update log". Files are only appended to, and deleted oldest first when nothing in
//! them is needed.

mod delta;
mod end;
mod extents;
mod fences;
mod group;
mod logged;
mod record;
mod recover;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use kintsu_dag::BlockId;

use crate::disk::{Disk, DiskFile};
use crate::{Generation, StoreError};
pub use delta::FrozenDelta;
use end::End;
use extents::Extents;
use fences::Fences;
pub use fences::Scope;
pub use logged::Logged;
use record::Record;

/// The most bytes that one record carries.
pub const MOST_RECORD_BYTES: usize = 1 << 20;

/// Whose bytes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Of a block of this node.
    Home,
    /// Of a block of another node, kept until its commit.
    Replica,
}

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    /// These bytes: 1 to [`MOST_RECORD_BYTES`].
    Bytes(&'a [u8]),
    /// A number of zeros, which take no room.
    Zeros(u32),
    /// Not written: bytes of the block that updates replace, for a node that does not have the block.
    Old(&'a [u8]),
    /// What is written XOR this version of the block, where no commit is under way.
    Delta(Generation, &'a [u8]),
}

/// One write to one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Update<'a> {
    /// The volume.
    pub volume: u64,
    /// The epoch of its writer.
    pub epoch: u64,
    /// The block.
    pub block: BlockId,
    /// Whose.
    pub role: Role,
    /// Where in the block.
    pub offset: u64,
    /// What.
    pub data: Data<'a>,
}

/// What a log holds of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// The volume.
    pub volume: u64,
    /// The block.
    pub block: BlockId,
    /// Whose.
    pub role: Role,
    /// Ranges of the block, ascending, apart from each other.
    pub ranges: Vec<Range<u64>>,
    /// The number of the newest record.
    pub newest: u64,
}

/// Since when a log may lack something that was acknowledged before.
///
/// A log whose end or inside was damaged when it was opened is another log from then on: what a node has logged must not be taken for
/// complete until it got what it may lack from another node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Break {
    /// The number of the first record of the log as it is now; 0: it was never damaged.
    pub at: u64,
    /// The same of the last time when it certainly lacked something and began empty; 0: that never happened. From here to `at` only what
    /// came last before each break may be missing: a write that a crash cut off, or damage.
    pub lost: u64,
}

/// A log in a directory; [`crate::BlockStore::log`] opens it.
pub struct AppendLog {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    /// Where the newest durable record is noted; for who writes.
    end: Mutex<End>,
    synced: Condvar,
    /// For who deletes files.
    collecting: Mutex<()>,
    segment_bytes: u64,
}

type Key = (BlockId, Role);

#[derive(Default)]
struct State {
    /// The number of the next record; numbers grow and are never used twice.
    next: u64,
    /// The newest record that is durable.
    durable: u64,
    /// Encoded records that nobody has begun to write.
    waiting: Vec<(Record, Range<usize>)>,
    waiting_bytes: Vec<u8>,
    /// What becomes of them.
    outcome: Outcome,
    /// Whether somebody is writing.
    writing: bool,
    /// The file that is appended to; taken out while somebody writes.
    tail: Option<Tail>,
    /// By number. Files that hold something that is needed, and newer ones.
    segments: BTreeMap<u64, Segment>,
    blocks: HashMap<Key, Held>,
    fences: Fences,
    /// The record that raised a fence last. Once this one or a later one is durable, all fences are: if it failed, they are in the
    /// head of the next file.
    raised: u64,
    breaks: Break,
}

/// What became of a batch, for all who wait for it: why it could not be written, if it could not.
type Outcome = Arc<OnceLock<Result<(), String>>>;

struct Tail {
    number: u64,
    file: Box<dyn DiskFile>,
    at: u64,
}

#[derive(Default)]
struct Segment {
    /// For each block with records here the newest of them.
    newest: HashMap<Key, u64>,
    bytes: u64,
}

/// What is known of one block.
#[derive(Default, Clone)]
struct Held {
    volume: u64,
    /// What a commit takes.
    frozen: Extents,
    /// What came later.
    active: Extents,
    /// What both replace, as far as it was said.
    old: Extents,
    newest: u64,
    /// The newest record when it was frozen.
    cut: Option<u64>,
    /// The newest record when the log was opened.
    found: Option<u64>,
}

impl AppendLog {
    /// Opens the log in `dir` (created if absent); the caller holds the lock of the folder that it is in.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn open_on(disk: Arc<dyn Disk>, dir: PathBuf) -> Result<Self, StoreError> {
        Self::with_segments(disk, dir, record::SEGMENT_BYTES)
    }

    fn with_segments(disk: Arc<dyn Disk>, dir: PathBuf, segment_bytes: u64) -> Result<Self, StoreError> {
        let (state, end) = recover::recover(&*disk, &dir)?;
        let (state, end) = (Mutex::new(state), Mutex::new(end));
        let (synced, collecting) = (Condvar::new(), Mutex::default());
        Ok(Self { dir, disk, state, end, synced, collecting, segment_bytes })
    }

    /// Appends updates; they are durable when this returns. After a failure or a crash each of them may be there, whole,
    /// or not. The result is the number of the last.
    ///
    /// # Errors
    /// `Invalid` for no updates, no bytes, too many, a range past 2^62, or an epoch older than the volume's; `Full`;
    /// `Io`.
    pub fn append(&self, updates: &[Update<'_>]) -> Result<u64, StoreError> {
        if updates.is_empty() {
            return Err(invalid("updates", "one or more", "none"));
        }
        updates.iter().try_for_each(check)?;
        let state = self.state();
        for Update { volume, epoch, block, .. } in updates {
            let least = state.fences.least(Scope { volume: *volume, stripe: Some(block.stripe) });
            if *epoch < least {
                let expected =
                    format!("{least} or later: volume {volume} has another writer, or its log has moved");
                return Err(invalid("epoch", &expected, epoch));
            }
        }
        let records = updates.iter().map(|update| (Record::of(update), update.data.bytes()));
        self.commit(state, records)
    }

    /// Refuses appends to a volume, or to one stripe of it, of any older epoch from now on; durable on return. Nothing is written
    /// if that is so already.
    ///
    /// # Errors
    /// `Invalid` for an epoch older than one that was fenced; those of [`append`](Self::append).
    pub fn fence(&self, scope: Scope, epoch: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        let least = state.fences.least(scope);
        if epoch < least {
            return Err(invalid("epoch", &format!("{least} or later for volume {}", scope.volume), epoch));
        }
        // An earlier call may have raised it and failed, or be waiting for its sync.
        if epoch == least && state.durable >= state.raised {
            return Ok(());
        }
        // Counts at once: what is appended from now on comes after it.
        state.fences.raise(scope, epoch);
        state.raised = state.next;
        self.commit(state, [(Record::fence(scope, epoch), &[][..])].into_iter()).map(drop)
    }

    /// Which parts of a range of a block the log holds, ascending, apart from each other.
    pub fn ranges(&self, block: BlockId, role: Role, range: Range<u64>) -> Vec<Range<u64>> {
        let state = self.state();
        let Some(held) = state.blocks.get(&(block, role)) else { return Vec::new() };
        let cut = |part: Range<u64>| part.start.max(range.start)..part.end.min(range.end);
        held.ranges().into_iter().map(cut).filter(|part| part.start < part.end).collect()
    }

    /// Fixes what a commit of a block takes, from its begin on: what an earlier one fixed, and what came since. Returns the
    /// number of the newest record in it, and the ranges; `None` if the log holds nothing of the block. No program of an
    /// earlier commit of the block may be running.
    pub fn freeze(&self, block: BlockId, role: Role) -> Option<(u64, Vec<Range<u64>>)> {
        let mut state = self.state();
        let held = state.blocks.get_mut(&(block, role))?;
        let active = std::mem::take(&mut held.active);
        active.lay_on(&mut held.frozen);
        held.cut = Some(held.newest);
        Some((held.newest, held.frozen.ranges()))
    }

    /// Whether no commit of the block is under way, as far as this log can tell: nothing is fixed, and nothing is left from
    /// before the log was opened, when something may have been.
    pub fn is_settled(&self, block: BlockId, role: Role) -> bool {
        let state = self.state();
        state.blocks.get(&(block, role)).is_none_or(|held| held.cut.is_none() && held.found.is_none())
    }

    /// Whether there is a log in `dir`, or was.
    pub(crate) fn is_begun(disk: &dyn Disk, dir: &Path) -> Result<bool, StoreError> {
        match disk.identity(dir) {
            Err(none) if none.kind() == ErrorKind::NotFound => Ok(End::noted(disk, dir) > 0),
            Err(source) => Err(StoreError::io(dir, source)),
            Ok(_) => Ok(true),
        }
    }

    /// Since when it may lack something.
    pub fn breaks(&self) -> Break {
        self.state().breaks
    }

    /// The newest epoch that was fenced here; 0 if none was.
    pub fn fenced(&self, scope: Scope) -> u64 {
        self.state().fences.least(scope)
    }

    /// Forgets the records of blocks, each up to a number, since their commits are decided; one sync for all.
    ///
    /// # Errors
    /// Those of [`append`](Self::append).
    pub fn release(&self, updates: impl IntoIterator<Item = (BlockId, Role, u64)>) -> Result<(), StoreError> {
        let state = self.state();
        let is_held = |(block, role, _): &(BlockId, Role, u64)| state.blocks.contains_key(&(*block, *role));
        let records: Vec<(Record, &[u8])> = updates
            .into_iter()
            .filter(is_held)
            .map(|(block, role, upto)| (Record::release(block, role, upto), &[][..]))
            .collect();
        if records.is_empty() {
            return Ok(());
        }
        self.commit(state, records.into_iter())?;
        self.collect()
    }

    /// What the log holds, by block.
    pub fn pending(&self) -> Vec<Pending> {
        let state = self.state();
        let mut all: Vec<Pending> = state
            .blocks
            .iter()
            .map(|(&(block, role), held)| {
                let Held { volume, newest, .. } = *held;
                Pending { volume, block, role, ranges: held.ranges(), newest }
            })
            .collect();
        all.sort_by_key(|pending| (pending.volume, pending.block, pending.role));
        all
    }

    /// Bytes of the log's files.
    pub fn bytes(&self) -> u64 {
        let state = self.state();
        state.segments.values().map(|segment| segment.bytes).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which bytes of a block.
#[derive(Clone, Copy)]
enum Layer {
    /// The newest.
    All,
    /// Those that a commit takes.
    Frozen,
    /// Those that both replace.
    Old,
}

impl Held {
    /// All ranges, whether a commit takes them or not.
    fn ranges(&self) -> Vec<Range<u64>> {
        let mut whole = self.frozen.clone();
        self.active.lay_on(&mut whole);
        whole.ranges()
    }
}

impl<'a> Data<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) | Self::Old(bytes) | Self::Delta(_, bytes) => bytes,
            Self::Zeros(_) => &[],
        }
    }

    fn len(self) -> u64 {
        match self {
            Self::Bytes(bytes) | Self::Old(bytes) | Self::Delta(_, bytes) => bytes.len() as u64,
            Self::Zeros(count) => count.into(),
        }
    }
}

fn check(update: &Update<'_>) -> Result<(), StoreError> {
    let len = update.data.len();
    let most = if matches!(update.data, Data::Zeros(_)) { u32::MAX.into() } else { MOST_RECORD_BYTES as u64 };
    if len == 0 || len > most {
        return Err(invalid("bytes of an update", &format!("1 to {most}"), len));
    }
    if update.offset.checked_add(len).is_none_or(|end| end > 1 << 62) {
        return Err(invalid("range of an update", "an end up to 2^62", update.offset));
    }
    Ok(())
}

fn invalid(what: &'static str, expected: &str, got: impl std::fmt::Display) -> StoreError {
    StoreError::Invalid { what, expected: expected.to_owned(), got: got.to_string() }
}

fn damaged(path: &Path, at: u64, number: u64) -> StoreError {
    let expected = format!("record {number}, whole, at byte {at} of {}", path.display());
    invalid("update log", &expected, "bytes that do not match their checksum; start the agent again")
}
