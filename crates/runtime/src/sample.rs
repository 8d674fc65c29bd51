//! A sample of what a combination made, computed a second time by another code path.
//!
//! A repaired block is compared with the digest recorded for it. For parity that is made for the first time
//! there is no such digest: what the kernel makes is what is recorded. So the first step of a run, and one in
//! [`EVERY`] after it, is checked: part of each output is computed again from the coefficients, by table
//! look-ups byte by byte ([`Backend::Scalar`]), and compared before the step's output is sent or written.
//! This finds kernels that are wrong on this processor and matrices that were damaged in memory. It does not
//! prove that every byte is right.

use std::ops::Range;

use kintsu_kernel::{Backend, Kernel, KernelError, Mode};

/// One step in this many is checked.
const EVERY: u64 = 256;

/// Most bytes checked of each region.
const MOST_BYTES: usize = 4 << 10;

/// One byte in this many of a region is checked. The second computation is tens of times slower, so it must cost
/// little even for a run of a single step.
const ONE_IN: usize = 256;

/// Least bytes checked of each region.
const LEAST_BYTES: usize = 64;

static ZEROS: [u8; MOST_BYTES] = [0; MOST_BYTES];

/// Decides which steps and bytes are checked, and computes them again.
#[derive(Debug)]
pub(crate) struct Sampler {
    kernel: Kernel,
    steps: u64,
}

/// The difference that was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// The output, by position.
    pub output: usize,
    /// Where in the slice it begins.
    pub at: usize,
    /// The byte from the second computation.
    pub expected: u8,
    /// The byte from the first.
    pub got: u8,
}

impl Sampler {
    /// For `rows x cols` coefficients, row-major.
    ///
    /// # Errors
    /// When the number of coefficients is wrong.
    pub fn new(rows: usize, cols: usize, coefs: &[u8]) -> Result<Self, KernelError> {
        Ok(Self { kernel: Kernel::with_backend(Backend::Scalar, rows, cols, coefs)?, steps: 0 })
    }

    /// The range of the next step's slices to check, if this step is checked.
    pub fn next(&mut self, len: usize) -> Option<Range<usize>> {
        let step = self.steps;
        self.steps += 1;
        if !step.is_multiple_of(EVERY) || len == 0 {
            return None;
        }
        let bytes = (len / ONE_IN).clamp(LEAST_BYTES, MOST_BYTES).min(len);
        // First the end, where kernels use separate code; then another place each time.
        let places = len - bytes + 1;
        let look = (step / EVERY) as usize;
        let at = len - bytes - look.wrapping_mul(places.div_ceil(3) + 1) % places;
        Some(at..at + bytes)
    }

    /// The correct outputs in a range, one after the other; inputs that are all zero may be missing.
    ///
    /// # Errors
    /// When an input ends before the range does.
    pub fn expected<'a>(
        &self,
        inputs: &[Option<&'a [u8]>],
        range: &Range<usize>,
    ) -> Result<Vec<u8>, KernelError> {
        // The kernel refuses an input of another length.
        let part = |input: Option<&'a [u8]>| match input {
            Some(bytes) => bytes.get(range.clone()).unwrap_or_default(),
            None => &ZEROS[..range.len()],
        };
        let inputs: Vec<&[u8]> = inputs.iter().copied().map(part).collect();
        let mut made = vec![0; self.kernel.rows() * range.len()];
        let mut outputs: Vec<&mut [u8]> = made.chunks_mut(range.len()).collect();
        self.kernel.apply(&inputs, &mut outputs, Mode::Overwrite)?;
        Ok(made)
    }
}

/// The first place in a range where an output differs from `expected`; an output that is all zero may be missing.
pub(crate) fn difference<'a>(
    expected: &[u8],
    outputs: impl Iterator<Item = Option<&'a [u8]>>,
    range: &Range<usize>,
) -> Option<Difference> {
    for (output, (expected, got)) in expected.chunks(range.len()).zip(outputs).enumerate() {
        let got = got.map_or(&ZEROS[..range.len()], |bytes| &bytes[range.clone()]);
        if let Some(at) = (0..range.len()).find(|at| expected[*at] != got[*at]) {
            return Some(Difference { output, at: range.start + at, expected: expected[at], got: got[at] });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_in_many_is_looked_at_in_little_of_it_and_in_other_places() {
        for len in [1, 63, 64, 65, 4096, 65_536, 1 << 20, 8 << 20] {
            let mut sampler = Sampler::new(1, 1, &[2]).unwrap();
            let looks: Vec<_> = (0..10 * EVERY).filter_map(|_| sampler.next(len)).collect();
            assert_eq!(looks.len(), 10);
            assert_eq!(looks[0].end, len, "the end comes first");
            assert!(looks.iter().all(|range| range.end <= len && !range.is_empty()));
            assert!(looks.iter().all(|range| range.len() <= MOST_BYTES.min((len / ONE_IN).max(LEAST_BYTES))));
            assert!(len < 200 || looks[1].start != looks[0].start && looks[2].start != looks[1].start);
        }
        assert_eq!(Sampler::new(1, 1, &[2]).unwrap().next(0), None);
    }
}
