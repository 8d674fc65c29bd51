//! How near to the bound each scheme recovers a node, by how many repairs run at once.
//!
//! ```text
//! cargo run --release -p kintsu-sim --example at_once
//! ```

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::{Rates, Topology, even_cluster};
use kintsu_sim::{Cluster, Failure, Options, Overheads, Scheme, Spread, recover};

/// 1 Gb/s.
const RATE: u64 = 125_000_000;
/// In how many repairs under way each node takes part; `None`: all repairs at once.
const STREAMS: [Option<usize>; 5] = [Some(8), Some(24), Some(48), Some(96), None];

fn even(nodes: usize, racks: usize) -> Topology {
    let mut topology = even_cluster(nodes, racks);
    topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(RATE).unwrap());
    topology
}

/// Every second node has two fifths of the rate.
fn two_speeds(nodes: usize) -> Topology {
    let mut topology = even(nodes, 1);
    let slow = topology.nodes.keys().filter(|node| node.0 % 2 == 1);
    let slow: Vec<_> = slow.map(|node| (*node, NonZeroU64::new(RATE * 2 / 5).unwrap())).collect();
    topology.rates.up.extend(slow.iter().copied());
    topology.rates.down.extend(slow);
    topology
}

/// The link of a rack carries two fifths of what eight of its nodes can send.
fn narrow(mut topology: Topology, racks: u32) -> Topology {
    let rate = NonZeroU64::new(8 * RATE * 2 / 5).unwrap();
    topology.rates.rack_up = (0..racks).map(|rack| (RackId(rack), rate)).collect();
    topology.rates.rack_down = topology.rates.rack_up.clone();
    topology
}

fn main() {
    let networks = [
        ("16 nodes left", even(17, 1), [80, 470]),
        ("32 nodes left", even(33, 1), [160, 1000]),
        ("32, two speeds", two_speeds(33), [160, 1000]),
        ("32 in 4 racks", narrow(even(33, 4), 4), [160, 1000]),
    ];
    println!("bound / time with 8, 24, 48 and 96 repairs a node, and with all at once");
    for (name, topology, sizes) in networks {
        for stripes in sizes {
            for scheme in Scheme::ALL {
                let code = kintsu_code::parse("rs:n=14,k=10").unwrap();
                let (topology, block_bytes) = (topology.clone(), 64 << 20);
                let cluster =
                    Cluster { topology, code, block_bytes, stripes, spread: Spread::Random, seed: 7 };
                row(name, &cluster, scheme);
            }
        }
    }
}

fn row(name: &str, cluster: &Cluster, scheme: Scheme) {
    let failed = cluster.failed(Failure::Node(NodeId(3))).unwrap();
    let lost = cluster.lost(&failed).unwrap();
    // PUSH keeps one link busy, the others eleven.
    let links = if matches!(scheme, Scheme::PushRep | Scheme::PushSur) { 1 } else { cluster.code.k() + 1 };
    let part = |streams: Option<usize>| {
        let at_once = streams.map(|streams| (streams * cluster.topology.nodes.len()).div_ceil(links));
        let options = Options {
            requestors: None,
            slice_bytes: 64 << 10,
            at_once: Some(at_once.unwrap_or(lost.len())),
            per_node: None,
            overheads: Overheads::default(),
        };
        let outcome = recover(cluster, &failed, &lost, scheme, &options, &mut |_| {}).unwrap();
        format!("{:.3}", outcome.bound_seconds.unwrap() / outcome.seconds)
    };
    println!("{name}, {} stripes, {scheme}: {}", lost.len(), STREAMS.map(part).join(" "));
}
