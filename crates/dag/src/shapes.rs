//! Repair graphs for one linear map: star (conventional), and partial sums over any tree. PPR's tree and the chain
//! (repair pipelining) are two such trees.
//!
//! All functions take the map as `coefs`, `targets x leaves`, and its leaves by **hop**. A hop is the leaves that
//! live on one helper; hops are in the order of the way to the requestor. The columns of `coefs` are the leaves of
//! all hops one after the other. Terms with coefficient zero are left out, and so are helpers without other terms.
//! Partial sums are virtual vertices, one for each target that a helper adds to, computed together and bound to a
//! leaf of that helper.

use std::collections::BTreeSet;

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
    Map::new(n, w, hops, targets, coefs)?.over_tree(&parents)
}

/// Partial sums travel along any tree rooted at the requestor: `parents` gives for each hop the hop that it sends
/// its sums to, `None` for the requestor. A helper adds its leaves to what its children sent, all targets in one
/// computation, and sends one sum for each target. Sums that depend on each other, because few leaves have
/// been added yet, are sent as fewer: the independent ones, or the leaves themselves. A target's sum skips a hop that
/// neither adds to the target nor combines several sums, unless what it is has come there for another target. If only one sum for a target reaches the requestor, that sum is the target: the helper
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
    Map { compact: true, ..Map::new(n, w, hops, targets, coefs)? }.over_tree(parents)
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

/// Partial sums have numbers from here on until it is known which of them are targets.
const PARTIAL: u32 = 1 << 31;

/// Coefficients among which dependent sums are looked for.
const SEARCHED: usize = 1 << 16;

/// What has come to a hop.
#[derive(Default)]
struct Arrived {
    /// For each target the sum over `columns`; none before anything has come.
    sums: Vec<Sum>,
    /// The leaves that they are over, where dependent sums are looked for.
    columns: Vec<usize>,
    /// Whether all of the targets' sums over some of these leaves are known to be independent of each other. Then so
    /// are all sums over more leaves.
    full: bool,
}

/// How a sum is found from those that are sent.
enum By {
    /// It is sent.
    Itself,
    /// It is a combination of others, given by their places.
    Others(Vec<(usize, u8)>),
}

/// The linear map to compute, with its columns grouped by hop.
struct Map<'a> {
    n: usize,
    w: usize,
    hops: &'a [Vec<Vertex>],
    /// The first column of each hop.
    first: Vec<usize>,
    targets: &'a [Vertex],
    coefs: &'a Matrix,
    /// Whether sums of several lost blocks that depend on each other are sent as fewer. If not, these travel side by side, as
    /// published.
    compact: bool,
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
        Ok(Self { n, w, hops, first: first.collect(), targets, coefs, compact: w > 1 })
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
        let mut received: Vec<Arrived> = self.hops.iter().map(|_| Arrived::default()).collect();
        let (mut at_requestor, mut computed) = (Arrived::default(), Vec::with_capacity(order.len()));
        let mut partial = 0;
        for hop in order {
            let arrived = std::mem::take(&mut received[hop]);
            let (sent, joins) = self.pass(hop, arrived, &mut partial);
            let next = parents[hop].map_or(&mut at_requestor, |parent| &mut received[parent]);
            if next.sums.is_empty() {
                *next = sent;
            } else {
                next.sums.iter_mut().zip(sent.sums).for_each(|(to, sum)| to.extend(sum));
                next.columns.extend(sent.columns);
                next.full |= sent.full;
            }
            computed.push((hop, joins));
        }
        // A partial sum that is a whole target gets its name.
        let place = |vertex: &Vertex| vertex.0.checked_sub(PARTIAL).map(|place| place as usize);
        let mut names: Vec<Option<Vertex>> = vec![None; partial as usize];
        let mut last = Vec::new();
        for (target, sum) in self.targets.iter().zip(at_requestor.sums) {
            let whole = match &sum[..] {
                [(vertex, 1)] => place(vertex).and_then(|place| names.get_mut(place)),
                _ => None,
            };
            match whole {
                Some(name @ None) => *name = Some(*target),
                _ => last.push((*target, sum)),
            }
        }
        let mut graph = self.empty_graph();
        let hops = computed.into_iter().map(|(hop, joins)| (joins, self.anchor(hop)));
        for (mut joins, anchor) in hops.chain([(last, None)]) {
            for (vertex, sum) in &mut joins {
                let named_already = |child: &Vertex| place(child).and_then(|place| *names.get(place)?);
                sum.iter_mut().for_each(|(child, _)| *child = named_already(child).unwrap_or(*child));
                if let Some(name) = place(vertex).and_then(|place| names.get_mut(place)) {
                    *vertex = *name.get_or_insert_with(|| graph.fresh());
                }
            }
            join_together(&mut graph, joins, anchor)?;
        }
        Ok(graph)
    }

    /// What a hop sends on, and the partial sums that it computes for that; `partial` were computed before.
    fn pass(&self, hop: usize, arrived: Arrived, partial: &mut u32) -> (Arrived, Vec<(Vertex, Sum)>) {
        let Arrived { mut sums, mut columns, mut full } = arrived;
        let first_hop = sums.is_empty();
        if first_hop {
            sums = self.sums();
        }
        let mut joins = Vec::with_capacity(sums.len());
        let mut compute = |sum: &mut Sum| {
            let vertex = Vertex(PARTIAL | *partial);
            *partial += 1;
            joins.push((vertex, std::mem::replace(sum, vec![(vertex, 1)])));
        };
        if !self.compact || self.targets.len() == 1 {
            for (target, sum) in sums.iter_mut().enumerate() {
                if self.joins(hop, target, sum.len()) {
                    sum.extend(self.terms(hop, target));
                    compute(sum);
                }
            }
            return (Arrived { sums, columns, full }, joins);
        }
        let joins_here = |t: &usize| self.joins(hop, *t, sums[*t].len());
        let here: BTreeSet<Vertex> =
            (0..sums.len()).filter(joins_here).flat_map(|t| &sums[t]).map(|(vertex, _)| *vertex).collect();
        let relayed = |t: &usize| matches!(sums[*t][..], [(vertex, _)] if here.contains(&vertex));
        let joined: Vec<usize> = (0..sums.len()).filter(|t| joins_here(t) || relayed(t)).collect();
        self.add_leaves(hop, &mut sums);
        columns.extend(self.first[hop]..self.first[hop] + self.hops[hop].len());
        let by = self.by_independent(&joined, &columns, full);
        let independent = by.iter().filter(|sum| matches!(sum, By::Itself)).count();
        full |= independent == self.targets.len();
        if first_hop && independent < joined.len() && independent == self.used(hop).count() {
            return (Arrived { sums, columns, full }, joins);
        }
        for (&target, _) in joined.iter().zip(&by).filter(|(_, by)| matches!(by, By::Itself)) {
            compute(&mut sums[target]);
        }
        for (&target, by) in joined.iter().zip(&by) {
            if let By::Others(terms) = by {
                sums[target] = terms.iter().map(|&(other, coef)| (sums[joined[other]][0].0, coef)).collect();
            }
        }
        (Arrived { sums, columns, full }, joins)
    }

    /// Each of the targets' sums over the leaves of these columns by independent ones of them. Not looked for where all are
    /// known to be independent (`full`), or where there are so many leaves that the search would take long.
    fn by_independent(&self, targets: &[usize], columns: &[usize], full: bool) -> Vec<By> {
        let size = targets.len().saturating_mul(columns.len());
        let search = !full && targets.len() > 1 && size <= SEARCHED;
        let found = search.then(|| {
            let rows =
                Matrix::from_fn(targets.len(), columns.len(), |t, c| self.coefs.row(targets[t])[columns[c]]);
            rows.express(&rows).ok().flatten()
        });
        let found = found.flatten();
        let by = |t: usize| {
            let terms =
                found.iter().flat_map(|x| x.row(t).iter().copied().enumerate()).filter(|(_, c)| *c != 0);
            match terms.collect::<Vec<_>>() {
                terms if terms.is_empty() || terms == [(t, 1)] => By::Itself,
                terms => By::Others(terms),
            }
        };
        (0..targets.len()).map(by).collect()
    }

    /// The leaves of a hop with a coefficient other than zero.
    fn used(&self, hop: usize) -> impl Iterator<Item = Vertex> {
        let used = move |leaf: &Vertex| {
            (0..self.targets.len()).any(|target| self.terms(hop, target).any(|(v, _)| v == *leaf))
        };
        self.hops[hop].iter().copied().filter(used)
    }

    /// The leaf to which the computation of a hop is bound: the first leaf in use.
    fn anchor(&self, hop: usize) -> Option<Vertex> {
        self.used(hop).next()
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
