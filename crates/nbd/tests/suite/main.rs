//! The server beside real clients (QEMU, libnbd, fio) and beside one that breaks the rules, over a real file.

#![allow(clippy::unwrap_used)]

mod endings;
mod file;
mod handshake;
mod odd_bytes;
mod raw;
mod requests;
mod secret;
mod tools;
