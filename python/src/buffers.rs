//! A graph computed on numpy arrays, without the interpreter's lock and without copying the input.
//!
//! A block is an array of bytes; its w sub-blocks lie one after the other. The runtime computes in memory over
//! short parts of all sub-blocks, so that intermediate results stay in cache.

use std::collections::BTreeMap;
use std::ops::Range;

use kintsu_dag::Ecdag;
use kintsu_runtime::InMemory;
use kintsu_wire::message::Fault;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::error::{invalid, of_fault};

/// Bytes of all symbols of a graph that are processed at a time, and of one symbol.
const PART_BYTES: usize = 1 << 20;
const LEAST_PART: usize = 4 << 10;

/// Blocks by index, as Python lends them.
pub(crate) type Blocks<'py> = BTreeMap<usize, PyReadonlyArray1<'py, u8>>;

/// The blocks that `graph` computes from `blocks`, by index.
pub(crate) fn compute<'py>(
    py: Python<'py>,
    graph: Ecdag,
    blocks: &Blocks<'py>,
) -> PyResult<BTreeMap<usize, Bound<'py, PyArray1<u8>>>> {
    let w = graph.w();
    let lent = slices(blocks)?;
    let block_bytes = common_length(&lent, w)?;
    let targets = graph.targets().into_iter().map(|v| v.0 as usize / w);
    let made: BTreeMap<usize, _> =
        targets.map(|block| (block, PyArray1::<u8>::zeros(py, block_bytes, false))).collect();
    let mut writable: BTreeMap<usize, _> =
        made.iter().map(|(block, array)| (*block, array.readwrite())).collect();
    let mut outputs = BTreeMap::new();
    for (block, array) in &mut writable {
        let slice = array.as_slice_mut().map_err(|e| invalid("new array", "a contiguous one", e))?;
        outputs.insert(*block, slice);
    }
    py.detach(|| run(graph, &lent, &mut outputs, block_bytes / w)).map_err(of_fault)?;
    drop(outputs);
    drop(writable);
    Ok(made)
}

fn slices<'a>(blocks: &'a Blocks<'_>) -> PyResult<BTreeMap<usize, &'a [u8]>> {
    let slice = |(block, array): (&usize, &'a PyReadonlyArray1<'_, u8>)| {
        let bytes = array.as_slice().map_err(|e| invalid(format!("block {block}"), "contiguous bytes", e))?;
        Ok((*block, bytes))
    };
    blocks.iter().map(slice).collect()
}

/// The length of all blocks, which w divides.
fn common_length(blocks: &BTreeMap<usize, &[u8]>, w: usize) -> PyResult<usize> {
    let Some((first, bytes)) = blocks.first_key_value() else { return Ok(0) };
    let len = bytes.len();
    if let Some((other, bytes)) = blocks.iter().find(|(_, bytes)| bytes.len() != len) {
        let expected = format!("{len} bytes, as block {first} has");
        return Err(invalid(format!("length of block {other}"), expected, bytes.len()));
    }
    match len.is_multiple_of(w) {
        true => Ok(len),
        false => Err(invalid("length of a block", format!("a multiple of w = {w}"), len)),
    }
}

fn run(
    graph: Ecdag,
    blocks: &BTreeMap<usize, &[u8]>,
    outputs: &mut BTreeMap<usize, &mut [u8]>,
    sub_bytes: usize,
) -> Result<(), Fault> {
    let symbols = (graph.leaves().len() + graph.joins().len()).max(1);
    let part_bytes = (PART_BYTES / symbols).max(LEAST_PART);
    let mut memory = InMemory::new(graph)?;
    for start in (0..sub_bytes).step_by(part_bytes) {
        let part = start..sub_bytes.min(start + part_bytes);
        let place = |sub: u16| -> Range<usize> {
            let first = usize::from(sub) * sub_bytes;
            first + part.start..first + part.end
        };
        memory.step(
            part.len(),
            |block, sub| blocks.get(&usize::from(block.0)).map(|bytes| &bytes[place(sub)]),
            |block, sub, bytes| {
                // An array starts with zeros, so a part of zeros need not be written.
                if let (Some(bytes), Some(output)) = (bytes, outputs.get_mut(&usize::from(block.0))) {
                    output[place(sub)].copy_from_slice(bytes);
                }
            },
        )?;
    }
    Ok(())
}
