//! Memory is bounded by slices in flight, whatever the size of blocks and the speed of receivers. This test has
//! its own process, whose memory it measures.
#![allow(clippy::unwrap_used)]

#[path = "suite/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId, Sink};
use kintsu_plan::{BlockBinding, LayoutKind, Method, Repair, repair};
use kintsu_runtime::{BlockSink, BlockSource, Context, Local, Output};
use kintsu_wire::message::{Fault, HeldBlock};
use support::{Site, run_all, within};

/// Blocks of any size without a disk, and how far reading is ahead of writing.
#[derive(Default)]
struct Endless {
    read: AtomicU64,
    written: AtomicU64,
    ahead: AtomicU64,
    pause: Option<Duration>,
}

struct Endpoint(Arc<Endless>);

fn byte_at(offset: u64) -> u8 {
    (offset / 4096 * 31 % 251) as u8 + 1
}

impl BlockSource for Endpoint {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        for (i, page) in buf.chunks_mut(4096).enumerate() {
            page.fill(byte_at(offset + i as u64 * 4096));
        }
        self.0.read.fetch_max(offset + buf.len() as u64, Ordering::SeqCst);
        let ahead = self.0.read.load(Ordering::SeqCst) - self.0.written.load(Ordering::SeqCst);
        self.0.ahead.fetch_max(ahead, Ordering::SeqCst);
        Ok(())
    }
}

impl BlockSink for Endpoint {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        // Two sources with equal bytes, one coefficient each: a constant times the bytes.
        assert!(data.chunks(4096).all(|page| page.iter().all(|byte| *byte == page[0])));
        if let Some(pause) = self.0.pause {
            std::thread::sleep(pause);
        }
        self.0.written.fetch_max(offset + data.len() as u64, Ordering::SeqCst);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        Ok(None)
    }
}

struct EndlessLocal(Arc<Endless>);

impl Local for EndlessLocal {
    fn open(&self, _: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        Ok(Box::new(Endpoint(self.0.clone())))
    }

    fn create(&self, _: &BlockBinding, _: Sink, _: u64, _: u64) -> Result<Output, Fault> {
        Ok(Output::Block(Box::new(Endpoint(self.0.clone()))))
    }
}

/// Repairs one block of `len` bytes without disks; returns what was seen.
async fn endless(
    method: Method,
    len: u64,
    slice: u32,
    pause: Option<Duration>,
    serial: bool,
) -> Arc<Endless> {
    let mut site = Site::new("rs:n=3,k=2", LayoutKind::Contiguous, 8192, 0).await;
    let requestor = site.spare(0);
    site.view.homes[0] = None;
    site.view.layout.block_bytes = len;
    site.view.layout.data_bytes = 2 * len;
    let wanted = Repair { lost: vec![BlockIndex(0)], requestors: vec![requestor], method };
    let plan = repair(&site.view, &site.topology, &wanted, &|_| 0, &[]).unwrap().plan;
    let mut programs = site.programs(&plan, (0, u64::MAX), slice);
    programs.iter_mut().for_each(|program| program.serial = serial);
    let seen = Arc::new(Endless { pause, ..Endless::default() });
    let context =
        |node: NodeId| Context { local: Arc::new(EndlessLocal(seen.clone())), ..site.context(node) };
    let outcomes = within(run_all(&programs, context, &[])).await;
    assert!(outcomes.values().all(|outcome| outcome.fault.is_none()), "{outcomes:?}");
    assert_eq!(seen.written.load(Ordering::SeqCst), len);
    seen
}

/// The largest resident set this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// What the kernel may hold of one stream, at both of its ends.
fn socket_bytes() -> u64 {
    let most =
        |file| std::fs::read_to_string(file).unwrap().split_whitespace().nth(2).unwrap().parse::<u64>();
    ["/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem"]
        .into_iter()
        .map(|file| most(file).unwrap())
        .sum()
}

/// Each node holds at most one slice, and each slice is on one node at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_serial_program_nothing_is_read_ahead() {
    for method in [Method::Pipeline, Method::Conventional] {
        let seen = endless(method, 2 << 20, 16 << 10, Some(Duration::from_millis(1)), true).await;
        let ahead = seen.ahead.load(Ordering::SeqCst);
        assert!(ahead <= 3 * (16 << 10), "{method}: {ahead} bytes ahead");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_depend_on_the_size_of_blocks_nor_on_slow_receivers() {
    endless(Method::Pipeline, 4 << 20, 32 << 10, None, false).await;
    let before = peak();
    for method in [Method::Pipeline, Method::Conventional] {
        for slice in [4 << 10, 32 << 10, 1 << 20] {
            endless(method, 256 << 20, slice, None, false).await;
        }
        // Queues and chunks of three nodes, and what the two streams' sockets may hold.
        let most = 3 * (8 << 20) + 2 * socket_bytes();
        let seen = endless(method, 3 * most, 256 << 10, Some(Duration::from_millis(1)), false).await;
        let ahead = seen.ahead.load(Ordering::SeqCst);
        assert!(ahead < most, "{method}: {ahead} bytes ahead, {most} at most");
    }
    let grown = peak() - before;
    println!("three nodes in one process grew by {grown} bytes");
    assert!(grown < 48 << 20, "three nodes, each of which may grow by 32 MiB, grew by {grown} bytes");
}
