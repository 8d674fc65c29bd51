//! The identifiers: integers that must not be mixed.

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A vertex of an ECDAG: symbol `block * w + sub` below `n * w`, virtual from there on.
    Vertex(u32), "v"
);
id!(
    /// A block's position in its stripe, 0..n, data blocks first.
    BlockIndex(u8), "b"
);
id!(
    /// A rack: the failure domain above a node.
    RackId(u32), "r"
);
id!(
    /// A stripe: the n blocks coded together.
    StripeId(u64), "s"
);

/// A place where tasks run: a storage node, or the client of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The client of an operation: it runs tasks like a node but nobody can connect to it.
    pub const CLIENT: Self = Self(u32::MAX);

    /// Whether this is the client.
    pub fn is_client(self) -> bool {
        self == Self::CLIENT
    }
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_client() { write!(f, "C") } else { write!(f, "N{}", self.0) }
    }
}

/// A block's identity in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// The stripe it belongs to.
    pub stripe: StripeId,
    /// Its position in the stripe.
    pub index: BlockIndex,
}

impl std::fmt::Display for BlockId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.stripe, self.index)
    }
}
