//! Dense matrices over GF(2^8), row-major, of the few hundred rows that a code needs.

use crate::gf::{add_scaled, inv, mul};

/// The errors of matrix operations.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MatrixError {
    /// Shapes that do not fit the operation.
    #[error("expected {expected}, got {got}")]
    Shape {
        /// The shape the operation needs.
        expected: String,
        /// The shape that was given.
        got: String,
    },
    /// A square matrix without an inverse.
    #[error("expected an invertible {size} x {size} matrix, got one of rank {rank}")]
    Singular {
        /// Rows and columns.
        size: usize,
        /// Its rank, less than `size`.
        rank: usize,
    },
}

/// A `rows x cols` matrix over GF(2^8), stored row by row.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<u8>,
}

impl Matrix {
    /// The all-zero matrix.
    pub fn zero(rows: usize, cols: usize) -> Self {
        Self { rows, cols, data: vec![0; rows * cols] }
    }

    /// The `size x size` identity.
    pub fn identity(size: usize) -> Self {
        Self::from_fn(size, size, |i, j| u8::from(i == j))
    }

    /// The matrix with entry `f(row, column)`.
    pub fn from_fn(rows: usize, cols: usize, mut f: impl FnMut(usize, usize) -> u8) -> Self {
        let mut data = Vec::with_capacity(rows * cols);
        for i in 0..rows {
            data.extend((0..cols).map(|j| f(i, j)));
        }
        Self { rows, cols, data }
    }

    /// A matrix from row-major entries.
    ///
    /// # Errors
    /// `Shape` when `data` does not hold `rows * cols` entries.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<u8>) -> Result<Self, MatrixError> {
        if data.len() != rows * cols {
            return Err(MatrixError::Shape {
                expected: format!("{} entries for {rows} x {cols}", rows * cols),
                got: format!("{} entries", data.len()),
            });
        }
        Ok(Self { rows, cols, data })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All entries, row-major.
    pub fn as_slice(&self) -> &[u8] {
        &self.data
    }

    /// One row, of `cols` entries.
    ///
    /// # Panics
    /// When `i >= rows`.
    pub fn row(&self, i: usize) -> &[u8] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// One row, mutable.
    ///
    /// # Panics
    /// When `i >= rows`.
    pub fn row_mut(&mut self, i: usize) -> &mut [u8] {
        &mut self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// The rows with the given indices, in that order.
    ///
    /// # Panics
    /// When an index is out of range.
    pub fn select_rows(&self, rows: impl IntoIterator<Item = usize>) -> Self {
        let mut data = Vec::new();
        let mut count = 0;
        for i in rows {
            data.extend_from_slice(self.row(i));
            count += 1;
        }
        Self { rows: count, cols: self.cols, data }
    }

    /// The product `self * other`.
    ///
    /// # Errors
    /// `Shape` when `self.cols != other.rows`.
    pub fn product(&self, other: &Self) -> Result<Self, MatrixError> {
        if self.cols != other.rows {
            return Err(MatrixError::Shape {
                expected: format!("{} rows on the right", self.cols),
                got: format!("{}", other.rows),
            });
        }
        let mut out = Self::zero(self.rows, other.cols);
        for i in 0..self.rows {
            for (l, &c) in self.row(i).iter().enumerate() {
                add_scaled(&mut out.data[i * other.cols..(i + 1) * other.cols], other.row(l), c);
            }
        }
        Ok(out)
    }

    /// The rank.
    pub fn rank(&self) -> usize {
        self.clone().eliminate(self.cols).len()
    }

    /// The inverse of a square matrix.
    ///
    /// # Errors
    /// `Shape` when it is not square, `Singular` when it has no inverse.
    pub fn inverse(&self) -> Result<Self, MatrixError> {
        if self.rows != self.cols {
            return Err(MatrixError::Shape {
                expected: "a square matrix".into(),
                got: format!("{} x {}", self.rows, self.cols),
            });
        }
        let mut wide = Self::from_fn(self.rows, 2 * self.cols, |i, j| {
            if j < self.cols { self.row(i)[j] } else { u8::from(j - self.cols == i) }
        });
        let rank = wide.eliminate(self.cols).len();
        if rank < self.rows {
            return Err(MatrixError::Singular { size: self.rows, rank });
        }
        Ok(Self::from_fn(self.rows, self.cols, |i, j| wide.row(i)[self.cols + j]))
    }

    /// Expresses every row of `targets` by rows of `self`: the matrix `X` (`targets.rows x
    /// self.rows`) with `X * self == targets`, or `None` when some target is not in the row space.
    /// Earlier rows are preferred: a row that depends on rows before it gets coefficient 0.
    ///
    /// # Errors
    /// `Shape` when the column counts differ.
    pub fn express(&self, targets: &Self) -> Result<Option<Self>, MatrixError> {
        if self.cols != targets.cols {
            return Err(MatrixError::Shape {
                expected: format!("targets with {} columns", self.cols),
                got: format!("{}", targets.cols),
            });
        }
        // Columns of the transposed system are our rows; eliminating from the left picks the
        // earliest independent ones as pivots.
        let width = self.rows + targets.rows;
        let mut system = Self::from_fn(self.cols, width, |i, j| {
            if j < self.rows { self.row(j)[i] } else { targets.row(j - self.rows)[i] }
        });
        let pivots = system.eliminate(self.rows);
        for i in pivots.len()..system.rows {
            if system.row(i)[self.rows..].iter().any(|&c| c != 0) {
                return Ok(None);
            }
        }
        let mut x = Self::zero(targets.rows, self.rows);
        for (i, &pivot) in pivots.iter().enumerate() {
            for t in 0..targets.rows {
                x.row_mut(t)[pivot] = system.row(i)[self.rows + t];
            }
        }
        Ok(Some(x))
    }

    /// Brings the first `cols` columns to reduced row echelon form, carrying the rest along;
    /// returns the pivot columns, whose rows come first.
    fn eliminate(&mut self, cols: usize) -> Vec<usize> {
        let mut pivots = Vec::new();
        for col in 0..cols {
            let at = pivots.len();
            let Some(found) = (at..self.rows).find(|&i| self.row(i)[col] != 0) else { continue };
            self.swap_rows(at, found);
            let scale = inv(self.row(at)[col]).expect("a pivot is not zero");
            self.row_mut(at).iter_mut().for_each(|c| *c = mul(*c, scale));
            let pivot = self.row(at).to_vec();
            for i in (0..self.rows).filter(|&i| i != at) {
                let c = self.row(i)[col];
                add_scaled(self.row_mut(i), &pivot, c);
            }
            pivots.push(col);
        }
        pivots
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for j in 0..self.cols {
            self.data.swap(a * self.cols + j, b * self.cols + j);
        }
    }
}

impl std::fmt::Debug for Matrix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} x {}", self.rows, self.cols)?;
        for i in 0..self.rows {
            for c in self.row(i) {
                write!(f, "{c:02x} ")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cauchy(rows: usize, cols: usize) -> Matrix {
        Matrix::from_fn(rows, cols, |i, j| inv(((i + cols) ^ j) as u8).unwrap())
    }

    #[test]
    fn inverse_times_itself_is_identity() {
        for size in 1..20 {
            let m = cauchy(size, size);
            assert_eq!(m.product(&m.inverse().unwrap()).unwrap(), Matrix::identity(size));
        }
    }

    #[test]
    fn singular_and_misshapen_matrices_are_refused() {
        let twice = cauchy(3, 3).select_rows([0, 1, 1]);
        assert_eq!(twice.inverse(), Err(MatrixError::Singular { size: 3, rank: 2 }));
        assert!(matches!(Matrix::zero(2, 3).inverse(), Err(MatrixError::Shape { .. })));
        assert!(Matrix::from_vec(2, 2, vec![1]).is_err());
        assert!(Matrix::zero(2, 3).product(&Matrix::zero(2, 3)).is_err());
        assert!(Matrix::zero(2, 3).express(&Matrix::zero(2, 2)).is_err());
    }

    #[test]
    fn expressed_rows_multiply_back_and_prefer_early_rows() {
        let basis = cauchy(4, 3);
        let targets = Matrix::identity(3);
        let x = basis.express(&targets).unwrap().unwrap();
        assert_eq!(x.product(&basis).unwrap(), targets);
        assert!((0..3).all(|t| x.row(t)[3] == 0), "the fourth row is dependent");
        let two = basis.select_rows([0, 1]);
        assert_eq!(two.express(&targets).unwrap(), None);
        assert_eq!(two.rank(), 2);
    }
}
