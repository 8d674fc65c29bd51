//! Times that are known in closed form: those of the papers, on equal and on unequal links.

#![allow(clippy::unwrap_used)]

use std::num::NonZeroU64;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::Link;
use kintsu_plan::{
    Account, Layout, LayoutKind, Method, Plan, Rates, Repair, StripeView, Topology, even_cluster, repair,
};
use kintsu_sim::{Network, Overheads, simulate, simulate_on};

const RATE: u64 = 1_000_000;
const BLOCK: u64 = 6_000_000;

fn cluster(nodes: usize, racks: usize) -> Topology {
    let mut topology = even_cluster(nodes, racks);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(RATE).unwrap());
    topology
}

fn view(code: &str) -> StripeView {
    let code: Arc<dyn kintsu_code::Code> = kintsu_code::parse(code).unwrap();
    let cell_bytes = 4096 * code.w() as u32;
    let block_bytes = BLOCK.div_ceil(u64::from(cell_bytes)) * u64::from(cell_bytes);
    let layout = Layout {
        kind: LayoutKind::Contiguous,
        block_bytes,
        cell_bytes,
        w: code.w() as u16,
        data_bytes: code.k() as u64 * block_bytes,
    };
    let homes = (0..code.n() as u32).map(|i| Some(NodeId(i))).collect();
    StripeView { id: StripeId(1), code, layout, homes }
}

/// The first blocks are lost and repaired on the nodes after those of the stripe.
fn planned(code: &str, lost: u8, method: Method, topology: &Topology) -> Plan {
    let view = view(code);
    let n = view.code.n() as u32;
    let wanted = Repair {
        lost: (0..lost).map(BlockIndex).collect(),
        requestors: (0..u32::from(lost)).map(|i| NodeId(n + i)).collect(),
        method,
    };
    repair(&view, topology, &wanted, &|_| 0, &[]).unwrap().plan
}

/// The time of a plan, in units of the time of a block over a link.
fn slots(plan: &Plan, topology: &Topology, slices: u64) -> f64 {
    let simulated = simulate(plan, topology, BLOCK, BLOCK / slices, &Overheads::default()).unwrap();
    simulated.seconds * RATE as f64 / BLOCK as f64
}

fn close(got: f64, expected: f64) {
    assert!((got / expected - 1.0).abs() < 1e-6, "expected {expected}, got {got}");
}

#[test]
fn equal_links_give_the_times_of_the_papers() {
    let topology = cluster(20, 1);
    for k in [1u8, 2, 4, 6, 10] {
        let code = format!("rs:n={},k={k}", k + 4);
        let plan = |lost, method| planned(&code, lost, method, &topology);
        let hops = f64::from(k);
        for slices in [1u64, 10, 100, 1000] {
            close(slots(&plan(1, Method::Pipeline), &topology, slices), 1.0 + (hops - 1.0) / slices as f64);
            close(slots(&plan(1, Method::Conventional), &topology, slices), hops);
            for f in [2u8, 3, 4] {
                let fill = f64::from(f) * (1.0 + (hops - 1.0) / slices as f64);
                close(slots(&plan(f, Method::Pipeline), &topology, slices), fill);
            }
        }
        close(slots(&plan(1, Method::Ppr), &topology, 1), (hops + 1.0).log2().ceil());
        close(slots(&plan(3, Method::Conventional), &topology, 1), hops + 2.0);
        // The computation by whole ticks agrees.
        for (lost, method) in [(1, Method::Pipeline), (2, Method::Pipeline), (1, Method::Conventional)] {
            let plan = plan(lost, method);
            close(slots(&plan, &topology, 600), plan.timeslots(600).unwrap());
        }
    }
}

#[test]
fn long_blocks_are_reckoned_on_from_the_stride() {
    let topology = cluster(20, 1);
    let plan = planned("rs:n=14,k=10", 1, Method::Pipeline, &topology);
    for slices in [2000u64, 60_000] {
        close(slots(&plan, &topology, slices), 1.0 + 9.0 / slices as f64);
    }
}

#[test]
fn a_path_is_as_slow_as_its_slowest_link() {
    let mut topology = cluster(20, 1);
    let plan = planned("rs:n=9,k=6", 1, Method::Pipeline, &topology);
    let last = plan.lanes[0].placed.lower().unwrap();
    let sender = last.iter().find(|tasks| tasks.sends.iter().any(|(_, to)| *to == NodeId(9))).unwrap().node;
    topology.rates.pairs.insert((sender, NodeId(9)), NonZeroU64::new(RATE / 4).unwrap());
    // Five hops of a slice at full rate, then all slices at a quarter.
    close(slots(&plan, &topology, 100), 4.0 + 5.0 / 100.0);
    topology.rates = Rates::default();
    assert_eq!(slots(&plan, &topology, 100), 0.0);
}

/// Links between racks that are faster, or slower, than those of nodes: a slice goes through all of them at once.
#[test]
fn a_slice_is_as_slow_as_the_slowest_link_on_its_way() {
    let mut topology = cluster(20, 20);
    for (rack_rate, slots_of_a_block) in [(10 * RATE, 1.0), (RATE, 1.0), (RATE / 4, 4.0)] {
        let racks = (0..20).map(|rack| (RackId(rack), NonZeroU64::new(rack_rate).unwrap()));
        topology.rates.rack_up = racks.clone().collect();
        topology.rates.rack_down = racks.collect();
        let plan = planned("rs:n=9,k=6", 1, Method::Pipeline, &topology);
        close(slots(&plan, &topology, 100), slots_of_a_block * (1.0 + 5.0 / 100.0));
    }
}

/// Lanes that take turns share the slow link at the end of the path: ECPipe, section 4.1.
#[test]
fn lanes_share_the_edges() {
    let mut topology = cluster(20, 1);
    let chain = planned("rs:n=9,k=6", 1, Method::Pipeline, &topology);
    let mut lane = chain.lanes[0].clone();
    lane.share = 2;
    let twice = Plan::new(vec![chain.lanes[0].clone(), lane]);
    // The same path twice: each gets half, and fills at half the rate.
    let got = slots(&twice, &topology, 300);
    assert!((1.0..1.04).contains(&got), "{got}");
    let rates = &mut topology.rates;
    rates.down.insert(NodeId(9), NonZeroU64::new(RATE / 10).unwrap());
    let got = slots(&twice, &topology, 300);
    assert!((10.0..10.1).contains(&got), "{got}");
}

/// Cyclic paths whose first senders are limited to the rate of the links do not delay each other.
#[test]
fn who_is_held_back_does_not_hold_up_others() {
    let topology = cluster(20, 1);
    let plan = planned("rs:n=14,k=10", 1, Method::Cyclic, &topology);
    let rate = plan.rate_limit().unwrap().get() as f64 / RATE as f64;
    assert!((0.94..=0.95).contains(&rate), "{rate}");
    let held = slots(&plan, &topology, 900);
    let free = slots(&Plan { rate_limited: false, ..plan.clone() }, &topology, 900);
    // The last slice starts just before the end, and passes ten links that other slices use as well.
    assert!(held > 1.0 / rate * 0.99 && held < 1.0 / rate + 0.05, "{held}");
    assert!(free > 1.0, "{free}");
    // Long blocks go on at that rate.
    let long = slots(&plan, &topology, 9000);
    assert!((long * rate - 1.0).abs() < 0.02, "{long}");
}

#[test]
fn overheads_delay_hops_and_bound_streams() {
    let topology = cluster(20, 1);
    let plan = planned("rs:n=14,k=10", 1, Method::Pipeline, &topology);
    let seconds =
        |overheads: &Overheads| simulate(&plan, &topology, BLOCK, 60_000, overheads).unwrap().seconds;
    let slice = 60_000.0 / RATE as f64;
    let none = Overheads::default();
    close(seconds(&none), 109.0 * slice);
    close(seconds(&Overheads { start_seconds: 2.0, ..none }), 2.0 + 109.0 * slice);
    close(seconds(&Overheads { hop_seconds: 0.5, ..none }), 109.0 * slice + 10.0 * 0.5);
    // Where handling takes less time than sending, it delays each hop once. Where it takes more, it is the
    // bottleneck.
    close(seconds(&Overheads { slice_seconds: slice / 2.0, ..none }), 109.0 * slice + 10.0 * slice / 2.0);
    close(seconds(&Overheads { slice_seconds: 2.0 * slice, ..none }), 2.0 * 109.0 * slice + 10.0 * slice);
    close(seconds(&Overheads { wire: 1.1, frame_bytes: 600.0, ..none }), 109.0 * slice * 1.01 * 1.1);
    // A disk of half the rate; the slices are read one after the other.
    let disk = Some(RATE as f64 / 2.0);
    close(seconds(&Overheads { disk_read: disk, ..none }), 200.0 * slice + 10.0 * slice);
    close(seconds(&Overheads { disk_write: disk, ..none }), 10.0 * slice + 200.0 * slice);
    let wrong = Overheads { wire: 0.5, ..none };
    let error = simulate(&plan, &topology, BLOCK, 60_000, &wrong).unwrap_err().to_string();
    assert_eq!(error, "wire: expected 1 or more, got 0.5");
    assert!(simulate(&plan, &topology, BLOCK, 0, &none).is_err());
}

/// The first bytes after a pause pass at once, on each link of a path: what the longest queue has to carry is less by them, and
/// a path fills sooner.
#[test]
fn a_bucket_lets_the_first_bytes_pass_at_once() {
    let topology = cluster(20, 1);
    let none = Overheads::default();
    let seconds = |method, burst: f64| {
        let plan = planned("rs:n=9,k=6", 1, method, &topology);
        let network = Network::new(&topology, &none).with_bursts(|_| burst);
        simulate_on(&network, &plan, &topology, BLOCK, BLOCK / 100, &none).unwrap().seconds
    };
    let (block, slice) = (BLOCK as f64 / RATE as f64, BLOCK as f64 / RATE as f64 / 100.0);
    // Three slices: the first one is at the requestor at once.
    let three = 3.0 * slice;
    close(seconds(Method::Pipeline, three * RATE as f64), block - three);
    close(seconds(Method::Conventional, three * RATE as f64), 6.0 * block - three);
    close(seconds(Method::PipeB, three * RATE as f64), 6.0 * (block - three));
    // Half a slice: each of the five later hops waits for the other half.
    let half = slice / 2.0;
    close(seconds(Method::Pipeline, half * RATE as f64), block - half + 5.0 * half);
    close(seconds(Method::Pipeline, 0.0), block + 5.0 * slice);
}

#[test]
fn bytes_on_links_are_those_of_the_account() {
    let topology = cluster(24, 4);
    let codes = ["rs:n=9,k=6", "azure-lrc:n=16,k=12,r=6", "clay:n=6,k=4,d=5", "hitchhiker-xor:n=9,k=6"];
    for (code, method) in codes.iter().flat_map(|code| Method::ALL.map(|method| (*code, method))) {
        let plan = planned(code, 1, method, &topology);
        let block = view(code).layout.block_bytes;
        let slice = u64::from(view(code).layout.cell_bytes);
        let simulated = simulate(&plan, &topology, block, slice, &Overheads::default()).unwrap();
        let account = Account::of(&plan, &topology, block).unwrap();
        let of = |link: Link| simulated.links.get(&link).copied().unwrap_or(0);
        // Where lanes share a block, each of them rounds what it sends, so only the time is looked at.
        let exact = plan.lanes.len() == 1;
        let same = |a: u64, b: u64| a == b || !exact;
        for (node, bytes) in &account.sent {
            assert!(same(of(Link::NodeUp(*node)), *bytes), "{code} {method} {node}");
        }
        for (node, bytes) in &account.received {
            assert!(same(of(Link::NodeDown(*node)), *bytes), "{code} {method} {node}");
        }
        let across: u64 = simulated
            .links
            .iter()
            .filter_map(|(link, bytes)| matches!(link, Link::RackUp(_)).then_some(*bytes))
            .sum();
        assert!(same(across, account.bytes_across_racks), "{code} {method}");
        let slowest = account.max_link_bytes as f64 / RATE as f64;
        let rounding = if exact { 1e-9 } else { 1e-3 };
        assert!(simulated.seconds >= slowest * (1.0 - rounding), "{code} {method}");
        let again = simulate(&plan, &topology, block, slice, &Overheads::default()).unwrap();
        assert_eq!(simulated, again);
    }
}

#[test]
fn the_baselines_are_played_at_their_pace() {
    let topology = cluster(20, 1);
    let plan = |method, lost| planned("rs:n=9,k=6", lost, method, &topology);
    close(slots(&plan(Method::PipeB, 1), &topology, 100), 6.0);
    // A slice that arrives early waits in the receiver's socket, so links alone do not make a serial chain slower.
    for lost in [1, 2] {
        close(
            slots(&plan(Method::PipeS, lost), &topology, 100),
            slots(&plan(Method::Flat, lost), &topology, 100),
        );
    }
    // Nothing is read ahead: a slice is read, and then it is sent.
    let seconds = |method, disk: u64| {
        let overheads = Overheads { disk_read: Some(disk as f64), ..Overheads::default() };
        simulate(&plan(method, 1), &topology, BLOCK, BLOCK / 100, &overheads).unwrap().seconds
    };
    let slice = (BLOCK / 100) as f64 / RATE as f64;
    close(seconds(Method::Flat, RATE / 2), 200.0 * slice + 6.0 * slice);
    close(seconds(Method::PipeS, RATE / 2), 300.0 * slice + 5.0 * slice);
}

#[test]
fn passages_are_those_of_the_slices_and_end_when_the_repair_does() {
    let topology = cluster(20, 1);
    for (method, seconds) in [(Method::Conventional, 36.0), (Method::Flat, 6.0 * 1.5), (Method::PipeS, 9.0)] {
        let plan = planned("rs:n=9,k=6", 1, method, &topology);
        let passages =
            kintsu_sim::passages(&plan, &topology, BLOCK, BLOCK / 10, &Overheads::default()).unwrap();
        assert_eq!(passages.len(), 60, "{method}: six transfers of ten slices");
        close(passages.last().unwrap().ends, seconds);
        let slice = 6.0 / 10.0;
        assert!(passages.iter().all(|p| (p.ends - p.starts - slice).abs() < 1e-9), "{method}");
        let refused = kintsu_sim::passages(&plan, &topology, BLOCK, 1000, &Overheads::default()).unwrap_err();
        assert!(refused.to_string().contains("slices to draw"), "{refused}");
    }
}
