//! Places the code's own decode graph unchanged: what the graph binds to a helper is computed there, and the rest
//! where its result goes.
//!
//! Codes with sub-blocks are repaired conventionally in this way. Such a graph names the sub-blocks that are
//! needed, and no others are read; its flat form would have as many terms as the lost sub-blocks times those read
//! (for a Clay code a hundred times more than the graph), and would undo what helpers combine before they send.
//! Trees and chains are not built here; they use the flat form.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, Vertex};

use crate::{PlanError, StripeView};

/// Places `graph`, which computes the lost blocks of `goals` (each with its requestor). A lost block that shares
/// nothing with the others is computed at its requestor. Lost blocks that share something are all computed at the
/// requestor of the first. The blocks `at_hand` are fetched whole in any case, so nothing is gained when a helper
/// combines only these.
///
/// # Errors
/// `Placement` for a leaf of a block without a home; `Graph` for a graph with a cycle.
pub(crate) fn place_own(
    view: &StripeView,
    goals: &[(BlockIndex, NodeId)],
    mut graph: Ecdag,
    at_hand: &[BlockIndex],
) -> Result<Placed, PlanError> {
    release(view, &mut graph, at_hand)?;
    let mut islands = Islands::of(&graph);
    let mut wanted_at: BTreeMap<Vertex, NodeId> = BTreeMap::new();
    for (block, node) in goals {
        for symbol in view.symbols(*block).filter(|symbol| graph.joins().contains_key(symbol)) {
            wanted_at.entry(islands.root(symbol)).or_insert(*node);
        }
    }
    let bound = bound_units(&graph);
    let mut compute_at = BTreeMap::new();
    for vertex in graph.joins().keys().filter(|vertex| !bound.contains(&unit_of(&graph, **vertex))) {
        if let Some(node) = wanted_at.get(&islands.root(*vertex)).or(goals.first().map(|(_, node)| node)) {
            compute_at.insert(*vertex, *node);
        }
    }
    graph.auto_bind_x()?;
    let mut load_at = BTreeMap::new();
    for leaf in graph.leaves() {
        load_at.insert(leaf, view.home(view.block_of(leaf))?);
    }
    Ok(Placed { graph, load_at, compute_at, persist_at: BTreeMap::new() })
}

/// Removes the binds of computations that need only blocks at hand.
fn release(view: &StripeView, graph: &mut Ecdag, at_hand: &[BlockIndex]) -> Result<(), PlanError> {
    if at_hand.is_empty() || graph.binds_y().is_empty() {
        return Ok(());
    }
    let mut there: BTreeSet<Vertex> = BTreeSet::new();
    for vertex in graph.topological()? {
        let here = match graph.joins().get(&vertex) {
            Some(join) => join.children.iter().all(|child| there.contains(child)),
            None => at_hand.contains(&view.block_of(vertex)),
        };
        if here {
            there.insert(vertex);
        }
    }
    let kept: BTreeSet<Vertex> = graph.binds_y().keys().copied().collect();
    let kept = kept.into_iter().filter(|unit| !graph.inputs(*unit).iter().all(|input| there.contains(input)));
    let kept: BTreeSet<Vertex> = kept.collect();
    graph.retain_binds_y(|parent, _| kept.contains(&parent));
    Ok(())
}

/// The vertex that represents the computation of `vertex`.
fn unit_of(graph: &Ecdag, vertex: Vertex) -> Vertex {
    graph.bind_of(vertex).map_or(vertex, |bind| bind.vertex)
}

/// The computations that have a vertex bound to a place.
fn bound_units(graph: &Ecdag) -> BTreeSet<Vertex> {
    graph.binds_y().keys().map(|vertex| unit_of(graph, *vertex)).collect()
}

/// Sets of vertices connected by joins or by joint computation (a union-find structure).
struct Islands {
    /// The next vertex on the way to the representative of the island; the representative itself has no entry.
    parent: BTreeMap<Vertex, Vertex>,
}

impl Islands {
    fn of(graph: &Ecdag) -> Self {
        let mut islands = Self { parent: BTreeMap::new() };
        for (&vertex, join) in graph.joins() {
            join.children.iter().for_each(|child| islands.bridge(vertex, *child));
        }
        for bind in graph.binds_x() {
            bind.members.windows(2).for_each(|pair| islands.bridge(pair[0], pair[1]));
        }
        islands
    }

    fn bridge(&mut self, a: Vertex, b: Vertex) {
        let (a, b) = (self.root(a), self.root(b));
        if a != b {
            self.parent.insert(b, a);
        }
    }

    fn root(&mut self, vertex: Vertex) -> Vertex {
        let mut root = vertex;
        while let Some(next) = self.parent.get(&root) {
            root = *next;
        }
        let mut at = vertex;
        while at != root {
            // From now on every vertex on the way points to the root, so that ways stay short.
            at = self.parent.insert(at, root).unwrap_or(root);
        }
        root
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn islands_are_what_hangs_together() {
        let mut graph = Ecdag::new(12, 1);
        let v = Vertex;
        graph.join(v(8), &[v(0), v(1)], &[1, 1]).unwrap();
        graph.join(v(9), &[v(2), v(3)], &[1, 1]).unwrap();
        graph.join(v(10), &[v(4), v(8)], &[1, 1]).unwrap();
        let mut islands = Islands::of(&graph);
        assert_eq!(islands.root(v(10)), islands.root(v(0)));
        assert_ne!(islands.root(v(9)), islands.root(v(0)));
        graph.bind_x(&[v(8), v(9)]).unwrap();
        let mut islands = Islands::of(&graph);
        assert_eq!(islands.root(v(2)), islands.root(v(4)));
    }
}
