//! Why a lab is refused or does not start.

/// Why a lab is refused or does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// An invalid description or argument.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which part.
        what: String,
        /// What would be right.
        expected: String,
        /// What came.
        got: String,
    },
    /// This machine, or this user on it, cannot have emulated hosts.
    #[error("this machine cannot have emulated hosts: {what}: expected {expected}, got {got}")]
    Unsupported {
        /// What was tried.
        what: &'static str,
        /// What is needed.
        expected: String,
        /// What came instead.
        got: String,
    },
    /// A command of the system failed.
    #[error("{command}: expected success, got {got}")]
    Command {
        /// The command.
        command: String,
        /// What it said.
        got: String,
    },
    /// A process of the lab did not start.
    #[error("{process}: expected it to say that it is ready, got {got}")]
    Start {
        /// Which one.
        process: String,
        /// What came instead, with the end of its log.
        got: String,
    },
    /// Reading or writing failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A client of the lab's own cluster failed.
    #[error(transparent)]
    Client(#[from] kintsu_client::ClientError),
    /// A link that has no valid name.
    #[error(transparent)]
    Plan(#[from] kintsu_plan::PlanError),
}

/// What functions of this crate return.
pub type Result<T, E = LabError> = std::result::Result<T, E>;

impl LabError {
    pub(crate) fn invalid(
        what: impl Into<String>,
        expected: impl Into<String>,
        got: impl std::fmt::Display,
    ) -> Self {
        Self::Invalid { what: what.into(), expected: expected.into(), got: got.to_string() }
    }

    /// For `map_err`: an I/O error while doing `what`.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
