//! A whole cluster in one process: a coordinator, and agents with a folder and listeners each. Nothing in it is
//! simulated or shared: they speak over loopback as separate processes do.
//!
//! `kintsu up` runs it, and benchmarks, studies and tests measure and disturb it.

mod cluster;
mod error;
mod folders;
mod nodes;

pub use cluster::{Cluster, Options};
pub use error::{ClusterError, Result};
pub use folders::{coordinator_dir, node_dir, rack_of};
