//! Ports for a cluster of daemons.

use std::net::TcpListener;

/// The first of enough unused ports that follow each other, and a listener on the one before it. Another program of tests that looks
/// for ports sees the listener before any daemon listens.
pub fn free_ports(nodes: u32) -> (TcpListener, u16) {
    let (count, seed) = (10 + 3 * nodes as u16, std::process::id() as u16);
    let free = |port: u16| TcpListener::bind(("127.0.0.1", port)).ok();
    let mut starts = (0..200u16).map(|i| 20_000 + (seed.wrapping_mul(31).wrapping_add(i * 61)) % 12_000);
    let claim = |start: u16| {
        let claim = free(start)?;
        (start + 1..=start + count).all(|port| free(port).is_some()).then_some((claim, start + 1))
    };
    starts.find_map(claim).unwrap()
}
