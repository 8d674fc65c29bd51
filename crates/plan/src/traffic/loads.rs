//! Bytes from node to node, and on each link.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

use super::{Link, Way};
use crate::{Rates, Topology};

/// Bytes that went, or will go, from node to node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved(BTreeMap<(NodeId, NodeId), u64>);

/// The bytes of one node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SentReceived {
    /// What it sent.
    pub sent: u64,
    /// What it received.
    pub received: u64,
}

impl Moved {
    /// Adds bytes from one node to another.
    pub fn add(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        *self.0.entry((from, to)).or_default() += bytes;
    }

    /// Adds all that another one has.
    pub fn merge(&mut self, other: &Self) {
        other.pairs().for_each(|((from, to), bytes)| self.add(from, to, bytes));
    }

    /// Sender, receiver and bytes, in order of the nodes.
    pub fn pairs(&self) -> impl Iterator<Item = ((NodeId, NodeId), u64)> + '_ {
        self.0.iter().map(|(pair, bytes)| (*pair, *bytes))
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }

    /// The bytes that pass the link of a rack ([`Topology::across_racks`]).
    pub fn across_racks(&self, topology: &Topology) -> u64 {
        let across = self.pairs().filter(|((from, to), _)| topology.across_racks(*from, *to));
        across.map(|(_, bytes)| bytes).sum()
    }

    /// What each node sent and received.
    pub fn nodes(&self) -> BTreeMap<NodeId, SentReceived> {
        let mut nodes: BTreeMap<NodeId, SentReceived> = BTreeMap::new();
        for ((from, to), bytes) in self.pairs() {
            nodes.entry(from).or_default().sent += bytes;
            nodes.entry(to).or_default().received += bytes;
        }
        nodes
    }

    /// The most that one node sent or received: the load of the busiest uplink or downlink of a node.
    pub fn busiest(&self) -> u64 {
        self.nodes().values().map(|node| node.sent.max(node.received)).max().unwrap_or(0)
    }

    /// The bytes on each link.
    pub fn loads(&self, topology: &Topology) -> Loads {
        let mut loads = Loads::default();
        self.pairs().for_each(|((from, to), bytes)| loads.add(topology, Way::Between(from, to), bytes));
        loads
    }
}

/// Bytes on each link, with a rate or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loads(BTreeMap<Link, u64>);

impl Loads {
    /// Adds bytes to every link that they pass.
    pub fn add(&mut self, topology: &Topology, way: Way, bytes: u64) {
        topology.links(way).for_each(|link| *self.0.entry(link).or_default() += bytes);
    }

    /// Adds all bytes that links have elsewhere.
    pub fn extend(&mut self, loads: impl IntoIterator<Item = (Link, u64)>) {
        loads.into_iter().for_each(|(link, bytes)| *self.0.entry(link).or_default() += bytes);
    }

    /// Each link with its bytes.
    pub fn iter(&self) -> impl Iterator<Item = (Link, u64)> + '_ {
        self.0.iter().map(|(link, bytes)| (*link, *bytes))
    }

    /// The bytes by link.
    pub fn into_map(self) -> BTreeMap<Link, u64> {
        self.0
    }

    /// Seconds until the busiest link has carried its bytes, at these rates; 0 where no rate of a loaded link is
    /// known.
    pub fn seconds(&self, rates: &Rates) -> f64 {
        let seconds = self.iter().filter_map(|(link, bytes)| {
            let rate = rates.of(link)?;
            Some(bytes as f64 / rate.get() as f64)
        });
        seconds.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use kintsu_dag::RackId;

    use super::*;
    use crate::even_cluster;

    #[test]
    fn bytes_are_summed_by_node_rack_and_link() {
        // Nodes 0 and 2 are in rack 0, nodes 1 and 3 in rack 1.
        let mut topology = even_cluster(4, 2);
        let node = NodeId;
        let mut moved = Moved::default();
        for (from, to, bytes) in [(0, 2, 5), (0, 1, 10), (2, 1, 20), (2, 1, 1)] {
            moved.add(node(from), node(to), bytes);
        }
        moved.add(node(3), NodeId::CLIENT, 4);
        assert_eq!((moved.total(), moved.across_racks(&topology), moved.busiest()), (40, 35, 31));
        assert_eq!(moved.nodes()[&node(2)], SentReceived { sent: 21, received: 5 });
        let loads = moved.loads(&topology);
        let of = |link| loads.iter().find(|(other, _)| *other == link).map(|(_, bytes)| bytes);
        assert_eq!(of(Link::RackUp(RackId(0))), Some(31));
        assert_eq!(of(Link::RackUp(RackId(1))), Some(4));
        assert_eq!(of(Link::RackDown(RackId(0))), None);
        assert_eq!(of(Link::Pair(node(2), node(1))), Some(21));
        assert_eq!(loads.seconds(&topology.rates), 0.0);
        topology.rates.rack_up.insert(RackId(0), NonZeroU64::new(2).unwrap());
        assert_eq!(loads.seconds(&topology.rates), 15.5);
        let mut twice = moved.clone();
        twice.merge(&moved);
        assert_eq!(twice.total(), 80);
    }
}
