//! The worked examples of ChameleonEC's paper, and what re-scheduling does with progress.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, StripeId};

use kintsu_plan::many::{
    Disks, FailedNodes, History, LostBlock, PHASE_SECONDS, Planned, Route, Scene, Step, Underway, in_order,
    phase, reschedule, scheduler,
};
use kintsu_plan::optimal::SharedTree;
use kintsu_plan::traffic::{Link, Loads};
use kintsu_plan::{
    DamagedStripe, Layout, LayoutKind, Method, Rates, Recovery, Schedule, Shares, StripeView, Topology,
    even_cluster,
};

const BLOCK: u64 = 1 << 20;

/// A stripe of RS(4,2) whose last block is lost; the others are on these nodes.
fn stripe(homes: [u32; 5]) -> DamagedStripe {
    let code = kintsu_code::parse("rs:n=6,k=4").unwrap();
    let (kind, cell_bytes) = (LayoutKind::Contiguous, 4096);
    let layout = Layout { kind, block_bytes: BLOCK, cell_bytes, w: 1, data_bytes: 4 * BLOCK };
    let homes = homes.map(|node| Some(NodeId(node))).into_iter().chain([None]).collect();
    let view = StripeView { id: StripeId(1), code, layout, homes };
    DamagedStripe { view, lost: vec![BlockIndex(5)], barred: BTreeSet::new() }
}

/// Nodes 0 and up with these rates up and down, in blocks a second.
fn rated(rates: &[(f64, f64)]) -> Topology {
    let mut topology = even_cluster(rates.len(), 1);
    let rate = |blocks: f64| NonZeroU64::new((blocks * BLOCK as f64) as u64).unwrap();
    let each = || (0..).map(NodeId).zip(rates);
    let up: BTreeMap<_, _> = each().map(|(node, (up, _))| (node, rate(*up))).collect();
    let down: BTreeMap<_, _> = each().map(|(node, (_, down))| (node, rate(*down))).collect();
    topology.rates = Rates { up, down, ..Rates::default() };
    topology
}

fn scene<'a>(topology: &'a Topology, disks: &'a Disks, underway: &'a [(Link, u64)]) -> Scene<'a> {
    Scene { disks, underway, ..Scene::of(topology) }
}

/// The edges of a planned repair along one tree.
fn edges(planned: &Planned) -> Vec<(u32, u32)> {
    planned.sends().into_iter().map(|(from, to, _)| (from.0, to.0)).collect()
}

#[test]
fn figure_8_tasks_go_to_the_nodes_that_would_be_done_first_and_figure_9_pairs_them() {
    let slow = (1.0, 1.0);
    // The drawing has no rates in its text; these give its assignment. Node 5 failed, node 0 is not there.
    let mut rates = [slow, (1.5, 1.0), slow, (4.0, 4.0), (2.2, 2.2), slow, (1.0, 1.0), (1.2, 1.0)];
    rates[2] = (1.0, 0.9);
    let mut topology = rated(&rates);
    for gone in [0, 5] {
        topology.nodes.get_mut(&NodeId(gone)).unwrap().usable = false;
    }
    let (stripe, disks) = (stripe([1, 2, 3, 4, 7]), Disks::default());
    let blocks = LostBlock::all(std::slice::from_ref(&stripe));
    let scene = scene(&topology, &disks, &[]);
    let phase = phase(&scene, &blocks, PHASE_SECONDS);
    // Node 6 has no block of the stripe. N3 gets two downloads, N4 one, N6 one; N1 and N7 only upload.
    assert_eq!(edges(&phase.repairs[0].planned), [(1, 4), (3, 6), (4, 3), (7, 3)]);
    // The slowest task is the only download of N6.
    let slowest = phase.repairs[0].sent_by.values().copied().fold(0.0, f64::max);
    assert!((slowest - 1.0).abs() < 1e-6, "{slowest}");
    let plan = phase.repairs[0].planned.plan(&stripe.view, &topology).unwrap();
    assert_eq!(plan.requestors, [NodeId(6)]);
}

#[test]
fn figure_7_a_helper_gets_its_upload_with_the_first_download_and_no_other_with_the_second() {
    // Node 2 is much faster than the other helpers; the requestor, node 5, receives two blocks as fast.
    let rates = [(1.0, 1.0), (1.0, 1.0), (9.0, 2.6), (1.0, 1.0), (1.0, 1.0), (1.0, 2.5)];
    let (topology, disks) = (rated(&rates), Disks::default());
    let stripe = stripe([0, 1, 2, 3, 4]);
    let blocks = LostBlock::all(std::slice::from_ref(&stripe));
    let scene = scene(&topology, &disks, &[]);
    let phase = phase(&scene, &blocks, PHASE_SECONDS);
    let edges = edges(&phase.repairs[0].planned);
    assert_eq!(edges.iter().map(|(from, _)| *from).collect::<Vec<_>>(), [0, 1, 2, 3]);
    let received = |node| edges.iter().filter(|(_, to)| *to == node).count();
    assert_eq!((received(2), received(5)), (2, 2));
}

#[test]
fn idle_bandwidth_is_that_of_the_node_that_gets_the_task_also_after_the_first_pick() {
    // With equal helpers the first k-1 downloads go to k-1 different nodes, since each pick changes its own node only.
    let (topology, disks) = (rated(&[(1.0, 1.0); 6]), Disks::default());
    let stripe = stripe([0, 1, 2, 3, 4]);
    let blocks = LostBlock::all(std::slice::from_ref(&stripe));
    let phase = phase(&scene(&topology, &disks, &[]), &blocks, PHASE_SECONDS);
    let mut received: BTreeMap<u32, usize> = BTreeMap::new();
    edges(&phase.repairs[0].planned).into_iter().for_each(|(_, to)| *received.entry(to).or_default() += 1);
    assert_eq!(received, BTreeMap::from([(0, 1), (1, 1), (2, 1), (5, 1)]), "a chain");
}

#[test]
fn what_a_phase_could_not_carry_counts_in_the_next_one() {
    // Nodes 5 to 9 may get the blocks. The first one takes 30 seconds of its requestor's time, the others 5.
    let (topology, disks) = (rated(&[(1.0, 1.0); 10]), Disks::default());
    let stripes: Vec<DamagedStripe> = (0..2)
        .map(|id| {
            let mut stripe = stripe([0, 1, 2, 3, 4]);
            stripe.view.id = StripeId(id);
            stripe.view.layout.block_bytes = if id == 0 { 30 * BLOCK } else { 5 * BLOCK };
            stripe.view.layout.data_bytes = 4 * stripe.view.layout.block_bytes;
            stripe
        })
        .collect();
    let blocks = LostBlock::all(&stripes);
    let scene = scene(&topology, &disks, &[]);
    let planned = scheduler("chameleon").unwrap().plan(&scene, &mut History::default(), &blocks);
    let planned: Vec<Planned> = planned.into_iter().map(Result::unwrap).collect();
    assert_ne!(planned[0].requestor, planned[1].requestor);
    // Blocks that all take longer than a phase come one after the other.
    let long: Vec<DamagedStripe> = [&stripes[0]; 3]
        .into_iter()
        .zip(0..)
        .map(|(stripe, id)| {
            let mut stripe = stripe.clone();
            stripe.view.id = StripeId(id);
            stripe
        })
        .collect();
    let planned =
        scheduler("chameleon").unwrap().plan(&scene, &mut History::default(), &LostBlock::all(&long));
    assert_eq!(planned.into_iter().map(|planned| planned.unwrap().turn).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn a_phase_ends_when_its_time_is_full_and_work_left_over_counts_in_the_next() {
    let (topology, disks) = (rated(&[(1.0, 1.0); 8]), Disks::default());
    let stripes: Vec<DamagedStripe> = (0..40)
        .map(|id| {
            let mut stripe = stripe([0, 1, 2, 3, 4].map(|node| (node + id) % 8));
            stripe.view.id = StripeId(id.into());
            stripe
        })
        .collect();
    let blocks = LostBlock::all(&stripes);
    let open = scene(&topology, &disks, &[]);
    let first = phase(&open, &blocks, 5.0);
    assert!(first.refused.is_empty() && first.repairs.len() + first.left.len() == 40);
    // Eight nodes receive 5 blocks each in 5 seconds; a repair receives 4.
    assert!((8..=10).contains(&first.repairs.len()), "{}", first.repairs.len());
    let times = first.repairs.iter().flat_map(|repair| repair.sent_by.values());
    assert!(times.clone().all(|seconds| (1.0 - 1e-6..=5.0 + 1e-6).contains(seconds)), "{first:?}");
    for repair in &first.repairs {
        for (from, to) in edges(&repair.planned) {
            let by = |node: u32| repair.sent_by.get(&NodeId(node)).copied().unwrap_or(f64::INFINITY);
            assert!(by(from) <= by(to), "a helper ends after those that send to it");
        }
    }
    // A block that alone takes longer than the phase is taken all the same, but not beside others.
    assert_eq!(phase(&open, &blocks, 0.5).repairs.len(), 1);
    let mut half = Loads::default();
    first.repairs.iter().for_each(|repair| repair.planned.load(&topology, BLOCK / 2, &mut half));
    let half: Vec<(Link, u64)> = half.iter().collect();
    let second = phase(&scene(&topology, &disks, &half), &first.left, 5.0);
    assert!((3..=6).contains(&second.repairs.len()), "{}", second.repairs.len());
    assert!(phase(&scene(&topology, &disks, &half), &first.left, 0.5).repairs.is_empty());
}

#[test]
fn a_recovery_plans_the_stripes_of_one_phase_and_assigns_nothing_to_those_of_later_ones() {
    let (topology, disks) = (rated(&[(1.0, 1.0); 8]), Disks::default());
    let window: Vec<DamagedStripe> = (0..40)
        .map(|id| {
            let mut stripe = stripe([0, 1, 2, 3, 4].map(|node| (node + id) % 8));
            stripe.view.id = StripeId(id.into());
            // Every other one lost a second block.
            if id % 2 == 1 {
                stripe.view.homes[4] = None;
                stripe.lost = vec![BlockIndex(4), BlockIndex(5)];
            }
            stripe
        })
        .collect();
    let blocks = LostBlock::all(&window);
    let planned = |phase_seconds| {
        let mut recovery = Recovery::new();
        let scene = Scene { phase_seconds, ..scene(&topology, &disks, &[]) };
        let shares = &mut Shares::default();
        let assigned = recovery.phase(Schedule::Balanced, Method::Chameleon, shares, &scene, &window);
        let assigned: Vec<_> = assigned.into_iter().map(Result::unwrap).collect();
        for (assignment, stripe) in assigned.iter().zip(&window) {
            let id = stripe.view.id;
            assert_eq!(recovery.assignment(id).is_some(), !assignment.is_later);
            assert_eq!(assignment.nodes().is_empty(), assignment.is_later);
            let whole = assignment.requestors.len() == stripe.lost.len() && assignment.has_trees();
            assert!(assignment.is_later || whole, "{assignment:?}");
        }
        let now: Vec<StripeId> = assigned.iter().filter(|now| !now.is_later).map(|now| now.stripe).collect();
        let of_phase = phase(&scene, &blocks, phase_seconds).repairs;
        let mut of_phase: Vec<StripeId> = of_phase.iter().map(|repair| repair.planned.stripe).collect();
        of_phase.dedup();
        assert_eq!(now, of_phase);
        now.len()
    };
    // Neither is a part of a stripe left: the first stripe has one lost block, the second one two.
    let spans: Vec<usize> = [0.5, 4.0, 5.0, 6.0, 7.0, 8.0, f64::INFINITY].map(planned).into();
    assert_eq!((spans[0], spans[6]), (1, 40));
    assert!((3..20).contains(&spans[2]) && spans.is_sorted(), "{spans:?}");
}

#[test]
fn where_disks_are_the_bottleneck_their_bandwidth_decides() {
    let topology = rated(&[(100.0, 100.0); 8]);
    let rate = |blocks: u64| NonZeroU64::new(blocks * BLOCK).unwrap();
    let read = (0..8).map(|node| (NodeId(node), rate(if node == 3 { 1 } else { 10 }))).collect();
    let write = (0..8).map(|node| (NodeId(node), rate(if node == 6 { 10 } else { 1 }))).collect();
    let disks = Disks { read, write };
    let stripe = stripe([0, 1, 2, 3, 4]);
    let blocks = LostBlock::all(std::slice::from_ref(&stripe));
    for name in ["chameleon", "auto"] {
        let made =
            scheduler(name).unwrap().plan(&scene(&topology, &disks, &[]), &mut History::default(), &blocks);
        let planned = made[0].clone().unwrap();
        assert_eq!(planned.requestor, NodeId(6), "{name}: the disk that writes fastest");
        assert!(!planned.helpers().contains(&NodeId(3)), "{name}: the disk that reads slowly");
    }
}

#[test]
fn several_failed_nodes_are_repaired_in_three_orders() {
    let (topology, disks) = (
        rated(&[(1.0, 1.0), (0.1, 0.1), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]),
        Disks::default(),
    );
    let with = |id: u64, homes: [u32; 5], lost: &[u8]| {
        let mut stripe = stripe(homes);
        stripe.view.id = StripeId(id);
        stripe.lost = lost.iter().map(|block| BlockIndex(*block)).collect();
        stripe.lost.iter().for_each(|block| stripe.view.homes[usize::from(block.0)] = None);
        stripe
    };
    // The second stripe lost two blocks; the first needs the slow node 1, since it has no other four.
    let stripes = [
        with(1, [0, 1, 2, 3, 9], &[4, 5]),
        with(2, [0, 2, 3, 4, 5], &[5]),
        with(3, [0, 2, 3, 4, 9], &[4, 5]),
    ];
    let failed = |lost: &LostBlock<'_>| NodeId(if lost.block.0 == 5 { 20 } else { 21 });
    let blocks: Vec<(NodeId, LostBlock<'_>)> =
        LostBlock::all(&stripes).into_iter().rev().map(|lost| (failed(&lost), lost)).collect();
    let sorted = |order| -> Vec<(u64, u8)> {
        let sorted = in_order(&scene(&topology, &disks, &[]), &blocks, order);
        sorted.iter().map(|lost| (lost.stripe.view.id.0, lost.block.0)).collect()
    };
    assert_eq!(sorted(FailedNodes::NodeByNode), [(3, 5), (2, 5), (1, 5), (3, 4), (1, 4)]);
    assert_eq!(sorted(FailedNodes::MostLost), [(3, 5), (3, 4), (1, 5), (1, 4), (2, 5)]);
    let shortest = sorted(FailedNodes::Shortest);
    assert_eq!(shortest[3..], [(1, 5), (1, 4)], "{shortest:?}");
}

/// A repair along these edges that should be done at 1 second.
fn underway(id: u64, requestor: u32, parents: &[(u32, Option<u32>)]) -> Underway {
    let parents = parents.iter().map(|(from, to)| (NodeId(*from), to.map(NodeId)));
    let tree = SharedTree { parents: parents.collect(), share: 1 };
    let sent_by = tree.parents.keys().map(|node| (*node, 1.0)).collect();
    let route = Route::Trees(vec![tree]);
    let (stripe, block) = (StripeId(id), BlockIndex(5));
    let planned =
        Planned { stripe, block, bytes: BLOCK, requestor: NodeId(requestor), route, also: vec![], turn: 0 };
    Underway { planned, start: 0, sent_by, sent: BTreeMap::new(), upto: 0, postponed: false }
}

#[test]
fn figure_10_b_a_delayed_download_of_a_helper_is_redirected_to_the_requestor() {
    let (topology, disks) = (rated(&[(1.0, 1.0); 8]), Disks::default());
    let scene = scene(&topology, &disks, &[]);
    // N1 and N3 are done; N2 has sent a half to N4, which waits for it, and so the requestor N6 has a half.
    let mut repair = underway(1, 6, &[(1, Some(2)), (2, Some(4)), (3, Some(4)), (4, None)]);
    repair.sent =
        [(1, BLOCK), (2, BLOCK / 2), (3, BLOCK), (4, BLOCK / 2)].map(|(n, b)| (NodeId(n), b)).into();
    repair.upto = BLOCK / 2;
    assert_eq!(reschedule(&scene, std::slice::from_ref(&repair), 1.4, 0.5), [], "not late yet");
    let steps = reschedule(&scene, std::slice::from_ref(&repair), 2.0, 0.5);
    let [Step::Retune { repair: 0, planned, start, sent_by }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(edges(planned), [(1, 2), (2, 6), (3, 4), (4, 6)]);
    assert_eq!((*start, planned.requestor), (BLOCK / 2, NodeId(6)), "goes on from what is done");
    // Two halves arrive at the requestor.
    assert!((sent_by[&NodeId(2)] - 3.0).abs() < 1e-6 && sent_by.values().all(|by| *by > 2.0), "{sent_by:?}");
}

#[test]
fn figure_10_a_a_repair_that_cannot_be_retuned_waits_until_its_nodes_have_time() {
    let (topology, disks) = (rated(&[(1.0, 1.0); 8]), Disks::default());
    let scene = scene(&topology, &disks, &[]);
    // The requestor N1 of the first repair receives late from N2, which the second repair needs too.
    let late = underway(1, 1, &[(3, Some(2)), (2, None)]);
    let mut other = underway(2, 6, &[(2, Some(5)), (5, None)]);
    other.sent_by = [2, 5].map(|node| (NodeId(node), 9.0)).into();
    let mut first = late.clone();
    first.sent = [(NodeId(3), BLOCK), (NodeId(2), BLOCK / 4)].into();
    first.upto = BLOCK / 4;
    // Alone it goes on, because nothing is gained otherwise.
    assert_eq!(reschedule(&scene, std::slice::from_ref(&first), 2.0, 0.5), []);
    let mut all = vec![first, other];
    assert_eq!(reschedule(&scene, &all, 2.0, 0.5), [Step::Postpone(0)]);
    all[0].postponed = true;
    // N2 still works for the second repair, so the first waits, however long that takes: phases play no part.
    assert_eq!(reschedule(&scene, &all, 8.0, 0.5), []);
    all[1].sent = [(NodeId(2), BLOCK)].into();
    let steps = reschedule(&scene, &all, 8.5, 0.5);
    let [Step::Wake { repair: 0, sent_by }] = &steps[..] else { panic!("{steps:?}") };
    // Three quarters are left.
    assert!((sent_by[&NodeId(2)] - 9.25).abs() < 1e-6, "{sent_by:?}");
}

#[test]
fn of_late_transmissions_the_first_cause_counts() {
    let (topology, disks) = (rated(&[(1.0, 1.0); 8]), Disks::default());
    let scene = scene(&topology, &disks, &[]);
    // A chain whose every transmission is late: only the first of them is redirected.
    let repair = underway(1, 6, &[(1, Some(2)), (2, Some(3)), (3, None)]);
    let steps = reschedule(&scene, &[repair], 2.0, 0.5);
    let [Step::Retune { planned, .. }] = &steps[..] else { panic!("{steps:?}") };
    assert_eq!(edges(planned), [(1, 6), (2, 3), (3, 6)]);
}
