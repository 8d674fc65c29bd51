//! LESS: alpha + 1 Reed-Solomon codes over overlapping sets of sub-blocks (extended sub-stripes), such that all
//! sub-blocks of a block are in one of them. A lost block is repaired within that one, from few bytes in few pieces.
//!
//! Blocks are dealt to groups 0 to alpha in turn. Extended sub-stripe z < alpha has sub-block z of every block, and
//! all sub-blocks of the blocks in group z. In each of them the n - k checks are the powers 0, 1, ... of the points of
//! its sub-blocks, and sub-block j of block b has the point `e^(b alpha + j)` wherever it is. Summed over all z < alpha, the
//! terms of a sub-block that is in two of them cancel. Left are sub-block z of the blocks of each group z < alpha, and
//! all sub-blocks of group alpha: the last extended sub-stripe, with the same checks. So a block of any group is
//! repaired from its extended sub-stripe: `n + (alpha - 1) |group|` sub-blocks, less the n - k that need not be read.
//!
//! The points of a sub-stripe are distinct, so each is a Reed-Solomon code. That any n - k lost blocks can be
//! decoded depends on the element e. [`ELEMENTS`] has those found by a search; the loss patterns are tried
//! again when the code is made.
//!
//! Source: Cheng, Li, Li, Hu, Lee, "LESS is More for I/O-Efficient Repairs in Erasure-Coded Storage", FAST'26. The
//! elements are our own.

use std::sync::Arc;

use kintsu_algebra::{Matrix, exp};
use kintsu_dag::Ecdag;

use crate::decode::join_row;
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "less",
    keys: &[
        Key::required("n", "blocks in a stripe"),
        Key::required("k", "data blocks in a stripe"),
        Key::required(
            "alpha",
            "sub-blocks in a block, 2 to n - k; with more, a repair reads less in more pieces",
        ),
    ],
    about: "LESS: overlapping Reed-Solomon codes over sub-blocks; any one block is repaired from half to three quarters",
    example: "less:n=14,k=10,alpha=4",
    make,
};

/// n - k, alpha, the logarithm of the element e, and the largest n for which every loss of n - k blocks can be
/// decoded. Of all elements, the first with the largest n; searched up to n = 40. A code for a smaller n is a shortened one.
const ELEMENTS: [(usize, usize, usize, usize); 15] = [
    (2, 2, 1, 40),
    (3, 2, 1, 40),
    (3, 3, 7, 40),
    (4, 2, 13, 23),
    (4, 3, 1, 17),
    (4, 4, 7, 16),
    (5, 2, 9, 13),
    (5, 3, 27, 13),
    (5, 4, 9, 13),
    (5, 5, 3, 11),
    (6, 2, 5, 12),
    (6, 3, 23, 12),
    (6, 4, 5, 11),
    (6, 5, 19, 12),
    (6, 6, 21, 13),
];

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let alpha = params.number("alpha")?;
    if !(2..=n - k).contains(&alpha) {
        let expected = "2 to n - k, the number of checks that repair a block";
        return Err(CodeError::invalid("alpha of less", expected, alpha));
    }
    let known = ELEMENTS.iter().find(|(checks, divided, ..)| (*checks, *divided) == (n - k, alpha));
    let Some(&(.., log, _)) = known.filter(|(.., most)| n <= *most) else {
        let expected = known.map_or("n - k from 2 to 6, and an element for it".to_owned(), |(.., most)| {
            format!("n <= {most}: with n - k = {} and alpha = {alpha} an element is known up to there", n - k)
        });
        return Err(CodeError::invalid("shape of less", expected, format!("n={n}, k={k}, alpha={alpha}")));
    };
    let code = Less { n, k, alpha, log };
    let claim = UncheckedCode {
        name: format!("less:n={n},k={k},alpha={alpha}"),
        n,
        k,
        w: alpha,
        generator: code.generator()?,
        groups: Vec::new(),
        distance: n - k + 1,
        own: Own { repairs: code.repairs()?, ..Own::default() },
    };
    claim.make(None)
}

struct Less {
    n: usize,
    k: usize,
    alpha: usize,
    log: usize,
}

impl Less {
    fn group(&self, block: usize) -> usize {
        block % (self.alpha + 1)
    }

    /// The coefficient of a symbol in a check of any sub-stripe that it is in.
    fn check(&self, check: usize, symbol: usize) -> u8 {
        exp(self.log * symbol % 255 * check % 255)
    }

    /// Whether a symbol is in extended sub-stripe `z` (also the last one, which is the sum of the others).
    fn is_in(&self, z: usize, symbol: usize) -> bool {
        let (group, sub) = (self.group(symbol / self.alpha), symbol % self.alpha);
        group == z || if z < self.alpha { sub == z } else { sub == group }
    }

    fn generator(&self) -> Result<Matrix, CodeError> {
        let (checks, data) = (self.n - self.k, self.k * self.alpha);
        let columns = |from: usize, to: usize| {
            Matrix::from_fn(checks * self.alpha, to - from, |row, column| {
                let (z, symbol) = (row / checks, from + column);
                if self.is_in(z, symbol) { self.check(row % checks, symbol) } else { 0 }
            })
        };
        let parity = solved(&columns(data, self.n * self.alpha), &columns(0, data))?;
        Ok(Matrix::from_fn(self.n * self.alpha, data, |row, column| match row.checked_sub(data) {
            None => u8::from(row == column),
            Some(row) => parity.row(row)[column],
        }))
    }

    /// Repairs of each block. They differ in the blocks that are not read; for each block that the repair can do
    /// without there is a repair that does.
    fn repairs(&self) -> Result<Vec<Ecdag>, CodeError> {
        let mut repairs = Vec::new();
        for lost in 0..self.n {
            let spared = self.n - self.k - self.alpha;
            let mut others: Vec<usize> = (0..self.n).filter(|b| self.group(*b) != self.group(lost)).collect();
            let turns = if spared == 0 { 1 } else { others.len() };
            for _ in 0..turns {
                repairs.push(self.repair(lost, &others[..spared])?);
                others.rotate_left(1);
            }
        }
        Ok(repairs)
    }

    /// The block's symbols from the rest of its extended sub-stripe but for the `spared` blocks, which have one symbol
    /// each in it.
    fn repair(&self, lost: usize, spared: &[usize]) -> Result<Ecdag, CodeError> {
        let z = self.group(lost);
        let of = |block: usize| block * self.alpha..(block + 1) * self.alpha;
        let stripe = (0..self.n * self.alpha).filter(|symbol| self.is_in(z, *symbol));
        let (unknown, read): (Vec<usize>, Vec<usize>) =
            stripe.partition(|symbol| of(lost).contains(symbol) || spared.contains(&(symbol / self.alpha)));
        let columns = |symbols: &[usize]| {
            Matrix::from_fn(self.n - self.k, symbols.len(), |check, at| self.check(check, symbols[at]))
        };
        let rows = solved(&columns(&unknown), &columns(&read))?;
        let mut graph = Ecdag::new(self.n, self.alpha);
        for (at, symbol) in unknown.iter().enumerate().filter(|(_, symbol)| of(lost).contains(symbol)) {
            join_row(&mut graph, *symbol, &read, rows.row(at));
        }
        Ok(graph)
    }
}

/// X of `unknown X = known`: the unknown symbols by the known ones, where all of them together check to zero.
fn solved(unknown: &Matrix, known: &Matrix) -> Result<Matrix, CodeError> {
    let solved = unknown.inverse().and_then(|inverse| inverse.product(known));
    solved.map_err(|error| CodeError::invalid("checks of less", "independent ones", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sub_stripe_checks_to_zero_too() {
        let code = Less { n: 14, k: 10, alpha: 4, log: 7 };
        let generator = code.generator().unwrap();
        for check in 0..4 {
            let mut sum = vec![0; 40];
            for symbol in (0..56).filter(|symbol| code.is_in(4, *symbol)) {
                kintsu_algebra::add_scaled(&mut sum, generator.row(symbol), code.check(check, symbol));
            }
            assert!(sum.iter().all(|&c| c == 0), "check {check}");
        }
    }

    #[test]
    fn the_largest_shapes_are_mds_and_larger_ones_are_refused() {
        for (checks, alpha, _, most) in ELEMENTS.into_iter().filter(|(.., most)| *most <= 17) {
            let name = |n| format!("less:n={n},k={},alpha={alpha}", n - checks);
            assert_eq!(crate::parse(&name(most)).unwrap().distance(), checks + 1);
            let refusal = crate::parse(&name(most + 1)).unwrap_err().to_string();
            assert!(refusal.contains(&format!("expected n <= {most}")), "{refusal}");
        }
    }
}
