//! One outgoing edge of a lane: slices leave in the order in which the executor made them, several
//! in one system call, over one connection.
//!
//! The queue has room for a fixed number of steps; the executor takes that room before it begins a step. The
//! receiver writes at most one `Abort`. In a serial lane it also writes a keep-alive for each slice that it has
//! taken; only then does the slice count as sent.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};

use kintsu_dag::Vertex;
use kintsu_wire::frame::{FrameVersion, HEADER_BYTES, Header, Kind, bare};
use kintsu_wire::message::{Fault, FaultKind};
use kintsu_wire::net::{Stream, WriteEnd};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::carried::{self, Carried};
use crate::enclosed::Leaving;
use crate::fault::fault;
use crate::flow::Flow;
use crate::frames::FrameReader;
use crate::limits::{Limits, patiently};
use crate::plane::{DataPlane, StreamKey};
use crate::pulse::{Pulse, timed};
use crate::receive::say_farewell;
use crate::sent_blocks::SentBlocks;
use crate::slice::Slice;
use crate::verdict::{FAREWELL, FirstFault, WaitState};

/// Most slices in one system call. Each has two parts, and the kernel takes at most 1024 parts.
const MOST_TOGETHER: usize = 256;

/// A system call that has this many bytes gets no further slices.
const TOGETHER_BYTES: usize = 256 << 10;

/// A slice to be sent.
#[derive(Debug)]
pub(crate) struct Parcel {
    pub vertex: Vertex,
    /// Where its step begins in the block.
    pub offset: u64,
    pub slice: Slice,
}

/// One outgoing edge.
pub(crate) struct Outgoing {
    pub plane: Arc<DataPlane>,
    pub key: StreamKey,
    /// Where the peer listens, if it is we who connect.
    pub connect: Option<SocketAddr>,
    /// How frames are written.
    pub frames: FrameVersion,
    pub limits: Limits,
    pub verdict: Arc<FirstFault>,
    pub waiting: Arc<WaitState>,
    pub flow: Flow,
    /// Room in the queue, in slices; given back when a slice has left.
    pub room: Arc<Semaphore>,
    /// Collects the digests of blocks.
    pub blocks: Option<Arc<SentBlocks>>,
    pub carried: Arc<Carried>,
    /// Collects the frames, so that no connection is needed.
    pub leaving: Option<Leaving>,
    /// Checks that the peer takes enough.
    pub pulse: Mutex<Pulse>,
}

impl Outgoing {
    /// Sends everything from `queue`, then `End`; returns the bytes of slices sent, or fails the run.
    pub async fn run(self, mut queue: mpsc::UnboundedReceiver<Vec<Parcel>>) -> u64 {
        if let Some(leaving) = &self.leaving {
            return self.enclose(leaving, &mut queue).await;
        }
        let stream = match self.verdict.while_connecting(self.connected()).await {
            Some(Ok(stream)) => stream,
            Some(Err(fault)) => {
                self.verdict.fail(fault);
                return 0;
            }
            None => return 0,
        };
        let (read, mut write) = stream.into_split();
        let mut back = FrameReader::new(read, self.key.to, 0, 0, None);
        let mut sent = 0;
        let taken = Semaphore::new(0);
        let done = {
            let mut objection = pin!(objection(&mut back, &taken));
            tokio::select! {
                biased;
                fault = &mut objection => Err(fault),
                done = self.send(&mut queue, &mut write, &taken, &mut sent) => done,
            }
        };
        match done {
            Ok(None) => {}
            Ok(Some(fault)) => {
                say_farewell(write, self.frames, self.key.lane, &fault).await;
                back.drain(FAREWELL).await;
            }
            Err(fault) => self.verdict.fail(fault),
        }
        sent
    }

    /// Collects everything from `queue`, then `End`. Whoever collects it asks whether the run has failed.
    async fn enclose(&self, leaving: &Leaving, queue: &mut mpsc::UnboundedReceiver<Vec<Parcel>>) -> u64 {
        let mut sent = 0;
        while let Some(parcels) = queue.recv().await {
            for parcel in &parcels {
                leaving.add(self.key.to, self.frames, &self.header(parcel), &parcel.slice);
                sent += parcel.slice.as_ref().len() as u64;
            }
            self.room.add_permits(parcels.len());
        }
        leaving.end(self.key.to, self.frames, self.key.lane);
        sent
    }

    async fn connected(&self) -> Result<Stream, Fault> {
        match self.connect {
            Some(addr) => {
                self.plane.connect(self.key, self.frames, self.key.to, addr, self.limits.connect).await
            }
            None => self.plane.claim(self.key, self.key.to, self.limits.arrival).await,
        }
    }

    /// Sends until the queue ends. If the run fails, returns its fault; the connection is still usable then.
    async fn send(
        &self,
        queue: &mut mpsc::UnboundedReceiver<Vec<Parcel>>,
        write: &mut WriteEnd,
        taken: &Semaphore,
        sent: &mut u64,
    ) -> Result<Option<Fault>, Fault> {
        let mut failed = pin!(self.verdict.failed());
        loop {
            let received = tokio::select! {
                biased;
                fault = &mut failed => return Ok(Some(fault)),
                received = timeout(self.limits.keep_alive, queue.recv()) => received,
            };
            let mut left = match received {
                Err(_) => {
                    let waiting_on = self.waiting.root();
                    let sign = bare(self.frames, Kind::KeepAlive { waiting_on }, self.key.lane);
                    self.write(write, &sign, &[]).await?;
                    continue;
                }
                Ok(None) => {
                    // The queue also ends when the executor has failed.
                    if let Some(fault) = self.verdict.fault() {
                        return Ok(Some(fault));
                    }
                    self.write(write, &bare(self.frames, Kind::End, self.key.lane), &[]).await?;
                    let _ = write.shutdown().await;
                    return Ok(None);
                }
                Ok(Some(parcels)) => parcels,
            };
            while let Some(more) = (left.len() < MOST_TOGETHER).then(|| queue.try_recv().ok()).flatten() {
                left.extend(more);
            }
            let mut left = &left[..];
            while !left.is_empty() {
                let (batch, later) = left.split_at(together(left));
                let written = {
                    let _busy = self.carried.busy();
                    let mut writing = pin!(self.write_batch(write, batch));
                    tokio::select! {
                        written = &mut writing => written?,
                        fault = &mut failed => match timeout(FAREWELL, &mut writing).await {
                            Ok(Ok(_)) => return Ok(Some(fault)),
                            _ => return Err(fault),
                        },
                    }
                };
                *sent += written;
                carried::add(&self.carried.sent, written);
                if let Some(fault) = self.until_taken(batch.len(), taken, failed.as_mut()).await? {
                    return Ok(Some(fault));
                }
                self.room.add_permits(batch.len());
                left = later;
            }
        }
    }

    /// In a serial lane, waits until the receiver has taken `slices` slices; returns the fault if the run fails.
    async fn until_taken(
        &self,
        slices: usize,
        taken: &Semaphore,
        failed: Pin<&mut impl Future<Output = Fault>>,
    ) -> Result<Option<Fault>, Fault> {
        if self.flow == Flow::Overlapped {
            return Ok(None);
        }
        let acknowledging = patiently(self.limits.write, taken.acquire_many(slices as u32));
        tokio::select! {
            acknowledged = acknowledging => match acknowledged {
                Some(Ok(permits)) => {
                    permits.forget();
                    Ok(None)
                }
                _ => {
                    let detail = format!("acknowledged no slice within {:?}", self.limits.write);
                    Err(fault(FaultKind::Stalled, self.key.to, detail))
                }
            },
            fault = failed => Ok(Some(fault)),
        }
    }

    /// Writes these slices as frames; returns the bytes of their payloads.
    async fn write_batch(&self, write: &mut WriteEnd, batch: &[Parcel]) -> Result<u64, Fault> {
        let encode = |parcel| self.header(parcel).encode(self.frames);
        let headers: Vec<u8> = batch.iter().flat_map(encode).collect();
        let payloads: Vec<&[u8]> = batch.iter().map(|parcel| parcel.slice.as_ref()).collect();
        self.write(write, &headers, &payloads).await?;
        Ok(payloads.iter().map(|payload| payload.len() as u64).sum())
    }

    /// The header of the slice's frame; takes its bytes into account if they are part of a block.
    fn header(&self, parcel: &Parcel) -> Header {
        let (lane, Parcel { vertex, offset, slice }) = (self.key.lane, parcel);
        if let Some(blocks) = &self.blocks {
            return blocks.header(lane, self.key.to, *vertex, *offset, slice);
        }
        match slice.data() {
            Some(data) => {
                Header::new(Kind::Slice { vertex: *vertex, offset: *offset, zero: false }, lane, data)
            }
            None => Header::zero(lane, *vertex, *offset, slice.len() as u32),
        }
    }

    /// Writes headers, each followed by its payload; a header may come without a payload.
    async fn write(&self, write: &mut WriteEnd, headers: &[u8], payloads: &[&[u8]]) -> Result<(), Fault> {
        let mut parts = Vec::with_capacity(2 * payloads.len().max(1));
        for (i, header) in headers.chunks(HEADER_BYTES).enumerate() {
            parts.push(IoSlice::new(header));
            if let Some(payload) = payloads.get(i).filter(|payload| !payload.is_empty()) {
                parts.push(IoSlice::new(payload));
            }
        }
        let mut left = &mut parts[..];
        while !left.is_empty() {
            let lost = |detail: String| fault(FaultKind::Lost, self.key.to, detail);
            match patiently(self.limits.write, timed(write.write_vectored(left))).await {
                Some((Ok(0), _)) => return Err(lost("the connection takes no more bytes".into())),
                Some((Ok(written), waited)) => {
                    IoSlice::advance_slices(&mut left, written);
                    let mut pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
                    pulse.passed(written, waited)?;
                }
                Some((Err(error), _)) => return Err(lost(format!("the connection broke: {error}"))),
                None => {
                    let detail = format!("took no slice within {:?}", self.limits.write);
                    return Err(fault(FaultKind::Stalled, self.key.to, detail));
                }
            }
        }
        // In TLS the last bytes may still be in a buffer of ours.
        match patiently(self.limits.write, write.flush()).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(fault(FaultKind::Lost, self.key.to, format!("the connection broke: {error}")))
            }
            None => {
                let detail = format!("took no slice within {:?}", self.limits.write);
                Err(fault(FaultKind::Stalled, self.key.to, detail))
            }
        }
    }
}

/// How many of these slices (at least one) go into one system call.
fn together(parcels: &[Parcel]) -> usize {
    let mut bytes = 0;
    let fits = |parcel: &&Parcel| {
        let begun = bytes;
        bytes += parcel.slice.len();
        begun < TOGETHER_BYTES
    };
    parcels.iter().take(MOST_TOGETHER).take_while(fits).count()
}

/// Completes when the receiver aborts the stream or disconnects; counts the slices that it acknowledges.
async fn objection(back: &mut FrameReader, taken: &Semaphore) -> Fault {
    loop {
        match back.header().await {
            Ok(Header { kind: Kind::KeepAlive { .. }, .. }) => taken.add_permits(1),
            Ok(header) => return back.fault(&header).await,
            Err(fault) => return fault,
        }
    }
}
