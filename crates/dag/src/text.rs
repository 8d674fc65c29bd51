//! Graphs as text: one line for each vertex and each joint computation, in topological order.
//!
//! ```text
//! leaf     v0  on N0
//! joint    v6  on N0  of v4 v5  bound to v0
//! target   v4  on N0  = 01 v0 + 01 v1  persisted on N4
//! ```
//! Coefficients are in hex. A graph that cannot be ordered or placed is printed too, by vertex number and without
//! places, because the text helps to find the reason.

use std::fmt::Write;

use crate::{Ecdag, NodeId, Placed, Sink, Vertex};

impl Ecdag {
    /// The graph as text, a line for each vertex.
    pub fn to_text(&self) -> String {
        write_graph(self, &[], |_| None, |_| None)
    }
}

impl Placed {
    /// The graph as text, a line for each vertex, with the nodes that load, compute and persist it.
    pub fn to_text(&self) -> String {
        let persisted = |vertex| self.persist_at.get(&vertex).copied();
        write_graph(&self.graph, &self.loose(), |vertex| self.node_of(vertex), persisted)
    }

    /// The node where a vertex lives or a joint computation runs, if it is determined.
    pub(crate) fn node_of(&self, vertex: Vertex) -> Option<NodeId> {
        match self.graph.bind_of(vertex).is_some() {
            true => self.computed_at(vertex).ok(),
            false => self.lives_at(vertex).ok(),
        }
    }
}

fn write_graph(
    graph: &Ecdag,
    loose: &[Vertex],
    node_of: impl Fn(Vertex) -> Option<NodeId>,
    persisted: impl Fn(Vertex) -> Option<(NodeId, Sink)>,
) -> String {
    let mut text = String::new();
    for unit in graph.schedule(loose).unwrap_or_else(|_| unordered(graph)) {
        if graph.bind_of(unit).is_some() {
            let _ = write!(text, "{:<8} {unit}", "joint");
            write_node(&mut text, node_of(unit));
            let _ = write!(text, "  of");
            for member in graph.members(&unit) {
                let _ = write!(text, " {member}");
            }
            write_bound(&mut text, graph, unit);
            text.push('\n');
        }
        for &vertex in graph.members(&unit) {
            let _ = write!(text, "{:<8} {vertex}", kind(graph, vertex));
            write_node(&mut text, node_of(vertex));
            write_formula(&mut text, graph, vertex);
            write_bound(&mut text, graph, vertex);
            if let Some((node, sink)) = persisted(vertex) {
                let verb = match sink {
                    Sink::Block => "persisted",
                    Sink::BlockXor => "added",
                    Sink::Client => "returned",
                    Sink::Nothing => "dropped",
                    Sink::Compare => "compared",
                };
                let _ = write!(text, "  {verb} on {node}");
            }
            text.push('\n');
        }
    }
    text
}

/// The kind of a vertex in one word.
fn kind(graph: &Ecdag, vertex: Vertex) -> &'static str {
    match (graph.joins().contains_key(&vertex), graph.is_symbol(vertex)) {
        (false, _) => "leaf",
        (true, true) => "target",
        (true, false) => "partial",
    }
}

fn write_node(text: &mut String, node: Option<NodeId>) {
    if let Some(node) = node {
        let _ = write!(text, "  on {node}");
    }
}

fn write_formula(text: &mut String, graph: &Ecdag, vertex: Vertex) {
    let Some(join) = graph.joins().get(&vertex) else { return };
    for (i, (child, coef)) in join.children.iter().zip(&join.coefs).enumerate() {
        let sign = if i == 0 { " =" } else { "+" };
        let _ = write!(text, " {sign} {coef:02x} {child}");
    }
}

fn write_bound(text: &mut String, graph: &Ecdag, vertex: Vertex) {
    if let Some(child) = graph.binds_y().get(&vertex) {
        let _ = write!(text, "  bound to {child}");
    }
}

/// The units of a graph that has no order, by number.
fn unordered(graph: &Ecdag) -> Vec<Vertex> {
    let mut units = graph.leaves();
    units.extend(graph.joins().keys().map(|v| graph.unit_of(*v)));
    units.sort_unstable();
    units.dedup();
    units
}
