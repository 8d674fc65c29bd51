//! AVX-512 with GFNI: one affine transformation multiplies 64 bytes.
//!
//! `gf2p8mulb` is of no use here, its polynomial is 0x11B; `gf2p8affineqb` takes any bit matrix.
//! Partial vectors are masked, so that bytes outside the mask are neither read nor written.
//!
//! The limits are loads (two a cycle on Zen 5, one on Zen 4) and, on Zen 4 with several rows, multiplications (one a
//! cycle). So a pass ([`unrolled`]) goes 64 bytes at a time, with code for its number of rows and columns: as many matrices as fit
//! stay in registers, and one three-way XOR adds two products. Strips of two or four vectors are as fast from the L2
//! cache but lose up to 40% from DRAM. A pass of more than 12 columns would lose a third from DRAM, as there are more
//! streams than the processor follows. When to prefetch and to write past the caches: `way.rs`.

use std::arch::x86_64::*;

use super::generic::{self, PassRange, Unit, Vector};
use super::tables::bit_matrix;
use super::way::Way;
use crate::arch::Arch;

/// The unit, if this processor has it.
pub(super) fn detect() -> Option<&'static dyn Arch> {
    // SAFETY: given out only after the check.
    static UNIT: Unit<Zmm> = unsafe { Unit::new() };
    let found = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("gfni");
    found.then_some(&UNIT as &dyn Arch)
}

#[derive(Debug, Clone, Copy)]
struct Zmm(__m512i);

fn first(len: usize) -> __mmask64 {
    (1 << len) - 1
}

// Safety of the blocks below: `Vector` has its callers promise the instructions and the pointers.
impl Vector for Zmm {
    const BYTES: usize = 64;
    const MAX_ROWS: usize = 8;
    const MAX_COLUMNS: usize = 12;
    const MAX_STREAMED_ROWS: usize = usize::MAX;
    type Table = u64;
    type Operand = __m512i;

    fn table(c: u8) -> u64 {
        bit_matrix(c)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(_mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_partial(from: *const u8, len: usize) -> Self {
        unsafe { Self(_mm512_maskz_loadu_epi8(first(len), from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn end_of_stream() {
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut u8, len: usize) {
        unsafe { _mm512_mask_storeu_epi8(to.cast(), first(len), self.0) }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        unsafe { Self(_mm512_xor_si512(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn operand(self) -> __m512i {
        self.0
    }

    #[inline(always)]
    unsafe fn add_product(self, x: __m512i, table: &u64) -> Self {
        unsafe {
            let matrix = _mm512_set1_epi64(table.cast_signed());
            Self(_mm512_xor_si512(self.0, _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    unsafe fn run(job: &PassRange<'_, Self>) {
        unsafe {
            match (job.outputs.len(), job.ones) {
                (1, true) => columns::<1, true>(job),
                (1, false) => columns::<1, false>(job),
                (2, _) => columns::<2, false>(job),
                (3, _) => columns::<3, false>(job),
                (4, _) => columns::<4, false>(job),
                (5, _) => columns::<5, false>(job),
                (6, _) => columns::<6, false>(job),
                (7, _) => columns::<7, false>(job),
                (8, _) => columns::<8, false>(job),
                (rows, _) => unreachable!("a pass of {rows} rows"),
            }
        }
    }
}

unsafe fn columns<const ROWS: usize, const ONES: bool>(job: &PassRange<'_, Zmm>) {
    // SAFETY: what our caller promised; `done` bytes, at most `job.len`, are finished.
    unsafe {
        let done = match job.columns.len() {
            1 => whole::<ROWS, 1, ONES>(job),
            2 => whole::<ROWS, 2, ONES>(job),
            3 => whole::<ROWS, 3, ONES>(job),
            4 => whole::<ROWS, 4, ONES>(job),
            5 => whole::<ROWS, 5, ONES>(job),
            6 => whole::<ROWS, 6, ONES>(job),
            7 => whole::<ROWS, 7, ONES>(job),
            8 => whole::<ROWS, 8, ONES>(job),
            9 => whole::<ROWS, 9, ONES>(job),
            10 => whole::<ROWS, 10, ONES>(job),
            11 => whole::<ROWS, 11, ONES>(job),
            12 => whole::<ROWS, 12, ONES>(job),
            _ => 0,
        };
        if done < job.len {
            rest::<ROWS, ONES>(job, done);
        }
    }
}

/// What is left from byte `from` on: less than a vector, or all of a job without columns.
#[cold]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn rest<const ROWS: usize, const ONES: bool>(job: &PassRange<'_, Zmm>, from: usize) {
    let mut columns = [std::ptr::null(); Zmm::MAX_COLUMNS];
    let mut outputs = [std::ptr::null_mut(); ROWS];
    // SAFETY: `from` is at most `job.len`.
    unsafe {
        columns.iter_mut().zip(job.columns).for_each(|(to, column)| *to = column.add(from));
        outputs.iter_mut().zip(job.outputs).for_each(|(to, output)| *to = output.add(from));
        let columns = &columns[..job.columns.len()];
        let rest = PassRange { columns, outputs: &outputs, len: job.len - from, ..*job };
        generic::run::<Zmm, ROWS, 1, ONES>(&rest);
    }
}

/// Processes all whole vectors of a job of `ROWS` outputs and `COLS` columns. Returns how many bytes that are.
unsafe fn whole<const ROWS: usize, const COLS: usize, const ONES: bool>(job: &PassRange<'_, Zmm>) -> usize {
    // SAFETY: what our caller promised.
    unsafe {
        if job.way == Way::Near {
            unrolled::<ROWS, COLS, ONES, false>(job)
        } else {
            unrolled::<ROWS, COLS, ONES, true>(job)
        }
    }
}

/// How far ahead regions are prefetched, in bytes. Measured on Zen 4: from L3 and from memory 256 to 512 are equal.
const AHEAD_BYTES: usize = 384;

/// Registers for matrices and sums; inputs and products take the others.
const HELD: usize = 28;

/// As [`whole`]; only the code for `FAR` heeds `job.way`.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn unrolled<const ROWS: usize, const COLS: usize, const ONES: bool, const FAR: bool>(
    job: &PassRange<'_, Zmm>,
) -> usize {
    // SAFETY: each vector lies within `job.len`; there are ROWS outputs, COLS columns, and a table for each pair
    // unless all coefficients are 1.
    unsafe {
        let (mut columns, mut outputs) = ([std::ptr::null(); COLS], [std::ptr::null_mut(); ROWS]);
        columns.copy_from_slice(job.columns);
        outputs.copy_from_slice(job.outputs);
        let tables = job.tables.as_ptr();
        let read = |c: usize, r: usize| _mm512_set1_epi64((*tables.add(c * ROWS + r)).cast_signed());
        let is_held = |c: usize, r: usize| !ONES && c * ROWS + r < HELD - ROWS;
        let zero = _mm512_setzero_si512();
        let mut held = [[zero; ROWS]; COLS];
        for (c, held) in held.iter_mut().enumerate() {
            for (r, held) in held.iter_mut().enumerate() {
                if is_held(c, r) {
                    *held = read(c, r);
                }
            }
        }
        let product = |x: __m512i, c: usize, r: usize| {
            if ONES {
                return x;
            }
            let matrix = if is_held(c, r) { held[c][r] } else { read(c, r) };
            _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix)
        };
        let mut at = 0;
        while job.len - at >= Zmm::BYTES {
            let load = |from: *const u8| _mm512_loadu_si512(from.add(at).cast());
            if FAR {
                let fetch = |region: *const u8| {
                    _mm_prefetch::<_MM_HINT_T0>(region.wrapping_add(at + AHEAD_BYTES).cast());
                };
                for column in columns {
                    fetch(column);
                }
                if job.way == Way::Ahead {
                    for output in outputs {
                        fetch(output);
                    }
                }
            }
            let mut sums = [zero; ROWS];
            if job.accumulate {
                for (sum, output) in sums.iter_mut().zip(outputs) {
                    *sum = load(output);
                }
            }
            for pair in 0..COLS / 2 {
                let (c, d) = (2 * pair, 2 * pair + 1);
                let (x, y) = (load(columns[c]), load(columns[d]));
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_ternarylogic_epi64::<XOR3>(*sum, product(x, c, r), product(y, d, r));
                }
            }
            if COLS % 2 == 1 {
                let x = load(columns[COLS - 1]);
                for (r, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_xor_si512(*sum, product(x, COLS - 1, r));
                }
            }
            for (output, sum) in outputs.iter().zip(sums) {
                let to = output.add(at).cast();
                if FAR && job.way == Way::Stream {
                    _mm512_stream_si512(to, sum)
                } else {
                    _mm512_storeu_si512(to, sum)
                }
            }
            at += Zmm::BYTES;
        }
        at
    }
}

/// The truth table of the sum of three bits.
const XOR3: i32 = 0x96;

#[cfg(test)]
mod tests {
    #[test]
    fn every_way_writes_the_same() {
        if super::detect().is_some() {
            super::generic::tests::every_way_writes_the_same::<super::Zmm>();
        }
    }
}
