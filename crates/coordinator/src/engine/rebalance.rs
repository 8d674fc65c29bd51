//! Decides which blocks move from fuller to emptier nodes, so that all nodes are equally full. The driver does the work.
//!
//! The goal of a node is its size times the mean fill of all nodes. A block moves only if that brings neither node further from
//! its goal, and only to a place that is as good by the rules of placement as the one that it has. So every block moves at
//! most once, and the work ends.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_plan::Topology;

use super::drain::Takers;
use super::gate::Gate;
use super::members::{Member, Members};

/// A node gives blocks only if it is above its goal by more than the goal divided by this.
const TOLERANCE: u64 = 20;
/// The unit in which the used parts of nodes are compared.
const PER_MILLION: u128 = 1_000_000;

/// Whether enough is known to begin: all nodes have told since the start how full they are, except those that were stopped or
/// whose disk has failed; or they have had enough time for that. The gate alone is not enough: it opens when the blocks are
/// reported, so it waits for no node without blocks, and a report does not say how much room there is.
pub fn may_begin(members: &Members, gate: &Gate, now_ms: u64) -> bool {
    let told = |m: &Member| m.record.stopped || m.failed.is_some() || m.usage.known().is_some();
    members.iter().all(|(_, member)| told(member)) || gate.has_waited(now_ms)
}

/// How full the nodes are, as blocks move. Sizes are in bytes.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    nodes: BTreeMap<NodeId, Fill>,
}

#[derive(Debug, Clone, Copy)]
struct Fill {
    used: u64,
    /// What it can hold.
    size: u64,
    goal: u64,
}

impl Ledger {
    /// The nodes that give and take blocks: those that get new blocks and whose space is known.
    pub fn new(topology: &Topology) -> Self {
        let known = topology.nodes.iter().filter(|(_, node)| node.usable);
        let fill = known.filter_map(|(id, node)| {
            let used = node.used_bytes;
            Some((*id, Fill { used, size: used.saturating_add(node.room_bytes?), goal: 0 }))
        });
        let mut nodes: BTreeMap<NodeId, Fill> = fill.collect();
        let sum = |of: fn(&Fill) -> u64| nodes.values().map(|fill| u128::from(of(fill))).sum::<u128>();
        let (used, size) = (sum(|fill| fill.used), sum(|fill| fill.size).max(1));
        for fill in nodes.values_mut() {
            let goal = u128::from(fill.size) * used / size;
            fill.goal = u64::try_from(goal).unwrap_or(u64::MAX);
        }
        Self { nodes }
    }

    /// The nodes that are to give blocks, the one furthest above its goal first.
    pub fn givers(&self) -> Vec<NodeId> {
        let mut givers: Vec<(u64, NodeId)> = self.nodes.iter().map(|(id, fill)| (over(fill), *id)).collect();
        givers.retain(|(_, id)| self.gives(*id, 0));
        givers.sort_by_key(|(over, id)| (std::cmp::Reverse(*over), *id));
        givers.into_iter().map(|(_, id)| id).collect()
    }

    /// Bytes that are to move.
    pub fn left(&self) -> u64 {
        self.nodes.iter().filter(|(id, _)| self.gives(**id, 0)).map(|(_, fill)| over(fill)).sum()
    }

    /// Whether a node gives a block of this many bytes.
    pub fn gives(&self, node: NodeId, bytes: u64) -> bool {
        self.nodes.get(&node).is_some_and(|fill| {
            let over = over(fill);
            over > fill.goal / TOLERANCE && over >= bytes.div_ceil(2)
        })
    }

    fn takes(&self, node: NodeId, bytes: u64) -> bool {
        self.nodes.get(&node).is_some_and(|fill| fill.used.saturating_add(bytes.div_ceil(2)) <= fill.goal)
    }

    fn shift(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        if let Some(fill) = self.nodes.get_mut(&from) {
            fill.used = fill.used.saturating_sub(bytes);
        }
        if let Some(fill) = self.nodes.get_mut(&to) {
            fill.used = fill.used.saturating_add(bytes);
        }
    }
}

fn over(fill: &Fill) -> u64 {
    fill.used.saturating_sub(fill.goal)
}

impl Takers for Ledger {
    fn offer(&self, topology: &mut Topology, from: NodeId, bytes: u64) {
        let gives = self.gives(from, bytes);
        for (id, node) in &mut topology.nodes {
            node.usable &= gives && self.takes(*id, bytes);
        }
        // Its place now competes with the others, so that none is taken which is worse.
        if let Some(node) = topology.nodes.get_mut(&from) {
            (node.usable, node.room_bytes) = (true, None);
        }
    }

    fn rank(&self, node: NodeId) -> u64 {
        self.nodes.get(&node).filter(|_| !self.gives(node, 0)).map_or(u64::MAX, |fill| {
            let share = u128::from(fill.used) * PER_MILLION / u128::from(fill.size.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        })
    }

    fn gave(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        self.shift(from, to, bytes);
    }

    fn took_back(&mut self, from: NodeId, to: NodeId, bytes: u64) {
        self.shift(to, from, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;
    use kintsu_dag::RackId;
    use kintsu_plan::Node;
    use kintsu_wire::message::DiskUsage;

    /// Nodes of 1000 bytes, each in a rack of its own; `used` of them are used.
    fn topology(used: &[u64]) -> Topology {
        let node = |(id, used): (usize, &u64)| {
            let (rack, room_bytes) = (RackId(id as u32), Some(1000 - used));
            (NodeId(id as u32), Node { rack, usable: true, used_bytes: *used, room_bytes })
        };
        Topology { nodes: used.iter().enumerate().map(node).collect(), ..Topology::default() }
    }

    #[test]
    fn it_begins_when_all_nodes_have_told_how_full_they_are_or_had_the_time() {
        let (full, empty) = (NodeId(0), NodeId(1));
        let patience = Patience { dead_after_ms: 50, grace_ms: 600 };
        let records = BTreeMap::from([full, empty].map(|node| (node, record(7))));
        let mut members = Members::new(patience, records, 0);
        let mut gate = Gate::new(BTreeMap::from([(full, 10)]), 1000, None);
        members.enrolled(full, record(7), 1);
        assert!(gate.reported(full) && gate.is_open());
        assert!(!may_begin(&members, &gate, 2), "nobody has told");
        let usage = DiskUsage { capacity_bytes: 1000, free_bytes: 900, ..DiskUsage::default() };
        members.seen(full, 7, usage, None, 3).unwrap();
        assert!(!may_begin(&members, &gate, 30_999), "one has not told");
        assert!(may_begin(&members, &gate, 31_000), "it had enough time");
        let mut stopped = members.clone();
        stopped.stopped(empty, 4);
        assert!(may_begin(&stopped, &gate, 4));
        // It tells before it registers.
        members.seen(empty, 7, usage, None, 5).unwrap_err();
        assert!(may_begin(&members, &gate, 5));
    }

    #[test]
    fn nodes_give_down_to_the_mean_and_take_up_to_it() {
        let mut ledger = Ledger::new(&topology(&[600, 500, 100, 0]));
        assert_eq!((ledger.givers(), ledger.left()), (vec![NodeId(0), NodeId(1)], 500));
        for (from, to, blocks) in [(0, 3, 6), (1, 2, 4)] {
            for _ in 0..blocks {
                let mut open = topology(&[0; 4]);
                ledger.offer(&mut open, NodeId(from), 50);
                assert!(open.nodes[&NodeId(from)].usable && open.nodes[&NodeId(to)].usable);
                ledger.gave(NodeId(from), NodeId(to), 50);
            }
        }
        assert_eq!((ledger.givers(), ledger.left()), (Vec::new(), 0));
        let mut open = topology(&[0; 4]);
        ledger.offer(&mut open, NodeId(0), 50);
        let usable: Vec<_> = open.nodes.iter().filter(|(_, node)| node.usable).map(|(id, _)| id.0).collect();
        assert_eq!(usable, [0], "it stays");
    }

    #[test]
    fn a_block_that_is_larger_than_the_difference_stays() {
        let ledger = Ledger::new(&topology(&[300, 200]));
        assert!(ledger.gives(NodeId(0), 100) && !ledger.gives(NodeId(0), 101));
        assert!(Ledger::new(&topology(&[300, 280])).givers().is_empty(), "a few percent are nothing");
    }

    #[test]
    fn the_emptiest_is_preferred_and_the_place_now_is_last() {
        let ledger = Ledger::new(&topology(&[900, 100, 50]));
        assert!(ledger.rank(NodeId(2)) < ledger.rank(NodeId(1)));
        assert_eq!(ledger.rank(NodeId(0)), u64::MAX);
    }

    #[test]
    fn a_node_that_gets_no_new_blocks_does_not_count() {
        let mut nodes = topology(&[500, 500, 0]);
        nodes.nodes.get_mut(&NodeId(2)).unwrap().usable = false;
        assert!(Ledger::new(&nodes).givers().is_empty());
    }
}
