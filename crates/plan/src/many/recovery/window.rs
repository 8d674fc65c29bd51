//! Assigns helpers and requestors to many stripes together, before any of the repairs runs.
//!
//! Requestors are spread over the whole recovery, unless they are drawn: the allowed node that has received least so far gets the next block. By the
//! balanced [`Schedule`] all blocks that are sent to it count, which are five for one lost block and ten for another of some LRCs; by
//! the others each block that it gets counts once. Helpers are chosen by the [`Schedule`]. The least recently used nodes are not always the least
//! loaded: a stripe on 13 of 15 nodes leaves three of them out, whenever they were last used. Counting blocks is
//! better. Further passes over the window, once the needs of all its stripes are known, even out the rest.
//!
//! A method may plan trees for the stripes of a window together ([`super::together`]).
//!
//! The assignment is a preference: a repair that finds a node gone takes another node.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};

use super::together::together;
use super::{Recovery, Schedule, last};
use crate::many::Scene;
use crate::optimal::SharedTree;
use crate::repair::helpers_by_preference;
use crate::repair::rebuild::decode;
use crate::{Method, PlanError, Repair, StripeView, Topology, draw, place_lost};

/// Further passes over a window that even out the first assignment.
const REVISIONS: usize = 3;
/// Seeds of what is drawn.
const HELPERS: u64 = 1;
const REQUESTORS: u64 = 2;

/// A stripe that waits to be repaired.
#[derive(Debug, Clone)]
pub struct DamagedStripe {
    /// The stripe; blocks that cannot be read have no home.
    pub view: StripeView,
    /// The blocks to rebuild.
    pub lost: Vec<BlockIndex>,
    /// Nodes that must not get a block of this stripe, besides those that hold one in `view`.
    pub barred: BTreeSet<NodeId>,
}

/// The nodes that repair a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// Which stripe.
    pub stripe: StripeId,
    /// The node that gets each lost block.
    pub requestors: BTreeMap<BlockIndex, NodeId>,
    /// The nodes whose blocks are read, as far as that is known before the plan is made.
    pub helpers: BTreeSet<NodeId>,
    /// The trees that the slices go along, where they were planned together with those of other stripes. Each repairs
    /// all the blocks.
    pub trees: Vec<SharedTree>,
    /// Where each block has a tree of its own instead.
    pub own_trees: BTreeMap<BlockIndex, SharedTree>,
    /// The method that plans the repair by itself, where that was decided together with other stripes.
    pub method: Option<Method>,
    /// Its place in the order in which the repairs of the window are best started.
    pub turn: usize,
    /// The rate at which the window's repairs end together, in bytes of the block a second, if all of them run at
    /// once. At this rate no link has more than it can carry, and none is idle at the end.
    pub rate: Option<NonZeroU64>,
    /// Nothing is assigned yet: the stripe is for a later phase, and is planned when that begins.
    pub is_later: bool,
}

impl Assignment {
    /// A stripe of a later phase.
    pub(super) fn later(stripe: StripeId) -> Self {
        Self { is_later: true, ..Self::none(stripe) }
    }

    fn none(stripe: StripeId) -> Self {
        Self {
            stripe,
            requestors: BTreeMap::new(),
            helpers: BTreeSet::new(),
            trees: Vec::new(),
            own_trees: BTreeMap::new(),
            method: None,
            turn: 0,
            rate: None,
            is_later: false,
        }
    }

    /// Whether it says along which trees the slices go.
    pub fn has_trees(&self) -> bool {
        !self.trees.is_empty() || !self.own_trees.is_empty()
    }

    /// Every node that has a part in the repair.
    pub fn nodes(&self) -> BTreeSet<NodeId> {
        self.helpers.iter().chain(self.requestors.values()).copied().collect()
    }

    /// Whether the repair can use the assigned trees: they lead to its requestor, and every helper still has its
    /// block and is not `excluded`.
    pub(super) fn holds(&self, view: &StripeView, wanted: &Repair, excluded: &[BlockIndex]) -> bool {
        let given = wanted.lost.iter().copied().zip(wanted.requestors.iter().copied());
        let has = |node: &NodeId| {
            let at_home = |block: BlockIndex| view.home(block) == Ok(*node) && !wanted.lost.contains(&block);
            view.indices().any(|block| view.has(block, excluded) && at_home(block))
        };
        let planned = wanted.method.row().together && self.has_trees();
        planned && given.eq(self.requestors.iter().map(|(b, n)| (*b, *n))) && self.helpers.iter().all(has)
    }
}

/// The work assigned to each node in one recovery, in blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// What it receives as a requestor.
    received: BTreeMap<NodeId, u64>,
    helped: BTreeMap<NodeId, u64>,
}

impl Shares {
    /// `received` blocks are sent to each requestor.
    fn give(&mut self, assignment: &Assignment, received: u64) {
        assignment.requestors.values().for_each(|node| *self.received.entry(*node).or_default() += received);
        assignment.helpers.iter().for_each(|node| *self.helped.entry(*node).or_default() += 1);
    }

    /// Takes back what was given.
    fn relieve(&mut self, assignment: &Assignment, received: u64) {
        let take = |of: &mut BTreeMap<NodeId, u64>, node, less| {
            of.entry(node).and_modify(|count: &mut u64| *count = count.saturating_sub(less));
        };
        assignment.requestors.values().for_each(|node| take(&mut self.received, *node, received));
        assignment.helpers.iter().for_each(|node| take(&mut self.helped, *node, 1));
    }
}

/// The inputs of one call of [`Recovery::window`].
pub(super) struct Rules<'a> {
    pub schedule: Schedule,
    pub method: Method,
    pub scene: Scene<'a>,
    /// Whether a scheduler that plans in phases leaves stripes for later ones.
    pub in_phase: bool,
    /// The fastest link of a node, in bytes a second; 1 where none is known.
    fastest: u64,
}

impl Recovery {
    /// Assigns a window of stripes, in their order. Requestors are those nodes that the topology calls usable.
    /// The assignments are kept for [`Recovery::requestors`] and [`Recovery::assign`] until
    /// [`Recovery::release`]. A stripe gets `Err` where it cannot be repaired or placed; the others go on.
    pub fn window(
        &mut self,
        schedule: Schedule,
        method: Method,
        shares: &mut Shares,
        scene: &Scene<'_>,
        window: &[DamagedStripe],
    ) -> Vec<Result<Assignment, PlanError>> {
        self.plan_window((schedule, method), shares, scene, window, false)
    }

    /// As [`Recovery::window`], but of a scheduler that plans in phases only the stripes of the phase that begins now get nodes. Those
    /// of later ones ([`Assignment::is_later`]) are not kept.
    pub fn phase(
        &mut self,
        schedule: Schedule,
        method: Method,
        shares: &mut Shares,
        scene: &Scene<'_>,
        window: &[DamagedStripe],
    ) -> Vec<Result<Assignment, PlanError>> {
        self.plan_window((schedule, method), shares, scene, window, true)
    }

    fn plan_window(
        &mut self,
        (schedule, method): (Schedule, Method),
        shares: &mut Shares,
        scene: &Scene<'_>,
        window: &[DamagedStripe],
        in_phase: bool,
    ) -> Vec<Result<Assignment, PlanError>> {
        let rates = &scene.topology.rates;
        let rates = rates.up.values().chain(rates.down.values());
        let fastest = rates.map(|rate| rate.get()).max().unwrap_or(1);
        let rules = Rules { schedule, method, scene: *scene, in_phase, fastest };
        let planned = together(&rules, window);
        planned.iter().flatten().for_each(|assignment| shares.give(assignment, rules.received(assignment)));
        let mut assigned: Vec<_> = window
            .iter()
            .zip(planned)
            .enumerate()
            .map(|(turn, (waiting, planned))| {
                let assignment = match planned {
                    Some(assignment) => assignment,
                    None => {
                        let assignment = self.first(&rules, shares, waiting, turn)?;
                        shares.give(&assignment, rules.received(&assignment));
                        assignment
                    }
                };
                self.mark(assignment.helpers.iter().copied(), assignment.requestors.values().copied());
                Ok(assignment)
            })
            .collect();
        if schedule == Schedule::Balanced {
            for _ in 0..REVISIONS {
                self.revise(&rules, shares, window, &mut assigned);
            }
        }
        let kept = assigned.iter().flatten().filter(|assignment| !assignment.is_later);
        let kept = kept.map(|assignment| (assignment.stripe, assignment.clone()));
        self.assigned.extend(kept);
        assigned
    }

    fn first(
        &self,
        rules: &Rules<'_>,
        shares: &Shares,
        waiting: &DamagedStripe,
        turn: usize,
    ) -> Result<Assignment, PlanError> {
        let requestors = rules.requestors(waiting, shares, 1)?;
        let stripe = waiting.view.id;
        let mut assignment = Assignment { requestors, turn, ..Assignment::none(stripe) };
        assignment.helpers = self.helpers(rules, shares, waiting, &assignment)?;
        // How much is sent to requestors is known only now.
        let received = rules.received(&assignment);
        if received > 1 {
            assignment.requestors = rules.requestors(waiting, shares, received)?;
        }
        Ok(assignment)
    }

    /// Lets each stripe choose its helpers again, and its requestors where they receive different amounts, now that the needs of the
    /// later stripes are known.
    fn revise(
        &self,
        rules: &Rules<'_>,
        shares: &mut Shares,
        window: &[DamagedStripe],
        assigned: &mut [Result<Assignment, PlanError>],
    ) {
        for (waiting, assignment) in window.iter().zip(assigned) {
            let open = |assignment: &&mut Assignment| !assignment.has_trees() && !assignment.is_later;
            let Some(assignment) = assignment.as_mut().ok().filter(open) else { continue };
            let received = rules.received(assignment);
            shares.relieve(assignment, received);
            if received > 1
                && let Ok(requestors) = rules.requestors(waiting, shares, received)
            {
                assignment.requestors = requestors;
            }
            if let Ok(helpers) = self.helpers(rules, shares, waiting, assignment) {
                assignment.helpers = helpers;
            }
            shares.give(assignment, rules.received(assignment));
        }
    }

    fn helpers(
        &self,
        rules: &Rules<'_>,
        shares: &Shares,
        waiting: &DamagedStripe,
        assignment: &Assignment,
    ) -> Result<BTreeSet<NodeId>, PlanError> {
        let view = &waiting.view;
        let rank = |node| match rules.schedule {
            Schedule::Balanced => rules.finish(shares, node),
            Schedule::Greedy => last(&self.helped, node),
            Schedule::Random => draw(HELPERS, view.id.0, node.0.into()),
            _ => view.homes.iter().position(|home| *home == Some(node)).unwrap_or(usize::MAX) as u64,
        };
        let requestors = waiting.lost.iter().filter_map(|block| assignment.requestors.get(block)).copied();
        let wanted =
            Repair { lost: waiting.lost.clone(), requestors: requestors.collect(), method: rules.method };
        let preference = helpers_by_preference(view, rules.scene.topology, &wanted, &rank, &[]);
        if view.code.w() > 1 {
            // Decoding is expensive for these codes, and most of the remaining blocks take part anyway.
            return preference.iter().map(|block| view.home(*block)).collect();
        }
        let leaves = decode(view, &preference, &wanted.lost)?.leaves();
        leaves.into_iter().map(|leaf| view.home(view.block_of(leaf))).collect()
    }
}

impl Rules<'_> {
    /// Blocks that are sent to each requestor.
    fn received(&self, assignment: &Assignment) -> u64 {
        let star = self.schedule == Schedule::Balanced && !self.method.row().helpers_receive;
        if star && !assignment.has_trees() { assignment.helpers.len().max(1) as u64 } else { 1 }
    }

    /// The nodes that have received least so far relative to the rates of their downlinks, one for each lost block. It would receive
    /// this many blocks more.
    fn requestors(
        &self,
        waiting: &DamagedStripe,
        shares: &Shares,
        received: u64,
    ) -> Result<BTreeMap<BlockIndex, NodeId>, PlanError> {
        let mut topology = Cow::Borrowed(self.scene.topology);
        for node in &waiting.barred {
            topology.to_mut().nodes.entry(*node).and_modify(|known| known.usable = false);
        }
        let mut rank = |node: NodeId| {
            if self.schedule == Schedule::Random {
                return draw(REQUESTORS, waiting.view.id.0, node.0.into());
            }
            let before = last(&shares.received, node);
            let down =
                self.scene.topology.rates.down.get(&node).filter(|_| self.schedule == Schedule::Balanced);
            self.time(before + received, down.map(|rate| rate.get()))
        };
        let chosen = place_lost(&waiting.view, &topology, &waiting.lost, &mut rank)?;
        Ok(waiting.lost.iter().copied().zip(chosen).collect())
    }

    /// When a node would finish its work if it helped with one block more. A helper on a path receives and sends
    /// one block; a requestor receives one.
    fn finish(&self, shares: &Shares, node: NodeId) -> u64 {
        let rates = &self.scene.topology.rates;
        let (helped, received) = (last(&shares.helped, node) + 1, last(&shares.received, node));
        let fetches = if self.method.row().helpers_receive { helped + received } else { 1 };
        let up = self.time(helped, rates.up.get(&node).map(|rate| rate.get()));
        let down = self.time(fetches, rates.down.get(&node).map(|rate| rate.get()));
        up.max(down)
    }

    /// Time for this many blocks; the unit depends on the rate of the fastest link.
    fn time(&self, blocks: u64, rate: Option<u64>) -> u64 {
        let rate = rate.unwrap_or(self.fastest);
        (u128::from(blocks) * u128::from(self.fastest) * 1024 / u128::from(rate)) as u64
    }
}

/// The usable nodes with room that a recovery with `count` requestors uses: the racks in turn, the emptiest node of each
/// rack first.
///
/// # Errors
/// `Placement` when there are fewer, or `count` is 0.
pub fn choose_requestors(topology: &Topology, count: usize) -> Result<BTreeSet<NodeId>, PlanError> {
    let mut racks: BTreeMap<RackId, Vec<(u64, NodeId)>> = BTreeMap::new();
    for (id, node) in topology.nodes.iter().filter(|(_, node)| node.usable && node.has_room(1)) {
        racks.entry(node.rack).or_default().push((node.used_bytes, *id));
    }
    let mut order: Vec<(usize, u64, NodeId)> = Vec::new();
    for nodes in racks.values_mut() {
        nodes.sort_unstable();
        order.extend(nodes.iter().enumerate().map(|(turn, &(bytes, node))| (turn, bytes, node)));
    }
    order.sort_unstable();
    if count == 0 || count > order.len() {
        return Err(PlanError::Placement {
            expected: format!("1 to {} requestors, as many as there are usable nodes", order.len()),
            got: count.to_string(),
        });
    }
    Ok(order.into_iter().take(count).map(|(_, _, node)| node).collect())
}
