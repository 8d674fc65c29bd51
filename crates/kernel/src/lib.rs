//! Region kernels: `outputs (+)= matrix * inputs` over byte regions in GF(2^8) modulo 0x11D.
//!
//! A [`Kernel`] is a coefficient matrix prepared once for the instruction set it will run on, and
//! applied to any number of regions afterwards, several output rows per pass over the inputs:
//!
//! ```
//! use kintsu_kernel::{Kernel, Mode};
//!
//! let kernel = Kernel::new(1, 2, &[1, 2])?;
//! let mut parity = [0; 3];
//! kernel.apply(&[&[1, 2, 3], &[4, 5, 128]], &mut [&mut parity], Mode::Overwrite)?;
//! assert_eq!(parity, [9, 8, 30]);
//! # Ok::<(), kintsu_kernel::KernelError>(())
//! ```
//!
//! What it is not: it chooses no coefficients (that is `kintsu-algebra` and the codes), starts no
//! threads, does no I/O and verifies no data.
//!
//! Invariants: every backend writes the bytes that [`Backend::Scalar`] writes, at every length and
//! alignment; nothing outside the given slices is touched; unsafe code stays in `arch`.
//! The algorithm is described in `arch/generic.rs`.

mod arch;
mod backend;
mod error;
mod kernel;
mod region;

pub use backend::Backend;
pub use error::KernelError;
pub use kernel::{Kernel, Mode};
pub use region::{scale_in_place, xor_into};
