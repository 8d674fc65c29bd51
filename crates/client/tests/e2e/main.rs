//! The system as a whole: a real coordinator and real agents over loopback, driven by the client library.

#![allow(clippy::unwrap_used)]

mod bytes;
mod chaos;
mod cluster;
mod codes;
mod degraded;
mod fences;
mod forgers;
mod jobs;
mod packs;
mod puts;
mod ranges;
mod repack;
mod round_trips;
mod snapshots;
mod streams;
mod sub_blocks;
mod volume_deltas;
mod volume_logs;
mod volumes;
mod windows;
