//! The errors of this crate.

use kintsu_dag::BlockIndex;

/// Why a code was not made, or a loss not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeError {
    /// An invalid name, parameter, matrix or block list.
    #[error("invalid {what}: expected {expected}, got {got}")]
    Invalid {
        /// Which part.
        what: String,
        /// What is valid.
        expected: String,
        /// What was given.
        got: String,
    },
    /// Coefficients that do not tolerate the losses that the code claims.
    #[error(
        "{name} does not reach its distance: expected {claimed} (any {} losses), got a matrix \
         that cannot decode the loss of {}",
        claimed - 1,
        list(lost)
    )]
    Distance {
        /// The code.
        name: String,
        /// The distance it claims.
        claimed: usize,
        /// A loss of fewer than `claimed` blocks that cannot be decoded.
        lost: Vec<BlockIndex>,
    },
    /// A claim that can neither be proved nor refuted at this size.
    #[error("{name} is not supported: expected {expected}, got {got}")]
    Unsupported {
        /// The code.
        name: String,
        /// What would be supported.
        expected: String,
        /// What was requested.
        got: String,
    },
    /// More losses than the code can decode.
    #[error(
        "cannot decode {}: expected at least {missing} more of {}, got {} left: {}",
        list(lost),
        list(needed),
        available.len(),
        list(available)
    )]
    Unrecoverable {
        /// Lost blocks that no local group repairs and that the remaining blocks do not determine.
        lost: Vec<BlockIndex>,
        /// The blocks that are left, in the order they were given.
        available: Vec<BlockIndex>,
        /// The blocks that would help: neither left nor computable from the blocks that are left.
        needed: Vec<BlockIndex>,
        /// The smallest number of `needed` blocks that can suffice.
        missing: usize,
    },
}

impl CodeError {
    pub(crate) fn invalid(
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Invalid { what: what.into(), expected: expected.into(), got: got.to_string() }
    }
}

/// Block names separated by commas, or "none".
fn list(blocks: &[BlockIndex]) -> String {
    if blocks.is_empty() {
        return "none".into();
    }
    blocks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
