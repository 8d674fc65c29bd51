//! Rotated Reed-Solomon: two rows of Reed-Solomon whose parities take some data from the row below, so that the
//! equations of different parities share more of what a repair reads.
//!
//! Row b of parity j (both from 0, m parities, rows modulo w) is the sum of `(2^j)^i d_i[b + 1]` for i < floor(k j
//! / m), and of `(2^j)^i d_i[b]` for the other i. Each equation contains one sub-block of each data block, so a
//! lost data block is repaired from w equations, one for each of its sub-blocks. For each equation any parity can
//! be used; the search tries all m^w choices and keeps the one that reads the fewest sub-blocks. Lost parities are
//! computed from k blocks.
//!
//! We use w = 2 rows, because more rows do not read less (four and eight rows read the same share for all shapes
//! tried, three read more).
//!
//! **Distance.** The rotation R has `(R + 1)^2 = 0`, so a matrix over polynomials in R is regular if and only
//! if it is regular for R = 1, which gives the matrix `(2^j)^i`. For k <= 20 that matrix is MDS up to m = 4, and
//! for larger m only with m = 5, k <= 5 and m = 6, k <= 4. Every loss is tried when a code is constructed, and a code
//! that is not MDS is refused.
//!
//! Source: Khan, Burns, Plank, Pierce, Huang, "Rethinking Erasure Codes for Cloud File Systems", FAST'12,
//! section 5.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_algebra::{Matrix, div, exp};
use kintsu_dag::Ecdag;

use crate::decode::join_row;
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "rotated-rs",
    keys: &[
        Key::required("n", "blocks in a stripe, at least k + 2"),
        Key::required("k", "data blocks in a stripe"),
    ],
    about: "Rotated RS: parities take data of two rows; a data block is repaired from three quarters of RS or less",
    example: "rotated-rs:n=16,k=12",
    make,
};

const W: usize = 2;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    if n < k + 2 || k < 2 {
        let expected = "n - k >= 2 and k >= 2, so that a repair can choose between parities";
        return Err(CodeError::invalid("shape of rotated-rs", expected, format!("n={n}, k={k}")));
    }
    let code = Rotated { k, m: n - k };
    let repairs = (0..k).map(|f| code.repair(f)).collect();
    let claim = UncheckedCode {
        name: format!("rotated-rs:n={n},k={k}"),
        n,
        k,
        w: W,
        generator: code.generator(),
        groups: Vec::new(),
        distance: n - k + 1,
        own: Own { repairs, ..Own::default() },
    };
    claim.make(None)
}

#[derive(Clone, Copy)]
struct Rotated {
    k: usize,
    m: usize,
}

impl Rotated {
    /// The row of data block i that row b of parity j contains.
    fn row(self, i: usize, j: usize, b: usize) -> usize {
        if i < self.k * j / self.m { (b + 1) % W } else { b }
    }

    /// The row of parity j that contains row s of data block i.
    fn row_with(self, i: usize, j: usize, s: usize) -> usize {
        if i < self.k * j / self.m { (s + W - 1) % W } else { s }
    }

    fn generator(self) -> Matrix {
        Matrix::from_fn((self.k + self.m) * W, self.k * W, |row, col| {
            let ((block, b), (i, s)) = ((row / W, row % W), (col / W, col % W));
            match block.checked_sub(self.k) {
                None => u8::from(row == col),
                Some(j) if self.row(i, j, b) == s => exp(i * j),
                Some(_) => 0,
            }
        })
    }

    /// The symbols that give row s of data block f with parity j: the parity's, then those of the other data.
    fn equation(self, f: usize, j: usize, s: usize) -> Vec<usize> {
        let b = self.row_with(f, j, s);
        let others = (0..self.k).filter(|&i| i != f).map(|i| i * W + self.row(i, j, b));
        [(self.k + j) * W + b].into_iter().chain(others).collect()
    }

    fn repair(self, f: usize) -> Ecdag {
        let mut graph = Ecdag::new(self.k + self.m, W);
        for (s, j) in self.parities_for(f).into_iter().enumerate() {
            let scale = |coef: u8| div(coef, exp(f * j)).expect("powers of two are not zero");
            let others = (0..self.k).filter(|&i| i != f).map(|i| scale(exp(i * j)));
            let coefs: Vec<u8> = [scale(1)].into_iter().chain(others).collect();
            join_row(&mut graph, f * W + s, &self.equation(f, j, s), &coefs);
        }
        graph
    }

    /// The parity to take for each row of data block f so that the fewest symbols are read; of equal choices the
    /// first in lexicographic order.
    fn parities_for(self, f: usize) -> [usize; W] {
        let choices = (0..self.m).flat_map(|first| (0..self.m).map(move |second| [first, second]));
        let read = |choice: &[usize; W]| {
            let equations = choice.iter().enumerate().flat_map(|(s, &j)| self.equation(f, j, s));
            equations.collect::<BTreeSet<_>>().len()
        };
        choices.min_by_key(read).expect("two parities or more")
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn parities_after_the_first_take_data_of_the_row_below() {
        // k = 4, m = 2: parity 1 rotates data blocks 0 and 1; columns are d_0[0] d_0[1] d_1[0] ...
        let code = crate::parse("rotated-rs:n=6,k=4").unwrap();
        let rows: Vec<_> = (8..12).map(|row| code.generator().row(row).to_vec()).collect();
        let expected = [
            [1, 0, 1, 0, 1, 0, 1, 0],
            [0, 1, 0, 1, 0, 1, 0, 1],
            [0, 1, 0, 2, 4, 0, 8, 0],
            [1, 0, 2, 0, 0, 4, 0, 8],
        ];
        assert_eq!(rows, expected);
    }
}
