//! Recovery of whole nodes: the two players agree, no bytes are lost, and no schedule is faster than its busiest
//! link allows.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::{Layout, LayoutKind, Method, Rates, Repair, StripeView, Topology, even_cluster, repair};
use kintsu_sim::fluid::{Limits, play};
use kintsu_sim::{
    Cluster, Failure, Grain, Network, Options, Outcome, Overheads, RepairModel, Scheme, SimError, Spread,
    recover, simulate,
};

const RATE: u64 = 1_000_000;
const BLOCK: u64 = 1 << 22;

fn cluster(nodes: usize, racks: usize, code: &str, stripes: u64) -> Cluster {
    let mut topology = even_cluster(nodes, racks);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(RATE).unwrap());
    let code = kintsu_code::parse(code).unwrap();
    Cluster { topology, code, block_bytes: BLOCK, stripes, spread: Spread::Random, seed: 7 }
}

fn options() -> Options {
    Options {
        requestors: None,
        slice_bytes: 1 << 15,
        at_once: None,
        per_node: None,
        overheads: Overheads::default(),
    }
}

fn recovered(cluster: &Cluster, failure: Failure, scheme: Scheme, options: &Options) -> Outcome {
    let failed = cluster.failed(failure).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    let mut done = 0;
    let outcome = recover(cluster, &failed, &lost, scheme, options, &mut |n| done = n).unwrap();
    assert_eq!(done, lost.len() as u64);
    outcome
}

fn fluid(plan: &kintsu_plan::Plan, topology: &Topology, grain: Grain, overheads: &Overheads) -> f64 {
    let network = Network::new(topology, overheads);
    let job = RepairModel::of(plan, &network, topology, BLOCK, grain, overheads).unwrap();
    let limits = Limits { at_once: 1, per_node: None, tolerance: 0.0 };
    play(&network, [Ok(job)].into_iter(), &limits, &mut |_| {}).unwrap().seconds
}

#[test]
fn both_players_agree_on_single_repairs() {
    let base = cluster(16, 4, "rs:n=9,k=6", 1);
    let code = base.code.clone();
    let layout = Layout {
        kind: LayoutKind::Contiguous,
        block_bytes: BLOCK,
        cell_bytes: 4096,
        w: 1,
        data_bytes: 6 * BLOCK,
    };
    let homes = (0..9).map(|i| Some(NodeId(i))).collect();
    let view = StripeView { id: StripeId(0), code, layout, homes };
    let rate = |r: u64| NonZeroU64::new(r).unwrap();
    let mut slow = base.topology.clone();
    slow.rates.rack_up.extend((0..4).map(|rack| (RackId(rack), rate(RATE / 3))));
    slow.rates.up.insert(NodeId(3), rate(RATE / 2));
    let some = Overheads {
        wire: 1.05,
        frame_bytes: 32.0,
        hop_seconds: 1e-4,
        slice_seconds: 1e-4,
        ..Overheads::default()
    };
    for topology in [&base.topology, &slow] {
        for (method, overheads) in [Method::Conventional, Method::Pipeline, Method::Ppr]
            .into_iter()
            .flat_map(|method| [(method, Overheads::default()), (method, some)])
        {
            let wanted = Repair { lost: vec![BlockIndex(0)], requestors: vec![NodeId(10)], method };
            let plan = repair(&view, topology, &wanted, &|_| 0, &[]).unwrap().plan;
            let (slice, whole) = (1 << 14, BLOCK);
            let exact = simulate(&plan, topology, BLOCK, slice, &overheads).unwrap().seconds;
            let flows = fluid(&plan, topology, Grain::Slices(slice), &overheads);
            assert!((flows / exact - 1.0).abs() < 0.03, "{method}: {exact} by slices, {flows} as flows");
            if method != Method::Conventional {
                let exact = simulate(&plan, topology, BLOCK, whole, &overheads).unwrap().seconds;
                let rounds = fluid(&plan, topology, Grain::Blocks, &overheads);
                // Both start a block as soon as those that it is made of are there. Flows share a link, the other player
                // serves blocks one after the other.
                assert!((rounds / exact - 1.0).abs() < 0.05, "{method}: {exact}, {rounds}");
            }
        }
    }
}

#[test]
fn what_a_node_lost_is_repaired_and_counted() {
    let cluster = cluster(40, 8, "rs:n=14,k=10", 400);
    let failed = cluster.failed(Failure::Node(NodeId(5))).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    assert!((90..190).contains(&lost.len()), "{}", lost.len());
    for scheme in Scheme::ALL {
        let outcome = recovered(&cluster, Failure::Node(NodeId(5)), scheme, &options());
        assert_eq!(outcome.stripes, lost.len() as u64);
        assert_eq!(outcome.repaired_bytes, lost.len() as u64 * BLOCK);
        assert!((outcome.moved_per_block - 10.0).abs() < 1e-9, "{scheme}");
        // 39 nodes cannot send ten blocks for each lost one any faster.
        let floor = 10.0 * outcome.repaired_bytes as f64 / (39 * RATE) as f64;
        assert!(outcome.seconds >= floor, "{scheme}: {} below {floor}", outcome.seconds);
        let bound = outcome.bound_seconds.unwrap();
        assert!(bound >= floor * 0.999 && bound <= outcome.seconds, "{scheme}: {bound} {}", outcome.seconds);
        assert_eq!(
            outcome,
            recovered(&cluster, Failure::Node(NodeId(5)), scheme, &options()),
            "the same again"
        );
    }
}

#[test]
fn pipelines_with_one_requestor_are_held_by_its_link_and_stars_by_ten_of_them() {
    let cluster = cluster(30, 30, "rs:n=14,k=10", 200);
    let one = Options { requestors: Some(1), ..options() };
    let of = |scheme| recovered(&cluster, Failure::Node(NodeId(0)), scheme, &one);
    let (pipeline, star) = (of(Scheme::Pipeline), of(Scheme::Conventional));
    // Some stripes have a block on the one requestor; they are repaired at other nodes.
    let least = pipeline.repaired_bytes as f64 / RATE as f64;
    assert!(pipeline.seconds < least, "{} {least}", pipeline.seconds);
    assert!(pipeline.seconds > 0.4 * least, "{} {least}", pipeline.seconds);
    assert!(star.seconds > 5.0 * pipeline.seconds, "{} {}", star.seconds, pipeline.seconds);
    assert!(of(Scheme::PushRep).seconds >= pipeline.seconds * 0.99);
}

#[test]
fn racks_are_kept_and_a_lost_one_is_repaired() {
    let cluster = cluster(48, 8, "rs:n=9,k=6", 300);
    let rack = Failure::Rack(RackId(2));
    let lost = cluster.lost(&cluster.failed(rack).unwrap()).unwrap();
    assert!(lost.iter().all(|stripe| (1..=3).contains(&stripe.lost().len())));
    assert!(lost.iter().any(|stripe| stripe.lost().len() > 1));
    let outcome = recovered(&cluster, rack, Scheme::Pipeline, &options());
    assert_eq!(outcome.blocks, lost.iter().map(|stripe| stripe.lost().len() as u64).sum::<u64>());
    assert!(outcome.across_racks_per_block <= outcome.moved_per_block);
    assert!(outcome.bound_seconds.unwrap() <= outcome.seconds);
    let placed = Cluster { spread: Spread::Placed, ..cluster };
    assert!(recovered(&placed, rack, Scheme::Conventional, &options()).seconds > 0.0);
}

#[test]
fn limits_hold_and_ends_taken_together_cost_little() {
    let cluster = cluster(40, 8, "rs:n=9,k=6", 300);
    let node = Failure::Node(NodeId(1));
    let free = recovered(&cluster, node, Scheme::Pipeline, &options());
    let single = Options { at_once: Some(1), ..options() };
    let serial = recovered(&cluster, node, Scheme::Pipeline, &single);
    let each = (BLOCK + 5 * (1 << 15)) as f64 / RATE as f64;
    assert!((serial.seconds / (serial.stripes as f64 * each) - 1.0).abs() < 1e-6);
    let apart = Options { per_node: Some(1), ..options() };
    let apart = recovered(&cluster, node, Scheme::Pipeline, &apart);
    assert!(free.seconds < apart.seconds * 1.05 && apart.seconds < serial.seconds);
    let nothing = Options { at_once: Some(0), ..options() };
    let failed = cluster.failed(node).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    let error = recover(&cluster, &failed, &lost, Scheme::Pipeline, &nothing, &mut |_| {}).unwrap_err();
    assert!(matches!(error, SimError::Invalid { .. }), "{error}");
    assert!(cluster.failed(Failure::Node(NodeId(99))).is_err());
    assert!("push".parse::<Scheme>().unwrap_err().to_string().contains("push-rep"));
}

/// Loses one of these nodes with RS(14,10); returns bound / time of the scheme.
fn reached(topology: Topology, stripes: u64, requestors: Option<usize>, scheme: Scheme) -> f64 {
    let code = kintsu_code::parse("rs:n=14,k=10").unwrap();
    let cluster = Cluster { topology, code, block_bytes: 64 << 20, stripes, spread: Spread::Random, seed: 7 };
    let options = Options { requestors, slice_bytes: 1 << 16, ..options() };
    let outcome = recovered(&cluster, Failure::Node(NodeId(3)), scheme, &options);
    outcome.bound_seconds.unwrap() / outcome.seconds
}

#[test]
fn trees_planned_together_come_near_the_bound() {
    let even = |nodes| cluster(nodes, 1, "rs:n=14,k=10", 0).topology;
    let mut two_speeds = even(33);
    let slow = two_speeds.nodes.keys().filter(|node| node.0 % 2 == 1);
    let slow: Vec<_> = slow.map(|node| (*node, NonZeroU64::new(RATE * 2 / 5).unwrap())).collect();
    two_speeds.rates.up.extend(slow.iter().copied());
    two_speeds.rates.down.extend(slow);
    for (name, topology, stripes) in [
        ("16 nodes left", even(17), 80),
        ("32 nodes left", even(33), 160),
        ("of two speeds", two_speeds, 160),
    ] {
        for requestors in [Some(16), None] {
            let optimal = reached(topology.clone(), stripes, requestors, Scheme::Optimal);
            let pipeline = reached(topology.clone(), stripes, requestors, Scheme::Pipeline);
            assert!(optimal >= 0.96, "{name}, {requestors:?}: {optimal}");
            // Chains get balanced links, too, and as many repairs at once as suit them best.
            assert!(pipeline < optimal - 0.03, "{name}, {requestors:?}: {pipeline} {optimal}");
        }
    }
}

#[test]
fn racks_with_narrow_links_are_used_as_well_as_they_can_be() {
    let mut topology = cluster(33, 4, "rs:n=14,k=10", 0).topology;
    let rate = NonZeroU64::new(8 * RATE * 2 / 5).unwrap();
    topology.rates.rack_up = (0..4).map(|rack| (RackId(rack), rate)).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    let optimal = reached(topology.clone(), 160, None, Scheme::Optimal);
    assert!(optimal >= 0.95, "{optimal}");
    // 14 of the 16 requestors are in two of the four racks. The bound counts what enters these, too.
    let some = reached(topology, 160, Some(16), Scheme::Optimal);
    assert!(some >= 0.95, "{some}");
}
