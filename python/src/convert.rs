//! Numbers, blocks and reports between Python and Rust.

use kintsu_dag::{BlockIndex, Vertex};
use pyo3::prelude::*;
use serde::Serialize;

use crate::error::invalid;

/// A vertex that a graph can have.
pub(crate) fn vertex(number: i64) -> PyResult<Vertex> {
    match u32::try_from(number) {
        Ok(number) if number < kintsu_dag::MAX_VERTICES => Ok(Vertex(number)),
        _ => Err(invalid("vertex", format!("0 to {}", kintsu_dag::MAX_VERTICES - 1), number)),
    }
}

pub(crate) fn vertices(numbers: &[i64]) -> PyResult<Vec<Vertex>> {
    numbers.iter().copied().map(vertex).collect()
}

pub(crate) fn numbers(vertices: &[Vertex]) -> Vec<u32> {
    vertices.iter().map(|v| v.0).collect()
}

/// An element of GF(2^8).
pub(crate) fn element(what: &str, number: i64) -> PyResult<u8> {
    u8::try_from(number).map_err(|_| invalid(what, "an element of GF(2^8), 0 to 255", number))
}

pub(crate) fn block(number: i64, n: usize) -> PyResult<BlockIndex> {
    match u8::try_from(number) {
        Ok(index) if usize::from(index) < n => Ok(BlockIndex(index)),
        _ => Err(invalid("block", format!("0 to {}", n.saturating_sub(1)), number)),
    }
}

pub(crate) fn blocks(numbers: &[i64], n: usize) -> PyResult<Vec<BlockIndex>> {
    numbers.iter().map(|&number| block(number, n)).collect()
}

/// Lists of blocks as Python lists.
pub(crate) fn block_lists(lists: &[Vec<BlockIndex>]) -> Vec<Vec<u32>> {
    lists.iter().map(|list| list.iter().map(|b| u32::from(b.0)).collect()).collect()
}

/// A report as dicts, lists, strings and numbers.
pub(crate) fn python<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(value).map_err(|e| invalid("report", "one that JSON can hold", e))?;
    py.import("json")?.call_method1("loads", (text,))
}
