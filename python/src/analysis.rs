//! What is known of codes without any data: the families, tables over their parameters, and the field.

use kintsu_analysis::Request;
use pyo3::prelude::*;
use serde_json::json;

use crate::convert::{element, python};
use crate::error::of_analysis;

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
    python(py, &json!({ "rows": table.rows, "unproved": table.unproved }))
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
    kintsu_algebra::inv(a).ok_or_else(|| crate::error::invalid("element to invert", "1 to 255", a))
}
