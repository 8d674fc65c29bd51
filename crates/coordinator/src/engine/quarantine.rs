//! Decides about blocks that the metadata do not know: which are set aside, and on which nodes they may be
//! purged. The driver does the work.
//!
//! Invariants: of the lists of one node only the newest waits; if many blocks of a node looked unknown at
//! once, nothing is purged there until an operator confirms, because the metadata may be wrong instead.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_wire::message::BlockRef;

use super::members::Members;

/// If a node has more unknown blocks than this, and more than one in [`ONE_IN`] of its blocks, the metadata
/// are more likely wrong than the blocks.
const FEW: u64 = 10;
const ONE_IN: u64 = 100;

/// Blocks on a node that the metadata do not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    /// Which node.
    pub node: NodeId,
    /// Which blocks, as far as they are remembered.
    pub blocks: Vec<BlockRef>,
    /// How many there are.
    pub count: u64,
    /// How many blocks the node holds.
    pub of: u64,
}

impl Unknown {
    /// Keeps only `blocks`, which are still unknown: the others may be being written now, or their metadata
    /// were rebuilt from blocks. Of the blocks that are only counted, the same share counts as known. `None`
    /// if nothing is left.
    pub fn still(self, blocks: Vec<BlockRef>) -> Option<Self> {
        let looked = self.blocks.len().max(1) as u64;
        let count = self.count.saturating_mul(blocks.len() as u64) / looked;
        (!blocks.is_empty()).then_some(Self { blocks, count, ..self })
    }

    /// How many unknown blocks keep the node from purging until an operator confirms; `None` if they are few.
    pub fn held(&self) -> Option<u64> {
        let many = self.count > FEW && self.count.saturating_mul(ONE_IN) > self.of;
        many.then_some(self.count)
    }
}

/// The lists that wait until the gate is open.
#[derive(Debug, Default)]
pub struct UnknownLists(BTreeMap<NodeId, Unknown>);

impl UnknownLists {
    /// A node has unknown blocks. Returns whether a task must wait for the gate with them: not if there are
    /// none, or if another task waits already, which then takes this list.
    pub fn add(&mut self, unknown: Unknown) -> bool {
        !unknown.blocks.is_empty() && self.0.insert(unknown.node, unknown).is_none()
    }

    /// The wait has ended: takes the newest list of a node.
    pub fn take(&mut self, node: NodeId) -> Option<Unknown> {
        self.0.remove(&node)
    }
}

/// The nodes that may purge what was set aside long ago: those that are alive and not held back.
pub fn purging(members: &Members) -> Vec<NodeId> {
    members.iter().filter(|(_, m)| m.up && m.record.held == 0).map(|(node, _)| node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::tests::record;
    use crate::engine::members::{Members, Patience};
    use kintsu_dag::{BlockId, BlockIndex, StripeId};

    fn unknown(blocks: u64, count: u64, of: u64) -> Unknown {
        let file = |stripe| {
            let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(0) };
            BlockRef { id, generation: 1 }
        };
        Unknown { node: NodeId(1), blocks: (0..blocks).map(file).collect(), count, of }
    }

    #[test]
    fn a_few_unknown_blocks_are_an_accident_and_many_are_not() {
        let many = |count, of| unknown(0, count, of).held() == Some(count);
        assert!(!many(10, 10) && many(11, 11) && many(11, 1099) && !many(11, 1100) && many(12, 1100));
    }

    #[test]
    fn what_is_known_by_now_counts_no_more_also_of_what_was_not_remembered() {
        let left = unknown(4, 400, 500).still(unknown(1, 0, 0).blocks).unwrap();
        assert_eq!((left.blocks.len(), left.count, left.of), (1, 100, 500));
        assert_eq!(unknown(4, 400, 500).still(Vec::new()), None);
        assert_eq!(unknown(0, 0, 500).still(Vec::new()), None);
    }

    #[test]
    fn one_list_of_a_node_waits_and_that_is_the_newest() {
        let mut waiting = UnknownLists::default();
        assert!(!waiting.add(unknown(0, 0, 9)), "nothing to wait with");
        assert!(waiting.add(unknown(1, 1, 9)) && !waiting.add(unknown(2, 2, 9)));
        assert_eq!(waiting.take(NodeId(1)), Some(unknown(2, 2, 9)));
        assert!(waiting.take(NodeId(1)).is_none() && waiting.add(unknown(1, 1, 9)));
    }

    #[test]
    fn only_living_nodes_that_are_not_held_purge() {
        let patience = Patience { dead_after_ms: 50, grace_ms: 600 };
        let mut members = Members::new(patience, BTreeMap::new(), 0);
        for node in 0..3 {
            members.enrolled(NodeId(node), record(1), 0);
        }
        members.stopped(NodeId(0), 1);
        members.recorded(NodeId(1), |record| record.held = 11);
        assert_eq!(purging(&members), [NodeId(2)]);
        members.recorded(NodeId(1), |record| record.held = 0);
        assert_eq!(purging(&members), [NodeId(1), NodeId(2)]);
    }
}
