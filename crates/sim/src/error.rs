//! Why something cannot be simulated.

use kintsu_plan::PlanError;

/// Why something cannot be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A parameter out of its range.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which parameter.
        what: String,
        /// What is valid.
        expected: String,
        /// What came.
        got: String,
    },
    /// A plan cannot be made, or does not lower.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl From<kintsu_dag::DagError> for SimError {
    fn from(error: kintsu_dag::DagError) -> Self {
        Self::Plan(error.into())
    }
}

impl SimError {
    pub(crate) fn invalid(what: &str, expected: impl std::fmt::Display, got: impl std::fmt::Display) -> Self {
        Self::Invalid { what: what.into(), expected: expected.to_string(), got: got.to_string() }
    }
}
