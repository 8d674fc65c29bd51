//! The stripes and links of a recovery by number, and how much trees load the links.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};

use super::Loss;
use crate::Topology;

/// Nodes, racks and stripes by number. Links are numbered: uplinks of nodes, downlinks of nodes, uplinks of racks,
/// downlinks of racks.
pub(super) struct LinkNumbers {
    pub nodes: Vec<NodeId>,
    /// The rack of each node; a node without a rack gets one of its own.
    pub rack: Vec<usize>,
    pub racks: usize,
    /// Bytes a second by link; infinite where nothing is known.
    pub capacity: Vec<f64>,
    /// Whether any rate of a node or rack is known; if not, all nodes count as equal.
    pub known: bool,
    /// Whether rates of racks are known.
    pub racked: bool,
    /// The nodes that may get blocks.
    pub common: Vec<usize>,
    pub stripes: Vec<Stripe>,
}

/// A stripe by numbers.
pub(super) struct Stripe {
    pub bytes: f64,
    pub k: usize,
    pub helpers: Vec<usize>,
    /// The common nodes that must not get a block of this stripe, ascending.
    pub barred: Vec<usize>,
}

/// A repair tree: who gets the block, and each helper with the node that it sends to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Tree {
    pub requestor: usize,
    pub edges: Vec<(usize, usize)>,
}

impl LinkNumbers {
    pub fn of(losses: &[Loss], common: &[NodeId], topology: &Topology) -> Self {
        let mut numbers: BTreeMap<NodeId, usize> = BTreeMap::new();
        let named = losses.iter().flat_map(|loss| &loss.helpers);
        numbers.extend(named.chain(common).map(|node| (*node, 0)));
        numbers.values_mut().enumerate().for_each(|(i, number)| *number = i);
        let nodes: Vec<NodeId> = numbers.keys().copied().collect();
        let numbered = |nodes: &[NodeId]| nodes.iter().map(|node| numbers[node]).collect::<Vec<_>>();
        let barred = |loss: &Loss| {
            let mut barred: Vec<_> =
                loss.barred.iter().filter_map(|node| numbers.get(node).copied()).collect();
            barred.sort_unstable();
            barred
        };
        let stripe = |loss: &Loss| Stripe {
            bytes: loss.bytes as f64,
            k: loss.k,
            helpers: numbered(&loss.helpers),
            barred: barred(loss),
        };
        let mut racks: BTreeMap<Option<RackId>, usize> = BTreeMap::new();
        let mut rack = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let next = racks.len();
            rack.push(*racks.entry(topology.rack(*node)).or_insert(next));
        }
        let rates = &topology.rates;
        let racked = !rates.rack_up.is_empty() || !rates.rack_down.is_empty();
        let mut links = Self {
            known: racked || !rates.up.is_empty() || !rates.down.is_empty(),
            rack,
            racks: racks.len(),
            capacity: Vec::new(),
            racked,
            common: numbered(common),
            stripes: losses.iter().map(stripe).collect(),
            nodes,
        };
        links.capacity = links.capacities(topology, &racks);
        links
    }

    fn capacities(&self, topology: &Topology, racks: &BTreeMap<Option<RackId>, usize>) -> Vec<f64> {
        let rates = &topology.rates;
        let given = |rate: Option<&NonZeroU64>| rate.map_or(f64::INFINITY, |rate| rate.get() as f64);
        let mut by_number = vec![None; racks.len()];
        racks.iter().for_each(|(rack, number)| by_number[*number] = *rack);
        let of_rack = |rates: &BTreeMap<RackId, NonZeroU64>, rack: &Option<RackId>| {
            given(rack.and_then(|rack| rates.get(&rack)))
        };
        if !self.known {
            let racks = std::iter::repeat_n(f64::INFINITY, 2 * racks.len());
            return std::iter::repeat_n(1.0, 2 * self.nodes.len()).chain(racks).collect();
        }
        let up = self.nodes.iter().map(|node| given(rates.up.get(node)));
        let down = self.nodes.iter().map(|node| given(rates.down.get(node)));
        let rack_up = by_number.iter().map(|rack| of_rack(&rates.rack_up, rack));
        let rack_down = by_number.iter().map(|rack| of_rack(&rates.rack_down, rack));
        up.chain(down).chain(rack_up).chain(rack_down).collect()
    }

    pub fn up(&self, node: usize) -> usize {
        node
    }

    pub fn down(&self, node: usize) -> usize {
        self.nodes.len() + node
    }

    pub fn rack_up(&self, rack: usize) -> usize {
        2 * self.nodes.len() + rack
    }

    pub fn rack_down(&self, rack: usize) -> usize {
        2 * self.nodes.len() + self.racks + rack
    }

    /// Visits each link that a tree loads with one block, once for each such load.
    pub fn each(&self, tree: &Tree, visit: &mut dyn FnMut(usize)) {
        for &(from, to) in &tree.edges {
            visit(self.up(from));
            visit(self.down(to));
            if self.racked && self.rack[from] != self.rack[to] {
                visit(self.rack_up(self.rack[from]));
                visit(self.rack_down(self.rack[to]));
            }
        }
    }

    /// Adds the load of a tree that carries `bytes` on each edge.
    pub fn load(&self, tree: &Tree, bytes: f64, loads: &mut [f64]) {
        self.each(tree, &mut |link| loads[link] += bytes);
    }

    /// When the busiest link has carried its load.
    pub fn seconds(&self, loads: &[f64]) -> f64 {
        loads.iter().zip(&self.capacity).map(|(load, capacity)| load / capacity).fold(0.0, f64::max)
    }
}
