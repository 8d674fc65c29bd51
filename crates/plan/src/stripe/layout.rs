//! How the bytes of an object lie in the data blocks of its stripes (OpenEC, Fig. 6).
//!
//! Pure arithmetic: which block and which bytes of it hold a byte of the object. No places, no
//! codes. Invariant: for every layout [`Layout::locate`] is a bijection between the object bytes
//! of the stripe and the bytes of its data blocks; the tests check it byte by byte.

use std::ops::Range;

use kintsu_dag::BlockIndex;
use serde::{Deserialize, Serialize};

/// Sub-blocks of whole cells are a multiple of this long, so that a helper that reads only some of them reads
/// whole pages. Blocks of a short contiguous stripe are multiples of it too.
pub(super) const PAGE_BYTES: u64 = 4096;

/// The most bytes under one checksum.
const MAX_UNIT_BYTES: u32 = 64 << 10;

/// Which way object bytes run through the data blocks (OpenEC, Fig. 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum LayoutKind {
    /// Cell by cell across the blocks (online encoding).
    Striped,
    /// Block after block (offline encoding).
    Contiguous,
}

/// The layout of one stripe: `data_bytes` object bytes in k blocks of at most `block_bytes`.
///
/// The last stripe of an object is short. It is padded with zeros for coding only: nothing
/// beyond `data_bytes` is stored, a data block without bytes is not stored at all, and the parity
/// blocks are as long as the longest data block, rounded up to a multiple of `w`: where the last cell of the
/// blocks is cut, its coded length is divided into `w` sub-blocks all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// The direction.
    pub kind: LayoutKind,
    /// The largest block. A multiple of `cell_bytes`, unless the layout is contiguous and has no sub-blocks or
    /// one short stripe; a multiple of `w` always.
    pub block_bytes: u64,
    /// The unit of striping, and of coding if there are sub-blocks; a multiple of `w`.
    pub cell_bytes: u32,
    /// Sub-blocks in a block: sub-block s is the s-th w-th part of each cell.
    #[serde(default = "one")]
    pub w: u16,
    /// Object bytes in this stripe, at most `k * block_bytes`.
    pub data_bytes: u64,
}

/// The default of `w` in records written before there were sub-blocks.
fn one() -> u16 {
    1
}

/// Object bytes that lie together in one data block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extent {
    /// The data block.
    pub block: BlockIndex,
    /// Which bytes of the block.
    pub block_range: Range<u64>,
    /// Which bytes of the object, counted from the start of the stripe; as long as `block_range`.
    pub object_range: Range<u64>,
}

impl Layout {
    /// Length in bytes of block `index` of a code with `k` data blocks; for a parity block
    /// [`Layout::longest`].
    pub fn block_len(&self, k: usize, index: BlockIndex) -> u64 {
        let i = u64::from(index.0);
        let k = k as u64;
        if i >= k {
            return self.longest(k as usize);
        }
        match self.kind {
            LayoutKind::Contiguous => {
                self.data_bytes.saturating_sub(i.saturating_mul(self.block_bytes)).min(self.block_bytes)
            }
            LayoutKind::Striped => {
                let cell = u64::from(self.cell_bytes).max(1);
                let (full_rows, rest) = (self.data_bytes / (cell * k), self.data_bytes % (cell * k));
                full_rows * cell + rest.saturating_sub(i * cell).min(cell)
            }
        }
    }

    /// Length in bytes of the longest data block, rounded up to a multiple of `w`: that of a parity block,
    /// and the end of the window that covers the whole stripe.
    pub fn longest(&self, k: usize) -> u64 {
        // The bytes begin in the first block, so none is longer than that one. Cells are multiples of w.
        let first = if k == 0 { 0 } else { self.block_len(k, BlockIndex(0)) };
        first.checked_next_multiple_of(u64::from(self.w.max(1))).unwrap_or(u64::MAX)
    }

    /// Bytes under one checksum in the files of the blocks: the largest power of two, from a page to 64 KiB, that
    /// divides a sub-block of a whole cell. So a reader of one sub-block reads and verifies no byte outside it. 64
    /// KiB without sub-blocks.
    pub fn unit_bytes(&self) -> u32 {
        if self.w <= 1 {
            return MAX_UNIT_BYTES;
        }
        let sub_block = self.cell_bytes / u32::from(self.w);
        (1 << sub_block.trailing_zeros().min(MAX_UNIT_BYTES.ilog2())).max(PAGE_BYTES as u32)
    }

    /// Where the object bytes `range` (counted from the start of the stripe, cut to what the stripe
    /// has) lie, in object order: one extent a cell or, if contiguous, a block.
    pub fn locate(&self, k: usize, range: Range<u64>) -> Vec<Extent> {
        let end = range.end.min(self.data_bytes);
        let unit = match self.kind {
            LayoutKind::Contiguous => self.block_bytes,
            LayoutKind::Striped => u64::from(self.cell_bytes),
        };
        let (k, unit, mut at, mut extents) = (k.max(1) as u64, unit.max(1), range.start, Vec::new());
        while at < end {
            let (row, column, inside) = (at / unit / k, at / unit % k, at % unit);
            let len = (unit - inside).min(end - at);
            let from = row * unit + inside;
            extents.push(Extent {
                block: BlockIndex(column as u8),
                block_range: from..from + len,
                object_range: at..at + len,
            });
            at += len;
        }
        extents
    }

    /// Where byte `offset` of data block `index` lies in the stripe, and how many bytes from there are contiguous in
    /// both block and stripe. Beyond the data it gives positions at or behind `data_bytes`.
    pub fn position(&self, k: usize, index: BlockIndex, offset: u64) -> (u64, u64) {
        let i = u64::from(index.0);
        match self.kind {
            LayoutKind::Contiguous => {
                (i * self.block_bytes + offset, self.block_bytes.saturating_sub(offset))
            }
            LayoutKind::Striped => {
                let cell = u64::from(self.cell_bytes).max(1);
                let (row, within) = (offset / cell, offset % cell);
                ((row * k as u64 + i) * cell + within, cell - within)
            }
        }
    }

    /// For each data block that holds some of the object bytes `range`, in block order, the
    /// smallest range of its bytes with all of them.
    pub fn block_windows(&self, k: usize, range: Range<u64>) -> Vec<(BlockIndex, Range<u64>)> {
        let mut windows: Vec<Option<Range<u64>>> = vec![None; k];
        for extent in self.locate(k, range) {
            let window = windows[extent.block.0 as usize].get_or_insert(extent.block_range.clone());
            window.start = window.start.min(extent.block_range.start);
            window.end = window.end.max(extent.block_range.end);
        }
        let indexed = windows.into_iter().enumerate();
        indexed.filter_map(|(i, window)| Some((BlockIndex(i as u8), window?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Division, PlanError};

    const KINDS: [LayoutKind; 2] = [LayoutKind::Striped, LayoutKind::Contiguous];

    /// All stripes of an object.
    fn stripes_of(
        size: u64,
        k: usize,
        w: usize,
        kind: LayoutKind,
        block_bytes: u64,
        cell_bytes: u32,
    ) -> Result<Vec<(u64, Layout)>, PlanError> {
        let division = Division::new(size, k, w, kind, block_bytes, cell_bytes)?;
        Ok((0..division.count()).map(|i| division.stripe(i)).collect())
    }

    /// Where byte `at` of the stripe lies, counted out without any arithmetic of `Layout`.
    fn counted(layout: &Layout, k: usize) -> Vec<(usize, u64)> {
        let unit = match layout.kind {
            LayoutKind::Striped => u64::from(layout.cell_bytes),
            LayoutKind::Contiguous => layout.block_bytes,
        };
        let (mut places, mut filled, mut block) = (Vec::new(), vec![0u64; k], 0);
        while (places.len() as u64) < layout.data_bytes {
            places.push((block, filled[block]));
            filled[block] += 1;
            if filled[block].is_multiple_of(unit) {
                block = (block + 1) % k;
            }
        }
        places
    }

    fn check(layout: &Layout, k: usize) {
        let places = counted(layout, k);
        for index in 0..k {
            let len = places.iter().filter(|(block, _)| *block == index).count() as u64;
            assert_eq!(layout.block_len(k, BlockIndex(index as u8)), len, "{layout:?} k={k} b{index}");
        }
        let longest = (0..k).map(|i| layout.block_len(k, BlockIndex(i as u8))).max().unwrap();
        let longest = longest.next_multiple_of(layout.w.into());
        assert_eq!(layout.longest(k), longest);
        assert_eq!(layout.block_len(k, BlockIndex(k as u8)), longest);
        assert!(longest <= layout.block_bytes);
        let located: Vec<_> = layout
            .locate(k, 0..u64::MAX)
            .into_iter()
            .flat_map(|e| {
                assert_eq!(
                    e.block_range.end - e.block_range.start,
                    e.object_range.end - e.object_range.start
                );
                e.block_range.map(move |at| (e.block.0 as usize, at))
            })
            .collect();
        assert_eq!(located, places);
    }

    #[test]
    fn every_byte_lies_at_one_place_in_all_small_layouts() {
        for kind in KINDS {
            for k in 1..=4 {
                for (cell, w) in [(1, 1), (2, 1), (3, 1), (2, 2), (4, 2), (3, 3)] {
                    for rows in 1..=3 {
                        let block_bytes = u64::from(cell) * rows;
                        for data_bytes in 0..=block_bytes * k as u64 {
                            check(&Layout { kind, block_bytes, cell_bytes: cell, w, data_bytes }, k);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn small_objects_waste_nothing() {
        assert_eq!(stripes_of(0, 10, 1, LayoutKind::Striped, 1 << 20, 1 << 17).unwrap(), []);
        for kind in KINDS {
            let stripes = stripes_of(1, 10, 1, kind, 1 << 20, 1 << 17).unwrap();
            let [(0, one)] = stripes[..] else { panic!("{stripes:?}") };
            let lens: Vec<_> = (0..14).map(|i| one.block_len(10, BlockIndex(i))).collect();
            assert_eq!(lens, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1]);
        }
        let stripes = stripes_of(100_000, 10, 1, LayoutKind::Contiguous, 64 << 20, 1 << 17).unwrap();
        assert_eq!(stripes[0].1.block_bytes, 12288);
        assert_eq!(stripes[0].1.block_len(10, BlockIndex(12)), 12288);
        assert_eq!(stripes[0].1.block_len(10, BlockIndex(8)), 100_000 - 8 * 12288);
        assert_eq!(stripes[0].1.block_len(10, BlockIndex(9)), 0);
    }

    #[test]
    fn sizes_that_nobody_chose_fit_the_code() {
        assert_eq!(Layout::sizes(1, None, None), (64 << 20, 128 << 10));
        assert_eq!(Layout::sizes(2, None, None), (64 << 20, 128 << 10));
        assert_eq!(Layout::sizes(256, None, None), (64 << 20, 1 << 20));
        assert_eq!(Layout::sizes(3, None, None), (497 * 135_168, 135_168));
        assert_eq!(Layout::sizes(1, Some(1000), None), (1000, 1000));
        assert_eq!(Layout::sizes(1, None, Some(4096)), (64 << 20, 4096));
        for w in 1..=300 {
            let (block, cell) = Layout::sizes(w, None, None);
            let stripes = stripes_of(1, 3, w, LayoutKind::Striped, block, cell).unwrap();
            assert!(cell >= 128 << 10 && block >= 64 << 20);
            assert_eq!((stripes[0].1.w, stripes[0].1.longest(3)), (w as u16, w as u64));
        }
    }

    #[test]
    fn sizes_that_do_not_fit_the_sub_blocks_are_refused_with_some_that_do() {
        let refused = |kind, block, cell| stripes_of(9, 2, 4, kind, block, cell).unwrap_err().to_string();
        for kind in KINDS {
            assert!(refused(kind, 1 << 20, 8192).contains("such as 16384"), "less than whole pages");
            assert!(refused(kind, 1 << 20, 20_000).contains("such as 32768"));
            assert!(refused(kind, 40_000, 16_384).contains("such as 49152"));
        }
        for w in [0, 1 << 16, 1 << 20] {
            let (block, cell) = Layout::sizes(w, None, None);
            assert!(stripes_of(9, 2, w, LayoutKind::Striped, block, cell).is_err());
        }
    }

    #[test]
    fn checksum_units_divide_sub_blocks() {
        let unit = |cell_bytes, w| {
            let kind = LayoutKind::Striped;
            Layout { kind, block_bytes: u64::from(cell_bytes), cell_bytes, w, data_bytes: 1 }.unit_bytes()
        };
        assert_eq!(unit(100, 1), 65536);
        assert_eq!(unit(128 << 10, 2), 65536);
        assert_eq!(unit(1 << 20, 256), 4096);
        assert_eq!(unit(1 << 20, 8), 65536);
        assert_eq!(unit(3 * 12288, 3), 4096);
        assert_eq!(unit(8, 2), 4096, "whatever a peer sends");
    }

    #[test]
    fn senseless_sizes_are_refused() {
        let stripes = |size, k, block, cell| stripes_of(size, k, 1, LayoutKind::Striped, block, cell);
        for bad in [
            stripes(9, 0, 8, 4),
            stripes(9, 256, 8, 4),
            stripes(9, 2, 0, 4),
            stripes(9, 2, 8, 0),
            stripes(9, 2, 9, 4),
            stripes(u64::MAX, 2, 8, 4),
        ] {
            assert!(matches!(bad, Err(PlanError::Invalid { .. })), "{bad:?}");
        }
        assert!(stripes(u64::MAX, 2, 1 << 62, 4).is_ok());
        for kind in KINDS {
            let senseless = Layout { kind, block_bytes: 0, cell_bytes: 0, w: 0, data_bytes: 9 };
            senseless.block_len(3, BlockIndex(2));
            assert_eq!(senseless.locate(3, 0..9).len(), 9, "no panic, whatever a peer sends");
        }
    }

    proptest! {
        #[test]
        fn stripes_cover_the_object_without_gaps(
            size in 0u64..400_000, k in 1usize..12, striped: bool, cell in 1u32..5000, rows in 1u64..6, w in 1usize..6,
        ) {
            let kind = if striped { LayoutKind::Striped } else { LayoutKind::Contiguous };
            let cell = if w > 1 { (cell % 3 + 1) * 4096 * w as u32 } else { cell };
            let block_bytes = u64::from(cell) * rows;
            let mut at = 0;
            for (offset, layout) in stripes_of(size, k, w, kind, block_bytes, cell).unwrap() {
                prop_assert_eq!(offset, at);
                prop_assert!(layout.longest(k) <= layout.block_bytes);
                prop_assert!(layout.longest(k).is_multiple_of(w as u64));
                prop_assert!((cell / w as u32).is_multiple_of(layout.unit_bytes()) || w == 1);
                prop_assert!(layout.data_bytes > 0 && layout.data_bytes <= k as u64 * layout.block_bytes);
                let stored: u64 = (0..k).map(|i| layout.block_len(k, BlockIndex(i as u8))).sum();
                prop_assert_eq!(stored, layout.data_bytes);
                at += layout.data_bytes;
            }
            prop_assert_eq!(at, size);
        }

        #[test]
        fn a_part_is_located_where_it_lies_in_the_whole(
            data_bytes in 0u64..3000, k in 1usize..7, striped: bool, cell in 1u32..90, a in 0u64..3000, b in 0u64..3000,
        ) {
            let kind = if striped { LayoutKind::Striped } else { LayoutKind::Contiguous };
            let rows = data_bytes.div_ceil(k as u64).div_ceil(cell.into()).max(1);
            let layout = Layout { kind, block_bytes: rows * u64::from(cell), cell_bytes: cell, w: 1, data_bytes };
            let places = counted(&layout, k);
            let range = a.min(b)..a.max(b);
            let windows = layout.block_windows(k, range.clone());
            let mut at = range.start;
            for extent in layout.locate(k, range.clone()) {
                prop_assert_eq!(extent.object_range.start, at);
                at = extent.object_range.end;
                for (offset, object) in extent.block_range.clone().zip(extent.object_range.clone()) {
                    prop_assert_eq!(places[object as usize], (extent.block.0 as usize, offset));
                }
                let window = &windows.iter().find(|(block, _)| *block == extent.block).unwrap().1;
                prop_assert!(window.start <= extent.block_range.start && extent.block_range.end <= window.end);
            }
            prop_assert_eq!(at, range.end.min(data_bytes).max(range.start));
        }
    }
}
