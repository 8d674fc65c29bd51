//! Repair pipelining: a chain (ECPipe, section 3.2; for several lost blocks section 4.4) that enters and leaves each
//! rack once, and as few racks as possible (section 4.2, Algorithm 1).

use kintsu_dag::chain;

use super::method::{MethodRow, Stragglers};
use super::shape::{Order, Rebuild, Rebuilt};
use crate::{PlanError, RunMode};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "pipeline",
    about: "Partial sums along a chain (repair pipelining), through as few racks as possible",
    order: Order::NearRacks,
    shape,
    run_mode: RunMode::Streamed,
    helpers_receive: true,
    without_rates: None,
    plan: None,
    together: false,
    scheduler: None,
    stragglers: Stragglers::Avoid,
};

pub(super) fn shape(rebuild: &Rebuild<'_>) -> Result<Rebuilt, PlanError> {
    rebuild.over_helpers(chain, None)
}
