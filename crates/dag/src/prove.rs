//! The symbolic proof: generator rows are propagated through the graph.
//!
//! A leaf symbol carries its row of the generator, a join the combination of its children's rows. A graph computes
//! what it claims if and only if every symbol that it joins ends with that symbol's own row; then its bytes are
//! right for every content of the stripe. The same propagation with unit rows at the leaves flattens a graph to
//! the matrix of the linear map that it computes.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kintsu_algebra::{Matrix, add_scaled};

use crate::{BlockIndex, DagError, Ecdag, Vertex};

/// The most that the rows of one graph may take, in bytes.
const MAX_ROW_BYTES: usize = 1 << 28;

impl Ecdag {
    /// Proves that every joined symbol computes the block it claims to be, for the code with this
    /// `n*w x k*w` generator. Costs one multiply-add of `k*w` bytes for each edge.
    ///
    /// # Errors
    /// `False` for the first symbol in topological order that does not; `Invalid` for a generator of
    /// another shape, a virtual leaf, or a graph too large; `Cycle`.
    pub fn prove(&self, generator: &Matrix) -> Result<(), DagError> {
        self.prove_shortened(generator, &[])
    }

    /// As [`Ecdag::prove`], for stripes in which the data blocks `absent` are known to be zero: rows may differ in
    /// their columns.
    ///
    /// # Errors
    /// As [`Ecdag::prove`]; `Invalid` for an absent block that is not a data block.
    pub fn prove_shortened(&self, generator: &Matrix, absent: &[BlockIndex]) -> Result<(), DagError> {
        self.check_shape(generator)?;
        let generator = self.shorten(generator, absent)?;
        let rows = self.push_generator(&generator)?;
        for (at, &vertex) in rows.order.iter().enumerate() {
            if self.is_symbol(vertex) {
                let (expected, got) = (generator.row(vertex.0 as usize), rows.row(at));
                if expected != got {
                    return Err(DagError::False { vertex, expected: hex(expected), got: hex(got) });
                }
            }
        }
        Ok(())
    }

    /// The combination of data symbols that each leaf and joined vertex carries: `k*w` coefficients.
    ///
    /// # Errors
    /// `Invalid` for a generator that is not `n*w` rows, a virtual leaf, or a graph too large; `Cycle`.
    pub fn rows(&self, generator: &Matrix) -> Result<BTreeMap<Vertex, Vec<u8>>, DagError> {
        self.check_shape(generator)?;
        let rows = self.push_generator(generator)?;
        Ok(rows.order.iter().enumerate().map(|(at, &vertex)| (vertex, rows.row(at).to_vec())).collect())
    }

    /// The linear map from leaves to joined symbols: the leaves and the targets, in order of number,
    /// and the `targets x leaves` coefficients. Leaves may be virtual.
    ///
    /// # Errors
    /// `Invalid` for a graph too large; `Cycle`.
    pub fn flatten(&self) -> Result<(Vec<Vertex>, Vec<Vertex>, Matrix), DagError> {
        let (leaves, targets) = (self.leaves(), self.targets());
        let rows = self.push(leaves.len(), |leaf, row| {
            let at = leaves.binary_search(&leaf).expect("the leaves are all leaves of the order");
            row[at] = 1;
            Ok(())
        })?;
        let mut coefs = Matrix::zero(targets.len(), leaves.len());
        for (at, vertex) in rows.order.iter().enumerate() {
            if let Ok(target) = targets.binary_search(vertex) {
                coefs.row_mut(target).copy_from_slice(rows.row(at));
            }
        }
        Ok((leaves, targets, coefs))
    }

    fn check_shape(&self, generator: &Matrix) -> Result<(), DagError> {
        let (rows, cols) = (generator.rows(), generator.cols());
        if rows != self.symbols() || cols == 0 || cols > rows || cols % self.w() != 0 {
            return Err(DagError::Invalid {
                what: "generator".into(),
                expected: format!("{} rows, columns a multiple of {}", self.symbols(), self.w()),
                got: format!("{rows} x {cols}"),
            });
        }
        Ok(())
    }

    /// The generator with the columns of absent data blocks zeroed.
    fn shorten<'a>(&self, generator: &'a Matrix, absent: &[BlockIndex]) -> Result<Cow<'a, Matrix>, DagError> {
        let k = generator.cols() / self.w();
        let mut shortened = Cow::Borrowed(generator);
        for block in absent {
            let first = usize::from(block.0) * self.w();
            if usize::from(block.0) >= k {
                return Err(DagError::Invalid {
                    what: "absent blocks".into(),
                    expected: format!("data blocks, below b{k}"),
                    got: block.to_string(),
                });
            }
            for row in 0..generator.rows() {
                shortened.to_mut().row_mut(row)[first..first + self.w()].fill(0);
            }
        }
        Ok(shortened)
    }

    fn push_generator(&self, generator: &Matrix) -> Result<Rows, DagError> {
        self.push(generator.cols(), |leaf, row| {
            if !self.is_symbol(leaf) {
                return Err(DagError::Invalid {
                    what: format!("leaf {leaf}"),
                    expected: format!("a symbol, below v{}", self.symbols()),
                    got: "a virtual vertex without a join".into(),
                });
            }
            row.copy_from_slice(generator.row(leaf.0 as usize));
            Ok(())
        })
    }

    /// Gives every leaf a row of `width` zeros to fill in, and combines rows along the joins.
    fn push(
        &self,
        width: usize,
        leaf_row: impl Fn(Vertex, &mut [u8]) -> Result<(), DagError>,
    ) -> Result<Rows, DagError> {
        let order = self.topological()?;
        let bytes = order.len().saturating_mul(width);
        if bytes > MAX_ROW_BYTES {
            return Err(DagError::Invalid {
                what: "size of the graph".into(),
                expected: format!("rows of {MAX_ROW_BYTES} bytes in all"),
                got: format!("{} vertices of {width} bytes", order.len()),
            });
        }
        let mut slot = vec![0u32; self.vertex_bound()];
        let mut data = vec![0u8; bytes];
        for (at, &vertex) in order.iter().enumerate() {
            slot[vertex.0 as usize] = at as u32;
            let (done, rest) = data.split_at_mut(at * width);
            let row = &mut rest[..width];
            match self.joins().get(&vertex) {
                None => leaf_row(vertex, row)?,
                Some(join) => {
                    for (child, &coef) in join.children.iter().zip(&join.coefs) {
                        let from = slot[child.0 as usize] as usize * width;
                        add_scaled(row, &done[from..from + width], coef);
                    }
                }
            }
        }
        Ok(Rows { order, width, data })
    }
}

/// One row for each vertex, in topological order.
struct Rows {
    order: Vec<Vertex>,
    width: usize,
    data: Vec<u8>,
}

impl Rows {
    fn row(&self, at: usize) -> &[u8] {
        &self.data[at * self.width..(at + 1) * self.width]
    }
}

fn hex(row: &[u8]) -> String {
    row.iter().map(|byte| format!("{byte:02x}")).collect()
}
