//! Trees for the stripes of a window, planned together, so that all links finish at about the same time.
//!
//! This applies to [`crate::Method::Optimal`] with a schedule that leaves the choice of helpers open, and to
//! stripes that lost one block of a code without sub-blocks. Stripes that lost more are assigned by
//! [`super::window`] afterwards. [`node::plan`] ignores rates of pairs of nodes: where there are any, the best
//! trees are searched for each repair separately. Where no rates are known, each repair is a chain of its own: the
//! sum of all loads is the same for a star and a chain, but a star by itself is k times slower.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;

use super::window::Rules;
use super::{Assignment, DamagedStripe, Shares};
use crate::optimal::node::{self, Loss};
use crate::place::welcoming;
use crate::weighted::any_will_do;

/// The stripes of the window that are planned together, each with its assignment; `None` for the others.
pub(super) fn together(
    rules: &Rules<'_>,
    shares: &Shares,
    window: &[DamagedStripe],
) -> Vec<Option<Assignment>> {
    let mut assigned = vec![None; window.len()];
    let rates = &rules.topology.rates;
    if !rules.schedule.together(rules.method) || rates.is_empty() || !rates.pairs.is_empty() {
        return assigned;
    }
    let usable = rules.topology.nodes.iter().filter(|(_, node)| node.usable);
    let common: Vec<NodeId> = usable.map(|(id, _)| *id).collect();
    let mut so_far = shares.clone();
    let (mut at, mut losses) = (Vec::new(), Vec::new());
    for (number, waiting) in window.iter().enumerate() {
        if let Some(loss) = loss(rules, &mut so_far, &common, waiting) {
            at.push(number);
            losses.push(loss);
        }
    }
    let Some(plan) = node::plan(&losses, &common, rules.topology) else { return assigned };
    let mut turns = vec![0; plan.order.len()];
    plan.order.iter().enumerate().for_each(|(turn, repair)| turns[*repair] = turn);
    for ((number, repair), turn) in at.into_iter().zip(plan.repairs).zip(turns) {
        let waiting = &window[number];
        let requestors = waiting.lost.iter().map(|block| (*block, repair.requestor)).collect();
        let helpers = repair.trees.iter().flat_map(|tree| tree.parents.keys().copied()).collect();
        let (stripe, trees) = (waiting.view.id, repair.trees);
        assigned[number] = Some(Assignment { stripe, requestors, helpers, trees, turn });
    }
    assigned
}

impl DamagedStripe {
    /// The loss of the stripe in the form that [`node::bound`] takes. `None` unless the bound covers all its
    /// repairs: one lost block without sub-blocks, of a code that rebuilds a block from any k others.
    pub fn loss(&self) -> Option<Loss> {
        let view = &self.view;
        let [block] = self.lost[..] else { return None };
        any_will_do(view).then(|| Loss {
            bytes: view.block_len(block),
            k: view.code.k() - view.absent().len(),
            helpers: view.homes.iter().flatten().copied().collect(),
            barred: Vec::new(),
        })
    }
}

/// The candidates for the stripe's trees; `None` if it cannot be planned together with others. Where the code
/// fixes which blocks are read, the least loaded ones are offered first, and they count as helpers in `so_far`.
fn loss(rules: &Rules<'_>, so_far: &mut Shares, common: &[NodeId], waiting: &DamagedStripe) -> Option<Loss> {
    let view = &waiting.view;
    let [block] = waiting.lost[..] else { return None };
    view.check("lost blocks", &waiting.lost).ok().filter(|()| view.code.w() == 1)?;
    let mut preference = view.available();
    preference.retain(|available| *available != block);
    preference
        .sort_by_cached_key(|block| view.home(*block).map_or(u64::MAX, |home| rules.finish(so_far, home)));
    let (helpers, k) = crate::optimal::candidates(view, &preference, &waiting.lost).ok()??;
    let distinct: BTreeSet<NodeId> = helpers.iter().copied().collect();
    if distinct.len() < helpers.len() || helpers.len() < k {
        return None;
    }
    if helpers.len() == k {
        so_far.help(&distinct);
    }
    let mut homes = view.homes.clone();
    homes[usize::from(block.0)] = None;
    let may = |node| !waiting.barred.contains(&node) && !distinct.contains(&node);
    let open: BTreeMap<NodeId, usize> =
        welcoming(view, rules.topology, &homes, block, &may).into_iter().collect();
    let barred = common.iter().copied().filter(|node| !open.contains_key(node)).collect();
    (!open.is_empty()).then(|| Loss { bytes: view.block_len(block), k, helpers, barred })
}
