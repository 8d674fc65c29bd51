//! MISER codes: n = 2k blocks of w = k sub-blocks; a lost block is repaired by moving one sub-block from each of
//! the n - 1 others. No MDS code with these parameters moves less.
//!
//! Let D be the k x k matrix with one data block in each row, P a Cauchy matrix, and e an element with e^2 other
//! than 0 and 1. The parities are the rows of `R = P' (D + e D')`, where `'` transposes.
//!
//! **Distance.** k blocks decode everything: where data blocks L are lost and as many parities J are read, the
//! columns of R outside L give `D[L, not L]` (their `D'` part is known, and P on L x J is regular); then the
//! columns in L give `S = D[L, L] + e D[L, L]'`, and `D[L, L] = (S + e S') / (1 + e^2)`.
//!
//! **Data block f** is repaired from sub-block f of every other block: column f of D outside row f is read, and
//! the rest of column f of R is a regular map of row f. The repair reads and moves (2k - 1) / k blocks.
//!
//! **Parity f** is repaired in the same way in other coordinates: with `R* = R P` and `D* = D P` the equations are
//! `D* = c P'^-1 (R* + e R*')`, the same code with the roles of data and parity exchanged. So every other block b
//! sends one sum `b P[., f]` of its sub-blocks. The repair moves (2k - 1) / k blocks, but reads 2k - 1.
//!
//! Source: Shah, Rashmi, Kumar, Ramchandran, "Interference Alignment in Regenerating Codes for Distributed
//! Storage", IEEE Trans. Inf. Theory 2012; for the parities Suh and Ramchandran, "Exact-Repair MDS Code
//! Construction Using Interference Alignment", 2011. The matrix form above, and its proofs, are our own.

use std::sync::Arc;

use kintsu_algebra::{Matrix, inv, mul};
use kintsu_dag::{Ecdag, Vertex};

use crate::decode::join_row;
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "miser",
    keys: &[
        Key::required("n", "blocks in a stripe, twice k"),
        Key::required("k", "data blocks in a stripe, 2 to 8"),
    ],
    about: "MISER: k sub-blocks a block; a data block is repaired by reading one sub-block of every other block",
    example: "miser:n=8,k=4",
    make,
};

/// Larger codes have too many losses to try them all.
const MAX_K: usize = 8;

/// e of the module's head: the inverse of 2.
const E: u8 = 0x8e;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    if n != 2 * k || !(2..=MAX_K).contains(&k) {
        let expected = format!(
            "n = 2k, on which the construction rests, and k from 2 to {MAX_K}, for which every loss of k blocks is tried"
        );
        return Err(CodeError::invalid("shape of miser", expected, format!("n={n}, k={k}")));
    }
    let code = Miser { k };
    let generator = code.generator();
    let data = (0..k).map(|f| code.repair_data(&generator, f));
    let parities = (0..k).map(|f| code.repair_parity(&generator, f));
    let repairs = data.chain(parities).collect::<Result<_, _>>()?;
    let claim = UncheckedCode {
        name: format!("miser:n={n},k={k}"),
        n,
        k,
        w: k,
        generator,
        groups: Vec::new(),
        distance: k + 1,
        own: Own { repairs, ..Own::default() },
    };
    claim.make(None)
}

#[derive(Clone, Copy)]
struct Miser {
    k: usize,
}

impl Miser {
    /// P: data block i, parity j.
    fn p(self, i: usize, j: usize) -> u8 {
        inv(((self.k + j) ^ i) as u8).expect("k + j > i")
    }

    fn generator(self) -> Matrix {
        let k = self.k;
        Matrix::from_fn(2 * k * k, k * k, |row, col| {
            let ((block, c), (i, t)) = ((row / k, row % k), (col / k, col % k));
            let Some(j) = block.checked_sub(k) else { return u8::from(row == col) };
            let straight = if t == c { self.p(i, j) } else { 0 };
            let transposed = if i == c { mul(E, self.p(t, j)) } else { 0 };
            straight ^ transposed
        })
    }

    fn repair_data(self, generator: &Matrix, f: usize) -> Result<Ecdag, CodeError> {
        let k = self.k;
        let mut graph = Ecdag::new(2 * k, k);
        let read: Vec<usize> = self.others(f).map(|block| block * k + f).collect();
        join_block(&mut graph, generator, &read, &generator.select_rows(read.iter().copied()), f)?;
        Ok(graph)
    }

    fn repair_parity(self, generator: &Matrix, f: usize) -> Result<Ecdag, CodeError> {
        let k = self.k;
        let mut graph = Ecdag::new(2 * k, k);
        let coefs: Vec<u8> = (0..k).map(|l| self.p(l, f)).collect();
        let mut sums = Vec::new();
        for block in self.others(k + f) {
            let symbols: Vec<usize> = (block * k..(block + 1) * k).collect();
            let sum = graph.fresh();
            join_row(&mut graph, sum.0 as usize, &symbols, &coefs);
            graph.bind_y(sum, Vertex(symbols[0] as u32)).expect("the first symbol is a child of the new sum");
            sums.push((sum.0 as usize, block));
        }
        let combined = Matrix::from_fn(1, k, |_, l| coefs[l]);
        let mut rows = Matrix::zero(sums.len(), k * k);
        for (at, (_, block)) in sums.iter().enumerate() {
            let symbols = generator.select_rows(block * k..(block + 1) * k);
            let sum = combined.product(&symbols).expect("k coefficients for k symbols");
            rows.row_mut(at).copy_from_slice(sum.row(0));
        }
        let sums: Vec<usize> = sums.into_iter().map(|(sum, _)| sum).collect();
        join_block(&mut graph, generator, &sums, &rows, k + f)?;
        Ok(graph)
    }

    fn others(self, lost: usize) -> impl Iterator<Item = usize> {
        (0..2 * self.k).filter(move |&block| block != lost)
    }
}

/// Joins every symbol of `block` from `vertices`, which carry `rows`; w is taken from the graph.
fn join_block(
    graph: &mut Ecdag,
    generator: &Matrix,
    vertices: &[usize],
    rows: &Matrix,
    block: usize,
) -> Result<(), CodeError> {
    let symbols = block * graph.w()..(block + 1) * graph.w();
    let wanted = generator.select_rows(symbols.clone());
    let Some(combination) = rows.express(&wanted).expect("rows of one width") else {
        let expected = format!("symbols that determine b{block}");
        return Err(CodeError::invalid("repair of miser", expected, format!("{vertices:?}")));
    };
    for (i, symbol) in symbols.enumerate() {
        join_row(graph, symbol, vertices, combination.row(i));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn e_is_the_inverse_of_two() {
        assert_eq!(inv(2), Some(E));
    }

    #[test]
    fn four_two_has_its_formula_by_hand() {
        // P = [1/2 1/3; 1/3 1/2]; p_0[0] = P_00 d_0[0] (1 + e) + P_10 d_1[0] + e P_10 d_0[1].
        let code = crate::parse("miser:n=4,k=2").unwrap();
        let (half, third) = (inv(2).unwrap(), inv(3).unwrap());
        let row = [half ^ mul(E, half), mul(E, third), third, 0];
        assert_eq!(code.generator().row(4), row);
    }

    #[test]
    fn a_data_block_is_repaired_by_sparse_sums() {
        // e d_f[l] = d_l[f] + the k parities; d_f[f] of parities alone.
        let code = crate::parse("miser:n=8,k=4").unwrap();
        let others: Vec<_> = (1..8).map(kintsu_dag::BlockIndex).collect();
        let graph = code.decode(&others, &[kintsu_dag::BlockIndex(0)]).unwrap();
        let terms: Vec<_> = graph.joins().values().map(|join| join.children.len()).collect();
        assert_eq!(terms, [4, 5, 5, 5]);
    }
}
