//! Next versions: a block that is updated gets a whole new file beside it, which takes its place when it is asked for.
//!
//! The store does not decide which version counts. Whoever asks for a generation knows that it was decided
//! (`docs/adr/0008-updates-in-place.md`). Until then the block is what it was.

use kintsu_dag::BlockId;

use super::names::{self, Kind};
use super::quarantine::no_links;
use super::read;
use super::shared::{Shared, State};
use crate::{BlockMeta, Generation, StoreError};

impl Shared {
    /// Puts the next version of this generation in the block's place, durably, unless it is there already. The version
    /// that was there is deleted: its successor was decided.
    pub(super) fn promote(&self, id: BlockId, generation: Generation) -> Result<BlockMeta, StoreError> {
        self.check_root()?;
        self.promote_locked(&mut self.state(), id, generation)
    }

    /// The same for who has locked the state.
    pub(super) fn promote_locked(
        &self,
        state: &mut State,
        id: BlockId,
        generation: Generation,
    ) -> Result<BlockMeta, StoreError> {
        let [place, beside] = [Kind::Block, Kind::Next].map(|kind| self.file(id, kind));
        let there = read::header(&*self.disk, &place, id);
        if let Ok(meta) = &there
            && meta.generation >= generation
        {
            if meta.generation > generation {
                return Err(StoreError::Stale { id, expected: meta.generation, got: generation });
            }
            // An earlier call may have failed before this.
            self.sync_shelf(names::shelf(id))?;
            return Ok(*meta);
        }
        let next = match read::header(&*self.disk, &beside, id) {
            Ok(next) if next.generation == generation => next,
            // What is in the block's place says more than what is not beside it.
            Ok(_) | Err(StoreError::NotFound { .. }) => {
                let meta = there?;
                return Err(StoreError::Stale { id, expected: generation, got: meta.generation });
            }
            Err(error) => return Err(error),
        };
        let bytes = self.disk.open(&beside).and_then(|file| file.len()).unwrap_or(0);
        // It keeps its name beside the block until the other one is durable: the two changes of a rename may reach the
        // medium apart.
        let second = self.file(id, Kind::Promoted);
        self.remove(&second)?;
        let (from, both) = match self.disk.link(&beside, &second) {
            Ok(()) => (&second, true),
            Err(error) if no_links(&error) => (&beside, false),
            Err(source) => return Err(self.io_error(&second, 0, source)),
        };
        self.disk.rename(from, &place).map_err(|source| StoreError::io(&place, source))?;
        self.counts().inventory.insert(id, bytes);
        self.sync_shelf(names::shelf(id))?;
        if both {
            state.loosen(names::shelf(id));
            self.remove(&beside)?;
        }
        Ok(next)
    }

    /// After a block was not found in this generation: whether its next version has it, and is in its place now.
    pub(super) fn promotes(
        &self,
        behind: &StoreError,
        id: BlockId,
        generation: Generation,
    ) -> Result<bool, StoreError> {
        let older = match behind {
            StoreError::Stale { got, .. } => *got < generation,
            StoreError::NotFound { .. } => true,
            _ => false,
        };
        let beside = self.file(id, Kind::Next);
        let fits = |meta: BlockMeta| meta.generation == generation;
        if !older || !read::header(&*self.disk, &beside, id).is_ok_and(fits) {
            return Ok(false);
        }
        self.promote(id, generation).map(|_| true)
    }

    /// The next versions there are, in order of their ids; damaged ones are left out, because they cannot be promoted.
    pub(super) fn next_versions(&self) -> Result<Vec<BlockMeta>, StoreError> {
        self.check_root()?;
        let mut found = Vec::new();
        self.each_file(|id, kind, _| {
            if kind == Kind::Next {
                let header = |kind| read::header(&*self.disk, &self.file(id, kind), id).ok();
                // One that a crash left beside the block in its own place is none.
                let there = header(Kind::Block).map(|meta| meta.generation);
                found.extend(header(kind).filter(|next| there.is_none_or(|there| next.generation > there)));
            }
            Ok(())
        })?;
        found.sort_by_key(|meta| meta.id);
        Ok(found)
    }

    /// Deletes a next version of this generation, durably; false if there is none.
    pub(super) fn discard_next(&self, id: BlockId, generation: Generation) -> Result<bool, StoreError> {
        self.check_root()?;
        let beside = self.file(id, Kind::Next);
        let mut state = self.state();
        let there = read::header(&*self.disk, &beside, id).is_ok_and(|meta| meta.generation == generation);
        if there {
            state.loosen(names::shelf(id));
            self.remove(&beside)?;
        }
        // An earlier call may have failed before this.
        self.settle(&mut state, names::shelf(id))?;
        Ok(there)
    }
}
