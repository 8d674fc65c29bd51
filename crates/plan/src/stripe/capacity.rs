//! How much data of a code the nodes can still take.
//!
//! A stripe puts each of its n blocks on another node, and no rack gets more than n-k of them. Stripes of S bytes a
//! block in total then fit if `sum over racks of min((n-k) S, sum over nodes of min(room, S)) >= n S`: no node holds
//! more than one block of each stripe. The left side is concave in S, so the largest S is found by bisection.
//!
//! This is an approximation: it divides blocks into any parts, it lets placement choose as well as possible, and it
//! ignores that a code may want its groups in one rack.

use std::collections::BTreeMap;

use kintsu_code::Code;
use kintsu_dag::RackId;

use crate::Topology;

/// What the nodes can still take of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Bytes of objects, without parity.
    pub data_bytes: u64,
    /// Whether the stripes survive the loss of any rack. False if there are too few racks; then only the nodes are
    /// distinct.
    pub rack_safe: bool,
}

/// How much data of a code fits on the usable nodes whose room is known. `None` if fewer than n of them have any.
pub fn capacity(code: &dyn Code, topology: &Topology) -> Option<Capacity> {
    let mut racks: BTreeMap<RackId, Vec<u64>> = BTreeMap::new();
    for node in topology.nodes.values().filter(|node| node.usable) {
        if let Some(room) = node.room_bytes.filter(|room| *room > 0) {
            racks.entry(node.rack).or_default().push(room);
        }
    }
    let most = |cap: usize| racks.values().map(|rooms| rooms.len().min(cap)).sum::<usize>();
    let (n, k) = (code.n(), code.k());
    if most(usize::MAX) < n {
        return None;
    }
    let rack_safe = most(n - k) >= n;
    let cap = if rack_safe { n - k } else { usize::MAX };
    let fits = |bytes: u64| {
        let rack = |rooms: &Vec<u64>| {
            let nodes: u128 = rooms.iter().map(|room| u128::from((*room).min(bytes))).sum();
            nodes.min((cap as u128).saturating_mul(bytes.into()))
        };
        racks.values().map(rack).sum::<u128>() >= n as u128 * u128::from(bytes)
    };
    let total: u128 = racks.values().flatten().map(|room| u128::from(*room)).sum();
    let (mut low, mut high) = (0, u64::try_from(total / n as u128).unwrap_or(u64::MAX));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(middle) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    Some(Capacity { data_bytes: low.saturating_mul(k as u64), rack_safe })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Node, even_cluster};
    use kintsu_dag::NodeId;

    fn with_rooms(racks: usize, rooms: &[u64]) -> Topology {
        let mut topology = even_cluster(rooms.len(), racks);
        for (i, room) in rooms.iter().enumerate() {
            topology.nodes.entry(NodeId(i as u32)).and_modify(|node| node.room_bytes = Some(*room));
        }
        topology
    }

    fn data(code: &str, topology: &Topology) -> Option<(u64, bool)> {
        let code = kintsu_code::parse(code).unwrap();
        capacity(code.as_ref(), topology).map(|c| (c.data_bytes, c.rack_safe))
    }

    #[test]
    fn equal_nodes_give_the_share_of_the_data_blocks() {
        assert_eq!(data("rs:n=9,k=6", &with_rooms(3, &[90; 9])), Some((540, true)));
        assert_eq!(data("rs:n=9,k=6", &with_rooms(4, &[90; 12])), Some((720, true)));
        assert_eq!(data("replication:n=3", &with_rooms(3, &[90; 3])), Some((90, true)));
    }

    #[test]
    fn a_large_node_cannot_hold_two_blocks_of_a_stripe() {
        assert_eq!(data("rs:n=3,k=2", &with_rooms(3, &[10, 10, 1000])), Some((20, true)));
        assert_eq!(data("rs:n=3,k=2", &with_rooms(4, &[10, 10, 1000, 10])), Some((30, true)));
    }

    #[test]
    fn a_large_rack_cannot_hold_more_than_the_code_can_lose() {
        let mut topology = with_rooms(1, &[100; 8]);
        for (id, node) in &mut topology.nodes {
            node.rack = RackId(if id.0 < 6 { 0 } else { id.0 });
        }
        // Racks of 6, 1 and 1 nodes; two blocks of each stripe in the first one.
        assert_eq!(data("rs:n=4,k=2", &topology), Some((200, true)));
        assert_eq!(data("rs:n=5,k=4", &topology), Some((640, false)), "three racks for five blocks");
    }

    #[test]
    fn nodes_without_known_room_do_not_count() {
        let mut topology = with_rooms(3, &[90; 9]);
        topology.nodes.entry(NodeId(4)).and_modify(|node| node.room_bytes = None);
        assert_eq!(data("rs:n=9,k=6", &topology), None);
        assert_eq!(data("rs:n=9,k=6", &with_rooms(3, &[90, 90, 90, 90, 0, 90, 90, 90, 90])), None);
        topology
            .nodes
            .insert(NodeId(9), Node { rack: RackId(1), usable: true, used_bytes: 0, room_bytes: Some(90) });
        assert_eq!(data("rs:n=9,k=6", &topology), Some((540, true)));
    }
}
