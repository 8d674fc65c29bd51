//! Schedules of full-node recovery: who helps, who gets the blocks, and how evenly.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::NodeId;
use kintsu_plan::many::Scene;
use kintsu_plan::{
    Assignment, DamagedStripe, Method, Rates, Recovery, Repair, Schedule, Shares, Topology, choose_requestors,
};
use proptest::prelude::*;
use support::{topology, waiting, without};

const DEAD: NodeId = NodeId(2);

fn restricted(mut topology: Topology, requestors: &BTreeSet<NodeId>) -> Topology {
    for (id, node) in &mut topology.nodes {
        node.usable &= requestors.contains(id);
    }
    topology
}

/// Assigns in windows of eight.
fn assigned(schedule: Schedule, topology: &Topology, stripes: &[DamagedStripe]) -> Vec<Assignment> {
    let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
    let windows = stripes.chunks(8).flat_map(|window| {
        recovery.window(schedule, Method::Pipeline, &mut shares, &Scene::of(topology), window)
    });
    windows.map(Result::unwrap).collect()
}

fn counts<'a>(nodes: impl IntoIterator<Item = &'a NodeId>) -> BTreeMap<NodeId, u64> {
    let mut counts = BTreeMap::new();
    nodes.into_iter().for_each(|node| *counts.entry(*node).or_default() += 1);
    counts
}

fn width(counts: &BTreeMap<NodeId, u64>) -> u64 {
    counts.values().max().unwrap() - counts.values().min().unwrap()
}

#[test]
fn the_busiest_downlink_has_less_to_do_by_schedule_than_by_index() {
    for (code, nodes) in [("rs:n=14,k=10", 16), ("rs:n=9,k=6", 16), ("rs:n=9,k=6", 30)] {
        let topology = topology(1, nodes);
        let stripes = waiting(code, &topology, 200, &[DEAD]);
        let topology = without(topology, &[DEAD]);
        let busiest = |schedule| {
            let all = assigned(schedule, &topology, &stripes);
            let received = counts(all.iter().flat_map(Assignment::nodes).collect::<Vec<_>>().iter());
            let helped = counts(all.iter().flat_map(|a| &a.helpers));
            let mean = received.values().sum::<u64>().div_ceil(received.len() as u64);
            (*received.values().max().unwrap(), mean, width(&helped))
        };
        let [balanced, greedy, by_index] =
            [Schedule::Balanced, Schedule::Greedy, Schedule::ByIndex].map(busiest);
        assert!(balanced.0 <= balanced.1 + 2, "{code} on {nodes}: {balanced:?}");
        assert!(balanced.0 < greedy.0.min(by_index.0), "{code} on {nodes}: {greedy:?} {by_index:?}");
        // With 13 of 15 nodes in a stripe, the least recently used are hardly a choice.
        assert!(
            code == "rs:n=14,k=10" || greedy.2 < by_index.2,
            "{code} on {nodes}: {greedy:?} {by_index:?}"
        );
    }
}

/// Lost blocks of this code need five or ten blocks. Nodes differ in what they keep, which decides between those that suit a block alike.
#[test]
fn requestors_of_stars_are_balanced_by_what_is_sent_to_them() {
    let mut topology = topology(1, 20);
    for (id, node) in &mut topology.nodes {
        node.used_bytes = u64::from(id.0 * 7 % 5);
    }
    let stripes = waiting("azure-lrc:n=14,k=10,r=5", &topology, 64, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
    let scene = Scene::of(&topology);
    let all = recovery.window(Schedule::Balanced, Method::Conventional, &mut shares, &scene, &stripes);
    let mut received: BTreeMap<NodeId, u64> = BTreeMap::new();
    for assignment in all.iter().flatten() {
        for node in assignment.requestors.values() {
            *received.entry(*node).or_default() += assignment.helpers.len() as u64;
        }
    }
    let mean = received.values().sum::<u64>() as f64 / received.len() as f64;
    let most = *received.values().max().unwrap() as f64;
    assert!(most <= mean + 5.0, "{most} at most, {mean} on average: {received:?}");
}

#[test]
fn by_index_takes_the_smallest_indices() {
    let topology = topology(1, 16);
    let stripes = waiting("rs:n=14,k=10", &topology, 64, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    for schedule in [Schedule::ByIndex, Schedule::PushRep, Schedule::PushSur] {
        for (stripe, assignment) in stripes.iter().zip(assigned(schedule, &topology, &stripes)) {
            let smallest: BTreeSet<_> = stripe.view.homes.iter().flatten().take(10).copied().collect();
            assert_eq!(assignment.helpers, smallest);
        }
    }
}

#[test]
fn drawn_nodes_are_others_for_each_stripe_and_the_same_each_time() {
    let topology = topology(1, 16);
    let stripes = waiting("rs:n=9,k=6", &topology, 64, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    let all = assigned(Schedule::Random, &topology, &stripes);
    assert_eq!(all, assigned(Schedule::Random, &topology, &stripes));
    let smallest = |stripe: &DamagedStripe| stripe.view.homes.iter().flatten().take(6).copied().collect();
    let drawn =
        stripes.iter().zip(&all).filter(|(stripe, assignment)| assignment.helpers != smallest(stripe));
    // One set in 28 is that of the smallest.
    assert!(2 * drawn.count() > all.len());
    let helped = counts(all.iter().flat_map(|assignment| &assignment.helpers));
    let received = counts(all.iter().flat_map(|assignment| assignment.requestors.values()));
    assert!(helped.len() == 15 && received.len() > 7, "{helped:?} {received:?}");
    assert!(width(&received) > 1, "not in turn: {received:?}");
}

#[test]
fn slow_links_get_less_to_do() {
    let mut topology = topology(1, 16);
    let stripes = waiting("rs:n=9,k=6", &topology, 200, &[DEAD]);
    let rate = |rate| std::num::NonZeroU64::new(rate).unwrap();
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(100));
    let slow = NodeId(5);
    topology.rates.up.insert(slow, rate(40));
    topology.rates.down.insert(slow, rate(40));
    let topology = without(topology, &[DEAD]);
    let all = assigned(Schedule::Balanced, &topology, &stripes);
    let mut load = counts(all.iter().flat_map(|a| a.helpers.iter().chain(a.requestors.values())));
    let least = load.remove(&slow).unwrap_or(0);
    assert!(width(&load) <= 6 && least * 2 < *load.values().min().unwrap(), "{least} {load:?}");
}

#[test]
fn blocks_are_spread_evenly_over_any_number_of_requestors() {
    let spare = 8;
    let mut topology = topology(1, 16 + spare);
    let mut placing = topology.clone();
    placing.nodes.retain(|id, _| id.0 < 16);
    let stripes = waiting("rs:n=14,k=10", &placing, 64, &[DEAD]);
    for (id, node) in &mut topology.nodes {
        node.used_bytes = if id.0 < 16 { 1000 } else { 0 };
    }
    let topology = without(topology, &[DEAD]);
    for count in 1..=spare {
        let pool = choose_requestors(&topology, count).unwrap();
        assert!(pool.len() == count && pool.iter().all(|node| node.0 >= 16), "the emptiest: {pool:?}");
        let chosen = assigned(Schedule::Greedy, &restricted(topology.clone(), &pool), &stripes);
        let requested = counts(chosen.iter().flat_map(|a| a.requestors.values()));
        assert_eq!(requested.keys().copied().collect::<BTreeSet<_>>(), pool);
        assert!(width(&requested) <= 1, "{requested:?}");
    }
    assert!(choose_requestors(&topology, 0).is_err() && choose_requestors(&topology, 24).is_err());
}

#[test]
fn chosen_requestors_are_spread_over_racks() {
    let topology = topology(4, 5);
    for count in 1..=20 {
        let chosen = choose_requestors(&topology, count).unwrap();
        let mut racks: BTreeMap<_, usize> = BTreeMap::new();
        chosen.iter().for_each(|node| *racks.entry(topology.rack(*node)).or_default() += 1);
        assert!(racks.values().all(|&of| of <= count.div_ceil(4)), "{racks:?}");
    }
}

#[test]
fn what_a_requestor_cannot_take_is_told_and_the_rest_goes_on() {
    let topology = topology(1, 16);
    let stripes = waiting("rs:n=14,k=10", &topology, 64, &[DEAD]);
    let only = BTreeSet::from([NodeId(7)]);
    let topology = restricted(without(topology, &[DEAD]), &only);
    let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
    let scene = Scene::of(&topology);
    let all = recovery.window(Schedule::PushRep, Method::Pipeline, &mut shares, &scene, &stripes);
    for (stripe, assigned) in stripes.iter().zip(all) {
        match assigned {
            Ok(assigned) => assert!(assigned.requestors.values().eq(&only)),
            Err(error) => {
                assert!(stripe.view.homes.contains(&Some(NodeId(7))));
                assert!(error.to_string().contains("usable nodes without a block"), "{error}");
            }
        }
    }
}

#[test]
fn a_repair_keeps_to_its_assignment_until_that_is_released_or_impossible() {
    let topology = topology(1, 16);
    let stripes = waiting("rs:n=9,k=6", &topology, 40, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
    for waiting in &stripes {
        let window = std::slice::from_ref(waiting);
        let scene = Scene::of(&topology);
        let all = recovery.window(Schedule::ByIndex, Method::Pipeline, &mut shares, &scene, window);
        let assignment = all.into_iter().next().unwrap().unwrap();
        let requestors = recovery.requestors(&waiting.view, &topology, &waiting.lost).unwrap();
        assert!(requestors.iter().eq(assignment.requestors.values()));
        let wanted =
            Repair { lost: waiting.lost.clone(), requestors: requestors.clone(), method: Method::Ppr };
        let plan = recovery.assign(&waiting.view, &topology, &wanted, &[]).unwrap();
        let homes = |view: &kintsu_plan::StripeView, plan: &kintsu_plan::RepairPlan| -> BTreeSet<NodeId> {
            plan.helpers.iter().map(|b| view.homes[usize::from(b.0)].unwrap()).collect()
        };
        assert_eq!(homes(&waiting.view, &plan), assignment.helpers);
        // A helper and the requestor go: the others stay.
        let gone = *assignment.helpers.first().unwrap();
        let mut view = waiting.view.clone();
        view.homes.iter_mut().filter(|home| **home == Some(gone)).for_each(|home| *home = None);
        let smaller = without(topology.clone(), &[gone, requestors[0]]);
        let others = recovery.requestors(&view, &smaller, &waiting.lost).unwrap();
        assert!(others[0] != requestors[0] && others[0] != gone);
        let wanted = Repair { requestors: others, ..wanted };
        let plan = recovery.assign(&view, &smaller, &wanted, &[]).unwrap();
        let kept: BTreeSet<_> = assignment.helpers.iter().filter(|node| **node != gone).copied().collect();
        assert!(homes(&view, &plan).is_superset(&kept));
        recovery.release(view.id);
    }
}

#[test]
fn schedules_are_read_as_they_are_written() {
    for schedule in Schedule::ALL {
        assert_eq!(schedule.to_string().parse::<Schedule>().unwrap(), schedule);
    }
    let error = "best".parse::<Schedule>().unwrap_err().to_string();
    assert!(error.contains("greedy") && error.contains("push-sur"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn requestors_are_usable_distinct_and_hold_no_block(
        (racks, nodes) in (1u32..5, 4u32..7),
        schedule in prop::sample::select(Schedule::ALL.to_vec()),
        method in prop::sample::select(vec![Method::Pipeline, Method::Optimal]),
        rated in prop::bool::ANY,
        code in prop::sample::select(vec!["rs:n=6,k=4", "rs:n=9,k=6", "azure-lrc:n=10,k=6,r=3"]),
        dead in prop::collection::btree_set(0u32..16, 1..3),
        barred in prop::collection::btree_set(0u32..16, 0..3),
    ) {
        let topology = topology(racks as usize, 4 * nodes as usize / racks as usize + 2);
        let dead: Vec<NodeId> = dead.into_iter().map(NodeId).filter(|n| topology.nodes.contains_key(n)).collect();
        let mut stripes = waiting(code, &topology, 30, &dead);
        let barred: BTreeSet<NodeId> = barred.into_iter().map(NodeId).collect();
        stripes.iter_mut().for_each(|stripe| stripe.barred = barred.clone());
        let mut topology = without(topology, &dead);
        if rated {
            topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::MIN);
        }
        let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
        let all = recovery.window(schedule, method, &mut shares, &Scene::of(&topology), &stripes);
        for (stripe, assigned) in stripes.iter().zip(all) {
            let Ok(assigned) = assigned else { continue };
            let together = method == Method::Optimal && schedule == Schedule::Balanced && rated;
            prop_assert_eq!(assigned.has_trees(), together);
            prop_assert!(assigned.requestors.keys().eq(&stripe.lost));
            let takers: BTreeSet<_> = assigned.requestors.values().copied().collect();
            prop_assert_eq!(takers.len(), stripe.lost.len());
            for node in &takers {
                prop_assert!(topology.nodes[node].usable && !barred.contains(node));
                prop_assert!(!stripe.view.homes.contains(&Some(*node)));
            }
            prop_assert!(assigned.helpers.iter().all(|node| stripe.view.homes.contains(&Some(*node))));
            prop_assert_eq!(assigned.nodes().len(), takers.len() + assigned.helpers.len());
            let requestors = assigned.requestors.values().copied().collect();
            let wanted = Repair { lost: stripe.lost.clone(), requestors, method };
            let plan = recovery.assign(&stripe.view, &topology, &wanted, &[]).unwrap();
            if method == Method::Optimal && rated && assigned.trees.is_empty() {
                // Trees of its own, from the helpers that rates name.
                continue;
            }
            let read = plan.helpers.iter().map(|block| stripe.view.homes[usize::from(block.0)].unwrap());
            prop_assert_eq!(read.collect::<BTreeSet<_>>(), assigned.helpers);
        }
    }
}

#[test]
fn plans_made_with_parts_and_counted_are_those_made_with_the_whole() {
    let topology = topology(4, 3);
    let stripes = waiting("rs:n=6,k=4", &topology, 40, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    let (mut whole, mut parted) = (Recovery::new(), Recovery::new());
    for waiting in &stripes {
        let DamagedStripe { view, lost, .. } = waiting;
        let planned = whole.choose(view, &topology, lost, Method::Pipeline, &[]).unwrap();
        let alike = parted.part(view.id).choose(view, &topology, lost, Method::Pipeline, &[]).unwrap();
        assert_eq!((&planned.helpers, &planned.requestors), (&alike.helpers, &alike.requestors));
        let helpers: Vec<_> = alike.helpers.iter().filter_map(|b| view.homes[usize::from(b.0)]).collect();
        parted.used(view.id, helpers, alike.requestors);
    }
}
