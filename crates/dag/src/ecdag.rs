//! The graph itself and its three primitives (OpenEC, section 3.2).

use std::collections::{BTreeMap, BTreeSet};

use crate::{DagError, Vertex};

/// How one vertex is computed: `sum coefs[i] * children[i]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Join {
    /// The inputs, without repetition.
    pub children: Vec<Vertex>,
    /// One coefficient a child, none of them necessarily non-zero.
    pub coefs: Vec<u8>,
}

/// Vertices computed together on one node, so that their inputs are fetched once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindX {
    /// The virtual vertex that stands for the joint computation (OpenEC's v6 in Fig. 3).
    pub vertex: Vertex,
    /// The joined vertices computed there.
    pub members: Vec<Vertex>,
}

/// A directed acyclic graph of linear combinations over the symbols of one stripe.
///
/// Vertex `block * w + sub` for `block < n` is a symbol; every other vertex is virtual. A vertex
/// without a join is a leaf: a symbol that is read. A joined symbol is a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ecdag {
    n: usize,
    w: usize,
    joins: BTreeMap<Vertex, Join>,
    binds_x: Vec<BindX>,
    binds_y: BTreeMap<Vertex, Vertex>,
    next_virtual: u32,
}

impl Ecdag {
    /// An empty graph over stripes of `n` blocks of `w` sub-blocks.
    pub fn new(n: usize, w: usize) -> Self {
        Self {
            n,
            w,
            joins: BTreeMap::new(),
            binds_x: Vec::new(),
            binds_y: BTreeMap::new(),
            next_virtual: (n * w) as u32,
        }
    }

    /// Blocks in the stripe.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Sub-blocks in a block.
    pub fn w(&self) -> usize {
        self.w
    }

    /// A virtual vertex that nothing uses yet.
    pub fn fresh(&mut self) -> Vertex {
        let vertex = Vertex(self.next_virtual);
        self.next_virtual += 1;
        vertex
    }

    /// Whether the vertex is a symbol of the stripe (not virtual).
    pub fn is_symbol(&self, vertex: Vertex) -> bool {
        (vertex.0 as usize) < self.n * self.w
    }

    /// `parent = sum coefs[i] * children[i]` (OpenEC's `Join`).
    ///
    /// # Errors
    /// `Invalid` for no or repeated children, a wrong number of coefficients, a parent that is
    /// already joined or is its own child. Cycles are found by [`Ecdag::topological`].
    pub fn join(&mut self, parent: Vertex, children: &[Vertex], coefs: &[u8]) -> Result<(), DagError> {
        let invalid = |expected: &str, got: String| {
            Err(DagError::Invalid { what: format!("join of {parent}"), expected: expected.into(), got })
        };
        if children.is_empty() || children.len() != coefs.len() {
            return invalid(
                "one or more children, one coefficient each",
                format!("{} children, {} coefficients", children.len(), coefs.len()),
            );
        }
        let distinct: BTreeSet<_> = children.iter().collect();
        if distinct.len() != children.len() || distinct.contains(&parent) {
            return invalid("distinct children other than the parent", format!("{children:?}"));
        }
        if self.joins.contains_key(&parent) {
            return invalid("a vertex not joined before", "a second join".into());
        }
        for v in children.iter().chain([&parent]) {
            self.next_virtual = self.next_virtual.max(v.0.saturating_add(1));
        }
        self.joins.insert(parent, Join { children: children.to_vec(), coefs: coefs.to_vec() });
        Ok(())
    }

    /// Computes the joined `vertices` together on one node (OpenEC's `BindX`); returns the virtual
    /// vertex that stands for the joint computation, to be used with [`Ecdag::bind_y`].
    ///
    /// # Errors
    /// `Invalid` when a vertex is not joined, repeated or already bound.
    pub fn bind_x(&mut self, vertices: &[Vertex]) -> Result<Vertex, DagError> {
        let distinct: BTreeSet<_> = vertices.iter().copied().collect();
        let free =
            |v: &Vertex| self.joins.contains_key(v) && !self.binds_x.iter().any(|b| b.members.contains(v));
        if vertices.is_empty() || distinct.len() != vertices.len() || !vertices.iter().all(free) {
            return Err(DagError::Invalid {
                what: "bind_x".into(),
                expected: "distinct joined vertices, each bound once".into(),
                got: format!("{vertices:?}"),
            });
        }
        let vertex = self.fresh();
        self.binds_x.push(BindX { vertex, members: vertices.to_vec() });
        Ok(vertex)
    }

    /// Computes `parent` (a joined vertex or a [`Ecdag::bind_x`] vertex) where `child` is loaded or
    /// computed (OpenEC's `BindY`).
    ///
    /// # Errors
    /// `Invalid` when `child` is not a child of `parent`, or `parent` is bound already.
    pub fn bind_y(&mut self, parent: Vertex, child: Vertex) -> Result<(), DagError> {
        if !self.inputs(parent).contains(&child) {
            return Err(DagError::Invalid {
                what: format!("bind_y of {parent}"),
                expected: format!("one of its children {:?}", self.inputs(parent)),
                got: child.to_string(),
            });
        }
        if let Some(other) = self.binds_y.insert(parent, child) {
            self.binds_y.insert(parent, other);
            return Err(DagError::Invalid {
                what: format!("bind_y of {parent}"),
                expected: "a vertex not bound before".into(),
                got: format!("one bound to {other}"),
            });
        }
        Ok(())
    }

    /// The joins, by parent.
    pub fn joins(&self) -> &BTreeMap<Vertex, Join> {
        &self.joins
    }

    /// The joint computations.
    pub fn binds_x(&self) -> &[BindX] {
        &self.binds_x
    }

    /// The `bind_y` pairs, parent to child.
    pub fn binds_y(&self) -> &BTreeMap<Vertex, Vertex> {
        &self.binds_y
    }

    /// The distinct inputs of a joined vertex, or of all members of a `bind_x` vertex, in order of
    /// first use; empty for a leaf.
    pub fn inputs(&self, vertex: Vertex) -> Vec<Vertex> {
        let members = match self.binds_x.iter().find(|b| b.vertex == vertex) {
            Some(bind) => bind.members.clone(),
            None => vec![vertex],
        };
        let mut seen = BTreeSet::new();
        let joins = members.iter().filter_map(|m| self.joins.get(m));
        joins.flat_map(|j| &j.children).copied().filter(|c| seen.insert(*c)).collect()
    }

    /// The leaves: vertices used by a join and not joined, in order of number.
    pub fn leaves(&self) -> Vec<Vertex> {
        let used: BTreeSet<_> = self.joins.values().flat_map(|j| &j.children).copied().collect();
        used.into_iter().filter(|v| !self.joins.contains_key(v)).collect()
    }

    /// The targets: symbols that the graph computes, in order of number.
    pub fn targets(&self) -> Vec<Vertex> {
        self.joins.keys().copied().filter(|v| self.is_symbol(*v)).collect()
    }

    /// All leaves and joined vertices, children before parents; among vertices that are ready the
    /// order is by number, so it is the same for equal graphs.
    ///
    /// # Errors
    /// `Cycle` when there is none.
    pub fn topological(&self) -> Result<Vec<Vertex>, DagError> {
        let mut parents: BTreeMap<Vertex, Vec<Vertex>> = BTreeMap::new();
        let mut waiting: BTreeMap<Vertex, usize> = BTreeMap::new();
        for (&parent, join) in &self.joins {
            waiting.insert(parent, join.children.len());
            for &child in &join.children {
                parents.entry(child).or_default().push(parent);
            }
        }
        let mut ready: BTreeSet<Vertex> = self.leaves().into_iter().collect();
        let mut order = Vec::with_capacity(waiting.len() + ready.len());
        while let Some(vertex) = ready.pop_first() {
            order.push(vertex);
            for parent in parents.get(&vertex).into_iter().flatten() {
                let left = waiting.get_mut(parent).expect("every parent is joined");
                *left -= 1;
                if *left == 0 {
                    waiting.remove(parent);
                    ready.insert(*parent);
                }
            }
        }
        match waiting.keys().next() {
            Some(&vertex) => Err(DagError::Cycle { vertex }),
            None => Ok(order),
        }
    }
}
