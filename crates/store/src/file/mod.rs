//! A store of one file per block in a directory.
//!
//! A block is written to a `.tmp` file, synced, renamed over its name, and the directory synced.
//! Everything that changes what a name stands for happens under one mutex: renames, links, removals, header reads,
//! and the sync of a directory when a block is set aside. Data is read, written and synced outside of the mutex.
//! What [`Usage`] counts has another one, under which the disk is never asked for anything.
//!
//! Opening a store removes what a crash left and syncs its directories, so that whatever is visible
//! afterwards is durable.

mod names;
mod next;
mod quarantine;
mod read;
mod shared;
mod write;

#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod next_tests;
#[cfg(test)]
mod quarantine_tests;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kintsu_dag::BlockId;

use crate::disk::{Disk, RealDisk};
use crate::{
    AppendLog, Bad, BlockHead, BlockMeta, BlockRead, BlockStore, BlockWrite, Break, Generation, Listing,
    QuarantinedFile, Reason, StoreError, Usage,
};
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
    /// The log, once it was asked for.
    log: Mutex<Option<Arc<AppendLog>>>,
}

impl FileStore {
    /// Opens the store in `dir` (created if absent) for this process alone.
    ///
    /// Cost: lists all blocks and syncs their directories (at most 256).
    ///
    /// # Errors
    /// `Locked` if the store is open already, here or in another process; `Io`.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        let root = std::path::absolute(dir).map_err(|source| StoreError::io(dir, source))?;
        Self::open_on(Arc::new(RealDisk), root)
    }

    /// Opens the store in `root` of a simulated disk.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    #[cfg(feature = "sim")]
    pub fn open_simulated(disk: &crate::simdisk::SimDisk, root: &Path) -> Result<Self, StoreError> {
        Self::open_on(Arc::new(disk.clone()), root.to_path_buf())
    }

    fn open_on(disk: Arc<dyn Disk>, root: PathBuf) -> Result<Self, StoreError> {
        let store = Self { log: Mutex::default(), shared: Arc::new(Shared::open(disk, root)?) };
        store.recover()?;
        Ok(store)
    }

    /// Removes unfinished writes, counts the blocks, makes what is visible durable. Moves what earlier versions
    /// set aside beside the blocks into the quarantine.
    fn recover(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        let mut state = shared.state();
        shared.count_aside(&mut state)?;
        shared.each_file(|id, kind, len| {
            match kind {
                Kind::Temp | Kind::Promoted => shared.remove(&shared.file(id, kind))?,
                Kind::Block => drop(self.shared.counts().inventory.insert(id, len)),
                // Whoever asks for it says whether it was decided.
                Kind::Next => {}
                Kind::Bad => {
                    let now = shared.disk.now_unix();
                    shared.move_aside(&mut state, &shared.file(id, Kind::Bad), id, Reason::Rotten, now)?;
                }
            }
            Ok(())
        })?;
        for shelf in shared.shelves()? {
            shared.sync_shelf(shelf)?;
            state.shelves.insert(shelf);
        }
        Ok(())
    }

    /// Moves a block into the quarantine; returns its name there. If the file that was judged is given, by device and inode,
    /// only that one is moved: `None` if another one is in its place, or none.
    fn move_away(
        &self,
        id: BlockId,
        reason: Reason,
        at_unix: u64,
        judged: Option<(u64, u64)>,
    ) -> Result<Option<String>, StoreError> {
        let (shared, path) = (&self.shared, self.path(id));
        shared.check_root()?;
        let (mut state, shelf) = (shared.state(), names::shelf(id));
        if let Some(judged) = judged {
            match shared.disk.identity(&path) {
                Ok(there) if there == judged => {}
                Ok(_) => return Ok(None),
                Err(gone) if gone.kind() == ErrorKind::NotFound => return Ok(None),
                Err(source) => return Err(StoreError::io(&path, source)),
            }
        }
        // An earlier call may have removed it and failed after that.
        shared.settle(&mut state, shelf)?;
        if reason == Reason::Unknown {
            shared.next_aside(&mut state, id, at_unix)?;
        }
        let (name, removal) = shared.move_aside(&mut state, &path, id, reason, at_unix)?;
        shared.counts().inventory.remove(&id);
        drop(state);
        shared.sync_removal(shelf, removal)?;
        Ok(Some(name))
    }

    /// Opens a block, of this generation if one is given.
    fn reader(&self, id: BlockId, generation: Option<Generation>) -> Result<FileRead, StoreError> {
        let outcome = FileRead::open(&*self.shared.disk, self.path(id), id, generation);
        if let Err(StoreError::NotFound { .. }) = outcome {
            self.shared.check_root()?;
            self.shared.counts().inventory.remove(&id);
        }
        outcome
    }
}

impl BlockStore for FileStore {
    fn open(&self, id: BlockId, generation: Generation) -> Result<Box<dyn BlockRead>, StoreError> {
        match self.reader(id, Some(generation)) {
            Err(behind) if self.shared.promotes(&behind, id, generation)? => {
                Ok(Box::new(self.reader(id, Some(generation))?))
            }
            read => Ok(Box::new(read?)),
        }
    }

    fn create_next(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        let (shared, becomes) = (&self.shared, Kind::Next);
        Ok(Box::new(FileWrite::create(shared, id, generation, len, unit_bytes, label, becomes)?))
    }

    fn log(&self) -> Result<Arc<AppendLog>, StoreError> {
        self.shared.check_root()?;
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = &*log {
            return Ok(open.clone());
        }
        let dir = names::log(&self.shared.root);
        let opened = Arc::new(AppendLog::open_on(self.shared.disk.clone(), dir)?);
        *log = Some(opened.clone());
        Ok(opened)
    }

    fn breaks(&self) -> Result<Break, StoreError> {
        let dir = names::log(&self.shared.root);
        match AppendLog::is_begun(&*self.shared.disk, &dir)? {
            false => Ok(Break::default()),
            true => Ok(self.log()?.breaks()),
        }
    }

    fn promote(&self, id: BlockId, generation: Generation) -> Result<BlockMeta, StoreError> {
        self.shared.promote(id, generation)
    }

    fn next_versions(&self) -> Result<Vec<BlockMeta>, StoreError> {
        self.shared.next_versions()
    }

    fn discard_next(&self, id: BlockId, generation: Generation) -> Result<bool, StoreError> {
        self.shared.discard_next(id, generation)
    }

    fn create(
        &self,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
    ) -> Result<Box<dyn BlockWrite>, StoreError> {
        let (shared, becomes) = (&self.shared, Kind::Block);
        Ok(Box::new(FileWrite::create(shared, id, generation, len, unit_bytes, label, becomes)?))
    }

    fn delete(&self, id: BlockId, generation: Option<Generation>) -> Result<bool, StoreError> {
        let path = self.path(id);
        self.shared.check_root()?;
        let (beside, shelf) = (self.shared.file(id, Kind::Next), names::shelf(id));
        let mut state = self.shared.state();
        // An earlier call may have removed it and failed after that.
        self.shared.settle(&mut state, shelf)?;
        if let Some(wanted) = generation {
            let next = match read::header(&*self.shared.disk, &beside, id) {
                Ok(next) => Some(next.generation),
                Err(error) if error.is_damage() || matches!(error, StoreError::NotFound { .. }) => None,
                Err(error) => return Err(error),
            };
            match read::header(&*self.shared.disk, &path, id) {
                Ok(meta) if meta.generation == wanted => {}
                // Its successor was decided, and has not come to its place. There first: if this fails, the next try must not
                // find the older one alone.
                Ok(meta) if meta.generation < wanted && next == Some(wanted) => {
                    self.shared.promote_locked(&mut state, id, wanted)?;
                }
                Ok(_) => return Ok(false),
                Err(StoreError::NotFound { .. }) if next.is_some() => {}
                Err(StoreError::NotFound { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        let remove = |path: &Path| match self.shared.disk.remove(path) {
            Ok(()) => Ok(true),
            Err(gone) if gone.kind() == ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StoreError::io(path, source)),
        };
        // First, and durably, what nobody would ever delete without its block.
        if remove(&beside)? {
            state.loosen(shelf);
        }
        self.shared.settle(&mut state, shelf)?;
        let existed = remove(&path)?;
        self.shared.counts().inventory.remove(&id);
        if existed {
            let removal = state.loosen(shelf);
            drop(state);
            self.shared.sync_removal(shelf, removal)?;
        }
        Ok(existed)
    }

    fn look(&self, id: BlockId) -> Result<BlockHead, StoreError> {
        let outcome = read::held(&*self.shared.disk, &self.path(id), id);
        if let Err(StoreError::NotFound { .. }) = outcome {
            self.shared.check_root()?;
        }
        outcome
    }

    fn ids(&self) -> Result<Vec<BlockId>, StoreError> {
        self.shared.check_root()?;
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

    fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        for id in self.ids()? {
            match read::header(&*self.shared.disk, &self.path(id), id) {
                Ok(meta) => listing.blocks.push(meta),
                Err(StoreError::NotFound { .. }) => {}
                Err(error) => listing.damaged.push((id, error)),
            }
        }
        // If the folder has vanished meanwhile, a block that was not found proves nothing.
        self.shared.check_root()?;
        Ok(listing)
    }

    fn verify(&self, id: BlockId) -> Result<BlockMeta, StoreError> {
        self.reader(id, None)?.verify()
    }

    fn check(&self, id: BlockId, at_unix: u64) -> Result<BlockMeta, Bad> {
        let path = self.path(id);
        loop {
            match self.verify(id) {
                Err(error) if error.is_damage() => {}
                looked => return Ok(looked?),
            }
            // Open as long as it is judged, so that no other file gets its identity.
            let _file = self.shared.disk.open(&path);
            let judged = match self.shared.disk.identity(&path) {
                Err(gone) if gone.kind() == ErrorKind::NotFound => continue,
                judged => judged.map_err(|source| StoreError::io(&path, source))?,
            };
            let error = match self.verify(id) {
                Err(error) if error.is_damage() => error,
                looked => return Ok(looked?),
            };
            match self.move_away(id, Reason::Rotten, at_unix, Some(judged)) {
                Ok(Some(_)) => return Err(Bad { error, stays: None }),
                // Another one is there, or none.
                Ok(None) => {}
                Err(stays) => return Err(Bad { error, stays: Some(Box::new(stays)) }),
            }
        }
    }

    fn set_aside(&self, id: BlockId, reason: Reason, at_unix: u64) -> Result<String, StoreError> {
        self.move_away(id, reason, at_unix, None)?.ok_or(StoreError::NotFound { id })
    }

    fn aside(&self) -> Result<Vec<QuarantinedFile>, StoreError> {
        self.shared.aside()
    }

    fn take_back(&self, name: &str) -> Result<BlockMeta, StoreError> {
        let name = quarantine::parse(name)?;
        let id = name.id;
        if let Err(Bad { stays: Some(error), .. }) = self.check(id, self.shared.disk.now_unix()) {
            return Err(*error);
        }
        self.shared.take_back(name)
    }

    fn purge(&self, before_unix: u64) -> Result<u64, StoreError> {
        self.shared.purge(|name| name.at_unix < before_unix)
    }

    fn purge_one(&self, name: &str) -> Result<(), StoreError> {
        let wanted = quarantine::parse(name)?;
        match self.shared.purge(|name| *name == wanted)? {
            0 => Err(quarantine::no_such(name)),
            _ => Ok(()),
        }
    }

    fn wipe(&self) -> Result<u64, StoreError> {
        let shared = &self.shared;
        shared.check_root()?;
        let mut state = shared.state();
        state.wipes += 1;
        let mut blocks = 0;
        shared.each_file(|id, kind, _| {
            if matches!(kind, Kind::Block | Kind::Next | Kind::Promoted) {
                state.loosen(names::shelf(id));
                shared.remove(&shared.file(id, kind))?;
            }
            if kind == Kind::Block {
                self.shared.counts().inventory.remove(&id);
                blocks += 1;
            }
            Ok(())
        })?;
        self.shared.counts().inventory.clear();
        for shelf in shared.shelves()? {
            shared.settle(&mut state, shelf)?;
        }
        Ok(blocks)
    }

    fn check_root(&self) -> Result<(), StoreError> {
        self.shared.check_root()
    }

    fn path(&self, id: BlockId) -> PathBuf {
        self.shared.file(id, Kind::Block)
    }

    fn usage(&self) -> Result<Usage, StoreError> {
        let root = &self.shared.root;
        self.shared.check_root()?;
        let (capacity_bytes, free_bytes) =
            self.shared.disk.space(root).map_err(|source| StoreError::io(root, source))?;
        let device = self.shared.disk.device(root);
        let counts = self.shared.counts();
        Ok(Usage {
            blocks: counts.inventory.len() as u64,
            bytes: counts.inventory.values().sum(),
            aside_blocks: counts.aside.len() as u64,
            aside_bytes: counts.aside.values().sum(),
            capacity_bytes,
            free_bytes,
            device,
        })
    }
}
