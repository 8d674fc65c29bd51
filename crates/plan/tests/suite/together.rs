//! Recovery of whole nodes by [`Method::Optimal`]: the trees of a window are planned together, and repairs use
//! them.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::NodeId;
use kintsu_plan::many::{Loss, Scene, bound};
use kintsu_plan::{
    Account, Assignment, DamagedStripe, Method, Rates, Recovery, Repair, RepairPlan, Schedule, Shares,
    StripeView, Topology,
};
use support::{topology, waiting, without};

const DEAD: NodeId = NodeId(2);

fn rated(mut topology: Topology, rate: impl Fn(NodeId) -> u64) -> Topology {
    let rates = topology.nodes.keys().map(|node| (*node, NonZeroU64::new(rate(*node)).unwrap()));
    let up: BTreeMap<_, _> = rates.collect();
    topology.rates = Rates { down: up.clone(), up, ..Rates::default() };
    topology
}

fn assigned(
    recovery: &mut Recovery,
    shares: &mut Shares,
    topology: &Topology,
    window: &[DamagedStripe],
) -> Vec<Assignment> {
    let all = recovery.window(Schedule::Balanced, Method::Optimal, shares, &Scene::of(topology), window);
    all.into_iter().map(Result::unwrap).collect()
}

fn planned(
    recovery: &mut Recovery,
    topology: &Topology,
    view: &StripeView,
    assignment: &Assignment,
) -> RepairPlan {
    let wanted = Repair {
        lost: assignment.requestors.keys().copied().collect(),
        requestors: assignment.requestors.values().copied().collect(),
        method: Method::Optimal,
    };
    recovery.assign(view, topology, &wanted, &[]).unwrap()
}

/// The bytes on each edge of a plan, with the sum of the shares as the block size.
fn edges(plan: &RepairPlan, topology: &Topology) -> BTreeMap<(NodeId, NodeId), u64> {
    let period = plan.plan.lanes.iter().map(|lane| u64::from(lane.share)).sum();
    let account = Account::of(&plan.plan, topology, period).unwrap();
    account.links.iter().map(|link| ((link.from, link.to), link.bytes)).collect()
}

fn edges_of(assignment: &Assignment) -> BTreeMap<(NodeId, NodeId), u64> {
    let requestor = *assignment.requestors.values().next().unwrap();
    let mut edges = BTreeMap::new();
    for tree in &assignment.trees {
        for (from, to) in &tree.parents {
            *edges.entry((*from, to.unwrap_or(requestor))).or_default() += u64::from(tree.share);
        }
    }
    edges
}

/// Seconds until the busiest link has carried all the plans, each block counted as `bytes`.
fn busiest(plans: &[RepairPlan], topology: &Topology, bytes: u64) -> f64 {
    let mut loads: BTreeMap<(bool, NodeId), f64> = BTreeMap::new();
    for plan in plans {
        let account = Account::of(&plan.plan, topology, bytes).unwrap();
        for (up, loaded) in [(true, account.sent), (false, account.received)] {
            loaded
                .into_iter()
                .for_each(|(node, bytes)| *loads.entry((up, node)).or_default() += bytes as f64);
        }
    }
    let rate = |up, node| if up { topology.rates.up[&node] } else { topology.rates.down[&node] }.get() as f64;
    loads.into_iter().map(|((up, node), load)| load / rate(up, node)).fold(0.0, f64::max)
}

fn bound_of(stripes: &[DamagedStripe], topology: &Topology, bytes: u64) -> f64 {
    let loss = |waiting: &DamagedStripe| Loss {
        bytes,
        blocks: 1,
        k: waiting.view.code.k(),
        helpers: waiting.view.homes.iter().flatten().copied().collect(),
        any: true,
        barred: Vec::new(),
    };
    let losses: Vec<Loss> = stripes.iter().map(loss).collect();
    let usable = topology.nodes.iter().filter(|(_, node)| node.usable);
    bound(&losses, &usable.map(|(id, _)| *id).collect::<Vec<_>>(), topology)
}

#[test]
fn plans_go_along_the_assigned_trees_and_load_links_nearly_as_evenly_as_can_be() {
    for (code, rate) in [
        ("rs:n=14,k=10", (|_| 1 << 20) as fn(NodeId) -> u64),
        ("rs:n=9,k=6", |_| 1 << 20),
        ("rs:n=9,k=6", |node| (1 + u64::from(node.0) % 2) << 20),
    ] {
        let topology = rated(topology(1, 17), rate);
        let stripes = waiting(code, &topology, 100, &[DEAD]);
        let topology = without(topology, &[DEAD]);
        let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
        let all = assigned(&mut recovery, &mut shares, &topology, &stripes);
        let mut plans = Vec::new();
        for (stripe, assignment) in stripes.iter().zip(&all) {
            let plan = planned(&mut recovery, &topology, &stripe.view, assignment);
            assert_eq!(edges(&plan, &topology), edges_of(assignment), "{code}");
            plans.push(plan);
        }
        let (time, bound) = (busiest(&plans, &topology, 1000), bound_of(&stripes, &topology, 1000));
        assert!(bound <= time * 1.000_001 && bound >= 0.93 * time, "{code}: {bound} of {time}");
    }
}

#[test]
fn stripes_that_lost_two_blocks_go_along_assigned_trees_too() {
    for narrow in [None, NonZeroU64::new(1 << 20)] {
        let mut topology = rated(topology(4, 6), |_| 1 << 20);
        let racks: BTreeSet<_> = topology.nodes.values().map(|node| node.rack).collect();
        topology.rates.rack_up =
            narrow.iter().flat_map(|rate| racks.iter().map(|rack| (*rack, *rate))).collect();
        topology.rates.rack_down = topology.rates.rack_up.clone();
        let dead = [DEAD, NodeId(9)];
        let stripes = waiting("rs:n=9,k=6", &topology, 60, &dead);
        let topology = without(topology, &dead);
        let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
        let all = assigned(&mut recovery, &mut shares, &topology, &stripes);
        let mut pairs = 0;
        for (stripe, assignment) in stripes.iter().zip(&all) {
            assert!(assignment.has_trees() && assignment.requestors.len() == stripe.lost.len());
            let plan = planned(&mut recovery, &topology, &stripe.view, assignment);
            let account = Account::of(&plan.plan, &topology, 1600).unwrap();
            let helpers: BTreeSet<NodeId> =
                plan.helpers.iter().filter_map(|block| stripe.view.homes[usize::from(block.0)]).collect();
            assert_eq!(helpers, assignment.helpers);
            if stripe.lost.len() == 2 && assignment.own_trees.is_empty() {
                assert_eq!(account.links.iter().map(|link| link.bytes).sum::<u64>(), 11_200);
            }
            pairs += usize::from(stripe.lost.len() == 2);
        }
        assert!(pairs > 0);
    }
}

#[test]
fn trees_are_left_when_a_node_of_theirs_is_gone_excluded_or_another() {
    let topology = rated(topology(1, 17), |_| 1 << 20);
    let stripes = waiting("rs:n=9,k=6", &topology, 40, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
    let all = assigned(&mut recovery, &mut shares, &topology, &stripes);
    for (stripe, assignment) in stripes.iter().zip(&all) {
        let (view, requestors) = (&stripe.view, assignment.requestors.values().copied().collect());
        let wanted = Repair { lost: stripe.lost.clone(), requestors, method: Method::Optimal };
        let gone = *assignment.helpers.first().unwrap();
        let block =
            view.available().into_iter().find(|b| view.homes[usize::from(b.0)] == Some(gone)).unwrap();
        let around = recovery.assign(view, &topology, &wanted, &[block]).unwrap();
        assert!(!around.helpers.contains(&block));
        let mut smaller = view.clone();
        smaller.homes[usize::from(block.0)] = None;
        let around = recovery.assign(&smaller, &topology, &wanted, &[]).unwrap();
        assert!(around.helpers.len() == 6 && !around.helpers.contains(&block));
        let free = |node: &&NodeId| {
            topology.nodes[node].usable
                && !view.homes.contains(&Some(**node))
                && wanted.requestors != [**node]
        };
        let other = *topology.nodes.keys().find(free).unwrap();
        let elsewhere = Repair { requestors: vec![other], ..wanted.clone() };
        assert_eq!(recovery.assign(view, &topology, &elsewhere, &[]).unwrap().requestors, [other]);
        recovery.release(view.id);
    }
}

#[test]
fn blocks_go_where_the_rack_rule_and_the_groups_want_them() {
    for code in ["rs:n=9,k=6", "azure-lrc:n=10,k=6,r=3"] {
        let topology = rated(topology(4, 6), |_| 1 << 20);
        let stripes = waiting(code, &topology, 60, &[DEAD]);
        let topology = without(topology, &[DEAD]);
        let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
        let all = assigned(&mut recovery, &mut shares, &topology, &stripes);
        for (stripe, assignment) in stripes.iter().zip(&all) {
            let requestor = assignment.requestors[&stripe.lost[0]];
            let placed = |rank: &mut dyn FnMut(NodeId) -> u64| {
                kintsu_plan::place_lost(&stripe.view, &topology, &stripe.lost, &mut |node| rank(node))
                    .unwrap()
            };
            // With the lowest rank, this node is chosen.
            assert_eq!(placed(&mut |node| u64::from(node != requestor)), [requestor], "{code}");
        }
    }
}

#[test]
fn rates_of_pairs_leave_each_repair_to_itself() {
    let mut topology = rated(topology(1, 17), |_| 1 << 20);
    topology.rates.pairs.insert((NodeId(3), NodeId(4)), NonZeroU64::MIN);
    let stripes = waiting("rs:n=9,k=6", &topology, 40, &[DEAD]);
    let topology = without(topology, &[DEAD]);
    let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
    let all = assigned(&mut recovery, &mut shares, &topology, &stripes);
    let mut helpers: BTreeSet<NodeId> = BTreeSet::new();
    for (stripe, assignment) in stripes.iter().zip(&all) {
        assert!(assignment.trees.is_empty());
        helpers.extend(&assignment.helpers);
        let plan = planned(&mut recovery, &topology, &stripe.view, assignment);
        assert!(!edges(&plan, &topology).contains_key(&(NodeId(3), NodeId(4))));
    }
    assert_eq!(helpers.len(), 16);
}

/// Without rates, the total load of all links is the same for a star and a chain. Each repair must be a chain
/// nevertheless, which sends no more than one block over each link.
#[test]
fn without_rates_every_repair_of_a_window_is_a_chain() {
    for (racks, nodes, count) in [(1, 17, 2), (1, 17, 4), (4, 6, 8), (4, 6, 60)] {
        let topology = topology(racks, nodes);
        let stripes = waiting("rs:n=9,k=6", &topology, count, &[DEAD]);
        assert!(!stripes.is_empty());
        let topology = without(topology, &[DEAD]);
        let (mut recovery, mut shares) = (Recovery::new(), Shares::default());
        let all = assigned(&mut recovery, &mut shares, &topology, &stripes);
        for (stripe, assignment) in stripes.iter().zip(&all) {
            let plan = planned(&mut recovery, &topology, &stripe.view, assignment);
            let account = Account::of(&plan.plan, &topology, 1000).unwrap();
            assert_eq!(account.received.get(&plan.requestors[0]), Some(&1000), "{racks} racks");
            assert_eq!(account.max_link_bytes, 1000);
            for (node, bytes) in account.sent.iter().chain(&account.received) {
                assert_eq!(*bytes, 1000, "{node}: every helper sends to one other");
            }
        }
    }
}
