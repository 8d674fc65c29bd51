//! From lost blocks to the linear map that rebuilds them.
//!
//! A lost block and another one that share no helper are rebuilt independently: the map falls into [`Part`]s (two
//! lost blocks in two local groups of an LRC are two repairs of r helpers each). This module knows no shapes and
//! no requestors.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_algebra::Matrix;
use kintsu_code::CodeError;
use kintsu_dag::{BlockIndex, DagError, Ecdag, Vertex};

use crate::{PlanError, StripeView};

/// The graph that computes `lost` blocks from available blocks, preferring earlier ones of `preference`. Blocks
/// without bytes count as zeros.
///
/// # Errors
/// `Unrecoverable` when what is left does not determine the lost blocks.
pub(crate) fn decode(
    view: &StripeView,
    preference: &[BlockIndex],
    lost: &[BlockIndex],
) -> Result<Ecdag, PlanError> {
    let absent = view.absent();
    let known = [&absent[..], preference].concat();
    let graph = view.code.decode(&known, lost).map_err(|error| refusal(error, preference))?;
    let filler = preference.first().and_then(|block| view.symbols(*block).next());
    shorten(view, graph, &absent, filler).map_err(|error| match error {
        PlanError::Unrecoverable { reason, .. } => {
            PlanError::Unrecoverable { lost: lost.to_vec(), left: sorted(preference), reason }
        }
        other => other,
    })
}

/// The graph without the leaves of `absent` blocks. A target that is zero because it has no other inputs stays in
/// the graph, as zero times the first remaining leaf, or if there is none, times `filler`.
///
/// # Errors
/// `Unrecoverable` when there is no `filler` either.
pub(crate) fn shorten(
    view: &StripeView,
    graph: Ecdag,
    absent: &[BlockIndex],
    filler: Option<Vertex>,
) -> Result<Ecdag, PlanError> {
    if absent.is_empty() {
        return Ok(graph);
    }
    let leaves: BTreeSet<Vertex> = absent.iter().flat_map(|block| view.symbols(*block)).collect();
    let (mut short, zero) = graph.without_leaves(&leaves)?;
    if !zero.is_empty() {
        let filler = short.leaves().first().copied().or(filler).ok_or_else(|| PlanError::Unrecoverable {
            lost: zero.iter().map(|v| view.block_of(*v)).collect(),
            left: Vec::new(),
            reason: "expected one more block, got none".into(),
        })?;
        for target in zero {
            short.join(target, &[filler], &[0])?;
        }
    }
    Ok(short)
}

fn sorted(blocks: &[BlockIndex]) -> Vec<BlockIndex> {
    let mut sorted = blocks.to_vec();
    sorted.sort_unstable();
    sorted
}

fn refusal(error: CodeError, left: &[BlockIndex]) -> PlanError {
    match error {
        CodeError::Invalid { what, expected, got } => PlanError::Invalid { what, expected, got },
        CodeError::Unrecoverable { lost, needed, missing, .. } => {
            let needed: Vec<_> = needed.iter().map(ToString::to_string).collect();
            let reason = format!("at least {missing} more of {} needed", needed.join(", "));
            PlanError::Unrecoverable { lost, left: sorted(left), reason }
        }
        other => PlanError::Invalid {
            what: "decoding".into(),
            expected: "a graph from the code".into(),
            got: other.to_string(),
        },
    }
}

/// Lost blocks that share helpers, with the linear map that rebuilds them.
pub(crate) struct Part {
    /// The lost blocks, in order of number.
    pub lost: Vec<BlockIndex>,
    /// The blocks read, in order of number.
    pub helpers: Vec<BlockIndex>,
    /// The symbols of `helpers` that are read.
    leaves: Vec<Vertex>,
    /// The symbols of `lost`, in order of number.
    pub targets: Vec<Vertex>,
    /// `targets x leaves`.
    coefs: Matrix,
}

impl Part {
    /// The leaves by helper, helpers in the order of `route`, and the coefficients with columns in that
    /// order: the form in which the shapes take a map.
    pub fn hops(&self, view: &StripeView, route: &[BlockIndex]) -> (Vec<Vec<Vertex>>, Matrix) {
        let columns_of = |block: &BlockIndex| -> Vec<usize> {
            (0..self.leaves.len()).filter(|&c| view.block_of(self.leaves[c]) == *block).collect()
        };
        let by_hop: Vec<Vec<usize>> = route.iter().map(columns_of).collect();
        let order = by_hop.concat();
        let hops = by_hop.iter().map(|hop| hop.iter().map(|&c| self.leaves[c]).collect()).collect();
        (hops, Matrix::from_fn(self.targets.len(), order.len(), |t, c| self.coefs.row(t)[order[c]]))
    }

    /// How many symbols of a helper are read.
    pub fn symbols_of(&self, view: &StripeView, helper: BlockIndex) -> usize {
        self.leaves.iter().filter(|leaf| view.block_of(**leaf) == helper).count()
    }

    /// Multiply-adds of the map in its flat form.
    pub fn terms(&self) -> usize {
        self.coefs.as_slice().iter().filter(|c| **c != 0).count()
    }
}

/// The map that a decode graph computes, in its independent parts.
pub(crate) fn parts(view: &StripeView, graph: &Ecdag) -> Result<Vec<Part>, PlanError> {
    let (leaves, targets, coefs) = graph.flatten()?;
    // For each lost block its rows and the helpers that it needs (one helper if the block is always zero).
    let mut needs: BTreeMap<BlockIndex, (Vec<usize>, BTreeSet<BlockIndex>)> = BTreeMap::new();
    for (row, target) in targets.iter().enumerate() {
        let (rows, helpers) = needs.entry(view.block_of(*target)).or_default();
        let used = leaves.iter().zip(coefs.row(row)).filter(|(_, coef)| **coef != 0);
        helpers.extend(used.map(|(leaf, _)| view.block_of(*leaf)));
        rows.push(row);
    }
    let mut groups: Vec<(Vec<BlockIndex>, Vec<usize>, BTreeSet<BlockIndex>)> = Vec::new();
    for (block, (rows, mut helpers)) in needs {
        if helpers.is_empty() {
            helpers.extend(leaves.first().map(|leaf| view.block_of(*leaf)));
        }
        let mut merged = (vec![block], rows, helpers);
        let (joined, apart): (Vec<_>, _) =
            groups.into_iter().partition(|(_, _, others)| !others.is_disjoint(&merged.2));
        groups = apart;
        for (blocks, rows, helpers) in joined {
            merged.0.extend(blocks);
            merged.1.extend(rows);
            merged.2.extend(helpers);
        }
        groups.push(merged);
    }
    let part = |(mut lost, mut rows, helpers): (Vec<BlockIndex>, Vec<usize>, BTreeSet<BlockIndex>)| {
        lost.sort_unstable();
        rows.sort_unstable();
        let columns: Vec<usize> =
            (0..leaves.len()).filter(|&c| helpers.contains(&view.block_of(leaves[c]))).collect();
        Part {
            lost,
            helpers: helpers.into_iter().collect(),
            leaves: columns.iter().map(|&c| leaves[c]).collect(),
            targets: rows.iter().map(|&r| targets[r]).collect(),
            coefs: Matrix::from_fn(rows.len(), columns.len(), |r, c| coefs.row(rows[r])[columns[c]]),
        }
    };
    Ok(groups.into_iter().map(part).collect())
}

/// Several graphs over the same stripe as one: symbols stay, virtual vertices are renumbered.
///
/// # Errors
/// `Invalid` when two of them join the same symbol.
pub(crate) fn union(graphs: Vec<Ecdag>) -> Result<Ecdag, DagError> {
    let mut graphs = graphs.into_iter();
    let mut whole = graphs.next().unwrap_or_else(|| Ecdag::new(0, 1));
    for graph in graphs {
        let mut numbers: BTreeMap<Vertex, Vertex> = BTreeMap::new();
        let mut rename = |whole: &mut Ecdag, vertex: Vertex| match graph.is_symbol(vertex) {
            true => vertex,
            false => *numbers.entry(vertex).or_insert_with(|| whole.fresh()),
        };
        for (&parent, join) in graph.joins() {
            let children: Vec<_> = join.children.iter().map(|v| rename(&mut whole, *v)).collect();
            let parent = rename(&mut whole, parent);
            whole.join(parent, &children, &join.coefs)?;
        }
        let mut units = BTreeMap::new();
        for bind in graph.binds_x() {
            let members: Vec<_> = bind.members.iter().map(|v| rename(&mut whole, *v)).collect();
            units.insert(bind.vertex, whole.bind_x(&members)?);
        }
        for (&parent, &child) in graph.binds_y() {
            let parent = match units.get(&parent) {
                Some(unit) => *unit,
                None => rename(&mut whole, parent),
            };
            let child = rename(&mut whole, child);
            whole.bind_y(parent, child)?;
        }
    }
    Ok(whole)
}
