//! The order in which a graph is computed.
//!
//! The unit of the order is a leaf, a single join, or all members of a `bind_x` together. The algorithm is Kahn's,
//! with the ready units sorted by number, so equal graphs give equal orders. A joint computation that would have
//! to wait for itself is a cycle, even where the joins alone have none.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{DagError, Ecdag, MAX_VERTICES, Vertex};

impl Ecdag {
    /// All leaves and joined vertices, children before parents; ready vertices are ordered by number, and members
    /// of a `bind_x` come together at its number. Equal graphs have the same order.
    ///
    /// # Errors
    /// `Cycle` when there is none; `Invalid` for vertices from [`MAX_VERTICES`] on.
    pub fn topological(&self) -> Result<Vec<Vertex>, DagError> {
        let units = self.schedule(&[])?;
        Ok(units.iter().flat_map(|unit| self.members(unit)).copied().collect())
    }

    /// The units of computation in topological order: each leaf, single join or `bind_x` vertex. `loose` are
    /// vertices outside the graph; they are ordered as leaves.
    pub(crate) fn schedule(&self, loose: &[Vertex]) -> Result<Vec<Vertex>, DagError> {
        let size = loose.iter().map(|v| v.0 as usize + 1).fold(self.vertex_bound(), usize::max);
        if size > MAX_VERTICES as usize {
            return Err(DagError::Invalid {
                what: "size of the graph".into(),
                expected: format!("vertices below {MAX_VERTICES}"),
                got: format!("vertices up to {}", size - 1),
            });
        }
        let edges = Edges::of(self, size);
        let mut waiting = edges.waiting;
        let mut ready: BinaryHeap<Reverse<Vertex>> = BinaryHeap::new();
        let mut total = loose.len();
        for vertex in (0..size).map(|v| Vertex(v as u32)) {
            let leaf = edges.first[vertex.0 as usize] < edges.first[vertex.0 as usize + 1]
                && !self.joins().contains_key(&vertex);
            total += usize::from(leaf || waiting[vertex.0 as usize] > 0);
            if leaf {
                ready.push(Reverse(vertex));
            }
        }
        ready.extend(loose.iter().copied().map(Reverse));
        let mut order = Vec::with_capacity(total);
        while let Some(Reverse(unit)) = ready.pop() {
            order.push(unit);
            for member in self.members(&unit) {
                let at = member.0 as usize;
                for parent in &edges.parents[edges.first[at] as usize..edges.first[at + 1] as usize] {
                    let left = &mut waiting[parent.0 as usize];
                    *left -= 1;
                    if *left == 0 {
                        ready.push(Reverse(*parent));
                    }
                }
            }
        }
        match waiting.iter().position(|&left| left > 0) {
            Some(unit) => Err(DagError::Cycle { vertex: self.members(&Vertex(unit as u32))[0] }),
            None => Ok(order),
        }
    }
}

/// The edges from each vertex to the units that use it, and how many each unit waits for.
struct Edges {
    /// `parents[first[v]..first[v + 1]]` use vertex `v`.
    first: Vec<u32>,
    parents: Vec<Vertex>,
    waiting: Vec<u32>,
}

impl Edges {
    fn of(graph: &Ecdag, size: usize) -> Self {
        let mut first = vec![0u32; size + 2];
        let mut waiting = vec![0u32; size];
        let mut count = 0;
        for child in graph.joins().values().flat_map(|join| &join.children) {
            first[child.0 as usize + 2] += 1;
            count += 1;
        }
        for v in 1..first.len() {
            first[v] += first[v - 1];
        }
        // first[v + 1] is where the next parent of v is written; after the last one it is the end of v's parents.
        let mut parents = vec![Vertex(0); count];
        for (&parent, join) in graph.joins() {
            let unit = graph.unit_of(parent);
            waiting[unit.0 as usize] += join.children.len() as u32;
            for child in &join.children {
                let next = &mut first[child.0 as usize + 1];
                parents[*next as usize] = unit;
                *next += 1;
            }
        }
        Self { first, parents, waiting }
    }
}
