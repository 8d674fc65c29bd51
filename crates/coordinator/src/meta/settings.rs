//! The settings that operators change while the cluster runs. Stores of older programs, which did not know them, have the
//! defaults.

use kintsu_wire::message::Settings;
use redb::ReadableTable;

use super::{Meta, Snapshot, record, tables};
use crate::engine::agreement::Agreement;
use crate::error::Result;

/// The key of the row.
const SETTINGS: &str = "settings";
/// The key of the row that says which stripes were compared with their codes.
const AGREEMENT: &str = "agreement";
/// The key of the row that is there while a rebalance is ordered.
const REBALANCE: &str = "rebalance";

impl Meta {
    /// Changes the settings; returns them.
    ///
    /// # Errors
    /// Those of `change`, and nothing is recorded then; the disk fails.
    pub fn change_settings(&self, change: impl FnOnce(Settings) -> Result<Settings>) -> Result<Settings> {
        self.write(|t| {
            let row = t.settings.get(SETTINGS)?.map(|row| unpack(row.value()));
            let settings = change(row.transpose()?.unwrap_or_default())?;
            t.settings.insert(SETTINGS, record::pack(&settings).as_slice())?;
            Ok(settings)
        })
    }
}

impl Meta {
    /// Records how far the stripes were compared with their codes, and what was found.
    ///
    /// # Errors
    /// The disk fails.
    pub fn record_agreement(&self, agreement: &Agreement) -> Result<()> {
        self.write(|t| {
            t.settings.insert(AGREEMENT, record::pack(agreement).as_slice())?;
            Ok(())
        })
    }

    /// A rebalance is ordered, or has ended.
    ///
    /// # Errors
    /// The disk fails.
    pub fn order_rebalance(&self, ordered: bool) -> Result<()> {
        self.write(|t| {
            match ordered {
                true => t.settings.insert(REBALANCE, [].as_slice())?,
                false => t.settings.remove(REBALANCE)?,
            };
            Ok(())
        })
    }
}

impl Snapshot {
    /// How far the stripes were compared with their codes, and what was found.
    ///
    /// # Errors
    /// The disk fails.
    pub fn agreement(&self) -> Result<Agreement> {
        let table = self.txn.open_table(tables::SETTINGS)?;
        let row = table.get(AGREEMENT)?;
        Ok(row.map(|row| record::unpack("agreement", row.value())).transpose()?.unwrap_or_default())
    }

    /// Whether a rebalance is ordered.
    ///
    /// # Errors
    /// The disk fails.
    pub fn rebalance_ordered(&self) -> Result<bool> {
        Ok(self.txn.open_table(tables::SETTINGS)?.get(REBALANCE)?.is_some())
    }

    /// The settings.
    ///
    /// # Errors
    /// The disk fails.
    pub fn settings(&self) -> Result<Settings> {
        let table = self.txn.open_table(tables::SETTINGS)?;
        let row = table.get(SETTINGS)?;
        Ok(row.map(|row| unpack(row.value())).transpose()?.unwrap_or_default())
    }
}

fn unpack(row: &[u8]) -> Result<Settings> {
    record::unpack("settings", row)
}
