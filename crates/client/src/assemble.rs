//! Puts arriving pieces of blocks into the order of the stripe.
//!
//! Holds only pieces that have arrived early. A step is at most one cell, so these are less than one step of all
//! blocks.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use kintsu_dag::BlockIndex;
use kintsu_plan::Layout;

/// Puts pieces of blocks into stripe order; gives each byte of a range once.
#[derive(Debug)]
pub struct Assembler {
    layout: Layout,
    k: usize,
    next: u64,
    end: u64,
    ahead: BTreeMap<u64, Bytes>,
}

impl Assembler {
    /// For a range of a stripe.
    pub fn new(layout: Layout, k: usize, range: Range<u64>) -> Self {
        Self { layout, k, next: range.start, end: range.end, ahead: BTreeMap::new() }
    }

    /// The stripe offset up to which everything has been popped.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Takes bytes of a block; drops bytes that are outside the range or came before.
    pub fn push(&mut self, index: BlockIndex, mut offset: u64, mut data: Bytes) {
        while !data.is_empty() {
            let (at, run) = self.layout.position(self.k, index, offset);
            if run == 0 {
                return;
            }
            let take = data.len().min(usize::try_from(run).unwrap_or(usize::MAX));
            self.keep(at, data.split_to(take));
            offset += take as u64;
        }
    }

    fn keep(&mut self, at: u64, mut piece: Bytes) {
        let mut from = at;
        if from < self.next {
            let skip = (self.next - from).min(piece.len() as u64);
            piece = piece.split_off(skip as usize);
            from += skip;
        }
        let room = usize::try_from(self.end.saturating_sub(from)).unwrap_or(usize::MAX);
        piece.truncate(room);
        if !piece.is_empty() {
            self.ahead.insert(from, piece);
        }
    }

    /// The next bytes of the range, if they have arrived.
    pub fn pop(&mut self) -> Option<Bytes> {
        loop {
            let (&at, _) = self.ahead.first_key_value()?;
            if at > self.next {
                return None;
            }
            let mut piece = self.ahead.remove(&at)?;
            let known = (self.next - at).min(piece.len() as u64);
            piece = piece.split_off(known as usize);
            if !piece.is_empty() {
                self.next += piece.len() as u64;
                return Some(piece);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kintsu_plan::LayoutKind;
    use proptest::prelude::*;

    use super::*;
    use crate::span::spans;

    fn blocks_of(layout: &Layout, k: usize, data: &[u8]) -> Vec<Vec<u8>> {
        let longest = layout.longest(k) as usize;
        let mut blocks = vec![vec![0; longest]; k];
        for (i, block) in blocks.iter_mut().enumerate() {
            for (offset, byte) in block.iter_mut().enumerate() {
                let (at, _) = layout.position(k, BlockIndex(i as u8), offset as u64);
                let within = (offset as u64) < layout.block_len(k, BlockIndex(i as u8));
                assert_eq!(within, at < data.len() as u64, "the layout and the mapping disagree");
                *byte = data.get(at as usize).copied().unwrap_or(0);
            }
        }
        blocks
    }

    fn any_case() -> impl Strategy<Value = (Layout, usize, usize, u64, u64)> {
        (1usize..7, 1u64..5, 1u64..6, any::<bool>(), 1usize..3).prop_flat_map(
            |(k, cell, cells, striped, w)| {
                let (cell, kind) =
                    (cell * 4, if striped { LayoutKind::Striped } else { LayoutKind::Contiguous });
                let block = cell * cells;
                (0..=block * k as u64).prop_flat_map(move |data_bytes| {
                    let layout =
                        Layout { kind, block_bytes: block, cell_bytes: cell as u32, w: w as u16, data_bytes };
                    (0..=data_bytes, 0..=data_bytes)
                        .prop_map(move |(a, b)| (layout, k, w, a.min(b), a.max(b)))
                })
            },
        )
    }

    proptest! {
        #[test]
        fn spans_and_assembly_give_back_the_range((layout, k, w, from, to) in any_case(), decoded: bool, step in 1u64..40) {
            let data: Vec<u8> = (0..layout.data_bytes).map(|i| (i * 7 + i / 251) as u8).collect();
            let blocks = blocks_of(&layout, k, &data);
            let mut assembler = Assembler::new(layout, k, from..to);
            let mut out = Vec::new();
            let mut read = 0;
            for span in spans(&layout, k, decoded, from..to) {
                prop_assert!(span.start < span.end && span.blocks.start < span.blocks.end);
                let mut at = span.start;
                while at < span.end {
                    let upto = (at + step).min(span.end);
                    for i in span.blocks.clone().rev() {
                        let piece = &blocks[i as usize][at as usize..upto as usize];
                        let real = layout.block_len(k, BlockIndex(i)).min(upto).saturating_sub(at);
                        read += real;
                        assembler.push(BlockIndex(i), at, Bytes::copy_from_slice(piece));
                    }
                    at = upto;
                    while let Some(bytes) = assembler.pop() {
                        out.extend_from_slice(&bytes);
                    }
                }
            }
            prop_assert_eq!(&out[..], &data[from as usize..to as usize]);
            prop_assert_eq!(assembler.next(), to);
            if w == 1 || !decoded {
                prop_assert_eq!(read, to - from, "read a byte too many");
            }
        }
    }

    #[test]
    fn a_piece_that_comes_again_is_given_once() {
        let layout =
            Layout { kind: LayoutKind::Contiguous, block_bytes: 8, cell_bytes: 4, w: 1, data_bytes: 16 };
        let mut assembler = Assembler::new(layout, 2, 2..12);
        assembler.push(BlockIndex(0), 0, Bytes::from_static(b"01234567"));
        assert_eq!(assembler.pop().unwrap(), "234567");
        assembler.push(BlockIndex(0), 4, Bytes::from_static(b"4567"));
        assembler.push(BlockIndex(1), 0, Bytes::from_static(b"89abcdef"));
        assert_eq!(assembler.pop().unwrap(), "89ab");
        assert!(assembler.pop().is_none());
        assert_eq!(assembler.next(), 12);
    }
}
