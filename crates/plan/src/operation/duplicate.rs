//! Copying blocks where they are: each becomes a block of another stripe on the same node.
//!
//! A block and its copy are a stripe of the code `replication:n=2` whose parity is made where the data is. So the copy is an
//! encoding like any other, proved and lowered; only its two blocks belong to two stripes.

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};

use super::write::{Binding, encode_offline};
use crate::{Layout, LayoutKind, PlanError, Program, ProgramContext, RunId, StripeView, Topology};

/// The code of a block with its copy.
const COPY: &str = "replication:n=2";

/// A block that is copied on its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Duplicate {
    /// The block.
    pub from: BlockId,
    /// Its generation.
    pub generation: u32,
    /// Its digest: the copy has the same, or is never made visible.
    pub digest: [u8; 16],
    /// The stripe of which the copy is the block of the same index.
    pub to: StripeId,
    /// The generation of the copy.
    pub to_generation: u32,
    /// The node that has the block.
    pub at: NodeId,
    /// The layout of both stripes.
    pub layout: Layout,
    /// Bytes of the block.
    pub len: u64,
}

/// The programs that copy these blocks, all of one attempt: one for each block. Each node reads its block and writes the copy;
/// nothing is sent.
///
/// # Errors
/// `Invalid` for blocks of length zero, or longer than a plan can have.
pub fn duplicate(job: RunId, blocks: &[Duplicate], label: &[u8]) -> Result<Vec<Program>, PlanError> {
    let code = kintsu_code::parse(COPY).map_err(|error| PlanError::Invalid {
        what: "code of a copy".into(),
        expected: COPY.into(),
        got: error.to_string(),
    })?;
    let mut programs = Vec::with_capacity(blocks.len());
    for block in blocks {
        let (block_bytes, data_bytes) = (block.len, block.len);
        let kind = LayoutKind::Contiguous;
        let layout = Layout { kind, block_bytes, data_bytes, w: 1, ..block.layout };
        let homes = vec![Some(block.at); 2];
        let view = StripeView { id: block.from.stripe, code: code.clone(), layout, homes };
        let plan = encode_offline(&view, &Topology::default(), Binding::Bound)?;
        let made = plan.programs(&ProgramContext {
            job,
            view: &view,
            generation: block.to_generation,
            generations: &[block.generation],
            window: (0, u64::MAX),
            slice_bytes: 0,
            expect: &[Some(block.digest); 2],
            label,
            peers: &|_| None,
            resume_key: 0,
        })?;
        for mut program in made {
            for binding in &mut program.blocks {
                let stripe = if binding.index == BlockIndex(0) { block.from.stripe } else { block.to };
                binding.id = BlockId { stripe, index: block.from.index };
                binding.unit_bytes = block.layout.unit_bytes();
            }
            programs.push(program);
        }
    }
    Ok(programs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{Sink, Task};

    #[test]
    fn each_node_reads_its_block_and_writes_it_to_another_stripe() {
        let layout = Layout {
            kind: LayoutKind::Striped,
            block_bytes: 8192,
            cell_bytes: 8192,
            w: 2,
            data_bytes: 3 * 8192,
        };
        let block = |index: u8, at: u32| Duplicate {
            from: BlockId { stripe: StripeId(7), index: BlockIndex(index) },
            generation: 4,
            digest: [index + 1; 16],
            to: StripeId(9),
            to_generation: 1,
            at: NodeId(at),
            layout,
            len: 8192,
        };
        let programs = duplicate(RunId(3), &[block(0, 5), block(4, 6)], b"label").unwrap();
        assert_eq!(
            programs.iter().map(|p| (p.node.0, p.job)).collect::<Vec<_>>(),
            [(5, RunId(3)), (6, RunId(3))]
        );
        for (program, index) in programs.iter().zip([0u8, 4]) {
            assert!(program.sends.is_empty() && program.peers.is_empty(), "{program:?}");
            let [old, new] = &program.blocks[..] else { panic!("{:?}", program.blocks) };
            let id = |stripe| BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
            assert_eq!((old.id, old.generation, old.expect), (id(7), 4, Some([index + 1; 16])));
            assert_eq!((new.id, new.generation, new.expect), (id(9), 1, Some([index + 1; 16])));
            assert_eq!(
                (new.label.as_slice(), new.len, new.unit_bytes),
                (&b"label"[..], 8192, layout.unit_bytes())
            );
            let wrote =
                |task: &Task| matches!(task, Task::Persist { vertex, sink: Sink::Block } if vertex.0 == 1);
            assert_eq!(program.tasks.iter().filter(|task| wrote(task)).count(), 1);
            assert_eq!(program.tasks.iter().filter(|task| matches!(task, Task::Persist { .. })).count(), 1);
        }
    }
}
