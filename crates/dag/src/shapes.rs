//! Repair graphs for one linear map: star (conventional), and partial sums over any tree. PPR's tree and the chain
//! (repair pipelining) are two such trees.
//!
//! All functions take the map as `coefs`, `targets x leaves`, and its leaves by **hop**. A hop is the leaves that
//! live on one helper; hops are in the order of the way to the requestor. The columns of `coefs` are the leaves of
//! all hops one after the other. Terms with coefficient zero are left out, and so are helpers without other terms.
//! Partial sums are virtual vertices, one for each target that a helper adds to, computed together and bound to a
//! leaf of that helper.

use kintsu_algebra::Matrix;

use crate::ecdag::distinct;
use crate::{DagError, Ecdag, Vertex};

/// Conventional repair: every target joined directly from the leaves, all targets computed together.
/// [`crate::Placed::compute_at`] gives the place.
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
/// `ceil(log2(hops + 1))` rounds. An [`over_tree`].
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
    let mut parents = vec![None; hops.len()];
    let mut active: Vec<Option<usize>> =
        (0..hops.len()).filter(|hop| map.anchor(*hop).is_some()).map(Some).chain([None]).collect();
    while active.len() > 1 {
        for pair in active.chunks_exact(2) {
            parents[pair[0].expect("the requestor comes last")] = pair[1];
        }
        active = active.chunks(2).map(|pair| pair[pair.len() - 1]).collect();
    }
    map.over_tree(&parents)
}

/// Repair pipelining: the partial sums of all targets travel along the hops in order, each helper
/// adding its leaves. An [`over_tree`], so the last helper that adds to a target computes it.
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
    let parents: Vec<Option<usize>> =
        (1..=hops.len()).map(|next| (next < hops.len()).then_some(next)).collect();
    over_tree(n, w, hops, &parents, targets, coefs)
}

/// Partial sums travel along any tree rooted at the requestor: `parents` gives for each hop the hop that it sends
/// its sums to, `None` for the requestor. A helper adds its leaves to what its children sent, all targets in one
/// computation, and sends one sum for each target. A target's sum skips a hop that neither adds to the target nor
/// combines several sums. If only one sum for a target reaches the requestor, that sum is the target: the helper
/// computes it, and the requestor just fetches it. Other targets are joined at the requestor, whose node
/// [`crate::Placed::compute_at`] gives.
///
/// # Errors
/// As [`star`]; `Invalid` for parents that are not one for each hop, or do not lead to the requestor.
pub fn over_tree(
    n: usize,
    w: usize,
    hops: &[Vec<Vertex>],
    parents: &[Option<usize>],
    targets: &[Vertex],
    coefs: &Matrix,
) -> Result<Ecdag, DagError> {
    Map::new(n, w, hops, targets, coefs)?.over_tree(parents)
}

/// The hops, ordered so that each comes after all that send to it.
fn upward(parents: &[Option<usize>], hops: usize) -> Result<Vec<usize>, DagError> {
    // The number of steps from each hop to the requestor; none on a cycle or for a parent that is not a hop.
    let depth = |hop: &usize| {
        let mut at = Some(*hop);
        (0..=hops).find(|_| match at {
            Some(hop) => {
                at = parents.get(hop).copied().unwrap_or(Some(hop));
                false
            }
            None => true,
        })
    };
    let mut order: Vec<usize> = (0..hops).collect();
    if parents.len() != hops || order.iter().any(|hop| depth(hop).is_none()) {
        return Err(DagError::Invalid {
            what: "tree".into(),
            expected: format!("a parent for each of {hops} hops, the requestor above all"),
            got: format!("{parents:?}"),
        });
    }
    order.sort_by_key(|hop| std::cmp::Reverse(depth(hop)));
    Ok(order)
}

/// A linear combination under construction.
type Sum = Vec<(Vertex, u8)>;

/// The linear map to compute, with its columns grouped by hop.
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

    /// An empty graph whose fresh vertices differ from all leaves and targets.
    fn empty_graph(&self) -> Ecdag {
        let mut graph = Ecdag::new(self.n, self.w);
        for vertex in self.hops.iter().flatten().chain(self.targets) {
            graph.reserve(vertex.0.saturating_add(1));
        }
        graph
    }

    /// The terms that the leaves of a hop add to a target. A target that is always zero still gets one term, zero
    /// times the very last leaf, so that it is computed somewhere.
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

    /// Whether a hop that received `sums` sums for a target computes a sum of its own: it must add terms of its
    /// own, or combine several sums where it computes anyway.
    fn joins(&self, hop: usize, target: usize, sums: usize) -> bool {
        self.adds(hop, target) || (sums > 1 && self.anchor(hop).is_some())
    }

    fn over_tree(&self, parents: &[Option<usize>]) -> Result<Ecdag, DagError> {
        let order = upward(parents, self.hops.len())?;
        let computed_by: Vec<Option<usize>> =
            (0..self.targets.len()).map(|target| self.last_hop(target, &order, parents)).collect();
        let mut graph = self.empty_graph();
        let mut received: Vec<Vec<Sum>> = vec![self.sums(); self.hops.len()];
        let mut arrived = self.sums();
        for hop in order {
            let mut joins = Vec::new();
            for (target, mut sum) in std::mem::take(&mut received[hop]).into_iter().enumerate() {
                if self.joins(hop, target, sum.len()) {
                    sum.extend(self.terms(hop, target));
                    let last = computed_by[target] == Some(hop);
                    let vertex = if last { self.targets[target] } else { graph.fresh() };
                    joins.push((vertex, sum));
                    sum = vec![(vertex, 1)];
                }
                let next = parents[hop].map_or(&mut arrived, |parent| &mut received[parent]);
                next[target].extend(sum);
            }
            join_together(&mut graph, joins, self.anchor(hop))?;
        }
        let at_requestor = self.targets.iter().zip(arrived).zip(computed_by);
        let joins = at_requestor.filter(|(_, by)| by.is_none()).map(|((target, sum), _)| (*target, sum));
        join_together(&mut graph, joins, None)?;
        Ok(graph)
    }

    /// The hop that computes a whole target, if its sum is the only one that reaches the requestor.
    fn last_hop(&self, target: usize, order: &[usize], parents: &[Option<usize>]) -> Option<usize> {
        // For each hop, and the requestor after them, the hops whose sums reach it.
        let mut from: Vec<Vec<usize>> = vec![Vec::new(); self.hops.len() + 1];
        for &hop in order {
            let mut sums = std::mem::take(&mut from[hop]);
            if self.joins(hop, target, sums.len()) {
                sums = vec![hop];
            }
            from[parents[hop].unwrap_or(self.hops.len())].extend(sums);
        }
        match from[self.hops.len()][..] {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The leaf to which the computation of a hop is bound: the first leaf in use.
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

/// Joins each vertex from its sum, all in one computation, at the place of `anchor` if given.
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
