//! What links carry, as somebody told the cluster. A store from before there were rates has none.

use kintsu_plan::Rates;

use super::{Meta, Snapshot, record, tables};
use crate::error::Result;

/// The name of the row.
const RATES: &str = "rates";

impl Meta {
    /// Records what links carry, in place of what was recorded before.
    ///
    /// # Errors
    /// The disk fails.
    pub fn set_rates(&self, rates: &Rates) -> Result<()> {
        self.write(|t| {
            t.settings.insert(RATES, record::pack(rates).as_slice())?;
            Ok(())
        })
    }
}

impl Snapshot {
    /// What links carry, as it was recorded last.
    ///
    /// # Errors
    /// The disk fails.
    pub fn rates(&self) -> Result<Rates> {
        let table = self.txn.open_table(tables::SETTINGS)?;
        let row = table.get(RATES)?;
        row.map_or(Ok(Rates::default()), |row| record::unpack("rates", row.value()))
    }
}
