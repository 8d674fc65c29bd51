//! Blocks on one node's disk: written to a temporary file and renamed when whole, a checksum per unit of 64 KiB or
//! less, every read verified.
//!
//! Beside them a log of updates that have not reached their blocks yet ([`AppendLog`]).
//!
//! [`BlockStore`] is the contract, [`FileStore`] keeps it with one file per block in a directory
//! (byte layout in `docs/format.md`, "Block file"). All calls block; callers keep them off their
//! async threads.
//!
//! What this crate is not: it knows no codes, no cluster and no other node, and it never repairs. It finds rot and
//! reports it; repair is the task of the crates above.
//!
//! Invariants:
//! - a block is either absent, or whole with the generation it was finished with; never torn;
//! - no byte leaves [`BlockRead::read_at`] whose unit did not match its checksum;
//! - when [`BlockWrite::finish`] returns, the block survives a power failure;
//! - no block that could be read is overwritten by other content: it is set aside ([`BlockStore::set_aside`]);
//! - nothing is written into a folder that is not the one the store was opened on.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod aside;
mod block;
#[cfg(any(test, feature = "contract"))]
pub mod contract;
mod crc;
mod disk;
mod error;
mod file;
mod format;
mod log;
mod meta;
mod scrub;
#[cfg(any(test, feature = "sim"))]
pub mod simdisk;
mod sums;

pub use aside::{QuarantinedFile, Reason};
pub use block::{Bad, BlockRead, BlockStore, BlockWrite};
pub use error::StoreError;
pub use file::{FileStore, block_path};
pub use format::file_bytes;
pub use log::{AppendLog, Break, Data, FrozenDelta, Logged, MOST_RECORD_BYTES, Pending, Role, Scope, Update};
pub use meta::{
    BlockHead, BlockMeta, DeviceCounters, Digest, Generation, LEAST_UNIT_BYTES, Listing, MOST_LABEL_BYTES,
    UNIT_BYTES, Usage,
};
pub use scrub::{ScrubReport, scrub};
pub use sums::UnitSums;
