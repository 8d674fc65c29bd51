//! AVX-512 with GFNI: one affine transformation multiplies 64 bytes.
//!
//! `gf2p8mulb` is of no use here, its polynomial is 0x11B; `gf2p8affineqb` takes any bit matrix.
//! Partial vectors are masked, so that bytes outside the mask are neither read nor written.

use std::arch::x86_64::*;

use super::generic::{self, PassRange, Unit, Vector};
use super::tables::bit_matrix;
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
                (1, true) => run::<1, 4, true>(job),
                (1, false) => run::<1, 4, false>(job),
                (2, _) => run::<2, 4, false>(job),
                (3, _) => run::<3, 4, false>(job),
                (4, _) => run::<4, 4, false>(job),
                (5, _) => run::<5, 4, false>(job),
                (6, _) => run::<6, 3, false>(job),
                (7, _) => run::<7, 2, false>(job),
                (8, _) => run::<8, 2, false>(job),
                (rows, _) => unreachable!("a pass of {rows} rows"),
            }
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn run<const ROWS: usize, const STRIP: usize, const ONES: bool>(job: &PassRange<'_, Zmm>) {
    unsafe { generic::run::<Zmm, ROWS, STRIP, ONES>(job) }
}
