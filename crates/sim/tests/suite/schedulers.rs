//! Schedulers of many repairs, played as flows: how near to the bound they come, each at its best.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::many::SCHEDULERS;
use kintsu_plan::{Rates, Topology, even_cluster};
use kintsu_sim::{Cluster, Failure, Options, Overheads, Spread, Stray, least_seconds, schedule};

const RATE: u64 = 50_000_000 / 8;

/// One rack; every `every`-th node has half the rate.
fn nodes(count: usize, every: u32) -> Topology {
    let mut topology = even_cluster(count, 1);
    let rate = |node: &NodeId| NonZeroU64::new(if node.0 % every == 1 { RATE / 2 } else { RATE }).unwrap();
    let up: BTreeMap<_, _> = topology.nodes.keys().map(|node| (*node, rate(node))).collect();
    topology.rates = Rates { down: up.clone(), up, ..Rates::default() };
    topology
}

/// The part of the bound that each scheduler reaches at its best number of repairs at once.
fn reached(topology: &Topology, code: &str, requestors: usize) -> BTreeMap<&'static str, f64> {
    let code = kintsu_code::parse(code).unwrap();
    let (topology, stripes) = (topology.clone(), 32 * topology.nodes.len() as u64 / code.n() as u64);
    let cluster = Cluster { topology, code, block_bytes: 2 << 20, stripes, spread: Spread::Random, seed: 7 };
    let options = Options {
        requestors: Some(requestors),
        slice_bytes: 0,
        at_once: None,
        per_node: None,
        overheads: Overheads::default(),
    };
    let failed = cluster.failed(Failure::Node(NodeId(3))).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    let bound = least_seconds(&cluster, &failed, &lost, &options).unwrap();
    let best = |scheduler| {
        let played = Stray::ALL.map(|stray| {
            let scheduled = schedule(&cluster, &failed, &lost, (scheduler, stray), &options).unwrap();
            [8, 16, 32, 64].map(|at_once| scheduled.play(&options, at_once).unwrap())
        });
        for played in played.as_flattened() {
            // Nothing is counted twice or forgotten: no link carries its load faster than its rate.
            assert!(played.seconds >= played.busiest_seconds * 0.999_999, "{played:?}");
            assert!(bound <= played.seconds * 1.000_001 && played.blocks == lost.len(), "{bound} {played:?}");
        }
        bound / played.as_flattened().iter().map(|played| played.seconds).fold(f64::INFINITY, f64::min)
    };
    SCHEDULERS.iter().map(|scheduler| (scheduler.name, best(scheduler))).collect()
}

#[test]
fn auto_comes_near_the_bound_and_hardly_anything_comes_nearer() {
    for (name, topology) in [("alike", nodes(17, u32::MAX)), ("of two speeds", nodes(17, 2))] {
        for code in ["rs:n=14,k=10", "rs:n=9,k=6"] {
            for requestors in [1, 4, 16] {
                let reached = reached(&topology, code, requestors);
                let auto = reached["auto"];
                assert!(auto >= 0.94, "{code} on nodes {name}, {requestors} requestors: {reached:?}");
                let others = reached.values().all(|other| *other <= auto * 1.01);
                assert!(others, "{code} on nodes {name}, {requestors} requestors: {reached:?}");
            }
        }
    }
}

#[test]
fn options_out_of_range_are_refused() {
    let code = kintsu_code::parse("rs:n=9,k=6").unwrap();
    let topology = nodes(12, 2);
    let cluster =
        Cluster { topology, code, block_bytes: 1 << 20, stripes: 9, spread: Spread::Random, seed: 7 };
    let failed = cluster.failed(Failure::Node(NodeId(3))).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    let options = Options {
        requestors: Some(0),
        slice_bytes: 1 << 15,
        at_once: None,
        per_node: None,
        overheads: Overheads::default(),
    };
    assert!(schedule(&cluster, &failed, &lost, (&SCHEDULERS[0], Stray::Together), &options).is_err());
    let options = Options { requestors: None, ..options };
    let scheduled = schedule(&cluster, &failed, &lost, (&SCHEDULERS[0], Stray::Together), &options).unwrap();
    assert!(scheduled.play(&options, 0).is_err() && scheduled.repairs() == lost.len());
}

/// Hosts in three racks; a rack's link carries as much as that of one host.
fn racks(hosts: usize) -> Topology {
    let mut topology = even_cluster(hosts, 3);
    let rate = NonZeroU64::new(RATE).unwrap();
    topology.rates = Rates::even(topology.nodes.keys().copied(), rate);
    topology.rates.rack_up = (0..3).map(|rack| (RackId(rack), rate)).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    topology
}

#[test]
fn the_bound_is_near_where_links_of_racks_are_scarce_and_nothing_beats_it() {
    let options = Options {
        requestors: None,
        slice_bytes: 32 << 10,
        at_once: None,
        per_node: None,
        overheads: Overheads::default(),
    };
    let cases: [(usize, &str, &[u32], f64); 4] = [
        (9, "rs:n=6,k=4", &[3], 0.97),
        (9, "azure-lrc:n=8,k=4,r=2", &[3], 0.9),
        (9, "rs:n=6,k=4", &[3, 8], 0.95),
        (12, "azure-lrc:n=8,k=4,r=2", &[3, 8], 0.71),
    ];
    for (hosts, code, failed, near) in cases {
        let failed = failed.iter().map(|node| NodeId(*node)).collect();
        let (topology, code) = (racks(hosts), kintsu_code::parse(code).unwrap());
        let (block_bytes, stripes) = (2 << 20, 40);
        let cluster = Cluster { topology, code, block_bytes, stripes, spread: Spread::Random, seed: 7 };
        let lost = cluster.lost(&failed).unwrap();
        let bound = least_seconds(&cluster, &failed, &lost, &options).unwrap();
        let part = |scheduler| {
            let scheduled =
                schedule(&cluster, &failed, &lost, (scheduler, Stray::Together), &options).unwrap();
            bound / scheduled.play(&options, 32).unwrap().busiest_seconds
        };
        let parts = SCHEDULERS.iter().map(part).fold(0.0, f64::max);
        assert!(parts >= near && parts <= 1.000_001, "{hosts} hosts, {failed:?}: {parts}");
    }
}
