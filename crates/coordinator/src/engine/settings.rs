//! Which settings a cluster may have.

use std::num::NonZeroU64;

use kintsu_wire::message::{ChangeSetting, Settings};

/// The floor of repairs and their ceiling, which would be below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FloorAboveCeiling {
    /// In bytes a second.
    pub floor: NonZeroU64,
    /// In bytes a second.
    pub ceiling: NonZeroU64,
}

/// The settings after a change.
///
/// # Errors
/// Where the floor would be above the ceiling.
pub fn changed(mut settings: Settings, change: ChangeSetting) -> Result<Settings, FloorAboveCeiling> {
    match change {
        ChangeSetting::RepairMaxRate(rate) => settings.repair_max_rate = rate,
        ChangeSetting::RepairMinRate(rate) => settings.repair_min_rate = rate,
        ChangeSetting::RepairTarget(percent) => settings.repair_target = percent,
        ChangeSetting::RepairHold(percent) => settings.repair_hold = percent,
    }
    let (least, most) = (settings.repair_min_rate, settings.repair_max_rate);
    match most.filter(|most| *most < least) {
        None => Ok(settings),
        Some(ceiling) => Err(FloorAboveCeiling { floor: least, ceiling }),
    }
}
