//! AVX2: two shuffles look up the products of 32 low and 32 high nibbles.

use std::arch::x86_64::*;

use super::generic::{self, PassRange, Unit, Vector};
use super::tables::NibbleTables;
use crate::arch::Arch;

/// The unit, if this processor has it.
pub(super) fn detect() -> Option<&'static dyn Arch> {
    // SAFETY: given out only after the check.
    static UNIT: Unit<Ymm> = unsafe { Unit::new() };
    is_x86_feature_detected!("avx2").then_some(&UNIT as &dyn Arch)
}

#[derive(Debug, Clone, Copy)]
struct Ymm(__m256i);

// Safety of the blocks below: `Vector` has its callers promise the instructions and the pointers.
impl Vector for Ymm {
    const BYTES: usize = 32;
    const MAX_ROWS: usize = 6;
    const MAX_COLUMNS: usize = usize::MAX;
    const MAX_STREAMED_ROWS: usize = 2;
    type Table = NibbleTables;
    /// Low and high nibbles, each shifted down.
    type Operand = (__m256i, __m256i);

    fn table(c: u8) -> NibbleTables {
        NibbleTables::new(c)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(_mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_partial(from: *const u8, len: usize) -> Self {
        let mut whole = [0u8; Self::BYTES];
        unsafe {
            std::ptr::copy_nonoverlapping(from, whole.as_mut_ptr(), len);
            Self::load(whole.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { _mm256_stream_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn end_of_stream() {
        unsafe { _mm_sfence() }
    }

    #[inline(always)]
    unsafe fn store_partial(self, to: *mut u8, len: usize) {
        let mut whole = [0u8; Self::BYTES];
        unsafe {
            self.store(whole.as_mut_ptr());
            std::ptr::copy_nonoverlapping(whole.as_ptr(), to, len);
        }
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        unsafe { Self(_mm256_xor_si256(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn operand(self) -> Self::Operand {
        unsafe {
            let nibble = _mm256_set1_epi8(15);
            let high = _mm256_srli_epi64::<4>(self.0);
            (_mm256_and_si256(self.0, nibble), _mm256_and_si256(high, nibble))
        }
    }

    #[inline(always)]
    unsafe fn add_product(self, (low, high): Self::Operand, table: &NibbleTables) -> Self {
        unsafe {
            let low_table = _mm256_broadcastsi128_si256(_mm_load_si128(table.low.as_ptr().cast()));
            let high_table = _mm256_broadcastsi128_si256(_mm_load_si128(table.high.as_ptr().cast()));
            let product =
                _mm256_xor_si256(_mm256_shuffle_epi8(low_table, low), _mm256_shuffle_epi8(high_table, high));
            Self(_mm256_xor_si256(self.0, product))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(at: *const u8) {
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
    }

    unsafe fn run(job: &PassRange<'_, Self>) {
        unsafe {
            match (job.outputs.len(), job.ones) {
                (1, true) => run::<1, 8, true>(job),
                (1, false) => run::<1, 4, false>(job),
                (2, _) => run::<2, 2, false>(job),
                (3, _) => run::<3, 2, false>(job),
                (4, _) => run::<4, 2, false>(job),
                (5, _) => run::<5, 2, false>(job),
                (6, _) => run::<6, 1, false>(job),
                (rows, _) => unreachable!("a pass of {rows} rows"),
            }
        }
    }
}

#[target_feature(enable = "avx2")]
unsafe fn run<const ROWS: usize, const STRIP: usize, const ONES: bool>(job: &PassRange<'_, Ymm>) {
    unsafe { generic::run::<Ymm, ROWS, STRIP, ONES>(job) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_way_writes_the_same() {
        if super::detect().is_some() {
            super::generic::tests::every_way_writes_the_same::<super::Ymm>();
        }
    }
}
