//! Schedulers to compare with: fixed trees over helpers that are chosen without looking at loads.
//!
//! Sources: ECPipe (TOS'21), sections 2.2 (conventional repair, PPR), 3.3 (least recently used helpers) and 6.4
//! (PUSH-Rep, PUSH-Sur); ChameleonEC, section V-A (random helpers). Except for PUSH, blocks are spread evenly over the
//! requestors, which is more than the papers' baselines do. Codes with sub-blocks keep their own graph.

use kintsu_dag::NodeId;

use super::desk::{Case, Desk, Tree};
use super::scene::{History, LostBlock, Planned, Scene, by_method};
use crate::{Method, PlanError, draw};

/// The tree of a repair, from the number of its helpers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Every helper sends to the requestor.
    Star,
    /// PPR: neighbours pair up in every round.
    Binary,
    /// Each helper sends to the next.
    Chain,
}

/// Which helpers are taken where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// Drawn from the seed.
    Random,
    /// Those that helped longest ago.
    LeastRecent,
    /// Those with the smallest block numbers.
    ByIndex,
}

/// Which requestor is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    /// The one with the fewest blocks so far.
    Even,
    /// Always the same one, if it can.
    One,
}

impl Shape {
    /// For each of k helpers the one that it sends to; `None` for the requestor.
    pub fn parents(self, k: usize) -> Vec<Option<usize>> {
        match self {
            Self::Star => vec![None; k],
            Self::Chain => (1..=k).map(|next| (next < k).then_some(next)).collect(),
            Self::Binary => {
                let mut parents = vec![None; k];
                let mut active: Vec<Option<usize>> = (0..k).map(Some).chain([None]).collect();
                while active.len() > 1 {
                    for pair in active.chunks_exact(2) {
                        pair[0].into_iter().for_each(|left| parents[left] = pair[1]);
                    }
                    active = active.chunks(2).filter_map(|pair| pair.last().copied()).collect();
                }
                parents
            }
        }
    }
}

/// The tree of this shape over helpers in their order.
pub(super) fn shaped(shape: Shape, helpers: &[usize], requestor: usize) -> Tree {
    let parents = shape.parents(helpers.len());
    let to = |parent: &Option<usize>| parent.map_or(requestor, |at| helpers[at]);
    let mut edges: Vec<(usize, usize)> = helpers.iter().copied().zip(parents.iter().map(to)).collect();
    edges.sort_unstable();
    Tree { requestor, edges }
}

/// Plans all repairs in their order.
pub(super) fn plain(
    scene: &Scene<'_>,
    history: &mut History,
    blocks: &[LostBlock<'_>],
    (shape, choice, spread): (Shape, Choice, Spread),
) -> Vec<Result<Planned, PlanError>> {
    let mut desk = Desk::new(scene, blocks);
    let mut plan = |(turn, lost): (usize, &LostBlock<'_>)| {
        let planned = one(&mut desk, history, lost, (shape, choice, spread))?;
        desk.settle(&planned, planned.bytes as f64);
        history.note(planned.helpers(), planned.requestor);
        Ok(Planned { turn, ..planned })
    };
    blocks.iter().enumerate().map(&mut plan).collect()
}

fn one(
    desk: &mut Desk<'_>,
    history: &History,
    lost: &LostBlock<'_>,
    (shape, choice, spread): (Shape, Choice, Spread),
) -> Result<Planned, PlanError> {
    let view = &lost.stripe.view;
    let nobody = || PlanError::Placement {
        expected: format!("helpers and a requestor for {} of {}", lost.block, view.id),
        got: "none".into(),
    };
    let open = desk.open(lost)?;
    let requestor = open.iter().copied().min_by_key(|node| match spread {
        Spread::Even => (history.blocks_of(desk.ids[*node]), *node),
        Spread::One => (0, *node),
    });
    let requestor = requestor.ok_or_else(nobody)?;
    if view.code.w() > 1 {
        return by_method(Method::Conventional, lost, desk.scene.topology, desk.ids[requestor]);
    }
    let rank = |node: usize| -> u64 {
        let id = desk.ids[node];
        match choice {
            Choice::Random => draw(history.seed, view.id.0, u64::from(id.0)),
            Choice::LeastRecent => history.helped.get(&id).copied().unwrap_or(0),
            Choice::ByIndex => view.homes.iter().position(|home| *home == Some(id)).unwrap_or(0) as u64,
        }
    };
    // As a fraction of 2^64, which is exact enough to compare.
    let Case { k, mut helpers, .. } = desk.case(lost, &|node| rank(node) as f64)?;
    helpers.sort_by_cached_key(|node| (rank(*node), *node));
    helpers.truncate(k);
    if shape == Shape::Chain {
        // A chain enters and leaves each rack once, the requestor's last (ECPipe, Algorithm 1).
        helpers.sort_by_key(|node| (desk.rack[*node] == desk.rack[requestor], desk.rack[*node]));
        if desk.racks == desk.ids.len() || desk.racks == 1 {
            helpers.sort_by_cached_key(|node| (rank(*node), *node));
        }
    }
    desk.planned(lost, &[shaped(shape, &helpers, requestor)]).ok_or_else(nobody)
}

impl History {
    /// Notes a planned repair.
    pub(super) fn note(&mut self, helpers: Vec<NodeId>, requestor: NodeId) {
        self.clock += 1;
        self.helped.extend(helpers.into_iter().map(|node| (node, self.clock)));
        *self.requested.entry(requestor).or_default() += 1;
    }

    fn blocks_of(&self, node: NodeId) -> u64 {
        self.requested.get(&node).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_those_of_the_papers() {
        assert_eq!(Shape::Star.parents(3), [None; 3]);
        assert_eq!(Shape::Chain.parents(3), [Some(1), Some(2), None]);
        // ChameleonEC, figure 3(b): N1 to N2 and N3 to N4, N2 to N4, N4 to the requestor.
        assert_eq!(Shape::Binary.parents(4), [Some(1), Some(3), Some(3), None]);
        assert_eq!(Shape::Binary.parents(1), [None]);
    }
}
