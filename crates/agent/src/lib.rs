//! The agent: a daemon beside a disk. It keeps blocks, runs programs on them, tells the coordinator
//! that it lives and what it holds, and removes what it is told to.
//!
//! An agent knows nothing of codes, stripes or repair methods, and decides nothing.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod agent;
mod aside;
mod copies;
mod deletes;
mod error;
mod graves;
mod identity;
mod membership;
mod rot;
mod service;

pub use agent::{Agent, AgentConfig, AgentHandle};
pub use error::AgentError;
pub use identity::cluster_of;
