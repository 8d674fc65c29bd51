//! The rates of links, given or measured, in bytes a second.
//!
//! Every node has an uplink and a downlink, every rack a pair towards the core, and any two nodes may have a limit
//! of their own (ECPipe, section 4.3: a rate for each link). A rate that is not known counts as unlimited.
//! Invariant: no rate is zero; where a link carries nothing, the node is marked unusable.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};
use serde::{Deserialize, Serialize};

use super::Link;

/// A node is a slow sender if others send this many times faster.
const SLOW_SENDER: u64 = 3;

/// A node that sends clearly slower than others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlowSender {
    /// The node.
    pub node: NodeId,
    /// What it can send, in bytes a second.
    pub rate: NonZeroU64,
    /// What half of the others can send at least.
    pub median: NonZeroU64,
}

/// Rates of links, in bytes a second. A link without an entry is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rates {
    /// What a node can send.
    pub up: BTreeMap<NodeId, NonZeroU64>,
    /// What a node can receive.
    pub down: BTreeMap<NodeId, NonZeroU64>,
    /// What a rack can send to all others.
    pub rack_up: BTreeMap<RackId, NonZeroU64>,
    /// What a rack can receive from all others.
    pub rack_down: BTreeMap<RackId, NonZeroU64>,
    /// From the first node to the second.
    pub pairs: BTreeMap<(NodeId, NodeId), NonZeroU64>,
}

impl Rates {
    /// The same rate up and down for each of these nodes, and no other limit.
    pub fn even(nodes: impl IntoIterator<Item = NodeId>, rate: NonZeroU64) -> Self {
        let up: BTreeMap<_, _> = nodes.into_iter().map(|node| (node, rate)).collect();
        Self { down: up.clone(), up, ..Self::default() }
    }

    /// Whether no rate is known.
    pub fn is_empty(&self) -> bool {
        self.known().next().is_none()
    }

    /// The rate of a link; `None` where it is not known. Rates of disks are not.
    pub fn of(&self, link: Link) -> Option<NonZeroU64> {
        let rate = match link {
            Link::NodeUp(node) => self.up.get(&node),
            Link::NodeDown(node) => self.down.get(&node),
            Link::RackUp(rack) => self.rack_up.get(&rack),
            Link::RackDown(rack) => self.rack_down.get(&rack),
            Link::Pair(from, to) => self.pairs.get(&(from, to)),
            Link::DiskRead(_) | Link::DiskWrite(_) => None,
        };
        rate.copied()
    }

    /// The same in bytes a second; infinite where it is not known.
    pub fn bytes_a_second(&self, link: Link) -> f64 {
        self.of(link).map_or(f64::INFINITY, |rate| rate.get() as f64)
    }

    /// Those of `nodes` that send clearly slower than most of them. A read does without their blocks if it can.
    pub fn slow_senders(&self, nodes: &BTreeSet<NodeId>) -> Vec<SlowSender> {
        let known = || nodes.iter().filter_map(|node| Some((*node, *self.up.get(node)?)));
        let mut rates: Vec<_> = known().map(|(_, rate)| rate).collect();
        rates.sort_unstable();
        let Some(&median) = rates.get(rates.len().saturating_sub(1) / 2) else { return Vec::new() };
        let slow = known().filter(|(_, rate)| rate.get().saturating_mul(SLOW_SENDER) <= median.get());
        slow.map(|(node, rate)| SlowSender { node, rate, median }).collect()
    }

    /// The links whose rates are known: uplinks and downlinks of nodes, then of racks, then pairs.
    pub fn known(&self) -> impl Iterator<Item = (Link, NonZeroU64)> + '_ {
        let up = self.up.iter().map(|(&node, &rate)| (Link::NodeUp(node), rate));
        let down = self.down.iter().map(|(&node, &rate)| (Link::NodeDown(node), rate));
        let rack_up = self.rack_up.iter().map(|(&rack, &rate)| (Link::RackUp(rack), rate));
        let rack_down = self.rack_down.iter().map(|(&rack, &rate)| (Link::RackDown(rack), rate));
        let pairs = self.pairs.iter().map(|(&(from, to), &rate)| (Link::Pair(from, to), rate));
        up.chain(down).chain(rack_up).chain(rack_down).chain(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_sender_is_slow_beside_those_that_are_asked_about() {
        let rate = |rate| NonZeroU64::new(rate).unwrap();
        let mut rates = Rates::even((0..6).map(NodeId), rate(90));
        rates.up.insert(NodeId(1), rate(30));
        rates.up.insert(NodeId(2), rate(31));
        let nodes = |ids: &[u32]| ids.iter().map(|id| NodeId(*id)).collect::<BTreeSet<_>>();
        let slow = SlowSender { node: NodeId(1), rate: rate(30), median: rate(90) };
        assert_eq!(rates.slow_senders(&nodes(&[0, 1, 2, 3, 4, 9])), [slow]);
        assert_eq!(rates.slow_senders(&nodes(&[1, 2])), []);
        assert_eq!(rates.slow_senders(&nodes(&[7, 8])), []);
    }
}
