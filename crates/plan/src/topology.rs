//! What a planner knows of the cluster and of one stripe.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use serde::{Deserialize, Serialize};

use crate::Layout;

/// A storage node as planners see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its rack.
    pub rack: RackId,
    /// Whether it can be used now: alive, not draining for new blocks.
    pub usable: bool,
    /// Bytes it stores; placement prefers emptier nodes.
    pub used_bytes: u64,
}

/// The nodes of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// By id. The client is not among them and is in no rack.
    pub nodes: BTreeMap<NodeId, Node>,
}

impl Topology {
    /// The rack of a node; `None` for the client and unknown nodes.
    pub fn rack(&self, node: NodeId) -> Option<RackId> {
        self.nodes.get(&node).map(|n| n.rack)
    }
}

/// One stripe as planners see it.
#[derive(Debug, Clone)]
pub struct StripeView {
    /// Its identity.
    pub id: StripeId,
    /// Its code.
    pub code: Arc<dyn Code>,
    /// How object bytes lie in its data blocks, and so how long each block is.
    pub layout: Layout,
    /// For each of the n blocks the node that holds it, or `None` when it is lost or not stored
    /// (an empty block is never stored and never lost: it is zero).
    pub homes: Vec<Option<NodeId>>,
}

impl StripeView {
    /// Length of a block in bytes; 0 for a block that is not stored.
    pub fn block_len(&self, index: BlockIndex) -> u64 {
        self.layout.block_len(self.code.k(), index)
    }

    /// The blocks of length 0: coded as zeros, never stored.
    pub fn absent(&self) -> Vec<BlockIndex> {
        self.indices().filter(|&b| self.block_len(b) == 0).collect()
    }

    /// The stored blocks whose home is known.
    pub fn available(&self) -> Vec<BlockIndex> {
        self.indices().filter(|&b| self.block_len(b) > 0 && self.homes[b.0 as usize].is_some()).collect()
    }

    /// The blocks that should be stored and have no home.
    pub fn lost(&self) -> Vec<BlockIndex> {
        self.indices().filter(|&b| self.block_len(b) > 0 && self.homes[b.0 as usize].is_none()).collect()
    }

    fn indices(&self) -> impl Iterator<Item = BlockIndex> + '_ {
        (0..self.code.n()).map(|i| BlockIndex(i as u8))
    }
}
