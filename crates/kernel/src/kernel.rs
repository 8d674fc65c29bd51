//! A coefficient matrix prepared for one backend, and its application to regions.

use std::sync::Arc;

use crate::arch::{self, Program};
use crate::{Backend, KernelError};

/// Whether outputs are replaced or added to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// `outputs = matrix * inputs`; what the outputs held is not read.
    Overwrite,
    /// `outputs += matrix * inputs`, which is XOR.
    Accumulate,
}

/// A prepared coefficient matrix; cheap to clone, usable from many threads at once.
///
/// Holds 8 to 32 bytes per coefficient; all-zero columns and 0/1 rows are detected when it is made.
#[derive(Debug, Clone)]
pub struct Kernel {
    backend: Backend,
    rows: usize,
    cols: usize,
    program: Arc<dyn Program>,
}

impl Kernel {
    /// Prepares `coefs` (`rows x cols`, row-major) for the fastest backend of this processor.
    ///
    /// # Errors
    /// `Invalid` when `coefs` does not hold `rows * cols` coefficients.
    pub fn new(rows: usize, cols: usize, coefs: &[u8]) -> Result<Self, KernelError> {
        Self::with_backend(Backend::best(), rows, cols, coefs)
    }

    /// Prepares `coefs` (`rows x cols`, row-major) for a chosen backend.
    ///
    /// # Errors
    /// `Invalid` when `coefs` does not hold `rows * cols` coefficients, `Unsupported` when this
    /// processor lacks the backend.
    pub fn with_backend(
        backend: Backend,
        rows: usize,
        cols: usize,
        coefs: &[u8],
    ) -> Result<Self, KernelError> {
        KernelError::check("number of coefficients", rows.saturating_mul(cols), coefs.len())?;
        let arch = arch::find(backend)
            .ok_or_else(|| KernelError::Unsupported { available: Backend::available(), got: backend })?;
        Ok(Self { backend, rows, cols, program: arch.prepare(rows, cols, coefs) })
    }

    /// Output rows of the matrix.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Input columns of the matrix.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The instruction set it was prepared for.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// `outputs (+)= matrix * inputs`: `cols` inputs and `rows` outputs of one length, any length
    /// (0 too) and any alignment.
    ///
    /// Reads every input that has a coefficient other than 0 once from memory, writes every output once, allocates
    /// nothing up to 64 columns. Large outputs of `Overwrite` that are in no cache are written past the caches, if they
    /// have one alignment modulo 64; to learn where they are, one byte of them is read first. Fastest when the regions
    /// do not all start at the same offset modulo 4 KiB (such regions compete for the same lines of the L1 cache).
    ///
    /// # Errors
    /// `Invalid`, with nothing written, when the counts or lengths do not fit.
    pub fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], mode: Mode) -> Result<(), KernelError> {
        KernelError::check("number of inputs", self.cols, inputs.len())?;
        KernelError::check("number of outputs", self.rows, outputs.len())?;
        let lengths = || inputs.iter().map(|i| i.len()).chain(outputs.iter().map(|o| o.len()));
        let len = lengths().next().unwrap_or(0);
        for other in lengths() {
            KernelError::check("length of a region", len, other)?;
        }
        self.program.apply(inputs, outputs, mode);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_counts_and_lengths_are_refused_and_nothing_is_written() {
        assert_eq!(
            Kernel::new(2, 3, &[1; 5]).unwrap_err(),
            KernelError::Invalid { what: "number of coefficients", expected: 6, got: 5 }
        );
        let kernel = Kernel::new(1, 2, &[1, 1]).unwrap();
        let (a, b, mut out) = ([1u8; 4], [1u8; 5], [7u8; 4]);
        let apply = |inputs: &[&[u8]], outputs: &mut [&mut [u8]]| {
            kernel.apply(inputs, outputs, Mode::Overwrite).unwrap_err().to_string()
        };
        assert_eq!(apply(&[&a], &mut [&mut out]), "invalid number of inputs: expected 2, got 1");
        assert_eq!(apply(&[&a, &a], &mut []), "invalid number of outputs: expected 1, got 0");
        assert_eq!(apply(&[&a, &b], &mut [&mut out]), "invalid length of a region: expected 4, got 5");
        assert_eq!(apply(&[&a, &a], &mut [&mut out[1..]]), "invalid length of a region: expected 4, got 3");
        assert_eq!(out, [7; 4]);
    }

    #[test]
    fn a_backend_of_another_processor_is_refused() {
        let foreign = if cfg!(target_arch = "aarch64") { Backend::Avx2 } else { Backend::Neon };
        let error = Kernel::with_backend(foreign, 1, 1, &[1]).unwrap_err();
        assert_eq!(error, KernelError::Unsupported { available: Backend::available(), got: foreign });
    }

    #[test]
    fn no_columns_give_zeros_and_no_rows_give_nothing() {
        let mut out = [7u8; 100];
        Kernel::new(1, 0, &[]).unwrap().apply(&[], &mut [&mut out], Mode::Overwrite).unwrap();
        assert_eq!(out, [0; 100]);
        Kernel::new(0, 1, &[]).unwrap().apply(&[&out], &mut [], Mode::Overwrite).unwrap();
    }
}
