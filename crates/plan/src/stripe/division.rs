//! How an object is divided into stripes, and the sizes of blocks and cells that fit a code.

use serde::{Deserialize, Serialize};

use super::layout::PAGE_BYTES;
use crate::{Layout, LayoutKind, PlanError};

/// The default cell size. Sub-blocks may need a larger one.
const CELL_BYTES: u64 = 128 << 10;

/// The default block size, rounded up to a multiple of the cell.
const BLOCK_BYTES: u64 = 64 << 20;

/// A stripe of a stream has at most this many object bytes, unless its block size was chosen: its writer keeps a few
/// stripes in memory, because it cannot read the stream again.
const STREAM_STRIPE_BYTES: u64 = 24 << 20;

/// An object of more stripes is refused, so that a wrong size cannot exhaust memory.
const MAX_STRIPES: u64 = 1 << 20;

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

    /// [`Layout::sizes`] for a stream: where no block is chosen, it is so short that a stripe has at most 24 MiB of
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
