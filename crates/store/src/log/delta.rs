//! What a commit adds to a block: its frozen updates XOR the bytes that they replace.
//!
//! At home the block has these bytes. A node with replicas has deltas, or was sent the bytes with the first update of each
//! place (PARIX, as CAU describes it in section 2.3). Whether it has all of them, and the same updates as the home, is not
//! known before a commit compares digests: a replica may have updates that were never acknowledged, new bytes alone, or what
//! belongs to an older version.

use std::ops::Range;
use std::sync::Arc;

use kintsu_dag::BlockId;

use super::logged::{add, later};
use super::{AppendLog, Layer, Role, invalid};
use crate::{BlockRead, Digest, Generation, StoreError, UNIT_BYTES};

/// What a commit adds to one block.
pub struct FrozenDelta {
    log: Arc<AppendLog>,
    id: BlockId,
    /// The version that it is added to.
    over: Generation,
    /// The block; `None`: it is not on this node.
    block: Option<Box<dyn BlockRead>>,
    /// Where it may not be zero.
    ranges: Vec<Range<u64>>,
}

impl FrozenDelta {
    /// Of a block of this node; `None` if nothing of it is frozen, because the node was started again since.
    pub fn at_home(log: Arc<AppendLog>, id: BlockId, block: Box<dyn BlockRead>) -> Option<Self> {
        let ranges = log.frozen(id, Role::Home)?;
        Some(Self { log, id, over: block.meta().generation, block: Some(block), ranges })
    }

    /// Of a block of another node, which has it in this version; `None` if nothing of it is frozen.
    pub fn of_replica(log: Arc<AppendLog>, id: BlockId, over: Generation) -> Option<Self> {
        let ranges = log.frozen(id, Role::Replica)?;
        Some(Self { log, id, over, block: None, ranges })
    }

    /// Fills `buf` from `offset`; zeros where nothing was updated.
    ///
    /// # Errors
    /// `Invalid` for a replica that does not know the delta to this version; a damaged record or block; `Io`.
    pub fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        buf.fill(0);
        let end = offset + buf.len() as u64;
        for at in 0..self.ranges.len() {
            let range = &self.ranges[at];
            let (from, to) = (range.start.max(offset), range.end.min(end));
            if from < to {
                self.read_within(from, &mut buf[(from - offset) as usize..(to - offset) as usize])?;
            }
        }
        Ok(())
    }

    /// A part of one range.
    fn read_within(&mut self, from: u64, part: &mut [u8]) -> Result<(), StoreError> {
        let role = if self.block.is_some() { Role::Home } else { Role::Replica };
        let (range, mut known) = (from..from + part.len() as u64, 0);
        for (at, place, bytes) in self.log.parts(self.id, role, &range, Layer::Frozen)? {
            let target = &mut part[(at.start - from) as usize..(at.end - from) as usize];
            known += target.len();
            match (place.delta_of, &mut self.block) {
                (Some(version), _) if version == self.over => target.copy_from_slice(&bytes),
                // The block has it.
                (Some(version), Some(_)) if version < self.over => target.fill(0),
                (Some(version), _) => return Err(later(self.over, version)),
                (None, Some(block)) => {
                    block.read_at(at.start, target)?;
                    add(target, &bytes);
                }
                (None, None) => {
                    self.log.replaced(self.id, at.start, target)?;
                    add(target, &bytes);
                }
            }
        }
        if known < part.len() {
            let expected = format!("{} bytes of {} from {from}", part.len(), self.id);
            return Err(invalid("what a commit takes", &expected, known));
        }
        Ok(())
    }

    /// Tells deltas apart: of the ranges and of all bytes in them.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn digest(&mut self) -> Result<Digest, StoreError> {
        let (mut units, mut total) = (Vec::new(), 0);
        let mut buf = vec![0; UNIT_BYTES];
        for range in self.ranges.clone() {
            for edge in [range.start, range.end] {
                units.extend([edge as u32, (edge >> 32) as u32]);
            }
            for from in range.clone().step_by(UNIT_BYTES) {
                let part = &mut buf[..(range.end - from).min(UNIT_BYTES as u64) as usize];
                self.read_within(from, part)?;
                units.push(crc_fast::crc32_iscsi(part));
                total += part.len() as u64;
            }
        }
        Ok(Digest::of_units(total, &units))
    }

    /// Bytes of the block read so far.
    pub fn bytes_read(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.bytes_read())
    }
}

impl AppendLog {
    /// What a commit takes of a block, if that was fixed.
    fn frozen(&self, block: BlockId, role: Role) -> Option<Vec<Range<u64>>> {
        let state = self.state();
        let held = state.blocks.get(&(block, role))?;
        held.cut.map(|_| held.frozen.ranges())
    }

    /// The bytes that replicas of a block replace, all of a range.
    fn replaced(&self, block: BlockId, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let range = offset..offset + buf.len() as u64;
        let mut known = 0;
        for (part, _, bytes) in self.parts(block, Role::Replica, &range, Layer::Old)? {
            buf[(part.start - offset) as usize..(part.end - offset) as usize].copy_from_slice(&bytes);
            known += bytes.len();
        }
        if known < buf.len() {
            let expected = format!("{} from byte {offset} of {block}", buf.len());
            return Err(invalid("bytes that updates replace", &expected, known));
        }
        Ok(())
    }
}
