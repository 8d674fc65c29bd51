//! What a job read, moved and made, as the agents reported it.

use std::collections::BTreeMap;

use kintsu_dag::{BlockId, NodeId, Task};
use kintsu_plan::traffic::Moved;
use kintsu_plan::{Method, Program, Topology};
use kintsu_wire::message::{JobReport, NodeLoad, RunOutcome};

/// Sums over attempts and stripes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// Blocks repaired, made or moved.
    pub blocks: u64,
    /// Blocks that were read.
    pub blocks_read: u64,
    /// Bytes read from disks.
    pub bytes_read: u64,
    /// Bytes sent, by sender and receiver.
    pub moved: Moved,
    /// Bytes of the blocks that became durable.
    pub bytes: u64,
    /// Blocks read, by node.
    pub helped: BTreeMap<NodeId, u64>,
    /// Blocks that became durable, by node.
    pub requested: BTreeMap<NodeId, u64>,
}

impl Tally {
    /// Counts one attempt: the programs that ran and how they ended.
    pub fn attempt(&mut self, programs: &[Program], outcomes: &[RunOutcome]) {
        let mut read: Vec<(NodeId, BlockId)> = Vec::new();
        for program in programs {
            let loads = program.tasks.iter().filter_map(|task| match task {
                Task::Load { vertex } => Some(vertex.0 / u32::from(program.window.w.max(1))),
                _ => None,
            });
            for index in loads {
                let block = program.blocks.iter().find(|b| u32::from(b.index.0) == index);
                read.extend(block.map(|b| (program.node, b.id)));
            }
        }
        read.sort_unstable();
        read.dedup();
        self.blocks_read += read.len() as u64;
        for (node, _) in read {
            *self.helped.entry(node).or_default() += 1;
        }
        for outcome in outcomes {
            self.bytes_read += outcome.bytes_read;
            for held in &outcome.written {
                self.bytes += held.len;
                *self.requested.entry(outcome.node).or_default() += 1;
            }
            for &(to, bytes) in &outcome.sent {
                self.moved.add(outcome.node, to, bytes);
            }
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.blocks += other.blocks;
        self.blocks_read += other.blocks_read;
        self.bytes_read += other.bytes_read;
        self.moved.merge(&other.moved);
        self.bytes += other.bytes;
        for (sum, part) in [(&mut self.helped, &other.helped), (&mut self.requested, &other.requested)] {
            for (node, blocks) in part {
                *sum.entry(*node).or_default() += blocks;
            }
        }
    }

    /// What each node did.
    fn nodes(&self) -> Vec<NodeLoad> {
        let mut nodes: BTreeMap<NodeId, NodeLoad> = BTreeMap::new();
        let mut at = |node: NodeId, change: &dyn Fn(&mut NodeLoad)| {
            let idle = NodeLoad { node, up_bytes: 0, down_bytes: 0, helped: 0, requested: 0 };
            change(nodes.entry(node).or_insert(idle));
        };
        for (node, moved) in self.moved.nodes() {
            at(node, &|load| (load.up_bytes, load.down_bytes) = (moved.sent, moved.received));
        }
        self.helped.iter().for_each(|(node, blocks)| at(*node, &|load| load.helped += blocks));
        self.requested.iter().for_each(|(node, blocks)| at(*node, &|load| load.requested += blocks));
        nodes.into_values().collect()
    }

    /// The tally as a report.
    pub fn report(&self, kind: &str, method: Option<Method>, topology: &Topology, seconds: f64) -> JobReport {
        JobReport {
            kind: kind.into(),
            method,
            blocks: self.blocks,
            blocks_read: self.blocks_read,
            bytes_read: self.bytes_read,
            bytes_moved: self.moved.total(),
            bytes_across_racks: self.moved.across_racks(topology),
            max_link_bytes: self.moved.busiest(),
            seconds,
            bytes: self.bytes,
            nodes: self.nodes(),
            ..JobReport::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::RackId;
    use kintsu_plan::Node;

    #[test]
    fn the_largest_link_is_the_largest_direction_of_one_node() {
        let node = |rack| Node { rack: RackId(rack), usable: true, used_bytes: 0, room_bytes: None };
        let nodes = [(0, 0), (1, 0), (2, 1), (3, 1)].map(|(id, rack)| (NodeId(id), node(rack)));
        let topology = Topology { nodes: nodes.into(), ..Topology::default() };
        let outcome = |node, sent: &[(u32, u64)]| RunOutcome {
            node: NodeId(node),
            fault: None,
            upto: 0,
            bytes_read: 10,
            sent: sent.iter().map(|&(to, bytes)| (NodeId(to), bytes)).collect(),
            written: Vec::new(),
        };
        let mut tally = Tally::default();
        tally.attempt(&[], &[outcome(0, &[(3, 10)]), outcome(1, &[(3, 10)]), outcome(2, &[(3, 15)])]);
        let mut twice = tally.clone();
        twice.add(&tally);
        let report = twice.report("repair", None, &topology, 1.5);
        assert_eq!((report.bytes_read, report.bytes_moved), (60, 70));
        assert_eq!((report.bytes_across_racks, report.max_link_bytes), (40, 70));
    }
}
