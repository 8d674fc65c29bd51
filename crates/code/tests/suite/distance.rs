//! The exhaustive distance check against brute force, and codes with sub-blocks.

use kintsu_algebra::{Matrix, inv};
use kintsu_code::{CodeError, from_generator};
use kintsu_dag::BlockIndex;
use proptest::prelude::*;

/// Whether every loss of `losses` of n blocks leaves full rank.
fn bears(generator: &Matrix, n: usize, w: usize, losses: usize) -> bool {
    (0..1u32 << n).filter(|m| m.count_ones() as usize == losses).all(|mask| survives(generator, n, w, mask))
}

fn survives(generator: &Matrix, n: usize, w: usize, lost: u32) -> bool {
    let left = (0..n).filter(|b| lost >> b & 1 == 0).flat_map(|b| b * w..(b + 1) * w);
    generator.select_rows(left).rank() == generator.cols()
}

/// RS(n, k) on each of w sub-blocks, with sub-block s of parity p > 0 also carrying sub-block s-1 of the
/// parity before: a piggyback, which leaves the distance as it is.
fn piggybacked(n: usize, k: usize, w: usize) -> Matrix {
    let parity = |p: usize, j: usize| inv((k + p) as u8 ^ j as u8).expect("k + p > j");
    Matrix::from_fn(n * w, k * w, |row, col| {
        let ((block, s), (j, t)) = ((row / w, row % w), (col / w, col % w));
        match block.checked_sub(k) {
            None => u8::from(row == col),
            Some(p) if s == t => parity(p, j),
            Some(p) if p > 0 && s == t + 1 => parity(p - 1, j),
            Some(_) => 0,
        }
    })
}

#[test]
fn codes_with_sub_blocks_are_checked_and_decoded() {
    for (n, k, w) in [(6, 4, 2), (7, 4, 3), (5, 3, 4)] {
        let code = from_generator("piggy", n, k, w, piggybacked(n, k, w), Vec::new(), n - k + 1).unwrap();
        for mask in (0..1u32 << n).filter(|m| m.count_ones() as usize <= n - k) {
            let of = |bit| {
                (0..n).filter(|b| mask >> b & 1 == bit).map(|b| BlockIndex(b as u8)).collect::<Vec<_>>()
            };
            let graph = code.decode(&of(0), &of(1)).unwrap();
            graph.prove(code.generator()).unwrap();
            assert_eq!(graph.targets().len(), of(1).len() * w);
        }
        code.encode().prove(code.generator()).unwrap();
    }
}

#[test]
fn twenty_ten_is_checked_by_exhaustion() {
    let matrix =
        Matrix::from_fn(
            20,
            10,
            |i, j| {
                if i < 10 { u8::from(i == j) } else { inv(i as u8 ^ j as u8).unwrap() }
            },
        );
    from_generator("twenty", 20, 10, 1, matrix.clone(), Vec::new(), 11).unwrap();
    // One coefficient that makes a single 2 x 2 minor vanish is found.
    let mut spoilt = matrix;
    let entry = kintsu_algebra::mul(
        kintsu_algebra::mul(spoilt.row(18)[9], spoilt.row(19)[8]),
        inv(spoilt.row(18)[8]).unwrap(),
    );
    spoilt.row_mut(19)[9] = entry;
    assert!(matches!(
        from_generator("spoilt", 20, 10, 1, spoilt, Vec::new(), 11),
        Err(CodeError::Distance { .. })
    ));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..Default::default() })]

    #[test]
    fn a_claim_is_accepted_exactly_when_brute_force_agrees(
        k in 1usize..5, m in 1usize..4, w in 1usize..4, claimed in 1usize..5, small in any::<bool>(),
        entries in prop::collection::vec(any::<u8>(), 300),
    ) {
        let n = k + m;
        prop_assume!(claimed <= m + 1);
        // Entries of a few values make dependent rows likely.
        let entry = |i: usize| if small { entries[i] % 3 } else { entries[i] };
        let matrix = Matrix::from_fn(n * w, k * w, |i, j| {
            if i < k * w { u8::from(i == j) } else { entry((i - k * w) * k * w + j) }
        });
        prop_assume!((k * w..n * w).all(|i| matrix.row(i).iter().any(|&c| c != 0)));
        let made = from_generator("random", n, k, w, matrix.clone(), Vec::new(), claimed);
        match made {
            Ok(_) => prop_assert!(bears(&matrix, n, w, claimed - 1)),
            Err(CodeError::Distance { lost, .. }) => {
                prop_assert!(lost.len() < claimed);
                let mask = lost.iter().fold(0, |mask, b| mask | 1 << b.0);
                prop_assert!(!survives(&matrix, n, w, mask));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
