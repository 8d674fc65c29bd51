//! The part of the bound that each scheduler reaches, on several networks and with several codes, each at the number
//! of repairs at once that suits it best, and with blocks that no requestor may get planned as suits it best.
//!
//! ```text
//! cargo run --release -p kintsu-sim --example schedulers
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::time::Instant;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::many::{Disks, History, LostBlock, SCHEDULERS, Scene};
use kintsu_plan::{DamagedStripe, Rates, Topology, even_cluster};
use kintsu_sim::{Cluster, Failure, Options, Overheads, Spread, Stray, least_seconds, schedule};

/// 50 Mb/s, as on the emulated hosts.
const RATE: u64 = 50_000_000 / 8;
const BLOCKS: [u64; 2] = [2 << 20, 8 << 20];
/// The header of a slice, and the work for one.
const OVERHEADS: Overheads = Overheads {
    wire: 1.0,
    frame_bytes: 36.0,
    slice_seconds: 20e-6,
    hop_seconds: 0.0,
    start_seconds: 0.0,
    disk_read: None,
    disk_write: None,
};
const AT_ONCE: [usize; 8] = [2, 4, 8, 16, 32, 64, 128, usize::MAX];

fn even(nodes: usize, racks: usize) -> Topology {
    let mut topology = even_cluster(nodes, racks);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(RATE).unwrap());
    topology
}

/// Every second node has half the rate.
fn two_speeds(nodes: usize, racks: usize) -> Topology {
    let mut topology = even(nodes, racks);
    let slow = topology.nodes.keys().filter(|node| node.0 % 2 == 1);
    let slow: Vec<_> = slow.map(|node| (*node, NonZeroU64::new(RATE / 2).unwrap())).collect();
    topology.rates.up.extend(slow.iter().copied());
    topology.rates.down.extend(slow);
    topology
}

/// Links of racks carry what one node's link carries.
fn narrow(mut topology: Topology, racks: u32) -> Topology {
    let rate = NonZeroU64::new(RATE).unwrap();
    topology.rates.rack_up = (0..racks).map(|rack| (RackId(rack), rate)).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    topology
}

/// What is lost, and where it may go.
#[derive(Clone, Copy, PartialEq)]
enum Lost {
    /// A node is gone; the others get its blocks.
    Gone,
    /// A node came back empty, and is the only one that may get blocks.
    Wiped,
    /// Two nodes are gone.
    Two,
}

fn main() {
    let wanted = std::env::args().nth(1);
    let only = std::env::args().nth(2);
    let (rs, lrc) = (["rs:n=14,k=10", "rs:n=9,k=6"], "azure-lrc:n=16,k=12,r=6");
    let all = [rs[0], rs[1], lrc];
    let racked = ["rs:n=6,k=4", "azure-lrc:n=8,k=4,r=2"];
    let networks: [(&str, Topology, &[&str], u64, Lost); 13] = [
        ("17 alike", even(17, 1), &all, 32, Lost::Gone),
        ("17, two speeds", two_speeds(17, 1), &all, 32, Lost::Gone),
        ("9 in 3 racks", narrow(even(9, 3), 3), &racked, 32, Lost::Gone),
        ("9 in 3 racks, two speeds", narrow(two_speeds(9, 3), 3), &racked, 32, Lost::Gone),
        ("9 in 3 racks, wiped", narrow(even(9, 3), 3), &rs[1..], 32, Lost::Wiped),
        ("9 in 3 racks, two speeds, wiped", narrow(two_speeds(9, 3), 3), &rs[1..], 32, Lost::Wiped),
        ("33 alike", even(33, 1), &rs, 32, Lost::Gone),
        ("33, two speeds", two_speeds(33, 1), &rs, 32, Lost::Gone),
        ("33, two speeds, many", two_speeds(33, 1), &rs, 400, Lost::Gone),
        ("17 alike, two lost", even(17, 1), &rs, 32, Lost::Two),
        ("17, two speeds, two lost", two_speeds(17, 1), &rs, 32, Lost::Two),
        ("33 alike, two lost", even(33, 1), &rs, 32, Lost::Two),
        ("9 in 3 racks, two lost", narrow(even(9, 3), 3), &racked[..1], 32, Lost::Two),
    ];
    for (name, topology, codes, blocks, lost) in networks {
        for code in codes {
            for requestors in [1, 4, 16] {
                if lost == Lost::Wiped && requestors > 1 || lost == Lost::Two && requestors == 1 {
                    continue;
                }
                for bytes in BLOCKS {
                    let title = format!("{name}, {code}, {requestors} requestors, {} MiB", bytes >> 20);
                    if wanted.as_ref().is_none_or(|wanted| title.contains(wanted)) {
                        table(
                            &title,
                            (topology.clone(), code, blocks, bytes),
                            requestors,
                            lost,
                            only.as_deref(),
                        );
                    }
                }
            }
        }
    }
    if wanted.as_deref().is_none_or(|wanted| wanted == "time") {
        times(only.as_deref());
    }
}

/// One line: for each scheduler the part of the bound that it reaches at its best, and in brackets the part that its
/// busiest link would allow.
fn table(
    title: &str,
    (topology, code, blocks, block_bytes): (Topology, &str, u64, u64),
    requestors: usize,
    what: Lost,
    only: Option<&str>,
) {
    let code = kintsu_code::parse(code).unwrap();
    let stripes = blocks * topology.nodes.len() as u64 / code.n() as u64;
    let cluster = Cluster { topology, code, block_bytes, stripes, spread: Spread::Random, seed: 7 };
    let mut failed = cluster.failed(Failure::Node(NodeId(3))).unwrap();
    if what == Lost::Two {
        failed.insert(NodeId(8));
    }
    let lost = cluster.lost(&failed).unwrap();
    let mut requestors = Some(requestors);
    if what == Lost::Wiped {
        (failed, requestors) = (BTreeSet::new(), None);
    }
    let options = Options { requestors, slice_bytes: 0, at_once: None, per_node: None, overheads: OVERHEADS };
    let bound = least_seconds(&cluster, &failed, &lost, &options).unwrap();
    print!("{title}, {} blocks:", lost.len());
    for scheduler in SCHEDULERS.iter().filter(|scheduler| only.is_none_or(|only| only == scheduler.name)) {
        let played = Stray::ALL.map(|stray| {
            let scheduled = schedule(&cluster, &failed, &lost, (scheduler, stray), &options).unwrap();
            AT_ONCE.map(|at_once| scheduled.play(&options, at_once).unwrap())
        });
        let best = played.iter().flatten().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap();
        print!(" {} {:.3} ({:.3})", scheduler.name, bound / best.seconds, bound / best.busiest_seconds);
    }
    println!();
}

/// Planning 1,000 blocks over 500 nodes.
fn times(only: Option<&str>) {
    let code = kintsu_code::parse("rs:n=14,k=10").unwrap();
    let topology = two_speeds(500, 20);
    let stripes = 36_000;
    let cluster = Cluster { topology, code, block_bytes: 64 << 20, stripes, spread: Spread::Random, seed: 1 };
    let failed = cluster.failed(Failure::Node(NodeId(3))).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    let stripes: Vec<DamagedStripe> = lost.iter().take(1000).map(|stripe| cluster.waiting(stripe)).collect();
    let mut topology = cluster.topology.clone();
    topology.nodes.get_mut(&NodeId(3)).unwrap().usable = false;
    let (disks, blocks) = (Disks::default(), LostBlock::all(&stripes));
    let scene = Scene { disks: &disks, ..Scene::of(&topology) };
    println!(
        "planning {} blocks over {} nodes, milliseconds: scheduled, proved",
        blocks.len(),
        topology.nodes.len()
    );
    for scheduler in SCHEDULERS.iter().filter(|scheduler| only.is_none_or(|only| only == scheduler.name)) {
        let mut best = [f64::INFINITY; 2];
        for _ in 0..20 {
            #[allow(clippy::disallowed_methods)]
            let clock = Instant::now();
            let made = scheduler.plan(&scene, &mut History::default(), &blocks);
            best[0] = best[0].min(clock.elapsed().as_secs_f64() * 1e3);
            #[allow(clippy::disallowed_methods)]
            let clock = Instant::now();
            for (planned, stripe) in made.iter().flatten().zip(&stripes) {
                planned.plan(&stripe.view, &topology).unwrap();
            }
            best[1] = best[1].min(clock.elapsed().as_secs_f64() * 1e3);
        }
        println!("  {:14} {:.2} {:.2}", scheduler.name, best[0], best[1]);
    }
}
