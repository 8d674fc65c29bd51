//! Which links a transfer passes.

use std::num::NonZeroU64;

use kintsu_dag::NodeId;

use super::{Link, Loads};
use crate::Topology;

/// From where to where something moves. `N` names nodes, as in [`Link`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way<N = NodeId> {
    /// From a node's disk.
    Read(N),
    /// From one node to another.
    Between(N, N),
    /// To a node's disk.
    Write(N),
}

/// The links from one node to another, in order; each node is given with its rack, if it is in one. This is the
/// only place that knows which links a transfer passes: the limit of the pair and the sender's uplink, the uplink
/// of the rack that it leaves, the downlink of the rack that it enters, and the receiver's downlink.
pub fn path<N: Copy, R: Copy + PartialEq>(
    (from, here): (N, Option<R>),
    (to, there): (N, Option<R>),
) -> impl Iterator<Item = Link<N, R>> + use<N, R> {
    let across = here != there;
    let links = [
        Some(Link::Pair(from, to)),
        Some(Link::NodeUp(from)),
        here.filter(|_| across).map(Link::RackUp),
        there.filter(|_| across).map(Link::RackDown),
        Some(Link::NodeDown(to)),
    ];
    links.into_iter().flatten()
}

impl<N: Copy> Way<N> {
    /// All links that it passes, in order; `rack` says in which rack a node is.
    pub fn links<R: Copy + PartialEq>(
        self,
        rack: &dyn Fn(N) -> Option<R>,
    ) -> impl Iterator<Item = Link<N, R>> + use<N, R> {
        let (disk, between) = match self {
            Self::Read(node) => (Some(Link::DiskRead(node)), None),
            Self::Write(node) => (Some(Link::DiskWrite(node)), None),
            Self::Between(from, to) => (None, Some(path((from, rack(from)), (to, rack(to))))),
        };
        disk.into_iter().chain(between.into_iter().flatten())
    }
}

impl Topology {
    /// All links that a transfer passes, in order, with a rate or not.
    pub fn links(&self, way: Way) -> impl Iterator<Item = Link> + use<> {
        way.links(&|node| self.rack(node))
    }

    /// Whether a transfer between these nodes passes the link of a rack: they are not in the same rack. A client
    /// is in none, so what it sends to or receives from a rack's node is across racks as well.
    pub fn across_racks(&self, from: NodeId, to: NodeId) -> bool {
        self.rack(from) != self.rack(to)
    }

    /// The links with a known rate on the way from one node to another, in order.
    pub fn limits(&self, from: NodeId, to: NodeId) -> impl Iterator<Item = (Link, NonZeroU64)> + '_ {
        self.links(Way::Between(from, to)).filter_map(|link| Some((link, self.rates.of(link)?)))
    }

    /// The most that one transfer from one node to another can carry when nothing else is sent: the least of the
    /// rates on its way. `None`: unlimited.
    pub fn rate(&self, from: NodeId, to: NodeId) -> Option<NonZeroU64> {
        self.limits(from, to).map(|(_, rate)| rate).min()
    }

    /// As [`Topology::rate`], for transfers that all go at once at the same rate: what each of them gets, at least
    /// 1 byte a second.
    pub fn rate_of_each(&self, transfers: impl IntoIterator<Item = (NodeId, NodeId)>) -> Option<NonZeroU64> {
        let mut loads = Loads::default();
        transfers.into_iter().for_each(|(from, to)| loads.add(self, Way::Between(from, to), 1));
        let each = loads.iter().filter_map(|(link, count)| Some(self.rates.of(link)?.get() / count));
        each.min().map(|rate| NonZeroU64::new(rate).unwrap_or(NonZeroU64::MIN))
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::RackId;

    use super::*;
    use crate::{Rates, even_cluster};

    fn rate(rate: u64) -> NonZeroU64 {
        NonZeroU64::new(rate).unwrap()
    }

    #[test]
    fn a_transfer_is_held_by_the_least_rate_on_its_way() {
        // Nodes 0 and 2 are in rack 0, node 1 is in rack 1.
        let mut topology = even_cluster(4, 2);
        let [a, far, near] = [NodeId(0), NodeId(1), NodeId(2)];
        assert_eq!(topology.rate(a, near), None);
        topology.rates = Rates::even(topology.nodes.keys().copied(), rate(100));
        topology.rates.rack_up.insert(RackId(0), rate(10));
        assert_eq!(topology.rate(a, near), Some(rate(100)));
        assert_eq!(topology.rate(a, far), Some(rate(10)));
        assert_eq!(topology.rate(far, a), Some(rate(100)));
        topology.rates.pairs.insert((far, a), rate(7));
        assert_eq!(topology.rate(far, a), Some(rate(7)));
        assert_eq!(topology.rate_of_each([(near, a), (near, far)]), Some(rate(10)));
        assert_eq!(topology.rate_of_each([(far, near), (far, near)]), Some(rate(50)));
        assert_eq!(topology.rate_of_each([(a, far); 100]), Some(rate(1)));
    }

    #[test]
    fn what_leaves_or_enters_a_rack_is_across_racks_and_so_is_what_a_client_moves() {
        let topology = even_cluster(4, 2);
        let racks = |from, to| {
            let links = topology.links(Way::Between(from, to));
            links.filter(|link| matches!(link, Link::RackUp(_) | Link::RackDown(_))).collect::<Vec<_>>()
        };
        let [a, far, near, client] = [NodeId(0), NodeId(1), NodeId(2), NodeId::CLIENT];
        assert_eq!(racks(a, near), []);
        assert_eq!(racks(a, far), [Link::RackUp(RackId(0)), Link::RackDown(RackId(1))]);
        assert_eq!(racks(a, client), [Link::RackUp(RackId(0))]);
        assert_eq!(racks(client, far), [Link::RackDown(RackId(1))]);
        for (from, to) in [(a, near), (a, far), (a, client), (client, far), (client, client)] {
            assert_eq!(topology.across_racks(from, to), !racks(from, to).is_empty(), "{from} {to}");
        }
        assert_eq!(topology.links(Way::Read(a)).collect::<Vec<_>>(), [Link::DiskRead(a)]);
    }
}
