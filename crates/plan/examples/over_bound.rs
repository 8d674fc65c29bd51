//! The tables of `docs/bounds.md`: how far each repair method is from the lower bound on the repair time.
#![allow(clippy::print_stdout)]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_plan::many::{History, Loss, LostBlock, SCHEDULERS, Scene, bound, losses, seconds};
use kintsu_plan::{
    Comparison, DamagedStripe, Layout, LayoutKind, Method, Rates, StripeView, Topology, even_cluster,
};

const CLUSTERS: u64 = 50;

fn main() {
    println!("one block, RS(14,10), 16 nodes: time over the bound, median of {CLUSTERS}");
    println!(
        "{:<16} {}",
        "rates",
        Method::streamed().map(|method| format!("{:>13}", method.to_string())).collect::<String>()
    );
    for (name, rates) in SETTINGS {
        let mut times: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for seed in 0..CLUSTERS {
            for (at, time) in compared(rates, seed).into_iter().enumerate() {
                times.entry(at).or_default().push(time);
            }
        }
        let medians = times.values_mut().map(|times| {
            times.sort_by(f64::total_cmp);
            format!("{:>13.3}", times[times.len() / 2])
        });
        println!("{name:<16} {}", medians.collect::<String>());
    }
    whole_nodes();
}

type Setting = fn(&Topology, u64) -> Rates;

const SETTINGS: [(&str, Setting); 5] = [
    ("equal", |topology, _| Rates::even(topology.nodes.keys().copied(), rate(125.0))),
    ("nodes 1:2", |topology, seed| nodes(topology, seed, 2.0)),
    ("nodes 1:10", |topology, seed| nodes(topology, seed, 10.0)),
    ("pairs 1:10", |topology, seed| {
        let mut rates = Rates::even(topology.nodes.keys().copied(), rate(125.0));
        let ways = topology.nodes.keys().flat_map(|a| topology.nodes.keys().map(move |b| (*a, *b)));
        rates.pairs = ways.map(|(a, b)| ((a, b), rate(drawn(seed, a.0 * 97 + b.0, 10.0)))).collect();
        rates
    }),
    ("racks at 1/4", |topology, _| {
        let mut rates = Rates::even(topology.nodes.keys().copied(), rate(125.0));
        rates.rack_up = (0..4).map(|rack| (RackId(rack), rate(31.25))).collect();
        rates.rack_down = rates.rack_up.clone();
        rates
    }),
];

fn nodes(topology: &Topology, seed: u64, spread: f64) -> Rates {
    let draws = |more: u32| topology.nodes.keys().map(move |n| (*n, rate(drawn(seed, n.0 + more, spread))));
    Rates { up: draws(0).collect(), down: draws(1000).collect(), ..Rates::default() }
}

/// From 125 MB/s down to a `spread`th of it.
fn drawn(seed: u64, index: u32, spread: f64) -> f64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (u64::from(index) << 17) ^ 0x5851_F42D_4C95_7F2D;
    for _ in 0..4 {
        z = (z ^ (z >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9).rotate_left(31);
    }
    125.0 / spread + (125.0 - 125.0 / spread) * (z >> 11) as f64 / (1u64 << 53) as f64
}

fn rate(megabytes: f64) -> NonZeroU64 {
    NonZeroU64::new((megabytes * 1e6) as u64).unwrap_or(NonZeroU64::MIN)
}

fn compared(rates: Setting, seed: u64) -> Vec<f64> {
    let mut topology = even_cluster(16, 4);
    topology.rates = rates(&topology, seed);
    let view = view();
    let compared = Comparison::of(&view, &topology, &[BlockIndex(0)], &[NodeId(15)]);
    let compared = compared.expect("one lost block can be repaired").expect("rates are known");
    let bound = compared.bound_seconds.expect("the links have rates");
    compared.methods.iter().map(|time| time.seconds / bound).collect()
}

fn whole_nodes() {
    println!("\nwhole nodes, RS(14,10): stripes, nodes, rates, bound / planned time");
    for (stripes, nodes, spread) in
        [(64, 16, 1.0), (64, 16, 4.0), (1000, 100, 1.0), (1000, 100, 4.0), (20_000, 2000, 4.0)]
    {
        let mut topology = even_cluster(2 * nodes + 1, 1);
        topology.rates = self::nodes(&topology, 3, spread);
        topology.nodes.iter_mut().for_each(|(id, node)| node.usable = id.0 as usize > nodes);
        let stripes: Vec<DamagedStripe> = (0..stripes).map(|stripe| damaged(stripe, nodes)).collect();
        let losses: Vec<Loss> = losses(&topology, &stripes).into_iter().flatten().flatten().collect();
        let common: Vec<NodeId> = (nodes as u32 + 1..2 * nodes as u32 + 1).map(NodeId).collect();
        let scene = Scene::of(&topology);
        let made = SCHEDULERS[0].plan(&scene, &mut History::default(), &LostBlock::all(&stripes));
        let planned = seconds(&topology, made.iter().flatten());
        let bound = bound(&losses, &common, &topology);
        println!("{:>8} {nodes:>6}  1:{spread:<4} {:.3}", stripes.len(), bound / planned);
    }
}

fn damaged(stripe: u32, nodes: usize) -> DamagedStripe {
    let mut left: Vec<u32> = (1..=nodes as u32).collect();
    let drawn =
        |i: u32, of: usize| ((drawn(7, stripe * 16 + i, 1e9) / 125.0 * of as f64) as usize).min(of - 1);
    let helpers = (0..13).map(|i| Some(NodeId(left.swap_remove(drawn(i, left.len())))));
    let homes = [None].into_iter().chain(helpers).collect();
    let view = StripeView { id: StripeId(u64::from(stripe)), homes, ..view() };
    DamagedStripe { view, lost: vec![BlockIndex(0)], barred: BTreeSet::new() }
}

fn view() -> StripeView {
    let code = kintsu_code::parse("rs:n=14,k=10").expect("a known code");
    let layout = Layout {
        kind: LayoutKind::Contiguous,
        block_bytes: 64 << 20,
        cell_bytes: 1 << 20,
        w: 1,
        data_bytes: 640 << 20,
    };
    let homes = (0..14).map(|block| Some(NodeId(block)).filter(|_| block != 0)).collect();
    StripeView { id: StripeId(1), code, layout, homes }
}
