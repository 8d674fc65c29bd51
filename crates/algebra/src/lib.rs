//! GF(2^8) elements and matrices over them: multiply, invert, rank, solve.
//!
//! The field is GF(2)\[x\] modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11D), in which 2 generates the
//! multiplicative group; addition is XOR. This crate handles coefficients only: no byte buffers
//! (that is `kintsu-kernel`), no codes, no I/O.

mod gf;
mod matrix;

pub use gf::{POLYNOMIAL, PRODUCTS, add, add_scaled, div, exp, inv, log, mul, pow};
pub use matrix::{Matrix, MatrixError};
