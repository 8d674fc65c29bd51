//! The graph itself and its three primitives (OpenEC, section 3.2).

use std::collections::{BTreeMap, BTreeSet};

use crate::{DagError, Vertex};

/// Vertex numbers are below this, so that arrays over vertex numbers stay at a few megabytes.
pub const MAX_VERTICES: u32 = 1 << 20;

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
    /// The virtual vertex that represents the joint computation (OpenEC's v6 in Fig. 3).
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
    /// The index in `binds_x` of each bound member and of each bind's own vertex.
    bound: BTreeMap<Vertex, usize>,
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
            bound: BTreeMap::new(),
            binds_y: BTreeMap::new(),
            next_virtual: u32::try_from(n.saturating_mul(w)).unwrap_or(u32::MAX),
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
        self.next_virtual = self.next_virtual.saturating_add(1);
        vertex
    }

    /// Whether the vertex is a symbol of the stripe (not virtual).
    pub fn is_symbol(&self, vertex: Vertex) -> bool {
        (vertex.0 as usize) < self.symbols()
    }

    /// Symbols in the stripe, `n * w`.
    pub(crate) fn symbols(&self) -> usize {
        self.n.saturating_mul(self.w)
    }

    /// `parent = sum coefs[i] * children[i]` (OpenEC's `Join`).
    ///
    /// # Errors
    /// `Invalid` for no or repeated children, a wrong number of coefficients, a parent that is
    /// already joined or is its own child, the vertex of a [`Ecdag::bind_x`], a vertex from
    /// [`MAX_VERTICES`] on. Cycles are found by [`Ecdag::topological`].
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
        if !distinct(children) || children.contains(&parent) {
            return invalid("distinct children other than the parent", format!("{children:?}"));
        }
        if self.joins.contains_key(&parent) {
            return invalid("a vertex not joined before", "a second join".into());
        }
        for v in children.iter().chain([&parent]) {
            if v.0 >= MAX_VERTICES {
                return invalid("vertices below 2^20", v.to_string());
            }
            if self.bind_of(*v).is_some_and(|b| b.vertex == *v) {
                return invalid("vertices that carry data", format!("{v}, which stands for a bind_x"));
            }
        }
        let highest = children.iter().fold(parent, |high, &c| high.max(c));
        self.next_virtual = self.next_virtual.max(highest.0 + 1);
        self.joins.insert(parent, Join { children: children.to_vec(), coefs: coefs.to_vec() });
        Ok(())
    }

    /// Computes the joined `vertices` together on one node (OpenEC's `BindX`); returns the virtual vertex that
    /// represents the joint computation, for use with [`Ecdag::bind_y`].
    ///
    /// # Errors
    /// `Invalid` when a vertex is not joined, repeated or already bound, or no vertex number is left to represent
    /// the computation.
    pub fn bind_x(&mut self, vertices: &[Vertex]) -> Result<Vertex, DagError> {
        let vertex = Vertex(self.next_virtual);
        self.bind_x_as(vertex, vertices)?;
        Ok(vertex)
    }

    /// [`Ecdag::bind_x`] under a number that nothing uses yet.
    pub(crate) fn bind_x_as(&mut self, vertex: Vertex, vertices: &[Vertex]) -> Result<(), DagError> {
        let free = |v: &Vertex| self.joins.contains_key(v) && !self.bound.contains_key(v);
        let room = vertex.0 < MAX_VERTICES;
        if vertices.is_empty() || !room || !distinct(vertices) || !vertices.iter().all(free) {
            return Err(DagError::Invalid {
                what: "bind_x".into(),
                expected: "distinct joined vertices, each bound once, below 2^20 in all".into(),
                got: format!("{vertices:?}"),
            });
        }
        let index = self.binds_x.len();
        self.bound.extend(vertices.iter().chain([&vertex]).map(|v| (*v, index)));
        self.binds_x.push(BindX { vertex, members: vertices.to_vec() });
        self.next_virtual = self.next_virtual.max(vertex.0 + 1);
        Ok(())
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

    /// Removes the `bind_y` pairs (parent, child) for which `keep` is false.
    pub fn retain_binds_y(&mut self, mut keep: impl FnMut(Vertex, Vertex) -> bool) {
        self.binds_y.retain(|parent, child| keep(*parent, *child));
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

    /// The joint computation that this vertex is a member of, or represents.
    pub fn bind_of(&self, vertex: Vertex) -> Option<&BindX> {
        self.bound.get(&vertex).map(|&index| &self.binds_x[index])
    }

    /// The vertex that represents the computation of `vertex`: that of its joint computation, or itself.
    pub(crate) fn unit_of(&self, vertex: Vertex) -> Vertex {
        self.bind_of(vertex).map_or(vertex, |bind| bind.vertex)
    }

    /// What the computation of `unit` yields: the members of a joint one, or itself.
    pub(crate) fn members<'a>(&'a self, unit: &'a Vertex) -> &'a [Vertex] {
        match self.bind_of(*unit) {
            Some(bind) if bind.vertex == *unit => &bind.members,
            _ => std::slice::from_ref(unit),
        }
    }

    /// Prevents [`Ecdag::fresh`] from returning vertices below `bound`.
    pub(crate) fn reserve(&mut self, bound: u32) {
        self.next_virtual = self.next_virtual.max(bound);
    }

    /// One more than the highest vertex number in use.
    pub(crate) fn vertex_bound(&self) -> usize {
        self.next_virtual as usize
    }

    /// The distinct inputs of a joined vertex, or of all members of a `bind_x` vertex, in order of
    /// first use; empty for a leaf.
    pub fn inputs(&self, vertex: Vertex) -> Vec<Vertex> {
        let joins = || self.members(&vertex).iter().filter_map(|m| self.joins.get(m));
        if joins().count() == 1 {
            return joins().flat_map(|j| &j.children).copied().collect();
        }
        let mut seen = BTreeSet::new();
        joins().flat_map(|j| &j.children).copied().filter(|c| seen.insert(*c)).collect()
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
}

/// Whether no vertex comes twice; without allocation for the usual few.
pub(crate) fn distinct(vertices: &[Vertex]) -> bool {
    if vertices.len() <= 32 {
        return vertices.iter().enumerate().all(|(i, v)| !vertices[..i].contains(v));
    }
    let mut sorted = vertices.to_vec();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}
