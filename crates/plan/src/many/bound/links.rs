//! The stripes and links of a recovery by number.

use std::collections::BTreeMap;

use kintsu_dag::{NodeId, RackId};

use super::Loss;
use crate::Topology;
use crate::traffic::Link;

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
    /// Lost blocks.
    pub blocks: usize,
    pub k: usize,
    pub helpers: Vec<usize>,
    /// The common nodes that must not get a block of this stripe, ascending.
    pub barred: Vec<usize>,
    /// Whether each lost block depends on k helpers, not only all of them together.
    pub each: bool,
    /// Racks that what is sent leaves in any case, with how often at least.
    pub left: Vec<(usize, usize)>,
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
            blocks: loss.blocks,
            k: loss.k,
            helpers: numbered(&loss.helpers),
            barred: barred(loss),
            each: loss.any || loss.blocks == 1,
            left: Vec::new(),
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
        if links.racked {
            for (at, _) in losses.iter().enumerate().filter(|(_, loss)| loss.any && loss.blocks > 1) {
                links.stripes[at].left = links.left(&links.stripes[at]);
            }
        }
        links
    }

    /// Of a stripe of an MDS code that lost several blocks: how often at least its repair leaves each rack of its helpers.
    ///
    /// The helpers outside of a rack, h of them, and the f lost blocks that go to other racks have rank min(k, h + f). Those helpers
    /// have rank min(k, h), so what leaves the rack must have rank k - h or f, whichever is less. At least f lost
    /// blocks go elsewhere if no more than the others have a place in the rack.
    fn left(&self, stripe: &Stripe) -> Vec<(usize, usize)> {
        let mut helpers: BTreeMap<usize, usize> = BTreeMap::new();
        stripe.helpers.iter().for_each(|node| *helpers.entry(self.rack[*node]).or_default() += 1);
        let open =
            |node: &usize| !stripe.helpers.contains(node) && stripe.barred.binary_search(node).is_err();
        let times = |(rack, inside): (usize, usize)| {
            let there = self.common.iter().filter(|node| self.rack[**node] == rack && open(node)).count();
            let missing = stripe.k.saturating_sub(stripe.helpers.len() - inside);
            (rack, missing.min(stripe.blocks.saturating_sub(there)))
        };
        helpers.into_iter().map(times).filter(|(_, times)| *times > 0).collect()
    }

    fn capacities(&self, topology: &Topology, racks: &BTreeMap<Option<RackId>, usize>) -> Vec<f64> {
        let mut by_number = vec![None; racks.len()];
        racks.iter().for_each(|(rack, number)| by_number[*number] = *rack);
        if !self.known {
            let racks = std::iter::repeat_n(f64::INFINITY, 2 * racks.len());
            return std::iter::repeat_n(1.0, 2 * self.nodes.len()).chain(racks).collect();
        }
        let rate = |link: Link| topology.rates.bytes_a_second(link);
        let of_rack = |rack: &Option<RackId>, link: fn(RackId) -> Link| {
            rack.map_or(f64::INFINITY, |rack| rate(link(rack)))
        };
        let up = self.nodes.iter().map(|node| rate(Link::NodeUp(*node)));
        let down = self.nodes.iter().map(|node| rate(Link::NodeDown(*node)));
        let rack_up = by_number.iter().map(|rack| of_rack(rack, Link::RackUp));
        let rack_down = by_number.iter().map(|rack| of_rack(rack, Link::RackDown));
        up.chain(down).chain(rack_up).chain(rack_down).collect()
    }

    pub fn up(&self, node: usize) -> usize {
        node
    }

    pub fn down(&self, node: usize) -> usize {
        self.nodes.len() + node
    }

    /// The node whose downlink this is.
    pub fn below(&self, link: usize) -> Option<usize> {
        link.checked_sub(self.nodes.len()).filter(|node| *node < self.nodes.len())
    }

    pub fn rack_up(&self, rack: usize) -> usize {
        2 * self.nodes.len() + rack
    }

    pub fn rack_down(&self, rack: usize) -> usize {
        2 * self.nodes.len() + self.racks + rack
    }
}
