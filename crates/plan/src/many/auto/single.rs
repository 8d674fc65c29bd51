//! One stripe on an idle cluster, or beside what is under way: the requestors that allow the best rate, and the best
//! trees to them.

use std::collections::BTreeSet;

use kintsu_dag::{BlockIndex, NodeId};

use super::super::desk::{Case, Desk};
use super::super::scene::{LostBlock, Planned, Route, Scene};
use super::Draft;
use crate::many::DamagedStripe;
use crate::optimal::bound::in_topology;
use crate::optimal::forest;
use crate::{PlanError, StripeView, Topology, place_lost};

/// The most requestors whose rate is computed. Those that would be done first with the block are tried.
const TRIED: usize = 16;

/// The nodes that should get the lost blocks of a stripe that is repaired by itself, as fast as it can be: those that
/// would have their block first, by what their links and those of their racks leave idle, and what they still have to
/// receive of repairs under way. Among equals, the emptiest node.
///
/// # Errors
/// `Placement` when no node may get a block, and as [`crate::repair`] for blocks that cannot be repaired.
pub fn requestors(scene: &Scene<'_>, stripe: &DamagedStripe) -> Result<Vec<(BlockIndex, NodeId)>, PlanError> {
    let blocks: Vec<LostBlock<'_>> = stripe.lost.iter().map(|&block| LostBlock { stripe, block }).collect();
    let mut desk = Desk::new(scene, &blocks);
    let mut chosen = Vec::with_capacity(blocks.len());
    for lost in &blocks {
        let case = match stripe.view.code.w() {
            1 => desk.case(lost, &|node| desk.sending(node, lost.bytes() as f64))?,
            _ => Case::default(),
        };
        let node = fastest(&desk, lost, &case)?;
        desk.give(lost, node);
        let down = desk.down(node);
        desk.load[down] += lost.bytes() as f64;
        chosen.push((lost.block, desk.ids[node]));
    }
    Ok(chosen)
}

/// The nodes that should get the lost blocks of a stripe that is repaired by itself on these nodes, in the order of the
/// blocks: as [`requestors`] says, or as [`place_lost`] says where no rates are known or the nodes cannot be compared.
///
/// # Errors
/// As [`place_lost`].
pub fn place_alone(
    view: &StripeView,
    topology: &Topology,
    lost: &[BlockIndex],
) -> Result<Vec<NodeId>, PlanError> {
    view.check("lost blocks", lost)?;
    if !topology.rates.is_empty() {
        let stripe = DamagedStripe { view: view.clone(), lost: lost.to_vec(), barred: BTreeSet::new() };
        if let Ok(chosen) = requestors(&Scene::of(topology), &stripe) {
            return Ok(chosen.into_iter().map(|(_, node)| node).collect());
        }
    }
    place_lost(view, topology, lost, &mut |_| 0)
}

/// The node that would have the block first.
fn fastest(desk: &Desk<'_>, lost: &LostBlock<'_>, case: &Case) -> Result<usize, PlanError> {
    let topology = desk.scene.topology;
    let bytes = lost.bytes() as f64;
    let used = |node: usize| topology.nodes.get(&desk.ids[node]).map_or(0, |node| node.used_bytes);
    let mut open: Vec<(f64, u64, usize)> =
        desk.at(&desk.places(lost)?).map(|node| (desk.receiving(node, bytes), used(node), node)).collect();
    open.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    if topology.rates.pairs.is_empty() {
        // Nodes of one rack that can receive alike are alike.
        let mut kinds = BTreeSet::new();
        open.retain(|(seconds, _, node)| kinds.insert((desk.rack[*node], seconds.to_bits())));
    }
    let helpers: Vec<NodeId> = case.helpers.iter().map(|node| desk.ids[*node]).collect();
    let by_rate = |(seconds, used, node): (f64, u64, usize)| {
        let rate = in_topology(topology, &helpers, desk.ids[node], case.k);
        let least = if rate > 0.0 { bytes / rate } else { 0.0 };
        (seconds.max(least), used, node)
    };
    let rated = open.into_iter().take(TRIED).map(by_rate);
    let best = rated.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
    best.map(|(_, _, node)| node).ok_or_else(|| super::nobody(lost))
}

/// The plan for a draft of one block, by the links alone; `None` without trees.
pub(super) fn plan(desk: &Desk<'_>, draft: &Draft<'_>) -> Option<Result<Planned, PlanError>> {
    let requestor = match fastest(desk, &draft.lost, &draft.case) {
        Ok(node) => desk.ids[node],
        Err(error) => return Some(Err(error)),
    };
    let helpers: Vec<NodeId> = draft.case.helpers.iter().map(|node| desk.ids[*node]).collect();
    let forest = forest(desk.scene.topology, &helpers, &[requestor], draft.case.k)?;
    Some(Ok(Planned {
        stripe: draft.lost.stripe.view.id,
        block: draft.lost.block,
        bytes: draft.lost.bytes(),
        requestor,
        route: Route::Trees(forest.trees),
        also: Vec::new(),
        turn: 0,
    }))
}
