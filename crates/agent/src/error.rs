//! Why an agent does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use kintsu_dag::NodeId;

/// Why an agent does not start, or ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AgentError {
    /// The directory belongs to another node.
    #[error("{} belongs to {found}; expected the folder of {asked}, or a new one", .dir.display())]
    OtherNode {
        /// The directory.
        dir: PathBuf,
        /// The node it belongs to.
        found: NodeId,
        /// The node that was asked for.
        asked: NodeId,
    },
    /// The directory's record of its node cannot be read or written.
    #[error("{}: {detail}", .path.display())]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {addr}: {detail}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// Why not.
        detail: String,
    },
    /// The coordinator does not take this agent.
    #[error("the coordinator at {coordinator} refuses this agent: {detail}")]
    Refused {
        /// Its address.
        coordinator: String,
        /// What it said.
        detail: String,
    },
    /// The block store does not open.
    #[error(transparent)]
    Store(#[from] kintsu_store::StoreError),
    /// An address or token that makes no sense, or a listener that may not leave loopback.
    #[error(transparent)]
    Wire(#[from] kintsu_wire::WireError),
}
