//! Compares the bound with the whole linear program, and plans with the bound.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::RackId;
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use proptest::prelude::*;

use super::*;
use crate::draw::draw;
use crate::{Rates, even_cluster};

fn rate(rate: u64) -> NonZeroU64 {
    NonZeroU64::new(rate.max(1)).unwrap()
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
    (0..stripes).map(|stripe| Loss { bytes: 1000, k, helpers: helpers(stripe), barred: Vec::new() }).collect()
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

/// Checks the trees of a plan; returns how long they keep the busiest link busy, in seconds.
fn played(losses: &[Loss], topology: &Topology, plan: &RecoverySchedule) -> f64 {
    let mut loads: BTreeMap<(u8, u32), f64> = BTreeMap::new();
    for (loss, repair) in losses.iter().zip(&plan.repairs) {
        assert!(!loss.helpers.contains(&repair.requestor) && !loss.barred.contains(&repair.requestor));
        let period: u32 = repair.trees.iter().map(|tree| tree.share).sum();
        for tree in &repair.trees {
            assert_eq!(tree.parents.len(), loss.k);
            let bytes = loss.bytes as f64 * f64::from(tree.share) / f64::from(period);
            for (from, to) in &tree.parents {
                assert!(loss.helpers.contains(from));
                let to = to.unwrap_or(repair.requestor);
                *loads.entry((0, from.0)).or_default() += bytes;
                *loads.entry((1, to.0)).or_default() += bytes;
                let (here, there) = (topology.rack(*from).unwrap(), topology.rack(to).unwrap());
                if here != there {
                    *loads.entry((2, here.0)).or_default() += bytes;
                    *loads.entry((3, there.0)).or_default() += bytes;
                }
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

fn check(losses: &[Loss], common: &[NodeId], topology: &Topology, part: f64) -> RecoverySchedule {
    let plan = plan(losses, common, topology).unwrap();
    let seconds = played(losses, topology, &plan);
    assert!((seconds - plan.seconds).abs() <= 1e-6 * seconds, "{seconds} for {}", plan.seconds);
    assert!(plan.bound <= plan.seconds * (1.0 + 1e-9));
    let of = format!("{} stripes, {} nodes", losses.len(), topology.nodes.len());
    assert!(plan.bound >= part * plan.seconds, "{of}: {} of {}", plan.bound / plan.seconds, plan.seconds);
    plan
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
    let mut topology = even_cluster(17, 1);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
    for seed in 0..4 {
        let stripes = losses(64, 14, 10, 17, seed);
        check(&stripes, &nodes(1..17), &topology, 0.95);
    }
    // And with 16 requestors that hold nothing.
    let mut topology = even_cluster(33, 1);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
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
    assert!(plan.repairs.iter().any(|repair| repair.trees.len() > 1));
}

#[test]
fn racks_are_left_once_and_their_links_shared() {
    let mut topology = even_cluster(33, 4);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
    let racks: Vec<RackId> = (0..4).map(RackId).collect();
    topology.rates.rack_up = racks.iter().map(|rack| (*rack, rate(800))).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    check(&losses(64, 14, 10, 17, 1), &nodes(1..33), &topology, 0.8);
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
    let plan = check(&stripes, &nodes(1..17), &topology, 0.0);
    assert_eq!((plan.seconds, plan.bound), (0.0, 0.0));
    assert!(super::plan(&stripes, &[], &topology).is_none());
    let few = Loss { k: 6, ..stripes[0].clone() };
    assert!(super::plan(&[few], &nodes(1..17), &topology).is_none());
    assert_eq!(super::plan(&[], &nodes(1..17), &topology).unwrap().repairs, []);
}

/// By how many blocks, at most and at any time, an uplink is ahead of or behind its proportional part of its total
/// load.
fn unevenness(plan: &RecoverySchedule, order: impl Iterator<Item = usize>) -> f64 {
    let mut total: BTreeMap<NodeId, f64> = BTreeMap::new();
    let senders =
        |repair: usize| plan.repairs[repair].trees.iter().flat_map(|tree| tree.parents.keys().copied());
    (0..plan.repairs.len()).flat_map(senders).for_each(|node| *total.entry(node).or_default() += 1.0);
    let (mut sent, mut worst) = (BTreeMap::new(), 0.0f64);
    for (done, repair) in (1..).zip(order) {
        senders(repair).for_each(|node| *sent.entry(node).or_insert(0.0) += 1.0);
        let part = f64::from(done) / plan.repairs.len() as f64;
        let off = total.iter().map(|(node, all)| (sent.get(node).unwrap_or(&0.0) - part * all).abs());
        worst = off.fold(worst, f64::max);
    }
    worst
}

#[test]
fn every_stretch_of_the_order_loads_all_links_alike() {
    let mut topology = even_cluster(101, 1);
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
    let stripes = losses(700, 14, 10, 101, 1);
    let plan = super::plan(&stripes, &nodes(1..101), &topology).unwrap();
    assert!(plan.repairs.iter().all(|repair| repair.trees.len() == 1));
    let mut all = plan.order.clone();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..700));
    let (ordered, as_given) = (unevenness(&plan, plan.order.iter().copied()), unevenness(&plan, 0..700));
    assert!(ordered < 5.0 && 2.0 * ordered < as_given, "{ordered} {as_given}");
}
