//! Tombstones: the ids of removed objects, in the order of their removal. Agents are told them, so that a rebuild
//! from blocks does not bring the objects back.

use super::write::Tables;
use super::{Snapshot, tables};
use crate::error::Result;

/// Most tombstones that are kept; older ones are forgotten.
const KEPT: u64 = 200_000;

/// Adds the id of an object that was removed or replaced, or of a put that was given up. Returns the number of the tombstone.
pub fn add(t: &mut Tables<'_>, object: u64) -> Result<u64> {
    let number = t.next(tables::COUNT_TOMBSTONE, 1)?;
    t.tombstones.insert(number, object)?;
    if let Some(old) = number.checked_sub(KEPT) {
        t.tombstones.remove(old)?;
    }
    Ok(number)
}

impl Snapshot {
    /// At most `limit` tombstones with numbers above `after`: number and object.
    ///
    /// # Errors
    /// The disk fails.
    pub fn tombstones(&self, after: u64, limit: usize) -> Result<Vec<(u64, u64)>> {
        let table = self.txn.open_table(tables::TOMBSTONES)?;
        let mut out = Vec::new();
        for row in table.range(after.saturating_add(1)..)?.take(limit) {
            let (number, object) = row?;
            out.push((number.value(), object.value()));
        }
        Ok(out)
    }
}
