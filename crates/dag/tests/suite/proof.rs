//! The symbolic proof on small codes: what it accepts, what it refuses, and shortened stripes.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, DagError, Ecdag, Vertex};

fn v(indices: &[u32]) -> Vec<Vertex> {
    indices.iter().copied().map(Vertex).collect()
}

fn set(indices: &[u32]) -> BTreeSet<Vertex> {
    indices.iter().copied().map(Vertex).collect()
}

/// RS(6,4) as in OpenEC's example: v4 = sum b_i, v5 = sum 2^i b_i.
fn generator() -> Matrix {
    let parity = [[1, 1, 1, 1], [1, 2, 4, 8]];
    Matrix::from_fn(6, 4, |i, j| if i < 4 { u8::from(i == j) } else { parity[i - 4][j] })
}

fn encode() -> Ecdag {
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &v(&[0, 1, 2, 3]), &[1, 1, 1, 1]).unwrap();
    graph.join(Vertex(5), &v(&[0, 1, 2, 3]), &[1, 2, 4, 8]).unwrap();
    graph.bind_x(&v(&[4, 5])).unwrap();
    graph
}

/// v0 from v1..v4 by way of two partial sums (OpenEC, Fig. 1(c)).
fn tree() -> Ecdag {
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(6), &v(&[1, 2]), &[1, 1]).unwrap();
    graph.join(Vertex(7), &v(&[3, 4]), &[1, 1]).unwrap();
    graph.join(Vertex(0), &v(&[6, 7]), &[1, 1]).unwrap();
    graph.bind_y(Vertex(6), Vertex(2)).unwrap();
    graph.bind_y(Vertex(7), Vertex(4)).unwrap();
    graph
}

#[test]
fn right_graphs_prove_and_a_wrong_coefficient_is_told_in_hex() {
    encode().prove(&generator()).unwrap();
    tree().prove(&generator()).unwrap();
    let mut wrong = Ecdag::new(6, 1);
    wrong.join(Vertex(5), &v(&[0, 1, 2, 3]), &[1, 2, 4, 9]).unwrap();
    let told = DagError::False { vertex: Vertex(5), expected: "01020408".into(), got: "01020409".into() };
    assert_eq!(wrong.prove(&generator()), Err(told));
}

#[test]
fn every_joined_symbol_is_checked_not_only_the_last() {
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &v(&[0, 1, 2]), &[1, 1, 1]).unwrap();
    graph.join(Vertex(3), &v(&[4]), &[0]).unwrap();
    assert!(matches!(graph.prove(&generator()), Err(DagError::False { vertex: Vertex(4), .. })));
}

#[test]
fn virtual_leaves_misshapen_generators_and_oversized_graphs_are_refused() {
    let mut graph = Ecdag::new(6, 1);
    graph.join(Vertex(4), &v(&[0, 9]), &[1, 1]).unwrap();
    assert!(matches!(graph.prove(&generator()), Err(DagError::Invalid { .. })));
    for shape in [(5, 4), (7, 4), (6, 0), (6, 7)] {
        let misshapen = Matrix::zero(shape.0, shape.1);
        assert!(matches!(encode().prove(&misshapen), Err(DagError::Invalid { .. })), "{shape:?}");
        assert!(encode().rows(&misshapen).is_err(), "{shape:?}");
    }
    let huge = Ecdag::new(usize::MAX, usize::MAX);
    assert!(matches!(huge.topological(), Err(DagError::Invalid { .. })));
    assert!(matches!(huge.flatten(), Err(DagError::Invalid { .. })));
}

#[test]
fn rows_carry_partial_sums_and_flattening_finds_the_map() {
    let rows = tree().rows(&generator()).unwrap();
    assert_eq!(rows[&Vertex(6)], [0, 1, 1, 0]);
    assert_eq!(rows[&Vertex(7)], [1, 1, 1, 0]);
    assert_eq!(rows[&Vertex(0)], [1, 0, 0, 0]);
    let (leaves, targets, coefs) = tree().flatten().unwrap();
    assert_eq!((leaves, targets), (v(&[1, 2, 3, 4]), v(&[0])));
    assert_eq!(coefs.as_slice(), [1, 1, 1, 1]);
}

#[test]
fn absent_data_blocks_need_no_reading() {
    let mut short = Ecdag::new(6, 1);
    short.join(Vertex(4), &v(&[0, 1]), &[1, 1]).unwrap();
    short.join(Vertex(5), &v(&[0, 1]), &[1, 2]).unwrap();
    assert!(short.prove(&generator()).is_err());
    short.prove_shortened(&generator(), &[BlockIndex(3), BlockIndex(2)]).unwrap();
    assert!(short.prove_shortened(&generator(), &[BlockIndex(3)]).is_err());
    assert!(matches!(short.prove_shortened(&generator(), &[BlockIndex(4)]), Err(DagError::Invalid { .. })));
}

#[test]
fn zero_leaves_are_dropped_with_all_that_hangs_on_them() {
    let absent = set(&[2, 3]);
    let (short, zero) = encode().without_leaves(&absent).unwrap();
    assert_eq!(zero, []);
    assert_eq!(short.leaves(), v(&[0, 1]));
    assert_eq!(short.binds_x(), encode().binds_x());
    short.prove_shortened(&generator(), &[BlockIndex(2), BlockIndex(3)]).unwrap();

    let (rebound, zero) = tree().without_leaves(&set(&[2])).unwrap();
    assert_eq!(zero, []);
    assert_eq!(rebound.binds_y()[&Vertex(6)], Vertex(1));
    assert_eq!(rebound.binds_y()[&Vertex(7)], Vertex(4));

    let (half, zero) = tree().without_leaves(&set(&[1, 2])).unwrap();
    assert_eq!(zero, []);
    assert_eq!(half.joins()[&Vertex(0)].children, v(&[7]));
    assert!(!half.binds_y().contains_key(&Vertex(6)));

    let (nothing, zero) = tree().without_leaves(&set(&[1, 2, 3, 4])).unwrap();
    assert_eq!(zero, v(&[0]));
    assert!(nothing.joins().is_empty() && nothing.binds_y().is_empty());
    assert!(tree().without_leaves(&set(&[6])).is_err(), "not a leaf");
}
