//! Short blocks are gathered in memory until they are whole. Then one call on a blocking thread begins, writes and
//! finishes each: a change of threads costs more than the bytes.

use std::sync::Arc;

use kintsu_dag::Sink;
use kintsu_plan::{BlockBinding, Program};
use kintsu_wire::message::{Fault, HeldBlock};

use crate::covered::Covered;
use crate::fault::invalid;
use crate::local::{BlockSink, Local, Output};
use crate::script::Persisted;

/// Longest block that is gathered.
const MOST_BYTES: u64 = 64 << 10;

/// A block that the store does not know of yet.
pub(crate) struct Gathered {
    local: Arc<dyn Local>,
    binding: BlockBinding,
    bytes: Vec<u8>,
    covered: Covered,
}

impl Gathered {
    /// Whether a block is gathered: it is short, and no other attempt begins or continues it.
    pub fn is_for(program: &Program, persisted: &Persisted) -> bool {
        let alone = program.resume_key == 0 && program.window.start == 0;
        alone && persisted.sink == Sink::Block && persisted.binding.len <= MOST_BYTES
    }

    pub fn new(local: Arc<dyn Local>, binding: BlockBinding) -> Self {
        let bytes = vec![0; binding.len as usize];
        Self { local, binding, bytes, covered: Covered::default() }
    }
}

impl BlockSink for Gathered {
    fn may_block(&self) -> bool {
        false
    }

    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        for range in self.covered.missing(offset..offset + data.len() as u64) {
            let [from, to] = [range.start, range.end].map(|at| at as usize);
            let base = offset as usize;
            // Callers write nothing past the end.
            let Some(there) = self.bytes.get_mut(from..to) else { break };
            there.copy_from_slice(&data[from - base..to - base]);
            self.covered.add(range);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        let whole = self.covered.prefix() as usize;
        match self.local.create(&self.binding, Sink::Block, 0, 0)? {
            Output::Block(mut sink) => {
                // If bytes are missing, the sink says so.
                sink.write_at(0, &self.bytes[..whole])?;
                sink.finish()
            }
            Output::Channel(_) => {
                Err(invalid(kintsu_dag::NodeId::CLIENT, "sink", "one that keeps a block", "a channel"))
            }
        }
    }
}
