//! Encoding, decoding and repair of Clay codes: one recursion over the symbols, from the wanted ones to those that
//! are read, so that only needed symbols are computed.
//!
//! The *open* nodes are the m nodes whose U the MDS code must give in a layer. For encoding and decoding these are
//! the nodes that are not read. For the repair of one node from d helpers they are the q nodes of its column and
//! the d' = n - 1 - d nodes that are not helpers, in the layers in which the lost symbol is unpaired; the column's
//! other nodes then give the lost symbols of all layers. For every node that is not open, U follows from its C and
//! its partner's C, or from the partner's U if the partner is open. That U belongs to a layer in which fewer open
//! nodes are unpaired, so the recursion ends.

use std::collections::HashMap;

use kintsu_algebra::{Matrix, add, inv, mul};
use kintsu_dag::{Ecdag, Vertex};

use super::{GAMMA, Node, Shape};

/// A symbol that is a multiple of a vertex, or zero.
type Term = Option<(Vertex, u8)>;

/// A graph under construction.
pub(super) struct Graph<'a> {
    shape: &'a Shape,
    graph: Ecdag,
    /// Nodes whose C is not read.
    unread: Vec<Node>,
    /// Nodes whose C is joined.
    wanted: Vec<Node>,
    /// The wanted node of a repair from helpers.
    single: Option<Node>,
    open: Vec<Node>,
    closed: Vec<Node>,
    /// U of the open nodes from U of the closed ones.
    decoding: Matrix,
    uncoupled: HashMap<(Node, usize), Term>,
}

impl<'a> Graph<'a> {
    /// A graph that reads all nodes except the m `unread` ones. For a repair of `single` alone, at least q - 1
    /// fewer are unread, and the nodes of its column are read.
    pub(super) fn new(shape: &'a Shape, unread: Vec<Node>, wanted: Vec<Node>, single: Option<Node>) -> Self {
        let in_column = |node: Node| single.is_some_and(|lost| lost / shape.q == node / shape.q);
        let (open, closed): (Vec<Node>, Vec<Node>) =
            (0..shape.nodes()).partition(|node| unread.contains(node) || in_column(*node));
        let rows = |nodes: &[Node]| shape.layer.select_rows(nodes.iter().copied());
        let inverse =
            rows(&closed).inverse().expect("m nodes are open, and any others of an MDS code determine all");
        let decoding = rows(&open).product(&inverse).expect("square by the number of closed nodes");
        let graph = Ecdag::new(shape.n, shape.w);
        Self { shape, graph, unread, wanted, single, open, closed, decoding, uncoupled: HashMap::new() }
    }

    /// The graph that joins all symbols of the wanted nodes.
    pub(super) fn build(mut self) -> Ecdag {
        for node in self.wanted.clone() {
            for z in 0..self.shape.w {
                match self.single {
                    Some(lost) => self.repair(lost, z),
                    None => self.couple(node, z),
                }
            }
        }
        self.graph
    }

    /// C of a node that is read, or is virtual.
    fn read(&self, node: Node, z: usize) -> Term {
        self.shape.block(node).map(|block| (self.symbol(block, z), 1))
    }

    fn symbol(&self, block: usize, z: usize) -> Vertex {
        Vertex((block * self.shape.w + z) as u32)
    }

    /// Joins C of a lost node from its own U and its partner's.
    fn couple(&mut self, node: Node, z: usize) {
        let target = self.target(node, z);
        // Where U = C, the target is joined as U.
        let u = self.uncoupled(node, z);
        let Some((partner, layer)) = self.shape.partner(node, z) else { return };
        if self.unread.contains(&partner) {
            // C = (U + gamma U*) / (1 + gamma^2)
            let other = self.uncoupled(partner, layer);
            let scale = inv(add(1, mul(GAMMA, GAMMA))).expect("gamma^2 is not 1");
            self.join(Some(target), &[(u, scale), (other, mul(GAMMA, scale))]);
        } else {
            self.join(Some(target), &[(u, 1), (self.read(partner, layer), GAMMA)]);
        }
    }

    /// Joins C of the lost node of a repair from helpers.
    fn repair(&mut self, lost: Node, z: usize) {
        let (x, y) = (lost % self.shape.q, lost / self.shape.q);
        let digit = self.shape.digit(z, y);
        if digit == x {
            self.uncoupled(lost, z);
            return;
        }
        // It is the partner of (digit, y) in the layer with digit y = x: C* = (U + C) / gamma.
        let (mate, layer) = (y * self.shape.q + digit, self.shape.with_digit(z, y, x));
        let (u, c) = (self.uncoupled(mate, layer), self.read(mate, layer));
        let scale = inv(GAMMA).expect("gamma is not 0");
        let target = self.target(lost, z);
        self.join(Some(target), &[(u, scale), (c, scale)]);
    }

    fn target(&self, node: Node, z: usize) -> Vertex {
        self.symbol(self.shape.block(node).expect("virtual nodes are never lost"), z)
    }

    /// U, once it is joined.
    fn uncoupled(&mut self, node: Node, z: usize) -> Term {
        if let Some(term) = self.uncoupled.get(&(node, z)) {
            return *term;
        }
        let term = match self.open.iter().position(|open| *open == node) {
            Some(row) => self.decoded(row, node, z),
            None => self.paired(node, z),
        };
        self.uncoupled.insert((node, z), term);
        term
    }

    /// U of an open node, by the MDS code.
    fn decoded(&mut self, row: usize, node: Node, z: usize) -> Term {
        let closed = self.closed.clone();
        let terms: Vec<(Term, u8)> = closed
            .into_iter()
            .enumerate()
            .map(|(column, other)| (self.uncoupled(other, z), self.decoding.row(row)[column]))
            .collect();
        // The U of a wanted block where it is unpaired is the symbol itself. (In a repair from helpers the
        // lost node is unpaired in all layers that are decoded.)
        let own = self.wanted.contains(&node) && self.shape.partner(node, z).is_none();
        let own = own.then(|| self.target(node, z));
        self.join(own, &terms)
    }

    /// U of a node that is read or virtual.
    fn paired(&mut self, node: Node, z: usize) -> Term {
        let c = self.read(node, z);
        let Some((partner, layer)) = self.shape.partner(node, z) else { return c };
        if self.open.contains(&partner) {
            // C* = U* + gamma C gives U = (1 + gamma^2) C + gamma U*.
            let other = self.uncoupled(partner, layer);
            self.join(None, &[(c, add(1, mul(GAMMA, GAMMA))), (other, GAMMA)])
        } else {
            self.join(None, &[(c, 1), (self.read(partner, layer), GAMMA)])
        }
    }

    /// Makes a combination: as `target` if one is given; otherwise as a new vertex, unless it is a multiple of an
    /// existing vertex.
    fn join(&mut self, target: Option<Vertex>, terms: &[(Term, u8)]) -> Term {
        let terms =
            terms.iter().filter_map(|&(term, coef)| term.map(|(vertex, own)| (vertex, mul(own, coef))));
        let (children, coefs): (Vec<Vertex>, Vec<u8>) = terms.filter(|(_, coef)| *coef != 0).unzip();
        match (target, children.len()) {
            (None, 0) => return None,
            (None, 1) => return Some((children[0], coefs[0])),
            _ => {}
        }
        let vertex = target.unwrap_or_else(|| self.graph.fresh());
        self.graph
            .join(vertex, &children, &coefs)
            .expect("symbols of one layer are distinct, each joined once");
        Some((vertex, 1))
    }
}
