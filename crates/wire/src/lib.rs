//! What travels between processes: control messages over gRPC, slices in framed TCP streams.
//!
//! Control messages are the types of [`message`], in MessagePack with named fields; data frames are those of
//! [`frame`]. What peers of different versions may do with each other: [`version`].

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod ambient;
pub mod audit;
pub mod channel;
pub mod codec;
pub mod copy;
mod error;
pub mod frame;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod identity;
pub mod inflow;
pub mod message;
pub mod net;
mod peer;
pub mod prometheus;
pub mod security;
pub mod ticket;
pub mod tls;
pub mod version;

pub use channel::{
    AgentChannel, CoordinatorChannel, MembershipChannel, connect_agent, connect_agent_of,
    connect_coordinator, guard_agent,
};
pub use error::WireError;
pub use identity::{ClusterId, FolderId, Seen};
pub use peer::Peer;
pub use security::{Credentials, TrustedNetwork, check_listen, other_cluster, words};
pub use tls::Tls;
pub use version::{OLDEST_VERSION, PROTOCOL_VERSION};

/// The gRPC metadata key that carries the [`ClusterId`], if the caller knows it.
pub const CLUSTER_KEY: &str = "kintsu-cluster";

/// The largest control message in bytes; larger ones are refused before they are read.
pub const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The coordinator's gRPC service for agents: they join the cluster, and tell what they hold.
#[allow(missing_docs, clippy::all)]
pub mod membership {
    include!(concat!(env!("OUT_DIR"), "/kintsu.Membership.rs"));
}

/// The coordinator's gRPC service for clients: they read and write objects.
#[allow(missing_docs, clippy::all)]
pub mod objects {
    include!(concat!(env!("OUT_DIR"), "/kintsu.Objects.rs"));
}

/// The coordinator's gRPC service for clients of volumes.
#[allow(missing_docs, clippy::all)]
pub mod volumes {
    include!(concat!(env!("OUT_DIR"), "/kintsu.Volumes.rs"));
}

/// The coordinator's gRPC service for operators: they look after the cluster.
#[allow(missing_docs, clippy::all)]
pub mod operation {
    include!(concat!(env!("OUT_DIR"), "/kintsu.Operation.rs"));
}

/// The gRPC service of a coordinator beside another store: which agents there are, and what those find on their disks.
#[allow(missing_docs, clippy::all)]
pub mod beside {
    include!(concat!(env!("OUT_DIR"), "/kintsu.Beside.rs"));
}

/// The agent's gRPC service.
#[allow(missing_docs, clippy::all)]
pub mod agent {
    include!(concat!(env!("OUT_DIR"), "/kintsu.Agent.rs"));
}
