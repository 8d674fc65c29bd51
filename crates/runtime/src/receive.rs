//! One incoming edge of a lane: a connection from one peer, whose slices go to the executor in the
//! order in which its `Fetch` tasks want them.
//!
//! A slice is read only when there is room for it: that is the back-pressure. A peer's silence and
//! its keep-alives are judged only while there is room, that is, while we really wait for it.

use std::net::SocketAddr;
use std::sync::Arc;

use kintsu_dag::{NodeId, Vertex};
use kintsu_plan::Window;
use kintsu_wire::frame::{self, Header, Kind};
use kintsu_wire::message::{Fault, FaultKind};
use tokio::io::AsyncWriteExt;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use crate::fault::{fault, invalid};
use crate::frames::FrameReader;
use crate::limits::Limits;
use crate::plane::{DataPlane, StreamKey};
use crate::script::part_bytes;
use crate::slice::{Buffer, Slice};
use crate::verdict::{FAREWELL, Verdict, Waiting};

/// One incoming edge.
pub(crate) struct Incoming {
    pub plane: Arc<DataPlane>,
    pub key: StreamKey,
    /// Where the peer listens, if it is we who connect.
    pub connect: Option<SocketAddr>,
    pub limits: Limits,
    pub window: Window,
    /// The vertices of one step, in order.
    pub vertices: Vec<Vertex>,
    pub verdict: Arc<Verdict>,
    pub waiting: Arc<Waiting>,
    /// Its place in `waiting`.
    pub place: usize,
}

impl Incoming {
    /// Receives all slices of the lane into `queue`, or fails the run.
    pub async fn run(self, queue: mpsc::Sender<Slice>) {
        let verdict = self.verdict.clone();
        let stream = match verdict.while_connecting(self.connected()).await {
            Some(Ok(stream)) => stream,
            Some(Err(fault)) => return verdict.fail(fault),
            None => return,
        };
        let (read, write) = stream.into_split();
        let most = part_bytes(&self.window, u64::from(self.window.step_bytes));
        let mut frames = FrameReader::new(read, self.key.from, most, Some(self.limits.peer_silence));
        let failed = tokio::select! {
            biased;
            fault = verdict.failed() => Some(fault),
            received = self.receive(&mut frames, &queue) => received.err(),
        };
        if let Some(fault) = failed {
            verdict.fail(fault.clone());
            drop(queue);
            say_farewell(write, self.key.lane, &fault).await;
            frames.drain(FAREWELL).await;
        }
    }

    async fn connected(&self) -> Result<tokio::net::TcpStream, Fault> {
        match self.connect {
            Some(addr) => self.plane.connect(self.key, self.key.from, addr, self.limits.connect).await,
            None => self.plane.claim(self.key, self.key.from, self.limits.arrival).await,
        }
    }

    async fn receive(&self, frames: &mut FrameReader, queue: &mpsc::Sender<Slice>) -> Result<(), Fault> {
        for step in self.window.steps() {
            let len = part_bytes(&self.window, step.end - step.start);
            for &vertex in &self.vertices {
                let Ok(room) = queue.reserve().await else {
                    // The executor is gone: the run has failed elsewhere.
                    return Err(self.verdict.failed().await);
                };
                let slice = self.slice(frames, vertex, step.start, len).await?;
                self.waiting.because_of(self.place, self.key.from);
                room.send(slice);
            }
        }
        // All is here; the peer may still say `End`, and loses nothing if we let it.
        while let Ok(Header { kind: Kind::KeepAlive { .. }, .. }) = frames.header().await {}
        Ok(())
    }

    /// The next slice, which must be this one.
    async fn slice(
        &self,
        frames: &mut FrameReader,
        vertex: Vertex,
        offset: u64,
        len: usize,
    ) -> Result<Slice, Fault> {
        let since = Instant::now();
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
                    let mut buffer = Buffer::take(len);
                    frames.payload(&header, &mut buffer).await?;
                    return Ok(Slice::of(buffer));
                }
                Kind::KeepAlive { waiting_on } => {
                    self.waiting.because_of(self.place, waiting_on);
                    if since.elapsed() > self.limits.stall {
                        let detail = format!(
                            "no slice of {vertex} at {offset} came from {} within {:?}; it waits for {waiting_on}",
                            self.key.from, self.limits.stall
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

/// The places of peers in a [`Waiting`]: ours first, then whom we receive from, then whom we send to.
pub(crate) fn places(node: NodeId, from: &[NodeId], to: &[NodeId]) -> Vec<NodeId> {
    [&[node], from, to].concat()
}

/// Tells the other end of a connection why it ends, as far as it still listens.
pub(crate) async fn say_farewell(mut write: OwnedWriteHalf, lane: u16, fault: &Fault) {
    let Ok(frame) = frame::abort(lane, fault) else { return };
    let farewell = async {
        write.write_all(&frame).await?;
        write.shutdown().await
    };
    let _ = timeout(FAREWELL, farewell).await;
}
