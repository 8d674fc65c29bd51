//! Functions on codes without data: the families, tables over their parameters, advice, and the field.

use std::collections::BTreeMap;

use kintsu_analysis::{Environment, Objective, Request, Requirements};
use kintsu_plan::{Topology, blocks_by_rack, even_cluster};
use pyo3::prelude::*;
use serde_json::json;

use crate::convert::{element, python};
use crate::error::{invalid, of_analysis};

/// The families of built-in codes, with their keys and an example.
#[pyfunction]
pub(crate) fn families(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let key =
        |key: &kintsu_code::Key| json!({ "name": key.name, "about": key.about, "default": key.default });
    let family = |family: &kintsu_code::Family| {
        let keys: Vec<_> = family.keys.iter().map(key).collect();
        json!({ "name": family.name, "about": family.about, "example": family.example, "keys": keys })
    };
    python(py, &kintsu_code::families().iter().map(family).collect::<Vec<_>>())
}

/// A row for every code of the families with n in this range (both ends included), and the names and reasons of codes
/// that would take too long to prove.
#[pyfunction]
pub(crate) fn study<'py>(
    py: Python<'py>,
    n: (usize, usize),
    max_overhead: f64,
    families: Option<Vec<String>>,
    min_distance: usize,
) -> PyResult<Bound<'py, PyAny>> {
    let studied = || kintsu_analysis::STUDIED.map(str::to_owned).to_vec();
    let families = families.unwrap_or_else(studied);
    let request = Request { n: n.0..=n.1, max_overhead, families, min_distance };
    let table = py.detach(|| kintsu_analysis::compare(&request, |_, _| ())).map_err(of_analysis)?;
    python(py, &json!({ "rows": table.rows, "left_out": table.left_out }))
}

/// The best code of each family for a cluster of nodes spread evenly over racks, with reasons.
#[pyfunction]
#[pyo3(signature = (*, nodes, racks, tolerate, overhead, objective, survive_rack, widest, settings))]
#[expect(clippy::too_many_arguments, reason = "named in Python")]
pub(crate) fn advise<'py>(
    py: Python<'py>,
    nodes: usize,
    racks: usize,
    tolerate: usize,
    overhead: f64,
    objective: &str,
    survive_rack: bool,
    widest: usize,
    settings: BTreeMap<String, f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let topology = cluster_on_paper(nodes, racks)?;
    let objective = match objective {
        "degraded" => Objective::Degraded,
        "recovery" => Objective::Recovery,
        "balanced" => Objective::Balanced,
        _ => return Err(invalid("objective", "degraded, recovery or balanced", objective)),
    };
    let requirements = Requirements {
        environment: environment(nodes, settings)?,
        racks,
        tolerate,
        max_overhead: overhead,
        objective,
        survive_rack,
        widest,
    };
    let advice = py.detach(|| {
        kintsu_analysis::advise(&requirements, &|code| blocks_by_rack(code, &topology), |_, _| ())
    });
    python(py, &json!({ "requirements": requirements, "advice": advice.map_err(of_analysis)? }))
}

/// Empty nodes, spread evenly over racks.
pub(crate) fn cluster_on_paper(nodes: usize, racks: usize) -> PyResult<Topology> {
    if (1..=nodes).contains(&racks) && nodes <= MAX_NODES {
        return Ok(even_cluster(nodes, racks));
    }
    let expected = format!("1 to {MAX_NODES} nodes in as many racks or fewer");
    Err(invalid("cluster", expected, format!("{nodes} nodes in {racks} racks")))
}

/// Nodes of a cluster on paper.
const MAX_NODES: usize = 100_000;

/// The default environment of the analysis, with the changes from Python.
pub(crate) fn environment(nodes: usize, settings: BTreeMap<String, f64>) -> PyResult<Environment> {
    let mut environment = Environment::new(nodes);
    for (name, value) in settings {
        let field = match name.as_str() {
            "node_mttf_h" => &mut environment.node_mttf_h,
            "rack_mttf_h" => &mut environment.rack_mttf_h,
            "rack_outage_h" => &mut environment.rack_outage_h,
            "node_bytes" => &mut environment.node_bytes,
            "bandwidth" => &mut environment.bandwidth,
            "detection_h" => &mut environment.detection_h,
            "block_bytes" => &mut environment.block_bytes,
            _ => return Err(invalid("environment", "one of its fields", name)),
        };
        *field = value;
    }
    Ok(environment)
}

/// The product in GF(2^8)/0x11D.
#[pyfunction]
pub(crate) fn field_multiply(a: i64, b: i64) -> PyResult<u8> {
    Ok(kintsu_algebra::mul(element("factor", a)?, element("factor", b)?))
}

/// The inverse in GF(2^8)/0x11D.
#[pyfunction]
pub(crate) fn field_inverse(a: i64) -> PyResult<u8> {
    let a = element("element to invert", a)?;
    kintsu_algebra::inv(a).ok_or_else(|| invalid("element to invert", "1 to 255", a))
}
