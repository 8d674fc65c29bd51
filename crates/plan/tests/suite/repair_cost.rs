//! What repairs cost: the papers' timeslots, racks entered once, and recoveries that load all nodes evenly.

#![allow(clippy::unwrap_used)]

use crate::support;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{
    Account, Binding, LayoutKind, Method, Rates, Recovery, Repair, RepairPlan, StripeView, Topology, draw,
    encode_offline, explain, place_lost, repair,
};
use support::{layout, stripe, topology};

fn view(name: &str, topology: &Topology, id: u64, lost: &[u8]) -> StripeView {
    let code = kintsu_code::parse(name).unwrap();
    let layout = layout(LayoutKind::Striped, 64, code.w(), 16, 1024 * code.k() as u64);
    let mut view = stripe(&code, layout, topology, id);
    lost.iter().for_each(|b| view.homes[*b as usize] = None);
    view
}

fn planned(name: &str, topology: &Topology, lost: &[u8], method: Method) -> (StripeView, RepairPlan) {
    let view = view(name, topology, 5, lost);
    let lost: Vec<_> = lost.iter().copied().map(BlockIndex).collect();
    let requestors = place_lost(&view, topology, &lost, &mut |_| 0).unwrap();
    let plan = repair(&view, topology, &Repair { lost, requestors, method }, &|_| 0, &[]).unwrap();
    (view, plan)
}

#[test]
fn timeslots_are_those_of_the_papers() {
    let topology = topology(1, 24);
    for (name, k) in
        [("rs:n=5,k=3", 3), ("rs:n=8,k=4", 4), ("rs:n=9,k=6", 6), ("rs:n=14,k=10", 10), ("rs:n=16,k=12", 12)]
    {
        for f in 1..=2usize {
            let lost: Vec<u8> = (0..f as u8).collect();
            let slots =
                |method, slices| planned(name, &topology, &lost, method).1.plan.timeslots(slices).unwrap();
            assert_eq!(slots(Method::Conventional, 1), (k + f - 1) as f64, "{name}, f={f}");
            for s in [1usize, 8, 300, 2048, 5000] {
                let expected = f as f64 * (1.0 + (k as f64 - 1.0) / s as f64);
                let got = slots(Method::Pipeline, s);
                assert!(
                    (got - expected).abs() < 1e-9,
                    "{name}, f={f}, s={s}: expected {expected}, got {got}"
                );
            }
        }
        let rounds = ((k + 1) as f64).log2().ceil();
        assert_eq!(
            planned(name, &topology, &[0], Method::Ppr).1.plan.timeslots(1).unwrap(),
            rounds,
            "{name}"
        );
    }
}

#[test]
fn a_chain_enters_and_leaves_every_rack_once() {
    for (name, racks, nodes) in
        [("rs:n=14,k=10", 5, 4), ("rs:n=9,k=6", 4, 4), ("azure-lrc:n=16,k=12,r=6", 5, 4)]
    {
        let topology = topology(racks, nodes);
        for lost in 0..9 {
            let (view, plan) = planned(name, &topology, &[lost], Method::Pipeline);
            let home = topology.rack(plan.requestors[0]);
            let remote: BTreeSet<_> = plan
                .helpers
                .iter()
                .map(|b| topology.rack(view.homes[b.0 as usize].unwrap()))
                .filter(|rack| *rack != home)
                .collect();
            let account = Account::of(&plan.plan, &topology, 100).unwrap();
            assert_eq!(account.bytes_across_racks, 100 * remote.len() as u64, "{name}, b{lost}");
            assert_eq!(account.bytes_moved, 100 * plan.helpers.len() as u64);
            assert_eq!(account.max_link_bytes, 100);
            assert_eq!(account.depth, plan.helpers.len());
        }
    }
}

#[test]
fn a_pipeline_reads_from_as_few_racks_as_suffice() {
    // 14 blocks in 5 racks of up to 3: ten helpers are in the requestor's rack and three more.
    let topology = topology(5, 4);
    let (view, plan) = planned("rs:n=14,k=10", &topology, &[3], Method::Pipeline);
    let racks = |blocks: &[BlockIndex]| -> BTreeSet<_> {
        blocks.iter().map(|b| topology.rack(view.homes[b.0 as usize].unwrap())).collect()
    };
    assert!(racks(&plan.helpers).len() <= 4, "{:?}", plan.helpers);
}

#[test]
fn least_recently_used_helpers_come_first() {
    let topology = topology(1, 20);
    let view = view("rs:n=9,k=6", &topology, 1, &[0]);
    let lost = vec![BlockIndex(0)];
    let requestors = place_lost(&view, &topology, &lost, &mut |_| 0).unwrap();
    let tired: BTreeSet<NodeId> = [1, 4].iter().map(|b: &usize| view.homes[*b].unwrap()).collect();
    for method in [Method::Conventional, Method::Ppr, Method::Pipeline] {
        let wanted = Repair { lost: lost.clone(), requestors: requestors.clone(), method };
        let plan = repair(&view, &topology, &wanted, &|node| u64::from(tired.contains(&node)), &[]).unwrap();
        assert!(plan.helpers.iter().all(|b| ![1, 4].contains(&b.0)), "{:?}", plan.helpers);
        let excluded = [BlockIndex(2)];
        let plan =
            repair(&view, &topology, &wanted, &|node| u64::from(tired.contains(&node)), &excluded).unwrap();
        assert!(!plan.helpers.contains(&excluded[0]));
    }
}

#[test]
fn a_recovery_loads_all_nodes_alike() {
    // Nodes share more stripes with the dead one in one rack or another, and a local repair has no choice of
    // helpers: the remaining choices must even this out.
    let settings =
        [("rs:n=14,k=10", 5, 4, 1.4), ("azure-lrc:n=16,k=12,r=6", 5, 4, 2.0), ("rs:n=9,k=6", 1, 16, 1.1)];
    for (name, racks, nodes, bound) in settings {
        let mut topology = topology(racks, nodes);
        let dead = NodeId(2);
        let stripes: Vec<StripeView> = (0..600).map(|id| view(name, &topology, id, &[])).collect();
        topology.nodes.get_mut(&dead).unwrap().usable = false;
        for method in [Method::Conventional, Method::Ppr, Method::Pipeline] {
            let mut recovery = Recovery::new();
            let (mut helped, mut requested): (BTreeMap<NodeId, u64>, BTreeMap<NodeId, u64>) =
                Default::default();
            for stripe in &stripes {
                let Some(at) = stripe.homes.iter().position(|home| *home == Some(dead)) else { continue };
                let mut stripe = stripe.clone();
                stripe.homes[at] = None;
                let plan = recovery.choose(&stripe, &topology, &[BlockIndex(at as u8)], method, &[]).unwrap();
                for b in &plan.helpers {
                    *helped.entry(stripe.homes[b.0 as usize].unwrap()).or_default() += 1;
                }
                plan.requestors.iter().for_each(|node| *requested.entry(*node).or_default() += 1);
            }
            assert!(!helped.contains_key(&dead) && !requested.contains_key(&dead));
            for (what, load, bound) in [("helper", helped, bound), ("requestor", requested, bound)] {
                assert_eq!(
                    load.len(),
                    topology.nodes.len() - 1,
                    "{name}: all living nodes take part as {what}"
                );
                let mean = load.values().sum::<u64>() as f64 / load.len() as f64;
                let (least, most) =
                    (*load.values().min().unwrap() as f64, *load.values().max().unwrap() as f64);
                assert!(
                    most < bound * mean && least * bound > mean,
                    "{name} {method} as {what}: {least}..{most}, mean {mean}"
                );
            }
        }
    }
}

#[test]
fn an_explanation_tells_the_whole_plan() {
    let topology = topology(5, 4);
    let view = view("rs:n=14,k=10", &topology, 5, &[]);
    let told = explain(&view, &topology, &[BlockIndex(3)], Method::Pipeline, 64).unwrap();
    assert_eq!((told.helpers.len(), told.slices, told.account.blocks_read), (10, 16, 10));
    assert!((told.timeslots - (1.0 + 9.0 / 16.0)).abs() < 1e-9);
    assert_eq!(told.nodes.len(), 11);
    assert!(told.nodes.iter().flat_map(|n| &n.tasks).any(|line| line == "persist v3 as block b3"));
    assert!(told.graph.contains("persisted on") && told.svg().unwrap().starts_with("<svg"));
    let chosen = explain(&view, &topology, &[BlockIndex(3)], Method::Pipeline, 0).unwrap();
    assert_eq!(chosen.slice_bytes, chosen.plan().slice_bytes(view.layout.block_bytes).unwrap());
}

#[test]
fn an_explained_repair_goes_to_the_node_that_can_receive_it_first() {
    let mut topology = topology(1, 24);
    let view = view("rs:n=14,k=10", &topology, 5, &[3]);
    let rate = |rate| NonZeroU64::new(rate).unwrap();
    let spare: Vec<NodeId> =
        topology.nodes.keys().copied().filter(|node| !view.homes.contains(&Some(*node))).collect();
    let (fast, slow) = spare.split_last().unwrap();
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate(1000));
    topology.rates.down.extend(slow.iter().map(|node| (*node, rate(10))));
    let told = explain(&view, &topology, &[BlockIndex(3)], Method::Auto, 64).unwrap();
    assert_eq!(told.requestors, [*fast]);
    let bound = told.compared.unwrap().bound_seconds.unwrap();
    assert!((bound - view.layout.block_bytes as f64 / 1000.0).abs() < 1e-9, "{bound}");
}

#[test]
fn an_explanation_says_whether_the_path_is_proved_best() {
    let mut topology = topology(5, 10);
    let said = |topology: &Topology, name, lost: &[u8], method| {
        let view = view(name, topology, 5, lost);
        let lost: Vec<_> = lost.iter().copied().map(BlockIndex).collect();
        explain(&view, topology, &lost, method, 64).unwrap().path_is_best
    };
    assert_eq!(said(&topology, "rs:n=14,k=10", &[3], Method::Weighted), None, "no rates, no search");
    for pair in 0..50 * 50 {
        let rate = NonZeroU64::new(1 + draw(0, 0, pair) % 1_000_000).unwrap();
        topology.rates.pairs.insert((NodeId(pair as u32 / 50), NodeId(pair as u32 % 50)), rate);
    }
    assert_eq!(said(&topology, "rs:n=14,k=10", &[3], Method::Pipeline), None, "not by rate");
    for lost in [&[3][..], &[3, 8]] {
        assert_eq!(said(&topology, "rs:n=14,k=10", lost, Method::Weighted), Some(true), "{lost:?}");
    }
    let wide =
        (0..32).map(|lost| planned("rs:n=32,k=28", &topology, &[lost], Method::Weighted).1.path_is_best);
    let wide: BTreeSet<_> = wide.collect();
    assert_eq!(wide, BTreeSet::from([Some(false), Some(true)]), "nearly all of many helpers");
}

#[test]
fn offline_encoding_runs_where_fewest_blocks_cross_racks() {
    for (name, racks, nodes) in
        [("rs:n=6,k=4", 1, 6), ("rs:n=14,k=10", 5, 4), ("azure-lrc:n=16,k=12,r=6", 5, 4)]
    {
        let topology = topology(racks, nodes);
        for id in 0..20 {
            let view = view(name, &topology, id, &[]);
            let (n, k) = (view.code.n(), view.code.k());
            let account =
                Account::of(&encode_offline(&view, &topology, Binding::Bound).unwrap(), &topology, 1)
                    .unwrap();
            let rack = |block: usize| topology.rack(view.homes[block].unwrap());
            let crossings = |at: usize| (0..n).filter(|&block| rack(block) != rack(at)).count();
            let fewest = (0..k).map(crossings).min().unwrap();
            assert_eq!(account.bytes_across_racks, fewest as u64, "{name}");
            assert_eq!((account.bytes_moved, account.blocks_read), (n as u64 - 1, k as u64), "{name}");
            // Each parity fetches what it is made of; bound to a parity's home, all data blocks go there.
            let moved = |binding| {
                let plan = encode_offline(&view, &topology, binding).unwrap();
                Account::of(&plan, &topology, 1).unwrap().bytes_moved as usize
            };
            let made_of: usize =
                (k..n).map(|b| view.code.generator().row(b).iter().filter(|c| **c != 0).count()).sum();
            assert_eq!(moved(Binding::Together), n - 1, "{name}");
            if name.starts_with("rs") {
                assert_eq!(moved(Binding::Apart), made_of, "{name}");
            }
        }
    }
}
