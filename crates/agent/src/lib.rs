//! The agent: a daemon beside a disk. It keeps blocks and runs programs on them. It reports to the coordinator
//! that it is alive and which blocks it holds, and deletes blocks on command.
//!
//! An agent knows nothing about codes, stripes or repair methods, and decides nothing.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod agent;
mod aside;
mod copies;
mod counters;
mod deletes;
mod error;
mod identity;
mod membership;
mod room;
mod rot;
mod service;
mod tickets;
mod tombstones;
mod updates;

pub use agent::{Agent, AgentConfig, AgentHandle};
pub use error::AgentError;
pub use identity::cluster_of;
