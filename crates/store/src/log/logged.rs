//! Reading what the log holds of a block, and laying it over the block.

use std::io::ErrorKind;
use std::ops::Range;

use kintsu_dag::BlockId;

use super::extents::{Extents, Place};
use super::{AppendLog, Layer, Role, damaged, invalid, record};
use crate::{Generation, StoreError};

/// What a log says of a part of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// First byte of the block.
    pub offset: u64,
    /// New bytes, or what is to be added to bytes of the block.
    pub bytes: Vec<u8>,
    /// The version of the block to which they are added; `None`: they are new bytes.
    pub delta_of: Option<Generation>,
}

/// A range of a block that a record has, where the record is, and the bytes of the range.
pub(super) type Part = (Range<u64>, Place, Vec<u8>);

impl Logged {
    /// Lays this over `buf`, the bytes of version `base` of the block from `from` on. A delta of an older version is in the
    /// block already: the commit that made a later one took all deltas of the former.
    ///
    /// # Errors
    /// `Invalid` for a delta of a later version, or a part that is not within `buf`.
    pub fn lay_over(&self, base: Generation, from: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        let (at, all) = (self.offset.checked_sub(from), from..from + buf.len() as u64);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let target = at.and_then(|at| buf.get_mut(at..at.checked_add(self.bytes.len())?));
        let Some(target) = target else {
            let got = format!("{} bytes from {}", self.bytes.len(), self.offset);
            return Err(invalid("logged part of a block", &format!("one within {all:?}"), got));
        };
        match self.delta_of {
            None => target.copy_from_slice(&self.bytes),
            Some(version) if version == base => add(target, &self.bytes),
            Some(version) if version < base => {}
            Some(version) => return Err(later(base, version)),
        }
        Ok(())
    }
}

/// Adds bytes to others: XOR.
pub(super) fn add(to: &mut [u8], bytes: &[u8]) {
    to.iter_mut().zip(bytes).for_each(|(byte, added)| *byte ^= added);
}

/// A log has a delta of a later version than the block that is there.
pub(super) fn later(base: Generation, got: Generation) -> StoreError {
    invalid("delta of a block", &format!("one of version {base} or before"), got)
}

impl AppendLog {
    /// What the log holds of a range of a block: the newest of each byte, ascending, as few parts as there can be.
    ///
    /// # Errors
    /// `Invalid` for a damaged record; `Io`.
    pub fn logged(&self, block: BlockId, role: Role, range: Range<u64>) -> Result<Vec<Logged>, StoreError> {
        let mut parts: Vec<Logged> = Vec::new();
        for (part, place, bytes) in self.parts(block, role, &range, Layer::All)? {
            let delta_of = place.delta_of;
            match parts.last_mut() {
                Some(last)
                    if last.offset + last.bytes.len() as u64 == part.start && last.delta_of == delta_of =>
                {
                    last.bytes.extend_from_slice(&bytes);
                }
                _ => parts.push(Logged { offset: part.start, bytes, delta_of }),
            }
        }
        Ok(parts)
    }

    /// The parts of a range that a layer has, with their bytes.
    pub(super) fn parts(
        &self,
        block: BlockId,
        role: Role,
        range: &Range<u64>,
        layer: Layer,
    ) -> Result<Vec<Part>, StoreError> {
        loop {
            let places = self.places(block, role, range, layer);
            match self.read_places(&places) {
                // Meanwhile the records were released, and their file is gone.
                Err(StoreError::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound
                        && places != self.places(block, role, range, layer) => {}
                read => return read,
            }
        }
    }

    fn places(
        &self,
        block: BlockId,
        role: Role,
        range: &Range<u64>,
        layer: Layer,
    ) -> Vec<(Range<u64>, Place)> {
        let state = self.state();
        let Some(held) = state.blocks.get(&(block, role)) else { return Vec::new() };
        match layer {
            Layer::Old => held.old.within(range),
            Layer::Frozen => held.frozen.within(range),
            Layer::All => {
                let mut newest = Extents::default();
                for (part, place) in [held.frozen.within(range), held.active.within(range)].concat() {
                    newest.add(part, place);
                }
                newest.within(range)
            }
        }
    }

    /// Reads each place's record whole, so that its checksum can be checked.
    fn read_places(&self, places: &[(Range<u64>, Place)]) -> Result<Vec<Part>, StoreError> {
        let mut last: Option<(Place, Vec<u8>)> = None;
        let mut parts = Vec::with_capacity(places.len());
        for (part, place) in places {
            let len = (part.end - part.start) as usize;
            if place.zeros {
                parts.push((part.clone(), *place, vec![0; len]));
                continue;
            }
            let again = last
                .as_ref()
                .is_some_and(|(known, _)| (known.segment, known.at) == (place.segment, place.at));
            if !again {
                last = Some((*place, self.record_at(*place)?));
            }
            if let Some((_, bytes)) = &last {
                let from = (part.start - place.offset) as usize;
                parts.push((part.clone(), *place, bytes[from..from + len].to_vec()));
            }
        }
        Ok(parts)
    }

    fn record_at(&self, place: Place) -> Result<Vec<u8>, StoreError> {
        let path = record::path(&self.dir, place.segment);
        let file = self.disk.open(&path).map_err(|source| StoreError::io(&path, source))?;
        let mut bytes = vec![0; record::encoded_len(place.len)];
        let got = file.read_at(&mut bytes, place.at).map_err(|source| StoreError::io(&path, source))?;
        match record::decode(&bytes[..got]) {
            Some((record, payload)) if record.number == place.number => Ok(payload.to_vec()),
            _ => Err(damaged(&path, place.at, place.number)),
        }
    }
}
