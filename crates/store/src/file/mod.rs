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
mod shared;
mod write;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kintsu_dag::BlockId;

use crate::disk::{Disk, RealDisk};
use crate::{BlockMeta, BlockRead, BlockStore, BlockWrite, Generation, StoreError, Usage};
use names::Kind;
use read::FileRead;
use shared::Shared;
use write::FileWrite;

/// Where a [`FileStore`] in `dir` keeps the file of a block, for people and tests.
pub fn block_path(dir: &Path, id: BlockId) -> PathBuf {
    names::file(dir, id, Kind::Block)
}

/// A [`BlockStore`] in a directory of a local file system; locked while it or a writer lives.
pub struct FileStore {
    shared: Arc<Shared>,
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
        let store = Self { shared: Arc::new(Shared::open(disk, root)?) };
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
        unit_bytes: u32,
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        Ok(Box::new(FileWrite::create(&self.shared, id, generation, len, unit_bytes)?))
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
            }
            if kind == Kind::Block {
                state.inventory.remove(&id);
                blocks += 1;
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
