//! Objects that are gone for good, in the order of their removal. Agents are told their ids, so that a rebuild
//! from blocks does not bring the objects back.

use super::write::Tables;
use super::{Snapshot, tables};
use crate::error::Result;

/// Most removed objects that are kept; older ones are forgotten.
const KEPT: u64 = 200_000;

/// Adds the id of an object that was removed or replaced, or of a put that was given up.
pub fn bury(t: &mut Tables<'_>, object: u64) -> Result<()> {
    let number = t.next(tables::COUNT_GRAVE, 1)?;
    t.graves.insert(number, object)?;
    if let Some(old) = number.checked_sub(KEPT) {
        t.graves.remove(old)?;
    }
    Ok(())
}

impl Snapshot {
    /// At most `limit` removed objects with numbers above `after`, each with its number.
    ///
    /// # Errors
    /// The disk fails.
    pub fn graves(&self, after: u64, limit: usize) -> Result<Vec<(u64, u64)>> {
        let table = self.txn.open_table(tables::GRAVES)?;
        let mut out = Vec::new();
        for row in table.range(after.saturating_add(1)..)?.take(limit) {
            let (number, object) = row?;
            out.push((number.value(), object.value()));
        }
        Ok(out)
    }
}
