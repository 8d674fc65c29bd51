//! The contract of a block store: what an agent needs from a disk, or from a replacement for one.

use std::path::PathBuf;
use std::sync::Arc;

use kintsu_dag::BlockId;

use crate::{
    AppendLog, BlockHead, BlockMeta, Break, Digest, Generation, Listing, QuarantinedFile, Reason, StoreError,
    Usage,
};

/// A keeper of blocks. All calls block; run them off the async threads.
///
/// At most one block is kept per [`BlockId`]; writing it again replaces it as a whole. Beside them it keeps blocks
/// that were set aside, any number of each id, until they are taken back or purged.
///
/// Calls that write, and those that list, fail with `Vanished` while the store's folder is not the one that was
/// opened ([`check_root`](Self::check_root)).
pub trait BlockStore: Send + Sync + 'static {
    /// Opens a block for reading; what the reader sees does not change if the block is replaced
    /// or deleted meanwhile. Reads the header and the unit checksums, not the data. If the next version of the block
    /// has this generation, it takes the block's place first: only who knows that it was decided asks for it.
    ///
    /// # Errors
    /// `NotFound`; `Stale` if another generation is there; rot in what was read.
    fn open(&self, id: BlockId, generation: Generation) -> Result<Box<dyn BlockRead>, StoreError>;

    /// Begins a block of `len` bytes with a checksum for each `unit_bytes` (a power of two from
    /// [`LEAST_UNIT_BYTES`](crate::LEAST_UNIT_BYTES) to [`UNIT_BYTES`](crate::UNIT_BYTES)), invisible until
    /// [`BlockWrite::finish`]; takes its space now, that of a short block when it is written. `label` goes into the
    /// block's header: at most [`MOST_LABEL_BYTES`](crate::MOST_LABEL_BYTES) that mean nothing to the store.
    ///
    /// # Errors
    /// `Vanished`; `Full`; `Busy` while another writer has this id; `Stale` if a later generation is there (the
    /// same generation may be written again: that is how a rotten block is repaired in place); `Invalid`.
    fn create(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError>;

    /// Begins the next version of a block, beside it: what [`BlockWrite::finish`] makes durable then is not what calls
    /// on the block find, until somebody opens or promotes it in this generation. It replaces a next version that is
    /// there.
    ///
    /// # Errors
    /// Those of [`create`](Self::create); `Stale` also if the block has this generation already.
    fn create_next(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError>;

    /// Puts the next version of this generation in the block's place and deletes what was there; nothing changes if
    /// that has happened. Durable on return.
    ///
    /// # Errors
    /// `NotFound` if there is neither; `Stale` if the block or its next version has another generation; `Vanished`;
    /// rot in a header; `Io`.
    fn promote(&self, id: BlockId, generation: Generation) -> Result<BlockMeta, StoreError>;

    /// The next versions that are beside their blocks, in order of ids; reads headers only.
    ///
    /// # Errors
    /// `Vanished`; `Io`.
    fn next_versions(&self) -> Result<Vec<BlockMeta>, StoreError>;

    /// Deletes the next version of a block if it has this generation; false, and nothing changed, if not. Durable on
    /// return.
    ///
    /// # Errors
    /// `Vanished`; `Io`.
    fn discard_next(&self, id: BlockId, generation: Generation) -> Result<bool, StoreError>;

    /// The log of updates to blocks of this node and others, which is opened when this is first called.
    ///
    /// # Errors
    /// `Vanished`; `Io`.
    fn log(&self) -> Result<Arc<AppendLog>, StoreError>;

    /// Since when the log may lack something; opens it, if there is one.
    ///
    /// # Errors
    /// Those of [`log`](Self::log).
    fn breaks(&self) -> Result<Break, StoreError> {
        Ok(self.log()?.breaks())
    }

    /// Deletes a block, of this generation only if one is given, else with its next version; false, and nothing changed, if
    /// there was no such block. Durable on return.
    ///
    /// # Errors
    /// Rot in the header when a generation is given.
    fn delete(&self, id: BlockId, generation: Option<Generation>) -> Result<bool, StoreError>;

    /// What a block's file says without its data: reads the header page, and the rest of the label if that is long.
    ///
    /// # Errors
    /// `NotFound`; rot in what was read; `Io`.
    fn look(&self, id: BlockId) -> Result<BlockHead, StoreError>;

    /// The ids of all blocks, whatever their state, in order.
    ///
    /// # Errors
    /// `Vanished`; `Io`.
    fn ids(&self) -> Result<Vec<BlockId>, StoreError>;

    /// All blocks, in order of their ids; reads headers only. Blocks whose headers are rotten or cannot be read
    /// are listed separately, each with its error; they do not stop the listing of the others.
    ///
    /// # Errors
    /// Those of [`ids`](Self::ids).
    fn list(&self) -> Result<Listing, StoreError>;

    /// Reads a whole block and checks every unit and the digest.
    ///
    /// # Errors
    /// `NotFound`; the first rot found.
    fn verify(&self, id: BlockId) -> Result<BlockMeta, StoreError>;

    /// Reads a whole block, and once more if it is damaged, so that a temporary disk error does no harm. If it is damaged
    /// then, it is set aside as rotten: the file that was read, and no other that has come to its place meanwhile.
    ///
    /// # Errors
    /// [`Bad`].
    fn check(&self, id: BlockId, at_unix: u64) -> Result<BlockMeta, Bad>;

    /// Sets a block aside: moves it into the quarantine, where calls on blocks no longer find it. Returns the name
    /// under which it is kept until it is taken back or purged. Durable on return. `at_unix`: seconds since 1970.
    ///
    /// If a crash interrupts this call, the block may be in both places, but never in neither.
    ///
    /// # Errors
    /// `NotFound`; `Vanished`; `Io`.
    fn set_aside(&self, id: BlockId, reason: Reason, at_unix: u64) -> Result<String, StoreError>;

    /// All blocks that are set aside, oldest first; reads headers only.
    ///
    /// # Errors
    /// `Vanished`; `Io` if they cannot be listed.
    fn aside(&self) -> Result<Vec<QuarantinedFile>, StoreError>;

    /// Moves a block that was set aside back to its place. If a block is there already, it is read whole, and if
    /// it is damaged it is set aside as rotten. Durable on return.
    ///
    /// # Errors
    /// `Invalid` for a name that no block set aside has; rot in its header; `Busy` while a sound block is at its
    /// place; `Vanished`; `Io`. On error nothing has changed, except that the damaged block may have been set
    /// aside.
    fn take_back(&self, name: &str) -> Result<BlockMeta, StoreError>;

    /// Deletes for good what was set aside before `before_unix` (seconds since 1970); returns the number of
    /// blocks. Durable on return.
    ///
    /// # Errors
    /// `Vanished`; `Io`; some may be gone then.
    fn purge(&self, before_unix: u64) -> Result<u64, StoreError>;

    /// Deletes for good one block that was set aside. Durable on return.
    ///
    /// # Errors
    /// `Invalid` for a name that no block set aside has; `Vanished`; `Io`.
    fn purge_one(&self, name: &str) -> Result<(), StoreError>;

    /// Deletes all blocks; returns how many there were. What is set aside stays: only [`purge`](Self::purge)
    /// deletes that. The log stays too. Writes that were begun before cannot be finished.
    ///
    /// # Errors
    /// `Vanished`; `Io`; some blocks may be gone then.
    fn wipe(&self) -> Result<u64, StoreError>;

    /// Checks that the store's folder is still the one that was opened: not unmounted, removed or replaced by
    /// another. Costs two calls of the operating system and reads no block.
    ///
    /// # Errors
    /// `Vanished`; `Io` if the operating system cannot tell.
    fn check_root(&self) -> Result<(), StoreError>;

    /// Where the block is or would be, for people to look at.
    fn path(&self, id: BlockId) -> PathBuf;

    /// How full the store is.
    ///
    /// # Errors
    /// `Vanished`; `Io`.
    fn usage(&self) -> Result<Usage, StoreError>;
}

/// What a check found wrong with a block.
#[derive(Debug)]
pub struct Bad {
    /// What is wrong. If it is neither damage nor `NotFound`, it says nothing about the block.
    pub error: StoreError,
    /// Why a damaged block could not be set aside, if so.
    pub stays: Option<Box<StoreError>>,
}

impl From<StoreError> for Bad {
    fn from(error: StoreError) -> Self {
        Self { error, stays: None }
    }
}

/// One block, open for reading. Memory: 4 bytes a unit, the label, and at most one unit of data.
pub trait BlockRead: Send {
    /// What the block says of itself.
    fn meta(&self) -> &BlockMeta;

    /// The label that came with the block; empty if it was written without one.
    fn label(&self) -> &[u8];

    /// Fills `buf` from `offset`. Every unit touched is read whole and verified; units that `buf`
    /// covers are read straight into it, and the last one it covers in part is remembered, so that
    /// reading on in small steps reads each unit once.
    ///
    /// # Errors
    /// `Invalid` past the end; rot. The contents of `buf` must not be used then.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError>;

    /// As [`read_at`](Self::read_at), if that needs no wait for the medium: for whole units that the system has in
    /// memory. `false` if it may have to wait; the contents of `buf` must not be used then.
    ///
    /// # Errors
    /// As `read_at`.
    fn read_now(&mut self, _offset: u64, _buf: &mut [u8]) -> Result<bool, StoreError> {
        Ok(false)
    }

    /// Bytes of data read from the medium so far, whole units all of them.
    fn bytes_read(&self) -> u64;
}

/// One block being written. Dropped without [`finish`](Self::finish), it leaves nothing behind.
///
/// Memory: 5 bytes a unit, 12 for each piece written out of order until the gap beside it is filled,
/// and at most one buffer of 256 KiB where small pieces come in a row.
pub trait BlockWrite: Send {
    /// Takes `data` for `offset`. Pieces may come in any order and of any size, each byte once.
    ///
    /// # Errors
    /// `Invalid` past the end or over bytes already written; `Full`; `Io`. The writer is of no
    /// further use after `Full` or `Io`.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError>;

    /// Bytes taken so far.
    fn written(&self) -> u64;

    /// Makes the block durable, then visible: checks that all bytes are there and that the digest
    /// is `expect` if given, syncs, replaces what was there under this id.
    ///
    /// A block that was there is replaced only if it has the same generation and digest, and the same label
    /// or none, or if its header is damaged. Any other is set aside as
    /// [`Reason::Displaced`](crate::Reason::Displaced). Only headers are read for that; if a disk error hides
    /// what is there, it stays and this call fails.
    ///
    /// # Errors
    /// `WrongLength`, `DigestMismatch`, `Stale` if a later generation has come meanwhile, `Busy` if the store was
    /// wiped meanwhile, `Vanished`, `Full`, `Io`: nothing visible has changed. One exception: if the last step
    /// (the sync of the directory) fails, the new block is visible but might not survive a power failure.
    fn finish(self: Box<Self>, expect: Option<Digest>) -> Result<BlockMeta, StoreError>;
}
