//! Write-behind: the persisted slices of one block, from all lanes, written in the order in which they come.

use std::pin::pin;
use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_plan::BlockBinding;
use kintsu_wire::message::{Fault, FaultKind};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Duration;

use bytes::Bytes;

use crate::carried;
use crate::fault::fault;
use crate::local::{BlockSink, Delivery, Output};
use crate::slice::Slice;
use crate::source::blocking;
use crate::verdict::{FirstFault, Tracker};

/// Most bytes that one call on a blocking thread writes.
const TOGETHER_BYTES: usize = 512 << 10;

/// Slices shorter than this are joined before they are written, up to this many bytes.
const STAGE_BYTES: usize = 64 << 10;

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A slice to be written.
#[derive(Debug)]
pub(crate) struct Piece {
    /// Position of its lane in the run.
    pub lane: usize,
    /// Where in the block it begins.
    pub offset: u64,
    pub slice: Slice,
}

/// The share of one lane in a sink.
pub(crate) struct Share {
    /// Room in the queue, in pieces; given back when a piece is written.
    pub room: Arc<Semaphore>,
    /// Pieces in one step.
    pub pieces: u64,
    /// Position of the sink among the lane's parts in the [`Tracker`].
    pub part: usize,
    /// Pieces written.
    pub written: u64,
}

/// One block being written.
pub(crate) struct BlockWriter {
    pub node: NodeId,
    pub binding: BlockBinding,
    pub disk: Duration,
    /// By position of the lane; `None` for a lane that writes nothing here.
    pub shares: Vec<Option<Share>>,
    pub verdict: Arc<FirstFault>,
    pub tracker: Arc<Tracker>,
}

impl BlockWriter {
    /// Writes everything from `queue`, or fails the run. Returns the sink, unless the sink itself failed.
    pub async fn run(
        mut self,
        output: Output,
        mut queue: mpsc::UnboundedReceiver<Vec<Piece>>,
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
        queue: &mut mpsc::UnboundedReceiver<Vec<Piece>>,
    ) -> Result<Box<dyn BlockSink>, Fault> {
        let verdict = self.verdict.clone();
        let mut failed = pin!(verdict.failed());
        let mut stage = Vec::new();
        loop {
            let received = tokio::select! {
                biased;
                _ = &mut failed => return Ok(sink),
                received = queue.recv() => received,
            };
            let Some(mut batch) = received else { return Ok(sink) };
            let mut bytes: usize = batch.iter().map(|piece| piece.slice.len()).sum();
            while let Some(more) = (bytes < TOGETHER_BYTES).then(|| queue.try_recv().ok()).flatten() {
                bytes += more.iter().map(|piece| piece.slice.len()).sum::<usize>();
                batch.extend(more);
            }
            let len = self.binding.len;
            if sink.may_block() {
                let write = move || {
                    write_pieces(&mut *sink, &batch, len, &mut stage)?;
                    Ok((sink, stage, batch))
                };
                (sink, stage, batch) = blocking(self.node, self.disk, "writing", write).await?;
            } else {
                write_pieces(&mut *sink, &batch, len, &mut stage)?;
            }
            carried::add(&self.tracker.carried.written, bytes as u64);
            for lane in batch.chunk_by(|a, b| a.lane == b.lane) {
                self.written(lane[0].lane, lane.len());
            }
        }
    }

    async fn deliver(
        &mut self,
        to: mpsc::Sender<Delivery>,
        queue: &mut mpsc::UnboundedReceiver<Vec<Piece>>,
    ) -> Result<(), Fault> {
        let BlockBinding { index, id, len, .. } = self.binding;
        let verdict = self.verdict.clone();
        let delivering = async {
            while let Some(pieces) = queue.recv().await {
                for Piece { lane, offset, slice } in pieces {
                    for (offset, bytes) in deliverable(offset, slice, len) {
                        let gone =
                            |_| fault(FaultKind::Aborted, self.node, "the receiver of the bytes is gone");
                        to.send(Delivery { index, id, offset, bytes }).await.map_err(gone)?;
                    }
                    self.written(lane, 1);
                }
            }
            Ok(())
        };
        tokio::select! {
            delivered = delivering => delivered,
            _ = verdict.failed() => Ok(()),
        }
    }

    /// `pieces` more pieces of a lane are written.
    fn written(&mut self, lane: usize, pieces: usize) {
        if let Some(share) = &mut self.shares[lane] {
            let before = share.written / share.pieces;
            share.written += pieces as u64;
            share.room.add_permits(pieces);
            let steps = share.written / share.pieces;
            if steps > before {
                self.tracker.advance(lane, share.part, steps);
            }
        }
    }
}

/// Writes the parts of the pieces below `len`; short neighbours are joined in `stage` first.
fn write_pieces(
    sink: &mut dyn BlockSink,
    pieces: &[Piece],
    len: u64,
    stage: &mut Vec<u8>,
) -> Result<(), Fault> {
    let mut begin = 0;
    let write_stage = |sink: &mut dyn BlockSink, begin: u64, stage: &mut Vec<u8>| match stage.is_empty() {
        true => Ok(()),
        false => sink.write_at(begin, stage).map(|()| stage.clear()),
    };
    stage.clear();
    for piece in pieces {
        let within = len.saturating_sub(piece.offset).min(piece.slice.len() as u64) as usize;
        let next = begin + stage.len() as u64;
        if next != piece.offset || stage.len() + within > STAGE_BYTES {
            write_stage(sink, begin, stage)?;
            begin = piece.offset;
        }
        match piece.slice.data() {
            Some(data) if within < STAGE_BYTES => stage.extend_from_slice(&data[..within]),
            Some(data) => sink.write_at(piece.offset, &data[..within])?,
            None if within < STAGE_BYTES => stage.resize(stage.len() + within, 0),
            None => {
                for at in (0..within).step_by(ZEROS.len()) {
                    sink.write_at(piece.offset + at as u64, &ZEROS[..ZEROS.len().min(within - at)])?;
                }
            }
        }
    }
    write_stage(sink, begin, stage)
}

/// The part of a slice at `offset` that is below `len`, as bytes to be handed on.
fn deliverable(offset: u64, slice: Slice, len: u64) -> Vec<(u64, Bytes)> {
    let within = len.saturating_sub(offset).min(slice.len() as u64) as usize;
    let bytes = match slice {
        Slice::Zero(_) => None,
        Slice::Data(bytes) => Some(bytes),
        Slice::Own(bytes) => Some(bytes.freeze()),
        Slice::Lent(bytes) => Some(Bytes::from_static(bytes)),
    };
    if let Some(mut bytes) = bytes {
        bytes.truncate(within);
        return if within == 0 { Vec::new() } else { vec![(offset, bytes)] };
    }
    let zeros = |at: usize| (offset + at as u64, Bytes::from_static(&ZEROS[..ZEROS.len().min(within - at)]));
    (0..within).step_by(ZEROS.len()).map(zeros).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_wire::message::HeldBlock;
    use proptest::prelude::*;

    /// Bytes, and how often they were written.
    #[derive(Clone, Default)]
    struct Memory(Arc<std::sync::Mutex<(Vec<u8>, usize)>>);

    impl BlockSink for Memory {
        fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
            let mut memory = self.0.lock().unwrap();
            assert!(!data.is_empty());
            memory.0[offset as usize..][..data.len()].copy_from_slice(data);
            memory.1 += 1;
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
            Ok(None)
        }
    }

    fn write(pieces: &[Piece], len: usize) -> (Vec<u8>, usize) {
        let mut memory = Memory::default();
        memory.0.lock().unwrap().0 = vec![0xee; len];
        write_pieces(&mut memory, pieces, len as u64, &mut vec![1, 2, 3]).unwrap();
        std::mem::take(&mut *memory.0.lock().unwrap())
    }

    proptest! {
        #[test]
        fn pieces_are_written_where_they_belong_whatever_is_put_together(
            pieces in proptest::collection::vec((1usize..100_000, any::<bool>(), 0usize..3), 1..20),
            cut in 0usize..150_000,
        ) {
            let mut at = 0;
            let mut expected = Vec::new();
            let mut all = Vec::new();
            for (number, (len, zero, gap)) in pieces.iter().enumerate() {
                expected.resize(at + gap, 0xee);
                at += gap;
                let byte = if *zero { 0 } else { number as u8 + 1 };
                expected.resize(at + len, byte);
                let slice = if *zero { Slice::Zero(*len) } else { Slice::Data(vec![byte; *len].into()) };
                all.push(Piece { lane: 0, offset: at as u64, slice });
                at += len;
            }
            let end = at.saturating_sub(cut);
            expected.truncate(end);
            let (written, _) = write(&all, end);
            prop_assert!(written == expected);
        }
    }

    #[test]
    fn small_neighbours_are_written_together() {
        let piece =
            |i: u64| Piece { lane: 0, offset: i * 4096, slice: Slice::Data(vec![i as u8; 4096].into()) };
        let pieces: Vec<_> = (0..64).map(piece).collect();
        assert_eq!(write(&pieces, 64 * 4096).1, 4);
    }
}
