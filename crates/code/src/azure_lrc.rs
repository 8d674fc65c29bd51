//! Azure's local reconstruction codes: data in groups of r with one XOR parity each, and global
//! parities over all data. A lost data block or local parity is repaired from r blocks.
//!
//! The last group takes the remaining blocks and may be smaller. Where we know how, the coefficients are maximally
//! recoverable: they decode every loss that any coefficients could decode. For up to two globals, within the
//! field's limits, data block j of group i has a = 2^i 2^(17 j), and the globals are the sums of a and of a^2. For
//! three to six globals the coefficients come from a table of search results (`recoverable`), which covers all
//! stripes of k >= n/2 up to n = 14, those in groups of up to 5 up to n = 16, and some up to n = 20. Otherwise a
//! split Cauchy matrix is used, which is maximally recoverable only for a single group. All have the largest
//! possible distance, g + 2.
//!
//! Source of the layout and of the notion of recoverability: Huang et al., "Erasure Coding in Windows
//! Azure Storage", ATC'12. The coefficients are our own.

use std::sync::Arc;

use kintsu_algebra::{Matrix, exp, inv, mul, pow};
use kintsu_dag::BlockIndex;

use crate::distance::{Certificate, Theorem};
use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::rs::systematic;
use crate::{Code, CodeError, recoverable};

pub(crate) const FAMILY: Family = Family {
    name: "azure-lrc",
    keys: &[
        Key::required("n", "blocks in a stripe"),
        Key::required("k", "data blocks in a stripe"),
        Key::required("r", "data blocks in a local group; the last group may be smaller"),
    ],
    about: "Azure's LRC: one XOR parity per group of r data blocks, the rest global parities; most repairs read r blocks",
    example: "azure-lrc:n=16,k=12,r=6",
    make,
};

/// k data blocks in `locals` groups of at most r, and `globals` global parities.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    k: usize,
    r: usize,
    locals: usize,
    globals: usize,
}

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let shape = Shape::new(n, k, params.number("r")?)?;
    let name = format!("azure-lrc:n={n},k={k},r={}", shape.r);
    let (groups, distance) = (shape.groups(), shape.distance());
    let claim =
        |generator| UncheckedCode { name, n, k, w: 1, generator, groups, distance, own: Own::default() };
    if let Some(generator) = shape.tabulated() {
        return claim(generator).make(None);
    }
    let (generator, theorem) = shape.coefficients();
    claim(generator).make(Some(&Certificate { theorem, split: shape.locals }))
}

impl Shape {
    pub(crate) fn new(n: usize, k: usize, r: usize) -> Result<Self, CodeError> {
        if !(1..=k).contains(&r) {
            return Err(CodeError::invalid("r of azure-lrc", format!("1 to k = {k}"), r));
        }
        let locals = k.div_ceil(r);
        if n < k + locals + 1 {
            let expected = format!("n - k - l >= 1 global parity, with l = ceil(k/r) = {locals} local ones");
            return Err(CodeError::invalid("shape of azure-lrc", expected, format!("n={n}, k={k}, r={r}")));
        }
        Ok(Self { k, r, locals, globals: n - k - locals })
    }

    /// The largest possible distance; both kinds of coefficients reach it.
    pub(crate) fn distance(self) -> usize {
        self.globals + 2
    }

    /// The generator with globals from the table, for shapes with more globals than the points below allow.
    fn tabulated(self) -> Option<Matrix> {
        if self.globals <= 2 || self.locals < 2 {
            return None;
        }
        let rows = recoverable::globals(self.k, self.r, self.globals)?;
        Some(self.generator(|global, j| rows[global][j]))
    }

    /// The generator with globals from the table for a code with a parity over them.
    pub(crate) fn summed(self) -> Option<Matrix> {
        let rows = recoverable::summed(self.k, self.r, self.globals)?;
        Some(self.generator(|global, j| rows[global][j]))
    }

    /// The generator, and the theorem that proves the distance from the split local row and the globals.
    pub(crate) fn coefficients(self) -> (Matrix, Theorem) {
        if self.has_coset_points() { self.maximally_recoverable() } else { self.split_cauchy() }
    }

    /// Whether the points 2^i 2^(17 j) give maximal recoverability.
    ///
    /// 2^17 generates the 15 elements of GF(16) other than zero, so group i lies in the coset 2^i of that
    /// subgroup, and there are 17 cosets of 15 points. A local parity repairs one loss in its group. For the
    /// globals a and a^2 there remain sums of two points of a group, or single points where the local parity is
    /// lost. These are never zero and lie in the coset of the group (GF(16) is closed under addition). One such
    /// unknown x only requires that x, or x^2, is not zero. Two unknowns in one group, with or without the local
    /// parity, give Vandermonde's system. One unknown in each of two groups give `[x y; x^2 y^2]`, which is
    /// regular because x and y are in different cosets and so differ.
    fn has_coset_points(self) -> bool {
        self.globals <= 2 && self.r <= 15 && self.locals <= 17
    }

    fn maximally_recoverable(self) -> (Matrix, Theorem) {
        let point = |j: usize| exp(j / self.r + 17 * (j % self.r));
        let generator = self.generator(|global, j| pow(point(j), global + 1));
        (generator, Theorem::Powers { points: (0..self.k).map(point).collect() })
    }

    /// The (g+1) x k Cauchy matrix 1 / (i xor (g+1+j)), columns scaled so that row 0 is all ones; row 0
    /// is split into the local parities and rows 1..=g are the globals.
    fn split_cauchy(self) -> (Matrix, Theorem) {
        let first = self.globals + 1;
        let entry = |i: usize, j: usize| inv((i ^ (first + j)) as u8).expect("i < g + 1 + j");
        let generator = self.generator(|global, j| mul(entry(global + 1, j), (first + j) as u8));
        let x = (0..first).map(|i| i as u8).collect();
        let y = (0..self.k).map(|j| (first + j) as u8).collect();
        (generator, Theorem::Cauchy { x, y })
    }

    /// Identity, XOR local parities, and global parities with entry `global(index, column)`.
    fn generator(self, mut global: impl FnMut(usize, usize) -> u8) -> Matrix {
        let first_global = self.k + self.locals;
        systematic(first_global + self.globals, self.k, |i, j| match i.checked_sub(first_global) {
            None => u8::from(j / self.r == i - self.k),
            Some(index) => global(index, j),
        })
    }

    pub(crate) fn groups(self) -> Vec<Vec<BlockIndex>> {
        let group = |i: usize| {
            let data = i * self.r..((i + 1) * self.r).min(self.k);
            data.chain([self.k + i]).map(|b| BlockIndex(b as u8)).collect()
        };
        (0..self.locals).map(group).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::rs::tests::parity_hex;

    #[test]
    fn two_globals_take_powers_of_coset_points() {
        // 2^17 = 98, 2^18 = 2d; squares 2^34 = 4e, 2^36 = 25.
        let expected = ["01 01 00 00", "00 00 01 01", "01 98 02 2d", "01 4e 04 25"];
        assert_eq!(parity_hex("azure-lrc:n=8,k=4,r=2"), expected);
    }

    #[test]
    fn more_globals_come_from_the_table_where_it_has_them() {
        for (shape, tabulated) in [
            ((15, 8, 4), true),
            ((16, 10, 5), true),
            ((18, 12, 6), true),
            ((20, 10, 5), false),
            ((12, 8, 8), false),
        ] {
            let (n, k, r) = shape;
            assert_eq!(super::Shape::new(n, k, r).unwrap().tabulated().is_some(), tabulated, "{shape:?}");
        }
    }

    #[test]
    fn three_globals_split_a_cauchy_matrix() {
        // y = 4, 5: globals y / (i + y), i = 1..=3, by hand 4/5, 5/4, 4/6, 5/7, 4/7, 5/6.
        let div = |a, b| format!("{:02x}", kintsu_algebra::div(a, b).unwrap());
        let globals = [(4, 5), (5, 4), (4, 6), (5, 7), (4, 7), (5, 6)].map(|(a, b)| div(a, b));
        let (matrix, _) = super::Shape::new(7, 2, 1).unwrap().split_cauchy();
        let rows = (4..7).flat_map(|i| matrix.row(i).iter().map(|c| format!("{c:02x}")).collect::<Vec<_>>());
        assert_eq!(rows.collect::<Vec<_>>(), globals);
    }

    #[test]
    fn large_shapes_fall_back_to_the_split_matrix_and_are_proved() {
        // Groups of more than 15, more than 17 groups, and the largest stripe.
        for (name, distance) in [
            ("azure-lrc:n=36,k=32,r=16", 4),
            ("azure-lrc:n=56,k=36,r=2", 4),
            ("azure-lrc:n=255,k=200,r=20", 47),
            ("azure-lrc:n=255,k=238,r=15", 3),
            ("azure-lrc:n=255,k=237,r=15", 4),
        ] {
            assert_eq!(crate::parse(name).unwrap().distance(), distance, "{name}");
        }
    }
}
