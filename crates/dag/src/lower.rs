//! Lowering: a placed graph becomes a list of tasks for each node (OpenEC, section 4.3).
//!
//! A vertex *lives* where it is loaded or computed. A node that needs a vertex living elsewhere fetches it once,
//! and the node where it lives sends it. All lists are parts of one global sequence: the graph in topological
//! order, each `Fetch` right before its first use, then the `Persist` tasks by vertex number. So a node may run
//! its list in order for each slice, and send in the order of its `sends`, and two nodes never wait for each
//! other: of all steps not yet done, the first in the global sequence can always be done.

use std::collections::{BTreeMap, BTreeSet};

use crate::{DagError, Ecdag, NodeId, NodeTasks, Placed, Task, Vertex};

/// What decides where a computation runs.
enum Place {
    /// It runs on this node.
    On(NodeId),
    /// It runs where this vertex lives.
    With(Vertex),
}

impl Placed {
    /// The node that computes a joined vertex or a `bind_x` vertex: where `bind_y` of the vertex (or of the
    /// `bind_x` that it is a member of) places it, otherwise the node in `compute_at`, otherwise the node that
    /// persists it. A joint computation without a place of its own takes the first place that its members' own
    /// binds, `compute_at` or `persist_at` give.
    ///
    /// # Errors
    /// `Unplaced` when nothing decides, or `vertex` is not computed; `Cycle` when binds form a cycle.
    pub fn computed_at(&self, vertex: Vertex) -> Result<NodeId, DagError> {
        let mut at = vertex;
        for _ in 0..=self.graph.joins().len() {
            match self.place(at)? {
                Place::On(node) => return Ok(node),
                Place::With(child) if self.graph.joins().contains_key(&child) => at = child,
                Place::With(child) => return self.loaded_at(child),
            }
        }
        Err(DagError::Cycle { vertex })
    }

    /// The node where a vertex lives: where it is computed if it is joined, else where it is loaded.
    ///
    /// # Errors
    /// `Unplaced` when no node is given; `Cycle` when binds form a cycle.
    pub fn lives_at(&self, vertex: Vertex) -> Result<NodeId, DagError> {
        match self.graph.joins().contains_key(&vertex) {
            true => self.computed_at(vertex),
            false => self.loaded_at(vertex),
        }
    }

    /// The tasks of every node that has any, nodes in order of first appearance. Each vertex is loaded or computed
    /// once, and fetched at most once by each node. A leaf is loaded if a join uses it or if it is persisted.
    ///
    /// # Errors
    /// `Unplaced` for a vertex without a node; `Conflict` for a member of a `bind_x` that is itself
    /// bound to another place, or members whose `compute_at` differ where nothing else decides;
    /// `Invalid` for a vertex both loaded and joined; `Cycle`.
    pub fn lower(&self) -> Result<Vec<NodeTasks>, DagError> {
        self.check_loads()?;
        let loose = self.loose();
        let units = self.graph.schedule(&loose)?;
        let size = loose.iter().map(|v| v.0 as usize + 1).fold(self.graph.vertex_bound(), usize::max);
        let mut sheet = Sheet::new(size);
        for unit in &units {
            match self.graph.joins().contains_key(&self.graph.members(unit)[0]) {
                true => self.lower_unit(*unit, &mut sheet)?,
                false => {
                    let node = self.loaded_at(*unit)?;
                    sheet.lives[unit.0 as usize] = Some(node);
                    sheet.push(node, Task::Load { vertex: *unit });
                }
            }
        }
        for (&vertex, &(node, sink)) in &self.persist_at {
            sheet.need(vertex, node);
            sheet.push(node, Task::Persist { vertex, sink });
        }
        Ok(sheet.nodes)
    }

    /// Lowers one single join or joint computation to a `Compute`, preceded by the fetches that it is the first to
    /// need.
    fn lower_unit(&self, unit: Vertex, sheet: &mut Sheet) -> Result<(), DagError> {
        let members = self.graph.members(&unit);
        let lives =
            |v: Vertex, sheet: &Sheet| sheet.lives[v.0 as usize].ok_or(DagError::Cycle { vertex: unit });
        let node = match self.place(unit)? {
            Place::On(node) => node,
            Place::With(child) => lives(child, sheet)?,
        };
        let joint = members != [unit];
        let settled = self.decided(unit).is_some();
        for &member in members.iter().filter(|_| joint) {
            let own = match self.decided(member) {
                Some(Place::With(child)) => Some(lives(child, sheet)?),
                Some(Place::On(place)) if !settled => Some(place),
                _ => None,
            };
            if let Some(second) = own.filter(|own| *own != node) {
                return Err(DagError::Conflict { vertex: member, first: node, second });
            }
        }
        let (inputs, coefs) = sheet.gather(&self.graph, members);
        for &input in &inputs {
            sheet.need(input, node);
        }
        for member in members {
            sheet.lives[member.0 as usize] = Some(node);
        }
        sheet.push(node, Task::Compute { outputs: members.to_vec(), inputs, coefs });
        Ok(())
    }

    fn place(&self, vertex: Vertex) -> Result<Place, DagError> {
        let unit = self.graph.unit_of(vertex);
        let members = self.graph.members(&unit);
        if !self.graph.joins().contains_key(&members[0]) {
            return Err(DagError::Unplaced { vertex, role: "compute" });
        }
        let persisted = |m: &Vertex| self.persist_at.get(m).map(|(node, _)| Place::On(*node));
        self.decided(unit)
            .or_else(|| members.iter().find_map(|m| self.decided(*m)))
            .or_else(|| members.iter().find_map(persisted))
            .ok_or(DagError::Unplaced { vertex, role: "compute" })
    }

    fn decided(&self, vertex: Vertex) -> Option<Place> {
        let bound = self.graph.binds_y().get(&vertex).map(|child| Place::With(*child));
        bound.or_else(|| self.compute_at.get(&vertex).map(|node| Place::On(*node)))
    }

    fn loaded_at(&self, vertex: Vertex) -> Result<NodeId, DagError> {
        self.load_at.get(&vertex).copied().ok_or(DagError::Unplaced { vertex, role: "load" })
    }

    fn check_loads(&self) -> Result<(), DagError> {
        match self.load_at.keys().find(|v| self.graph.joins().contains_key(v)) {
            None => Ok(()),
            Some(vertex) => Err(DagError::Invalid {
                what: format!("load of {vertex}"),
                expected: "a leaf".into(),
                got: "a joined vertex".into(),
            }),
        }
    }

    /// Vertices that are loaded and persisted unchanged, and that no join uses.
    pub(crate) fn loose(&self) -> Vec<Vertex> {
        let unjoined = |v: &Vertex| !self.graph.joins().contains_key(v);
        let mut loose: Vec<_> = self.persist_at.keys().copied().filter(unjoined).collect();
        if !loose.is_empty() {
            let leaves = self.graph.leaves();
            loose.retain(|v| leaves.binary_search(v).is_err());
        }
        loose
    }
}

/// The task lists while they are written.
struct Sheet {
    nodes: Vec<NodeTasks>,
    index: BTreeMap<NodeId, usize>,
    /// By vertex number, the node where the vertex lives, once it is loaded or computed.
    lives: Vec<Option<NodeId>>,
    fetched: BTreeSet<(Vertex, NodeId)>,
    /// Column of each vertex in the current computation, plus one; all zero between computations.
    column: Vec<u32>,
}

impl Sheet {
    fn new(size: usize) -> Self {
        Self {
            nodes: Vec::new(),
            index: BTreeMap::new(),
            lives: vec![None; size],
            fetched: BTreeSet::new(),
            column: vec![0; size],
        }
    }

    fn of(&mut self, node: NodeId) -> &mut NodeTasks {
        let at = *self.index.entry(node).or_insert(self.nodes.len());
        if at == self.nodes.len() {
            self.nodes.push(NodeTasks { node, tasks: Vec::new(), sends: Vec::new() });
        }
        &mut self.nodes[at]
    }

    fn push(&mut self, node: NodeId, task: Task) {
        self.of(node).tasks.push(task);
    }

    /// Fetches a vertex to `node` from where it lives, if it is not there yet.
    fn need(&mut self, vertex: Vertex, node: NodeId) {
        let from = self.lives[vertex.0 as usize].expect("the order puts children before parents");
        if from != node && self.fetched.insert((vertex, node)) {
            self.push(node, Task::Fetch { vertex, from });
            self.of(from).sends.push((vertex, node));
        }
    }

    /// The distinct children of `members` in order of first use, and the `members x children`
    /// coefficients.
    fn gather(&mut self, graph: &Ecdag, members: &[Vertex]) -> (Vec<Vertex>, Vec<u8>) {
        let joins = || members.iter().filter_map(|m| graph.joins().get(m));
        if let [member] = members {
            return graph
                .joins()
                .get(member)
                .map(|j| (j.children.clone(), j.coefs.clone()))
                .unwrap_or_default();
        }
        let mut inputs = Vec::new();
        for &child in joins().flat_map(|join| &join.children) {
            let column = &mut self.column[child.0 as usize];
            if *column == 0 {
                inputs.push(child);
                *column = inputs.len() as u32;
            }
        }
        let mut coefs = vec![0; members.len() * inputs.len()];
        for (row, join) in coefs.chunks_mut(inputs.len()).zip(joins()) {
            for (child, &coef) in join.children.iter().zip(&join.coefs) {
                row[self.column[child.0 as usize] as usize - 1] = coef;
            }
        }
        for input in &inputs {
            self.column[input.0 as usize] = 0;
        }
        (inputs, coefs)
    }
}
