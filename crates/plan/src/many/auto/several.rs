//! Trees for several lost blocks of one stripe.
//!
//! A helper sends a sum for each of f lost blocks, or what it has, where that is less. So the least is sent, k + f - 1
//! blocks, where all helpers send to one node, the hub: the requestor of the first block, or a helper, which then
//! computes the blocks and sends each to its requestor. A rack that more than f helpers are in is left by one of them,
//! which collects what the others have. The hub is the one whose tree costs least; several trees have several hubs.

use super::super::desk::{Case, Desk, Tree};
use super::balance::{Placed, remove};
use super::search::{Open, Prices};
use super::{Draft, nobody};
use crate::PlanError;

/// Requestors and trees of the draft's blocks, which are then on the desk.
pub(super) fn add(
    desk: &mut Desk<'_>,
    draft: &Draft<'_>,
    case: &Case,
    parts: usize,
    prices: &Prices,
) -> Result<Placed, PlanError> {
    let mut given = Vec::with_capacity(1 + draft.also.len());
    for lost in draft.blocks() {
        let places = desk.places(lost);
        let node =
            places.and_then(|places| Open::Any(&places).first(desk, case.bytes).ok_or_else(|| nobody(lost)));
        match node {
            Ok(node) => {
                desk.give(lost, node);
                given.push(node);
            }
            Err(error) => {
                draft.blocks().zip(&given).for_each(|(lost, node)| desk.take_back(lost, *node));
                return Err(error);
            }
        }
    }
    let also = given.split_off(1);
    let bytes = case.bytes / parts as f64;
    let mut laid = Placed { also, trees: Vec::with_capacity(parts) };
    for _ in 0..parts {
        match cheapest(desk, case, (given[0], &laid.also), bytes, prices) {
            Some(tree) => {
                desk.carry_tree(&tree, &laid.also, bytes);
                laid.trees.push(tree);
            }
            None => {
                if laid.trees.is_empty() {
                    desk.take_back(&draft.lost, given[0]);
                }
                remove(desk, draft, &Ok(laid));
                return Err(nobody(&draft.lost));
            }
        }
    }
    Ok(laid)
}

/// The cheapest tree of all hubs.
fn cheapest(
    desk: &Desk<'_>,
    case: &Case,
    (requestor, also): (usize, &[usize]),
    bytes: f64,
    prices: &Prices,
) -> Option<Tree> {
    if case.k == 0 || case.helpers.len() < case.k {
        return None;
    }
    let helpers = prices.of_helpers(desk, case, bytes);
    let hubs = helpers.iter().map(|(_, node)| *node).chain([requestor]);
    let trees = hubs.map(|hub| {
        let mut set: Vec<usize> = helpers[..case.k].iter().map(|(_, node)| *node).collect();
        if hub != requestor && !set.contains(&hub) {
            set[case.k - 1] = hub;
        }
        let tree = through(desk, &set, hub, requestor, also.len() + 1);
        (prices.of(desk, &tree, also, bytes), tree)
    });
    trees.min_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, tree)| tree)
}

/// The tree over the set through this hub, for `blocks` blocks.
fn through(desk: &Desk<'_>, set: &[usize], hub: usize, requestor: usize, blocks: usize) -> Tree {
    let mut edges = Vec::with_capacity(set.len());
    let rack = |node: usize| if desk.racked { desk.rack[node] } else { 0 };
    for &node in set.iter().filter(|node| **node != hub) {
        let mates = || set.iter().copied().filter(|mate| *mate != hub && rack(*mate) == rack(node));
        let far = rack(node) != rack(hub) && mates().count() > blocks;
        let idlest = |a: &usize, b: &usize| desk.receiving(*a, 0.0).total_cmp(&desk.receiving(*b, 0.0));
        let gate = mates().min_by(idlest).filter(|gate| far && *gate != node);
        edges.push((node, gate.unwrap_or(hub)));
    }
    if hub != requestor {
        edges.push((hub, requestor));
    }
    edges.sort_unstable();
    Tree { requestor, edges }
}
