//! How the bytes of an object lie in the data blocks of its stripes (OpenEC, Fig. 6).
//!
//! Pure arithmetic: which block and which bytes of it hold a byte of the object. No places, no
//! codes. Invariant: for every layout [`Layout::locate`] is a bijection between the object bytes
//! of the stripe and the bytes of its data blocks; the tests check it byte by byte.

use std::ops::Range;

use kintsu_dag::BlockIndex;
use serde::{Deserialize, Serialize};

use crate::PlanError;

/// Sub-blocks of whole cells are a multiple of this long, so that a helper that reads only some of them reads
/// whole pages. Blocks of a short contiguous stripe are multiples of it too.
const PAGE_BYTES: u64 = 4096;

/// The default cell size. Sub-blocks may need a larger one.
const CELL_BYTES: u64 = 128 << 10;

/// The default block size, rounded up to a multiple of the cell.
const BLOCK_BYTES: u64 = 64 << 20;

/// A stripe of a stream has at most this many object bytes, unless its block size was chosen: its writer keeps a few
/// stripes in memory, because it cannot read the stream again.
const STREAM_STRIPE_BYTES: u64 = 48 << 20;

/// The most bytes under one checksum.
const MAX_UNIT_BYTES: u32 = 64 << 10;

/// An object of more stripes is refused, so that a wrong size cannot exhaust memory.
const MAX_STRIPES: u64 = 1 << 20;

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

/// How an object is divided into stripes: enough to make the layout of any one of them.
///
/// The last stripe is short; if it is contiguous, its blocks are shortened to share the bytes evenly, so that
/// parity is no longer than needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Division {
    /// Bytes of the object.
    size: u64,
    /// Data blocks of a stripe.
    k: u16,
    /// Sub-blocks of a block.
    w: u16,
    kind: LayoutKind,
    block_bytes: u64,
    cell_bytes: u32,
}

impl Division {
    /// An object of `size` bytes in stripes of `k` data blocks of `w` sub-blocks.
    ///
    /// # Errors
    /// `Invalid` for k, w, block or cell of zero, with sub-blocks a cell that is not w times a number of
    /// pages, blocks that are no multiple of the cell (if striped, or with sub-blocks), and more than 2^20
    /// stripes.
    pub fn new(
        size: u64,
        k: usize,
        w: usize,
        kind: LayoutKind,
        block_bytes: u64,
        cell_bytes: u32,
    ) -> Result<Self, PlanError> {
        if k == 0 || k > 255 {
            return invalid("data blocks", "1 to 255".into(), k.to_string());
        }
        check_sizes(w, kind, block_bytes, cell_bytes)?;
        let division = Self { size, k: k as u16, w: w as u16, kind, block_bytes, cell_bytes };
        let (count, full) = (division.count(), division.full());
        if count > MAX_STRIPES {
            let got = format!("{count} of {full} data bytes; take larger blocks");
            return invalid("stripes of one object", format!("at most {MAX_STRIPES}"), got);
        }
        Ok(division)
    }

    /// A stream, whose size is not known yet: full stripes, as many as an object may have.
    ///
    /// # Errors
    /// Those of [`Division::new`].
    pub fn of_stream(
        k: usize,
        w: usize,
        kind: LayoutKind,
        block_bytes: u64,
        cell_bytes: u32,
    ) -> Result<Self, PlanError> {
        let empty = Self::new(0, k, w, kind, block_bytes, cell_bytes)?;
        Ok(Self { size: empty.full().saturating_mul(MAX_STRIPES), ..empty })
    }

    /// The same, of an object of `size` bytes.
    ///
    /// # Errors
    /// Those of [`Division::new`].
    pub fn ended(self, size: u64) -> Result<Self, PlanError> {
        Self::new(size, self.k.into(), self.w.into(), self.kind, self.block_bytes, self.cell_bytes)
    }

    /// Number of stripes; none for an empty object.
    pub fn count(&self) -> u64 {
        self.size.div_ceil(self.full().max(1))
    }

    /// Offset of the first byte of stripe `i` in the object, and its layout. Stripes beyond the last one have no
    /// bytes.
    pub fn stripe(&self, i: u64) -> (u64, Layout) {
        let &Self { k, w, kind, block_bytes, cell_bytes, .. } = self;
        let offset = i.saturating_mul(self.full()).min(self.size);
        let data_bytes = (self.size - offset).min(self.full());
        let block_bytes = match kind {
            LayoutKind::Striped => block_bytes,
            LayoutKind::Contiguous => {
                let share = data_bytes.div_ceil(u64::from(k).max(1)).next_multiple_of(PAGE_BYTES);
                share.next_multiple_of(u64::from(w).max(1)).min(block_bytes)
            }
        };
        (offset, Layout { kind, block_bytes, cell_bytes, w, data_bytes })
    }

    /// Object bytes of a stripe that is not the last one.
    pub fn full(&self) -> u64 {
        self.block_bytes.saturating_mul(self.k.into())
    }
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
    /// Block and cell for a code with `w` sub-blocks, where not both are chosen: the cell is the least multiple of
    /// `w` pages of at least 128 KiB, but no larger than a chosen block, and the block is 64 MiB rounded up
    /// to a multiple of the cell. What was chosen is left as it is; [`Division::new`] judges it.
    pub fn sizes(w: usize, block_bytes: Option<u64>, cell_bytes: Option<u32>) -> (u64, u32) {
        let pages = grain(w);
        let cell = cell_bytes.map_or_else(
            || CELL_BYTES.div_ceil(pages).saturating_mul(pages).min(block_bytes.unwrap_or(u64::MAX)),
            u64::from,
        );
        let block = block_bytes.unwrap_or_else(|| BLOCK_BYTES.div_ceil(cell.max(1)).saturating_mul(cell));
        (block, u32::try_from(cell).unwrap_or(u32::MAX))
    }

    /// [`Layout::sizes`] for a stream: where no block is chosen, it is so short that a stripe has at most 48 MiB of
    /// object bytes, but at least one cell.
    pub fn stream_sizes(k: usize, w: usize, block_bytes: Option<u64>, cell_bytes: Option<u32>) -> (u64, u32) {
        let (usual, cell_bytes) = Self::sizes(w, block_bytes, cell_bytes);
        if block_bytes.is_some() {
            return (usual, cell_bytes);
        }
        let cell = u64::from(cell_bytes).max(1);
        let cells = (STREAM_STRIPE_BYTES / (k as u64).max(1) / cell).max(1);
        (cell.saturating_mul(cells).min(usual), cell_bytes)
    }

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

fn invalid<T>(what: &str, expected: String, got: String) -> Result<T, PlanError> {
    Err(PlanError::Invalid { what: what.into(), expected, got })
}

/// Cells of a code with `w` sub-blocks are a multiple of this long.
fn grain(w: usize) -> u64 {
    if w <= 1 { 1 } else { (w as u64).saturating_mul(PAGE_BYTES) }
}

/// Accepts a block and a cell that fit together, and `w`.
fn check_sizes(w: usize, kind: LayoutKind, block_bytes: u64, cell_bytes: u32) -> Result<(), PlanError> {
    let (grain, cell) = (grain(w), u64::from(cell_bytes));
    if cell == 0 || block_bytes == 0 || w == 0 || w > usize::from(u16::MAX) {
        let got = format!("blocks of {block_bytes} bytes, cells of {cell}, sub-blocks: {w}");
        let expected = format!("at least one byte, 1 to {} sub-blocks", u16::MAX);
        return invalid("block and cell size", expected, got);
    }
    if !cell.is_multiple_of(grain) {
        let expected = format!(
            "a multiple of {grain} bytes ({w} sub-blocks of {PAGE_BYTES}), such as {}",
            near(cell, grain)
        );
        return invalid("cell size", expected, format!("{cell} bytes"));
    }
    if (kind == LayoutKind::Striped || w > 1) && !block_bytes.is_multiple_of(cell) {
        let expected = format!("a multiple of the cell of {cell} bytes, such as {}", near(block_bytes, cell));
        return invalid("block size", expected, format!("{block_bytes} bytes"));
    }
    Ok(())
}

/// The multiple of `unit` next to `bytes`, above it unless there is none.
fn near(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(bytes - bytes % unit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
