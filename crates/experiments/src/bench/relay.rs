//! The baseline of the machine: blocking threads that pass slices along a path of sockets. Each adds what it reads
//! from a file. There are no frames, checksums, writes or task scheduler.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;

use kintsu_kernel::xor_into;

use crate::error::{Context, ExperimentError, Result};

/// Sends `block_bytes` in slices of `slice_bytes` through one thread for each of the files and a last thread. A
/// thread receives a whole slice, combines it with as much of its file, and sends it on. Returns when the last
/// thread has everything.
///
/// # Errors
/// Errors of a socket or a file.
pub fn run(block_bytes: u64, slice_bytes: usize, files: Vec<PathBuf>) -> Result<()> {
    let mut threads: Vec<JoinHandle<std::io::Result<()>>> = Vec::with_capacity(files.len() + 1);
    let mut before = None;
    for file in files {
        let file = File::open(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let (to, from) = connected()?;
        let upstream = before.replace(from);
        let hop = Hop { upstream, local: Some((file, to)) };
        threads.push(std::thread::spawn(move || hop.pass(block_bytes, slice_bytes)));
    }
    let last = Hop { upstream: before, local: None };
    threads.push(std::thread::spawn(move || last.pass(block_bytes, slice_bytes)));
    for thread in threads {
        thread
            .join()
            .map_err(|_| ExperimentError::Failed("a relay thread panicked".into()))?
            .context("a relay's socket")?;
    }
    Ok(())
}

fn connected() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let to = TcpStream::connect(listener.local_addr()?)?;
    let (from, _) = listener.accept()?;
    to.set_nodelay(true)?;
    Ok((to, from))
}

/// One thread's part: where slices come from, what is added to them, and where they go.
struct Hop {
    upstream: Option<TcpStream>,
    local: Option<(File, TcpStream)>,
}

impl Hop {
    fn pass(mut self, block_bytes: u64, slice_bytes: usize) -> std::io::Result<()> {
        let (mut sum, mut own) = (vec![0; slice_bytes], vec![0; slice_bytes]);
        let mut left = block_bytes;
        while left > 0 {
            let len = left.min(slice_bytes as u64) as usize;
            let (sum, own) = (&mut sum[..len], &mut own[..len]);
            if let Some(upstream) = &mut self.upstream {
                upstream.read_exact(sum)?;
            }
            if let Some((file, to)) = &mut self.local {
                file.read_exact(own)?;
                xor_into(sum, own);
                to.write_all(sum)?;
            }
            left -= len as u64;
        }
        std::hint::black_box(&sum);
        Ok(())
    }
}
