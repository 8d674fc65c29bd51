//! Codes that have been proved: built-in ones by name, and those that Python defines.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_code::{Code, CodeError, Definition};
use kintsu_dag::{BlockIndex, Ecdag, Elements, GraphData};
use kintsu_plan::blocks_by_rack;
use numpy::{PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::analysis::{cluster_on_paper, environment};
use crate::buffers::compute;
use crate::convert::{block_lists, blocks, python};
use crate::error::{invalid, of_analysis, of_code};
use crate::graph::Dag;

/// Most loss patterns that a report tries: a fraction of a second.
const REPORT_PATTERNS: u64 = 1 << 18;

/// A code whose claims have all been proved.
#[pyclass(frozen, module = "kintsu._kintsu")]
pub(crate) struct ProvedCode {
    pub code: Arc<dyn Code>,
    /// What is sent to a cluster; built-in codes are known there by name.
    pub definition: Option<Definition>,
}

/// The built-in code with this name, such as `rs:n=14,k=10`.
#[pyfunction]
pub(crate) fn parse(py: Python<'_>, name: &str) -> PyResult<ProvedCode> {
    let code = py.detach(|| kintsu_code::parse(name)).map_err(of_code)?;
    Ok(ProvedCode { code, definition: None })
}

/// Proves a code given as generator and graphs. Without a claimed distance it finds the largest one that can be
/// proved.
#[pyfunction]
#[pyo3(signature = (*, name, n, k, w, generator, groups, distance, place, encode, repairs))]
#[expect(clippy::too_many_arguments, reason = "named in Python")]
pub(crate) fn define(
    py: Python<'_>,
    name: String,
    n: usize,
    k: usize,
    w: usize,
    generator: PyReadonlyArray2<'_, u8>,
    groups: Vec<Vec<i64>>,
    distance: Option<usize>,
    place: Option<Vec<Vec<i64>>>,
    encode: Option<PyRef<'_, Dag>>,
    repairs: Vec<PyRef<'_, Dag>>,
) -> PyResult<ProvedCode> {
    let lists = |lists: Vec<Vec<i64>>| lists.iter().map(|list| blocks(list, n)).collect::<PyResult<Vec<_>>>();
    let rows = generator.as_array();
    let definition = Definition {
        name,
        n,
        k,
        w,
        generator: rows.outer_iter().map(|row| Elements(row.to_vec())).collect(),
        distance: distance.unwrap_or_else(|| n.saturating_sub(k) + 1),
        groups: lists(groups)?,
        place: place.map(lists).transpose()?,
        encode: encode.map(|dag| GraphData::from(&dag.graph)),
        repairs: repairs.iter().map(|dag| GraphData::from(&dag.graph)).collect(),
    };
    let proved = py.detach(|| match distance {
        Some(_) => definition.prove().map(|code| (code, definition)),
        None => largest_distance(definition),
    });
    let (code, definition) = proved.map_err(of_code)?;
    Ok(ProvedCode { code, definition: Some(definition) })
}

/// Lowers the claim until it can be proved: below the size of a loss that cannot be decoded, or by one if there
/// are too many losses to try. A code that does not tolerate the loss of every single block is refused.
fn largest_distance(mut definition: Definition) -> Result<(Arc<dyn Code>, Definition), CodeError> {
    loop {
        let lower = match definition.prove() {
            Ok(code) => return Ok((code, definition)),
            Err(CodeError::Distance { lost, .. }) if definition.distance > LEAST_DISTANCE => lost.len(),
            Err(CodeError::Unsupported { .. }) if definition.distance > LEAST_DISTANCE => {
                definition.distance - 1
            }
            Err(error) => return Err(error),
        };
        definition.distance = lower.clamp(LEAST_DISTANCE, definition.distance - 1);
    }
}

/// The distance of a code that tolerates the loss of one block.
const LEAST_DISTANCE: usize = 2;

#[pymethods]
impl ProvedCode {
    #[getter]
    fn name(&self) -> &str {
        self.code.name()
    }

    #[getter]
    fn n(&self) -> usize {
        self.code.n()
    }

    #[getter]
    fn k(&self) -> usize {
        self.code.k()
    }

    #[getter]
    fn w(&self) -> usize {
        self.code.w()
    }

    #[getter]
    fn distance(&self) -> usize {
        self.code.distance()
    }

    #[getter]
    fn groups(&self) -> Vec<Vec<u32>> {
        block_lists(&self.code.groups())
    }

    fn place(&self) -> Vec<Vec<u32>> {
        block_lists(&self.code.place())
    }

    /// The generator, n*w rows of k*w elements.
    fn generator<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<u8>>> {
        let generator = self.code.generator();
        let rows: Vec<Vec<u8>> = (0..generator.rows()).map(|i| generator.row(i).to_vec()).collect();
        PyArray2::from_vec2(py, &rows).map_err(|e| invalid("generator", "rows of one length", e))
    }

    fn recoverable(&self, lost: Vec<i64>) -> PyResult<bool> {
        Ok(self.code.recoverable(&blocks(&lost, self.code.n())?))
    }

    fn encode_graph(&self) -> Dag {
        Dag { graph: self.code.encode() }
    }

    fn decode_graph(&self, available: Vec<i64>, lost: Vec<i64>) -> PyResult<Dag> {
        Ok(Dag { graph: self.decode(&available, &lost)? })
    }

    /// Parity from all data blocks: a block an array, w sub-blocks one after the other.
    fn encode_blocks<'py>(
        &self,
        py: Python<'py>,
        data: Vec<PyReadonlyArray1<'py, u8>>,
    ) -> PyResult<Vec<Bound<'py, PyArray1<u8>>>> {
        let k = self.code.k();
        if data.len() != k {
            return Err(invalid("data", format!("k = {k} blocks"), format!("{} blocks", data.len())));
        }
        let blocks = data.into_iter().enumerate().collect();
        Ok(compute(py, self.code.encode(), &blocks)?.into_values().collect())
    }

    /// Lost blocks from available ones.
    fn decode_blocks<'py>(
        &self,
        py: Python<'py>,
        available: Vec<(i64, PyReadonlyArray1<'py, u8>)>,
        lost: Vec<i64>,
    ) -> PyResult<BTreeMap<usize, Bound<'py, PyArray1<u8>>>> {
        let given: Vec<i64> = available.iter().map(|(block, _)| *block).collect();
        let graph = self.decode(&given, &lost)?;
        let blocks = available.into_iter().map(|(block, array)| (block as usize, array)).collect();
        compute(py, graph, &blocks)
    }

    /// A full report on the code, with every claim checked again.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let code = &*self.code;
        let check = py.detach(|| kintsu_analysis::check(code, REPORT_PATTERNS)).map_err(of_analysis)?;
        python(py, &json!({ "check": check, "groups": code.groups(), "place": code.place() }))
    }

    /// The reliability of this code on nodes spread evenly over racks; `settings` are fields of the analysis'
    /// environment.
    fn reliability<'py>(
        &self,
        py: Python<'py>,
        nodes: usize,
        racks: usize,
        settings: BTreeMap<String, f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let code = &*self.code;
        let environment = environment(nodes, settings)?;
        let topology = cluster_on_paper(nodes, racks)?;
        let report = py.detach(|| {
            let (costs, by_rack) = (kintsu_analysis::costs(code)?, blocks_by_rack(code, &topology));
            let most = kintsu_analysis::MAX_PATTERNS;
            kintsu_analysis::reliability(code, &costs, &environment, by_rack.as_deref(), most)
        });
        let report = report.map_err(of_analysis)?;
        python(py, &json!({ "environment": environment, "racks": racks, "reliability": report }))
    }

    /// The code as data, as a cluster keeps it; `None` for a built-in one.
    fn definition<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.definition.as_ref().map(|definition| python(py, definition)).transpose()
    }
}

impl ProvedCode {
    /// A code received from a cluster, proved here.
    pub(crate) fn of(definition: Definition) -> PyResult<Self> {
        Ok(Self { code: definition.prove().map_err(of_code)?, definition: Some(definition) })
    }

    /// The proved graph that computes `lost` from `available` blocks.
    fn decode(&self, available: &[i64], lost: &[i64]) -> PyResult<Ecdag> {
        let n = self.code.n();
        let (available, lost): (Vec<BlockIndex>, Vec<BlockIndex>) = (blocks(available, n)?, blocks(lost, n)?);
        self.code.decode(&available, &lost).map_err(of_code)
    }
}
