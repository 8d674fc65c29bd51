//! The folder of blocks that were set aside: nothing in it is read as a block, all of it can come back.
//!
//! A file is moved in three steps: it gets its new name, the directory is synced, its old name is removed. So a
//! power failure at any moment leaves it at least one name. On file systems without hard links it is a plain
//! rename.

use std::io::{self, ErrorKind};
use std::path::Path;

use kintsu_dag::BlockId;
use rustix::io::Errno;

use super::names::{self, Kind};
use super::read;
use super::shared::{Shared, State};
use crate::aside::QuarantinedName;
use crate::{BlockHead, BlockMeta, QuarantinedFile, Reason, StoreError};

/// Parses the name of a block that was set aside, as a caller gave it.
pub(super) fn parse(name: &str) -> Result<QuarantinedName, StoreError> {
    QuarantinedName::parse(name).ok_or_else(|| no_such(name))
}

/// There is no such block in the quarantine.
pub(super) fn no_such(name: &str) -> StoreError {
    StoreError::Invalid {
        what: "name of a block set aside",
        expected: "one of those listed in the quarantine".into(),
        got: name.into(),
    }
}

/// Whether this error means that the file system has no hard links, or refuses one for this file.
pub(super) fn no_links(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    [Errno::PERM, Errno::OPNOTSUPP, Errno::MLINK, Errno::NOSYS]
        .iter()
        .any(|no| code == Some(no.raw_os_error()))
}

impl Shared {
    /// Counts what is set aside; returns it.
    pub(super) fn count_aside(&self, state: &mut State) -> Result<Vec<(QuarantinedName, u64)>, StoreError> {
        let found = self.each_aside()?;
        self.counts().aside = found.iter().map(|(name, len)| (name.to_string(), *len)).collect();
        let highest = found.iter().map(|(name, _)| name.number + 1).max().unwrap_or(0);
        state.next_aside = state.next_aside.max(highest);
        Ok(found)
    }

    /// The files in the quarantine that are ours, and their lengths, oldest first.
    fn each_aside(&self) -> Result<Vec<(QuarantinedName, u64)>, StoreError> {
        let dir = names::quarantine(&self.root);
        let entries = match self.disk.list(&dir) {
            // The folder is created when the first block is set aside.
            Err(none) if none.kind() == ErrorKind::NotFound => Vec::new(),
            entries => entries.map_err(|source| StoreError::io(&dir, source))?,
        };
        let ours = entries.into_iter().filter(|entry| !entry.is_dir);
        let mut found: Vec<_> =
            ours.filter_map(|entry| Some((QuarantinedName::parse(&entry.name)?, entry.len))).collect();
        found.sort_unstable_by_key(|(name, _)| (name.at_unix, *name));
        Ok(found)
    }

    /// What is set aside, oldest first.
    pub(super) fn aside(&self) -> Result<Vec<QuarantinedFile>, StoreError> {
        self.check_root()?;
        let found = {
            let mut state = self.state();
            self.count_aside(&mut state)?
        };
        let dir = names::quarantine(&self.root);
        let known = found.into_iter().filter_map(|(name, bytes)| {
            let QuarantinedName { id, reason, at_unix, .. } = name;
            let name = name.to_string();
            let meta = match read::header(&*self.disk, &dir.join(&name), id) {
                Ok(meta) => Some(meta),
                Err(StoreError::NotFound { .. }) => return None,
                Err(_unusable) => None,
            };
            Some(QuarantinedFile { name, id, reason, at_unix, bytes, meta })
        });
        Ok(known.collect())
    }

    /// Moves a file of block `id` into the quarantine; returns its name there. On return the new name is durable;
    /// the removal of the old name is not yet: its number is returned too.
    pub(super) fn move_aside(
        &self,
        state: &mut State,
        path: &Path,
        id: BlockId,
        reason: Reason,
        at_unix: u64,
    ) -> Result<(String, u64), StoreError> {
        let generation = match read::header(&*self.disk, path, id) {
            Ok(meta) => Some(meta.generation),
            Err(gone @ StoreError::NotFound { .. }) => return Err(gone),
            Err(_) => None,
        };
        let name = QuarantinedName { id, generation, reason, at_unix, number: state.next_aside };
        self.put_aside(state, path, name)?;
        let removal = state.loosen(names::shelf(id));
        if let Err(error) = self.remove(path) {
            self.forget(&name.to_string());
            return Err(error);
        }
        Ok((name.to_string(), removal))
    }

    /// Sets the next version of an unknown block aside, durably before the block itself, which is what a repetition
    /// after a crash finds. One that a crash left beside the block in its own place is deleted.
    pub(super) fn next_aside(&self, state: &mut State, id: BlockId, at_unix: u64) -> Result<(), StoreError> {
        let [place, beside] = [Kind::Block, Kind::Next].map(|kind| self.file(id, kind));
        let header = |path| read::header(&*self.disk, path, id).ok();
        if let (Some(there), Some(next)) = (header(&place), header(&beside))
            && next.generation == there.generation
        {
            state.loosen(names::shelf(id));
            self.remove(&beside)?;
        } else {
            match self.move_aside(state, &beside, id, Reason::Unknown, at_unix) {
                Err(StoreError::NotFound { .. }) => {}
                moved => drop(moved?),
            }
        }
        self.settle(state, names::shelf(id))
    }

    /// Frees the name of a block that is about to be published: a file that has this name is set aside, unless it
    /// is the same block or its header is damaged.
    ///
    /// # Errors
    /// `Stale` if what is there is later; `Invalid` if it is of a version that this software does not know; errors
    /// of the disk, also those that hide what is there.
    pub(super) fn make_way(&self, state: &mut State, new: &BlockHead) -> Result<(), StoreError> {
        let id = new.meta.id;
        let path = self.file(id, Kind::Block);
        let BlockHead { meta: there, label } = match read::held(&*self.disk, &path, id) {
            Err(StoreError::NotFound { .. }) => return Ok(()),
            Err(error) if error.is_damage() => return Ok(()),
            held => held?,
        };
        if there.generation > new.meta.generation {
            return Err(StoreError::Stale { id, expected: there.generation, got: new.meta.generation });
        }
        let says_more = !label.is_empty() && label != new.label;
        if (there.generation, there.digest) == (new.meta.generation, new.meta.digest) && !says_more {
            return Ok(());
        }
        let (generation, reason) = (Some(there.generation), Reason::Displaced);
        let at_unix = self.disk.now_unix();
        self.put_aside(
            state,
            &path,
            QuarantinedName { id, generation, reason, at_unix, number: state.next_aside },
        )
    }

    /// Gives a file a name in the quarantine, durably. It keeps its old name too, unless the file system has no
    /// hard links.
    fn put_aside(&self, state: &mut State, path: &Path, name: QuarantinedName) -> Result<(), StoreError> {
        let dir = names::quarantine(&self.root);
        let failed = |source| self.io_error(&dir, 0, source);
        match self.disk.create_dir(&dir) {
            Ok(()) => self.disk.sync_dir(&self.root).map_err(failed)?,
            Err(there) if there.kind() == ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed(source)),
        }
        let bytes = self.disk.open(path).and_then(|file| file.len()).unwrap_or(0);
        let to = dir.join(name.to_string());
        let two_names = self.link(path, &to).map_err(failed)?;
        if !two_names {
            state.loosen(names::shelf(name.id));
        }
        state.next_aside = name.number + 1;
        self.counts().aside.insert(name.to_string(), bytes);
        self.disk.sync_dir(&dir).map_err(|source| {
            if two_names {
                self.forget(&name.to_string());
            }
            failed(source)
        })
    }

    /// Undoes [`put_aside`](Self::put_aside) of a file that still has its old name.
    fn forget(&self, name: &str) {
        // A name that cannot be removed takes no space while the block exists, and is listed and purged like
        // others.
        let _ = self.disk.remove(&names::quarantine(&self.root).join(name));
        self.counts().aside.remove(name);
    }

    /// Moves a file of the quarantine back to its block's place, which must be free. Durable on return.
    pub(super) fn take_back(&self, name: QuarantinedName) -> Result<BlockMeta, StoreError> {
        let (id, name) = (name.id, name.to_string());
        let dir = names::quarantine(&self.root);
        let (from, to) = (dir.join(&name), self.file(id, Kind::Block));
        self.check_root()?;
        self.make_shelf(names::shelf(id))?;
        let state = self.state();
        let meta = match read::header(&*self.disk, &from, id) {
            Err(StoreError::NotFound { .. }) => return Err(no_such(&name)),
            header => header?,
        };
        let two_names = self.link(&from, &to).map_err(|source| match source.kind() {
            ErrorKind::AlreadyExists => StoreError::Busy { id, reason: "another block is at its place" },
            _ => self.io_error(&to, 0, source),
        })?;
        let placed = self.sync_shelf(names::shelf(id)).and_then(|()| self.remove(&from));
        if let Err(error) = placed {
            if two_names {
                // If this removal fails, the same whole block has both names.
                let _ = self.disk.remove(&to);
            }
            return Err(error);
        }
        let bytes = self.counts().aside.remove(&name).unwrap_or(0);
        self.counts().inventory.insert(id, bytes);
        drop(state);
        self.disk.sync_dir(&dir).map_err(|source| self.io_error(&dir, 0, source))?;
        Ok(meta)
    }

    /// Deletes those blocks set aside that `chosen` selects; returns how many. Durable on return.
    pub(super) fn purge(&self, chosen: impl Fn(&QuarantinedName) -> bool) -> Result<u64, StoreError> {
        self.check_root()?;
        let dir = names::quarantine(&self.root);
        let mut purged = 0;
        for (name, _) in self.each_aside()?.into_iter().filter(|(name, _)| chosen(name)) {
            let name = name.to_string();
            let path = dir.join(&name);
            let _state = self.state();
            match self.disk.remove(&path) {
                Ok(()) => purged += 1,
                // Taken back meanwhile.
                Err(gone) if gone.kind() == ErrorKind::NotFound => {}
                Err(source) => return Err(StoreError::io(&path, source)),
            }
            self.counts().aside.remove(&name);
        }
        if purged > 0 {
            self.disk.sync_dir(&dir).map_err(|source| self.io_error(&dir, 0, source))?;
        }
        Ok(purged)
    }

    /// Gives a file a second name, which must be free; on a file system without hard links, renames it instead.
    /// Returns whether the file has both names.
    fn link(&self, from: &Path, to: &Path) -> io::Result<bool> {
        match self.disk.link(from, to) {
            Err(error) if no_links(&error) => {
                if self.disk.open(to).is_ok() {
                    return Err(ErrorKind::AlreadyExists.into());
                }
                self.disk.rename(from, to).map(|()| false)
            }
            outcome => outcome.map(|()| true),
        }
    }
}
