//! A store of one file per block in a directory.
//!
//! A block is written to a `.tmp` file, synced, renamed over its name, and the directory synced.
//! Everything that changes what a name stands for happens under one mutex, and only renames,
//! removals and header reads do: data is read, written and synced outside of it.
//!
//! Opening a store removes what a crash left and syncs its directories, so that whatever is visible
//! afterwards is durable.

mod names;
mod read;
mod write;

use std::collections::{HashMap, HashSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kintsu_dag::BlockId;

use crate::disk::{Disk, RealDisk};
use crate::{BlockMeta, BlockRead, BlockStore, BlockWrite, Generation, StoreError, Usage};
use names::Kind;
use read::FileRead;
use write::FileWrite;

/// A [`BlockStore`] in a directory of a local file system; locked while it or a writer lives.
pub struct FileStore {
    shared: Arc<Shared>,
}

/// What the store and its writers have in common.
struct Shared {
    root: PathBuf,
    disk: Arc<dyn Disk>,
    state: Mutex<State>,
    _lock: Box<dyn Send + Sync>,
}

#[derive(Default)]
struct State {
    /// Blocks being written.
    writing: HashSet<BlockId>,
    /// Visible blocks and the bytes of their files, for [`Usage`] only: the directory is the truth.
    inventory: HashMap<BlockId, u64>,
    /// Directories that exist and whose names are durable.
    shelves: HashSet<u8>,
    /// How often the store was wiped.
    wipes: u64,
}

impl FileStore {
    /// Opens the store in `dir`, which is made if absent, for this process alone.
    ///
    /// Cost: lists all blocks and syncs their directories (at most 256).
    ///
    /// # Errors
    /// `Locked` if the store is open already, here or in another process; `Io`.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(dir).map_err(|source| StoreError::io(dir, source))?;
        Self::open_on(Arc::new(RealDisk), root)
    }

    fn open_on(disk: Arc<dyn Disk>, root: PathBuf) -> Result<Self, StoreError> {
        make_dir(&*disk, &root)?;
        let lock = disk.lock(&names::lock(&root)).map_err(|source| StoreError::io(&root, source))?;
        let lock = lock.ok_or_else(|| StoreError::Locked { dir: root.clone() })?;
        make_dir(&*disk, &names::blocks(&root))?;
        for dir in [&root, &names::blocks(&root)] {
            disk.sync_dir(dir).map_err(|source| StoreError::io(dir, source))?;
        }
        let store = Self { shared: Arc::new(Shared { root, disk, state: Mutex::default(), _lock: lock }) };
        store.recover()?;
        Ok(store)
    }

    /// Removes unfinished writes, takes stock of blocks, makes what is visible durable.
    fn recover(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut state = shared.state();
        shared.each_file(|id, kind, len| {
            match kind {
                Kind::Temp => shared.remove(&shared.file(id, Kind::Temp))?,
                Kind::Block => drop(state.inventory.insert(id, len)),
                Kind::Bad => {}
            }
            Ok(())
        })?;
        for shelf in shared.shelves()? {
            shared.sync_shelf(shelf)?;
            state.shelves.insert(shelf);
        }
        Ok(())
    }

    /// Opens a block, of this generation if one is given.
    fn reader(&self, id: BlockId, generation: Option<Generation>) -> Result<FileRead, StoreError> {
        let outcome = FileRead::open(&*self.shared.disk, self.path(id), id, generation);
        if let Err(StoreError::NotFound { .. }) = outcome {
            self.shared.state().inventory.remove(&id);
        }
        outcome
    }
}

impl BlockStore for FileStore {
    fn open(&self, id: BlockId, generation: Generation) -> Result<Box<dyn BlockRead>, StoreError> {
        Ok(Box::new(self.reader(id, Some(generation))?))
    }

    fn create(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        Ok(Box::new(FileWrite::create(&self.shared, id, generation, len)?))
    }

    fn delete(&self, id: BlockId, generation: Option<Generation>) -> Result<bool, StoreError> {
        let path = self.path(id);
        let mut state = self.shared.state();
        if let Some(wanted) = generation {
            match read::header(&*self.shared.disk, &path, id) {
                Ok(meta) if meta.generation == wanted => {}
                Ok(_) | Err(StoreError::NotFound { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let existed = match self.shared.disk.remove(&path) {
            Ok(()) => true,
            Err(gone) if gone.kind() == ErrorKind::NotFound => false,
            Err(source) => return Err(StoreError::io(&path, source)),
        };
        state.inventory.remove(&id);
        drop(state);
        if existed {
            self.shared.sync_shelf(names::shelf(id))?;
        }
        Ok(existed)
    }

    fn ids(&self) -> Result<Vec<BlockId>, StoreError> {
        let mut ids = Vec::new();
        self.shared.each_file(|id, kind, _| {
            if kind == Kind::Block {
                ids.push(id);
            }
            Ok(())
        })?;
        ids.sort_unstable();
        Ok(ids)
    }

    fn list(&self) -> Result<Vec<BlockMeta>, StoreError> {
        let mut metas = Vec::new();
        for id in self.ids()? {
            match read::header(&*self.shared.disk, &self.path(id), id) {
                Ok(meta) => metas.push(meta),
                Err(error @ StoreError::Io { .. }) => return Err(error),
                Err(_unusable_or_gone) => {}
            }
        }
        Ok(metas)
    }

    fn verify(&self, id: BlockId) -> Result<BlockMeta, StoreError> {
        self.reader(id, None)?.verify()
    }

    fn quarantine(&self, id: BlockId) -> Result<(), StoreError> {
        let path = self.path(id);
        let mut state = self.shared.state();
        self.shared.disk.rename(&path, &self.shared.file(id, Kind::Bad)).map_err(|source| {
            if source.kind() == ErrorKind::NotFound {
                StoreError::NotFound { id }
            } else {
                StoreError::io(&path, source)
            }
        })?;
        state.inventory.remove(&id);
        drop(state);
        self.shared.sync_shelf(names::shelf(id))
    }

    fn wipe(&self) -> Result<u64, StoreError> {
        let shared = &self.shared;
        let mut state = shared.state();
        state.wipes += 1;
        let mut blocks = 0;
        shared.each_file(|id, kind, _| {
            if kind != Kind::Temp {
                shared.remove(&shared.file(id, kind))?;
                state.inventory.remove(&id);
                blocks += u64::from(kind == Kind::Block);
            }
            Ok(())
        })?;
        state.inventory.clear();
        for shelf in shared.shelves()? {
            shared.sync_shelf(shelf)?;
        }
        Ok(blocks)
    }

    fn path(&self, id: BlockId) -> PathBuf {
        self.shared.file(id, Kind::Block)
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        let root = &self.shared.root;
        let (capacity_bytes, free_bytes) =
            self.shared.disk.space(root).map_err(|source| StoreError::io(root, source))?;
        let state = self.shared.state();
        let bytes = state.inventory.values().sum();
        Ok(Usage { blocks: state.inventory.len() as u64, bytes, capacity_bytes, free_bytes })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, id: BlockId, kind: Kind) -> PathBuf {
        names::file(&self.root, id, kind)
    }

    /// The directories of blocks there are.
    fn shelves(&self) -> Result<Vec<u8>, StoreError> {
        let dir = names::blocks(&self.root);
        let entries = self.disk.list(&dir).map_err(|source| StoreError::io(&dir, source))?;
        Ok(entries.iter().filter(|entry| entry.is_dir).filter_map(|e| names::parse_shelf(&e.name)).collect())
    }

    /// Visits every file that is ours, with its length.
    fn each_file(
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

    /// Makes the directory for a block, durably, if it is not known to be there.
    fn make_shelf(&self, shelf: u8) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.shelves.contains(&shelf) {
            return Ok(());
        }
        make_dir(&*self.disk, &names::shelf_dir(&self.root, shelf))?;
        let blocks = names::blocks(&self.root);
        self.disk.sync_dir(&blocks).map_err(|source| self.io_error(&blocks, 0, source))?;
        state.shelves.insert(shelf);
        Ok(())
    }

    fn sync_shelf(&self, shelf: u8) -> Result<(), StoreError> {
        let dir = names::shelf_dir(&self.root, shelf);
        self.disk.sync_dir(&dir).map_err(|source| self.io_error(&dir, 0, source))
    }

    /// Removes a file; it is well if it is not there.
    fn remove(&self, path: &Path) -> Result<(), StoreError> {
        match self.disk.remove(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(StoreError::io(path, error)),
            _ => Ok(()),
        }
    }

    /// Bytes free on the medium.
    fn free(&self) -> Result<u64, StoreError> {
        let (_, free) = self.disk.space(&self.root).map_err(|source| StoreError::io(&self.root, source))?;
        Ok(free)
    }

    /// The operating system's error while `needed` bytes were to be written at `path`.
    fn io_error(&self, path: &Path, needed: u64, source: io::Error) -> StoreError {
        match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                StoreError::Full { path: path.to_path_buf(), needed, free: self.free().unwrap_or(0) }
            }
            _ => StoreError::io(path, source),
        }
    }
}

/// Makes a directory, and those above it, durably; it is well if it is there.
fn make_dir(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    let mut outcome = disk.create_dir(path);
    if let (Err(ErrorKind::NotFound), Some(parent)) =
        (outcome.as_ref().map_err(io::Error::kind), path.parent())
    {
        make_dir(disk, parent)?;
        outcome = disk.create_dir(path);
    }
    match outcome {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        Err(source) => return Err(StoreError::io(path, source)),
        Ok(()) => {}
    }
    path.parent()
        .map_or(Ok(()), |parent| disk.sync_dir(parent).map_err(|source| StoreError::io(parent, source)))
}
