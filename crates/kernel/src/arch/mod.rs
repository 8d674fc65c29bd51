//! The instruction sets, a folder or file each, behind the few verbs of [`Arch`].
//!
//! `generic` has the algorithm; `scalar` is the reference that stands on its own; `avx2`, `avx512` and `neon` say
//! what one vector register can do. Nothing above this module selects an instruction set by `cfg`.
#![allow(unsafe_code)] // intrinsics and strips by pointer: the reason of each block stands beside it

use std::fmt::Debug;
use std::sync::Arc;

use crate::{Backend, Mode};

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod generic;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tables;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod way;

/// One instruction set.
pub(crate) trait Arch: Sync {
    /// Turns `coefs` (`rows x cols`, row-major) into a program.
    fn prepare(&self, rows: usize, cols: usize, coefs: &[u8]) -> Arc<dyn Program>;

    /// `dst ^= src`, of one length.
    fn xor_into(&self, dst: &mut [u8], src: &[u8]);

    /// `data *= c`.
    fn scale_in_place(&self, c: u8, data: &mut [u8]);
}

/// A matrix made ready for one instruction set.
pub(crate) trait Program: Debug + Send + Sync {
    /// `outputs (+)= matrix * inputs`.
    ///
    /// Before: as many inputs and outputs as the matrix has columns and rows, all of one length.
    /// After: every byte of every output is written, in `Overwrite` mode whatever it was.
    fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], mode: Mode);
}

/// The instruction set, if this processor has it.
pub(crate) fn find(backend: Backend) -> Option<&'static dyn Arch> {
    match backend {
        Backend::Scalar => Some(&scalar::Scalar),
        #[cfg(target_arch = "x86_64")]
        Backend::Avx2 => avx2::detect(),
        #[cfg(target_arch = "x86_64")]
        Backend::Avx512Gfni => avx512::detect(),
        #[cfg(target_arch = "aarch64")]
        Backend::Neon => neon::detect(),
        #[allow(unreachable_patterns)] // reached for the backends of other processors
        _ => None,
    }
}

/// The instruction set, or the scalar one where this processor lacks it.
pub(crate) fn of(backend: Backend) -> &'static dyn Arch {
    find(backend).unwrap_or(&scalar::Scalar)
}
