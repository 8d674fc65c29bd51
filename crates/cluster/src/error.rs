//! Why a cluster does not start or did not end well.

/// Why a cluster does not start or did not end well.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The coordinator does not start, or the disk of its metadata failed.
    #[error(transparent)]
    Coordinator(#[from] kintsu_coordinator::CoordinatorError),
    /// An agent does not start.
    #[error("node {node}: {source}")]
    Node {
        /// Its number.
        node: u32,
        /// Why it does not start.
        source: kintsu_agent::AgentError,
    },
}

/// What functions of this crate return.
pub type Result<T, E = ClusterError> = std::result::Result<T, E>;
