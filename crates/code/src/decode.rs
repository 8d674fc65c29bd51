//! Decoding any recoverable loss of any linear code, from its generator rows and local groups.
//!
//! A lost row is expressed as a combination of available rows; the coefficients are the join. A lost block that
//! its group repairs can in turn help another group; then it is a vertex of both. Not handled here: where the
//! joins are computed, and repairs that read parts of blocks (codes that have such repairs override
//! [`Code::decode`] for single losses).

use std::collections::BTreeSet;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag, Vertex};

use crate::{Code, CodeError, sparsest};

/// The decode graph of a linear code; the contract is that of [`Code::decode`].
///
/// First, every lost block with a wholly available local group is joined from that group; of several groups, from
/// the one that reads least. Second, if it reads less in total, blocks are joined whose group is completed by
/// blocks repaired before. The others are joined from one set of blocks that is chosen greedily: first those
/// already read, then the rest in order of preference, each only if it adds to the row space. A single remaining
/// block that is local by design is joined from fewer blocks if fewer are found. The repair never reads more than
/// the blocks of the local repairs plus k, and reads exactly k for an MDS code.
///
/// # Errors
/// As [`Code::decode`].
pub fn decode_linear(
    code: &dyn Code,
    available: &[BlockIndex],
    lost: &[BlockIndex],
) -> Result<Ecdag, CodeError> {
    validate(code.n(), available, lost)?;
    let mut local = Local::new(code, available, lost);
    while local.repair_one(false) {}
    let mut chained = local.clone();
    let mut graph = local.finish();
    if chained.repair_one(true) {
        while chained.repair_one(true) {}
        let reads = |graph: &Option<Ecdag>| graph.as_ref().map_or(usize::MAX, |graph| graph.leaves().len());
        let other = chained.clone().finish();
        if reads(&other) <= reads(&graph) {
            graph = other;
        }
    }
    graph.ok_or_else(|| unrecoverable(code, available, &chained.rest))
}

/// Checks that the blocks are distinct blocks of the stripe, each lost or available.
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

/// A decode graph while it is made.
#[derive(Clone)]
struct Local<'a> {
    code: &'a dyn Code,
    available: &'a [BlockIndex],
    groups: Vec<Vec<BlockIndex>>,
    graph: Ecdag,
    read: BTreeSet<BlockIndex>,
    /// Lost blocks that the graph does not compute yet.
    rest: Vec<BlockIndex>,
}

impl<'a> Local<'a> {
    fn new(code: &'a dyn Code, available: &'a [BlockIndex], lost: &[BlockIndex]) -> Self {
        let graph = Ecdag::new(code.n(), code.w());
        let mut groups = code.groups();
        groups.retain(|group| group.iter().any(|block| lost.contains(block)));
        Self { code, available, groups, graph, read: BTreeSet::new(), rest: lost.to_vec() }
    }

    /// Repairs a block from a group, which repaired blocks may complete if `chained`; false when there is no such
    /// group.
    fn repair_one(&mut self, chained: bool) -> bool {
        let Some((block, at, helpers)) = self.cheapest(chained) else { return false };
        if join(&mut self.graph, self.code, &helpers, &[block]) {
            self.rest.retain(|&lost| lost != block);
            self.read.extend(helpers.iter().filter(|b| self.available.contains(b)));
        } else {
            // The group does not determine its member, so it is no group.
            self.groups.remove(at);
        }
        true
    }

    /// The repair that reads the fewest blocks not read yet: its block, the number of its group, and its helpers.
    fn cheapest(&self, chained: bool) -> Option<(BlockIndex, usize, Vec<BlockIndex>)> {
        let new = |b: &&BlockIndex| self.available.contains(b) && !self.read.contains(b);
        let mut cheapest = None;
        for (at, group) in self.groups.iter().enumerate() {
            for &block in self.rest.iter().filter(|block| group.contains(block)) {
                let Some(helpers) = self.helpers(group, block, chained) else { continue };
                let cost = (helpers.iter().filter(new).count(), group.len());
                if cheapest.as_ref().is_none_or(|(least, _)| cost < *least) {
                    cheapest = Some((cost, (block, at, helpers)));
                }
            }
        }
        cheapest.map(|(_, repair)| repair)
    }

    /// The other members of the group, if all of them are available or repaired: available ones in order of
    /// preference, then repaired ones.
    fn helpers(&self, group: &[BlockIndex], block: BlockIndex, chained: bool) -> Option<Vec<BlockIndex>> {
        let w = self.code.w() as u32;
        let repaired = |b: &BlockIndex| self.graph.joins().contains_key(&Vertex(u32::from(b.0) * w));
        let repaired = group.iter().filter(|b| chained && repaired(b));
        let helpers = self.available.iter().filter(|b| group.contains(b)).chain(repaired).copied();
        let helpers: Vec<_> = helpers.collect();
        (helpers.len() + 1 == group.len() && !helpers.contains(&block)).then_some(helpers)
    }

    /// Whether the block may have fewer than k helpers by design: it is in an (incomplete) group, or the code
    /// lists no groups. A block outside all groups, such as Azure-LRC's globals, costs k except where some
    /// coefficients happen to be zero; those cases are not searched.
    fn is_local(&self, block: BlockIndex) -> bool {
        let groups = self.code.groups();
        groups.is_empty() || groups.iter().any(|group| group.contains(&block))
    }

    /// Joins the blocks that no group repaired; `None` when the available blocks do not determine them.
    fn finish(mut self) -> Option<Ecdag> {
        let (read, unread): (Vec<_>, Vec<_>) = self.available.iter().partition(|b| self.read.contains(b));
        let helpers = [&read[..], &unread[..]].concat();
        let mds = self.code.distance() == self.code.n() - self.code.k() + 1;
        match self.rest[..] {
            [] => Some(self.graph),
            [block] if self.code.w() == 1 && !mds && self.is_local(block) => {
                let helpers: Vec<usize> = symbols(self.code, &helpers).collect();
                let rows = self.code.generator().select_rows(helpers.iter().copied());
                let symbol = usize::from(block.0);
                let coefs = sparsest::express(&rows, self.code.generator().row(symbol), read.len())?;
                join_row(&mut self.graph, symbol, &helpers, &coefs);
                Some(self.graph)
            }
            _ => join(&mut self.graph, self.code, &helpers, &self.rest).then_some(self.graph),
        }
    }
}

/// Joins every symbol of `targets` from symbols of `helpers`, preferring earlier ones. Returns false and joins
/// nothing when the helpers do not determine them.
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

/// The error that names the remaining blocks and the blocks that would help.
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
