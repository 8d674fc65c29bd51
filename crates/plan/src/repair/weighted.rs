//! The path with the fastest slowest link (ECPipe, section 4.3), for one block or several.
//!
//! For several lost blocks there are two ways: one path for all of them, or a path for each. The paper leaves open
//! which is better where links differ (section 4.4). Here both are planned, and the plan whose busiest link
//! finishes first is kept.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, Placed, chain};

use super::Method;
use super::method::MethodRow;
use super::rebuild::{parts, union};
use super::shape::{Order, Rebuild, Rebuilt};
use super::widest::widest;
use super::{persist, pipeline};
use crate::program::proved;
use crate::{PlanError, StripeView, Topology, predicted};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "weighted",
    about: "The chain with the fastest bottleneck, by the rates that the cluster knows",
    shape,
    without_rates: Some(Method::Pipeline),
    ..pipeline::METHOD
};

/// The best path by rate.
pub(super) fn shape(rebuild: &Rebuild<'_>) -> Result<Rebuilt, PlanError> {
    let Rebuild { view, topology, goals, .. } = *rebuild;
    let together = along(rebuild)?;
    if goals.len() == 1 {
        return Ok(together.rebuilt());
    }
    let mut graphs = Vec::with_capacity(goals.len());
    let (mut load_at, mut helpers, mut is_best) = (BTreeMap::new(), Vec::new(), true);
    for goal in goals.chunks(1) {
        let path = along(&Rebuild { goals: goal, ..*rebuild })?;
        graphs.push(path.placed.graph);
        load_at.extend(path.placed.load_at);
        is_best &= path.is_best;
        helpers.extend(path.helpers.into_iter().filter(|block| !helpers.contains(block)).collect::<Vec<_>>());
    }
    let placed =
        Placed { graph: union(graphs)?, load_at, compute_at: BTreeMap::new(), persist_at: BTreeMap::new() };
    let apart = Along { placed, helpers, is_best };
    let lost = rebuild.lost();
    let time = |placed: &Placed| {
        let mut placed = placed.clone();
        persist(view, &mut placed, goals);
        let plan = proved(view, vec![placed], &lost)?;
        predicted(&plan, topology, view.layout.longest(view.code.k()))
    };
    let better = time(&apart.placed)? < time(&together.placed)?;
    Ok(if better { apart.rebuilt() } else { together.rebuilt() })
}

/// The graph along one or several paths.
struct Along {
    placed: Placed,
    /// The blocks in the order of the paths.
    helpers: Vec<BlockIndex>,
    /// Whether each path is proved to be the best.
    is_best: bool,
}

impl Along {
    fn rebuilt(self) -> Rebuilt {
        Rebuilt { lanes: vec![self.placed], helpers: self.helpers, path_is_best: Some(self.is_best) }
    }
}

/// One path for all the lost blocks that have helpers in common.
fn along(rebuild: &Rebuild<'_>) -> Result<Along, PlanError> {
    let Rebuild { view, topology, goals, preference, .. } = *rebuild;
    let parts = parts(view, &rebuild.graph()?)?;
    let (mut order, mut is_best) = (Vec::with_capacity(preference.len()), true);
    for part in &parts {
        let candidates = if any_will_do(view) { preference } else { &part.helpers };
        let requestors: Vec<NodeId> =
            goals.iter().filter(|(block, _)| part.lost.contains(block)).map(|(_, node)| *node).collect();
        let (path, proved) = best(view, topology, candidates, part.helpers.len(), &requestors)?;
        order.extend(path);
        is_best &= proved;
    }
    order.extend(preference.iter().copied().filter(|block| !order.contains(block)).collect::<Vec<_>>());
    let chosen = Rebuild { preference: &order, order: Order::Preferred, ..*rebuild };
    let Rebuilt { mut lanes, helpers, .. } = chosen.over_helpers(chain, None)?;
    let placed = lanes.pop().ok_or_else(|| PlanError::Invalid {
        what: "weighted path".into(),
        expected: "one lane".into(),
        got: "none".into(),
    })?;
    Ok(Along { placed, helpers, is_best })
}

/// The best path over `k` of the candidates, and whether that is proved. A link between helpers carries one
/// combination for each lost block, the last helper's link to each requestor one.
fn best(
    view: &StripeView,
    topology: &Topology,
    candidates: &[BlockIndex],
    k: usize,
    requestors: &[NodeId],
) -> Result<(Vec<BlockIndex>, bool), PlanError> {
    let homes: Vec<NodeId> = candidates.iter().map(|block| view.home(*block)).collect::<Result<_, _>>()?;
    let lost = requestors.len().max(1) as u64;
    let each = |rate: Option<NonZeroU64>| {
        rate.map(|rate| NonZeroU64::new(rate.get() / lost).unwrap_or(NonZeroU64::MIN))
    };
    let rate = |from: usize, to: Option<usize>| match to {
        Some(to) => each(topology.rate(homes[from], homes[to])),
        None => {
            let uplink = each(topology.rates.up.get(&homes[from]).copied());
            requestors.iter().filter_map(|node| topology.rate(homes[from], *node)).chain(uplink).min()
        }
    };
    let found = widest(candidates.len(), k, &rate);
    Ok(found.map_or_else(
        || (candidates[..k.min(candidates.len())].to_vec(), false),
        |found| (found.path.into_iter().map(|at| candidates[at]).collect(), found.exact),
    ))
}

/// Whether any k blocks are enough: the code is MDS and has no sub-blocks.
pub(crate) fn any_will_do(view: &StripeView) -> bool {
    let code = &view.code;
    code.w() == 1 && code.distance() == code.n() - code.k() + 1
}
