//! The costs of repairs, counted on the code's own decode graphs, each of which is proved first.
//!
//! Where a repair is computed and which links it uses is decided elsewhere (`kintsu-plan`).
//!
//! Source of the measures: "On Fault Tolerance, Locality, and Optimality in Locally Repairable Codes"
//! (ATC'18), section 3. Their cost(b_i) is [`RepairCost::read`]. All are exact.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_algebra::Matrix;
use kintsu_code::Code;
use kintsu_dag::{BlockIndex, Ecdag, Vertex, chain};
use serde::Serialize;

use crate::{AnalysisError, Ratio};

/// The cost, in blocks, of repairing one block when all others are available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepairCost {
    /// The lost block.
    pub block: BlockIndex,
    /// Read from disks: leaf symbols of the decode graph / w.
    pub read: Ratio,
    /// Moved between nodes when the requestor computes everything that the code does not bind to a helper
    /// (`bind_y`): symbols moved / w. Equals `read` for a code that binds nothing.
    pub moved: Ratio,
    /// Number of blocks that are read at least in part: the locality of this block.
    pub helpers: usize,
}

/// The measures of a code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Costs {
    /// The repair of each single block.
    pub per_block: Vec<RepairCost>,
    /// Average repair cost: the sum of `read` over all blocks / n.
    pub arc: Ratio,
    /// Normalised repair cost: the same sum / k. Reads to rebuild a lost node, for each data block it held.
    pub nrc: Ratio,
    /// Average cost of a degraded read: the sum of `read` over the data blocks / k.
    pub degraded: Ratio,
    /// n / k.
    pub overhead: Ratio,
    /// The proved distance.
    pub d: usize,
    /// `nrc / d`.
    pub rd_ratio: Ratio,
}

/// The measures of `code`. Costs a decode graph and its proof for each block.
///
/// # Errors
/// `Code` when a block cannot be decoded from all others; `Graph` when a decode graph is false.
pub fn costs(code: &dyn Code) -> Result<Costs, AnalysisError> {
    let blocks = (0..code.n()).map(|b| repair_cost(code, BlockIndex(b as u8)));
    Ok(measures(code, blocks.collect::<Result<_, _>>()?))
}

/// The measures of the design that `code` follows, as the study defines them: like [`costs`], but where a code has
/// local groups, a block in no group costs k blocks. The coefficients of a particular code may allow fewer, which
/// [`costs`] shows.
///
/// # Errors
/// As [`costs`].
pub fn design_costs(code: &dyn Code) -> Result<Costs, AnalysisError> {
    let (k, groups) = (code.k(), code.groups());
    let mut per_block = costs(code)?.per_block;
    let in_none = |block| !groups.iter().any(|group| group.contains(&block));
    for cost in per_block.iter_mut().filter(|cost| !groups.is_empty() && in_none(cost.block)) {
        let all = Ratio::new(k, 1);
        *cost = RepairCost { block: cost.block, read: all, moved: all, helpers: k };
    }
    Ok(measures(code, per_block))
}

fn measures(code: &dyn Code, per_block: Vec<RepairCost>) -> Costs {
    let (n, k, d) = (code.n(), code.k(), code.distance());
    let sum = |of: &[RepairCost]| of.iter().map(|cost| cost.read).sum::<Ratio>();
    let nrc = sum(&per_block) / k;
    Costs {
        arc: sum(&per_block) / n,
        nrc,
        degraded: sum(&per_block[..k]) / k,
        overhead: Ratio::new(n, k),
        d,
        rd_ratio: nrc / d,
        per_block,
    }
}

/// The cost of repairing `block` when all others are available.
///
/// # Errors
/// As [`costs`].
pub fn repair_cost(code: &dyn Code, block: BlockIndex) -> Result<RepairCost, AnalysisError> {
    let graph = single_repair(code, block)?;
    let (w, leaves) = (code.w(), graph.leaves());
    let helpers: BTreeSet<u32> = leaves.iter().map(|leaf| leaf.0 / w as u32).collect();
    Ok(RepairCost {
        block,
        read: Ratio::new(leaves.len(), w),
        moved: Ratio::new(symbols_moved(&graph), w),
        helpers: helpers.len(),
    })
}

/// Terms of a repair in its flat form beyond which no path is made of it here.
const MOST_TERMS: usize = 1 << 15;

/// What the repair of `block` sends in all, in blocks, if partial sums travel along a path through its helpers, those
/// that read least first. No link carries more than one block then. A star sends [`RepairCost::moved`], over one link.
/// `None` for repairs that have very many terms in their flat form.
///
/// # Errors
/// As [`costs`].
pub fn sent_along_a_path(code: &dyn Code, block: BlockIndex) -> Result<Option<Ratio>, AnalysisError> {
    let graph = single_repair(code, block)?;
    let w = code.w();
    if graph.leaves().len() * w > MOST_TERMS {
        return Ok(None);
    }
    let false_graph = |error| AnalysisError::Graph {
        name: code.name().to_owned(),
        graph: format!("path that repairs {block}"),
        error,
    };
    let (leaves, targets, coefs) = graph.flatten().map_err(false_graph)?;
    let mut columns: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (column, leaf) in leaves.iter().enumerate() {
        columns.entry(leaf.0 / w as u32).or_default().push(column);
    }
    let mut columns: Vec<Vec<usize>> = columns.into_values().collect();
    columns.sort_by_key(Vec::len);
    let hops: Vec<Vec<Vertex>> =
        columns.iter().map(|hop| hop.iter().map(|at| leaves[*at]).collect()).collect();
    let order = columns.concat();
    let coefs = Matrix::from_fn(targets.len(), order.len(), |row, at| coefs.row(row)[order[at]]);
    let path = chain(code.n(), w, &hops, &targets, &coefs).map_err(false_graph)?;
    Ok(Some(Ratio::new(symbols_moved(&path), w)))
}

/// The proved graph that repairs `block` from the others.
fn single_repair(code: &dyn Code, block: BlockIndex) -> Result<Ecdag, AnalysisError> {
    let others: Vec<_> = (0..code.n()).map(|b| BlockIndex(b as u8)).filter(|&b| b != block).collect();
    let graph = code.decode(&others, &[block])?;
    let false_graph = |error| AnalysisError::Graph {
        name: code.name().to_owned(),
        graph: format!("decode graph of {block}"),
        error,
    };
    graph.prove(code.generator()).map_err(false_graph)?;
    let symbols = usize::from(block.0) * code.w()..(usize::from(block.0) + 1) * code.w();
    if !graph.targets().iter().map(|v| v.0 as usize).eq(symbols) {
        let expected = format!("all {} symbols of {block}, and no others", code.w());
        let what = format!("decode graph of {}", code.name());
        return Err(AnalysisError::invalid(what, expected, format!("{:?}", graph.targets())));
    }
    Ok(graph)
}

/// The place of a vertex: a helper or the requestor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Helper(u32),
    Requestor,
}

/// The number of symbols sent between nodes when each bound vertex is at the place of its child and everything
/// else is at the requestor.
fn symbols_moved(graph: &Ecdag) -> usize {
    let place = |vertex: Vertex| place(graph, vertex);
    let mut moves = BTreeSet::new();
    for (&parent, join) in graph.joins() {
        let to = place(parent);
        moves.extend(join.children.iter().filter(|&&c| place(c) != to).map(|&c| (c, to)));
    }
    let targets = graph.targets();
    moves
        .extend(targets.into_iter().filter(|&t| place(t) != Place::Requestor).map(|t| (t, Place::Requestor)));
    moves.len()
}

fn place(graph: &Ecdag, mut vertex: Vertex) -> Place {
    loop {
        if !graph.joins().contains_key(&vertex) {
            return Place::Helper(vertex.0 / graph.w() as u32);
        }
        let joint = graph.bind_of(vertex).and_then(|bind| graph.binds_y().get(&bind.vertex));
        match joint.or_else(|| graph.binds_y().get(&vertex)) {
            Some(&child) => vertex = child,
            None => return Place::Requestor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Costs {
        costs(&*kintsu_code::parse(name).unwrap()).unwrap()
    }

    #[test]
    fn a_local_code_reads_its_groups_and_k_for_globals() {
        let costs = of("azure-lrc:n=10,k=6,r=3");
        let reads: Vec<u64> = costs.per_block.iter().map(|c| c.read.num() / c.read.den()).collect();
        assert_eq!(reads, [3, 3, 3, 3, 3, 3, 3, 3, 6, 6]);
        assert_eq!((costs.arc, costs.nrc), (Ratio::new(36, 10), Ratio::new(6, 1)));
        assert_eq!((costs.degraded, costs.overhead), (Ratio::new(3, 1), Ratio::new(10, 6)));
        assert_eq!((costs.d, costs.rd_ratio), (4, Ratio::new(6, 4)));
        assert!(costs.per_block.iter().all(|c| c.moved == c.read && Ratio::new(c.helpers, 1) == c.read));
    }

    #[test]
    fn a_design_pays_k_for_what_is_in_no_group_whatever_the_coefficients_allow() {
        let code = kintsu_code::parse("azure-lrc:n=11,k=6,r=3").unwrap();
        let (own, design) = (costs(&*code).unwrap(), design_costs(&*code).unwrap());
        assert!(design.per_block[8..].iter().all(|cost| cost.read == Ratio::new(6, 1)));
        assert_eq!((design.nrc, &design.per_block[..8]), (Ratio::new(42, 6), &own.per_block[..8]));
        assert!(own.per_block.iter().zip(&design.per_block).all(|(own, design)| own.read <= design.read));
        let clay = kintsu_code::parse("clay:n=6,k=4,d=5").unwrap();
        assert_eq!(costs(&*clay), design_costs(&*clay));
    }

    #[test]
    fn an_mds_code_reads_k_blocks_for_each() {
        let costs = of("rs:n=14,k=10");
        assert_eq!((costs.arc, costs.nrc, costs.degraded), (Ratio::new(10, 1), Ratio::new(14, 1), costs.arc));
    }

    #[test]
    fn a_path_carries_no_more_than_was_read_for_it_and_a_block_at_most() {
        let of = |name: &str| {
            let code = kintsu_code::parse(name).unwrap();
            let star = repair_cost(&*code, BlockIndex(0)).unwrap().moved;
            (star, sent_along_a_path(&*code, BlockIndex(0)).unwrap().unwrap())
        };
        assert_eq!(of("rs:n=14,k=10"), (Ratio::new(10, 1), Ratio::new(10, 1)));
        // Five survivors read half a block each: the first link carries half a block, four carry a whole one.
        let (star, path) = of("clay:n=6,k=4,d=5");
        assert_eq!((star, path), (Ratio::new(5, 2), Ratio::new(9, 2)));
        // Every survivor has a quarter of a block. Those of the data go into one sub-block each, so they go straight to the
        // first parity; from there on whole blocks pass: 3/4 + 4.
        let (star, path) = of("miser:n=8,k=4");
        assert_eq!((star, path), (Ratio::new(7, 4), Ratio::new(19, 4)));
        let (star, path) = of("rotated-rs:n=16,k=12");
        assert!(star < Ratio::new(9, 1) && path > Ratio::new(11, 1), "{star:?} {path:?}");
        let large = kintsu_code::parse("clay:n=14,k=10,d=13").unwrap();
        assert_eq!(sent_along_a_path(&*large, BlockIndex(0)).unwrap(), None);
    }

    #[test]
    fn what_a_helper_combines_moves_once() {
        // b2 from two sub-blocks each of b0 and b1: b1 sends its sum alone, b0 both of its symbols.
        let mut graph = Ecdag::new(3, 2);
        graph.join(Vertex(10), &[Vertex(2), Vertex(3)], &[1, 1]).unwrap();
        graph.join(Vertex(4), &[Vertex(0), Vertex(10)], &[1, 1]).unwrap();
        graph.join(Vertex(5), &[Vertex(1), Vertex(10)], &[1, 1]).unwrap();
        assert_eq!(symbols_moved(&graph), 4);
        graph.bind_y(Vertex(10), Vertex(3)).unwrap();
        assert_eq!(symbols_moved(&graph), 3);
        // Both targets together at b0: the sum goes to b0, and its results go to the requestor.
        let both = graph.bind_x(&[Vertex(4), Vertex(5)]).unwrap();
        graph.bind_y(both, Vertex(0)).unwrap();
        assert_eq!(symbols_moved(&graph), 3);
    }
}
