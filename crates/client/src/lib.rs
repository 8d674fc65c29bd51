//! The client library: writes objects, reads them (whole, ranges, degraded), and queries and controls the cluster.
//! Every user interface (command line, gateways, bindings) is an adapter over it.
//!
//! [`Client::put`] encodes in this process and sends blocks directly to the nodes that keep them. [`Client::get`]
//! reads directly from nodes and decodes lost blocks in this process. The coordinator tells where blocks are and
//! records finished writes; no object's bytes pass through it.
//!
//! In order of reading: `client` (the connection), `write` and `write_stripe`, `feed` and `grants` (streams), `read` and `portion`,
//! `span` and `assemble` (which bytes of which block), `attempt` (one plan run once), `repack`, `jobs`, `codes`.
//!
//! Invariants: an object becomes visible whole or not at all; a reader gets each byte once, in order,
//! verified where it was stored and on the way; memory is bounded by slices in flight, never by the
//! size of a block or an object. Nothing here knows a code or a repair method: those are plans.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod assemble;
mod attempt;
mod avoid;
mod backup;
mod checksum;
mod choice;
mod client;
mod codes;
mod damage;
mod error;
mod feed;
mod felt;
mod grants;
mod guard;
mod jobs;
mod late;
mod lease;
mod pack;
mod portion;
mod rates;
mod read;
mod repack;
mod settings;
mod source;
mod span;
mod stripe;
mod volume;
mod write;
mod write_stripe;

pub use backup::Backup;
pub use checksum::joined as joined_checksum;
pub use client::{Client, Options};
pub use damage::{Damage, DamagedPart, Health as ObjectHealth, LocatedBlock, Missing, NodeSeen};
pub use error::ClientError;
pub use jobs::Jobs;
pub use read::{Found, GetOptions, GetReport};
pub use repack::{RepackOptions, RepackReport};
pub use source::{FileSource, ReadAt};
pub use volume::{Extent, Volume, VolumeAccess};
pub use write::{Finish, PutOptions};
