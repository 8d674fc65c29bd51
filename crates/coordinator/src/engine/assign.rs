//! Decides which nodes take part in repairing the stripes of a page, for all of these stripes together,
//! before any of them runs.
//!
//! An assignment is only a preference: if the nodes have changed when a stripe's turn comes, its repair takes
//! other nodes. If no assignment can be made, the repair says why.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::many::{self, Disks};
use kintsu_plan::traffic::{Link, Loads};
use kintsu_plan::{Assignment, DamagedStripe, Rates, Recovery, Schedule, Shares, Topology};

use super::repair::{Losses, Order, Want, fit_together, loads};
use super::slow;
use super::stripe::Stripe;

/// What the pages of one repair job have assigned to nodes so far.
#[derive(Debug, Clone, Default)]
pub struct Dealt {
    shares: Shares,
    /// The stripes, for the lower bound of the time that their repair takes.
    pub losses: Losses,
}

/// A stripe that is to be repaired, as its page read it.
#[derive(Debug, Clone)]
pub struct Due {
    /// Which of its blocks.
    pub want: Want,
    /// The stripe.
    pub stripe: Stripe,
    /// Nodes that still have to delete a block of it: they must not be given one.
    pub sweeping: BTreeSet<NodeId>,
}

/// What the cluster looks like when a page is assigned.
#[derive(Clone, Copy)]
pub struct Scene<'a> {
    /// The nodes, as the order sees them, with what users leave of their links now.
    pub topology: &'a Topology,
    /// What users leave of disks that may be slower than links.
    pub disks: &'a Disks,
    /// What links and disks have to carry for repairs that were planned before ([`super::repair::Queue::underway`]).
    pub underway: &'a [(Link, u64)],
    /// What the links carry while no user is busy.
    pub capacity: &'a Rates,
    /// Nodes that blocks can be read from.
    pub readable: &'a BTreeSet<NodeId>,
    /// Nodes that were found slow, the most recently found first.
    pub slow: &'a [NodeId],
    /// Whether the page has all stripes of its job.
    pub whole: bool,
    /// How many stripes may be repaired at once, and how many of them may always share a link.
    pub at_once: (usize, u64),
    /// The span of ChameleonEC's phases, in seconds.
    pub phase_seconds: f64,
    /// Whether stripes for which the phase that begins now has no time are left for later.
    pub in_phase: bool,
}

/// Fills in which nodes take part in repairing each stripe, and sorts the stripes into the order in which
/// they should begin. Returns them and their assignments, which are also noted in `recovery`.
pub fn assign(
    order: &Order,
    scene: Scene<'_>,
    recovery: &mut Recovery,
    dealt: &mut Dealt,
    due: Vec<Due>,
) -> (Vec<Want>, Vec<Assignment>) {
    let waiting: Vec<DamagedStripe> = due.iter().map(|due| due.waiting(scene.readable)).collect();
    dealt.losses.add(scene.topology, &waiting);
    let waiting: Vec<_> = waiting.into_iter().map(|waiting| without(scene.slow, waiting)).collect();
    let Scene { topology, disks, underway, phase_seconds, .. } = scene;
    let idle = many::Scene { topology, disks, underway, phase_seconds };
    let plan = if scene.in_phase { Recovery::phase } else { Recovery::window };
    let assigned = plan(recovery, order.schedule, order.method, &mut dealt.shares, &idle, &waiting);
    let rates = &scene.topology.rates;
    // A stripe by itself goes where it would be received first.
    let alone = match &waiting[..] {
        [only] if scene.whole && order.schedule == Schedule::Balanced && !rates.is_empty() => {
            many::requestors(&idle, only).ok()
        }
        _ => None,
    };
    let mut wants: Vec<Want> = Vec::with_capacity(due.len());
    let mut turns: BTreeMap<StripeId, usize> = BTreeMap::new();
    let mut given: Vec<Assignment> = Vec::with_capacity(due.len());
    for (Due { mut want, stripe, .. }, assignment) in due.into_iter().zip(assigned) {
        if let Ok(mut assignment) = assignment {
            if let Some(chosen) = alone.iter().find(|_| !assignment.has_trees()) {
                assignment.requestors = chosen.iter().copied().collect();
            }
            want.is_later = assignment.is_later;
            if want.is_later {
                wants.push(want);
                continue;
            }
            want.nodes = assignment.nodes();
            let relayed = order.method.row().helpers_receive && stripe.code.w() == 1;
            want.loads = loads(scene.topology, relayed, &assignment, &|block| stripe.block_len(block));
            turns.insert(assignment.stripe, assignment.turn);
            given.push(assignment);
        }
        wants.push(want);
    }
    // Stripes that wait for others cannot end with them.
    let together = given.len() <= scene.at_once.0
        && fit_together(rates, scene.at_once.1, wants.iter().map(|want| &want.loads));
    let hurry = (scene.whole && together).then(|| hurry(scene, &wants));
    given.iter_mut().for_each(|assignment| assignment.rate = hurried(assignment.rate, hurry));
    wants.sort_by_key(|want| turns.get(&want.stripe).copied());
    (wants, given)
}

/// The stripes of a page that wait for a phase, which plans them; until then no node is assigned to them.
pub fn hold(scene: Scene<'_>, dealt: &mut Dealt, due: Vec<Due>) -> Vec<Want> {
    let waiting: Vec<DamagedStripe> = due.iter().map(|due| due.waiting(scene.readable)).collect();
    dealt.losses.add(scene.topology, &waiting);
    due.into_iter().map(|due| due.want).collect()
}

/// How many times as fast repairs may go as what users take now allows. Users who are busy when repairs begin may be idle soon
/// after, and the pace of a repair stays as it is.
fn hurry(scene: Scene<'_>, wants: &[Want]) -> f64 {
    let mut loads = Loads::default();
    wants.iter().for_each(|want| loads.extend(want.loads.iter().copied()));
    let (now, idle) = (loads.seconds(&scene.topology.rates), loads.seconds(scene.capacity));
    if idle > 0.0 { (now / idle).max(1.0) } else { 1.0 }
}

/// A rate that many times as high; none without a factor.
fn hurried(rate: Option<NonZeroU64>, factor: Option<f64>) -> Option<NonZeroU64> {
    NonZeroU64::new((rate?.get() as f64 * factor?) as u64)
}

impl Due {
    /// The stripe as its repair will see it: a block that cannot be read has no home, and a node that keeps a
    /// block of the stripe or still has to delete one must not get another.
    fn waiting(&self, readable: &BTreeSet<NodeId>) -> DamagedStripe {
        let lost = &self.want.blocks;
        let view = self.stripe.view(|index, block| {
            let made = block.digest.is_some() && !lost.contains(&index);
            made && !block.lost && readable.contains(&block.node)
        });
        let kept = self.stripe.record.made().filter(|(index, _)| !lost.contains(index));
        let barred = kept.map(|(_, block)| block.node).chain(self.sweeping.iter().copied()).collect();
        DamagedStripe { view, lost: lost.clone(), barred }
    }
}

/// The stripe without the blocks of these slow nodes, as far as it can spare them. Its repair will avoid
/// these nodes, so the common plan must not rely on them.
fn without(slow: &[NodeId], waiting: DamagedStripe) -> DamagedStripe {
    let spared = slow::without(&waiting.view, slow, |_, blocks| {
        let mut left = waiting.clone();
        blocks.iter().for_each(|block| left.view.homes[usize::from(block.0)] = None);
        let known = [left.view.absent(), left.view.available()].concat();
        left.view.code.decode(&known, &left.lost).is_ok().then_some(left)
    });
    spared.unwrap_or(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::{BlockIndex, RackId};
    use kintsu_plan::Node;

    fn scene<'a>(topology: &'a Topology, readable: &'a BTreeSet<NodeId>) -> Scene<'a> {
        let (capacity, disks) = (&topology.rates, many::Scene::of(topology).disks);
        let at_once = (0, 0);
        Scene {
            topology,
            disks,
            underway: &[],
            capacity,
            readable,
            slow: &[],
            whole: false,
            at_once,
            phase_seconds: 20.0,
            in_phase: false,
        }
    }

    /// Eight stripes on nine nodes, paced to end together.
    #[test]
    fn a_pace_is_not_held_to_what_users_take_at_the_start() {
        let node = |i| (NodeId(i), Node { rack: RackId(0), usable: i != 0, used_bytes: 0, room_bytes: None });
        let mut topology = Topology { nodes: (0..9).map(node).collect(), ..Topology::default() };
        let rate = |rate| NonZeroU64::new(rate).unwrap();
        let readable: BTreeSet<NodeId> = (1..9).map(NodeId).collect();
        let capacity = Rates::even((0..9).map(NodeId), rate(1 << 20));
        let mut pace = |left: u64| {
            topology.rates = Rates::even((0..9).map(NodeId), rate(left));
            let due = |number| {
                let stripe = Stripe { id: StripeId(number), ..stripe("rs:n=5,k=2", &[0]) };
                let blocks = vec![BlockIndex(0)];
                let want = Want {
                    stripe: stripe.id,
                    blocks,
                    bytes: 1000,
                    bears: 2,
                    nodes: BTreeSet::new(),
                    loads: Vec::new(),
                    is_later: false,
                };
                Due { want, stripe, sweeping: BTreeSet::new() }
            };
            let scene =
                Scene { whole: true, at_once: (9, 9), capacity: &capacity, ..scene(&topology, &readable) };
            let order = Order { method: kintsu_plan::Method::Auto, ..Order::default() };
            let due = (0..8).map(due).collect();
            let (_, given) = assign(&order, scene, &mut Recovery::new(), &mut Dealt::default(), due);
            given[0].rate.unwrap().get() as f64
        };
        let (busy, idle) = (pace(1 << 17), pace(1 << 20));
        assert!((0.99..1.01).contains(&(busy / idle)), "{busy} {idle}");
    }

    #[test]
    fn a_stripe_by_itself_goes_to_the_node_that_can_receive_it_first() {
        let node = |i| (NodeId(i), Node { rack: RackId(0), usable: i != 0, used_bytes: 0, room_bytes: None });
        let mut topology = Topology { nodes: (0..9).map(node).collect(), ..Topology::default() };
        let rate = |rate| std::num::NonZeroU64::new(rate).unwrap();
        topology.rates = kintsu_plan::Rates::even((0..9).map(NodeId), rate(100));
        topology.rates.down.extend([5, 6, 8].map(|node| (NodeId(node), rate(10))));
        let readable: BTreeSet<NodeId> = (1..9).map(NodeId).collect();
        for method in [kintsu_plan::Method::Pipeline, kintsu_plan::Method::Auto] {
            let stripe = stripe("rs:n=5,k=2", &[0]);
            let (id, blocks) = (stripe.id, vec![BlockIndex(0)]);
            let want = Want {
                stripe: id,
                blocks,
                bytes: 1000,
                bears: 2,
                nodes: BTreeSet::new(),
                loads: Vec::new(),
                is_later: false,
            };
            let due = Due { want, stripe, sweeping: BTreeSet::new() };
            let scene = Scene { whole: true, at_once: (9, 9), ..scene(&topology, &readable) };
            let order = Order { method, ..Order::default() };
            let (_, given) = assign(&order, scene, &mut Recovery::new(), &mut Dealt::default(), vec![due]);
            assert_eq!(given[0].requestors[&BlockIndex(0)], NodeId(7), "{method}");
        }
    }

    #[test]
    fn helpers_and_requestors_are_those_whose_disks_and_links_have_time() {
        let node = |i| (NodeId(i), Node { rack: RackId(0), usable: i != 0, used_bytes: 0, room_bytes: None });
        let mut topology = Topology { nodes: (0..9).map(node).collect(), ..Topology::default() };
        let rate = |rate| NonZeroU64::new(rate).unwrap();
        topology.rates = Rates::even((0..9).map(NodeId), rate(1000));
        let readable: BTreeSet<NodeId> = (1..9).map(NodeId).collect();
        let slow = |nodes: &[u32]| nodes.iter().map(|node| (NodeId(*node), rate(10))).collect();
        // Nodes 1 to 4 have the blocks that are left, two of which are needed; nodes 5 to 8 can get the lost one.
        let disks = Disks { read: slow(&[2, 4]), write: slow(&[5, 6, 8]) };
        let mut busy: Vec<(Link, u64)> = [2, 4].map(|node| (Link::NodeUp(NodeId(node)), 100_000)).into();
        busy.extend([5, 6, 8].map(|node| (Link::NodeDown(NodeId(node)), 100_000)));
        let open = scene(&topology, &readable);
        let [slow, busy] = [Scene { disks: &disks, ..open }, Scene { underway: &busy, ..open }];
        let methods = [kintsu_plan::Method::Chameleon, kintsu_plan::Method::Auto];
        for (method, scene) in methods.into_iter().flat_map(|method| [(method, slow), (method, busy)]) {
            let stripe = stripe("rs:n=5,k=2", &[0]);
            let (id, blocks) = (stripe.id, vec![BlockIndex(0)]);
            let want = Want {
                stripe: id,
                blocks,
                bytes: 1000,
                bears: 2,
                nodes: BTreeSet::new(),
                loads: Vec::new(),
                is_later: false,
            };
            let due = Due { want, stripe, sweeping: BTreeSet::new() };
            let order = Order { method, ..Order::default() };
            let (_, given) = assign(&order, scene, &mut Recovery::new(), &mut Dealt::default(), vec![due]);
            assert_eq!(given[0].requestors[&BlockIndex(0)], NodeId(7), "{method}");
            assert_eq!(given[0].helpers, [1, 3].map(NodeId).into(), "{method}");
        }
    }

    #[test]
    fn a_stripe_is_assigned_to_nodes_that_may_have_a_part_in_it_and_slow_ones_are_spared() {
        let node = |i| (NodeId(i), Node { rack: RackId(i), usable: i != 0, used_bytes: 0, room_bytes: None });
        let topology = Topology { nodes: (0..7).map(node).collect(), ..Topology::default() };
        let readable: BTreeSet<NodeId> = (1..7).map(NodeId).collect();
        let stripe = stripe("rs:n=5,k=2", &[0]);
        let blocks = vec![BlockIndex(0)];
        let want = Want {
            stripe: stripe.id,
            blocks,
            bytes: 1000,
            bears: 2,
            nodes: BTreeSet::new(),
            loads: Vec::new(),
            is_later: false,
        };
        let due = Due { want, stripe, sweeping: BTreeSet::from([NodeId(5)]) };
        let nodes = |slow: &[NodeId]| {
            let scene = Scene { slow, whole: true, ..scene(&topology, &readable) };
            let (mut recovery, mut dealt) = (Recovery::new(), Dealt::default());
            let order = Order::default();
            let (wants, given) = assign(&order, scene, &mut recovery, &mut dealt, vec![due.clone()]);
            assert_eq!((wants[0].nodes.clone(), given.len()), (given[0].nodes(), 1));
            // Node 0 lost its block and cannot be read; node 5 still has to delete a block of the stripe.
            assert_eq!(given[0].requestors[&BlockIndex(0)], NodeId(6));
            given[0].helpers.clone()
        };
        assert_eq!(nodes(&[]).len(), 2);
        assert!(!nodes(&[NodeId(1)]).contains(&NodeId(1)));
        assert_eq!(nodes(&[1, 2].map(NodeId)), [3, 4].map(NodeId).into());
        assert_eq!(nodes(&[1, 2, 3].map(NodeId)), [3, 4].map(NodeId).into());
    }
}
