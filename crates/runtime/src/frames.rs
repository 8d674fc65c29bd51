//! Reading frames from a connection: whatever a peer sends, or fails to send, becomes a fault
//! within a bounded time.
//!
//! One system call reads many frames, up to what a chunk has room for; their payloads are handed out where they lie.
//! A chunk is used again when nobody holds a part of it any more.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use kintsu_dag::NodeId;
use kintsu_wire::frame::{self, HEADER_BYTES, Header, Kind};
use kintsu_wire::message::{Fault, FaultKind};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

use crate::fault::{fault, from_wire};

/// The largest `Abort`.
const ABORT_BYTES: usize = 64 << 10;

/// The smallest chunk.
const LEAST_CHUNK_BYTES: usize = 4 << 10;

/// Chunks that may come free again; others are left to whoever holds them.
const KEPT_CHUNKS: usize = 8;

/// The frames that one peer sends.
pub(crate) struct FrameReader {
    stream: OwnedReadHalf,
    peer: NodeId,
    silence: Option<Duration>,
    /// What has come and is not handed out yet, and behind it the rest of its chunk.
    buffer: BytesMut,
    chunk_bytes: usize,
    /// Ends of chunks that were filled, the oldest first.
    filled: VecDeque<BytesMut>,
}

impl FrameReader {
    /// For slices of `slice_bytes`, read up to about `together_bytes` at a time; a peer that is silent for longer than
    /// `silence` is lost.
    pub fn new(
        stream: OwnedReadHalf,
        peer: NodeId,
        slice_bytes: usize,
        together_bytes: usize,
        silence: Option<Duration>,
    ) -> Self {
        // A whole number of frames, so that few are cut by the end of a chunk, and the header that tells what is next.
        let frame = slice_bytes + HEADER_BYTES;
        let frames = (together_bytes / frame).max(1);
        let chunk_bytes = (frames * frame + HEADER_BYTES).max(LEAST_CHUNK_BYTES);
        let buffer = BytesMut::with_capacity(chunk_bytes);
        Self { stream, peer, silence, buffer, chunk_bytes, filled: VecDeque::new() }
    }

    /// The next header.
    pub async fn header(&mut self) -> Result<Header, Fault> {
        self.fill(HEADER_BYTES).await?;
        let header = Header::decode(&self.buffer);
        self.buffer.advance(HEADER_BYTES);
        header.map_err(|error| from_wire(self.peer, &error))
    }

    /// The payload that follows `header`.
    pub async fn payload(&mut self, header: &Header) -> Result<BytesMut, Fault> {
        let len = header.payload_bytes();
        self.fill(len).await?;
        let payload = self.buffer.split_to(len);
        header.check_payload(&payload).map_err(|error| from_wire(self.peer, &error))?;
        Ok(payload)
    }

    /// Whether a whole frame has come, so that it can be had without waiting.
    pub fn is_ready(&self) -> bool {
        let header = Header::decode(&self.buffer);
        // What cannot be decoded is an error without waiting.
        self.buffer.len() >= HEADER_BYTES
            && header.map_or(true, |header| self.buffer.len() - HEADER_BYTES >= header.payload_bytes())
    }

    /// The fault in the payload of an `Abort`.
    pub async fn fault(&mut self, header: &Header) -> Fault {
        if header.kind != Kind::Abort || header.payload_bytes() > ABORT_BYTES {
            let got = format!("{:?} of {} bytes", header.kind, header.payload_bytes());
            return fault(FaultKind::Invalid, self.peer, format!("expected a slice, got {got}"));
        }
        match self.payload(header).await {
            Ok(payload) => frame::unpack(&payload).unwrap_or_else(|error| from_wire(self.peer, &error)),
            Err(fault) => fault,
        }
    }

    /// Reads what still comes and forgets it, until the peer closes or `limit` is over: so that
    /// what was sent to it is not lost with the connection.
    pub async fn drain(mut self, limit: Duration) {
        let mut rest = [0; LEAST_CHUNK_BYTES];
        let _ =
            timeout(limit, async { while self.stream.read(&mut rest).await.is_ok_and(|n| n > 0) {} }).await;
    }

    /// Waits until `len` bytes or more are in the buffer, contiguous.
    async fn fill(&mut self, len: usize) -> Result<(), Fault> {
        while self.buffer.len() < len {
            let missing = len - self.buffer.len();
            if self.buffer.capacity() - self.buffer.len() < missing {
                self.next_chunk(len);
            }
            let read = self.stream.read_buf(&mut self.buffer);
            some(read, self.silence, self.peer).await?;
        }
        Ok(())
    }

    /// Goes on in another chunk, with room for `len` bytes at least.
    fn next_chunk(&mut self, len: usize) {
        let bytes = self.chunk_bytes.max(len);
        let is_free = self.filled.front_mut().is_some_and(|oldest| oldest.try_reclaim(bytes));
        let free = if is_free { self.filled.pop_front() } else { None };
        let mut chunk = free.unwrap_or_else(|| BytesMut::with_capacity(bytes));
        chunk.extend_from_slice(&self.buffer);
        let mut end = std::mem::replace(&mut self.buffer, chunk);
        end.clear();
        self.filled.push_back(end);
        if self.filled.len() > KEPT_CHUNKS {
            self.filled.pop_front();
        }
    }
}

/// One read that must bring something.
async fn some(
    read: impl Future<Output = std::io::Result<usize>>,
    silence: Option<Duration>,
    peer: NodeId,
) -> Result<usize, Fault> {
    let lost = |detail: String| fault(FaultKind::Lost, peer, detail);
    let result = match silence {
        Some(limit) => timeout(limit, read).await.map_err(|_| lost(format!("silent for {limit:?}")))?,
        None => read.await,
    };
    match result {
        Ok(0) => Err(lost("the connection was closed in the middle of a stream".into())),
        Ok(read) => Ok(read),
        Err(error) => Err(lost(format!("the connection broke: {error}"))),
    }
}
