//! The coordinator: metadata, and decisions about where blocks live and how they are repaired.
//!
//! Three layers, from the bottom up; no layer knows the ones above it:
//! - [`engine`]: the decisions, pure: which nodes are alive, what is repaired, moved and encoded, how, for whom;
//! - [`meta`]: the metadata, one durable transaction per operation;
//! - the driver and the handlers: I/O. A handler answers one call; the driver runs the jobs that take long.
//!
//! What it is not: no byte of an object passes through it, and it knows no codes and no repair algorithms;
//! those are values of `kintsu-code` and `kintsu-plan`.
//!
//! Invariants: metadata name a block's new home only after the block is durable there and has the recorded
//! digest; an object is visible whole or not at all; what was acknowledged survives a kill at any moment; nothing
//! is deleted unless a durable row names it, and nothing at all before the gate is open.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod answer;
mod audit;
mod claims;
mod cluster;
mod config;
mod driver;
pub mod engine;
mod error;
mod handlers;
#[cfg(test)]
mod live;
pub mod meta;
mod restore;
mod server;
mod service;
mod tickets;

pub use config::{Config, Launcher, Launching, Medium};
pub use driver::Copied;
pub use engine::space::Reserve;
pub use error::{CoordinatorError, Result};
pub use restore::{Restore, Restored};
pub use server::{Coordinator, CoordinatorHandle};
