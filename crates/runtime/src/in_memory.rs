//! A graph computed in memory, on the caller's thread: no queues, no disks, no peers.
//!
//! It shares with a lane (`executor.rs`) everything that touches bytes: the lowered tasks, the script, the slots,
//! and `Compute` into pooled buffers. It encodes and decodes blocks in memory, and shows what the computation of a
//! program alone costs. The caller lends the input bytes; they are never copied.

use kintsu_dag::{BlockId, BlockIndex, DagError, Ecdag, NodeId, Placed, Sink, StripeId, Vertex};
use kintsu_plan::{BlockBinding, Program, RunId, Window};
use kintsu_wire::message::{Fault, FaultKind};

use crate::fault::{fault, invalid};
use crate::script::{OpKind, Script};
use crate::slice::{Buffer, View};

const HERE: NodeId = NodeId::CLIENT;

/// A block in memory. Blocks made one after the other start at different offsets modulo 4 KiB, as
/// all buffers of a run do.
#[derive(Debug)]
pub struct MemoryBlock(Buffer);

impl MemoryBlock {
    /// A block of `len` bytes as written by `fill`; before that they have any value.
    pub fn new(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut buffer = Buffer::take(len);
        fill(&mut buffer);
        Self(buffer)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A graph prepared for computation step by step.
#[derive(Debug)]
pub struct InMemory {
    script: Script,
}

impl InMemory {
    /// Binds, lowers, checks and prepares a graph, as a run does. The caller must prove that it computes what it
    /// claims.
    ///
    /// # Errors
    /// `Invalid` for a graph with a cycle, with a virtual leaf, or too large.
    pub fn new(graph: Ecdag) -> Result<Self, Fault> {
        let refused = |error: DagError| fault(FaultKind::Invalid, HERE, error.to_string());
        let program = program(graph).map_err(refused)?;
        Ok(Self { script: Script::new(&program)? })
    }

    /// Computes the graph once, on `len` bytes of every symbol. `load` lends the bytes of a symbol, given as
    /// block and sub-block; `persist` gets those of each target, or `None` if they are all zero and not kept.
    ///
    /// # Errors
    /// `Invalid` for a symbol that is missing or of another length; `Mismatch` when a second computation of a
    /// sample gives another result.
    pub fn step<'a>(
        &mut self,
        len: usize,
        load: impl Fn(BlockIndex, u16) -> Option<&'a [u8]>,
        mut persist: impl FnMut(BlockIndex, u16, Option<&[u8]>),
    ) -> Result<(), Fault> {
        let mut slots: Vec<Option<View<'a>>> = (0..self.script.slots).map(|_| None).collect();
        for op in &mut self.script.ops {
            match &mut op.kind {
                OpKind::Load { slot, source, sub } => {
                    let index = self.script.sources[*source].binding.index;
                    let bytes = load(index, *sub);
                    let lent = bytes.filter(|bytes| bytes.len() == len).ok_or_else(|| {
                        let got = bytes.map_or("none".into(), |b| format!("{} bytes", b.len()));
                        invalid(HERE, format!("sub-block {sub} of {index}"), format!("{len} bytes"), got)
                    })?;
                    slots[*slot] = Some(View::Lent(lent));
                }
                OpKind::Compute(combine) => {
                    combine.run(&mut slots, len).map_err(|error| error.fault(HERE))?;
                }
                OpKind::Persist { slot, sink, sub } => {
                    let index = self.script.sinks[*sink].binding.index;
                    persist(index, *sub, slots[*slot].as_ref().and_then(View::data));
                }
                OpKind::Fetch { .. } => {} // there is only one node
            }
            op.frees.iter().for_each(|slot| slots[*slot] = None);
        }
        Ok(())
    }
}

/// The whole graph as the program of one node: leaves loaded, targets persisted.
fn program(mut graph: Ecdag) -> Result<Program, DagError> {
    let w = u16::try_from(graph.w()).ok().filter(|w| *w > 0).ok_or_else(|| DagError::Invalid {
        what: "sub-blocks of a block".into(),
        expected: "1 to 65535".into(),
        got: graph.w().to_string(),
    })?;
    let symbols = |vertices: Vec<Vertex>| vertices.into_iter().map(|v| v.0 as usize / usize::from(w));
    let mut blocks: Vec<usize> = symbols(graph.leaves()).chain(symbols(graph.targets())).collect();
    blocks.sort_unstable();
    blocks.dedup();
    if let Some(leaf) = graph.leaves().into_iter().find(|leaf| !graph.is_symbol(*leaf)) {
        return Err(DagError::Invalid {
            what: format!("leaf {leaf}"),
            expected: "a symbol".into(),
            got: "a virtual vertex without a join".into(),
        });
    }
    graph.auto_bind()?;
    let placed = Placed {
        load_at: graph.leaves().into_iter().map(|v| (v, HERE)).collect(),
        compute_at: graph.joins().keys().map(|v| (*v, HERE)).collect(),
        persist_at: graph.targets().into_iter().map(|v| (v, (HERE, Sink::Client))).collect(),
        graph,
    };
    let tasks = placed.lower()?.into_iter().flat_map(|node| node.tasks).collect();
    let bind = |block: usize| {
        let index = BlockIndex(block as u8);
        let id = BlockId { stripe: StripeId(0), index };
        BlockBinding {
            index,
            id,
            generation: 0,
            len: 0,
            unit_bytes: 0,
            expect: None,
            label: Vec::new(),
            next: None,
            replica: false,
        }
    };
    Ok(Program {
        job: RunId(0),
        lane: 0,
        node: HERE,
        window: Window::whole(0, 0, u32::from(w), w),
        tasks,
        sends: Vec::new(),
        blocks: blocks.into_iter().map(bind).collect(),
        peers: Vec::new(),
        resume_key: 0,
        serial: false,
        rate: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_algebra::mul;

    fn pattern(factor: u8) -> MemoryBlock {
        MemoryBlock::new(100, |b| (0..100u8).for_each(|i| b[usize::from(i)] = i.wrapping_mul(factor)))
    }

    /// Block 2 = block 0 + 3 block 1.
    fn graph() -> Ecdag {
        let mut graph = Ecdag::new(3, 1);
        graph.join(Vertex(2), &[Vertex(0), Vertex(1)], &[1, 3]).unwrap();
        graph
    }

    #[test]
    fn every_part_is_combined_from_the_same_part_of_the_blocks() {
        let blocks = [pattern(1), pattern(2)];
        let mut memory = InMemory::new(graph()).unwrap();
        let mut persisted = Vec::new();
        for part in [0..33, 33..100] {
            let load = |index: BlockIndex, sub| {
                assert_eq!(sub, 0);
                Some(&blocks[usize::from(index.0)].bytes()[part.clone()])
            };
            let persist = |index, sub, bytes: Option<&[u8]>| {
                assert_eq!((index, sub), (BlockIndex(2), 0));
                persisted.extend_from_slice(bytes.unwrap());
            };
            memory.step(part.len(), load, persist).unwrap();
        }
        let sum = |i: u8| i ^ mul(3, i.wrapping_mul(2));
        assert_eq!(persisted, (0..100).map(sum).collect::<Vec<u8>>());
    }

    #[test]
    fn sub_blocks_are_symbols_and_partial_sums_stay_inside() {
        // w = 2: v4 = v0 + 2 v3, v5 = (v1 + v2) + 5 v4.
        let mut graph = Ecdag::new(3, 2);
        let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(Vertex);
        let partial = graph.fresh();
        graph.join(e, &[a, d], &[1, 2]).unwrap();
        graph.join(partial, &[b, c], &[1, 1]).unwrap();
        graph.join(f, &[partial, e], &[1, 5]).unwrap();
        let blocks = [pattern(7), pattern(9)];
        let half = |block: usize, sub: u16| &blocks[block].bytes()[usize::from(sub) * 50..][..50];
        let mut out = [0; 100];
        InMemory::new(graph)
            .unwrap()
            .step(
                50,
                |index, sub| Some(half(usize::from(index.0), sub)),
                |index, sub, bytes| {
                    assert_eq!(index, BlockIndex(2));
                    out[usize::from(sub) * 50..][..50].copy_from_slice(bytes.unwrap());
                },
            )
            .unwrap();
        for i in 0..50 {
            let e = half(0, 0)[i] ^ mul(2, half(1, 1)[i]);
            assert_eq!(out[i], e);
            assert_eq!(out[50 + i], half(0, 1)[i] ^ half(1, 0)[i] ^ mul(5, e));
        }
    }

    #[test]
    fn blocks_that_are_not_there_and_graphs_that_cannot_be_run_are_refused() {
        let mut memory = InMemory::new(graph()).unwrap();
        let block = pattern(1);
        let only_first = |index: BlockIndex, _| (index.0 == 0).then(|| &block.bytes()[..10]);
        assert!(memory.step(10, only_first, |_, _, _| ()).unwrap_err().detail.contains("got none"));
        let short = |index: BlockIndex, _| Some(&block.bytes()[..10 - usize::from(index.0)]);
        assert!(memory.step(10, short, |_, _, _| ()).unwrap_err().detail.contains("got 9 bytes"));
        memory.step(10, |_, _| Some(&block.bytes()[..10]), |_, _, _| ()).unwrap();

        let mut virtual_leaf = Ecdag::new(2, 1);
        let leaf = virtual_leaf.fresh();
        virtual_leaf.join(Vertex(1), &[leaf], &[1]).unwrap();
        assert!(InMemory::new(virtual_leaf).unwrap_err().detail.contains("a virtual vertex"));
        assert!(InMemory::new(Ecdag::new(2, 1 << 16)).unwrap_err().detail.contains("1 to 65535"));
        let nothing = InMemory::new(Ecdag::new(2, 1)).unwrap().step(0, |_, _| None, |_, _, _| ());
        nothing.unwrap();
    }
}
