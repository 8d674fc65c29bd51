//! Proof of a code's distance on its actual matrix: by a theorem, or by trying all loss patterns.
//!
//! A [`Certificate`] names a theorem and its parameters; whether the matrix meets the conditions is computed,
//! never assumed. Without a certificate every loss of `distance - 1` blocks is tried.

use std::collections::BTreeSet;

use kintsu_algebra::{Matrix, add, inv, mul, pow};
use kintsu_dag::BlockIndex;

use crate::{CodeError, clay};

/// Why a systematic matrix has the distance it claims; w = 1 unless a theorem says otherwise.
///
/// For the theorems of MDS matrices the parity rows `0..split` are a split row: their sum is one parity row of a
/// shorter code, and the theorem shows that code to be MDS. A nonzero codeword of the split code has at least the
/// weight of its image in the shorter code (a nonzero sum has a nonzero summand). So the distance is at least that
/// of the shorter code: its rows minus k, plus 1.
#[derive(Debug)]
pub(crate) struct Certificate {
    pub(crate) theorem: Theorem,
    pub(crate) split: usize,
}

/// Conditions under which any k rows of a systematic k-column matrix are independent (MDS):
/// every square submatrix of the parity rows is invertible.
#[derive(Debug)]
pub(crate) enum Theorem {
    /// Parity i, column j is `u_i v_j / (x_i + y_j)`, all x and y distinct, u and v not zero: a square
    /// submatrix has Cauchy's determinant, times some u and v. (A Vandermonde matrix made systematic is
    /// of this form too: parity i, column j is a Lagrange basis polynomial of the points y, at x_i.)
    Cauchy { x: Vec<u8>, y: Vec<u8> },
    /// Parity i, column j is `1 / q_ij`, where q has rank 2 at most and no zero among its entries and its minors
    /// of order 2: `q_ij = a_i c_j + b_i d_j`, all points `(a_i : b_i)` different and all `(c_j : d_j)`, and a
    /// square submatrix has Cauchy's determinant, written homogeneously. It is Cauchy's theorem without its
    /// parameters, for matrices of unknown origin (Roth and Seroussi, 1985, characterise generalised Reed-Solomon
    /// codes in this way).
    Reciprocals,
    /// Up to three parity rows 1, a, a^2, the a of the columns distinct and not zero. The minors are
    /// `a`, `a + b`, `(a + b)^2`, `ab(a + b)` and Vandermonde's of order 3: squaring is
    /// injective in characteristic 2.
    Powers { points: Vec<u8> },
    /// Not about MDS matrices. For every codeword c and every i < `checks`, `sum_b u_b a_b^i c_b = 0` over the
    /// blocks b; u is nonzero for data, and the points a of all blocks with nonzero u are distinct. On those
    /// blocks a nonzero codeword is a codeword of a generalised Reed-Solomon code with `checks` checks, so its
    /// weight is above `checks` (any `checks` columns of the check matrix are Vandermonde's).
    Checks { points: Vec<u8>, multipliers: Vec<u8>, checks: usize },
    /// A Clay code of this shape, w > 1; see [`clay::Shape::distance`].
    Coupled(clay::Shape),
    /// Sub-block s of every block is a combination of the data's sub-blocks s, the same combination for all s,
    /// plus any terms from sub-blocks before s. After a loss, the remaining blocks decode sub-blocks 0, then, with
    /// these known, sub-blocks 1, and so on. So the distance is at least that of the code of that combination, and
    /// `base` is the certificate for that code.
    Piggybacks { w: usize, base: Box<Certificate> },
}

impl Certificate {
    /// The distance that the theorem gives for this matrix; `None` when a condition fails.
    fn distance(&self, generator: &Matrix) -> Option<usize> {
        if let Theorem::Coupled(shape) = &self.theorem {
            return shape.distance(generator);
        }
        if let Theorem::Checks { points, multipliers, checks } = &self.theorem {
            return checks_hold(generator, points, multipliers, *checks).then_some(checks + 1);
        }
        if let Theorem::Piggybacks { w, base } = &self.theorem {
            return base.distance(&carrying(generator, *w)?);
        }
        let k = generator.cols();
        let split = k + self.split.max(1);
        let whole = Matrix::from_fn(generator.rows() + k + 1 - split, k, |i, j| match i {
            _ if i < k => generator.row(i)[j],
            _ if i == k => (k..split).fold(0, |sum, l| add(sum, generator.row(l)[j])),
            _ => generator.row(i + split - k - 1)[j],
        });
        self.theorem.makes_mds(&whole).then(|| whole.rows() - k + 1)
    }
}

impl Theorem {
    /// Whether the conditions hold for this matrix, `rows x k`, identity on top.
    fn makes_mds(&self, matrix: &Matrix) -> bool {
        let k = matrix.cols();
        let parities = matrix.rows() - k;
        let all = |holds: &dyn Fn(usize, usize) -> bool| (0..parities).all(|i| (0..k).all(|j| holds(i, j)));
        match self {
            Self::Cauchy { x, y } => {
                // p_ij (x_i + y_j) = u_i v_j: a matrix of rank 1 without zeros.
                let uv = |i: usize, j: usize| mul(matrix.row(k + i)[j], add(x[i], y[j]));
                x.len() == parities
                    && y.len() == k
                    && distinct(x.iter().chain(y))
                    && all(&|i, j| uv(i, j) != 0 && mul(uv(i, j), uv(0, 0)) == mul(uv(i, 0), uv(0, j)))
            }
            Self::Reciprocals => reciprocals_fit(matrix),
            Self::Powers { points } => {
                parities <= 3
                    && points.len() == k
                    && distinct(points.iter().chain(&[0]))
                    && all(&|i, j| matrix.row(k + i)[j] == pow(points[j], i))
            }
            Self::Checks { .. } | Self::Coupled(_) | Self::Piggybacks { .. } => false,
        }
    }
}

/// The conditions of [`Theorem::Reciprocals`]. A minor of order 2 is zero when two rows have the same ratio in two
/// columns.
fn reciprocals_fit(matrix: &Matrix) -> bool {
    let k = matrix.cols();
    let parity = matrix.select_rows(k..matrix.rows());
    let Some(q) = parity.as_slice().iter().map(|&p| inv(p)).collect::<Option<Vec<u8>>>() else {
        return false;
    };
    let row = |i: usize| &q[i * k..(i + 1) * k];
    let ratios_differ = |i: usize, l: usize| {
        let mut seen = [false; 256];
        let mut ratios = row(i).iter().zip(parity.row(l)).map(|(&a, &b)| usize::from(mul(a, b)));
        ratios.all(|ratio| !std::mem::replace(&mut seen[ratio], true))
    };
    (0..parity.rows()).all(|i| (0..i).all(|l| ratios_differ(i, l)))
        && Matrix::from_fn(parity.rows(), k, |i, j| row(i)[j]).rank() <= 2
}

/// The conditions of [`Theorem::Checks`].
fn checks_hold(generator: &Matrix, points: &[u8], multipliers: &[u8], checks: usize) -> bool {
    let (n, k) = (generator.rows(), generator.cols());
    let counted = || (0..n).filter(|&b| multipliers[b] != 0);
    let zero = |i: usize, column: usize| {
        let term = |b: usize| mul(mul(multipliers[b], pow(points[b], i)), generator.row(b)[column]);
        counted().fold(0, |sum, b| add(sum, term(b))) == 0
    };
    points.len() == n
        && multipliers.len() == n
        && multipliers[..k].iter().all(|&u| u != 0)
        && distinct(counted().map(|b| &points[b]))
        && (0..checks).all(|i| (0..k).all(|column| zero(i, column)))
}

/// The combination of [`Theorem::Piggybacks`], one row for each block, if the matrix has that form.
fn carrying(generator: &Matrix, w: usize) -> Option<Matrix> {
    let (n, k) = (generator.rows() / w, generator.cols() / w);
    let base = Matrix::from_fn(n, k, |i, j| generator.row(i * w)[j * w]);
    let fits = |row: usize, col: usize| match col % w {
        of if of == row % w => generator.row(row)[col] == base.row(row / w)[col / w],
        of => of < row % w || generator.row(row)[col] == 0,
    };
    let all = (0..n * w).all(|row| (0..k * w).all(|col| fits(row, col)));
    (all && n * w == generator.rows() && k * w == generator.cols()).then_some(base)
}

fn distinct<'a>(elements: impl IntoIterator<Item = &'a u8>) -> bool {
    let mut seen = BTreeSet::new();
    elements.into_iter().all(|e| seen.insert(e))
}

/// The most byte multiply-adds of an exhaustive check: some tenths of a second.
const BUDGET: usize = 1 << 28;

/// Checks that a systematic `generator` (blocks of `w` rows) decodes any `distance - 1` lost blocks.
///
/// # Errors
/// `Distance` with a loss that cannot be decoded; `Unsupported` when the budget ends first.
pub(crate) fn check(
    name: &str,
    generator: &Matrix,
    w: usize,
    distance: usize,
    certificate: Option<&Certificate>,
) -> Result<(), CodeError> {
    if certificate.and_then(|c| c.distance(generator)).is_some_and(|proved| proved >= distance) {
        return Ok(());
    }
    let columns = parity_check_columns(generator);
    let mut search = Search { w, lost: Vec::new(), levels: vec![Vec::new(); distance], budget: BUDGET };
    let height = generator.rows() - generator.cols();
    match search.descend(&columns, height, 0, distance - 1) {
        Ok(()) => Ok(()),
        Err(Stop::Found) => Err(CodeError::Distance {
            name: name.into(),
            claimed: distance,
            lost: search.lost.iter().map(|&b| BlockIndex(b as u8)).collect(),
        }),
        Err(Stop::Budget) => Err(CodeError::Unsupported {
            name: name.into(),
            expected: "a size at which every loss pattern can be tried, or a matrix with a known theorem"
                .into(),
            got: format!("{} blocks and distance {distance}", generator.rows() / w),
        }),
    }
}

/// The columns of the parity-check matrix `[P | 1]` one after the other, where P are the parity rows.
/// Lost blocks can be decoded exactly when their columns are independent.
fn parity_check_columns(generator: &Matrix) -> Vec<u8> {
    let (rows, cols) = (generator.rows(), generator.cols());
    let parity = |i: usize, j: usize| {
        if j < cols { generator.row(cols + i)[j] } else { u8::from(i + cols == j) }
    };
    (0..rows).flat_map(|j| (0..rows - cols).map(move |i| parity(i, j))).collect()
}

enum Stop {
    Found,
    Budget,
}

/// Depth-first search for a dependent set of blocks. Each level holds the columns of later blocks reduced by those
/// of the chosen ones, whose pivot coordinates are gone: a level is smaller in both directions than the one above,
/// and the last level only needs a search for nonzero vectors.
struct Search {
    w: usize,
    lost: Vec<usize>,
    levels: Vec<Vec<u8>>,
    budget: usize,
}

impl Search {
    /// Tries all choices of `left` blocks among those of `columns` (vectors of `height`), the first of
    /// which is block `first`. On `Found`, `lost` is the dependent set.
    fn descend(&mut self, columns: &[u8], height: usize, first: usize, left: usize) -> Result<(), Stop> {
        let block_bytes = height * self.w;
        let count = columns.len().checked_div(block_bytes).unwrap_or(0);
        if left == 0 {
            return Ok(());
        }
        let mut level = std::mem::take(&mut self.levels[left]);
        for i in 0..(count + 1).saturating_sub(left) {
            self.lost.push(first + i);
            let end = if left == 1 { (i + 1) * block_bytes } else { columns.len() };
            level.clear();
            level.extend_from_slice(&columns[i * block_bytes..end]);
            let height = self.take_block(&mut level, height)?;
            self.descend(&level, height, first + i + 1, left - 1)?;
            self.lost.pop();
        }
        self.levels[left] = level;
        Ok(())
    }

    /// Removes the first w vectors from `columns` by elimination, with their pivot coordinates;
    /// returns the new height.
    fn take_block(&mut self, columns: &mut Vec<u8>, mut height: usize) -> Result<usize, Stop> {
        for _ in 0..self.w {
            let cost = columns.len();
            self.budget = self.budget.checked_sub(cost).ok_or(Stop::Budget)?;
            let pivot = columns[..height].iter().position(|&c| c != 0).ok_or(Stop::Found)?;
            let scale = inv(columns[pivot]).expect("a pivot is not zero");
            let (first, others) = columns.split_at_mut(height);
            for vector in others.chunks_exact_mut(height) {
                let factor = mul(vector[pivot], scale);
                if factor != 0 {
                    vector.iter_mut().zip(&*first).for_each(|(v, &f)| *v ^= mul(factor, f));
                }
            }
            let mut at = 0..columns.len();
            columns.retain(|_| at.next().is_some_and(|i| i >= height && i % height != pivot));
            height -= 1;
        }
        Ok(height)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spoilt(matrix: &Matrix) -> Matrix {
        let mut spoilt = matrix.clone();
        spoilt.row_mut(matrix.rows() - 1)[1] ^= 1;
        spoilt
    }

    #[test]
    fn each_theorem_accepts_its_matrix_and_no_other() {
        let cauchy = Theorem::Cauchy { x: vec![4, 5, 6], y: vec![0, 1, 2, 3] };
        let powers = Theorem::Powers { points: vec![1, 2, 4, 8] };
        for (suffix, theorem, other) in [
            ("", &cauchy, &powers),
            (",matrix=vandermonde", &cauchy, &powers),
            (",matrix=isal", &powers, &cauchy),
        ] {
            let code = crate::parse(&format!("rs:n=7,k=4{suffix}")).unwrap();
            assert!(theorem.makes_mds(code.generator()), "{}", code.name());
            assert!(!other.makes_mds(code.generator()), "{}", code.name());
            assert!(!theorem.makes_mds(&spoilt(code.generator())), "{}", code.name());
        }
    }

    #[test]
    fn a_scaled_cauchy_matrix_is_accepted_and_repeated_points_are_not() {
        let code = crate::parse("rs:n=7,k=4").unwrap();
        let scaled = Matrix::from_fn(7, 4, |i, j| {
            let c = code.generator().row(i)[j];
            if i < 4 { c } else { mul(c, mul(i as u8, j as u8 + 7)) }
        });
        assert!(Theorem::Cauchy { x: vec![4, 5, 6], y: vec![0, 1, 2, 3] }.makes_mds(&scaled));
        assert!(!Theorem::Cauchy { x: vec![4, 5, 5], y: vec![0, 1, 2, 3] }.makes_mds(&scaled));
        assert!(!Theorem::Cauchy { x: vec![4, 5], y: vec![0, 1, 2, 3] }.makes_mds(&scaled));
        assert!(!Theorem::Powers { points: vec![1, 2, 2, 8] }.makes_mds(&scaled));
    }

    #[test]
    fn reciprocals_need_no_parameters() {
        for name in
            ["rs:n=7,k=4", "rs:n=7,k=4,matrix=vandermonde", "rs:n=250,k=200", "rs:n=3,k=2", "replication:n=5"]
        {
            let code = crate::parse(name).unwrap();
            assert!(Theorem::Reciprocals.makes_mds(code.generator()), "{name}");
        }
        let code = crate::parse("rs:n=14,k=10").unwrap();
        let scaled = Matrix::from_fn(14, 10, |i, j| {
            let c = code.generator().row(i)[j];
            if i < 10 { c } else { mul(c, mul(i as u8, j as u8 + 7)) }
        });
        assert!(Theorem::Reciprocals.makes_mds(&scaled));
        assert!(!Theorem::Reciprocals.makes_mds(&spoilt(&scaled)));
        for other in ["rs:n=7,k=4,matrix=isal", "azure-lrc:n=8,k=4,r=2"] {
            assert!(!Theorem::Reciprocals.makes_mds(crate::parse(other).unwrap().generator()), "{other}");
        }
    }

    /// Random (6, 3) codes over sixteen elements: an exhaustive check confirms that those accepted by the theorem
    /// are MDS.
    #[test]
    fn reciprocals_never_accept_what_is_not_mds() {
        let mut state = 1u32;
        let mut accepted = 0;
        for _ in 0..20_000 {
            let matrix = Matrix::from_fn(6, 3, |i, j| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                if i < 3 { u8::from(i == j) } else { (state >> 28) as u8 }
            });
            if Theorem::Reciprocals.makes_mds(&matrix) {
                accepted += 1;
                assert!(check("any", &matrix, 1, 4, None).is_ok(), "{matrix:?}");
            }
        }
        assert!(accepted > 10, "{accepted}");
    }

    #[test]
    fn a_false_certificate_is_no_help() {
        let code = crate::parse("rs:n=7,k=4").unwrap();
        let certificate =
            Certificate { theorem: Theorem::Cauchy { x: vec![4, 5, 6], y: vec![0, 1, 2, 3] }, split: 1 };
        assert!(check("good", code.generator(), 1, 4, Some(&certificate)).is_ok());
        let mut twice = code.generator().clone();
        let copy = twice.row(5).to_vec();
        twice.row_mut(6).copy_from_slice(&copy);
        let refused = check("twice", &twice, 1, 4, Some(&certificate));
        assert!(matches!(refused, Err(CodeError::Distance { claimed: 4, .. })), "{refused:?}");
    }

    #[test]
    fn piggybacks_may_only_come_from_earlier_sub_blocks() {
        let code = crate::parse("hitchhiker-xor:n=7,k=4").unwrap();
        let base = || Box::new(Certificate { theorem: crate::rs::cauchy_theorem(7, 4), split: 1 });
        let certificate = Certificate { theorem: Theorem::Piggybacks { w: 2, base: base() }, split: 1 };
        assert_eq!(certificate.distance(code.generator()), Some(4));
        for (row, col) in [(8, 1), (9, 1), (10, 2), (13, 7)] {
            let mut spoilt = code.generator().clone();
            spoilt.row_mut(row)[col] ^= 2;
            assert_eq!(certificate.distance(&spoilt), None, "{row} {col}");
        }
        let mut other = code.generator().clone();
        other.row_mut(9)[0] = 7;
        assert_eq!(certificate.distance(&other), Some(4));
        let odd = Certificate { theorem: Theorem::Piggybacks { w: 3, base: base() }, split: 1 };
        assert_eq!(odd.distance(code.generator()), None);
    }

    #[test]
    fn a_split_row_keeps_the_distance_of_the_whole() {
        // One local parity for each data block and one global: distance 3 from the (k + 2, k) code.
        let lrc = crate::parse("azure-lrc:n=9,k=4,r=1").unwrap();
        let points = (0..4).map(kintsu_algebra::exp).collect();
        let certificate = Certificate { theorem: Theorem::Powers { points }, split: 4 };
        assert_eq!(certificate.distance(lrc.generator()), Some(3));
        assert_eq!(Certificate { split: 3, ..certificate }.distance(lrc.generator()), None);
    }
}
