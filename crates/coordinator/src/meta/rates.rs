//! The rates of links, as somebody told the cluster. Stores of older programs, which did not know rates, have
//! none.

use kintsu_plan::Rates;

use super::{Meta, Snapshot, record, tables};
use crate::error::Result;

/// The key of the row.
const RATES: &str = "rates";

impl Meta {
    /// Records the rates of links, which replace all earlier ones.
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
    /// The rates of links that were recorded last.
    ///
    /// # Errors
    /// The disk fails.
    pub fn rates(&self) -> Result<Rates> {
        let table = self.txn.open_table(tables::SETTINGS)?;
        let row = table.get(RATES)?;
        row.map_or(Ok(Rates::default()), |row| record::unpack("rates", row.value()))
    }
}
