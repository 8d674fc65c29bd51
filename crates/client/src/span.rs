//! Which bytes of which blocks hold a range of a stripe.
//!
//! A range is cut into [`Span`]s in stripe order. Each is a rectangle (the same bytes of neighbouring data
//! blocks), because one program processes one rectangle. No span reads a byte that the range does not need, with
//! two exceptions: zeros behind the stripe's end, and whole cells of a sub-packetized code. A whole stripe is one
//! span (striped) or one span a block (contiguous).

use std::ops::Range;

use kintsu_dag::BlockIndex;
use kintsu_plan::{Layout, LayoutKind};

/// The same bytes of neighbouring data blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The blocks.
    pub blocks: Range<u8>,
    /// First byte in each.
    pub start: u64,
    /// One past the last byte in each, at most the longest block's length.
    pub end: u64,
}

impl Span {
    /// The blocks, in order.
    pub fn indices(&self) -> Vec<BlockIndex> {
        self.blocks.clone().map(BlockIndex).collect()
    }

    /// One past the last stripe offset in it.
    pub fn stripe_end(&self, layout: &Layout, k: usize) -> u64 {
        layout.position(k, BlockIndex(self.blocks.end - 1), self.end - 1).0 + 1
    }
}

/// Cuts a range of a stripe (`range.end <= data_bytes`) into spans, in stripe order.
///
/// If blocks are `decoded` from sub-blocks, the spans are widened to whole cells.
pub fn spans(layout: &Layout, k: usize, decoded: bool, range: Range<u64>) -> Vec<Span> {
    if range.is_empty() {
        return Vec::new();
    }
    let mut spans = match layout.kind {
        LayoutKind::Contiguous => contiguous(layout, range),
        LayoutKind::Striped => striped(layout, k, range),
    };
    let cell = u64::from(layout.cell_bytes);
    for span in &mut spans {
        let len = layout.longest(k);
        if decoded && layout.w > 1 {
            span.start -= span.start % cell;
            span.end = span.end.next_multiple_of(cell);
        }
        span.end = span.end.min(len);
        while span.blocks.end > span.blocks.start + 1
            && layout.block_len(k, BlockIndex(span.blocks.end - 1)) <= span.start
        {
            span.blocks.end -= 1;
        }
    }
    spans
}

fn contiguous(layout: &Layout, range: Range<u64>) -> Vec<Span> {
    let block = layout.block_bytes;
    (range.start / block..=(range.end - 1) / block)
        .map(|i| Span {
            blocks: i as u8..i as u8 + 1,
            start: range.start.saturating_sub(i * block),
            end: (range.end - i * block).min(block),
        })
        .collect()
}

fn striped(layout: &Layout, k: usize, range: Range<u64>) -> Vec<Span> {
    let row = u64::from(layout.cell_bytes) * k as u64;
    // Nothing is stored behind the data, so the last row can be treated as full.
    let end = if range.end == layout.data_bytes { range.end.next_multiple_of(row) } else { range.end };
    let (first, last) = (range.start / row, end / row);
    if first == last {
        return row_part(layout, first, range.start % row, end % row);
    }
    let mut spans = Vec::new();
    let mut from = first;
    if !range.start.is_multiple_of(row) {
        spans.extend(row_part(layout, first, range.start % row, row));
        from += 1;
    }
    if from < last {
        let cell = u64::from(layout.cell_bytes);
        spans.push(Span { blocks: 0..k as u8, start: from * cell, end: last * cell });
    }
    if !end.is_multiple_of(row) {
        spans.extend(row_part(layout, last, 0, end % row));
    }
    spans
}

/// Part `from..to` of one row of cells: at most a cut cell, whole cells, a cut cell.
fn row_part(layout: &Layout, row: u64, from: u64, to: u64) -> Vec<Span> {
    let cell = u64::from(layout.cell_bytes);
    let base = row * cell;
    let (first, last) = (from / cell, to / cell);
    if first == last {
        let blocks = first as u8..first as u8 + 1;
        return vec![Span { blocks, start: base + from % cell, end: base + to % cell }];
    }
    let mut spans = Vec::new();
    let mut body = first;
    if !from.is_multiple_of(cell) {
        let blocks = first as u8..first as u8 + 1;
        spans.push(Span { blocks, start: base + from % cell, end: base + cell });
        body += 1;
    }
    if body < last {
        spans.push(Span { blocks: body as u8..last as u8, start: base, end: base + cell });
    }
    if !to.is_multiple_of(cell) {
        let blocks = last as u8..last as u8 + 1;
        spans.push(Span { blocks, start: base, end: base + to % cell });
    }
    spans
}
