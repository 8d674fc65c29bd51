//! Dirty data blocks of a stripe move to one rack, for the sake of later commits (CAU, section 3.3, Algorithm 1).
//!
//! The rack with the most dirty blocks takes those of one other rack and gives it as many clean ones. Differences from
//! the printed algorithm: the condition is i' + l' <= c_i, as in the text, where the listing has a strict one; nothing
//! moves without a gain; and nothing moves that breaks a rule of placement. A swap keeps the number of blocks in each
//! rack, but for codes other than Reed-Solomon the stripe could lose its safety against the loss of a rack, or a
//! group of blocks could be torn apart.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId, RackId, Sink};

use crate::program::carried;
use crate::stripe::place::verdict;
use crate::{Plan, PlanError, StripeView, Topology};

/// Blocks that change places.
#[derive(Debug, Clone, PartialEq)]
pub struct Grouping {
    /// Pairs of a dirty and a clean data block whose homes are exchanged.
    pub swaps: Vec<(BlockIndex, BlockIndex)>,
    /// The homes of the stripe afterwards.
    pub homes: Vec<Option<NodeId>>,
    /// The moves.
    pub plan: Plan,
    /// Blocks that cross racks at the next commit of the same blocks now, and then.
    pub before: usize,
    /// See `before`.
    pub after: usize,
}

impl Grouping {
    /// Blocks that cross racks for the moves.
    pub fn crossings(&self) -> usize {
        2 * self.swaps.len()
    }
}

/// The swap of Algorithm 1 with the largest gain, if any swap has one.
///
/// # Errors
/// `Invalid` for dirty blocks that are not distinct blocks with bytes; `Placement` for one without a home.
pub fn group(
    view: &StripeView,
    topology: &Topology,
    dirty: &[BlockIndex],
) -> Result<Option<Grouping>, PlanError> {
    view.check("dirty blocks", dirty)?;
    let mut racks: BTreeMap<Option<RackId>, Side> = BTreeMap::new();
    for block in view.indices().filter(|block| view.block_len(*block) > 0) {
        let Ok(home) = view.home(block) else { return Ok(None) };
        let side = racks.entry(topology.rack(home)).or_default();
        match usize::from(block.0) < view.code.k() {
            true if dirty.contains(&block) => side.dirty.push(block),
            true => side.clean.push(block),
            false => side.parities += 1,
        }
    }
    let racks: Vec<Side> = racks.into_values().collect();
    // The first of equals.
    let Some(main) = (0..racks.len()).min_by_key(|&rack| usize::MAX - racks[rack].dirty.len()) else {
        return Ok(None);
    };
    let mut best: Option<Grouping> = None;
    for other in (0..racks.len()).filter(|other| *other != main && !racks[*other].dirty.is_empty()) {
        let (here, there) = (racks[main].dirty.len(), racks[other].dirty.len());
        let before = commit(&racks, main, here) + commit(&racks, other, there);
        let after = commit(&racks, main, here + there);
        let gain = |before: usize, after: usize, swaps: usize| before as i64 - (after + 2 * swaps) as i64;
        let least = best.as_ref().map_or(0, |best| gain(best.before, best.after, best.swaps.len()));
        if there <= racks[main].clean.len() && gain(before, after, there) > least {
            let swaps = racks[other].dirty.iter().copied().zip(racks[main].clean.iter().copied()).collect();
            if let Some((homes, plan)) = swapped(view, topology, &swaps)? {
                best = Some(Grouping { swaps, homes, plan, before, after });
            }
        }
    }
    Ok(best)
}

/// One rack's blocks of a stripe.
#[derive(Default)]
struct Side {
    dirty: Vec<BlockIndex>,
    clean: Vec<BlockIndex>,
    parities: usize,
}

/// Blocks that a rack with this many dirty blocks sends at a commit.
fn commit(racks: &[Side], from: usize, dirty: usize) -> usize {
    let others = racks.iter().enumerate().filter(|(rack, _)| *rack != from);
    others.map(|(_, rack)| rack.parities.min(dirty)).sum()
}

/// The homes after these swaps, and the moves; none if a rule of placement forbids them.
#[allow(clippy::type_complexity)]
fn swapped(
    view: &StripeView,
    topology: &Topology,
    swaps: &Vec<(BlockIndex, BlockIndex)>,
) -> Result<Option<(Vec<Option<NodeId>>, Plan)>, PlanError> {
    let mut homes = view.homes.clone();
    let mut moves = Vec::new();
    for &(dirty, clean) in swaps {
        let (from, to) = (view.home(dirty)?, view.home(clean)?);
        let usable = |node: NodeId| topology.nodes.get(&node).is_some_and(|node| node.usable);
        if view.block_len(dirty) != view.block_len(clean) || !usable(from) || !usable(to) {
            return Ok(None);
        }
        homes.swap(usize::from(dirty.0), usize::from(clean.0));
        moves.extend([(dirty, from, to, Sink::Block), (clean, to, from, Sink::Block)]);
    }
    let moved = || swaps.iter().flat_map(|(dirty, clean)| [*dirty, *clean]);
    let worse =
        moved().any(|block| judge(view, topology, &homes, block) > judge(view, topology, &view.homes, block));
    Ok((!worse).then(|| (homes, carried(view, moves))))
}

/// How well the rack of a block suits it, as placement judges.
fn judge(
    view: &StripeView,
    topology: &Topology,
    homes: &[Option<NodeId>],
    block: BlockIndex,
) -> crate::stripe::place::Verdict {
    let rack = |block: BlockIndex| homes[usize::from(block.0)].and_then(|node| topology.rack(node));
    let set: Vec<BlockIndex> = view.indices().filter(|other| rack(*other) == rack(block)).collect();
    let groups = view.code.place();
    let group = groups.iter().find(|group| groups.len() > 1 && group.contains(&block));
    verdict(view, group, &set)
}
