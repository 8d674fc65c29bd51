//! Deletes the blocks that the coordinator names, one call after the other, and reports the result for each block.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kintsu_store::{BlockStore, Generation, Reason, StoreError};
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{BlockRef, DeleteBlocks, Deleted};

use crate::rot;
use crate::tombstones::Tombstones;

/// Locked during each call.
#[derive(Debug, Default)]
pub struct Deletes(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The highest call number so far.
    last: u64,
    /// How many lists of the blocks are on their way to the coordinator.
    lists: usize,
}

/// While it exists, nothing is deleted.
#[derive(Debug)]
pub struct Held(Arc<Deletes>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.state().lists -= 1;
    }
}

/// Why nothing was deleted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A later call came first: a block that was garbage for this call may be needed by now.
    #[error("call {got} to delete blocks comes after call {last}: nothing was deleted")]
    Late {
        /// The number of this call.
        got: u64,
        /// The highest number so far.
        last: u64,
    },
    /// The list of the blocks is on its way to the coordinator, who could give a deleted block its home here.
    #[error("this agent is telling the coordinator which blocks it has: nothing was deleted")]
    Listing,
    /// The folder is not the one that was opened: a block missing there was not deleted.
    #[error("the disk is not there, so nothing was deleted: {0}")]
    Gone(String),
    /// The ids of removed objects cannot be made durable.
    #[error("removed objects cannot be recorded, so nothing was deleted: {0}")]
    Tombstones(String),
}

impl Deletes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The blocks are about to be listed: waits for the end of a running call, and refuses others until the list has
    /// arrived. Blocking.
    pub fn hold(self: Arc<Self>) -> Held {
        self.state().lists += 1;
        Held(self)
    }

    /// Remembers the removed objects, then deletes the blocks. Blocking.
    ///
    /// # Errors
    /// [`Refused`]; no block was touched then.
    pub fn run(
        &self,
        store: &dyn BlockStore,
        tombstones: &Tombstones,
        request: DeleteBlocks,
    ) -> Result<Deleted, Refused> {
        let mut state = self.state();
        if state.lists > 0 {
            return Err(Refused::Listing);
        }
        let last = state.last;
        if request.number != 0 && request.number <= last && !is_back(FixedFault::DeletesUnfenced) {
            return Err(Refused::Late { got: request.number, last });
        }
        state.last = request.number.max(last);
        store.check_root().map_err(|e| Refused::Gone(e.to_string()))?;
        tombstones.add(&request.removed).map_err(|e| Refused::Tombstones(e.to_string()))?;
        let mut deleted = Deleted::default();
        for block in request.blocks {
            match delete(store, block) {
                Ok(()) => deleted.gone.push(block),
                Err(error) => {
                    tracing::warn!("cannot delete {}: {error}", block.id);
                    deleted.failed.push((block, error.to_string()));
                }
            }
        }
        Ok(deleted)
    }
}

/// Success means that the block of this generation is no longer there.
fn delete(store: &dyn BlockStore, block: BlockRef) -> Result<(), StoreError> {
    let delete = || store.delete(block.id, Some(Generation(block.generation))).map(|_| ());
    match delete() {
        // Its generation cannot be read; the block cannot be used either.
        Err(bad) if bad.is_damage() => match store.set_aside(block.id, Reason::Rotten, rot::now_unix()) {
            // Its next version goes too.
            Ok(_) | Err(StoreError::NotFound { .. }) => delete(),
            Err(error) => Err(error),
        },
        deleted => deleted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockId, BlockIndex, StripeId};
    use kintsu_store::{FileStore, UNIT_BYTES, block_path};

    fn block(stripe: u64) -> BlockRef {
        BlockRef { id: BlockId { stripe: StripeId(stripe), index: BlockIndex(0) }, generation: 1 }
    }

    fn call(number: u64, blocks: Vec<BlockRef>) -> DeleteBlocks {
        DeleteBlocks { blocks, removed: vec![number], number }
    }

    #[test]
    fn only_what_is_gone_is_confirmed_and_a_late_call_deletes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        let tombstones = Tombstones::open(dir.path()).unwrap();
        for stripe in 1..=3 {
            let mut write = store.create(block(stripe).id, Generation(1), 4, UNIT_BYTES as u32, &[]).unwrap();
            write.write_at(0, b"data").unwrap();
            write.finish(None).unwrap();
        }
        // A folder in place of its file: the block cannot be read, removed or set aside.
        let stuck = block_path(dir.path(), block(2).id);
        std::fs::remove_file(&stuck).unwrap();
        std::fs::create_dir(&stuck).unwrap();
        let deletes = Deletes::default();
        let stale = BlockRef { generation: 7, ..block(3) };
        let done =
            deletes.run(&store, &tombstones, call(5, vec![block(1), block(2), stale, block(9)])).unwrap();
        assert_eq!(done.gone, [block(1), stale, block(9)]);
        assert_eq!(done.failed.iter().map(|f| f.0).collect::<Vec<_>>(), [block(2)]);
        assert!(block_path(dir.path(), block(3).id).exists(), "another generation stays");
        let late = deletes.run(&store, &tombstones, call(4, vec![block(3)])).unwrap_err();
        assert_eq!(late, Refused::Late { got: 4, last: 5 });
        assert!(block_path(dir.path(), block(3).id).exists());
        assert_eq!(tombstones.ranges(), [(5, 5)]);
        deletes.run(&store, &tombstones, call(6, vec![block(3)])).unwrap();
        assert!(!block_path(dir.path(), block(3).id).exists());
    }

    #[test]
    fn nothing_is_deleted_while_a_list_is_on_its_way() {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        let tombstones = Tombstones::open(dir.path()).unwrap();
        let write = store.create(block(1).id, Generation(1), 0, UNIT_BYTES as u32, &[]).unwrap();
        write.finish(None).unwrap();
        let deletes = Arc::new(Deletes::default());
        let (first, second) = (deletes.clone().hold(), deletes.clone().hold());
        drop(first);
        let refused = deletes.run(&store, &tombstones, call(1, vec![block(1)])).unwrap_err();
        assert_eq!(refused, Refused::Listing);
        assert!(block_path(dir.path(), block(1).id).exists());
        drop(second);
        let done = deletes.run(&store, &tombstones, call(1, vec![block(1)])).unwrap();
        assert_eq!(done.gone, [block(1)], "the refused call did not count");
    }
}
