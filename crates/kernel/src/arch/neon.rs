//! NEON: two `tbl` look up the products of 16 low and 16 high nibbles.

use std::arch::aarch64::*;

use super::generic::{self, PassRange, Unit, Vector};
use super::tables::NibbleTables;
use crate::arch::Arch;

/// The unit, if this processor has it.
pub(super) fn detect() -> Option<&'static dyn Arch> {
    // SAFETY: given out only after the check.
    static UNIT: Unit<Quad> = unsafe { Unit::new() };
    std::arch::is_aarch64_feature_detected!("neon").then_some(&UNIT as &dyn Arch)
}

#[derive(Debug, Clone, Copy)]
struct Quad(uint8x16_t);

// Safety of the blocks below: `Vector` has its callers promise the instructions and the pointers.
impl Vector for Quad {
    const BYTES: usize = 16;
    const MAX_ROWS: usize = 6;
    const MAX_COLUMNS: usize = usize::MAX;
    const MAX_STREAMED_ROWS: usize = 0;
    type Table = NibbleTables;
    /// Low and high nibbles, each shifted down.
    type Operand = (uint8x16_t, uint8x16_t);

    fn table(c: u8) -> NibbleTables {
        NibbleTables::new(c)
    }

    #[inline(always)]
    unsafe fn zero() -> Self {
        unsafe { Self(vdupq_n_u8(0)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        unsafe { Self(vld1q_u8(from)) }
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
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        unsafe { self.store(to) } // no stable intrinsic
    }

    #[inline(always)]
    unsafe fn end_of_stream() {}

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
        unsafe { Self(veorq_u8(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn operand(self) -> Self::Operand {
        unsafe { (vandq_u8(self.0, vdupq_n_u8(15)), vshrq_n_u8::<4>(self.0)) }
    }

    #[inline(always)]
    unsafe fn add_product(self, (low, high): Self::Operand, table: &NibbleTables) -> Self {
        unsafe {
            let low_product = vqtbl1q_u8(vld1q_u8(table.low.as_ptr()), low);
            let high_product = vqtbl1q_u8(vld1q_u8(table.high.as_ptr()), high);
            Self(veorq_u8(self.0, veorq_u8(low_product, high_product)))
        }
    }

    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {} // left to the processor: no stable intrinsic

    unsafe fn run(job: &PassRange<'_, Self>) {
        unsafe {
            match (job.outputs.len(), job.ones) {
                (1, true) => run::<1, 8, true>(job),
                (1, false) => run::<1, 4, false>(job),
                (2, _) => run::<2, 4, false>(job),
                (3, _) => run::<3, 4, false>(job),
                (4, _) => run::<4, 4, false>(job),
                (5, _) => run::<5, 2, false>(job),
                (6, _) => run::<6, 2, false>(job),
                (rows, _) => unreachable!("a pass of {rows} rows"),
            }
        }
    }
}

#[target_feature(enable = "neon")]
unsafe fn run<const ROWS: usize, const STRIP: usize, const ONES: bool>(job: &PassRange<'_, Quad>) {
    unsafe { generic::run::<Quad, ROWS, STRIP, ONES>(job) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_way_writes_the_same() {
        if super::detect().is_some() {
            super::generic::tests::every_way_writes_the_same::<super::Quad>();
        }
    }
}
