//! Reading frames from a connection. Bad data from a peer, or silence, becomes a fault within a bounded time.
//!
//! One system call reads many frames, as many as fit into a chunk; their payloads are handed out without a copy. A
//! chunk is reused when nobody holds a part of it any more.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use kintsu_dag::NodeId;
use kintsu_wire::frame::{self, HEADER_BYTES, Header, Kind};
use kintsu_wire::message::{Fault, FaultKind};
use kintsu_wire::net::ReadEnd;
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use crate::fault::{fault, from_wire, invalid};
use crate::limits::patiently;
use crate::pulse::Pulse;

/// The largest `Abort`.
const ABORT_BYTES: usize = 64 << 10;

/// The smallest chunk.
const LEAST_CHUNK_BYTES: usize = 4 << 10;

/// Most filled chunks that we keep for reuse; further ones are left to those who hold parts of them.
const KEPT_CHUNKS: usize = 8;

/// The frames that one peer sends.
pub(crate) struct FrameReader {
    /// Where they come from; `None` if all are in the buffer.
    stream: Option<ReadEnd>,
    peer: NodeId,
    silence: Option<Duration>,
    /// Checks that the peer sends enough while we wait for it.
    pulse: Option<Pulse>,
    /// Bytes that have come and are not handed out yet; behind them the free rest of the chunk.
    buffer: BytesMut,
    chunk_bytes: usize,
    /// Filled chunks (one empty handle each), oldest first.
    filled: VecDeque<BytesMut>,
}

impl FrameReader {
    /// For slices of `slice_bytes`, of which up to about `together_bytes` are read at a time. A peer that is
    /// silent for longer than `silence` is lost.
    pub fn new(
        stream: ReadEnd,
        peer: NodeId,
        slice_bytes: usize,
        together_bytes: usize,
        silence: Option<Duration>,
    ) -> Self {
        // A whole number of frames, so that few are cut by the end of a chunk, and the header of the next one.
        let frame = slice_bytes + HEADER_BYTES;
        let frames = (together_bytes / frame).max(1);
        let chunk_bytes = (frames * frame + HEADER_BYTES).max(LEAST_CHUNK_BYTES);
        let buffer = BytesMut::with_capacity(chunk_bytes);
        let stream = Some(stream);
        Self { stream, peer, silence, pulse: None, buffer, chunk_bytes, filled: VecDeque::new() }
    }

    /// All frames of a stream, which came together.
    pub fn of(frames: Bytes, peer: NodeId) -> Self {
        let (buffer, filled) = (frames.into(), VecDeque::new());
        Self {
            stream: None,
            peer,
            silence: None,
            pulse: None,
            buffer,
            chunk_bytes: LEAST_CHUNK_BYTES,
            filled,
        }
    }

    /// The same, for a peer that counts as stalled when it sends too little.
    pub fn judged_by(self, pulse: Pulse) -> Self {
        Self { pulse: Some(pulse), ..self }
    }

    /// The next header.
    pub async fn header(&mut self) -> Result<Header, Fault> {
        self.fill(HEADER_BYTES).await?;
        let header = Header::decode(&self.buffer);
        self.buffer.advance(HEADER_BYTES);
        if let (Ok(Header { kind: Kind::KeepAlive { waiting_on }, .. }), Some(pulse)) =
            (&header, &mut self.pulse)
        {
            pulse.sign_of_life(*waiting_on);
        }
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

    /// Whether a whole frame has come, so that reading it does not wait.
    pub fn is_ready(&self) -> bool {
        let header = Header::decode(&self.buffer);
        // A bad header gives its error without waiting.
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

    /// Reads and discards what still comes, until the peer closes or `limit` has passed. A close with unread data
    /// would reset the connection, and the peer would lose what we sent last.
    pub async fn drain(mut self, limit: Duration) {
        let mut rest = [0; LEAST_CHUNK_BYTES];
        let Some(stream) = &mut self.stream else { return };
        let _ = timeout(limit, async { while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {} }).await;
    }

    /// Waits until `len` bytes or more are in the buffer, contiguous.
    async fn fill(&mut self, len: usize) -> Result<(), Fault> {
        while self.buffer.len() < len {
            let missing = len - self.buffer.len();
            if self.buffer.capacity() - self.buffer.len() < missing {
                self.next_chunk(len);
            }
            let Some(stream) = &mut self.stream else {
                let got = format!("{} bytes", self.buffer.len());
                return Err(invalid(self.peer, "enclosed frames", format!("{len} bytes more"), got));
            };
            let begun = Instant::now();
            if let Some(pulse) = &self.pulse {
                pulse.waits();
            }
            let read = some(stream.read_buf(&mut self.buffer), self.silence, self.peer).await;
            if let Some(pulse) = &self.pulse {
                pulse.came(*read.as_ref().unwrap_or(&0));
            }
            let read = read?;
            if let Some(pulse) = &mut self.pulse {
                // Without a pause of this process the read never takes longer than `silence`.
                let waited = begun.elapsed().min(self.silence.unwrap_or(Duration::MAX));
                pulse.passed(read, waited)?;
            }
        }
        Ok(())
    }

    /// Continues in another chunk, with room for at least `len` bytes.
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

/// One read, which must return at least one byte.
async fn some(
    read: impl Future<Output = std::io::Result<usize>>,
    silence: Option<Duration>,
    peer: NodeId,
) -> Result<usize, Fault> {
    let lost = |detail: String| fault(FaultKind::Lost, peer, detail);
    let result = match silence {
        Some(limit) => patiently(limit, read).await.ok_or_else(|| lost(format!("silent for {limit:?}")))?,
        None => read.await,
    };
    match result {
        Ok(0) => Err(lost("the connection was closed in the middle of a stream".into())),
        Ok(read) => Ok(read),
        Err(error) => Err(lost(format!("the connection broke: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::Vertex;
    use kintsu_wire::frame::FrameVersion;
    use kintsu_wire::net::{TcpListener, TcpStream};
    use proptest::prelude::*;
    use tokio::io::AsyncWriteExt;

    const PEER: NodeId = NodeId(1);

    fn slice(number: usize, len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + number) as u8).collect()
    }

    async fn pair() -> (TcpStream, ReadEnd) {
        let listener = TcpListener::bind(std::net::SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let to = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (to, ReadEnd::Bare(listener.accept().await.unwrap().0.into_split().0))
    }

    /// Sends slices of these lengths in writes of these lengths, reads them for a step of `most` bytes in chunks of
    /// about `together`, and lets go of each after `held` others.
    async fn pass(lens: Vec<usize>, writes: Vec<usize>, together: usize, held: usize) {
        let (mut to, from) = pair().await;
        let most = lens.iter().copied().max().unwrap_or(0);
        let mut bytes = Vec::new();
        for (number, len) in lens.iter().enumerate() {
            let kind = Kind::Slice { vertex: Vertex(number as u32), offset: 0, zero: false };
            let payload = slice(number, *len);
            bytes.extend(Header::new(kind, 0, &payload).encode(FrameVersion::NEWEST));
            bytes.extend(payload);
        }
        let writing = async {
            let mut sizes = writes.iter().cycle();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
                to.write_all(now).await.unwrap();
                tokio::task::yield_now().await;
                rest = later;
            }
            to.shutdown().await.unwrap();
        };
        let mut frames = FrameReader::new(from, PEER, most, together, None);
        let reading = async {
            let mut payloads = VecDeque::new();
            for (number, len) in lens.iter().enumerate() {
                let header = frames.header().await.unwrap();
                payloads.push_back((number, frames.payload(&header).await.unwrap()));
                assert_eq!(header.len as usize, *len);
                if payloads.len() > held {
                    payloads.pop_front();
                }
                // What was handed out earlier is not touched by what came later.
                assert!(payloads.iter().all(|(number, bytes)| *bytes == slice(*number, lens[*number])));
            }
            assert!(!frames.is_ready());
            assert_eq!(frames.header().await.unwrap_err().kind, FaultKind::Lost);
            assert!(frames.filled.len() <= KEPT_CHUNKS);
        };
        tokio::join!(writing, reading);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_frame_is_read_whole_however_it_comes(
            lens in proptest::collection::vec(0usize..9000, 1..60),
            writes in proptest::collection::vec(1usize..20_000, 1..6),
            together in 0usize..40_000,
            held in 0usize..20,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(pass(lens, writes, together, held));
        }
    }

    #[tokio::test]
    async fn chunks_are_used_again_when_nobody_holds_them() {
        let (mut to, from) = pair().await;
        let mut frames = FrameReader::new(from, PEER, 1000, 4000, None);
        let mut seen = std::collections::BTreeSet::new();
        for number in 0..100 {
            let payload = slice(number, 1000);
            let kind = Kind::Slice { vertex: Vertex(0), offset: 0, zero: false };
            to.write_all(&Header::new(kind, 0, &payload).encode(FrameVersion::NEWEST)).await.unwrap();
            to.write_all(&payload).await.unwrap();
            let header = frames.header().await.unwrap();
            let got = frames.payload(&header).await.unwrap();
            assert_eq!(got, payload);
            seen.insert(got.as_ptr().addr() / 4096);
        }
        assert!(seen.len() <= 12, "100 slices of 1000 bytes in {} pages", seen.len());
    }
}
