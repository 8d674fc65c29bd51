//! The algorithm, shared by all vector units.
//!
//! A matrix is cut into **passes** of a few rows (and columns, where a unit wants that). A pass walks over the regions in **strips** of
//! `STRIP` vectors; for each strip it keeps `ROWS x STRIP` accumulators in registers, goes down
//! the columns (load a strip of the input, multiply it by the coefficient of each row, add), and
//! stores the accumulators:
//!
//! ```text
//! for each strip                       the regions are read and written front to back
//!     acc[r][s] = 0 or outputs[r][strip]
//!     for each column j                one load of the input serves all rows of the pass
//!         acc[r][s] += coef[r][j] * inputs[j][strip]
//!     outputs[r][strip] = acc[r][s]    each output is written once, after all columns
//! ```
//!
//! The rest at the end is processed vector by vector, and the last bytes as a partial vector that touches nothing
//! beyond them. A matrix of several passes is applied in **pieces** that are small enough for later passes to find
//! the inputs in the L2 cache.
//!
//! Columns without a coefficient other than 0 are left out of a pass; a pass whose coefficients
//! are all 0 or 1 and that has one row (a parity of LRCs, a delta) only XORs.
//!
//! What a vector unit supplies is a [`Vector`]: load, store, XOR, multiply-add. Its functions are
//! `inline(always)` so that they end up inside the caller that enables the instructions.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use super::way::Way;
use crate::Mode;
use crate::arch::{Arch, Program};

/// How far ahead of the strip inputs are prefetched, in bytes. They go into the L2 cache, because L1 has too few
/// ways for a dozen streams that may all start at one offset modulo 4 KiB. Measured on Zen 4 from DRAM: 256 to 512
/// are equal; smaller or larger values lose up to a fifth.
const PREFETCH_BYTES: usize = 384;

/// The most rows of one pass on any unit.
const MAX_ROWS: usize = 8;

/// One register of bytes.
///
/// # Safety
/// All functions: the processor has the instructions. Pointers: valid for the bytes of the vector,
/// or for `len` bytes in the partial forms; any alignment.
pub(super) trait Vector: Copy + 'static {
    /// Bytes of a register.
    const BYTES: usize;
    /// The most rows of one pass, 8 or less.
    const MAX_ROWS: usize;
    /// The most columns of one pass.
    const MAX_COLUMNS: usize;
    /// The most rows of a matrix whose outputs are written past the caches. With more, multiplying takes longer than
    /// reading outputs.
    const MAX_STREAMED_ROWS: usize;
    /// A coefficient, ready for use.
    type Table: Copy + std::fmt::Debug + Send + Sync;
    /// An input, ready to be multiplied.
    type Operand: Copy;

    /// Prepares a coefficient.
    fn table(c: u8) -> Self::Table;
    /// All bytes zero.
    unsafe fn zero() -> Self;
    /// Reads a vector.
    unsafe fn load(from: *const u8) -> Self;
    /// Reads `len < BYTES` bytes; the others are zero.
    unsafe fn load_partial(from: *const u8, len: usize) -> Self;
    /// Writes a vector.
    unsafe fn store(self, to: *mut u8);
    /// Writes a vector past the caches where the processor can; `to` is aligned to `BYTES`. After the last one
    /// [`Vector::end_of_stream`] is called.
    unsafe fn stream(self, to: *mut u8);
    /// Orders what [`Vector::stream`] wrote before all later writes.
    unsafe fn end_of_stream();
    /// Writes the first `len < BYTES` bytes.
    unsafe fn store_partial(self, to: *mut u8, len: usize);
    /// Byte-wise sum.
    unsafe fn xor(self, other: Self) -> Self;
    /// The work of a multiplication that does not depend on the coefficient.
    unsafe fn operand(self) -> Self::Operand;
    /// `self + table * x`, byte-wise.
    unsafe fn add_product(self, x: Self::Operand, table: &Self::Table) -> Self;
    /// Hints that the cache line at `at`, which need not be valid, will be needed in the L2 cache.
    unsafe fn prefetch(at: *const u8);
    /// Runs a job in a way that suits its rows and columns, with the instructions enabled.
    unsafe fn run(job: &PassRange<'_, Self>);
}

/// One pass over one range of bytes.
pub(super) struct PassRange<'a, V: Vector> {
    /// `columns.len() x outputs.len()` coefficients, column after column.
    pub tables: &'a [V::Table],
    /// Where the inputs start.
    pub columns: &'a [*const u8],
    /// Where the outputs start.
    pub outputs: &'a [*mut u8],
    /// Length of all of them in bytes.
    pub len: usize,
    /// Whether to add to the outputs instead of overwriting them.
    pub accumulate: bool,
    /// Whether all coefficients are 1.
    pub ones: bool,
    /// How to move the bytes; nothing is added to outputs that are written past the caches.
    pub way: Way,
}

/// Runs `job`, strip by strip; `ROWS` is `job.outputs.len()`. `ONES` promises `job.ones`.
///
/// # Safety
/// As for [`Vector`]; inputs and outputs are valid for `job.len` bytes, outputs exclusively. One exception: a
/// single input may also be the single output, because a strip is stored after it was loaded. Outputs that are written
/// past the caches are aligned to [`STREAM_ALIGN`](super::way::STREAM_ALIGN).
#[inline(always)]
pub(super) unsafe fn run<V: Vector, const ROWS: usize, const STRIP: usize, const ONES: bool>(
    job: &PassRange<'_, V>,
) {
    let wide = STRIP * V::BYTES;
    let mut at = 0;
    // SAFETY: each strip lies within `job.len`; the rest is what our caller promised.
    unsafe {
        while job.len - at >= wide {
            strip::<V, ROWS, STRIP, ONES, false>(job, at);
            at += wide;
        }
        while job.len - at >= V::BYTES {
            strip::<V, ROWS, 1, ONES, false>(job, at);
            at += V::BYTES;
        }
        if at < job.len {
            strip::<V, ROWS, 1, ONES, true>(job, at);
        }
    }
}

/// One strip at offset `at`; when `PARTIAL`, the bytes from there to the end, fewer than a vector.
#[inline(always)]
unsafe fn strip<V: Vector, const ROWS: usize, const STRIP: usize, const ONES: bool, const PARTIAL: bool>(
    job: &PassRange<'_, V>,
    at: usize,
) {
    let rest = job.len - at;
    // SAFETY: `run` keeps the strip within the regions; a partial vector touches `rest` bytes.
    // There are ROWS outputs, and ROWS tables for each column.
    unsafe {
        let load = |from: *const u8| if PARTIAL { V::load_partial(from, rest) } else { V::load(from) };
        let mut acc = [[V::zero(); STRIP]; ROWS];
        if job.accumulate {
            for (r, acc) in acc.iter_mut().enumerate() {
                for (s, acc) in acc.iter_mut().enumerate() {
                    *acc = load(job.outputs.get_unchecked(r).add(at + s * V::BYTES));
                }
            }
        }
        let mut tables = job.tables.as_ptr();
        for column in job.columns {
            let input = column.add(at);
            for s in 0..STRIP {
                let x = load(input.add(s * V::BYTES));
                if s * V::BYTES % 64 == 0 && !PARTIAL {
                    V::prefetch(input.wrapping_add(PREFETCH_BYTES + s * V::BYTES));
                }
                if ONES {
                    acc.iter_mut().for_each(|acc| acc[s] = acc[s].xor(x));
                } else {
                    let x = x.operand();
                    for (r, acc) in acc.iter_mut().enumerate() {
                        acc[s] = acc[s].add_product(x, &*tables.add(r));
                    }
                }
            }
            tables = tables.add(ROWS);
        }
        for (r, acc) in acc.iter().enumerate() {
            for (s, &acc) in acc.iter().enumerate() {
                let to = job.outputs.get_unchecked(r).add(at + s * V::BYTES);
                if PARTIAL {
                    acc.store_partial(to, rest);
                } else if job.way == Way::Stream {
                    acc.stream(to);
                } else {
                    acc.store(to);
                }
            }
        }
    }
}

/// Bytes of all inputs in one piece when there are several passes: half of a small L2 cache.
const PIECE_INPUT_BYTES: usize = 128 * 1024;

/// Columns whose pointers fit on the stack.
const STACK_COLUMNS: usize = 64;

/// A few rows and columns of a matrix, prepared.
#[derive(Debug)]
struct Pass<T> {
    first_row: usize,
    rows: usize,
    columns: Vec<usize>,
    tables: Vec<T>,
    ones: bool,
    /// Whether an earlier pass has written the same rows.
    adds: bool,
    /// Whether this pass alone writes its rows.
    alone: bool,
}

/// A whole matrix, prepared for a vector unit that this processor has.
#[derive(Debug)]
struct Passes<V: Vector> {
    passes: Vec<Pass<V::Table>>,
    piece_bytes: usize,
}

impl<V: Vector> Passes<V> {
    fn new(rows: usize, cols: usize, coefs: &[u8]) -> Self {
        let mut passes = Vec::new();
        for rows in evenly(rows, V::MAX_ROWS) {
            let coef = |row: usize, column: usize| coefs[row * cols + column];
            let used: Vec<usize> = (0..cols).filter(|&j| rows.clone().any(|i| coef(i, j) != 0)).collect();
            let alone = used.len() <= V::MAX_COLUMNS;
            for part in evenly(used.len().max(1), V::MAX_COLUMNS) {
                let columns = used.get(part.clone()).unwrap_or_default().to_vec();
                let coefs: Vec<u8> =
                    columns.iter().flat_map(|&j| rows.clone().map(move |i| coef(i, j))).collect();
                passes.push(Pass {
                    first_row: rows.start,
                    rows: rows.len(),
                    columns,
                    ones: coefs.iter().all(|&c| c == 1),
                    tables: coefs.into_iter().map(V::table).collect(),
                    adds: part.start > 0,
                    alone,
                });
            }
        }
        let piece_bytes = match passes.len() {
            0 | 1 => usize::MAX,
            _ => (PIECE_INPUT_BYTES / cols.max(1)).next_multiple_of(1024),
        };
        Self { passes, piece_bytes }
    }
}

/// As few ranges as `most` allows, of nearly the same length.
fn evenly(total: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let count = total.div_ceil(most);
    (0..count).map(move |part| part * total / count..(part + 1) * total / count)
}

impl<V: Vector + std::fmt::Debug> Program for Passes<V> {
    fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], mode: Mode) {
        let len = outputs.first().map_or(0, |o| o.len());
        let touched = len.saturating_mul(inputs.len() + outputs.len());
        let way = match mode {
            Mode::Overwrite if outputs.len() <= V::MAX_STREAMED_ROWS => Way::choose(touched, outputs),
            _ => Way::of_size(touched),
        };
        self.apply_by(way, inputs, outputs, mode);
    }
}

impl<V: Vector> Passes<V> {
    /// Applies all passes. What is written past the caches starts at an aligned byte.
    fn apply_by(&self, way: Way, inputs: &[&[u8]], outputs: &mut [&mut [u8]], mode: Mode) {
        let len = outputs.first().map_or(0, |o| o.len());
        let head = if way == Way::Stream { Way::head(outputs) } else { Some(0) };
        let (head, way) = head.map_or((0, Way::Near), |head| (head.min(len), way));
        self.piece(inputs, outputs, 0..head, mode, Way::Near);
        let mut start = head;
        while start < len {
            let end = start + self.piece_bytes.min(len - start);
            self.piece(inputs, outputs, start..end, mode, way);
            start = end;
        }
        if way == Way::Stream {
            // SAFETY: only a `Unit<V>` makes a `Passes<V>`, and it exists only where the processor has the instructions.
            unsafe { V::end_of_stream() }
        }
    }

    /// Applies all passes to the bytes of `range`, which starts at an aligned byte if `way` is to write past the caches.
    fn piece(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], range: Range<usize>, mode: Mode, way: Way) {
        if range.is_empty() {
            return;
        }
        for pass in &self.passes {
            // Later passes find the inputs in a cache, and outputs that are added to where they were written.
            let way = match way {
                Way::Stream if pass.alone && mode == Mode::Overwrite => Way::Stream,
                Way::Ahead | Way::Stream if pass.first_row == 0 => Way::Ahead,
                _ => Way::Near,
            };
            pass.apply::<V>(inputs, outputs, range.clone(), mode, way);
        }
    }
}

impl<T> Pass<T> {
    /// Applies the pass to the bytes of `range`.
    fn apply<V: Vector<Table = T>>(
        &self,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        range: Range<usize>,
        mode: Mode,
        way: Way,
    ) {
        let input = |&column: &usize| inputs[column][range.clone()].as_ptr();
        let (mut on_stack, on_heap);
        let columns = if self.columns.len() <= STACK_COLUMNS {
            on_stack = [std::ptr::null(); STACK_COLUMNS];
            on_stack.iter_mut().zip(&self.columns).for_each(|(to, column)| *to = input(column));
            &on_stack[..self.columns.len()]
        } else {
            on_heap = self.columns.iter().map(input).collect::<Vec<_>>();
            &on_heap
        };
        let mut rows = [std::ptr::null_mut(); MAX_ROWS];
        let rows = &mut rows[..self.rows];
        for (to, output) in rows.iter_mut().zip(&mut outputs[self.first_row..]) {
            *to = output[range.clone()].as_mut_ptr();
        }
        let accumulate = self.adds || mode == Mode::Accumulate;
        let job = PassRange::<V> {
            tables: &self.tables,
            columns,
            outputs: rows,
            len: range.len(),
            accumulate,
            ones: self.ones && self.rows == 1,
            way,
        };
        // SAFETY: only a `Unit<V>` makes a `Passes<V>`, and it exists only where the processor has the
        // instructions. The pointers come from slices that were just checked to hold the range; those of the
        // outputs from exclusive slices, which `apply_by` found to be aligned if they are written past the caches.
        unsafe { V::run(&job) }
    }
}

/// A vector unit that this processor has.
#[derive(Debug)]
pub(super) struct Unit<V>(PhantomData<fn() -> V>);

impl<V> Unit<V> {
    /// # Safety
    /// The unit is used only where the processor has the instructions of `V`.
    pub(super) const unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

impl<V: Vector + std::fmt::Debug> Arch for Unit<V> {
    fn prepare(&self, rows: usize, cols: usize, coefs: &[u8]) -> Arc<dyn Program> {
        Arc::new(Passes::<V>::new(rows, cols, coefs))
    }

    fn xor_into(&self, dst: &mut [u8], src: &[u8]) {
        let len = dst.len().min(src.len());
        let job = PassRange::<V> {
            tables: &[],
            columns: &[src.as_ptr()],
            outputs: &[dst.as_mut_ptr()],
            len,
            accumulate: true,
            ones: true,
            way: Way::of_size(2 * len),
        };
        // SAFETY: the processor has the unit; both regions hold `len` bytes and cannot overlap.
        unsafe { V::run(&job) }
    }

    fn scale_in_place(&self, c: u8, data: &mut [u8]) {
        let region = data.as_mut_ptr();
        let job = PassRange::<V> {
            tables: &[V::table(c)],
            columns: &[region.cast_const()],
            outputs: &[region],
            len: data.len(),
            accumulate: false,
            ones: false,
            way: Way::Near,
        };
        // SAFETY: the processor has the unit; the single input is the single output.
        unsafe { V::run(&job) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Backend;

    /// Compares every way of unit `V`, which this processor has, with the scalar unit: all row counts to beyond two
    /// passes, columns of one pass and of two, odd lengths, every alignment of a vector, pieces with a seam.
    pub(in crate::arch) fn every_way_writes_the_same<V: Vector>() {
        const SPACE: usize = 3 << 10;
        let byte = |at: usize| (at.wrapping_mul(0x9E37_79B9) >> 11) as u8;
        let noise: Vec<u8> = (0..40 * SPACE).map(byte).collect();
        for rows in 1..=V::MAX_ROWS + 1 {
            for (cols, len) in [(0, 200), (1, 63), (3, 129), (6, 1000), (12, 64), (12, 2049), (20, 777)] {
                let coefs: Vec<u8> = (0..rows * cols).map(|at| byte(at + 5)).collect();
                let mut passes = Passes::<V>::new(rows, cols, &coefs);
                passes.piece_bytes = passes.piece_bytes.min(1024);
                let scalar = crate::arch::of(Backend::Scalar).prepare(rows, cols, &coefs);
                let inputs: Vec<&[u8]> = (0..cols).map(|j| &noise[j * SPACE + j * 3..][..len]).collect();
                let run = |skip: usize, uneven: usize, apply: &dyn Fn(&mut [&mut [u8]])| {
                    let mut memory = noise[20 * SPACE..][..(rows + 1) * SPACE].to_vec();
                    let start = memory.as_ptr().align_offset(64) + 64 + skip;
                    let outputs = memory[start..].chunks_mut(SPACE).take(rows).enumerate();
                    apply(&mut outputs.map(|(i, o)| &mut o[i * uneven..][..len]).collect::<Vec<_>>());
                    memory[start - 64 - skip..][..rows * SPACE].to_vec()
                };
                for (skip, uneven) in
                    (0..64).step_by(if rows < 4 { 1 } else { 21 }).flat_map(|s| [(s, 0), (s, 1)])
                {
                    for mode in [Mode::Overwrite, Mode::Accumulate] {
                        let expected = run(skip, uneven, &|outputs| scalar.apply(&inputs, outputs, mode));
                        for way in [Way::Near, Way::Ahead, Way::Stream] {
                            let got =
                                run(skip, uneven, &|outputs| passes.apply_by(way, &inputs, outputs, mode));
                            assert!(
                                expected == got,
                                "{rows} x {cols}, {len} bytes, +{skip}, {way:?}, {mode:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}
