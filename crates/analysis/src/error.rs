//! The errors of this crate.

use kintsu_code::CodeError;
use kintsu_dag::{BlockIndex, DagError};

/// Why an analysis was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnalysisError {
    /// An invalid range, family or option.
    #[error("invalid {what}: expected {expected}, got {got}")]
    Invalid {
        /// Which part.
        what: String,
        /// What is valid.
        expected: String,
        /// What was given.
        got: String,
    },
    /// More work than is allowed.
    #[error("too much work for {what}: expected at most {limit}, got {got}")]
    TooLarge {
        /// What was requested.
        what: String,
        /// What is allowed.
        limit: String,
        /// What it would cost.
        got: String,
    },
    /// The code refused an operation that it must support.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A graph of the code that is not proved.
    #[error("false {graph} of {name}: {error}")]
    Graph {
        /// The code.
        name: String,
        /// Which graph.
        graph: String,
        /// What the proof says.
        error: DagError,
    },
    /// A claim of the code that counting disproves.
    #[error("{name} claims distance {claimed}: expected all losses of {} blocks to be decodable, got one that is not: {lost:?}", lost.len())]
    Distance {
        /// The code.
        name: String,
        /// What it claims.
        claimed: usize,
        /// A loss that it cannot decode.
        lost: Vec<BlockIndex>,
    },
}

impl AnalysisError {
    pub(crate) fn invalid(
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Invalid { what: what.into(), expected: expected.into(), got: got.to_string() }
    }
}
