//! Which blocks of a stripe were written, and which bytes of them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use kintsu_dag::BlockIndex;

use crate::trace::Request;

/// A stripe: the volume, and its number there.
pub(super) type StripeKey = (u32, u64);

/// The part of a write that is in one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub stripe: StripeKey,
    pub block: BlockIndex,
    pub range: Range<u64>,
}

/// The blocks that a request touches, in order.
pub(super) fn parts(request: &Request, block_bytes: u64, k: u64) -> impl Iterator<Item = Part> + use<> {
    let Request { volume, offset, bytes, .. } = *request;
    let end = offset.saturating_add(bytes);
    let numbers = offset / block_bytes..end.div_ceil(block_bytes);
    numbers.map(move |number| {
        let start = number * block_bytes;
        Part {
            stripe: (volume, number / k),
            block: BlockIndex((number % k) as u8),
            range: offset.saturating_sub(start)..(end - start).min(block_bytes),
        }
    })
}

/// What is dirty in one stripe: for each block its written ranges, ascending, apart from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DirtyStripe(BTreeMap<BlockIndex, Vec<Range<u64>>>);

impl DirtyStripe {
    /// Whether anything of the block is dirty.
    pub fn has(&self, block: BlockIndex) -> bool {
        self.0.contains_key(&block)
    }

    pub fn blocks(&self) -> Vec<BlockIndex> {
        self.0.keys().copied().collect()
    }

    /// Adds a range; returns how many of its bytes were clean before.
    pub fn add(&mut self, block: BlockIndex, range: Range<u64>) -> u64 {
        let ranges = self.0.entry(block).or_default();
        let before: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        let (mut merged, mut rest) = (range, Vec::with_capacity(ranges.len() + 1));
        for old in ranges.drain(..) {
            if old.end < merged.start || merged.end < old.start {
                rest.push(old);
            } else {
                merged = merged.start.min(old.start)..merged.end.max(old.end);
            }
        }
        rest.push(merged);
        rest.sort_by_key(|range| range.start);
        *ranges = rest;
        ranges.iter().map(|range| range.end - range.start).sum::<u64>() - before
    }

    /// From the first byte that is dirty in any block to the last one.
    pub fn span(&self) -> Range<u64> {
        let ranges = || self.0.values().flatten();
        let first = ranges().map(|range| range.start).min().unwrap_or(0);
        first..ranges().map(|range| range.end).max().unwrap_or(first)
    }

    /// Whether anything of the block is dirty within a range.
    pub fn has_within(&self, block: BlockIndex, part: Range<u64>) -> bool {
        let ranges = self.0.get(&block).map_or(&[][..], Vec::as_slice);
        ranges.iter().any(|range| range.start < part.end && part.start < range.end)
    }

    /// The parts of the stripe in which the same blocks are dirty: which, and how many bytes of each.
    pub fn alike(&self) -> BTreeMap<Vec<BlockIndex>, u64> {
        let mut edges: Vec<(u64, bool, BlockIndex)> = Vec::new();
        for (block, ranges) in &self.0 {
            edges.extend(
                ranges.iter().flat_map(|range| [(range.start, true, *block), (range.end, false, *block)]),
            );
        }
        edges.sort_unstable();
        let (mut open, mut from, mut alike) = (BTreeSet::new(), 0, BTreeMap::new());
        for (at, starts, block) in edges {
            if at > from && !open.is_empty() {
                *alike.entry(open.iter().copied().collect()).or_default() += at - from;
            }
            from = at;
            match starts {
                true => open.insert(block),
                false => open.remove(&block),
            };
        }
        alike
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_divided_at_blocks_and_stripes() {
        let request = Request { volume: 3, write: true, offset: 95, bytes: 230 };
        let of = |block: u8, stripe, range| Part { stripe: (3, stripe), block: BlockIndex(block), range };
        let expected = [of(0, 0, 95..100), of(1, 0, 0..100), of(0, 1, 0..100), of(1, 1, 0..25)];
        assert_eq!(parts(&request, 100, 2).collect::<Vec<_>>(), expected);
        let one = Request { bytes: 1, offset: 99, ..request };
        assert_eq!(parts(&one, 100, 2).collect::<Vec<_>>(), [of(0, 0, 99..100)]);
    }

    #[test]
    fn ranges_merge_and_parts_with_the_same_dirty_blocks_are_added_up() {
        let (a, b) = (BlockIndex(0), BlockIndex(1));
        let mut dirty = DirtyStripe::default();
        assert_eq!([dirty.add(a, 10..20), dirty.add(a, 30..40), dirty.add(a, 15..32)], [10, 10, 10]);
        assert_eq!(dirty.add(a, 12..13), 0);
        assert_eq!(dirty.add(b, 0..15), 15);
        assert_eq!(dirty.add(b, 38..50), 12);
        // a: 10..40; b: 0..15 and 38..50.
        let expected = [(vec![a], 23), (vec![a, b], 7), (vec![b], 20)];
        assert_eq!(dirty.alike(), expected.into_iter().collect());
        assert!(dirty.has(a) && !dirty.has(BlockIndex(2)));
        assert_eq!(dirty.blocks(), [a, b]);
    }
}
