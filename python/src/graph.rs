//! ECDAGs as Python builds, draws and reads them.

use std::collections::BTreeMap;

use kintsu_algebra::Matrix;
use kintsu_dag::Ecdag;
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;

use crate::convert::{self, element, numbers, vertex};
use crate::error::{invalid, of_graph};

/// A graph of linear combinations over the symbols of a stripe.
///
/// Vertex `block * w + sub` is sub-block `sub` of `block`; `fresh()` gives vertices for partial sums.
#[pyclass(module = "kintsu")]
pub(crate) struct Dag {
    pub graph: Ecdag,
}

#[pymethods]
impl Dag {
    /// An empty graph over stripes of `n` blocks of `w` sub-blocks.
    #[new]
    #[pyo3(signature = (n, w = 1))]
    fn new(n: usize, w: usize) -> PyResult<Self> {
        let symbols = n.saturating_mul(w);
        if symbols == 0 || n > 255 || symbols >= kintsu_dag::MAX_VERTICES as usize {
            let expected = "n from 1 to 255, w of 1 or more, and n * w below 2^20";
            return Err(invalid("shape of a graph", expected, format!("n={n}, w={w}")));
        }
        Ok(Self { graph: Ecdag::new(n, w) })
    }

    /// Blocks in a stripe.
    #[getter]
    fn n(&self) -> usize {
        self.graph.n()
    }

    /// Sub-blocks in a block.
    #[getter]
    fn w(&self) -> usize {
        self.graph.w()
    }

    /// `parent = sum of coefs[i] * children[i]` over GF(2^8). Terms with coefficient 0 are left out.
    fn join(&mut self, parent: i64, children: Vec<i64>, coefs: Vec<i64>) -> PyResult<()> {
        let parent = vertex(parent)?;
        let mut children = convert::vertices(&children)?;
        let what = format!("coefficient in the join of {parent}");
        let mut coefs = coefs.iter().map(|&c| element(&what, c)).collect::<PyResult<Vec<u8>>>()?;
        if coefs.len() == children.len() && coefs.iter().any(|&c| c != 0) {
            let kept: Vec<bool> = coefs.iter().map(|&c| c != 0).collect();
            let mut keep = kept.iter();
            children.retain(|_| keep.next() == Some(&true));
            coefs.retain(|&c| c != 0);
        }
        self.graph.join(parent, &children, &coefs).map_err(of_graph)
    }

    /// Computes joined vertices together on one node, so that their inputs are fetched once; the returned number
    /// names the joint computation in `bind_y`.
    fn bind_x(&mut self, vertices: Vec<i64>) -> PyResult<u32> {
        Ok(self.graph.bind_x(&convert::vertices(&vertices)?).map_err(of_graph)?.0)
    }

    /// Computes `parent` (a joined vertex, or what `bind_x` returned) where its input `child` is.
    fn bind_y(&mut self, parent: i64, child: i64) -> PyResult<()> {
        self.graph.bind_y(vertex(parent)?, vertex(child)?).map_err(of_graph)
    }

    /// An unused vertex, for a partial sum.
    fn fresh(&mut self) -> u32 {
        self.graph.fresh().0
    }

    /// The symbols that are read.
    #[getter]
    fn leaves(&self) -> Vec<u32> {
        numbers(&self.graph.leaves())
    }

    /// The symbols that are computed.
    #[getter]
    fn targets(&self) -> Vec<u32> {
        numbers(&self.graph.targets())
    }

    /// For every joined vertex its children and coefficients.
    #[getter]
    fn joins(&self) -> BTreeMap<u32, (Vec<u32>, Vec<u32>)> {
        let join = |join: &kintsu_dag::Join| {
            (numbers(&join.children), join.coefs.iter().map(|&c| u32::from(c)).collect())
        };
        self.graph.joins().iter().map(|(v, j)| (v.0, join(j))).collect()
    }

    /// Proves that every target computes its row of a generator (n*w x k*w array of uint8).
    fn prove(&self, generator: PyReadonlyArray2<'_, u8>) -> PyResult<()> {
        self.graph.prove(&matrix(&generator)?).map_err(of_graph)
    }

    /// Joins `targets` from `sources`, all symbols of the code with this generator.
    fn solve(
        &mut self,
        targets: Vec<i64>,
        sources: Vec<i64>,
        generator: PyReadonlyArray2<'_, u8>,
    ) -> PyResult<()> {
        let generator = matrix(&generator)?;
        let rows = |symbols: &[i64]| -> PyResult<Matrix> {
            let symbol = |&s: &i64| match usize::try_from(s) {
                Ok(row) if row < generator.rows() => Ok(row),
                _ => Err(invalid("symbol", format!("0 to {}", generator.rows() - 1), s)),
            };
            Ok(generator.select_rows(symbols.iter().map(symbol).collect::<PyResult<Vec<_>>>()?))
        };
        let combination = rows(&sources)?.express(&rows(&targets)?).ok().flatten().ok_or_else(|| {
            invalid("solve", format!("sources that determine {targets:?}"), format!("{sources:?}"))
        })?;
        targets.iter().enumerate().try_for_each(|(i, &target)| {
            let coefs = combination.row(i).iter().map(|&c| i64::from(c)).collect();
            self.join(target, sources.clone(), coefs)
        })
    }

    /// The generator of the code that this encode graph defines, row by row: rows of the identity for the data
    /// symbols, pushed through the graph.
    fn generator(&self, k: usize) -> PyResult<Vec<Vec<u8>>> {
        let (leaves, targets, coefs) = self.graph.flatten().map_err(of_graph)?;
        let (w, symbols) = (self.graph.w(), self.graph.n() * self.graph.w());
        let data = k.saturating_mul(w);
        if let Some(leaf) = leaves.iter().find(|leaf| leaf.0 as usize >= data) {
            let what = format!("leaf {leaf} of an encode graph");
            return Err(invalid(what, format!("a data symbol, below v{data}"), leaf));
        }
        if !targets.iter().map(|v| v.0 as usize).eq(data..symbols) {
            let expected = format!("every parity symbol joined, v{data} to v{}, and no other", symbols - 1);
            return Err(invalid("encode graph", expected, format!("{:?}", numbers(&targets))));
        }
        let mut rows = vec![vec![0; data]; symbols];
        (0..data).for_each(|i| rows[i][i] = 1);
        for (i, target) in targets.iter().enumerate() {
            for (leaf, &coef) in leaves.iter().zip(coefs.row(i)) {
                rows[target.0 as usize][leaf.0 as usize] = coef;
            }
        }
        Ok(rows)
    }

    /// The graph as text, a line for each vertex, in an order in which it can be computed.
    fn to_text(&self) -> String {
        self.graph.to_text()
    }

    /// The graph as an SVG document.
    fn to_svg(&self) -> PyResult<String> {
        self.graph.to_svg().map_err(of_graph)
    }

    /// What a notebook shows.
    fn _repr_svg_(&self) -> Option<String> {
        self.graph.to_svg().ok()
    }

    fn __str__(&self) -> String {
        self.graph.to_text()
    }

    fn __repr__(&self) -> String {
        let (leaves, targets) = (self.graph.leaves().len(), self.graph.targets().len());
        format!(
            "<kintsu.Dag n={} w={}: {leaves} leaves, {targets} targets, {} joins>",
            self.graph.n(),
            self.graph.w(),
            self.graph.joins().len()
        )
    }

    fn __eq__(&self, other: PyRef<'_, Self>) -> bool {
        self.graph == other.graph
    }
}

/// A matrix of elements, copied.
pub(crate) fn matrix(array: &PyReadonlyArray2<'_, u8>) -> PyResult<Matrix> {
    let view = array.as_array();
    let (rows, cols) = view.dim();
    Ok(Matrix::from_fn(rows, cols, |i, j| view[[i, j]]))
}
