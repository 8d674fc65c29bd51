//! What happened to a block of a stripe, as whoever saw it tells the metadata: values, without a store.

use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_wire::message::{DigestBytes, FaultKind};

/// A block that cannot be read at a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostBlock {
    /// Which.
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
    /// The home it was repaired or copied for: it must still be that one.
    pub from: NodeId,
    /// Its new home; may be the old one.
    pub to: NodeId,
    /// The digest it was written with there: it must be the recorded one.
    pub digest: DigestBytes,
}

/// A parity block that was made by an offline encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parity {
    /// Which block of the stripe.
    pub index: BlockIndex,
    /// Its home.
    pub node: NodeId,
    /// Its digest.
    pub digest: DigestBytes,
}
