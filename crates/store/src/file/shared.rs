//! What a store and its writers share: the directory, its lock, and who is writing what.

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kintsu_dag::BlockId;

use super::names::{self, Kind};
use crate::StoreError;
use crate::disk::Disk;

/// What the store and its writers have in common.
pub(super) struct Shared {
    /// The store's directory.
    pub(super) root: PathBuf,
    /// The file system that it is on.
    pub(super) disk: Arc<dyn Disk>,
    /// Device and inode of the directory when it was opened. The open lock file in it keeps the inode from being
    /// reused.
    identity: (u64, u64),
    state: Mutex<State>,
    counts: Mutex<Counts>,
    _lock: Box<dyn Send + Sync>,
}

#[derive(Default)]
pub(super) struct State {
    /// Blocks being written.
    pub(super) writing: HashSet<BlockId>,
    /// Directories that exist and whose names are durable.
    pub(super) shelves: HashSet<u8>,
    /// Directories in which something was removed, maybe not durably, and which removal was the last.
    loose: HashMap<u8, u64>,
    /// How many removals there were.
    removals: u64,
    /// The number of the next block that is set aside: higher than any that is there.
    pub(super) next_aside: u64,
    /// How often the store was wiped.
    pub(super) wipes: u64,
}

/// What [`Usage`](crate::Usage) counts; the directory is the truth. Never locked during an operation of the disk: heartbeats
/// tell it, and one that waits for a bad sector makes the node seem dead.
#[derive(Default)]
pub(super) struct Counts {
    /// Visible blocks and the bytes of their files.
    pub(super) inventory: HashMap<BlockId, u64>,
    /// What is set aside, by name, and the bytes of its file.
    pub(super) aside: HashMap<String, u64>,
}

impl State {
    /// Something is removed from a directory: until that is durable, whoever finds it gone must not take that for durable.
    /// Returns the number of the removal.
    pub(super) fn loosen(&mut self, shelf: u8) -> u64 {
        self.removals += 1;
        self.loose.insert(shelf, self.removals);
        self.removals
    }
}

impl Shared {
    /// Creates the directory if absent, and locks it for this process alone.
    pub(super) fn open(disk: Arc<dyn Disk>, root: PathBuf) -> Result<Self, StoreError> {
        make_dir(&*disk, &root)?;
        let lock = disk.lock(&names::lock(&root)).map_err(|source| StoreError::io(&root, source))?;
        let lock = lock.ok_or_else(|| StoreError::Locked { dir: root.clone() })?;
        make_dir(&*disk, &names::blocks(&root))?;
        make_dir(&*disk, &names::quarantine(&root))?;
        sync_above(&*disk, &root)?;
        for dir in [&root, &names::blocks(&root)] {
            disk.sync_dir(dir).map_err(|source| StoreError::io(dir, source))?;
        }
        let identity = disk.identity(&root).map_err(|source| StoreError::io(&root, source))?;
        let (state, counts) = (Mutex::default(), Mutex::default());
        Ok(Self { root, disk, identity, state, counts, _lock: lock })
    }

    /// The state, for as long as the guard lives.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts, for a moment.
    pub(super) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the directory is still the one that was opened, with blocks in it.
    pub(super) fn check_root(&self) -> Result<(), StoreError> {
        let missing =
            |error: &io::Error| matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory);
        let vanished = |detail: String| Err(StoreError::Vanished { dir: self.root.clone(), detail });
        for (dir, expected) in [(&self.root, Some(self.identity)), (&names::blocks(&self.root), None)] {
            match (self.disk.identity(dir), expected) {
                (Err(error), _) if missing(&error) => {
                    return vanished(format!("{} is gone; was its disk unmounted?", dir.display()));
                }
                (Err(source), _) => return Err(StoreError::io(dir, source)),
                (Ok(got), Some(expected)) if got != expected => {
                    let name = |(device, inode)| format!("inode {inode} of device {device}");
                    let (expected, got) = (name(expected), name(got));
                    return vanished(format!(
                        "another folder is in its place; was its disk unmounted? expected {expected}, got {got}"
                    ));
                }
                (Ok(_), _) => {}
            }
        }
        Ok(())
    }

    /// The path of one of a block's files.
    pub(super) fn file(&self, id: BlockId, kind: Kind) -> PathBuf {
        names::file(&self.root, id, kind)
    }

    /// The directories of blocks there are.
    pub(super) fn shelves(&self) -> Result<Vec<u8>, StoreError> {
        let dir = names::blocks(&self.root);
        let entries = self.disk.list(&dir).map_err(|source| StoreError::io(&dir, source))?;
        Ok(entries.iter().filter(|entry| entry.is_dir).filter_map(|e| names::parse_shelf(&e.name)).collect())
    }

    /// Visits every file that is ours, with its length.
    pub(super) fn each_file(
        &self,
        mut visit: impl FnMut(BlockId, Kind, u64) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        for shelf in self.shelves()? {
            let dir = names::shelf_dir(&self.root, shelf);
            for entry in self.disk.list(&dir).map_err(|source| StoreError::io(&dir, source))? {
                if let Some((id, kind)) = names::parse(shelf, &entry.name).filter(|_| !entry.is_dir) {
                    visit(id, kind, entry.len)?;
                }
            }
        }
        Ok(())
    }

    /// Makes a directory of blocks, durably, if it is not known to be there.
    pub(super) fn make_shelf(&self, shelf: u8) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.shelves.contains(&shelf) {
            return Ok(());
        }
        let dir = names::shelf_dir(&self.root, shelf);
        match self.disk.create_dir(&dir) {
            // Never creates parent directories: if they are gone, the store is gone.
            Err(source) if source.kind() != ErrorKind::AlreadyExists => {
                return Err(self.io_error(&dir, 0, source));
            }
            _ => {}
        }
        let blocks = names::blocks(&self.root);
        self.disk.sync_dir(&blocks).map_err(|source| self.io_error(&blocks, 0, source))?;
        state.shelves.insert(shelf);
        Ok(())
    }

    /// Makes the names in a directory of blocks durable.
    pub(super) fn sync_shelf(&self, shelf: u8) -> Result<(), StoreError> {
        let dir = names::shelf_dir(&self.root, shelf);
        self.disk.sync_dir(&dir).map_err(|source| self.io_error(&dir, 0, source))
    }

    /// Makes removals in a directory durable, if some may not be.
    pub(super) fn settle(&self, state: &mut State, shelf: u8) -> Result<(), StoreError> {
        if state.loose.contains_key(&shelf) {
            self.sync_shelf(shelf)?;
            state.loose.remove(&shelf);
        }
        Ok(())
    }

    /// Makes a removal durable. The state must not be locked: others go on meanwhile.
    pub(super) fn sync_removal(&self, shelf: u8, removal: u64) -> Result<(), StoreError> {
        self.sync_shelf(shelf)?;
        // A later one may have come too late for this sync.
        self.state().loose.retain(|at, last| (*at, *last) != (shelf, removal));
        Ok(())
    }

    /// Removes a file; no error if it is not there.
    pub(super) fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.disk.remove(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io(path, error)),
            _ => Ok(()),
        }
    }

    /// Bytes free on the medium.
    pub(super) fn free(&self) -> Result<u64, StoreError> {
        let (_, free) = self.disk.space(&self.root).map_err(|source| StoreError::io(&self.root, source))?;
        Ok(free)
    }

    /// The operating system's error while `needed` bytes were to be written at `path`.
    pub(super) fn io_error(&self, path: &Path, needed: u64, source: io::Error) -> StoreError {
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                StoreError::Full { path: path.to_path_buf(), needed, free: self.free().unwrap_or(0) }
            }
            _ => StoreError::io(path, source),
        }
    }
}

/// Creates a directory and its parents; no error if it is there.
fn make_dir(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    match (disk.create_dir(path).map_err(|error| (error.kind(), error)), path.parent()) {
        (Err((ErrorKind::NotFound, _)), Some(parent)) => {
            make_dir(disk, parent)?;
            disk.create_dir(path).map_err(|source| StoreError::io(path, source))
        }
        (Ok(()) | Err((ErrorKind::AlreadyExists, _)), _) => Ok(()),
        (Err((_, source)), _) => Err(StoreError::io(path, source)),
    }
}

/// Makes the names of the store's own directories durable, up to the root of the file system: any
/// of them may have been made by an earlier start that was cut off before it could sync.
fn sync_above(disk: &dyn Disk, root: &Path) -> Result<(), StoreError> {
    for dir in root.ancestors().skip(1) {
        match disk.sync_dir(dir) {
            // A directory that we may not open, or that cannot be synced, was not made by us.
            Err(error)
                if !matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied
                        | ErrorKind::InvalidInput
                        | ErrorKind::ReadOnlyFilesystem
                        | ErrorKind::Unsupported
                ) =>
            {
                return Err(StoreError::io(dir, error));
            }
            _ => {}
        }
    }
    Ok(())
}
