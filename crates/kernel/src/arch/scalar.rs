//! The reference: one look-up per byte and coefficient, without a line of unsafe code.
//!
//! It shares no code with `generic`, so that the tests compare two independent implementations. It processes the
//! regions in pieces that stay in the L1 cache.

use std::sync::Arc;

use kintsu_algebra::PRODUCTS;

use crate::Mode;
use crate::arch::{Arch, Program};

/// Bytes of one region handled before the next row.
const PIECE_BYTES: usize = 4096;

/// `dst += c * src`.
fn add_product(c: u8, dst: &mut [u8], src: &[u8]) {
    let products = &PRODUCTS[c as usize];
    match c {
        0 => {}
        1 => dst.iter_mut().zip(src).for_each(|(d, &s)| *d ^= s),
        _ => dst.iter_mut().zip(src).for_each(|(d, &s)| *d ^= products[s as usize]),
    }
}

pub(super) struct Scalar;

impl Arch for Scalar {
    fn prepare(&self, _rows: usize, cols: usize, coefs: &[u8]) -> Arc<dyn Program> {
        Arc::new(Matrix { cols, coefs: coefs.into() })
    }

    fn xor_into(&self, dst: &mut [u8], src: &[u8]) {
        add_product(1, dst, src);
    }

    fn scale_in_place(&self, c: u8, data: &mut [u8]) {
        data.iter_mut().for_each(|x| *x = PRODUCTS[c as usize][*x as usize]);
    }
}

#[derive(Debug)]
struct Matrix {
    cols: usize,
    coefs: Box<[u8]>,
}

impl Program for Matrix {
    fn apply(&self, inputs: &[&[u8]], outputs: &mut [&mut [u8]], mode: Mode) {
        let len = outputs.first().map_or(0, |o| o.len());
        for start in (0..len).step_by(PIECE_BYTES) {
            let piece = start..len.min(start + PIECE_BYTES);
            for (row, output) in outputs.iter_mut().enumerate() {
                let output = &mut output[piece.clone()];
                if mode == Mode::Overwrite {
                    output.fill(0);
                }
                for (input, &c) in inputs.iter().zip(&self.coefs[row * self.cols..]) {
                    add_product(c, output, &input[piece.clone()]);
                }
            }
        }
    }
}
