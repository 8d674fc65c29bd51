//! Everything that decides, as pure state machines: events in, commands or answers out.
//!
//! - [`members`]: who is alive; `gate`: when the coordinator may delete and repair by itself.
//! - `leases`: which puts still live; `places`: who may write and delete where.
//! - [`repair`]: what is mended, how, and for whom.
//! - `drain`: how a node is emptied; `encode`: how stripes get their parity.
//! - `damage`: what can be read while nodes are gone.
//! - `rebuild`: what metadata can be made from blocks.
//!
//! What this is not: it has no clock (time comes in as milliseconds), no randomness (not even the order of a hash map), no
//! I/O, no locks, and it knows no store: of the metadata it sees records ([`crate::meta::record`]) and changes
//! ([`crate::meta::change`]), which are values. The layering task (`xtask/src/layers.rs`) checks that. The driver carries out
//! what is decided here and tells how it ended.

pub(crate) mod assign;
pub(crate) mod damage;
pub(crate) mod drain;
pub(crate) mod encode;
pub(crate) mod gate;
pub(crate) mod leases;
pub mod members;
pub(crate) mod places;
pub(crate) mod rebuild;
pub mod repair;
pub(crate) mod slow;
pub(crate) mod stripe;
