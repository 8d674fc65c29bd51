//! The coordinator: metadata, and decisions about where blocks live and how they are mended.
//!
//! Three layers, each ignorant of the ones above it:
//! - decisions, pure: [`members`] (who is alive), [`repair`] (what is mended, how, for whom),
//!   `leases` (which puts still live);
//! - [`meta`]: the metadata, one durable transaction an operation;
//! - the driver and the handlers: I/O. A handler answers one call; the driver does what takes
//!   long.
//!
//! What it is not: no byte of an object passes through it, and it knows no codes and no repair
//! algorithms; those are values of `kintsu-code` and `kintsu-plan`.
//!
//! Invariants: metadata name a block's new home only after the block is durable there and has the
//! recorded digest; an object is visible whole or not at all; what was acknowledged survives a
//! kill at any moment; nothing is deleted unless a durable row names it, and nothing at all before the gate is open.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod claims;
mod cluster;
mod config;
mod driver;
mod error;
mod gate;
mod handlers;
mod leases;
#[cfg(test)]
mod live;
pub mod members;
pub mod meta;
mod places;
mod rebuild;
pub mod repair;
mod restore;
mod server;
mod service;

pub use config::{Config, Launcher, Launching, Medium};
pub use driver::Copied;
pub use error::{CoordinatorError, Result};
pub use restore::{Restore, Restored};
pub use server::{Coordinator, CoordinatorHandle};
