//! One body of tests for every backend, against the scalar one and the field itself.

#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::sync::Once;

use kintsu_kernel::{Backend, Kernel, Mode};
use proptest::prelude::*;

const ALL: [Backend; 4] = [Backend::Scalar, Backend::Avx2, Backend::Avx512Gfni, Backend::Neon];

/// Runs `body` on every backend; prints once which ones this processor lacks.
fn on_every_backend(body: impl FnMut(Backend)) {
    static SAID: Once = Once::new();
    let (here, lacking): (Vec<_>, Vec<_>) = ALL.into_iter().partition(|b| b.is_available());
    let say = |b: &Backend| drop(writeln!(std::io::stderr(), "SKIPPED: this processor has no {b}"));
    SAID.call_once(|| {
        let names: Vec<String> = here.iter().map(ToString::to_string).collect();
        let _ = writeln!(std::io::stderr(), "COMPARED: kernels with one another: {}", names.join(", "));
        lacking.iter().for_each(say);
    });
    here.into_iter().for_each(body);
}

/// Bytes of one register, or 8 where there is none.
fn lane(backend: Backend) -> usize {
    match backend {
        Backend::Avx512Gfni => 64,
        Backend::Avx2 => 32,
        Backend::Neon => 16,
        _ => 8,
    }
}

/// A fixed sequence of bytes that look random (splitmix64).
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let word = |i: usize| {
        let mut z = (seed.wrapping_mul(0x1234_5679) + i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ z >> 31) as u8
    };
    (0..len).map(word).collect()
}

/// Applies `coefs` to regions of `len` bytes that lie misaligned in larger buffers, and compares
/// with the scalar backend; bytes around the outputs must stay as they were.
fn compare(backend: Backend, rows: usize, cols: usize, coefs: &[u8], len: usize, mode: Mode) {
    const MARGIN: usize = 70;
    let input_buffers: Vec<_> = (0..cols).map(|j| noise(j as u64, len + j % 67)).collect();
    let inputs: Vec<_> = input_buffers.iter().enumerate().map(|(j, b)| &b[j % 67..]).collect();
    let before: Vec<_> = (0..rows).map(|i| noise(1000 + i as u64, len + 2 * MARGIN)).collect();
    let run = |backend| {
        let mut buffers = before.clone();
        let kernel = Kernel::with_backend(backend, rows, cols, coefs).unwrap();
        let mut outputs: Vec<_> =
            buffers.iter_mut().enumerate().map(|(i, b)| &mut b[MARGIN - i % 5..][..len]).collect();
        kernel.apply(&inputs, &mut outputs, mode).unwrap();
        buffers
    };
    let (expected, got) = (run(Backend::Scalar), run(backend));
    assert!(expected == got, "{backend}, {rows} x {cols}, {len} bytes, {mode:?}: {coefs:?}");
}

#[test]
fn scalar_multiplies_as_the_field_does() {
    let all: Vec<u8> = (0..=255).collect();
    for c in 0..=255 {
        let kernel = Kernel::with_backend(Backend::Scalar, 1, 1, &[c]).unwrap();
        let mut out = [c; 256];
        kernel.apply(&[&all], &mut [&mut out], Mode::Overwrite).unwrap();
        assert!(out.iter().zip(&all).all(|(&product, &x)| product == kintsu_algebra::mul(c, x)));
        kernel.apply(&[&all], &mut [&mut out], Mode::Accumulate).unwrap();
        assert_eq!(out, [0; 256], "{c} * x added to itself");
    }
}

#[test]
fn scalar_sums_columns_as_the_field_does() {
    let (rows, cols, len) = (3, 5, 5000);
    let coefs = noise(7, rows * cols);
    let inputs: Vec<_> = (0..cols).map(|j| noise(j as u64, len)).collect();
    let kernel = Kernel::with_backend(Backend::Scalar, rows, cols, &coefs).unwrap();
    let mut outputs = vec![vec![0; len]; rows];
    let mut slices: Vec<_> = outputs.iter_mut().map(Vec::as_mut_slice).collect();
    kernel
        .apply(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut slices, Mode::Overwrite)
        .unwrap();
    for (i, output) in outputs.iter().enumerate() {
        for (at, &byte) in output.iter().enumerate() {
            let sum = (0..cols).fold(0, |s, j| s ^ kintsu_algebra::mul(coefs[i * cols + j], inputs[j][at]));
            assert_eq!(byte, sum);
        }
    }
}

#[test]
fn every_coefficient_multiplies_every_byte() {
    let all: Vec<u8> = (0..=255).collect();
    on_every_backend(|backend| {
        for c in 0..=255 {
            let expected: Vec<u8> = all.iter().map(|&x| kintsu_algebra::mul(c, x)).collect();
            let mut out = [7; 256];
            let kernel = Kernel::with_backend(backend, 1, 1, &[c]).unwrap();
            kernel.apply(&[&all], &mut [&mut out], Mode::Overwrite).unwrap();
            assert!(out[..] == expected[..], "{backend}: {c}");
        }
    });
}

#[test]
fn every_length_to_three_lanes_and_around_the_strips() {
    on_every_backend(|backend| {
        let lane = lane(backend);
        let around_strips = [4, 8, 9, 16].into_iter().flat_map(|s| s * lane - 2..=s * lane + 2);
        for len in (0..=3 * lane).chain(around_strips) {
            for (rows, cols) in [(1, 1), (1, 10), (3, 6), (4, 10), (9, 4)] {
                for mode in [Mode::Overwrite, Mode::Accumulate] {
                    compare(backend, rows, cols, &noise(len as u64, rows * cols), len, mode);
                }
            }
        }
    });
}

#[test]
fn every_shape_to_eight_by_twenty() {
    on_every_backend(|backend| {
        for rows in 1..=8 {
            for cols in 1..=20 {
                let coefs = noise((rows * 100 + cols) as u64, rows * cols);
                for len in [1, 3 * lane(backend) + 5, 1337] {
                    compare(backend, rows, cols, &coefs, len, Mode::Overwrite);
                    compare(backend, rows, cols, &coefs, len, Mode::Accumulate);
                }
            }
        }
    });
}

#[test]
fn zeros_ones_identity_sparse_and_large_matrices() {
    on_every_backend(|backend| {
        let check = |rows: usize, cols: usize, coef: &dyn Fn(usize, usize) -> u8| {
            let coefs: Vec<u8> = (0..rows * cols).map(|at| coef(at / cols, at % cols)).collect();
            for mode in [Mode::Overwrite, Mode::Accumulate] {
                compare(backend, rows, cols, &coefs, 777, mode);
            }
        };
        for size in [1, 2, 5, 9] {
            check(size, size, &|_, _| 0);
            check(size, size, &|_, _| 1);
            check(size, size, &|i, j| u8::from(i == j));
            check(size, 20, &|i, j| if j % 3 == 0 { (i + j) as u8 } else { 0 });
            check(size, 20, &|_, j| u8::from(j % 2 == 0));
        }
        check(20, 70, &|i, j| (i * 71 + j) as u8);
        check(1, 200, &|_, j| j as u8);
    });
}

#[test]
fn pieces_of_many_passes_join_without_a_seam() {
    on_every_backend(|backend| {
        let (rows, cols) = (13, 12);
        compare(backend, rows, cols, &noise(3, rows * cols), 50_001, Mode::Overwrite);
        compare(backend, rows, cols, &noise(4, rows * cols), 50_001, Mode::Accumulate);
    });
}

proptest! {
    #[test]
    fn any_matrix_at_any_length(
        rows in 1usize..20, cols in 0usize..40, len in 0usize..3000, accumulate: bool, seed: u64, sparse: bool,
    ) {
        let keep = |at: usize| !sparse || at % 4 == 1;
        let coefs: Vec<u8> =
            noise(seed, rows * cols).into_iter().enumerate().map(|(at, c)| if keep(at) { c } else { 0 }).collect();
        let mode = if accumulate { Mode::Accumulate } else { Mode::Overwrite };
        on_every_backend(|backend| compare(backend, rows, cols, &coefs, len, mode));
    }
}
