//! The unit checksums of a block, computed while its bytes arrive in any order.
//!
//! Pieces that touch inside a unit are merged at once ([`crc::combine`](crate::crc::combine)), so
//! no byte is ever read back, whatever the order and the size of the pieces. Memory: 5 bytes a
//! unit, plus 12 for each piece whose neighbours in its unit are still missing.

use std::collections::BTreeMap;

use crate::{Digest, crc};

/// The checksums so far, and which bytes they cover.
///
/// A store that writes a block keeps them. The sender of a block can keep them too, and so know the digest that
/// the store must report.
#[derive(Debug)]
pub struct UnitSums {
    len: u64,
    /// Bytes of a unit.
    unit: u64,
    written: u64,
    table: Vec<u32>,
    complete: Vec<bool>,
    /// Extents of the units begun but not complete: sorted, not touching each other.
    partial: BTreeMap<usize, Vec<Extent>>,
}

/// Bytes `start..end` of a unit.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: u32,
    end: u32,
    crc: u32,
}

impl UnitSums {
    /// For a block of `len` bytes in units of `unit` bytes, none of them there yet.
    ///
    /// # Panics
    /// For a unit of zero bytes.
    pub fn of_block(len: u64, unit: u32) -> Self {
        let units = len.div_ceil(unit.into()) as usize;
        Self {
            len,
            unit: unit.into(),
            written: 0,
            table: vec![0; units],
            complete: vec![false; units],
            partial: BTreeMap::new(),
        }
    }

    /// Bytes covered.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The checksums of all units; only meaningful when every byte is covered.
    pub(crate) fn table(&self) -> &[u32] {
        &self.table
    }

    /// The first byte of `offset..offset + len` that is covered already.
    pub(crate) fn covered(&self, offset: u64, len: u64) -> Option<u64> {
        pieces(self.unit, offset, len).find_map(|(unit, start, end)| {
            let base = unit as u64 * self.unit;
            if self.complete[unit] {
                return Some(base + u64::from(start));
            }
            let overlap = self.partial.get(&unit)?.iter().find(|e| e.start < end && start < e.end)?;
            Some(base + u64::from(overlap.start.max(start)))
        })
    }

    /// The digest of the block; `None` until every byte is covered.
    pub fn digest(&self) -> Option<Digest> {
        (self.written == self.len).then(|| Digest::of_units(self.len, &self.table))
    }

    /// Covers `data` at `offset`: within the block, not covered before.
    pub(crate) fn add(&mut self, offset: u64, data: &[u8]) {
        self.add_pieces(offset, data, |_, _| ());
    }

    /// Covers `data` at `offset`: within the block, not covered before. Returns the CRC32C of `data`, which
    /// costs no second pass over it.
    pub fn add_and_sum(&mut self, offset: u64, data: &[u8]) -> u32 {
        let mut all = None;
        self.add_pieces(offset, data, |crc, len| {
            all = Some(all.map_or(crc, |before| crc::combine(before, crc, len)));
        });
        all.unwrap_or(0)
    }

    /// Covers `data`, and passes the CRC32C and the length of each part that lies in one unit to `summed`.
    fn add_pieces(&mut self, offset: u64, data: &[u8], mut summed: impl FnMut(u32, u32)) {
        let mut rest = data;
        for (unit, start, end) in pieces(self.unit, offset, data.len() as u64) {
            let (piece, tail) = rest.split_at((end - start) as usize);
            rest = tail;
            let crc = crc_fast::crc32_iscsi(piece);
            summed(crc, end - start);
            self.add_in_unit(unit, start, end, crc);
        }
        self.written += data.len() as u64;
    }

    /// Covers `len` zeros at `offset`: within the block, not covered before. Reads no memory.
    pub fn add_zeros(&mut self, offset: u64, len: u64) {
        for (unit, start, end) in pieces(self.unit, offset, len) {
            self.add_in_unit(unit, start, end, crc::of_zeros(end - start));
        }
        self.written += len;
    }

    /// Covers a part of a unit whose checksum is known.
    fn add_in_unit(&mut self, unit: usize, start: u32, end: u32, crc: u32) {
        let unit_len = (self.len - unit as u64 * self.unit).min(self.unit) as u32;
        let whole = if (start, end) == (0, unit_len) {
            Some(crc)
        } else {
            let extents = self.partial.entry(unit).or_default();
            insert(extents, start, end, crc);
            extents.first().filter(|e| (e.start, e.end) == (0, unit_len)).map(|e| e.crc)
        };
        if let Some(crc) = whole {
            self.partial.remove(&unit);
            self.table[unit] = crc;
            self.complete[unit] = true;
        }
    }
}

/// Puts a piece among the extents of its unit and merges it with those it touches.
fn insert(extents: &mut Vec<Extent>, start: u32, end: u32, crc: u32) {
    let mut at = extents.partition_point(|e| e.end <= start);
    if at > 0 && extents[at - 1].end == start {
        at -= 1;
        let before = &mut extents[at];
        before.crc = crc::combine(before.crc, crc, end - start);
        before.end = end;
    } else {
        extents.insert(at, Extent { start, end, crc });
    }
    if let Some(&after) = extents.get(at + 1).filter(|after| after.start == end) {
        let joined = &mut extents[at];
        joined.crc = crc::combine(joined.crc, after.crc, after.end - after.start);
        joined.end = after.end;
        extents.remove(at + 1);
    }
}

/// A range of a block cut at boundaries of units of `bytes`: (unit, start in it, end in it).
fn pieces(bytes: u64, offset: u64, len: u64) -> impl Iterator<Item = (usize, u32, u32)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let unit = at / bytes;
        let stop = end.min((unit + 1) * bytes);
        let piece = (unit as usize, (at - unit * bytes) as u32, (stop - unit * bytes) as u32);
        at = stop;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::UNIT_BYTES;

    fn in_order(data: &[u8], unit: u32) -> Vec<u32> {
        data.chunks(unit as usize).map(crc_fast::crc32_iscsi).collect()
    }

    proptest! {
        #[test]
        fn any_order_gives_the_same_sums(
            seed in any::<u8>(),
            len in 1usize..3 * UNIT_BYTES,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            order in any::<u64>(),
            unit in (12u32..=16).prop_map(|bits| 1 << bits),
        ) {
            // Long runs of zeros, too.
            let byte = |i: usize| (i as u8).wrapping_mul(31) ^ (i >> 8) as u8 ^ seed;
            let data: Vec<u8> = (0..len).map(|i| if i >> 15 & 1 == 1 { 0 } else { byte(i) }).collect();
            let mut bounds: Vec<usize> = cuts.iter().map(|c| c.index(len)).chain([0, len]).collect();
            bounds.sort_unstable();
            bounds.dedup();
            let mut ranges: Vec<_> = bounds.windows(2).map(|w| (w[0], w[1])).collect();
            ranges.sort_by_key(|r| (r.0 as u64 + 1).wrapping_mul(order | 1).rotate_left(17));

            let mut sums = UnitSums::of_block(len as u64, unit);
            for (start, end) in ranges {
                prop_assert_eq!(sums.covered(start as u64, (end - start) as u64), None);
                prop_assert_eq!(sums.digest(), None);
                let piece = &data[start..end];
                if piece.iter().all(|byte| *byte == 0) {
                    sums.add_zeros(start as u64, piece.len() as u64);
                } else {
                    prop_assert_eq!(sums.add_and_sum(start as u64, piece), crc_fast::crc32_iscsi(piece));
                }
                prop_assert_eq!(sums.covered(start as u64, (end - start) as u64), Some(start as u64));
                prop_assert_eq!(sums.covered(end as u64 - 1, 1), Some(end as u64 - 1));
            }
            prop_assert_eq!(sums.written(), len as u64);
            prop_assert_eq!(sums.table(), in_order(&data, unit));
            prop_assert_eq!(sums.digest(), Some(Digest::in_units(&data, unit as usize)));
            prop_assert!(sums.partial.is_empty());
        }
    }

    #[test]
    fn overlap_is_found_at_its_first_byte() {
        let mut sums = UnitSums::of_block(200, UNIT_BYTES as u32);
        sums.add(50, &[1; 50]);
        assert_eq!(sums.covered(0, 50), None);
        assert_eq!(sums.covered(0, 51), Some(50));
        assert_eq!(sums.covered(99, 10), Some(99));
        assert_eq!(sums.covered(100, 100), None);
    }
}
