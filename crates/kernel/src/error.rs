//! The errors of kernels.

use crate::Backend;

/// Why a kernel was not made or not applied; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelError {
    /// Counts or lengths that do not fit together.
    #[error("invalid {what}: expected {expected}, got {got}")]
    Invalid {
        /// Which argument.
        what: &'static str,
        /// What would fit.
        expected: usize,
        /// What was given.
        got: usize,
    },
    /// An instruction set that this processor lacks.
    #[error("unsupported backend: expected one of {available:?}, got {got}")]
    Unsupported {
        /// What runs here.
        available: Vec<Backend>,
        /// What was requested.
        got: Backend,
    },
}

impl KernelError {
    /// `Ok` when `got` is `expected`.
    pub(crate) fn check(what: &'static str, expected: usize, got: usize) -> Result<(), Self> {
        if expected == got { Ok(()) } else { Err(Self::Invalid { what, expected, got }) }
    }
}
