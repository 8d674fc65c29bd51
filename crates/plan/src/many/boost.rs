//! RepairBoost (ATC'21): gives the places of fixed trees to nodes so that uploads and downloads are even, and orders
//! the transmissions by maximum matchings.
//!
//! 1. Helpers that receive, those that receive most first, go to the node of the stripe that would be done first with
//!    its downloads, then with its uploads.
//! 2. Requestors go to the node with the fewest new blocks, then with the fewest downloads.
//! 3. Helpers that only send go to the node that would be done first with its uploads.
//! 4. In every round a maximum matching of senders and receivers is sent, among the transmissions that wait for no
//!    other. Of two between the same nodes, the one whose receiver waits for nothing else comes first. The matching is
//!    the paper's maximum flow, whose edges all have capacity 1.
//!
//! Steps 1 to 3 are greedy, as in the code that the authors published. With rates, loads are times, which is the paper's
//! extension to unequal links.
//!
//! What is missing: in the paper a node sends and receives one whole block in each round. Repairs run in slices here, so
//! the rounds decide only in which order repairs begin.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;

use super::baselines::{Choice, Shape, Spread, plain};
use super::desk::{Case, Desk, Tree};
use super::scene::{History, LostBlock, Planned, Route, Scene};
use crate::PlanError;

/// One place of a tree: which repair, and which helper of it.
type Place = (usize, usize);

/// A repair whose places are being given to nodes.
struct Draft {
    case: Case,
    parents: Vec<Option<usize>>,
    /// By place: what it receives, in blocks.
    receives: Vec<usize>,
    at: Vec<Option<usize>>,
}

/// Plans all repairs together. Codes with sub-blocks keep their own graph and are spread evenly.
pub(super) fn boosted(
    scene: &Scene<'_>,
    history: &mut History,
    blocks: &[LostBlock<'_>],
    shape: Shape,
) -> Vec<Result<Planned, PlanError>> {
    let (plain_ones, rest): (Vec<LostBlock<'_>>, Vec<LostBlock<'_>>) =
        blocks.iter().partition(|lost| lost.stripe.view.code.w() > 1);
    let mut own =
        plain(scene, history, &plain_ones, (Shape::Star, Choice::ByIndex, Spread::Even)).into_iter();
    let mut trees = along_trees(scene, &rest, shape).into_iter();
    let next = |lost: &LostBlock<'_>| {
        let made = if lost.stripe.view.code.w() > 1 { own.next() } else { trees.next() };
        made.unwrap_or_else(|| Err(nobody(lost)))
    };
    blocks.iter().map(next).collect()
}

fn along_trees(scene: &Scene<'_>, blocks: &[LostBlock<'_>], shape: Shape) -> Vec<Result<Planned, PlanError>> {
    let mut desk = Desk::new(scene, blocks);
    let drafts = blocks.iter().map(|lost| draft(&desk, lost, shape));
    let mut drafts: Vec<Result<Draft, PlanError>> = drafts.collect();
    let places = |drafts: &[Result<Draft, PlanError>], relays: bool| -> Vec<Place> {
        let of = |(number, draft): (usize, &Result<Draft, PlanError>)| {
            let receives = draft.as_ref().map_or(&[][..], |draft| &draft.receives);
            let places = receives.iter().enumerate().filter(|(_, count)| (**count > 0) == relays);
            places.map(|(place, _)| (number, place)).collect::<Vec<_>>()
        };
        drafts.iter().enumerate().flat_map(of).collect()
    };
    let mut relays = places(&drafts, true);
    let count = |(number, place): &Place| drafts[*number].as_ref().map_or(0, |draft| draft.receives[*place]);
    relays.sort_by_key(|place| std::cmp::Reverse(count(place)));
    relays.into_iter().for_each(|place| give(&mut desk, &mut drafts, place));
    let requestors = requestors(&mut desk, blocks, &drafts);
    let leaves = places(&drafts, false);
    leaves.into_iter().for_each(|place| give(&mut desk, &mut drafts, place));
    let made = blocks.iter().zip(drafts).zip(requestors).map(|((lost, draft), requestor)| {
        let (draft, requestor) = (draft?, requestor?);
        let node = |place: usize| draft.at.get(place).copied().flatten();
        let edge = |(place, parent): (usize, &Option<usize>)| {
            Some((node(place)?, parent.map_or(Some(requestor), node)?))
        };
        let edges: Option<Vec<_>> = draft.parents.iter().enumerate().map(edge).collect();
        let tree = edges.map(|mut edges| {
            edges.sort_unstable();
            Tree { requestor, edges }
        });
        tree.and_then(|tree| desk.planned(lost, &[tree])).ok_or_else(|| nobody(lost))
    });
    let mut planned: Vec<Result<Planned, PlanError>> = made.collect();
    let all: Vec<&Planned> = planned.iter().flatten().collect();
    let mut first = rounds(&all).into_iter();
    for planned in planned.iter_mut().flatten() {
        planned.turn = first.next().unwrap_or_default();
    }
    planned
}

fn nobody(lost: &LostBlock<'_>) -> PlanError {
    PlanError::Placement {
        expected: format!("helpers and a requestor for {} of {}", lost.block, lost.stripe.view.id),
        got: "none".into(),
    }
}

fn draft(desk: &Desk<'_>, lost: &LostBlock<'_>, shape: Shape) -> Result<Draft, PlanError> {
    let case = desk.case(lost, &|_| 0.0)?;
    let parents = shape.parents(case.k);
    let mut receives = vec![0; case.k];
    parents.iter().flatten().for_each(|parent| receives[*parent] += 1);
    Ok(Draft { at: vec![None; case.k], case, parents, receives })
}

/// Gives a place to the node that would be done first.
fn give(desk: &mut Desk<'_>, drafts: &mut [Result<Draft, PlanError>], (number, place): Place) {
    let Ok(draft) = &mut drafts[number] else { return };
    let received = draft.receives[place] as f64 * draft.case.bytes;
    let key = |node: usize| {
        let up = desk.sending(node, draft.case.bytes);
        let down = desk.time(desk.down(node), received);
        if received > 0.0 { (down, up) } else { (up, down) }
    };
    let free = draft.case.helpers.iter().copied().filter(|node| !draft.at.contains(&Some(*node)));
    let keyed = free.map(|node| (key(node), node));
    let best = keyed.min_by(|a, b| a.0.0.total_cmp(&b.0.0).then(a.0.1.total_cmp(&b.0.1)).then(a.1.cmp(&b.1)));
    if let Some((_, node)) = best {
        draft.at[place] = Some(node);
        for (link, bytes) in [
            (desk.up(node), draft.case.bytes),
            (desk.read(node), draft.case.bytes),
            (desk.down(node), received),
        ] {
            desk.load[link] += bytes;
        }
    }
}

/// The requestor of each repair.
fn requestors(
    desk: &mut Desk<'_>,
    blocks: &[LostBlock<'_>],
    drafts: &[Result<Draft, PlanError>],
) -> Vec<Result<usize, PlanError>> {
    let fanned = |number: &usize| {
        drafts[*number].as_ref().map_or(0, |draft| draft.parents.iter().filter(|to| to.is_none()).count())
    };
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|number| std::cmp::Reverse(fanned(number)));
    let mut stored = vec![0u64; desk.ids.len()];
    let mut chosen: Vec<Result<usize, PlanError>> = blocks.iter().map(|lost| Err(nobody(lost))).collect();
    for number in order {
        let (lost, bytes) = (&blocks[number], blocks[number].bytes() as f64);
        let received = fanned(&number) as f64 * bytes;
        chosen[number] = desk.open(lost).and_then(|open| {
            let key = |node: &usize| {
                let blocks = (stored[*node] + 1) as f64 * desk.pace[desk.down(*node)];
                (blocks, desk.time(desk.down(*node), received))
            };
            let best = open.into_iter().min_by(|a, b| {
                let (x, y) = (key(a), key(b));
                x.0.total_cmp(&y.0).then(x.1.total_cmp(&y.1)).then(a.cmp(b))
            });
            best.ok_or_else(|| nobody(lost))
        });
        if let Ok(node) = chosen[number] {
            stored[node] += 1;
            let down = desk.down(node);
            desk.load[down] += received;
            desk.give(lost, node);
        }
    }
    chosen
}

/// For each repair the round in which its first transmission is sent.
fn rounds(repairs: &[&Planned]) -> Vec<usize> {
    let mut edges: Vec<BTreeMap<NodeId, NodeId>> = repairs
        .iter()
        .map(|planned| match &planned.route {
            Route::Trees(trees) => {
                let up = |(from, to): (&NodeId, &Option<NodeId>)| (*from, to.unwrap_or(planned.requestor));
                trees.iter().flat_map(|tree| tree.parents.iter().map(up)).collect()
            }
            Route::ByMethod(..) | Route::With(_) => BTreeMap::new(),
        })
        .collect();
    let mut first = vec![usize::MAX; repairs.len()];
    for round in 0.. {
        // By sender and receiver: which repair, and whether its receiver waits for nothing else.
        let mut ready: BTreeMap<(NodeId, NodeId), (bool, usize)> = BTreeMap::new();
        for (number, edges) in edges.iter().enumerate() {
            let receivers: BTreeSet<NodeId> = edges.values().copied().collect();
            for (from, to) in edges.iter().filter(|(from, _)| !receivers.contains(from)) {
                let last = edges.values().filter(|other| *other == to).count() == 1;
                let known = ready.entry((*from, *to)).or_insert((last, number));
                if last && !known.0 {
                    *known = (last, number);
                }
            }
        }
        if ready.is_empty() {
            break;
        }
        for (from, to) in matching(ready.keys().copied()) {
            let Some((_, number)) = ready.get(&(from, to)) else { continue };
            edges[*number].remove(&from);
            first[*number] = first[*number].min(round);
        }
    }
    first
}

/// A maximum matching of senders and receivers, by augmenting paths.
fn matching(edges: impl Iterator<Item = (NodeId, NodeId)>) -> Vec<(NodeId, NodeId)> {
    let mut receivers: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    edges.for_each(|(from, to)| receivers.entry(from).or_default().push(to));
    let mut taken: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for from in receivers.keys() {
        augment(*from, &receivers, &mut taken, &mut BTreeSet::new());
    }
    taken.into_iter().map(|(to, from)| (from, to)).collect()
}

fn augment(
    from: NodeId,
    receivers: &BTreeMap<NodeId, Vec<NodeId>>,
    taken: &mut BTreeMap<NodeId, NodeId>,
    seen: &mut BTreeSet<NodeId>,
) -> bool {
    for to in receivers.get(&from).into_iter().flatten() {
        if !seen.insert(*to) {
            continue;
        }
        let holder = taken.get(to).copied();
        if holder.is_none_or(|holder| augment(holder, receivers, taken, seen)) {
            taken.insert(*to, from);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matching_is_as_large_as_it_can_be() {
        let n = NodeId;
        let edges = [(1, 11), (1, 12), (2, 11), (3, 12), (3, 13)].map(|(from, to)| (n(from), n(to)));
        assert_eq!(matching(edges.into_iter()).len(), 3);
        assert_eq!(matching([(n(1), n(11)), (n(2), n(11))].into_iter()).len(), 1);
        assert!(matching(std::iter::empty()).is_empty());
    }
}
