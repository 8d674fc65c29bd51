//! Decoding any recoverable loss of any linear code, from its generator rows and local groups.
//!
//! A lost row is expressed as a combination of available rows; the coefficients are the join. Not
//! here: where the joins are computed, and repairs that read parts of blocks (codes that have them
//! override [`Code::decode`] for single losses).

use std::collections::BTreeSet;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

use crate::{Code, CodeError};

/// The decode graph of a linear code; the contract is that of [`Code::decode`].
///
/// First every lost block with a wholly available local group is joined from that group. The others are
/// joined from one set of blocks chosen greedily: those read already, then the rest in order of
/// preference, each only if it adds to the row space. Reading never exceeds the blocks of the local
/// repairs plus k, and is exactly k for an MDS code.
///
/// # Errors
/// As [`Code::decode`].
pub fn decode_linear(
    code: &dyn Code,
    available: &[BlockIndex],
    lost: &[BlockIndex],
) -> Result<Ecdag, CodeError> {
    validate(code.n(), available, lost)?;
    let mut graph = Ecdag::new(code.n(), code.w());
    let groups = code.groups();
    let mut read = BTreeSet::new();
    let mut rest = Vec::new();
    for &block in lost {
        match local_helpers(&groups, available, block) {
            Some(helpers) if join(&mut graph, code, &helpers, &[block]) => read.extend(helpers),
            _ => rest.push(block),
        }
    }
    let (read, unread): (Vec<_>, Vec<_>) = available.iter().partition(|b| read.contains(b));
    if !rest.is_empty() && !join(&mut graph, code, &[read, unread].concat(), &rest) {
        return Err(unrecoverable(code, available, &rest));
    }
    Ok(graph)
}

/// Accepts distinct blocks of the stripe, each lost or available.
pub(crate) fn validate(n: usize, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<(), CodeError> {
    let mut seen = BTreeSet::new();
    for &block in available.iter().chain(lost) {
        if usize::from(block.0) >= n {
            return Err(CodeError::invalid("block to decode", format!("one of b0 to b{}", n - 1), block));
        }
        if !seen.insert(block) {
            let expected = "each block once, lost or available";
            return Err(CodeError::invalid("blocks to decode", expected, format!("{block} twice")));
        }
    }
    Ok(())
}

/// The other members of the smallest group that holds `block`, if they are all available, in order
/// of preference.
fn local_helpers(
    groups: &[Vec<BlockIndex>],
    available: &[BlockIndex],
    block: BlockIndex,
) -> Option<Vec<BlockIndex>> {
    groups
        .iter()
        .filter(|group| group.contains(&block))
        .map(|group| (group.len(), available.iter().copied().filter(|b| group.contains(b)).collect()))
        .filter(|(size, helpers): &(usize, Vec<BlockIndex>)| helpers.len() + 1 == *size)
        .min_by_key(|&(size, _)| size)
        .map(|(_, helpers)| helpers)
}

/// Joins every symbol of `targets` from symbols of `helpers`, earlier ones preferred; false, and
/// nothing joined, when the helpers do not determine them.
fn join(graph: &mut Ecdag, code: &dyn Code, helpers: &[BlockIndex], targets: &[BlockIndex]) -> bool {
    let from: Vec<usize> = symbols(code, helpers).collect();
    let to: Vec<usize> = symbols(code, targets).collect();
    let rows = code.generator().select_rows(from.iter().copied());
    let wanted = code.generator().select_rows(to.iter().copied());
    let Some(combination) = rows.express(&wanted).expect("rows of one generator have one width") else {
        return false;
    };
    for (i, &symbol) in to.iter().enumerate() {
        join_row(graph, symbol, &from, combination.row(i));
    }
    true
}

/// `parent = sum coefs[i] * children[i]` over the coefficients that are not zero.
///
/// # Panics
/// When all are zero, or the parent is joined already.
pub(crate) fn join_row(graph: &mut Ecdag, parent: usize, children: &[usize], coefs: &[u8]) {
    let terms = children.iter().zip(coefs).filter(|&(_, &c)| c != 0);
    let (children, coefs): (Vec<_>, Vec<_>) = terms.map(|(&v, &c)| (Vertex(v as u32), c)).unzip();
    graph
        .join(Vertex(parent as u32), &children, &coefs)
        .expect("a code has no zero rows, and each symbol is joined once");
}

fn symbols(code: &dyn Code, blocks: &[BlockIndex]) -> impl Iterator<Item = usize> {
    let w = code.w();
    blocks.iter().flat_map(move |b| usize::from(b.0) * w..(usize::from(b.0) + 1) * w)
}

/// The error that says what is left and what would help.
fn unrecoverable(code: &dyn Code, available: &[BlockIndex], lost: &[BlockIndex]) -> CodeError {
    let rows = |blocks: &[BlockIndex]| -> Matrix { code.generator().select_rows(symbols(code, blocks)) };
    let rank = rows(available).rank();
    let gain = |blocks: &[BlockIndex]| rows(&[available, blocks].concat()).rank() - rank;
    let absent = (0..code.n()).map(|b| BlockIndex(b as u8)).filter(|b| !available.contains(b));
    CodeError::Unrecoverable {
        lost: lost.to_vec(),
        available: available.to_vec(),
        needed: absent.filter(|&b| gain(&[b]) > 0).collect(),
        missing: gain(lost).div_ceil(code.w()),
    }
}
