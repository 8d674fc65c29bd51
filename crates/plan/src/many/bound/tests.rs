//! Compares the bound with the whole linear program, and plans of the default scheduler with the bound.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, RackId, StripeId};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use proptest::prelude::*;

use super::*;
use crate::draw;
use crate::many::{DamagedStripe, History, LostBlock, Planned, Route, SCHEDULERS, Scene};
use crate::{Layout, LayoutKind, PlanError, Rates, StripeView, even_cluster};

fn rate(rate: u64) -> NonZeroU64 {
    NonZeroU64::new(rate.max(1)).unwrap()
}

/// Nodes that send and receive at the same rate; links of racks have none.
fn alike(nodes: usize, racks: usize) -> Topology {
    let mut topology = even_cluster(nodes, racks);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
    topology
}

/// The same, with this rate for the links of racks.
fn in_racks(nodes: usize, racks: usize, rack_rate: u64) -> Topology {
    let mut topology = alike(nodes, racks);
    topology.rates.rack_up = (0..racks as u32).map(|rack| (RackId(rack), rate(rack_rate))).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    topology
}

/// Stripes of n blocks on nodes drawn at random, all of which lost the block on node 0.
fn losses(stripes: usize, n: usize, k: usize, nodes: usize, seed: u64) -> Vec<Loss> {
    let helpers = |stripe: usize| {
        let mut others: Vec<u32> = (1..nodes as u32).collect();
        for i in 0..n - 1 {
            let more = (others.len() - i) as u64;
            others.swap(i, i + (draw(seed, stripe as u64, i as u64) % more) as usize);
        }
        others[..n - 1].iter().map(|node| NodeId(*node)).collect()
    };
    (0..stripes).map(|stripe| loss(helpers(stripe), k)).collect()
}

fn loss(helpers: Vec<NodeId>, k: usize) -> Loss {
    Loss { bytes: 1000, blocks: 1, k, helpers, any: true, barred: Vec::new() }
}

fn nodes(range: std::ops::Range<usize>) -> Vec<NodeId> {
    range.map(|node| NodeId(node as u32)).collect()
}

/// The linear program of the module's documentation, in participations and downloads, without racks.
fn exactly(losses: &[Loss], common: &[NodeId], topology: &Topology) -> f64 {
    let mut problem = Problem::new(OptimizationDirection::Minimize);
    let time = problem.add_var(1.0, (0.0, f64::INFINITY));
    let mut loads: BTreeMap<(bool, NodeId), Vec<(Variable, f64)>> = BTreeMap::new();
    for loss in losses {
        let (k, bytes) = (loss.k as f64, loss.bytes as f64 / 1000.0);
        let mut sent = Vec::new();
        let mut received = Vec::new();
        let mut chosen = Vec::new();
        for helper in &loss.helpers {
            let up = problem.add_var(0.0, (0.0, 1.0));
            let down = problem.add_var(0.0, (0.0, f64::INFINITY));
            problem.add_constraint([(down, 1.0), (up, 1.0 - k)], ComparisonOp::Le, 0.0);
            loads.entry((true, *helper)).or_default().push((up, bytes));
            loads.entry((false, *helper)).or_default().push((down, bytes));
            sent.push((up, 1.0));
            received.push((down, 1.0));
        }
        for requestor in common {
            if !loss.helpers.contains(requestor) && !loss.barred.contains(requestor) {
                let part = problem.add_var(0.0, (0.0, 1.0));
                let down = problem.add_var(0.0, (0.0, f64::INFINITY));
                problem.add_constraint([(down, 1.0), (part, -1.0)], ComparisonOp::Ge, 0.0);
                problem.add_constraint([(down, 1.0), (part, -k)], ComparisonOp::Le, 0.0);
                loads.entry((false, *requestor)).or_default().push((down, bytes));
                chosen.push((part, 1.0));
                received.push((down, 1.0));
            }
        }
        problem.add_constraint(sent, ComparisonOp::Eq, k);
        problem.add_constraint(chosen, ComparisonOp::Eq, 1.0);
        problem.add_constraint(received, ComparisonOp::Eq, k);
    }
    for ((up, node), mut load) in loads {
        let rates = if up { &topology.rates.up } else { &topology.rates.down };
        load.push((time, -(rates[&node].get() as f64) / 1000.0));
        problem.add_constraint(load, ComparisonOp::Le, 0.0);
    }
    problem.solve().unwrap().into_solution().unwrap().objective()
}

/// What the default scheduler plans: stripes of an RS code whose first block is lost, to the common nodes.
fn planned(losses: &[Loss], common: &[NodeId], topology: &Topology) -> Vec<Result<Planned, PlanError>> {
    let mut topology = topology.clone();
    topology.nodes.iter_mut().for_each(|(id, node)| node.usable = common.contains(id));
    let stripe = |(id, loss): (usize, &Loss)| {
        let code = kintsu_code::parse(&format!("rs:n={},k={}", loss.helpers.len() + 1, loss.k)).unwrap();
        let layout = Layout {
            kind: LayoutKind::Contiguous,
            block_bytes: loss.bytes,
            cell_bytes: 1000,
            w: 1,
            data_bytes: loss.bytes * loss.k as u64,
        };
        let homes = [None].into_iter().chain(loss.helpers.iter().copied().map(Some)).collect();
        let view = StripeView { id: StripeId(id as u64), code, layout, homes };
        DamagedStripe { view, lost: vec![BlockIndex(0)], barred: BTreeSet::new() }
    };
    let stripes: Vec<DamagedStripe> = losses.iter().enumerate().map(stripe).collect();
    let scene = Scene::of(&topology);
    SCHEDULERS[0].plan(&scene, &mut History::default(), &LostBlock::all(&stripes))
}

/// Checks the trees; returns how long they keep the busiest link busy, in seconds.
fn played(losses: &[Loss], topology: &Topology, planned: &[Planned]) -> f64 {
    let mut loads: BTreeMap<(u8, u32), f64> = BTreeMap::new();
    for (loss, repair) in losses.iter().zip(planned) {
        assert!(!loss.helpers.contains(&repair.requestor));
        assert_eq!(repair.sends().iter().map(|(_, _, part)| part).sum::<f64>().round(), loss.k as f64);
        for (from, to, part) in repair.sends() {
            assert!(loss.helpers.contains(&from));
            let bytes = part * loss.bytes as f64;
            *loads.entry((0, from.0)).or_default() += bytes;
            *loads.entry((1, to.0)).or_default() += bytes;
            let (here, there) = (topology.rack(from).unwrap(), topology.rack(to).unwrap());
            if here != there {
                *loads.entry((2, here.0)).or_default() += bytes;
                *loads.entry((3, there.0)).or_default() += bytes;
            }
        }
    }
    let rates = &topology.rates;
    let rate = |kind, number| match kind {
        0 => rates.up.get(&NodeId(number)),
        1 => rates.down.get(&NodeId(number)),
        2 => rates.rack_up.get(&RackId(number)),
        _ => rates.rack_down.get(&RackId(number)),
    };
    let seconds = |((kind, number), load): (&(u8, u32), &f64)| {
        rate(*kind, *number).map_or(0.0, |rate: &NonZeroU64| load / rate.get() as f64)
    };
    loads.iter().map(seconds).fold(0.0, f64::max)
}

fn check(losses: &[Loss], common: &[NodeId], topology: &Topology, part: f64) -> Vec<Planned> {
    let planned: Vec<Planned> = planned(losses, common, topology).into_iter().map(Result::unwrap).collect();
    let seconds = played(losses, topology, &planned);
    let bound = bound(losses, common, topology);
    assert!(bound <= seconds * (1.0 + 1e-9));
    let of = format!("{} stripes, {} nodes", losses.len(), topology.nodes.len());
    assert!(bound >= part * seconds, "{of}: {} of {seconds}", bound / seconds);
    planned
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_bound_is_that_of_the_whole_program(
        seed in any::<u64>(), stripes in 1..7usize, k in 1..5usize, spread in 1..1000u64,
    ) {
        let mut losses = losses(stripes, 6, k, 9, seed);
        losses.iter_mut().zip(1..).for_each(|(loss, node)| loss.barred = nodes(node..node + 3));
        let mut topology = even_cluster(11, 1);
        let draws = |stream| topology.nodes.keys().map(move |node| (*node, rate(1000 - draw(seed, stream, node.0.into()) % spread)));
        topology.rates = Rates { up: draws(77).collect(), down: draws(78).collect(), ..Rates::default() };
        let common = nodes(1..11);
        let (exact, bound) = (exactly(&losses, &common, &topology), bound(&losses, &common, &topology));
        prop_assert!(bound <= exact * 1.000_001, "{bound} over {exact}");
        prop_assert!(bound >= exact * 0.97, "{bound} of {exact}");
    }
}

#[test]
fn sixty_four_stripes_on_sixteen_nodes_come_within_a_tenth_of_the_bound() {
    let topology = alike(17, 1);
    for seed in 0..4 {
        let stripes = losses(64, 14, 10, 17, seed);
        check(&stripes, &nodes(1..17), &topology, 0.95);
    }
    // And with 16 requestors that hold nothing.
    let topology = alike(33, 1);
    check(&losses(64, 14, 10, 17, 1), &nodes(17..33), &topology, 0.95);
}

#[test]
fn uneven_nodes_give_what_they_can() {
    let mut topology = even_cluster(33, 1);
    let draws = |stream| {
        topology.nodes.keys().map(move |node| (*node, rate(100 + draw(5, stream, node.0.into()) % 900)))
    };
    topology.rates = Rates { up: draws(1).collect(), down: draws(2).collect(), ..Rates::default() };
    check(&losses(64, 14, 10, 17, 1), &nodes(17..33), &topology, 0.9);
    check(&losses(64, 14, 10, 17, 2), &nodes(1..17), &topology, 0.9);
    // Few stripes are repaired along several trees each.
    let plan = check(&losses(2, 14, 10, 17, 3), &nodes(17..33), &topology, 0.8);
    let trees = |planned: &Planned| matches!(&planned.route, Route::Trees(trees) if trees.len() > 1);
    assert!(plan.iter().any(trees));
}

#[test]
fn racks_are_left_once_and_their_links_shared() {
    let topology = in_racks(33, 4, 800);
    check(&losses(64, 14, 10, 17, 1), &nodes(1..33), &topology, 0.8);
}

#[test]
fn helpers_beside_the_requestor_may_send_out_of_their_rack() {
    // Each rack of three nodes has two blocks of each stripe, so a lost block must come back to its rack; if the other
    // one of that rack stays there too, two blocks arrive there for each that is repaired.
    let topology = in_racks(9, 3, 2000);
    let of_rack = |rack: u32| [0, 3, 6].map(|more| NodeId(rack + more));
    let stripe = |stripe: u64| {
        let without = |rack: u32| {
            of_rack(rack)
                .into_iter()
                .filter(move |node| node.0 != rack + 3 * (draw(9, stripe, rack.into()) % 3) as u32)
        };
        let beside = NodeId(2 + 3 * (draw(9, stripe, 2) % 2) as u32);
        let helpers = without(0).chain(without(1)).chain([beside]).collect();
        Loss { barred: [of_rack(0), of_rack(1)].concat(), ..loss(helpers, 4) }
    };
    for stripes in [24, 36, 60] {
        let losses: Vec<Loss> = (0..stripes).map(stripe).collect();
        check(&losses, &nodes(0..9), &topology, 0.93);
    }
}

#[test]
fn thousands_of_nodes_are_balanced_too() {
    let mut topology = even_cluster(1000, 1);
    let draws = |stream| {
        topology.nodes.keys().map(move |node| (*node, rate(500 + draw(6, stream, node.0.into()) % 500)))
    };
    topology.rates = Rates { up: draws(1).collect(), down: draws(2).collect(), ..Rates::default() };
    check(&losses(4000, 14, 10, 1000, 1), &nodes(1..1000), &topology, 0.9);
}

#[test]
fn what_cannot_be_planned_and_what_has_no_rates() {
    let topology = even_cluster(17, 1);
    let stripes = losses(8, 6, 4, 17, 1);
    assert_eq!(bound(&stripes, &nodes(1..17), &topology), 0.0);
    assert!(planned(&stripes, &nodes(1..17), &topology).iter().all(Result::is_ok));
    assert!(planned(&stripes, &[], &topology).iter().all(Result::is_err));
    assert!(planned(&[], &nodes(1..17), &topology).is_empty());
}

#[test]
fn several_lost_blocks_of_a_stripe_cost_one_transmission_more_each() {
    let topology = alike(17, 1);
    let one = losses(64, 9, 6, 17, 1);
    let two: Vec<Loss> = one.iter().map(|loss| Loss { blocks: 2, ..loss.clone() }).collect();
    let [one, two] = [one, two].map(|losses| bound(&losses, &nodes(1..17), &topology));
    assert!((two / one - 7.0 / 6.0).abs() < 0.02, "{one} {two}");
}

/// That the bound is this many seconds, but for what its search misses.
fn is_bound(losses: &[Loss], common: &[NodeId], topology: &Topology, seconds: f64) {
    let bound = bound(losses, common, topology);
    assert!(bound <= seconds * (1.0 + 1e-9) && bound >= 0.97 * seconds, "{bound} of {seconds}");
}

#[test]
fn what_other_racks_send_enters_the_rack_of_the_requestor() {
    // Nodes 1 and 2 are in racks 1 and 2 and help; the requestor is node 0 in rack 0, whose downlink carries 250 bytes a second.
    // Each of ten blocks of 1000 bytes has to pass it: 40 s. Other links need 10 s.
    let mut topology = in_racks(9, 3, 1000);
    topology.rates.rack_down.extend([(RackId(0), rate(250)), (RackId(1), rate(250))]);
    let apart: Vec<Loss> = (0..10).map(|_| loss(nodes(1..3), 2)).collect();
    is_bound(&apart, &nodes(0..1), &topology, 40.0);
    // Node 4, too, may get blocks. For those, what node 2 has passes the downlink of rack 1. So each of two links carries half: 20 s.
    is_bound(&apart, &[NodeId(0), NodeId(4)], &topology, 20.0);
    // With nodes 3 and 6, in rack 0, nothing has to pass links of racks, which are slow: ten blocks over the uplink of each helper.
    let beside = [NodeId(1), NodeId(3), NodeId(6)];
    let beside: Vec<Loss> = (0..10).map(|_| loss(beside.to_vec(), 2)).collect();
    is_bound(&beside, &nodes(0..1), &in_racks(9, 3, 100), 10.0);
}

#[test]
fn a_rack_is_left_as_often_as_blocks_elsewhere_need_its_helpers() {
    // RS(6,4) lost a block in rack 0 and one in rack 2, and only nodes 6 and 8 may get them. Four helpers are left, so all have to
    // be read: nodes 3, 1, 4 and 5 in racks 0, 1, 1 and 2. Both blocks depend on both helpers of rack 1, so that is left twice: 4 s at
    // 500 bytes a second for each of ten stripes. If any two combinations were as good as one, it would be left once.
    let topology = in_racks(9, 3, 500);
    let helpers = [3, 1, 4, 5].map(NodeId).to_vec();
    let two = || Loss { blocks: 2, ..loss(helpers.clone(), 4) };
    let any: Vec<Loss> = (0..10).map(|_| two()).collect();
    is_bound(&any, &[NodeId(6), NodeId(8)], &topology, 40.0);
    let other: Vec<Loss> = (0..10).map(|_| Loss { any: false, ..two() }).collect();
    is_bound(&other, &[NodeId(6), NodeId(8)], &topology, 20.0);
    // If both blocks go to rack 1, nothing has to leave it, and racks 0 and 2 are left once: 2 s for each stripe.
    is_bound(&any, &[NodeId(7), NodeId(10)], &in_racks(12, 3, 500), 20.0);
    // A fifth helper, node 2 in rack 2, can stand in for one of rack 1, which is left once then. So is rack 2.
    let five = || Loss { blocks: 2, ..loss([3, 1, 4, 5, 2].map(NodeId).to_vec(), 4) };
    let five: Vec<Loss> = (0..10).map(|_| five()).collect();
    is_bound(&five, &[NodeId(6), NodeId(8)], &in_racks(9, 3, 500), 20.0);
}

/// By how many blocks, at most and at any time, an uplink is ahead of or behind its proportional part of its total
/// load.
fn unevenness(planned: &[&Planned]) -> f64 {
    let mut total: BTreeMap<NodeId, f64> = BTreeMap::new();
    let senders = |planned: &Planned| planned.helpers().into_iter();
    planned
        .iter()
        .flat_map(|planned| senders(planned))
        .for_each(|node| *total.entry(node).or_default() += 1.0);
    let (mut sent, mut worst) = (BTreeMap::new(), 0.0f64);
    for (done, repair) in (1..).zip(planned) {
        senders(repair).for_each(|node| *sent.entry(node).or_insert(0.0) += 1.0);
        let part = f64::from(done) / planned.len() as f64;
        let off = total.iter().map(|(node, all)| (sent.get(node).unwrap_or(&0.0) - part * all).abs());
        worst = off.fold(worst, f64::max);
    }
    worst
}

#[test]
fn every_stretch_of_the_order_loads_all_links_alike() {
    let topology = alike(101, 1);
    let stripes = losses(700, 14, 10, 101, 1);
    let planned = check(&stripes, &nodes(1..101), &topology, 0.9);
    let as_given: Vec<&Planned> = planned.iter().collect();
    let mut ordered = as_given.clone();
    ordered.sort_by_key(|planned| planned.turn);
    assert!(ordered.iter().map(|planned| planned.turn).eq(0..700));
    let (ordered, as_given) = (unevenness(&ordered), unevenness(&as_given));
    assert!(ordered < 6.0 && 1.5 * ordered < as_given, "{ordered} {as_given}");
}
