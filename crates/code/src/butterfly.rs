//! Butterfly codes: two parities, XOR only, w = 2^(k-1) sub-blocks; any one block is repaired by moving half of
//! every other block. No MDS code with two parities moves less.
//!
//! Parity H is the XOR of the data, row by row. Parity B is the sum of `M_l d_l` over data blocks l, where
//! for k blocks of w = 2h rows, with J the mirror image of rows, and M' those of k - 1 blocks of h rows,
//!
//! ```text
//! M_0 = J        M_l = | M'_(l-1)   0              |
//!                      | J          J M'_(l-1) J   |
//! ```
//!
//! **Distance 3.** Any two lost blocks can be decoded if all `M_l` (a data block and a parity) and all `M_l + M_i`
//! (two data blocks) are regular. By induction `M_l M_l = 1`; `M_0 + M_l` is triangular with `M'_(l-1)` and its
//! mirror image on the diagonal, and `M_l + M_i` with `M'_(l-1) + M'_(i-1)`.
//!
//! **Repairs** read a set S of half the rows of the data and of H, and a set T of rows of B ([`halves`]). Rows S
//! of a lost data block follow from H; each row of B in T then gives one more row of the block. To repair H, its
//! lower half is the XOR of the lower halves of the data, and its upper half comes from the lower half of B. To
//! repair B, each data block l except the first sends its part v_l of the lower half of B. (Computing it takes all
//! of that block, so the repair reads k blocks in total and moves (k + 1) / 2.) As `M' M' = 1`, the upper half of
//! B is the mirror image of the lower half of H plus the sum of `M'_(l-1) v_l`.
//!
//! Source: Pamies-Juarez, Blagojevic, Mateescu, Guyot, En Gad, Bandic, "Opening the Chrysalis: On the Real Repair
//! Performance of MSR Codes", FAST'16; the construction is that of En Gad et al., ISIT 2013.

use std::sync::Arc;

use kintsu_algebra::Matrix;
use kintsu_dag::{Ecdag, Vertex};

use crate::linear::{Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};

pub(crate) const FAMILY: Family = Family {
    name: "butterfly",
    keys: &[
        Key::required("n", "blocks in a stripe, k + 2"),
        Key::required("k", "data blocks in a stripe, 2 to 8"),
    ],
    about: "Butterfly: two parities and XOR only; any one block is repaired by moving half of every other block",
    example: "butterfly:n=6,k=4",
    make,
};

/// At k = 8 a block has 128 sub-blocks. With 256, a cell would be a megabyte and a set of rows would need more
/// than 128 bits.
const MAX_K: usize = 8;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    if n != k + 2 || !(2..=MAX_K).contains(&k) {
        let expected = format!(
            "n = k + 2, on which the construction rests, and k from 2 to {MAX_K}, as there are 2^(k-1) sub-blocks in a block"
        );
        return Err(CodeError::invalid("shape of butterfly", expected, format!("n={n}, k={k}")));
    }
    let code = Butterfly { k, w: 1 << (k - 1), maps: maps(k) };
    let mut repairs: Vec<_> = (0..k).map(|f| code.repair_data(f)).collect();
    repairs.extend([code.repair_horizontal(), code.repair_butterfly()]);
    let claim = UncheckedCode {
        name: format!("butterfly:n={n},k={k}"),
        n,
        k,
        w: code.w,
        generator: code.generator(),
        groups: Vec::new(),
        distance: 3,
        own: Own { repairs, ..Own::default() },
    };
    claim.make(None)
}

/// A set of rows of one block: row r is bit r.
type Rows = u128;

/// The mirror image: row r becomes row w - 1 - r.
fn mirror(rows: Rows, w: usize) -> Rows {
    rows.reverse_bits() >> (128 - w)
}

fn each(rows: Rows) -> impl Iterator<Item = usize> {
    (0..128).filter(move |r| rows >> r & 1 == 1)
}

/// M of each data block: for each row of B, the rows of the block that it contains.
fn maps(k: usize) -> Vec<Vec<Rows>> {
    if k == 1 {
        return vec![vec![1]];
    }
    let (h, w) = (1 << (k - 2), 1 << (k - 1));
    let extend = |inner: Vec<Rows>| -> Vec<Rows> {
        let lower: Vec<Rows> = (0..h).rev().map(|r| 1 << r | mirror(inner[r], w)).collect();
        [inner, lower].concat()
    };
    let first = (0..w).rev().map(|r| 1 << r).collect();
    [first].into_iter().chain(maps(k - 1).into_iter().map(extend)).collect()
}

/// The rows (S, T) to read for data block f of k >= 2: S of the other data and H, T of B.
///
/// The last block reads even rows, and odd rows of B. The first reads the upper half. The others read the rows of
/// the inner construction, in both halves.
fn halves(k: usize, f: usize) -> (Rows, Rows) {
    let w = 1 << (k - 1);
    if f == k - 1 {
        let even = (0..w).step_by(2).fold(0, |rows, r| rows | 1 << r);
        return (even, even << 1);
    }
    if f == 0 {
        let upper = (1 << (w / 2)) - 1;
        return (upper, upper);
    }
    let (inner, _) = halves(k - 1, f - 1);
    let both = inner | mirror(inner, w);
    (both, both)
}

struct Butterfly {
    k: usize,
    w: usize,
    maps: Vec<Vec<Rows>>,
}

impl Butterfly {
    fn generator(&self) -> Matrix {
        let (k, w) = (self.k, self.w);
        Matrix::from_fn((k + 2) * w, k * w, |row, col| {
            let ((block, r), (l, s)) = ((row / w, row % w), (col / w, col % w));
            match block.checked_sub(k) {
                None => u8::from(row == col),
                Some(0) => u8::from(r == s),
                Some(_) => (self.maps[l][r] >> s & 1) as u8,
            }
        })
    }

    fn graph(&self) -> Ecdag {
        Ecdag::new(self.k + 2, self.w)
    }

    fn symbol(&self, block: usize, row: usize) -> Vertex {
        Vertex((block * self.w + row) as u32)
    }

    /// `parent` = the XOR of these rows of blocks.
    fn join(&self, graph: &mut Ecdag, parent: Vertex, terms: impl IntoIterator<Item = (usize, Rows)>) {
        let rows = terms.into_iter().flat_map(|(block, rows)| each(rows).map(move |r| (block, r)));
        let children: Vec<_> = rows.map(|(block, r)| self.symbol(block, r)).collect();
        xor(graph, parent, &children);
    }

    fn repair_data(&self, f: usize) -> Ecdag {
        let (horizontal, butterfly) = (self.k, self.k + 1);
        let others = || (0..self.k).filter(|&l| l != f);
        let (rows, rows_of_b) = halves(self.k, f);
        let mut graph = self.graph();
        for r in each(rows) {
            let terms = others().chain([horizontal]).map(|block| (block, 1 << r));
            self.join(&mut graph, self.symbol(f, r), terms);
        }
        for r in each(rows_of_b) {
            // Row r of B contains rows of f that H gives; computing these takes the same rows of all other blocks
            // and of H.
            let given = self.maps[f][r] & rows;
            let found = (self.maps[f][r] & !rows).trailing_zeros() as usize;
            let terms = others().map(|l| (l, self.maps[l][r] ^ given));
            let terms = terms.chain([(horizontal, given), (butterfly, 1 << r)]);
            self.join(&mut graph, self.symbol(f, found), terms);
        }
        graph
    }

    fn repair_horizontal(&self) -> Ecdag {
        let (horizontal, butterfly, h) = (self.k, self.k + 1, self.w / 2);
        let mut graph = self.graph();
        for r in h..self.w {
            let opposite = self.w - 1 - r;
            self.join(&mut graph, self.symbol(horizontal, r), (0..self.k).map(|l| (l, 1 << r)));
            let lower = (0..self.k).map(|l| (l, self.maps[l][r] >> h << h));
            let terms = lower.chain([(butterfly, 1 << r)]);
            self.join(&mut graph, self.symbol(horizontal, opposite), terms);
        }
        graph
    }

    fn repair_butterfly(&self) -> Ecdag {
        let (horizontal, butterfly, h) = (self.k, self.k + 1, self.w / 2);
        let mut graph = self.graph();
        // What each data block except the first adds to row w - 1 - r of B, for r < h.
        let mut sums = vec![Vec::new()];
        for l in 1..self.k {
            let sum = |r: usize| {
                let sum = graph.fresh();
                self.join(&mut graph, sum, [(l, self.maps[l][self.w - 1 - r])]);
                graph.bind_y(sum, self.symbol(l, r)).expect("row r of block l is in its sum for row r");
                sum
            };
            sums.push((0..h).map(sum).collect());
        }
        for r in 0..h {
            let opposite = self.w - 1 - r;
            let parts = sums[1..].iter().map(|of| of[r]).chain([self.symbol(0, r)]);
            let lower: Vec<_> = parts.collect();
            let parts = (1..self.k).flat_map(|l| each(self.maps[l][r]).map(move |s| (l, s)));
            let upper: Vec<_> =
                parts.map(|(l, s)| sums[l][s]).chain([self.symbol(horizontal, opposite)]).collect();
            xor(&mut graph, self.symbol(butterfly, opposite), &lower);
            xor(&mut graph, self.symbol(butterfly, r), &upper);
        }
        graph
    }
}

fn xor(graph: &mut Ecdag, parent: Vertex, children: &[Vertex]) {
    graph.join(parent, children, &vec![1; children.len()]).expect("rows of distinct blocks, joined once");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_two_has_its_formula_by_hand() {
        // B = (a1 + b0, a0 + b0 + b1); columns a0 a1 b0 b1.
        let code = crate::parse("butterfly:n=4,k=2").unwrap();
        let rows: Vec<_> = (4..8).map(|row| code.generator().row(row).to_vec()).collect();
        assert_eq!(rows, [[1, 0, 1, 0], [0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 1, 1]]);
    }

    #[test]
    fn every_repair_reads_half_and_each_row_of_b_gives_one_more() {
        for k in 2..=MAX_K {
            let (w, maps) = (1 << (k - 1), maps(k));
            for f in 0..k {
                let (rows, rows_of_b) = halves(k, f);
                assert_eq!((rows.count_ones(), rows_of_b.count_ones()), (w / 2, w / 2), "{k} {f}");
                for r in each(rows_of_b) {
                    assert_eq!((maps[f][r] & !rows).count_ones(), 1, "{k} {f} {r}");
                    assert!((0..k).all(|l| l == f || maps[l][r] & !rows == 0), "{k} {f} {r}");
                }
            }
        }
    }

    #[test]
    fn the_largest_is_proved() {
        let code = crate::parse("butterfly:n=10,k=8").unwrap();
        assert_eq!((code.w(), code.distance()), (128, 3));
    }
}
