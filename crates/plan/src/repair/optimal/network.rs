//! The links that the repair of some blocks from some helpers can use, and the trees over them.
//!
//! A link is anything with a rate: the uplink or downlink of a node or rack, or the way between two nodes. One
//! combination sent from one node to another loads several links. Links that can never limit a repair are left
//! out. Prices and weights are not handled here.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

use super::bound::{Ends, one_block};
use crate::Topology;
use crate::traffic::Link;

/// A repair tree over helpers, by their numbers in a [`Network`]: each helper with the node that it sends to. The
/// number of the requestor equals the count of helpers. Sorted, so that equal trees compare equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tree(pub Vec<(usize, usize)>);

impl Tree {
    pub fn new(mut edges: Vec<(usize, usize)>) -> Self {
        edges.sort_unstable();
        Self(edges)
    }

    /// Each helper sends to the next, the last one to the requestor.
    pub fn chain(path: &[usize], requestor: usize) -> Self {
        let next = path.iter().skip(1).copied().chain([requestor]);
        Self::new(path.iter().copied().zip(next).collect())
    }

    /// The flattest tree in which each of these nodes has the given number of children. The requestor gets the
    /// remaining ones, at least one.
    pub fn with_children(mut children: Vec<(usize, usize)>, requestor: usize) -> Self {
        let given: usize = children.iter().map(|(_, count)| count).sum();
        // Nodes with most children first, so that there is a place for each.
        children.sort_by_key(|(node, count)| (std::cmp::Reverse(*count), *node));
        let mut places = vec![requestor; children.len().saturating_sub(given)];
        let mut edges = Vec::with_capacity(children.len());
        for (at, (node, count)) in children.into_iter().enumerate() {
            edges.push((node, places[at]));
            places.extend(std::iter::repeat_n(node, count));
        }
        Self::new(edges)
    }
}

/// Helpers, requestors and the links between them. All capacities are in bytes a second.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub helpers: Vec<NodeId>,
    /// What the helpers can send and receive over their own links.
    pub ends: Vec<Ends>,
    /// Helpers of the same rack have the same number; the requestor's comes last.
    pub racks: Vec<usize>,
    /// Helpers in a tree.
    pub k: usize,
    /// Blocks that are repaired together.
    pub blocks: usize,
    /// The rate that no repair can beat, from the nodes' own links alone.
    pub nodes_bound: f64,
    /// Capacity by number of the link.
    pub capacity: Vec<f64>,
    /// By sender and receiver (the requestor last): which links one repaired byte a second of each block loads,
    /// and how much.
    ways: Vec<Vec<Vec<(usize, f64)>>>,
    /// The numbers of the links by kind; only where all links are nodes' own links.
    pub own: Option<OwnLinks>,
}

/// Numbers of the nodes' own links, the requestor last; `None` for links that can never limit a repair.
#[derive(Debug, Clone)]
pub(crate) struct OwnLinks {
    pub up: Vec<Option<usize>>,
    pub down: Vec<Option<usize>>,
}

impl Network {
    /// The network for the repair of one block for each requestor from `k` of the helpers. With several requestors
    /// every helper sends a combination for each, and the last one sends each requestor its own.
    pub fn of(topology: &Topology, helpers: &[NodeId], requestors: &[NodeId], k: usize) -> Self {
        let rate = |link: Link| topology.rates.bytes_a_second(link);
        let ends: Vec<Ends> = helpers
            .iter()
            .map(|node| Ends { up: rate(Link::NodeUp(*node)), down: rate(Link::NodeDown(*node)) })
            .collect();
        let blocks = requestors.len().max(1);
        let slow = |ends: &Ends| Ends { up: ends.up / blocks as f64, down: ends.down / blocks as f64 };
        let down = requestors.iter().map(|node| rate(Link::NodeDown(*node))).fold(f64::INFINITY, f64::min);
        let nodes_bound = one_block(&ends.iter().map(slow).collect::<Vec<_>>(), down, k);
        let mut racks: Vec<_> =
            helpers.iter().chain(requestors.first()).map(|node| topology.rack(*node)).collect();
        let numbers = racks.clone();
        let mut network = Self {
            helpers: helpers.to_vec(),
            ends,
            racks: racks.drain(..).map(|rack| numbers.iter().position(|r| *r == rack).unwrap_or(0)).collect(),
            k,
            blocks,
            nodes_bound,
            capacity: Vec::new(),
            ways: Vec::new(),
            own: None,
        };
        network.connect(topology, requestors);
        network
    }

    /// The requestor's number.
    pub fn requestor(&self) -> usize {
        self.helpers.len()
    }

    /// The links that one byte a second from one node to another loads.
    pub fn way(&self, from: usize, to: usize) -> &[(usize, f64)] {
        &self.ways[from][to]
    }

    /// How much a tree loads each of its links, per repaired byte a second.
    pub fn load(&self, tree: &Tree) -> Vec<(usize, f64)> {
        let mut load: BTreeMap<usize, f64> = BTreeMap::new();
        for &(from, to) in &tree.0 {
            for &(link, part) in self.way(from, to) {
                *load.entry(link).or_default() += part;
            }
        }
        load.into_iter().collect()
    }

    /// The rate that trees with these weights reach when the first link is full. Infinite if no link is loaded.
    pub fn rate(&self, trees: &[(Tree, f64)]) -> f64 {
        let mut loads = vec![0.0; self.capacity.len()];
        for (tree, weight) in trees {
            for (link, part) in self.load(tree) {
                loads[link] += weight * part;
            }
        }
        let whole: f64 = trees.iter().map(|(_, weight)| weight).sum();
        let rates = loads.iter().zip(&self.capacity).filter(|(load, _)| **load > 0.0);
        rates.map(|(load, capacity)| capacity / load * whole).fold(f64::INFINITY, f64::min)
    }

    fn connect(&mut self, topology: &Topology, requestors: &[NodeId]) {
        let mut numbers: BTreeMap<Link, usize> = BTreeMap::new();
        let helpers = self.helpers.clone();
        for from in &helpers {
            let mut ways = Vec::with_capacity(helpers.len() + 1);
            for to in &helpers {
                let way = links(topology, *from, *to);
                let parts = way.into_iter().map(|(link, rate)| (link, rate, self.blocks as f64));
                ways.push(self.numbered(&mut numbers, parts.collect()));
            }
            let mut last: BTreeMap<Link, (f64, f64)> = BTreeMap::new();
            for requestor in requestors {
                for (link, rate) in links(topology, *from, *requestor) {
                    last.entry(link).or_insert((rate, 0.0)).1 += 1.0;
                }
            }
            let parts = last.into_iter().map(|(link, (rate, part))| (link, rate, part));
            ways.push(self.numbered(&mut numbers, parts.collect()));
            self.ways.push(ways);
        }
        if self.blocks == 1 && numbers.keys().all(|link| matches!(link, Link::NodeUp(_) | Link::NodeDown(_)))
        {
            let nodes = helpers.iter().chain(requestors);
            self.own = Some(OwnLinks {
                up: nodes.clone().map(|node| numbers.get(&Link::NodeUp(*node)).copied()).collect(),
                down: nodes.map(|node| numbers.get(&Link::NodeDown(*node)).copied()).collect(),
            });
        }
    }

    /// The numbers of those links that can limit a repair; a new link gets a new number.
    fn numbered(
        &mut self,
        numbers: &mut BTreeMap<Link, usize>,
        way: Vec<(Link, f64, f64)>,
    ) -> Vec<(usize, f64)> {
        // No link carries more than k combinations of each block.
        let most = (self.k * self.blocks) as f64 * self.nodes_bound;
        let narrow = way.into_iter().filter(|(_, rate, _)| *rate <= most * (1.0 + 1e-9));
        narrow
            .map(|(link, rate, part)| {
                let number = *numbers.entry(link).or_insert_with(|| {
                    self.capacity.push(rate);
                    self.capacity.len() - 1
                });
                (number, part)
            })
            .collect()
    }
}

/// The links with a rate between two nodes, those of nodes first.
fn links(topology: &Topology, from: NodeId, to: NodeId) -> Vec<(Link, f64)> {
    let mut links: Vec<_> = topology.limits(from, to).collect();
    links.sort_unstable();
    links.into_iter().map(|(link, rate)| (link, rate.get() as f64)).collect()
}
