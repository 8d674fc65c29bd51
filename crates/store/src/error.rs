//! What a block store refuses, with what was expected and what was there.

use std::path::{Path, PathBuf};

use kintsu_dag::BlockId;
use rustix::io::Errno;

use crate::{Digest, Generation};

/// Error codes of Linux for an unreadable place on a medium, or a file system that is damaged there.
const MEDIUM_ERRORS: [i32; 6] = [
    Errno::IO.raw_os_error(),
    Errno::NODATA.raw_os_error(),
    Errno::ILSEQ.raw_os_error(),
    Errno::REMOTEIO.raw_os_error(),
    Errno::BADMSG.raw_os_error(),
    Errno::UCLEAN.raw_os_error(),
];

/// Why a call to a store failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such block.
    #[error("block {id} is not in this store")]
    NotFound {
        /// The block asked for.
        id: BlockId,
    },
    /// The block has another generation.
    #[error("block {id} is of another generation: expected {expected}, got {got}")]
    Stale {
        /// The block asked for.
        id: BlockId,
        /// The generation asked for, or for a write the one that is there already.
        expected: Generation,
        /// The generation that is there, or for a write the older one asked for.
        got: Generation,
    },
    /// Bytes do not match their checksum, or make no sense.
    #[error("block {id} is corrupt: {what}{}: expected {expected}, got {got}", in_unit(.unit))]
    Corrupt {
        /// The block.
        id: BlockId,
        /// Which part of its file.
        what: &'static str,
        /// Which unit, if the part is one.
        unit: Option<u64>,
        /// The value recorded, or what the field should hold.
        expected: String,
        /// The value found.
        got: String,
    },
    /// The block's file is shorter than it should be.
    #[error("block {id} is truncated: expected a file of {expected} bytes, got {got}")]
    Truncated {
        /// The block.
        id: BlockId,
        /// Bytes the file should have (at least).
        expected: u64,
        /// Bytes it has.
        got: u64,
    },
    /// More bytes than there should be, or a write finished before all were there.
    #[error("block {id} has the wrong length: expected {expected} bytes, got {got}")]
    WrongLength {
        /// The block.
        id: BlockId,
        /// The right number of bytes.
        expected: u64,
        /// The number that came.
        got: u64,
    },
    /// What was written is not what was to be written.
    #[error("block {id} has the wrong digest: expected {expected}, got {got}")]
    DigestMismatch {
        /// The block.
        id: BlockId,
        /// The digest recorded elsewhere.
        expected: Digest,
        /// The digest of the bytes written.
        got: Digest,
    },
    /// The disk is full.
    #[error("disk full at {}: {needed} bytes needed, {free} free", .path.display())]
    Full {
        /// A path on the full medium.
        path: PathBuf,
        /// Bytes that were needed.
        needed: u64,
        /// Bytes that were free.
        free: u64,
    },
    /// Somebody else is writing this block, or the store changed under a write.
    #[error("block {id} is busy: {reason}")]
    Busy {
        /// The block.
        id: BlockId,
        /// Why it is busy.
        reason: &'static str,
    },
    /// Another process has this store open.
    #[error("{} is locked: is another kintsu running on it?", .dir.display())]
    Locked {
        /// The store's directory.
        dir: PathBuf,
    },
    /// The folder is not the one that was opened: unmounted, removed or replaced.
    #[error("{} is no longer the folder of this store: {detail}", .dir.display())]
    Vanished {
        /// The store's directory.
        dir: PathBuf,
        /// What is there instead.
        detail: String,
    },
    /// A call that makes no sense.
    #[error("invalid {what}: expected {expected}, got {got}")]
    Invalid {
        /// Which argument.
        what: &'static str,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// The operating system failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },
}

fn in_unit(unit: &Option<u64>) -> String {
    unit.map_or_else(String::new, |unit| format!(" of unit {unit}"))
}

impl StoreError {
    /// Whether the block itself is damaged, so that it should be set aside and repaired.
    ///
    /// False for refused calls, for a full disk, and for errors that may pass.
    pub fn is_rot(&self) -> bool {
        matches!(self, Self::Corrupt { .. } | Self::Truncated { .. } | Self::WrongLength { .. })
    }

    /// Whether the block cannot be read from this disk: rot, or a medium or file system that fails at this place.
    ///
    /// False for errors of the operating system that say nothing about the block, such as too many open files.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Io { source, .. } => {
                source.raw_os_error().is_some_and(|code| MEDIUM_ERRORS.contains(&code))
            }
            other => other.is_rot(),
        }
    }

    /// An operating system's error at `path`.
    pub(crate) fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_path_buf(), source }
    }
}
