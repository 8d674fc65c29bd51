//! What suits the stripes and links at hand: many repairs are planned together by the scheduler of this name
//! ([`crate::many`]). One repair by itself goes along the best trees, or a chain where no rates are known; where blocks have
//! sub-blocks, by whichever is done first of the code's own graph, a tree and a chain.

use kintsu_dag::BlockIndex;

use super::method::MethodRow;
use super::shape::{Rebuild, Rebuilt};
use super::{Method, by_shape, conventional, optimal, pipeline, weighted};
use crate::{Account, Plan, PlanError, Repair, RepairPlan, StripeView, Topology, predicted};

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

/// Codes whose repair has more terms in its flat form are always repaired by their own graph: to make a path of it
/// takes long.
const MOST_TERMS: usize = 1 << 15;

/// Plans one repair by itself.
pub(super) fn plan(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    preference: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    let by = |method: Method| by_shape(view, topology, &Repair { method, ..repair.clone() }, preference);
    if view.code.w() > 1 {
        return sub_blocks(view, topology, &by);
    }
    match topology.rates.is_empty() {
        true => by(Method::Pipeline),
        false => optimal::plan(view, topology, repair, preference),
    }
}

/// Of a star by the code's own graph, a tree and a path the one whose busiest link is done first; where two are alike, the
/// one that sends less. Without rates all links count as alike. A star sends least, a path loads each link least.
fn sub_blocks(
    view: &StripeView,
    topology: &Topology,
    by: &dyn Fn(Method) -> Result<RepairPlan, PlanError>,
) -> Result<RepairPlan, PlanError> {
    let block_bytes = view.layout.longest(view.code.k());
    let time = |plan: &Plan| -> Result<(f64, u64), PlanError> {
        let account = Account::of(plan, topology, block_bytes)?;
        let known = !topology.rates.is_empty();
        let busy =
            if known { predicted(plan, topology, block_bytes)? } else { account.max_link_bytes as f64 };
        Ok((busy, account.bytes_moved))
    };
    let mut best = by(Method::Conventional)?;
    if is_long(view, &best) {
        return Ok(best);
    }
    let mut least = time(&best.plan)?;
    for method in [Method::Ppr, Method::Pipeline] {
        let other = by(method)?;
        let cost = time(&other.plan)?;
        // A hundredth is not worth more bytes.
        if cost.0 < 0.99 * least.0 || (cost.0 <= least.0 && cost.1 < least.1) {
            (best, least) = (other, cost);
        }
    }
    Ok(best)
}

/// Whether it takes too long to make paths in the place of this star.
pub(crate) fn is_long(view: &StripeView, star: &RepairPlan) -> bool {
    let targets = star.requestors.len() * view.code.w();
    let symbols = star.plan.lanes.first().map_or(0, |lane| lane.placed.graph.leaves().len());
    targets.saturating_mul(symbols) > MOST_TERMS
}
