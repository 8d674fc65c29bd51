//! What `Load` and `Persist` mean where a program runs: blocks of a store on an agent, bytes of
//! an object on a client.

use std::sync::Arc;

use bytes::Bytes;
use kintsu_dag::{BlockId, BlockIndex, NodeId, Sink};
use kintsu_plan::BlockBinding;
use kintsu_wire::message::{Fault, HeldBlock};
use tokio::sync::mpsc;

use crate::fault::invalid;

/// Where the bytes of one block are read. Used on blocking threads.
pub trait BlockSource: Send {
    /// Fills `buf` with the block's bytes from `offset`; never asked for bytes past the block's end.
    ///
    /// # Errors
    /// A fault that names this node and the block.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault>;

    /// As `read_at` if that does not block, so that it may be called anywhere; `false` if it may block, and `buf` must
    /// not be used then.
    ///
    /// # Errors
    /// As `read_at`.
    fn read_now(&mut self, _offset: u64, _buf: &mut [u8]) -> Result<bool, Fault> {
        Ok(false)
    }

    /// The block's bytes from `offset` if they are in memory in one piece, without a copy; `None` if they must be
    /// read. As `read_at` otherwise.
    ///
    /// # Errors
    /// As `read_at`.
    fn lend(&mut self, _offset: u64, _len: usize) -> Result<Option<Bytes>, Fault> {
        Ok(None)
    }

    /// Bytes read from the medium so far; `None` if the source knows only what was requested.
    fn bytes_read(&self) -> Option<u64> {
        None
    }

    /// Least number of bytes that are read from the medium together; 1 if every byte can be read by itself.
    fn unit_bytes(&self) -> u32 {
        1
    }
}

/// Where the bytes of one block are written. Used on blocking threads.
pub trait BlockSink: Send {
    /// Whether [`write_at`](Self::write_at) may block; if not, it is called anywhere.
    fn may_block(&self) -> bool {
        true
    }

    /// Takes `data` for `offset`; pieces come in any order, never past the block's end.
    ///
    /// # Errors
    /// A fault that names this node and the block.
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault>;

    /// Everything was written: adds what is kept of an older version of the block.
    ///
    /// # Errors
    /// A fault that names this node and the block.
    fn complete(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Bytes of an older version of the block that were read from the medium so far.
    fn bytes_read(&self) -> u64 {
        0
    }

    /// Everything was written and completed: makes the block durable and visible. The result goes into the run's report.
    ///
    /// # Errors
    /// A fault that names this node and the block; nothing is visible then.
    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault>;

    /// The run ended early, not because of this sink: the block may be kept for the next attempt.
    fn suspend(self: Box<Self>) {}
}

/// What becomes of the bytes of a persisted block.
pub enum Output {
    /// They are kept.
    Block(Box<dyn BlockSink>),
    /// They are handed on at once. A slow receiver slows the run down; if the receiver is gone, the run ends.
    Channel(mpsc::Sender<Delivery>),
}

/// Bytes of a block handed to the client: every byte of the window below the block's length exactly once. With a
/// single lane the bytes of one block come in order of offset; different blocks come interleaved.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Position in the stripe.
    pub index: BlockIndex,
    /// Which block.
    pub id: BlockId,
    /// Where in the block.
    pub offset: u64,
    /// The bytes. They hold one of the run's buffers: drop them soon.
    pub bytes: Bytes,
}

/// The blocks within reach of the programs of one node. All calls may block.
pub trait Local: Send + Sync + 'static {
    /// Opens a block for `Load`.
    ///
    /// # Errors
    /// A fault that names this node and the block.
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault>;

    /// Whether opening a block and reading it may block; if not, both are done anywhere.
    fn may_block(&self) -> bool {
        true
    }

    /// Opens a block for `Persist`. With `start` above zero it continues what an earlier attempt with the same
    /// `resume_key` left.
    ///
    /// # Errors
    /// A fault that names this node and the block.
    fn create(
        &self,
        binding: &BlockBinding,
        sink: Sink,
        resume_key: u64,
        start: u64,
    ) -> Result<Output, Fault>;
}

type Open = dyn Fn(&BlockBinding) -> Result<Box<dyn BlockSource>, Fault> + Send + Sync;

/// The client's blocks: loads come from the object being written, persisted blocks go to a channel.
#[derive(Clone, Default)]
pub struct ClientLocal {
    open: Option<Arc<Open>>,
    in_memory: bool,
    deliver: Option<mpsc::Sender<Delivery>>,
}

impl ClientLocal {
    /// Loads blocks with `open`. It and the sources that it returns are called on blocking threads.
    pub fn reading(
        open: impl Fn(&BlockBinding) -> Result<Box<dyn BlockSource>, Fault> + Send + Sync + 'static,
    ) -> Self {
        Self { open: Some(Arc::new(open)), in_memory: false, deliver: None }
    }

    /// The same, but if all bytes are `in_memory`, no blocking threads are used.
    pub fn in_memory(self, in_memory: bool) -> Self {
        Self { in_memory, ..self }
    }

    /// Delivers blocks persisted to the client to `deliver`.
    pub fn delivering(deliver: mpsc::Sender<Delivery>) -> Self {
        Self { open: None, in_memory: false, deliver: Some(deliver) }
    }
}

impl Local for ClientLocal {
    fn open(&self, binding: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        match &self.open {
            Some(open) => open(binding),
            None => Err(invalid(NodeId::CLIENT, "load", "none on a client that reads", binding.id)),
        }
    }

    fn may_block(&self) -> bool {
        !self.in_memory
    }

    fn create(
        &self,
        binding: &BlockBinding,
        sink: Sink,
        _resume_key: u64,
        _start: u64,
    ) -> Result<Output, Fault> {
        match (&self.deliver, sink) {
            (Some(deliver), Sink::Client) => Ok(Output::Channel(deliver.clone())),
            _ => {
                let got = format!("{sink:?} for {}", binding.id);
                Err(invalid(NodeId::CLIENT, "persist", "a client that reads, and the client as sink", got))
            }
        }
    }
}
