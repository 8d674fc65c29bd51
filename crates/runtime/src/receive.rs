//! One incoming edge of a lane: a connection from one peer, whose slices go to the executor in the
//! order in which its `Fetch` tasks want them.
//!
//! A slice is taken only when there is room for it: this is the backpressure. The timeouts for silence and stalls
//! run only while there is room, that is, while we really wait for the peer. Slices that have come together are
//! handed on together. A peer that sends too little for too long has stalled (`pulse.rs`). So has a peer that does
//! not send `End` after its last slice. In a serial lane each slice is acknowledged (by a keep-alive) once it is
//! taken.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_dag::Vertex;
use kintsu_plan::Window;
use kintsu_wire::frame::{self, FrameVersion, Header, Kind, bare};
use kintsu_wire::message::{Fault, FaultKind};
use kintsu_wire::net::{Stream, WriteEnd};
use tokio::io::AsyncWriteExt;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout};

use crate::carried::{self, Carried};
use crate::exchanged::Exchanged;
use crate::fault::{fault, invalid};
use crate::flow::Flow;
use crate::frames::FrameReader;
use crate::limits::{Limits, patiently};
use crate::plane::{DataPlane, StreamKey};
use crate::pulse::Pulse;
use crate::script::part_bytes;
use crate::slice::Slice;
use crate::verdict::{FAREWELL, FirstFault, NOBODY, WaitState};

/// Most slices that are handed on together.
const MOST_TOGETHER: usize = 256;

/// Bytes that are read together, if the queue has room for them.
pub(crate) const TOGETHER_BYTES: usize = 128 << 10;

/// One incoming edge.
pub(crate) struct Incoming {
    pub plane: Arc<DataPlane>,
    pub key: StreamKey,
    /// Where the peer listens, if it is we who connect.
    pub connect: Option<SocketAddr>,
    /// All its frames, if they came with the call that started the run; there is no connection then.
    pub enclosed: Option<Bytes>,
    /// How our frames are written.
    pub frames: FrameVersion,
    pub limits: Limits,
    pub window: Window,
    /// The vertices of one step, in order.
    pub vertices: Vec<Vertex>,
    pub flow: Flow,
    /// Room in the queue, in slices; given back when a slice is taken out.
    pub room: Arc<Semaphore>,
    /// Slices that the queue can hold.
    pub slices: usize,
    pub verdict: Arc<FirstFault>,
    pub waiting: Arc<WaitState>,
    /// Its place in `waiting`.
    pub place: usize,
    /// What was received from each peer.
    pub exchanged: Arc<Exchanged>,
    pub carried: Arc<Carried>,
}

impl Incoming {
    /// Receives all slices of the lane into `queue`, or fails the run.
    pub async fn run(mut self, queue: mpsc::UnboundedSender<Vec<Slice>>) {
        let verdict = self.verdict.clone();
        if let Some(frames) = self.enclosed.take() {
            let mut frames = FrameReader::of(frames, self.key.from);
            tokio::select! {
                biased;
                _ = verdict.failed() => {}
                received = self.receive(&mut frames, None, &queue) => {
                    received.unwrap_or_else(|fault| verdict.fail(fault));
                }
            }
            return;
        }
        let peer = self.exchanged.of(self.key.from);
        peer.begins();
        peer.waits();
        let connected = verdict.while_connecting(self.connected()).await;
        peer.came(false);
        let stream = match connected {
            Some(Ok(stream)) => stream,
            Some(Err(fault)) => return verdict.fail(fault),
            None => return,
        };
        let (read, mut write) = stream.into_split();
        let most = part_bytes(&self.window, u64::from(self.window.step_bytes));
        let together = most.saturating_mul(self.slices).min(TOGETHER_BYTES);
        let pulse = Pulse::incoming(&self.limits, &self.exchanged, self.key.from, most);
        let mut frames =
            FrameReader::new(read, self.key.from, most, together, Some(self.limits.peer_silence))
                .judged_by(pulse);
        let failed = tokio::select! {
            biased;
            fault = verdict.failed() => Some(fault),
            received = self.receive(&mut frames, Some(&mut write), &queue) => received.err(),
        };
        if let Some(fault) = failed {
            verdict.fail(fault.clone());
            drop(queue);
            say_farewell(write, self.frames, self.key.lane, &fault).await;
            frames.drain(FAREWELL).await;
        }
    }

    async fn connected(&self) -> Result<Stream, Fault> {
        match self.connect {
            Some(addr) => {
                self.plane.connect(self.key, self.frames, self.key.from, addr, self.limits.connect).await
            }
            None => self.plane.claim(self.key, self.key.from, self.limits.arrival).await,
        }
    }

    async fn receive(
        &self,
        frames: &mut FrameReader,
        mut write: Option<&mut WriteEnd>,
        queue: &mpsc::UnboundedSender<Vec<Slice>>,
    ) -> Result<(), Fault> {
        let mut batch = Vec::new();
        let mut room = 0;
        for step in self.window.steps() {
            let len = part_bytes(&self.window, step.end - step.start);
            for &vertex in &self.vertices {
                if room == 0 || batch.len() == MOST_TOGETHER || !frames.is_ready() {
                    if !batch.is_empty() && queue.send(std::mem::take(&mut batch)).is_err() {
                        // The executor is gone: the run has failed elsewhere.
                        return Err(self.verdict.failed().await);
                    }
                    room = self.take_room(room).await?;
                }
                room -= 1;
                let slice = self.slice(frames, vertex, step.start, len).await?;
                self.waiting.because_of(self.place, self.key.from);
                batch.push(slice);
                if let (Flow::Serial, Some(write)) = (self.flow, &mut write) {
                    self.acknowledge(write).await?;
                }
            }
        }
        if queue.send(batch).is_err() {
            return Err(self.verdict.failed().await);
        }
        self.exchanged.of(self.key.from).ends();
        // Every slice is here. We still wait for the peer's `End`, so that it does not see a broken connection.
        while let Ok(Header { kind: Kind::KeepAlive { .. }, .. }) = frames.header().await {}
        Ok(())
    }

    /// Takes all room that is free; waits for one slice's room if there is none and the caller holds none
    /// (`room`). Returns what the caller holds now.
    async fn take_room(&self, room: usize) -> Result<usize, Fault> {
        let all = match room {
            0 => {
                let Ok(one) = self.room.acquire().await else { return Err(self.verdict.failed().await) };
                one.forget();
                1
            }
            room => room,
        };
        let more = self.room.available_permits().min(MOST_TOGETHER);
        Ok(match self.room.try_acquire_many(more as u32) {
            Ok(taken) => {
                taken.forget();
                all + more
            }
            Err(_) => all,
        })
    }

    /// Tells the peer that its slice was taken; a serial lane waits for this.
    async fn acknowledge(&self, write: &mut WriteEnd) -> Result<(), Fault> {
        let taken = bare(self.frames, Kind::KeepAlive { waiting_on: self.key.to }, self.key.lane);
        let writing = async {
            write.write_all(&taken).await?;
            write.flush().await
        };
        match patiently(self.limits.write, writing).await {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(fault(FaultKind::Lost, self.key.from, format!("the connection broke: {error}")))
            }
            None => Err(fault(FaultKind::Stalled, self.key.from, "took no acknowledgement")),
        }
    }

    /// The next slice, which must be of this vertex and offset.
    async fn slice(
        &self,
        frames: &mut FrameReader,
        vertex: Vertex,
        offset: u64,
        len: usize,
    ) -> Result<Slice, Fault> {
        let (mut since, mut waited) = (Instant::now(), Duration::ZERO);
        loop {
            let header = frames.header().await?;
            match header.kind {
                Kind::Slice { vertex: v, offset: o, zero } if (v, o) == (vertex, offset) => {
                    if header.len as usize != len || header.lane != self.key.lane {
                        let got = format!("{} bytes in lane {}", header.len, header.lane);
                        let expected = format!("{len} bytes in lane {}", self.key.lane);
                        return Err(invalid(self.key.from, format!("slice of {v} at {o}"), expected, got));
                    }
                    if zero {
                        return Ok(Slice::Zero(len));
                    }
                    carried::add(&self.carried.received, u64::from(header.len));
                    return Ok(Slice::Own(frames.payload(&header).await?));
                }
                Kind::KeepAlive { waiting_on } => {
                    self.waiting.because_of(self.place, waiting_on);
                    // Without a pause of this process no sign of life takes longer.
                    waited += since.elapsed().min(self.limits.peer_silence);
                    since = Instant::now();
                    if waiting_on == NOBODY {
                        waited = Duration::ZERO;
                    }
                    let limit = self.limits.stall_of(len);
                    if waited > limit {
                        let detail = format!(
                            "no slice of {vertex} at {offset} came from {} within {limit:?}; it waits for {waiting_on}",
                            self.key.from
                        );
                        return Err(fault(FaultKind::Stalled, waiting_on, detail));
                    }
                }
                Kind::Abort => return Err(frames.fault(&header).await),
                other => {
                    let expected = format!("slice of {vertex} at {offset}");
                    return Err(invalid(self.key.from, "frame", expected, format!("{other:?}")));
                }
            }
        }
    }
}

/// Tells the other end of a connection why it ends, if it still listens.
pub(crate) async fn say_farewell(mut write: WriteEnd, version: FrameVersion, lane: u16, fault: &Fault) {
    let Ok(frame) = frame::abort(version, lane, fault) else { return };
    let farewell = async {
        write.write_all(&frame).await?;
        write.shutdown().await
    };
    let _ = timeout(FAREWELL, farewell).await;
}
