//! Reading frames from a connection: whatever a peer sends, or fails to send, becomes a fault
//! within a bounded time.

use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::frame::{self, HEADER_BYTES, Header, Kind};
use kintsu_wire::message::{Fault, FaultKind};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use tokio::time::timeout;

use crate::fault::{fault, from_wire};

/// The largest `Abort`.
const ABORT_BYTES: usize = 64 << 10;

/// Slices below this size are read several at a time.
const SMALL_SLICE_BYTES: usize = 32 << 10;

/// The frames that one peer sends.
pub(crate) struct FrameReader {
    stream: OwnedReadHalf,
    peer: NodeId,
    silence: Option<Duration>,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
}

impl FrameReader {
    /// For slices of up to `slice_bytes`; a peer that is silent for longer than `silence` is lost.
    pub fn new(stream: OwnedReadHalf, peer: NodeId, slice_bytes: usize, silence: Option<Duration>) -> Self {
        let room = if slice_bytes < SMALL_SLICE_BYTES { 4 * SMALL_SLICE_BYTES } else { 4096 };
        Self { stream, peer, silence, buffer: vec![0; room], at: 0, end: 0 }
    }

    /// The next header.
    pub async fn header(&mut self) -> Result<Header, Fault> {
        while self.end - self.at < HEADER_BYTES {
            self.buffer.copy_within(self.at..self.end, 0);
            self.end -= self.at;
            self.at = 0;
            let read = self.stream.read(&mut self.buffer[self.end..]);
            self.end += some(read, self.silence, self.peer).await?;
        }
        let header = Header::decode(&self.buffer[self.at..self.end]);
        self.at += HEADER_BYTES;
        header.map_err(|error| from_wire(self.peer, &error))
    }

    /// The payload that follows `header`, into `out` of just that length.
    pub async fn payload(&mut self, header: &Header, out: &mut [u8]) -> Result<(), Fault> {
        let here = (self.end - self.at).min(out.len());
        out[..here].copy_from_slice(&self.buffer[self.at..self.at + here]);
        self.at += here;
        let mut filled = here;
        while filled < out.len() {
            if out.len() - filled >= self.buffer.len() {
                filled += some(self.stream.read(&mut out[filled..]), self.silence, self.peer).await?;
                continue;
            }
            self.end = some(self.stream.read(&mut self.buffer), self.silence, self.peer).await?;
            self.at = self.end.min(out.len() - filled);
            out[filled..filled + self.at].copy_from_slice(&self.buffer[..self.at]);
            filled += self.at;
        }
        header.check_payload(out).map_err(|error| from_wire(self.peer, &error))
    }

    /// The fault in the payload of an `Abort`.
    pub async fn fault(&mut self, header: &Header) -> Fault {
        if header.kind != Kind::Abort || header.payload_bytes() > ABORT_BYTES {
            let got = format!("{:?} of {} bytes", header.kind, header.payload_bytes());
            return fault(FaultKind::Invalid, self.peer, format!("expected a slice, got {got}"));
        }
        let mut payload = vec![0; header.payload_bytes()];
        match self.payload(header, &mut payload).await {
            Ok(()) => frame::unpack(&payload).unwrap_or_else(|error| from_wire(self.peer, &error)),
            Err(fault) => fault,
        }
    }

    /// Reads what still comes and forgets it, until the peer closes or `limit` is over: so that
    /// what was sent to it is not lost with the connection.
    pub async fn drain(mut self, limit: Duration) {
        let _ =
            timeout(limit, async { while self.stream.read(&mut self.buffer).await.is_ok_and(|n| n > 0) {} })
                .await;
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
