//! What happened to a block of a stripe, as it is told to the metadata: plain values, without a store.

use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_wire::message::{DigestBytes, FaultKind};

/// A block that cannot be read at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostBlock {
    /// Which block.
    pub id: BlockId,
    /// Where it should be.
    pub node: NodeId,
    /// Why it cannot be read.
    pub why: FaultKind,
}

/// A block that is durable at a new place, and may become visible there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landing {
    /// Which block of the stripe.
    pub index: BlockIndex,
    /// The home that the block had when its repair or copy began. If the home has changed, the block does not
    /// become visible.
    pub from: NodeId,
    /// Its new home; may be the old one.
    pub to: NodeId,
    /// The generation that was written there. If the block has another one by now, it does not become visible.
    pub generation: u32,
    /// The digest that was written there: it must equal the recorded one.
    pub digest: DigestBytes,
}

/// A parity block that an offline encoding made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity {
    /// Which block of the stripe.
    pub index: BlockIndex,
    /// Its home.
    pub node: NodeId,
    /// Its digest.
    pub digest: DigestBytes,
}
