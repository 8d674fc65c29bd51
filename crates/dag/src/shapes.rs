//! Graphs of the three repair shapes for one linear map: star (conventional), tree (PPR) and
//! chain (repair pipelining).
//!
//! All take the map as `coefs`, `targets x leaves`, and its leaves by **hop**: the leaves that
//! live on one helper, in the helper's order on the way to the requestor. The columns of `coefs`
//! are the leaves of all hops one after the other. Terms with coefficient zero are left out, and so
//! are helpers without other terms. Partial sums are virtual vertices, one for each target that a
//! helper adds to, computed together and bound to a leaf of that helper.

use kintsu_algebra::Matrix;

use crate::ecdag::distinct;
use crate::{DagError, Ecdag, Vertex};

/// Conventional repair: every target joined directly from the leaves, all targets computed
/// together. Where is for [`crate::Placed::compute_at`] to say.
///
/// # Errors
/// `Invalid` for `coefs` of another shape, repeated or overlapping leaves and targets, or no leaf.
pub fn star(
    n: usize,
    w: usize,
    hops: &[Vec<Vertex>],
    targets: &[Vertex],
    coefs: &Matrix,
) -> Result<Ecdag, DagError> {
    let map = Map::new(n, w, hops, targets, coefs)?;
    let mut graph = Ecdag::new(n, w);
    let mut sums = map.sums();
    for hop in 0..hops.len() {
        map.add_leaves(hop, &mut sums);
    }
    join_together(&mut graph, targets.iter().copied().zip(sums), None)?;
    Ok(graph)
}

/// PPR (as drawn in ECPipe, Fig. 2(b)): in every round the helpers still active, and the requestor after
/// them, pair up as neighbours, and the left of each pair sends its partial sums to the right:
/// `ceil(log2(hops + 1))` rounds. A helper computes once, when it sends. The targets are joined at
/// the requestor, from partial sums only; where that is, is for [`crate::Placed::compute_at`] to say.
///
/// # Errors
/// As [`star`].
pub fn tree(
    n: usize,
    w: usize,
    hops: &[Vec<Vertex>],
    targets: &[Vertex],
    coefs: &Matrix,
) -> Result<Ecdag, DagError> {
    let map = Map::new(n, w, hops, targets, coefs)?;
    let mut graph = map.empty_graph();
    // What each active node, the requestor last, has received so far for each target.
    let used: Vec<usize> = (0..hops.len()).filter(|hop| map.anchor(*hop).is_some()).collect();
    let mut active: Vec<(Option<usize>, Vec<Sum>)> =
        used.iter().map(|hop| (Some(*hop), map.sums())).collect();
    active.push((None, map.sums()));
    while active.len() > 1 {
        let mut next = Vec::with_capacity(active.len().div_ceil(2));
        let mut nodes = active.into_iter();
        while let Some((left, mut sums)) = nodes.next() {
            let Some((right, mut received)) = nodes.next() else {
                next.push((left, sums));
                break;
            };
            let hop = left.expect("the requestor comes last");
            map.add_leaves(hop, &mut sums);
            let partial = partials(&mut graph, &sums);
            for (target, vertex) in partial.iter().enumerate() {
                received[target].extend(vertex.map(|v| (v, 1)));
            }
            let joins = partial.into_iter().zip(sums).filter_map(|(vertex, sum)| Some((vertex?, sum)));
            join_together(&mut graph, joins, map.anchor(hop))?;
            next.push((right, received));
        }
        active = next;
    }
    let (_, sums) = active.pop().expect("the requestor is left");
    join_together(&mut graph, targets.iter().copied().zip(sums), None)?;
    Ok(graph)
}

/// Repair pipelining: the partial sums of all targets travel along the hops in order, each helper
/// adding its leaves; a hop that adds nothing to a target is passed over by that target's sum. The
/// last helper that adds to a target computes it, so a requestor just fetches its target.
///
/// # Errors
/// As [`star`].
pub fn chain(
    n: usize,
    w: usize,
    hops: &[Vec<Vertex>],
    targets: &[Vertex],
    coefs: &Matrix,
) -> Result<Ecdag, DagError> {
    let map = Map::new(n, w, hops, targets, coefs)?;
    let mut graph = map.empty_graph();
    let mut carried: Vec<Option<Vertex>> = vec![None; targets.len()];
    for hop in 0..hops.len() {
        let mut joins = Vec::new();
        for (target, carried) in carried.iter_mut().enumerate() {
            let Some(last) = map.last_hop(target).filter(|_| map.adds(hop, target)) else { continue };
            let mut sum: Sum = carried.iter().map(|v| (*v, 1)).collect();
            sum.extend(map.terms(hop, target));
            let vertex = if hop == last { targets[target] } else { graph.fresh() };
            *carried = Some(vertex);
            joins.push((vertex, sum));
        }
        join_together(&mut graph, joins, map.anchor(hop))?;
    }
    Ok(graph)
}

/// A linear combination in the making.
type Sum = Vec<(Vertex, u8)>;

/// The linear map to be computed, its columns found by hop.
struct Map<'a> {
    n: usize,
    w: usize,
    hops: &'a [Vec<Vertex>],
    /// The first column of each hop.
    first: Vec<usize>,
    targets: &'a [Vertex],
    coefs: &'a Matrix,
}

impl<'a> Map<'a> {
    fn new(
        n: usize,
        w: usize,
        hops: &'a [Vec<Vertex>],
        targets: &'a [Vertex],
        coefs: &'a Matrix,
    ) -> Result<Self, DagError> {
        let invalid = |expected: String, got: String| {
            Err(DagError::Invalid { what: "linear map".into(), expected, got })
        };
        let all: Vec<Vertex> = hops.iter().flatten().chain(targets).copied().collect();
        let leaves = all.len() - targets.len();
        if (coefs.rows(), coefs.cols()) != (targets.len(), leaves) || leaves == 0 || targets.is_empty() {
            return invalid(
                format!("{} x {leaves} coefficients, not empty", targets.len()),
                format!("{} x {}", coefs.rows(), coefs.cols()),
            );
        }
        if !distinct(&all) {
            return invalid("distinct leaves and targets".into(), format!("{all:?}"));
        }
        let first = hops.iter().scan(0, |next, hop| Some(std::mem::replace(next, *next + hop.len())));
        Ok(Self { n, w, hops, first: first.collect(), targets, coefs })
    }

    /// A graph whose fresh vertices are none of the leaves or targets.
    fn empty_graph(&self) -> Ecdag {
        let mut graph = Ecdag::new(self.n, self.w);
        for vertex in self.hops.iter().flatten().chain(self.targets) {
            graph.reserve(vertex.0.saturating_add(1));
        }
        graph
    }

    /// What the leaves of a hop add to a target. A target that is zero whatever the leaves hold still
    /// gets one term, zero times the very last leaf, so that it is computed somewhere.
    fn terms(&self, hop: usize, target: usize) -> impl Iterator<Item = (Vertex, u8)> {
        let row = self.coefs.row(target);
        let first = self.first[hop];
        let zero = first + self.hops[hop].len() == row.len() && row.iter().all(|c| *c == 0);
        let all = self.hops[hop].iter().zip(first..).map(|(leaf, column)| (*leaf, column, row[column]));
        all.filter(move |(_, column, coef)| *coef != 0 || (zero && column + 1 == row.len()))
            .map(|(leaf, _, coef)| (leaf, coef))
    }

    fn adds(&self, hop: usize, target: usize) -> bool {
        self.terms(hop, target).next().is_some()
    }

    fn last_hop(&self, target: usize) -> Option<usize> {
        (0..self.hops.len()).rev().find(|hop| self.adds(*hop, target))
    }

    /// The leaf of a hop that its computation is bound to: the first in use.
    fn anchor(&self, hop: usize) -> Option<Vertex> {
        let used = |leaf: &&Vertex| {
            (0..self.targets.len()).any(|target| self.terms(hop, target).any(|(v, _)| v == **leaf))
        };
        self.hops[hop].iter().find(used).copied()
    }

    fn sums(&self) -> Vec<Sum> {
        vec![Sum::new(); self.targets.len()]
    }

    fn add_leaves(&self, hop: usize, sums: &mut [Sum]) {
        for (target, sum) in sums.iter_mut().enumerate() {
            sum.extend(self.terms(hop, target));
        }
    }
}

/// A fresh vertex for every sum that has terms.
fn partials(graph: &mut Ecdag, sums: &[Sum]) -> Vec<Option<Vertex>> {
    sums.iter().map(|sum| (!sum.is_empty()).then(|| graph.fresh())).collect()
}

/// Joins each vertex from its sum, all of them in one computation, where `anchor` lives if given.
fn join_together(
    graph: &mut Ecdag,
    joins: impl IntoIterator<Item = (Vertex, Sum)>,
    anchor: Option<Vertex>,
) -> Result<(), DagError> {
    let mut members = Vec::new();
    for (vertex, sum) in joins {
        let (children, coefs): (Vec<_>, Vec<_>) = sum.into_iter().unzip();
        graph.join(vertex, &children, &coefs)?;
        members.push(vertex);
    }
    let unit = match members[..] {
        [] => return Ok(()),
        [single] => single,
        _ => graph.bind_x(&members)?,
    };
    anchor.map_or(Ok(()), |leaf| graph.bind_y(unit, leaf))
}
