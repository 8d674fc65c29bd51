//! Runs codes byte by byte in the simplest way: an oracle that shares no code with kernels and executors.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]
#![allow(dead_code, reason = "no test uses all of it")]

use std::collections::BTreeMap;

use kintsu_algebra::mul;
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

/// Data blocks of fixed bytes: `w` sub-blocks of `sub_bytes` each. Byte i of block b is the upper byte of
/// a multiplicative hash of its position.
pub fn data(code: &dyn Code, sub_bytes: usize) -> Vec<Vec<u8>> {
    let len = code.w() * sub_bytes;
    let byte = |at: usize| ((at as u32 + 1).wrapping_mul(0x9E37_79B1) >> 24) as u8;
    (0..code.k()).map(|b| (0..len).map(|i| byte(b * len + i)).collect()).collect()
}

/// All n blocks: the data, and parity as the encode graph computes it.
pub fn encode(code: &dyn Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let len = data[0].len();
    let mut blocks: Vec<Option<Vec<u8>>> = data.iter().cloned().map(Some).collect();
    blocks.resize(code.n(), None);
    let parity = run(&code.encode(), code.w(), &blocks, len);
    let parity = (code.k()..code.n()).map(|b| parity[&BlockIndex(b as u8)].clone());
    data.iter().cloned().chain(parity).collect()
}

/// The blocks that a graph computes from the `blocks` that are there, each of `len` bytes.
pub fn run(graph: &Ecdag, w: usize, blocks: &[Option<Vec<u8>>], len: usize) -> BTreeMap<BlockIndex, Vec<u8>> {
    let part = len / w;
    let mut values: BTreeMap<Vertex, Vec<u8>> = BTreeMap::new();
    for vertex in graph.topological().unwrap() {
        let value = match graph.joins().get(&vertex) {
            Some(join) => {
                let mut sum = vec![0; part];
                for (child, &coef) in join.children.iter().zip(&join.coefs) {
                    sum.iter_mut().zip(&values[child]).for_each(|(s, &v)| *s ^= mul(coef, v));
                }
                sum
            }
            None if graph.is_symbol(vertex) => {
                let (block, sub) = (vertex.0 as usize / w, vertex.0 as usize % w);
                let block = blocks[block].as_ref().expect("the graph reads blocks that are there");
                block[sub * part..(sub + 1) * part].to_vec()
            }
            // A vertex that stands for a joint computation carries nothing.
            None => continue,
        };
        values.insert(vertex, value);
    }
    let mut out: BTreeMap<BlockIndex, Vec<u8>> = BTreeMap::new();
    for target in graph.targets() {
        out.entry(BlockIndex((target.0 as usize / w) as u8)).or_default().extend(&values[&target]);
    }
    out
}

/// Two hexadecimal digits a byte.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
