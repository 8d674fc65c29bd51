//! A server of the NBD protocol: what implements [`Device`] becomes a disk for every client of that protocol (QEMU,
//! libnbd's tools, fio, the Linux kernel).
//!
//! The protocol is the published one (`doc/proto.md` of the NetworkBlockDevice project): fixed newstyle handshake,
//! simple and structured replies, `base:allocation`, several connections to one device. Requests of a connection
//! run at the same time and are answered in the order in which they end.
//!
//! In order of reading: `device` (what is served), `numbers` (the protocol's constants), `option` and `negotiate` (the
//! handshake), `request`, `execute` and `reply` (one request), `connection` (many of them), `listener`, `server`.
//!
//! Invariants:
//! - No bytes of a client make this crate panic, or hold more memory than [`Limits`] allows: the room for a
//!   request is taken before its bytes are read, and given back after its answer is sent.
//! - A request that begins is ended and answered, also while the server shuts down, unless the client is gone.
//! - A flush covers each write that was answered before the flush arrived, whichever connection it came by.
//!
//! What it is not: it keeps no cache and does not know volumes. The protocol has no passwords, so without TLS it
//! listens on loopback, on a Unix socket of its owner, or on a trusted network.

mod connection;
mod device;
mod error;
mod execute;
#[cfg(fuzzing)]
pub mod fuzz;
mod listener;
mod negotiate;
mod numbers;
mod option;
mod reply;
mod request;
mod server;

pub use device::{BlockSizes, Device, DeviceError, Extent};
pub use error::NbdError;
pub use listener::Listen;
pub use server::{Limits, Server};
