//! The floor that the machine sets: blocking threads that pass slices along a path of sockets, each
//! adding a buffer of its own, with no frames, checksums, disks or scheduler of ours.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use anyhow::{Context, anyhow};
use kintsu_kernel::xor_into;

/// Bytes of the buffer that a thread adds round and round; more than a second cache, as a block is.
const LOCAL_BYTES: usize = 4 << 20;

/// Sends `block_bytes` through `hops` sockets in slices of `slice_bytes`, read whole, combined and written whole by
/// every thread on the way. Returns when the last thread has all of it.
///
/// # Errors
/// When a socket refuses.
pub fn run(block_bytes: u64, slice_bytes: usize, hops: usize) -> anyhow::Result<()> {
    let mut threads: Vec<JoinHandle<std::io::Result<()>>> = Vec::with_capacity(hops + 1);
    let mut before = None;
    for _ in 0..hops {
        let (to, from) = connected()?;
        let upstream = before.replace(from);
        threads.push(std::thread::spawn(move || pass(block_bytes, slice_bytes, upstream, Some(to))));
    }
    threads.push(std::thread::spawn(move || pass(block_bytes, slice_bytes, before, None)));
    for thread in threads {
        thread.join().map_err(|_| anyhow!("a relay ended early"))?.context("a relay's socket")?;
    }
    Ok(())
}

fn connected() -> anyhow::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = TcpStream::connect(listener.local_addr()?)?;
    let (from, _) = listener.accept()?;
    to.set_nodelay(true)?;
    Ok((to, from))
}

fn pass(
    block_bytes: u64,
    slice_bytes: usize,
    mut upstream: Option<TcpStream>,
    mut to: Option<TcpStream>,
) -> std::io::Result<()> {
    let local = vec![7; LOCAL_BYTES.next_multiple_of(slice_bytes)];
    let mut slice = vec![0; slice_bytes];
    let (mut at, mut left) = (0, block_bytes);
    while left > 0 {
        let len = left.min(slice_bytes as u64) as usize;
        let own = &local[at..at + len];
        match &mut upstream {
            Some(upstream) => upstream.read_exact(&mut slice[..len])?,
            None => slice[..len].copy_from_slice(own),
        }
        if let Some(to) = &mut to {
            if upstream.is_some() {
                xor_into(&mut slice[..len], own);
            }
            to.write_all(&slice[..len])?;
        }
        at = (at + len) % local.len();
        left -= len as u64;
        if at + slice_bytes > local.len() {
            at = 0;
        }
    }
    std::hint::black_box(&slice);
    Ok(())
}
