//! What racks send to each other, and the graph that follows from it.
//!
//! A message is one combination of deltas that crosses from one rack to another. A rack can send what it knows: its
//! own deltas, and combinations of those with what came before. Inside a rack symbols move freely: a message is
//! computed at one node of the sending rack, received by one node of the other, and used there from that node.

use std::collections::BTreeMap;

use kintsu_algebra::Matrix;
use kintsu_dag::{Ecdag, NodeId, Placed, Sink, Vertex};

use super::scene::Scene;
use crate::PlanError;

/// One symbol that crosses from one rack to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Message {
    /// The sending rack, by its place in the scene.
    pub from: usize,
    /// The receiving rack.
    pub to: usize,
    /// The combination of deltas, one coefficient a column.
    pub vector: Vec<u8>,
    /// The node that receives it; by default the gate of the rack.
    pub node: Option<NodeId>,
}

/// The graph for the parities of one rack alone, with a source for each column.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// The rack.
    pub rack: usize,
    /// For each used column the rack and node where it is read.
    pub sources: BTreeMap<usize, (usize, NodeId)>,
    /// The messages, all to this rack.
    pub messages: Vec<Message>,
}

/// A combination that a rack knows.
#[derive(Debug, Clone)]
struct Known {
    vector: Vec<u8>,
    vertex: Vertex,
    node: NodeId,
}

/// A graph under construction.
pub(super) struct Build<'a> {
    scene: &'a Scene<'a>,
    placed: Placed,
    /// By rack.
    known: Vec<Vec<Known>>,
}

impl<'a> Build<'a> {
    /// Every delta goes to every parity node for itself.
    pub fn each_to_each(scene: &'a Scene<'a>) -> Result<Placed, PlanError> {
        let mut build = Self::at_home(scene);
        let all: Vec<Known> = build.known.concat();
        for rack in &scene.racks {
            for &(row, home) in &rack.targets {
                build.target(row, home, &all, &[home])?;
            }
        }
        Ok(build.placed)
    }

    /// Every delta that these parity nodes need goes to each of them for itself: from there if it has a replica, else from
    /// home. No delta may be on two of them.
    pub fn each_to(scene: &'a Scene<'a>, nodes: &[NodeId]) -> Result<Placed, PlanError> {
        let targets =
            || scene.racks.iter().flat_map(|rack| &rack.targets).filter(|(_, at)| nodes.contains(at));
        let used = |column: &usize| targets().any(|(row, _)| scene.rows.row(*row)[*column] != 0);
        let mut sources = BTreeMap::new();
        for (rack, part) in scene.racks.iter().enumerate() {
            let here = part.replicas.iter().filter(|(_, node)| nodes.contains(node));
            for &(column, node) in part.own.iter().filter(|(column, _)| used(column)) {
                sources.entry(column).or_insert((rack, node));
            }
            for &(column, node) in here.filter(|(column, _)| used(column)) {
                sources.insert(column, (rack, node));
            }
        }
        let mut build = Self::new(scene, &sources);
        let all: Vec<Known> = build.known.concat();
        for &(row, home) in targets() {
            build.target(row, home, &all, &[home])?;
        }
        Ok(build.placed)
    }

    /// The graph in which racks send these messages in this order.
    ///
    /// # Errors
    /// `Invalid` when a rack sends what it does not know, or misses something for a parity.
    pub fn graph(scene: &'a Scene<'a>, messages: &[Message]) -> Result<Placed, PlanError> {
        let mut build = Self::at_home(scene);
        build.send(messages)?;
        for (rack, part) in scene.racks.iter().enumerate() {
            build.targets(rack, &part.targets)?;
        }
        Ok(build.placed)
    }

    /// The graph of one rack's parities.
    ///
    /// # Errors
    /// As [`Build::graph`].
    pub fn part(scene: &'a Scene<'a>, part: &Part) -> Result<Placed, PlanError> {
        let mut build = Self::new(scene, &part.sources);
        build.send(&part.messages)?;
        build.targets(part.rack, &scene.racks[part.rack].targets)?;
        Ok(build.placed)
    }

    fn at_home(scene: &'a Scene<'a>) -> Self {
        let own = |(rack, part): (usize, &super::scene::Rack)| -> Vec<(usize, (usize, NodeId))> {
            part.own.iter().map(|&(column, node)| (column, (rack, node))).collect()
        };
        let sources = scene.racks.iter().enumerate().flat_map(own).collect();
        Self::new(scene, &sources)
    }

    fn new(scene: &'a Scene<'a>, sources: &BTreeMap<usize, (usize, NodeId)>) -> Self {
        let mut known = vec![Vec::new(); scene.racks.len()];
        let mut load_at = BTreeMap::new();
        for (&column, &(rack, node)) in sources {
            let vertex = scene.symbols[column];
            load_at.insert(vertex, node);
            known[rack].push(Known { vector: scene.unit(column), vertex, node });
        }
        let graph = Ecdag::new(scene.view.code.n(), scene.view.code.w());
        let placed = Placed { graph, load_at, compute_at: BTreeMap::new(), persist_at: BTreeMap::new() };
        Self { scene, placed, known }
    }

    fn send(&mut self, messages: &[Message]) -> Result<(), PlanError> {
        for Message { from, to, vector, node } in messages {
            let terms = self.terms(*from, vector)?;
            let sent = match &terms[..] {
                [(known, 1)] => known.vertex,
                _ => {
                    let at = best_place(&terms, None);
                    let sum = self.placed.graph.fresh();
                    self.join(sum, at, &terms)?;
                    sum
                }
            };
            let node = node.unwrap_or_else(|| self.scene.racks[*to].gate());
            let copy = self.placed.graph.fresh();
            self.placed.graph.join(copy, &[sent], &[1])?;
            self.placed.compute_at.insert(copy, node);
            self.known[*to].push(Known { vector: vector.clone(), vertex: copy, node });
        }
        Ok(())
    }

    fn targets(&mut self, rack: usize, targets: &[(usize, NodeId)]) -> Result<(), PlanError> {
        for &(row, home) in targets {
            let known = self.known[rack].clone();
            self.target(row, home, &known, &[])?;
        }
        Ok(())
    }

    /// Computes a parity from what is known, where that moves least (or at `only`), and adds it at its home.
    fn target(
        &mut self,
        row: usize,
        home: NodeId,
        known: &[Known],
        only: &[NodeId],
    ) -> Result<(), PlanError> {
        let terms = express(known, self.scene.rows.row(row)).ok_or_else(|| self.missing(row, home))?;
        let at = only.first().copied().unwrap_or_else(|| best_place(&terms, Some(home)));
        let symbol = self.scene.targets[row];
        self.join(symbol, at, &terms)?;
        self.placed.persist_at.insert(symbol, (home, Sink::BlockXor));
        Ok(())
    }

    fn join(&mut self, parent: Vertex, at: NodeId, terms: &[(Known, u8)]) -> Result<(), PlanError> {
        let children: Vec<Vertex> = terms.iter().map(|(known, _)| known.vertex).collect();
        let coefs: Vec<u8> = terms.iter().map(|(_, coef)| *coef).collect();
        self.placed.graph.join(parent, &children, &coefs)?;
        self.placed.compute_at.insert(parent, at);
        Ok(())
    }

    /// The combination of what a rack knows that gives this vector.
    fn terms(&self, rack: usize, vector: &[u8]) -> Result<Vec<(Known, u8)>, PlanError> {
        express(&self.known[rack], vector).ok_or_else(|| PlanError::Invalid {
            what: format!("update of {}: message of rack {rack}", self.scene.view.id),
            expected: "a combination of what the rack knows".into(),
            got: format!("{vector:?}"),
        })
    }

    fn missing(&self, row: usize, home: NodeId) -> PlanError {
        PlanError::Invalid {
            what: format!("update of {} at {home}", self.scene.targets[row]),
            expected: "messages that determine it".into(),
            got: format!("too few for the row {:?}", self.scene.rows.row(row)),
        }
    }
}

/// The node where the fewest symbols have to come to, and the sum has to leave if it is wanted elsewhere.
fn best_place(terms: &[(Known, u8)], wanted: Option<NodeId>) -> NodeId {
    let nodes = wanted.into_iter().chain(terms.iter().map(|(known, _)| known.node));
    let moves = |node: &NodeId| {
        let come = terms.iter().filter(|(known, _)| known.node != *node).count();
        come + usize::from(wanted.is_some_and(|wanted| wanted != *node))
    };
    // The first of equals.
    nodes.min_by_key(moves).unwrap_or(NodeId::CLIENT)
}

/// What is known combined to this vector: the terms with coefficients other than zero.
fn express(known: &[Known], vector: &[u8]) -> Option<Vec<(Known, u8)>> {
    let coefs = combination(known.iter().map(|known| &known.vector[..]), vector)?;
    let terms = known.iter().cloned().zip(coefs).filter(|(_, coef)| *coef != 0);
    Some(terms.collect())
}

/// The coefficients of `vectors` that add up to `vector`; earlier vectors are preferred.
pub(super) fn combination<'v>(vectors: impl Iterator<Item = &'v [u8]>, vector: &[u8]) -> Option<Vec<u8>> {
    let vectors: Vec<&[u8]> = vectors.collect();
    if vectors.is_empty() {
        return None;
    }
    let basis = Matrix::from_fn(vectors.len(), vector.len(), |i, j| vectors[i][j]);
    let target = Matrix::from_vec(1, vector.len(), vector.to_vec()).ok()?;
    let found = basis.express(&target).ok()??;
    Some(found.row(0).to_vec())
}
