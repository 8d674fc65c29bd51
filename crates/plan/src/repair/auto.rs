//! What suits the stripes and links at hand: many repairs are planned together by the scheduler of this name
//! ([`crate::many`]). One repair by itself goes along the best trees, a chain where no rates are known, or by the code's
//! own graph where blocks have sub-blocks.

use kintsu_dag::BlockIndex;

use super::method::MethodRow;
use super::shape::{Rebuild, Rebuilt};
use super::{Method, by_shape, conventional, optimal, pipeline, weighted};
use crate::{PlanError, Repair, RepairPlan, StripeView, Topology};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "auto",
    about: "What is fastest for the stripes and links at hand: stars, chains and trees, planned together",
    shape,
    plan: Some(plan),
    together: true,
    scheduler: Some("auto"),
    without_rates: None,
    ..pipeline::METHOD
};

fn shape(rebuild: &Rebuild<'_>) -> Result<Rebuilt, PlanError> {
    if rebuild.view.code.w() > 1 {
        return (conventional::METHOD.shape)(rebuild);
    }
    let known = !rebuild.topology.rates.is_empty();
    let shape = if known { weighted::METHOD.shape } else { pipeline::METHOD.shape };
    shape(rebuild)
}

/// Plans one repair by itself.
pub(super) fn plan(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    preference: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    let method = match view.code.w() > 1 {
        true => Method::Conventional,
        false if topology.rates.is_empty() => Method::Pipeline,
        false => return optimal::plan(view, topology, repair, preference),
    };
    by_shape(view, topology, &Repair { method, ..repair.clone() }, preference)
}
