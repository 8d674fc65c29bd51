//! Recovery of a whole node on a live cluster: to one requestor, to several, to all, under every schedule, and
//! while another node dies.

#[allow(dead_code)] // other suites use the rest of it
use crate::lab;

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::{Method, Schedule};
use kintsu_wire::message::{Encoding, NodeLoad, Rates, Repair, RepairTarget, Requestors};
use lab::Lab;

/// Six nodes with stripes on all of them, and more nodes that hold nothing.
async fn lab_with_spares(spares: u32) -> Lab {
    let mut lab = Lab::start(6, 6, Duration::from_secs(600)).await;
    lab.put("a", 4_000_003, "rs:n=5,k=3", Encoding::Online).await;
    for node in 6..6 + spares {
        lab.revive(node).await;
    }
    lab
}

/// The blocks that every node got since `before`.
async fn gained(
    lab: &Lab,
    before: &BTreeMap<NodeId, std::collections::BTreeSet<kintsu_dag::BlockId>>,
) -> BTreeMap<NodeId, usize> {
    let none = Default::default();
    let held = lab.held().await;
    let new =
        held.iter().map(|(node, now)| (*node, now.difference(before.get(node).unwrap_or(&none)).count()));
    new.filter(|(_, count)| *count > 0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_recovered_to_the_requestors_asked_for_evenly() {
    let mut lab = lab_with_spares(3).await;
    let spares = [6, 7, 8].map(NodeId);
    // The rates of the links are told, not measured: the reports then have a bound.
    let rates = Rates::even((0..9).map(NodeId), NonZeroU64::new(1 << 30).unwrap());
    lab.client.set_rates(&rates).await.unwrap();
    assert_eq!(lab.client.rates().await.unwrap(), rates);
    for (dead, schedule, requestors, count) in [
        (0, Schedule::Balanced, Requestors::Nodes(spares.to_vec()), 3),
        (1, Schedule::PushRep, Requestors::Nodes(vec![NodeId(0)]), 1),
    ] {
        let before = lab.held().await;
        lab.kill(dead).await;
        let placed = lab.node(dead).await.placed_blocks;
        assert!(placed >= 15, "{placed}");
        let target = RepairTarget::Node(NodeId(dead));
        let repair = Repair { schedule, requestors, method: Method::Pipeline, ..Repair::new(target) };
        let report = lab.repair_by(repair).await;
        assert_eq!((report.failed.as_slice(), report.blocks), (&[][..], placed));
        assert_eq!(report.schedule, Some(schedule));
        // The blocks of the last stripe are shorter.
        assert!(report.bytes > (placed - 1) * (64 << 10) && report.bytes <= placed * (64 << 10));
        let (least, most) = report.spread(|node| node.requested).unwrap();
        assert!(most - least <= 1 && report.spread(|node| node.helped).is_some());
        let sum = |what: fn(&NodeLoad) -> u64| report.nodes.iter().map(what).sum::<u64>();
        assert_eq!(sum(|node| node.requested), placed);
        assert_eq!((sum(|n| n.up_bytes), sum(|n| n.down_bytes)), (report.bytes_moved, report.bytes_moved));
        let bound = report.bound_seconds.expect("rates are known");
        assert!(bound > 0.0, "{bound}");
        let gained = gained(&lab, &before).await;
        let (least, most) = (gained.values().min().unwrap(), gained.values().max().unwrap());
        assert!(gained.len() == count && most - least <= 1, "{gained:?}");
        assert_eq!(gained.values().sum::<usize>() as u64, placed);
        lab.check_all().await;
        lab.check_places().await;
        // The node comes back empty: it is a spare for the next victim.
        lab.revive(dead).await;
        lab.until("the garbage is gone", async |lab| lab.client.status().await.unwrap().garbage == 0).await;
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_of_a_node_recovered_by_the_best_method_carry_what_their_rates_allow() {
    let mut lab = lab_with_spares(3).await;
    let rate = |node: u32| NonZeroU64::new(if node.is_multiple_of(2) { 1 << 20 } else { 1 << 19 }).unwrap();
    let rates: BTreeMap<NodeId, _> = (0..9).map(|node| (NodeId(node), rate(node))).collect();
    lab.client
        .set_rates(&Rates { up: rates.clone(), down: rates.clone(), ..Rates::default() })
        .await
        .unwrap();
    lab.kill(0).await;
    let placed = lab.node(0).await.placed_blocks;
    let repair = Repair { method: Method::Optimal, ..Repair::new(RepairTarget::Node(NodeId(0))) };
    let report = lab.repair_by(repair).await;
    assert_eq!((report.failed.as_slice(), report.blocks), (&[][..], placed));
    let busy = |node: &NodeLoad| node.up_bytes.max(node.down_bytes) as f64 / rates[&node.node].get() as f64;
    let busiest = report.nodes.iter().map(busy).fold(0.0, f64::max);
    let bound = report.bound_seconds.expect("rates are known");
    assert!(bound <= busiest && bound >= 0.85 * busiest, "{bound} of {busiest}");
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_recovered_by_the_published_schedulers() {
    let mut lab = Lab::with(9, 9, |config| config.phase = Duration::from_secs(1)).await;
    lab.put("a", 4_000_003, "rs:n=5,k=3", Encoding::Online).await;
    // A block is said to take half a second over a link, so a phase of ChameleonEC takes only some of the stripes.
    let rates = Rates::even((0..9).map(NodeId), NonZeroU64::new(128 << 10).unwrap());
    lab.client.set_rates(&rates).await.unwrap();
    let methods =
        [Method::Chameleon, Method::ChameleonStatic, Method::BoostCr, Method::BoostPpr, Method::BoostEcpipe];
    for (dead, method) in (0..).zip(methods) {
        lab.kill(dead).await;
        let placed = lab.node(dead).await.placed_blocks;
        assert!(placed > 0);
        let report = lab.repair(RepairTarget::Node(NodeId(dead)), method).await;
        assert_eq!((report.failed.as_slice(), report.blocks), (&[][..], placed), "{method}");
        assert_eq!(report.method, Some(method));
        assert_eq!(lab.node(dead).await.placed_blocks, 0);
        lab.check_all().await;
        lab.check_places().await;
        lab.revive(dead).await;
        lab.until("the garbage is gone", async |lab| lab.client.status().await.unwrap().garbage == 0).await;
    }
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_that_no_requestor_may_take_are_told_one_by_one() {
    let mut lab = lab_with_spares(0).await;
    lab.kill(0).await;
    let (before, placed) = (lab.held().await, lab.node(0).await.placed_blocks);
    // Five blocks on six nodes: one survivor without a block is left for each stripe.
    let requestors = Requestors::Nodes(vec![NodeId(3)]);
    let repair = Repair { requestors, ..Repair::new(RepairTarget::Node(NodeId(0))) };
    let report = lab.repair_by(repair).await;
    let gained = gained(&lab, &before).await;
    assert!(gained.keys().eq(&[NodeId(3)]) && gained[&NodeId(3)] as u64 == report.blocks, "{gained:?}");
    assert_eq!(report.blocks + report.failed.len() as u64, placed);
    assert!(report.failed.iter().all(|f| f.contains("among the requestors N3")), "{:?}", report.failed);
    let rest = lab.repair_by(Repair::new(RepairTarget::Node(NodeId(0)))).await;
    assert_eq!((rest.blocks, rest.failed.len()), (placed - report.blocks, 0));
    lab.check_all().await;
    lab.check_places().await;
    lab.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_goes_on_when_another_node_dies() {
    let mut lab = Lab::start(9, 3, Duration::from_secs(600)).await;
    lab.put("a", 6_000_001, "rs:n=6,k=3", Encoding::Online).await;
    for (first, second, schedule) in [(0, 1, Schedule::Balanced), (0, 4, Schedule::PushSur)] {
        lab.kill(first).await;
        let repair = Repair { schedule, ..Repair::new(RepairTarget::All) };
        let client = lab.client.clone();
        let running = tokio::spawn(async move { lab::report(client.repair_by(repair).await.unwrap()).await });
        lab.kill(second).await;
        let report = running.await.unwrap();
        assert_eq!(report.failed, [""; 0]);
        let rest = lab.repair_by(Repair::new(RepairTarget::All)).await;
        assert_eq!(rest.failed, [""; 0]);
        lab.check_all().await;
        lab.check_places().await;
        for node in [first, second] {
            lab.revive(node).await;
        }
        lab.until("the garbage is gone", async |lab| lab.client.status().await.unwrap().garbage == 0).await;
    }
    lab.stop().await;
}
