//! What long work read, moved and made, measured from what the agents reported.

use std::collections::BTreeMap;

use kintsu_dag::{BlockId, NodeId, Task};
use kintsu_plan::{Method, Program, Topology};
use kintsu_wire::message::{JobReport, RunOutcome};

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
    pub sent: BTreeMap<(NodeId, NodeId), u64>,
}

impl Tally {
    /// Counts one attempt: the programs that ran and how they ended.
    pub fn attempt(&mut self, programs: &[Program], outcomes: &[RunOutcome]) {
        let mut read: Vec<BlockId> = Vec::new();
        for program in programs {
            let loads = program.tasks.iter().filter_map(|task| match task {
                Task::Load { vertex } => Some(vertex.0 / u32::from(program.window.w.max(1))),
                _ => None,
            });
            for index in loads {
                let block = program.blocks.iter().find(|b| u32::from(b.index.0) == index);
                read.extend(block.map(|b| b.id));
            }
        }
        read.sort_unstable();
        read.dedup();
        self.blocks_read += read.len() as u64;
        for outcome in outcomes {
            self.bytes_read += outcome.bytes_read;
            for &(to, bytes) in &outcome.sent {
                *self.sent.entry((outcome.node, to)).or_default() += bytes;
            }
        }
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Tally) {
        self.blocks += other.blocks;
        self.blocks_read += other.blocks_read;
        self.bytes_read += other.bytes_read;
        for (link, bytes) in &other.sent {
            *self.sent.entry(*link).or_default() += bytes;
        }
    }

    /// Bytes sent between nodes.
    pub fn moved(&self) -> u64 {
        self.sent.values().sum()
    }

    /// The same as a report.
    pub fn report(&self, kind: &str, method: Option<Method>, topology: &Topology, seconds: f64) -> JobReport {
        let crosses = |(from, to): &(NodeId, NodeId)| topology.rack(*from) != topology.rack(*to);
        let mut links: BTreeMap<(NodeId, bool), u64> = BTreeMap::new();
        for (&(from, to), bytes) in &self.sent {
            *links.entry((from, true)).or_default() += bytes;
            *links.entry((to, false)).or_default() += bytes;
        }
        JobReport {
            kind: kind.into(),
            method,
            blocks: self.blocks,
            blocks_read: self.blocks_read,
            bytes_read: self.bytes_read,
            bytes_moved: self.moved(),
            bytes_across_racks: self.sent.iter().filter(|(l, _)| crosses(l)).map(|(_, b)| b).sum(),
            max_link_bytes: links.values().copied().max().unwrap_or(0),
            seconds,
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
        let node = |rack| Node { rack: RackId(rack), usable: true, used_bytes: 0 };
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
