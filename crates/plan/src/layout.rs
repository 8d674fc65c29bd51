//! How the bytes of an object lie in the data blocks of a stripe.

use kintsu_dag::BlockIndex;
use serde::{Deserialize, Serialize};

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
/// blocks are as long as the longest data block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Layout {
    /// The direction.
    pub kind: LayoutKind,
    /// The largest block; a multiple of `cell_bytes` unless the layout is contiguous.
    pub block_bytes: u64,
    /// The unit of striping.
    pub cell_bytes: u32,
    /// Object bytes in this stripe, at most `k * block_bytes`.
    pub data_bytes: u64,
}

impl Layout {
    /// Length in bytes of block `index` of a code with `k` data blocks; for a parity block the
    /// length of the longest data block.
    pub fn block_len(&self, k: usize, index: BlockIndex) -> u64 {
        let i = u64::from(index.0);
        let k = k as u64;
        if i >= k {
            return self.block_len(k as usize, BlockIndex(0));
        }
        match self.kind {
            LayoutKind::Contiguous => {
                self.data_bytes.saturating_sub(i * self.block_bytes).min(self.block_bytes)
            }
            LayoutKind::Striped => {
                let cell = u64::from(self.cell_bytes);
                let (full_rows, rest) = (self.data_bytes / (cell * k), self.data_bytes % (cell * k));
                full_rows * cell + rest.saturating_sub(i * cell).min(cell)
            }
        }
    }
}
