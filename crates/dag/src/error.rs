//! The errors of graphs.

use crate::{NodeId, Vertex};

/// Why a graph was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DagError {
    /// A malformed call: repeated children, wrong number of coefficients, a vertex joined twice...
    #[error("invalid graph: {what}: expected {expected}, got {got}")]
    Invalid {
        /// Which call or vertex.
        what: String,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// The joins contain a cycle through this vertex.
    #[error("the graph has a cycle through {vertex}; expected an acyclic graph")]
    Cycle {
        /// A vertex on the cycle.
        vertex: Vertex,
    },
    /// A target does not compute what it claims to be.
    #[error("the graph fails its proof: {vertex} should carry {expected}, but carries {got}")]
    False {
        /// The vertex.
        vertex: Vertex,
        /// The generator row it claims, in hex.
        expected: String,
        /// The combination it ends with, in hex.
        got: String,
    },
    /// A vertex has no place.
    #[error("{vertex} has no place: expected a node to {role} it")]
    Unplaced {
        /// The vertex.
        vertex: Vertex,
        /// `load`, `compute` or `persist`.
        role: &'static str,
    },
    /// A bind that contradicts another one.
    #[error("{vertex} is bound to be computed on {first} and on {second}")]
    Conflict {
        /// The vertex.
        vertex: Vertex,
        /// One place.
        first: NodeId,
        /// The other.
        second: NodeId,
    },
}
