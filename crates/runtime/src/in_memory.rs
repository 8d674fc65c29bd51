//! One node's program on blocks in memory, on the caller's thread: no queues, no disks, no peers.
//!
//! It shares with a lane (`executor.rs`) all that touches bytes: the script, the slots, and `Compute`
//! into pooled buffers. So it tells what the computing of a program costs by itself. It knows only
//! whole blocks (w = 1).

use std::ops::Range;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::Program;
use kintsu_wire::message::{Fault, FaultKind};

use crate::fault::{fault, invalid};
use crate::script::{OpKind, Script};
use crate::slice::{Buffer, Slice};

/// A block in memory. Blocks made one after the other start at different offsets modulo 4 KiB, as
/// all buffers of a run do.
#[derive(Debug, Clone)]
pub struct MemoryBlock(Arc<Buffer>);

impl MemoryBlock {
    /// A block of `len` bytes, as `fill` leaves them; what `fill` finds there is of any value.
    pub fn new(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut buffer = Buffer::take(len);
        fill(&mut buffer);
        Self(Arc::new(buffer))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A program that loads, computes and persists, prepared to run step by step.
#[derive(Debug)]
pub struct InMemory {
    node: NodeId,
    script: Script,
    slots: Vec<Option<Slice>>,
}

impl InMemory {
    /// Checks and prepares a program, as a run does.
    ///
    /// # Errors
    /// `Invalid` if it makes no sense, has peers, or has blocks of several sub-blocks.
    pub fn new(program: &Program) -> Result<Self, Fault> {
        let (node, script) = (program.node, Script::new(program)?);
        let edges = script.fetches.len() + script.sends.len();
        if edges > 0 || script.window.w != 1 {
            let got = format!("{edges} and w = {}", script.window.w);
            return Err(invalid(node, "program in memory", "no edges to peers and w = 1", got));
        }
        Ok(Self { node, slots: vec![None; script.slots], script })
    }

    /// Runs all tasks once, on `part` of every block. Block i of the stripe is `blocks[i]` if it is loaded;
    /// `persist` gets the others, with their bytes, or `None` if these are all zero and not kept.
    /// Copies no bytes.
    ///
    /// # Errors
    /// `Invalid` for a block that is missing or too short.
    pub fn step(
        &mut self,
        blocks: &[MemoryBlock],
        part: Range<usize>,
        mut persist: impl FnMut(BlockIndex, Option<&[u8]>),
    ) -> Result<(), Fault> {
        for op in &mut self.script.ops {
            match &mut op.kind {
                OpKind::Load { slot, source } => {
                    let index = self.script.sources[*source].binding.index;
                    let block = blocks.get(usize::from(index.0));
                    let block = block.filter(|b| part.start <= part.end && part.end <= b.0.len());
                    let wrong = || invalid(self.node, "blocks", format!("{part:?} of {index:?}"), "less");
                    let buffer = block.ok_or_else(wrong)?.0.clone();
                    self.slots[*slot] = Some(Slice::Data(buffer, part.clone()));
                }
                OpKind::Compute(combine) => combine
                    .run(&mut self.slots, part.len())
                    .map_err(|error| fault(FaultKind::Invalid, self.node, error.to_string()))?,
                OpKind::Persist { slot, sink, .. } => {
                    let index = self.script.sinks[*sink].binding.index;
                    persist(index, self.slots[*slot].as_ref().and_then(Slice::data));
                }
                OpKind::Fetch { .. } => {} // refused when prepared
            }
            op.frees.iter().for_each(|slot| self.slots[*slot] = None);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockId, Sink, StripeId, Task, Vertex};
    use kintsu_plan::{BlockBinding, JobId, Window};

    /// Block 2 = block 0 + 3 block 1.
    fn program() -> Program {
        let block = |index: u8| BlockBinding {
            index: BlockIndex(index),
            id: BlockId { stripe: StripeId(1), index: BlockIndex(index) },
            generation: 1,
            len: 100,
            expect: None,
        };
        let v = Vertex;
        Program {
            job: JobId(1),
            lane: 0,
            node: NodeId::CLIENT,
            window: Window::whole(0, 100, 10, 1),
            tasks: vec![
                Task::Load { vertex: v(0) },
                Task::Load { vertex: v(1) },
                Task::Compute { outputs: vec![v(2)], inputs: vec![v(0), v(1)], coefs: vec![1, 3] },
                Task::Persist { vertex: v(2), sink: Sink::Client },
            ],
            sends: Vec::new(),
            blocks: (0..3).map(block).collect(),
            peers: Vec::new(),
            resume_key: 0,
        }
    }

    #[test]
    fn every_part_is_combined_from_the_same_part_of_the_blocks() {
        let count = |factor: u8| {
            MemoryBlock::new(100, |b| (0..100u8).for_each(|i| b[usize::from(i)] = i.wrapping_mul(factor)))
        };
        let blocks = [count(1), count(2)];
        let mut memory = InMemory::new(&program()).unwrap();
        let mut persisted = Vec::new();
        for part in [0..33, 33..100] {
            memory
                .step(&blocks, part, |index, bytes| {
                    assert_eq!(index, BlockIndex(2));
                    persisted.extend_from_slice(bytes.unwrap());
                })
                .unwrap();
        }
        let sum = |i: u8| i ^ kintsu_algebra::mul(3, i.wrapping_mul(2));
        assert_eq!(persisted, (0..100).map(sum).collect::<Vec<u8>>());
    }

    #[test]
    fn peers_and_blocks_that_are_not_there_are_refused() {
        let mut fetching = program();
        fetching.tasks[0] = Task::Fetch { vertex: Vertex(0), from: NodeId(1) };
        fetching.peers.push(kintsu_plan::Peer { node: NodeId(1), data: ([127, 0, 0, 1], 9).into() });
        assert!(InMemory::new(&fetching).unwrap_err().detail.contains("no edges"));
        let mut memory = InMemory::new(&program()).unwrap();
        let block = MemoryBlock::new(50, |b| b.fill(1));
        assert!(memory.step(std::slice::from_ref(&block), 0..10, |_, _| ()).is_err());
        assert!(memory.step(&[block.clone(), block.clone()], 45..51, |_, _| ()).is_err());
        memory.step(&[block.clone(), block], 45..50, |_, _| ()).unwrap();
    }
}
