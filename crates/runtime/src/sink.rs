//! Writing behind: persisted slices of one block, of all lanes, in the order in which they come.

use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_plan::BlockBinding;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Duration;

use bytes::Bytes;

use crate::fault::fault;
use crate::local::{BlockSink, Delivery, Output};
use crate::slice::Slice;
use crate::source::blocking;
use crate::verdict::{Tracker, Verdict};

/// Most slices written by one visit to a blocking thread.
const MOST_TOGETHER: usize = 64;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A slice to be kept.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Position of its lane in the run.
    pub lane: usize,
    /// Where in the block it begins.
    pub offset: u64,
    pub slice: Slice,
}

/// What a lane has to do with a sink.
pub(crate) struct Share {
    /// Room in the queue, in pieces; given back when a piece is written.
    pub room: Arc<Semaphore>,
    /// Pieces in one step.
    pub pieces: u64,
    /// Position of the sink among the parts of the lane that count.
    pub part: usize,
    /// Pieces written.
    pub written: u64,
}

/// One block being written.
pub(crate) struct Writer {
    pub node: NodeId,
    pub binding: BlockBinding,
    pub disk: Duration,
    /// By position of the lane; `None` for one that writes nothing here.
    pub shares: Vec<Option<Share>>,
    pub verdict: Arc<Verdict>,
    pub tracker: Arc<Tracker>,
}

impl Writer {
    /// Writes all that comes through `queue`, or fails the run. Gives the sink back, unless it was
    /// the sink that failed.
    pub async fn run(
        mut self,
        output: Output,
        mut queue: mpsc::UnboundedReceiver<Piece>,
    ) -> Option<(BlockBinding, Box<dyn BlockSink>)> {
        let written = match output {
            Output::Block(sink) => self.keep(sink, &mut queue).await.map(Some),
            Output::Channel(to) => self.deliver(to, &mut queue).await.map(|()| None),
        };
        match written {
            Ok(sink) => sink.map(|sink| (self.binding, sink)),
            Err(mut fault) => {
                fault.block = fault.block.or(Some(self.binding.id));
                self.verdict.fail(fault);
                None
            }
        }
    }

    async fn keep(
        &mut self,
        mut sink: Box<dyn BlockSink>,
        queue: &mut mpsc::UnboundedReceiver<Piece>,
    ) -> Result<Box<dyn BlockSink>, Fault> {
        loop {
            let mut batch = Vec::with_capacity(MOST_TOGETHER);
            let verdict = self.verdict.clone();
            tokio::select! {
                biased;
                _ = verdict.failed() => return Ok(sink),
                _ = queue.recv_many(&mut batch, MOST_TOGETHER) => {}
            }
            if batch.is_empty() {
                return Ok(sink);
            }
            let len = self.binding.len;
            let write = move || {
                for piece in &batch {
                    write_piece(&mut *sink, piece, len)?;
                }
                Ok((sink, batch))
            };
            let (back, batch) = blocking(self.node, self.disk, "writing", write).await?;
            sink = back;
            batch.iter().for_each(|piece| self.written(piece.lane));
        }
    }

    async fn deliver(
        &mut self,
        to: mpsc::Sender<Delivery>,
        queue: &mut mpsc::UnboundedReceiver<Piece>,
    ) -> Result<(), Fault> {
        let BlockBinding { index, id, len, .. } = self.binding;
        let verdict = self.verdict.clone();
        let delivering = async {
            while let Some(Piece { lane, offset, slice }) = queue.recv().await {
                for (offset, bytes) in deliverable(offset, slice, len) {
                    let gone = |_| fault(FaultKind::Aborted, self.node, "nobody takes the bytes any more");
                    to.send(Delivery { index, id, offset, bytes }).await.map_err(gone)?;
                }
                self.written(lane);
            }
            Ok(())
        };
        tokio::select! {
            delivered = delivering => delivered,
            _ = verdict.failed() => Ok(()),
        }
    }

    fn written(&mut self, lane: usize) {
        if let Some(share) = &mut self.shares[lane] {
            share.written += 1;
            share.room.add_permits(1);
            if share.written % share.pieces == 0 {
                self.tracker.advance(lane, share.part, share.written / share.pieces);
            }
        }
    }
}

/// Writes what of a piece is below `len`.
fn write_piece(sink: &mut dyn BlockSink, piece: &Piece, len: u64) -> Result<(), Fault> {
    let within = len.saturating_sub(piece.offset).min(piece.slice.len() as u64) as usize;
    if let Some(data) = piece.slice.data() {
        return if within == 0 { Ok(()) } else { sink.write_at(piece.offset, &data[..within]) };
    }
    for at in (0..within).step_by(ZEROS.len()) {
        sink.write_at(piece.offset + at as u64, &ZEROS[..ZEROS.len().min(within - at)])?;
    }
    Ok(())
}

/// What of a slice at `offset` is below `len`, as bytes to be handed on.
fn deliverable(offset: u64, slice: Slice, len: u64) -> Vec<(u64, Bytes)> {
    let within = len.saturating_sub(offset).min(slice.len() as u64) as usize;
    if slice.data().is_some() {
        let bytes = Bytes::from_owner(slice).slice(..within);
        return if within == 0 { Vec::new() } else { vec![(offset, bytes)] };
    }
    let zeros = |at: usize| (offset + at as u64, Bytes::from_static(&ZEROS[..ZEROS.len().min(within - at)]));
    (0..within).step_by(ZEROS.len()).map(zeros).collect()
}
