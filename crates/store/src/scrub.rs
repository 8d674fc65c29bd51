//! Scrubbing: reading every block, to find rot before the block is needed.

use kintsu_dag::BlockId;

use crate::{BlockMeta, BlockStore, StoreError};

/// What a scrub found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Blocks read and found sound.
    pub sound: u64,
    /// Bytes of data in them.
    pub bytes: u64,
    /// Blocks that are damaged ([`StoreError::is_rot`]), in order.
    pub rotten: Vec<BlockId>,
    /// Blocks that could not be judged (the disk refused to read them), in order.
    pub unread: Vec<BlockId>,
    /// Whether every block was visited; false if `on_each` said to stop.
    pub complete: bool,
}

/// Verifies every block of a store, one after the other, in order of their ids.
///
/// `on_each` is called for each block and returns whether to go on. It may pause to give way to other work, and
/// may quarantine or delete this block. A block that is deleted meanwhile is skipped.
///
/// # Errors
/// Only if the store cannot list its blocks; what is wrong with single blocks is in the report.
pub fn scrub(
    store: &dyn BlockStore,
    on_each: &mut dyn FnMut(BlockId, Result<&BlockMeta, &StoreError>) -> bool,
) -> Result<ScrubReport, StoreError> {
    let mut report = ScrubReport::default();
    for id in store.ids()? {
        let outcome = store.verify(id);
        match &outcome {
            Ok(meta) => {
                report.sound += 1;
                report.bytes += meta.len;
            }
            Err(StoreError::NotFound { .. }) => continue,
            Err(error) if error.is_rot() => report.rotten.push(id),
            Err(_) => report.unread.push(id),
        }
        if !on_each(id, outcome.as_ref()) {
            return Ok(report);
        }
    }
    report.complete = true;
    Ok(report)
}
