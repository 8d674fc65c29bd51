//! The two ends of an update on an agent: the delta of a block, and the version of a block to which deltas are added.
//!
//! A delta is what the log has frozen of a block, XOR the block ([`FrozenDelta`]). A next version is the
//! block XOR what arrives; it comes to be beside the block, and the block stays as it is
//! (`docs/adr/0008-updates-in-place.md`).

use kintsu_dag::{BlockId, NodeId};
use kintsu_store::{BlockRead, BlockWrite, FrozenDelta, StoreError};
use kintsu_wire::message::{Fault, HeldBlock};

use crate::covered::Covered;
use crate::fault::from_store;
use crate::local::{BlockSink, BlockSource};

/// What is copied at once of a block that is not added to.
const COPY_BYTES: u64 = 256 << 10;

/// The delta of one block.
pub(crate) struct DeltaSource {
    node: NodeId,
    id: BlockId,
    delta: FrozenDelta,
}

impl DeltaSource {
    pub fn new(node: NodeId, id: BlockId, delta: FrozenDelta) -> Self {
        Self { node, id, delta }
    }
}

impl BlockSource for DeltaSource {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        self.delta.read_at(offset, buf).map_err(|error| from_store(self.node, self.id, &error))
    }

    fn bytes_read(&self) -> Option<u64> {
        Some(self.delta.bytes_read())
    }
}

/// The next version of one block.
pub(crate) struct XorSink {
    node: NodeId,
    id: BlockId,
    old: Box<dyn BlockRead>,
    write: Box<dyn BlockWrite>,
    covered: Covered,
    sum: Vec<u8>,
}

impl XorSink {
    pub fn new(node: NodeId, id: BlockId, old: Box<dyn BlockRead>, write: Box<dyn BlockWrite>) -> Self {
        Self { node, id, old, write, covered: Covered::default(), sum: Vec::new() }
    }

    fn add(&mut self, offset: u64, delta: Option<&[u8]>, len: usize) -> Result<(), StoreError> {
        self.sum.resize(len, 0);
        self.old.read_at(offset, &mut self.sum)?;
        if let Some(delta) = delta {
            self.sum.iter_mut().zip(delta).for_each(|(byte, delta)| *byte ^= delta);
        }
        self.write.write_at(offset, &self.sum)?;
        self.covered.add(offset..offset + len as u64);
        Ok(())
    }

    /// Copies what was not added to.
    fn copy_the_rest(&mut self) -> Result<(), StoreError> {
        for range in self.covered.missing(0..self.old.meta().len) {
            let mut at = range.start;
            while at < range.end {
                let len = COPY_BYTES.min(range.end - at);
                self.add(at, None, len as usize)?;
                at += len;
            }
        }
        Ok(())
    }
}

impl BlockSink for XorSink {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.add(offset, Some(data), data.len()).map_err(|error| from_store(self.node, self.id, &error))
    }

    fn complete(&mut self) -> Result<(), Fault> {
        self.copy_the_rest().map_err(|error| from_store(self.node, self.id, &error))
    }

    fn bytes_read(&self) -> u64 {
        self.old.bytes_read()
    }

    fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
        let (node, id) = (self.node, self.id);
        let meta = self.write.finish(None).map_err(|error| from_store(node, id, &error))?;
        Ok(Some(HeldBlock {
            id: meta.id,
            generation: meta.generation.0,
            len: meta.len,
            digest: meta.digest.0,
        }))
    }
}
