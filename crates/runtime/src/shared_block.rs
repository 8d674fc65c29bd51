//! A block that several lanes of a run read alternately, in slices shorter than its checksum units.
//!
//! To use a part of a unit, the whole unit must be read and verified. If each lane did that for itself, the block
//! would be read several times. So the lanes share one open block. The first lane that needs a unit reads it, and
//! it is kept until all of its bytes were taken or too many bytes are kept. In the second case the least recently
//! used unit is dropped; a lane that is far behind reads it again. No lane ever waits for another one.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use kintsu_dag::Sink;
use kintsu_plan::BlockBinding;
use kintsu_store::UNIT_BYTES;
use kintsu_wire::message::Fault;

use crate::local::{BlockSource, Local, Output};
use crate::script::Script;

/// Bytes kept of one block.
const KEPT_BYTES: usize = 4 << 20;

/// Bytes kept by all runs of a node, beyond one unit for each block.
const KEPT_IN_ALL_BYTES: usize = 16 << 20;

/// The blocks that several of these scripts' lanes read, in slices that are not whole units.
/// `kept` counts the bytes kept by all runs of this node.
pub(crate) fn shared(
    scripts: &[Script],
    local: &Arc<dyn Local>,
    kept: &Arc<AtomicUsize>,
) -> Vec<Arc<SharedBlock>> {
    let unit = UNIT_BYTES as u64;
    let cuts_units = |script: &&Script| {
        let window = &script.window;
        window.w == 1
            && !(window.start.is_multiple_of(unit) && u64::from(window.step_bytes).is_multiple_of(unit))
    };
    let mut shared: Vec<SharedBlock> = Vec::new();
    for source in scripts.iter().filter(cuts_units).flat_map(|script| &script.sources) {
        match shared.iter_mut().find(|shared| shared.binding == source.binding) {
            Some(there) => there.lanes += 1,
            None => shared.push(SharedBlock {
                binding: source.binding.clone(),
                local: local.clone(),
                lanes: 1,
                kept: kept.clone(),
                open: Arc::default(),
            }),
        }
    }
    shared.into_iter().filter(|shared| shared.lanes > 1).map(Arc::new).collect()
}

/// One block, and the lanes that read it.
pub(crate) struct SharedBlock {
    binding: BlockBinding,
    local: Arc<dyn Local>,
    lanes: usize,
    kept: Arc<AtomicUsize>,
    open: Arc<Mutex<Option<Open>>>,
}

struct Open {
    source: Box<dyn BlockSource>,
    unit: usize,
    /// By number.
    units: BTreeMap<u64, Unit>,
    uses: u64,
    /// Bytes kept by all runs of this node.
    kept: Arc<AtomicUsize>,
}

/// A unit whose bytes were not all taken yet.
struct Unit {
    bytes: Vec<u8>,
    left: usize,
    /// When it was last used.
    used: u64,
}

impl SharedBlock {
    /// Whether loads with this binding read this block.
    pub fn serves(&self, binding: &BlockBinding) -> bool {
        self.binding == *binding
    }

    /// How many lanes read it.
    pub fn lanes(&self) -> usize {
        self.lanes
    }
}

impl Local for SharedBlock {
    fn open(&self, _: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            let source = self.local.open(&self.binding)?;
            let unit = source.unit_bytes().max(1) as usize;
            *open = Some(Open { source, unit, units: BTreeMap::new(), uses: 0, kept: self.kept.clone() });
        }
        Ok(Box::new(Part { open: self.open.clone(), len: self.binding.len, read: Some(0) }))
    }

    fn create(&self, binding: &BlockBinding, sink: Sink, key: u64, start: u64) -> Result<Output, Fault> {
        self.local.create(binding, sink, key, start)
    }
}

/// What one lane reads of the block.
struct Part {
    open: Arc<Mutex<Option<Open>>>,
    /// Of the block.
    len: u64,
    /// Bytes read from the medium for this part, if the source counts them.
    read: Option<u64>,
}

impl BlockSource for Part {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = open.as_mut() else { return Ok(()) };
        let before = open.source.bytes_read();
        let done = open.read_at(self.len, offset, buf);
        let after = open.source.bytes_read();
        self.read = self.read.zip(after.zip(before)).map(|(read, (after, before))| read + after - before);
        done
    }

    fn bytes_read(&self) -> Option<u64> {
        self.read
    }
}

impl Open {
    fn read_at(&mut self, len: u64, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
        let unit_bytes = self.unit as u64;
        let (mut at, mut rest) = (offset, buf);
        while !rest.is_empty() {
            let number = at / unit_bytes;
            let skip = (at % unit_bytes) as usize;
            let unit_len = len.saturating_sub(number * unit_bytes).min(unit_bytes) as usize;
            let whole = rest.len() / self.unit * self.unit;
            let take = match skip {
                0 if whole > 0 => whole,
                0 if rest.len() >= unit_len => rest.len(),
                _ => rest.len().min(self.unit - skip),
            };
            let (now, later) = rest.split_at_mut(take);
            match skip == 0 && take >= unit_len {
                true => self.source.read_at(at, now)?,
                false => self.take(number, unit_len, skip, now)?,
            }
            at += take as u64;
            rest = later;
        }
        Ok(())
    }

    /// Copies part of a unit, which is read if it is not kept.
    fn take(&mut self, number: u64, unit_len: usize, skip: usize, buf: &mut [u8]) -> Result<(), Fault> {
        self.uses += 1;
        if !self.units.contains_key(&number) {
            self.make_room(unit_len);
            let mut bytes = vec![0; unit_len];
            self.source.read_at(number * self.unit as u64, &mut bytes)?;
            self.kept.fetch_add(unit_len, Ordering::Relaxed);
            self.units.insert(number, Unit { bytes, left: unit_len, used: 0 });
        }
        let Some(unit) = self.units.get_mut(&number) else { return Ok(()) };
        unit.used = self.uses;
        buf.copy_from_slice(&unit.bytes[skip..skip + buf.len()]);
        unit.left = unit.left.saturating_sub(buf.len());
        if unit.left == 0 {
            self.drop_unit(number);
        }
        Ok(())
    }

    fn make_room(&mut self, len: usize) {
        while !self.units.is_empty()
            && (self.units.len() * self.unit + len > KEPT_BYTES
                || self.kept.load(Ordering::Relaxed) + len > KEPT_IN_ALL_BYTES)
        {
            let oldest = self.units.iter().min_by_key(|(_, unit)| unit.used).map(|(number, _)| *number);
            oldest.into_iter().for_each(|number| self.drop_unit(number));
        }
    }

    fn drop_unit(&mut self, number: u64) {
        if let Some(unit) = self.units.remove(&number) {
            self.kept.fetch_sub(unit.bytes.len(), Ordering::Relaxed);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let kept = self.units.values().map(|unit| unit.bytes.len()).sum();
        self.kept.fetch_sub(kept, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockId, BlockIndex, StripeId};
    use proptest::prelude::*;

    const UNIT: usize = 4096;

    struct Memory(Vec<u8>, u64);

    struct Lender(Vec<u8>);

    impl Local for Lender {
        fn open(&self, _: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
            Ok(Box::new(Memory(self.0.clone(), 0)))
        }

        fn create(&self, _: &BlockBinding, _: Sink, _: u64, _: u64) -> Result<Output, Fault> {
            unreachable!()
        }
    }

    impl BlockSource for Memory {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
            let (from, to) = (offset as usize, offset as usize + buf.len());
            buf.copy_from_slice(&self.0[from..to]);
            self.1 += (to.next_multiple_of(UNIT).min(self.0.len()) - from / UNIT * UNIT) as u64;
            Ok(())
        }

        fn bytes_read(&self) -> Option<u64> {
            Some(self.1)
        }

        fn unit_bytes(&self) -> u32 {
            UNIT as u32
        }
    }

    fn block(bytes: Vec<u8>) -> Arc<SharedBlock> {
        let id = BlockId { stripe: StripeId(1), index: BlockIndex(0) };
        let binding = BlockBinding {
            index: id.index,
            id,
            generation: 1,
            len: bytes.len() as u64,
            unit_bytes: UNIT as u32,
            expect: None,
            label: Vec::new(),
            next: None,
            replica: false,
        };
        let (local, lanes) = (Arc::new(Lender(bytes)), 3);
        Arc::new(SharedBlock { binding, local, lanes, kept: Arc::default(), open: Arc::default() })
    }

    proptest! {
        #[test]
        fn every_byte_is_right_and_in_turns_each_unit_is_read_once(
            len in 1usize..200_000, slice in 1usize..20_000, lanes in 1usize..6,
        ) {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
            let block = block(bytes.clone());
            let mut parts: Vec<_> = (0..lanes).map(|_| block.open(&block.binding).unwrap()).collect();
            for (turn, piece) in bytes.chunks(slice).enumerate() {
                let mut got = vec![0; piece.len()];
                parts[turn % lanes].read_at((turn * slice) as u64, &mut got).unwrap();
                prop_assert_eq!(&got, piece);
            }
            let read: u64 = parts.iter().filter_map(|part| part.bytes_read()).sum();
            prop_assert_eq!(read, len as u64);
            prop_assert!(block.open.lock().unwrap().as_ref().unwrap().units.is_empty());
        }
    }

    #[test]
    fn a_lane_that_is_far_behind_reads_again_and_memory_stays_bounded() {
        let bytes = vec![7; 3 * KEPT_BYTES];
        let block = block(bytes.clone());
        let mut parts: Vec<_> = (0..2).map(|_| block.open(&block.binding).unwrap()).collect();
        let mut got = [0; UNIT / 2];
        for (lane, part) in parts.iter_mut().enumerate() {
            for at in (lane * UNIT / 2..bytes.len()).step_by(UNIT) {
                part.read_at(at as u64, &mut got).unwrap();
                let open = block.open.lock().unwrap();
                assert!(open.as_ref().unwrap().units.len() * UNIT <= KEPT_BYTES);
            }
        }
        let read: Vec<_> = parts.iter().filter_map(|part| part.bytes_read()).collect();
        assert_eq!(read[0], bytes.len() as u64);
        assert!(read[1] <= bytes.len() as u64 && read[1] > 0);
    }
}
