//! What a commit adds to a block: its frozen updates XOR the bytes that they replace.
//!
//! At home the block has these bytes. A node with replicas has them if it was sent them with the first update of each place
//! (PARIX, as CAU describes it in section 2.3). Whether it has all of them, and the same updates as the home, is not known
//! before a commit compares digests: a replica may have updates that were never acknowledged, or bytes of an older block.

use std::ops::Range;
use std::sync::Arc;

use kintsu_dag::BlockId;

use super::{AppendLog, Layer, Role, invalid};
use crate::{BlockRead, Digest, StoreError, UNIT_BYTES};

/// What a commit adds to one block.
pub struct FrozenDelta {
    log: Arc<AppendLog>,
    id: BlockId,
    /// The block; `None`: it is not on this node.
    block: Option<Box<dyn BlockRead>>,
    /// Where it may not be zero.
    ranges: Vec<Range<u64>>,
    new: Vec<u8>,
}

impl FrozenDelta {
    /// Of a block of this node. Freezes what the log has of it, if nothing is frozen yet.
    pub fn at_home(log: Arc<AppendLog>, id: BlockId, block: Box<dyn BlockRead>) -> Self {
        let ranges = log.freeze(id, Role::Home).map_or_else(Vec::new, |(_, ranges)| ranges);
        Self { log, id, block: Some(block), ranges, new: Vec::new() }
    }

    /// Of a block of another node; `None` if nothing of it is frozen.
    pub fn of_replica(log: Arc<AppendLog>, id: BlockId) -> Option<Self> {
        let ranges = log.frozen(id, Role::Replica)?;
        Some(Self { log, id, block: None, ranges, new: Vec::new() })
    }

    /// Fills `buf` from `offset`; zeros where nothing was updated.
    ///
    /// # Errors
    /// `Invalid` for a replica without the bytes that it replaces; a damaged record or block; `Io`.
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
        let role = match &mut self.block {
            Some(block) => {
                block.read_at(from, part)?;
                Role::Home
            }
            None => {
                self.log.replaced(self.id, from, part)?;
                Role::Replica
            }
        };
        self.new.clear();
        self.new.extend_from_slice(part);
        self.log.lay_over_frozen(self.id, role, from, &mut self.new)?;
        part.iter_mut().zip(&self.new).for_each(|(byte, new)| *byte ^= new);
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
        let places = self.places(block, Role::Replica, &range, Layer::Old);
        let known: u64 = places.iter().map(|(part, _)| part.end - part.start).sum();
        if known < buf.len() as u64 {
            let expected = format!("{} from byte {offset} of {block}", buf.len());
            return Err(invalid("bytes that updates replace", &expected, known));
        }
        self.lay(block, Role::Replica, offset, buf, Layer::Old).map(drop)
    }
}
