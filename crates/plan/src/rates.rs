//! The rates of links, given or measured, in bytes a second.
//!
//! Every node has an uplink and a downlink, every rack a pair towards the core, and any two nodes may have a limit
//! of their own (ECPipe, section 4.3: a rate for each link). A rate that is not known counts as unlimited.
//! Invariant: no rate is zero; where a link carries nothing, the node is marked unusable.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};
use serde::{Deserialize, Serialize};

use crate::Topology;

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
        self.up.is_empty()
            && self.down.is_empty()
            && self.rack_up.is_empty()
            && self.rack_down.is_empty()
            && self.pairs.is_empty()
    }
}

/// A link with a rate of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Limit {
    Up(NodeId),
    Down(NodeId),
    RackUp(RackId),
    RackDown(RackId),
    Pair(NodeId, NodeId),
}

impl Topology {
    /// The most that one stream from one node to another can carry when nothing else is sent: the least
    /// of the rates on its way. `None`: unlimited.
    pub fn rate(&self, from: NodeId, to: NodeId) -> Option<NonZeroU64> {
        self.limits(from, to).map(|(_, rate)| rate).min()
    }

    /// The links with a rate on the way of a stream.
    pub(crate) fn limits(
        &self,
        from: NodeId,
        to: NodeId,
    ) -> impl Iterator<Item = (Limit, NonZeroU64)> + use<> {
        let rates = &self.rates;
        let (here, there) = (self.rack(from), self.rack(to));
        let leaves =
            here.filter(|_| here != there).map(|rack| (Limit::RackUp(rack), rates.rack_up.get(&rack)));
        let enters =
            there.filter(|_| here != there).map(|rack| (Limit::RackDown(rack), rates.rack_down.get(&rack)));
        let links = [
            Some((Limit::Up(from), rates.up.get(&from))),
            Some((Limit::Down(to), rates.down.get(&to))),
            Some((Limit::Pair(from, to), rates.pairs.get(&(from, to)))),
            leaves,
            enters,
        ];
        let known = links.map(|link| link.and_then(|(limit, rate)| Some((limit, *rate?))));
        known.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::on_paper::even_cluster;

    #[test]
    fn a_stream_is_held_by_the_least_rate_on_its_way() {
        let rate = |r| NonZeroU64::new(r).unwrap();
        let mut topology = even_cluster(4, 2);
        let [a, b, c] = [NodeId(0), NodeId(1), NodeId(2)];
        let (near, far) = match topology.rack(a) == topology.rack(b) {
            true => (b, c),
            false => (c, b),
        };
        assert_eq!(topology.rate(a, near), None);
        topology.rates = Rates::even(topology.nodes.keys().copied(), rate(100));
        topology.rates.rack_up.extend(topology.rack(a).map(|rack| (rack, rate(10))));
        assert_eq!(topology.rate(a, near), Some(rate(100)));
        assert_eq!(topology.rate(a, far), Some(rate(10)));
        assert_eq!(topology.rate(far, a), Some(rate(100)));
        topology.rates.pairs.insert((far, a), rate(7));
        assert_eq!(topology.rate(far, a), Some(rate(7)));
    }
}
