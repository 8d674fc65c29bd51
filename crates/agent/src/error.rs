//! Why an agent does not start.

use std::net::SocketAddr;
use std::path::PathBuf;

use kintsu_dag::NodeId;
use kintsu_wire::ClusterId;

/// Why an agent does not start, or has ended.
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
    /// There are blocks in the directory, but no record of the node that they belong to.
    #[error(
        "{} holds {blocks} blocks but no node.json: expected the record of the node that it belongs to; put it back, or, if \
         this is the folder of node N (`kintsu nodes` shows which one is missing), start it with `--id N --replace`",
        .dir.display()
    )]
    Unnamed {
        /// The directory.
        dir: PathBuf,
        /// How many blocks.
        blocks: usize,
    },
    /// Coordinator and directory belong to different clusters.
    #[error(
        "{} belongs to cluster {own}, the coordinator at {coordinator} to cluster {other}: nothing was changed; start the \
         agent with the address of its own coordinator, or the coordinator with its own folder",
        .dir.display()
    )]
    Foreign {
        /// The directory.
        dir: PathBuf,
        /// Its cluster.
        own: ClusterId,
        /// The coordinator's address.
        coordinator: String,
        /// The coordinator's cluster.
        other: ClusterId,
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
    /// The coordinator refuses this agent.
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
    /// A bad address or token, or a listener that may not leave loopback.
    #[error(transparent)]
    Wire(#[from] kintsu_wire::WireError),
}
