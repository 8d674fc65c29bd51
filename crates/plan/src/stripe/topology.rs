//! What a planner knows about the cluster and one stripe.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId, Vertex};
use serde::{Deserialize, Serialize};

use crate::{Layout, PlanError, Rates};

/// A storage node as planners see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its rack.
    pub rack: RackId,
    /// Whether it can be used now: alive, not draining for new blocks.
    pub usable: bool,
    /// Bytes it stores; placement prefers emptier nodes.
    pub used_bytes: u64,
    /// Bytes that new blocks may take: its free space without the reserve. `None` if not known; then there is room.
    #[serde(default)]
    pub room_bytes: Option<u64>,
}

impl Node {
    /// Whether a new block of this many bytes fits.
    pub fn has_room(&self, bytes: u64) -> bool {
        self.room_bytes.is_none_or(|room| room > 0 && room >= bytes)
    }

    /// A new block takes this much of the room.
    pub fn take(&mut self, bytes: u64) {
        self.room_bytes = self.room_bytes.map(|room| room.saturating_sub(bytes));
    }
}

/// The nodes of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    /// By id. The client is not among them and is in no rack.
    pub nodes: BTreeMap<NodeId, Node>,
    /// The known rates of its links.
    pub rates: Rates,
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
        self.indices().filter(|&b| self.has(b, &[])).collect()
    }

    /// The blocks that should be stored and have no home.
    pub fn lost(&self) -> Vec<BlockIndex> {
        self.indices().filter(|&b| self.block_len(b) > 0 && self.homes[b.0 as usize].is_none()).collect()
    }

    /// Whether a block can be read: it is stored, its home is known, and it is not in `unavailable`.
    pub(crate) fn has(&self, block: BlockIndex, unavailable: &[BlockIndex]) -> bool {
        let home = self.homes.get(usize::from(block.0)).copied().flatten();
        home.is_some() && self.block_len(block) > 0 && !unavailable.contains(&block)
    }

    /// The home of a block.
    ///
    /// # Errors
    /// `Placement` when it has none.
    pub(crate) fn home(&self, block: BlockIndex) -> Result<NodeId, PlanError> {
        let home = self.homes.get(usize::from(block.0)).copied().flatten();
        home.ok_or_else(|| PlanError::Placement {
            expected: format!("a node for {block} of {}", self.id),
            got: "none".into(),
        })
    }

    /// Checks that the blocks are distinct blocks of this stripe with bytes, and that there is one home entry for
    /// each block.
    ///
    /// # Errors
    /// `Invalid` otherwise.
    pub(crate) fn check(&self, what: &str, blocks: &[BlockIndex]) -> Result<(), PlanError> {
        let invalid = |expected: String, got: String| {
            Err(PlanError::Invalid { what: format!("{what} of {}", self.id), expected, got })
        };
        let n = self.code.n();
        if self.homes.len() != n {
            return invalid(format!("{n} homes"), self.homes.len().to_string());
        }
        for (i, &block) in blocks.iter().enumerate() {
            if usize::from(block.0) >= n || self.block_len(block) == 0 || blocks[..i].contains(&block) {
                return invalid(
                    format!("distinct blocks below b{n} that have bytes"),
                    crate::error::listed(blocks),
                );
            }
        }
        Ok(())
    }

    /// The vertices of a block: its w symbols.
    pub(crate) fn symbols(&self, block: BlockIndex) -> impl Iterator<Item = Vertex> + use<> {
        let w = self.code.w() as u32;
        (u32::from(block.0) * w..(u32::from(block.0) + 1) * w).map(Vertex)
    }

    /// The block that a symbol is part of.
    pub(crate) fn block_of(&self, symbol: Vertex) -> BlockIndex {
        BlockIndex((symbol.0 / self.code.w() as u32) as u8)
    }

    pub(crate) fn indices(&self) -> impl Iterator<Item = BlockIndex> + '_ {
        (0..self.code.n()).map(|i| BlockIndex(i as u8))
    }
}
