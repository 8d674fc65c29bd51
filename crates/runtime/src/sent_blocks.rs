//! Digests of the blocks that this process sent to other nodes: what their stores must report.
//!
//! The checksum of a frame protects its bytes until the receiver has parsed the frame; the checksums of a block
//! protect them from the moment when its store writes. The sender of a whole block closes the gap between the two.
//! It computes the checksums of the block's units together with those of the frames (no second pass over the
//! bytes), and compares the digest with what the receiver reports.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kintsu_dag::{BlockId, NodeId, Sink, Task, Vertex};
use kintsu_plan::Program;
use kintsu_store::{Digest, UnitSums};
use kintsu_wire::frame::{Header, Kind};
use kintsu_wire::message::{Fault, FaultKind, HeldBlock};

use crate::slice::Slice;

/// The blocks that one node sends, unchanged, to the nodes that persist them; for the [`Context`](crate::Context)
/// of the sending node.
///
/// Memory: 5 bytes a unit of each block.
#[derive(Debug, Default)]
pub struct SentBlocks {
    blocks: Vec<SentBlock>,
    /// For each symbol that is sent: its position in `blocks`, and its sub-block.
    symbols: HashMap<(NodeId, Vertex), (usize, u16)>,
}

#[derive(Debug)]
struct SentBlock {
    id: BlockId,
    to: NodeId,
    len: u64,
    sums: Mutex<UnitSums>,
}

impl SentBlocks {
    /// All blocks whose symbols `from` sends to a node that persists them as a block. `programs` are those of all
    /// nodes of one job.
    pub fn of(programs: &[Program], from: NodeId) -> Self {
        let mut sent = Self::default();
        for program in programs.iter().filter(|program| program.node != from) {
            for task in &program.tasks {
                let Task::Persist { vertex, sink: Sink::Block } = *task else { continue };
                if program.tasks.contains(&Task::Fetch { vertex, from }) {
                    sent.add(program, vertex);
                }
            }
        }
        sent
    }

    fn add(&mut self, program: &Program, vertex: Vertex) {
        let index = program.window.block_of(vertex);
        let Some(binding) = program.blocks.iter().find(|binding| binding.index == index) else { return };
        let (id, to) = (binding.id, program.node);
        let there = self.blocks.iter().position(|block| (block.id, block.to) == (id, to));
        let at = there.unwrap_or_else(|| {
            let sums = Mutex::new(UnitSums::of_block(binding.len, binding.unit_bytes.max(1)));
            self.blocks.push(SentBlock { id, to, len: binding.len, sums });
            self.blocks.len() - 1
        });
        let sub = (vertex.0 % u32::from(program.window.w.max(1))) as u16;
        self.symbols.insert((to, vertex), (at, sub));
    }

    /// The digest of a block as it was sent to a node; `None` until the whole block was sent.
    pub fn digest(&self, id: BlockId, to: NodeId) -> Option<Digest> {
        self.find(id, to)?.sums().digest()
    }

    /// Checks a block that `node` reports as durable: a `Mismatch` of that node if its digest is not that of what
    /// was sent. `None` also for a block that is not sent from here. Only for runs over whole blocks: a block that
    /// was sent in part counts as wrong.
    pub fn objection(&self, node: NodeId, held: &HeldBlock) -> Option<Fault> {
        let block = self.find(held.id, node)?;
        let sums = block.sums();
        let detail = match sums.digest() {
            Some(sent) if sent.0 == held.digest => return None,
            Some(sent) => {
                let got = Digest(held.digest);
                format!("digest of {} as stored: expected {sent} as sent, got {got}", held.id)
            }
            None => {
                let (got, expected) = (sums.written(), block.len);
                format!("{} is stored, but of its {expected} bytes {got} were sent", held.id)
            }
        };
        Some(Fault { kind: FaultKind::Mismatch, node, block: Some(held.id), detail })
    }

    /// The header of a slice for `to`; takes its bytes into account if they are part of a block.
    pub(crate) fn header(&self, lane: u16, to: NodeId, vertex: Vertex, offset: u64, slice: &Slice) -> Header {
        let kind = Kind::Slice { vertex, offset, zero: false };
        let whole = || match slice.data() {
            Some(data) => Header::new(kind, lane, data),
            None => Header::zero(lane, vertex, offset, slice.len() as u32),
        };
        let Some((block, sub)) = self.symbols.get(&(to, vertex)) else { return whole() };
        let block = &self.blocks[*block];
        let at = offset + u64::from(*sub) * slice.len() as u64;
        // Bytes beyond the end of the block are sent, but not stored.
        let within = block.len.saturating_sub(at).min(slice.len() as u64);
        let mut sums = block.sums();
        match slice.data() {
            None => sums.add_zeros(at, within),
            Some(data) => {
                let payload_crc = sums.add_and_sum(at, &data[..within as usize]);
                if within == data.len() as u64 && within > 0 {
                    return Header { kind, lane, len: within as u32, payload_crc };
                }
            }
        }
        whole()
    }

    fn find(&self, id: BlockId, to: NodeId) -> Option<&SentBlock> {
        self.blocks.iter().find(|block| (block.id, block.to) == (id, to))
    }
}

impl SentBlock {
    fn sums(&self) -> MutexGuard<'_, UnitSums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
