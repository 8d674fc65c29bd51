//! A server of the S3 protocol over a cluster: a gateway for its clients, as the NBD server is for those of volumes.
//!
//! In order of reading: `server` and `places` (connections and their limits), `memory` (how much there is, and for whom), `metrics` (what it does, in numbers), `patience` and `arriving`
//! (how long bytes are waited for, and what is read first), `chunks` (bodies that say the size of each piece), `keys` (who may call), `signed` (what a signature covers), `actions`, `policy`,
//! `condition`, `acl`, `public` and `access` (who may do what), `audit` (who did), `gateway` (the table of operations), `names` (what is kept under which name), `bucket` and `entry` (what is known of
//! buckets and objects), `body` (bytes that come), then the operations: `put`, `get`, `list`, `delete`, `versions`,
//! `multipart`, `copy`, `settings`, `cors`, `lock`, `lifecycle` and `expiry`. What is served and what is not: `docs/s3.md`; why it is built so: `docs/adr/0013-s3.md`.
//!
//! Invariants: everything that must outlive a request is in the cluster, so several gateways may serve the same buckets. What
//! a request decides from (a condition, the newest version, an upload) is checked again in the transaction that carries it
//! out. The memory for bytes of objects and for documents is bounded by [`Limits::memory_bytes`], whatever clients do.
//!
//! What it never does: keep state of its own, code or place bytes, or repair: that is the client library's and the
//! cluster's.

mod access;
mod acl;
mod actions;
mod arriving;
mod audit;
mod body;
mod bucket;
mod chunks;
mod condition;
mod copy;
mod cors;
mod delete;
mod entry;
mod error;
mod expiry;
mod form;
#[cfg(any(fuzzing, test))]
pub mod fuzz;
mod gateway;
mod get;
mod keys;
mod lifecycle;
mod list;
mod lock;
mod memory;
mod metrics;
mod multipart;
mod names;
mod patience;
mod places;
mod policy;
mod public;
mod put;
mod server;
mod settings;
mod signed;
mod skew;
mod sums;
mod tags;
mod versions;

pub use error::S3GatewayError;
pub use gateway::{Config, EntityTags};
pub use keys::Keys;
pub use metrics::Numbers;
pub use server::{Limits, Listen, Server};
