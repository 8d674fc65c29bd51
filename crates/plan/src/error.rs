//! Why a plan cannot be made.

use kintsu_dag::{BlockIndex, DagError};

/// Why a plan cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A parameter out of its range.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which parameter.
        what: String,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// More losses than the code can bear.
    #[error("cannot rebuild {}: {reason}; left: {}", listed(.lost), listed(.left))]
    Unrecoverable {
        /// The lost blocks.
        lost: Vec<BlockIndex>,
        /// The blocks that are left.
        left: Vec<BlockIndex>,
        /// What more is needed.
        reason: String,
    },
    /// Too few living nodes or racks.
    #[error("placement needs {expected}, got {got}")]
    Placement {
        /// What the placement needs.
        expected: String,
        /// What is there.
        got: String,
    },
    /// The graph was refused.
    #[error(transparent)]
    Graph(#[from] DagError),
}

pub(crate) fn listed<T: std::fmt::Display>(items: &[T]) -> String {
    if items.is_empty() {
        return "none".into();
    }
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}
