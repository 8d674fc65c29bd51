//! Placed graphs and the tasks they lower to (OpenEC, section 4.3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Ecdag, NodeId, Vertex};

/// Where a persisted vertex goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Sink {
    /// To a new block file.
    Block,
    /// Into an existing block by XOR (parity updates).
    BlockXor,
    /// To the client of the operation.
    Client,
    /// Nowhere: only the way there matters (measuring links).
    Nothing,
    /// Nowhere: its digest is compared with that of the block that is stored.
    Compare,
}

/// What a node does with one vertex, for every slice in turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// Reads a symbol: from its block, or on the client from the object being written.
    Load {
        /// The symbol.
        vertex: Vertex,
    },
    /// Receives a vertex from another node.
    Fetch {
        /// The vertex.
        vertex: Vertex,
        /// Who has it.
        from: NodeId,
    },
    /// Computes vertices from vertices present on this node.
    Compute {
        /// What is computed.
        outputs: Vec<Vertex>,
        /// The vertices from which they are computed.
        inputs: Vec<Vertex>,
        /// `outputs.len() x inputs.len()` coefficients, row-major.
        coefs: Vec<u8>,
    },
    /// Stores a symbol, or returns it to the client.
    Persist {
        /// The symbol.
        vertex: Vertex,
        /// Where it goes.
        sink: Sink,
    },
}

/// The tasks of one node, ordered so that the inputs of each are ready before it, and the vertices that others
/// fetch from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTasks {
    /// The node.
    pub node: NodeId,
    /// Its tasks; the order agrees with one topological order shared by all nodes.
    pub tasks: Vec<Task>,
    /// The vertices that other nodes fetch from this one, in the same order: the counterpart of
    /// their `Fetch` tasks.
    pub sends: Vec<(Vertex, NodeId)>,
}

/// A graph with a place for every load, computation and persisted symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The graph.
    pub graph: Ecdag,
    /// The node that loads each leaf.
    pub load_at: BTreeMap<Vertex, NodeId>,
    /// The node that computes a joined vertex or a `bind_x` vertex; needed only where neither
    /// `bind_x` nor `bind_y` decides.
    pub compute_at: BTreeMap<Vertex, NodeId>,
    /// The node that persists a symbol, and how. Leaves may be persisted too (a block that is
    /// written, copied or read as it is), on the node that loads them or on another one.
    pub persist_at: BTreeMap<Vertex, (NodeId, Sink)>,
}
