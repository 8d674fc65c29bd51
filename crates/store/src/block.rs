//! The contract of a block store: what agents ask of a disk, or of whatever stands in for one.

use std::path::PathBuf;

use kintsu_dag::BlockId;

use crate::{BlockMeta, Digest, Generation, StoreError, Usage};

/// A keeper of blocks. All calls block; run them off the async threads.
///
/// At most one block is kept per [`BlockId`]; writing it again replaces it as a whole.
pub trait BlockStore: Send + Sync + 'static {
    /// Opens a block for reading; what the reader sees does not change if the block is replaced
    /// or deleted meanwhile. Reads the header and the unit checksums, not the data.
    ///
    /// # Errors
    /// `NotFound`; `Stale` if another generation is there; rot in what was read.
    fn open(&self, id: BlockId, generation: Generation) -> Result<Box<dyn BlockRead>, StoreError>;

    /// Begins a block of `len` bytes with a checksum for each `unit_bytes` (a power of two from
    /// [`LEAST_UNIT_BYTES`](crate::LEAST_UNIT_BYTES) to [`UNIT_BYTES`](crate::UNIT_BYTES)), invisible until
    /// [`BlockWrite::finish`]; takes its space now.
    ///
    /// # Errors
    /// `Full`; `Busy` while another writer has this id; `Stale` if a later generation is there (the
    /// same generation may be written again: that is how a rotten block is mended); `Invalid`.
    fn create(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
    ) -> Result<Box<dyn BlockWrite>, StoreError>;

    /// Deletes a block, of this generation only if one is given; false, and nothing changed, if
    /// there was no such block. Durable on return.
    ///
    /// # Errors
    /// Rot in the header when a generation is given.
    fn delete(&self, id: BlockId, generation: Option<Generation>) -> Result<bool, StoreError>;

    /// The names of all blocks, whatever their state, in order.
    ///
    /// # Errors
    /// `Io`.
    fn ids(&self) -> Result<Vec<BlockId>, StoreError>;

    /// All blocks whose headers are sound, in order of their ids; reads headers only. A block with
    /// a rotten header is left out: it cannot be used ([`scrub`](crate::scrub) reports it).
    ///
    /// # Errors
    /// `Io`.
    fn list(&self) -> Result<Vec<BlockMeta>, StoreError>;

    /// Reads a whole block and checks every unit and the digest.
    ///
    /// # Errors
    /// `NotFound`; the first rot found.
    fn verify(&self, id: BlockId) -> Result<BlockMeta, StoreError>;

    /// Sets a rotten block aside: no longer there for any other call, kept for inspection until
    /// the same block is set aside again or the store is wiped.
    ///
    /// # Errors
    /// `NotFound`.
    fn quarantine(&self, id: BlockId) -> Result<(), StoreError>;

    /// Deletes all blocks and those set aside; says how many blocks there were. Writes that were
    /// begun before cannot be finished.
    ///
    /// # Errors
    /// `Io`; some blocks may be gone then.
    fn wipe(&self) -> Result<u64, StoreError>;

    /// Where the block is or would be, for people to look at.
    fn path(&self, id: BlockId) -> PathBuf;

    /// How full the store is.
    ///
    /// # Errors
    /// `Io`.
    fn usage(&self) -> Result<Usage, StoreError>;
}

/// One block, open for reading. Memory: 4 bytes a unit and at most one unit of data.
pub trait BlockRead: Send {
    /// What the block says of itself.
    fn meta(&self) -> &BlockMeta;

    /// Fills `buf` from `offset`. Every unit touched is read whole and verified; units that `buf`
    /// covers are read straight into it, and the last one it covers in part is remembered, so that
    /// reading on in small steps reads each unit once.
    ///
    /// # Errors
    /// `Invalid` past the end; rot. The contents of `buf` must not be used then.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError>;

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
    /// # Errors
    /// `WrongLength`, `DigestMismatch`, `Full`, `Io`: nothing visible has changed. Only if the very
    /// last step fails, the sync of the directory, the new block is visible but might not survive a
    /// power failure.
    fn finish(self: Box<Self>, expect: Option<Digest>) -> Result<BlockMeta, StoreError>;
}
