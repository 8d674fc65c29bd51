//! Clay codes: MDS, one block is repaired from 1/q of each of d helpers, q = d - k + 1, which is the minimum.
//!
//! Blocks are nodes (x, y) of a q by t grid, t = ceil(n/q); where n is not a multiple of q, q t - n additional
//! nodes are *virtual*: data that is zero. Each node has w = q^t sub-blocks, one for each *layer* z =
//! (z_0..z_{t-1}), with digits to base q. A node has for each layer a stored, *coupled* symbol C and an
//! *uncoupled* symbol U:
//!
//! - U = C where z_y = x;
//! - otherwise the symbol has a partner C*, that of node (z_y, y) in the layer with digit y changed to x, and
//!   `U = C + gamma C*`, `U* = gamma C + C*`, which is invertible because gamma^2 is not 1.
//!
//! In every layer the U of all nodes are a codeword of one MDS code, here Reed-Solomon with Cauchy's matrix.
//! A virtual node has C = 0, but its U need not be zero.
//!
//! Source: Vajha et al., "Clay Codes: Moulding MDS Codes to Yield an MSR Code", FAST'18. The letters are
//! theirs; their n - k = m. `graph` has encoding, decoding and repair as one recursion.

mod graph;

use std::sync::Arc;

use kintsu_algebra::{Matrix, add_scaled};
use kintsu_dag::{BlockIndex, Ecdag};

use crate::decode::validate;
use crate::distance::{Certificate, Theorem};
use crate::linear::{LinearCode, Own, UncheckedCode};
use crate::name::{Family, Key, Params};
use crate::{Code, CodeError};
use graph::Graph;

pub(crate) const FAMILY: Family = Family {
    name: "clay",
    keys: &[
        Key::required("n", "blocks in a stripe"),
        Key::required("k", "data blocks in a stripe"),
        Key::required("d", "helpers of a repair, k + 1 to n - 1"),
    ],
    about: "Clay: any k of the n blocks determine the others; a repair reads 1/(d-k+1) of each of d blocks",
    example: "clay:n=14,k=10,d=13",
    make,
};

/// Most sub-blocks in a block: a cell has at least 4 KiB for each of them.
const MAX_W: usize = 256;

/// Most entries of a generator, `n w * k w`.
const MAX_GENERATOR_BYTES: usize = 1 << 24;

/// Any element except 0 and 1, so that 1 + gamma^2 = (1 + gamma)^2 is not zero.
const GAMMA: u8 = 2;

/// The grid of a code.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    n: usize,
    k: usize,
    q: usize,
    t: usize,
    w: usize,
    /// The MDS code of a layer, `q t x (k + virtual nodes)`, identity on top, in order of nodes.
    layer: Matrix,
}

/// A node of the grid: data, virtual nodes, parities, `x + q y`.
type Node = usize;

fn make(params: &Params<'_>) -> Result<Arc<dyn Code>, CodeError> {
    let (n, k) = params.shape()?;
    let d = params.number("d")?;
    let shape = Shape::new(n, k, d)?;
    let encode = shape.encode();
    let (_, _, parity) = encode
        .flatten()
        .map_err(|e| CodeError::invalid("encode graph of clay", "one that can be flattened", e))?;
    let data = k * shape.w;
    let generator = Matrix::from_fn(n * shape.w, data, |i, j| match i.checked_sub(data) {
        None => u8::from(i == j),
        Some(i) => parity.row(i)[j],
    });
    let name = format!("clay:n={n},k={k},d={d}");
    let distance = n - k + 1;
    let (w, groups, own) = (shape.w, Vec::new(), Own::default());
    let certificate = Certificate { theorem: Theorem::Coupled(shape.clone()), split: 1 };
    let code = UncheckedCode { name, n, k, w, generator, groups, distance, own }.check(Some(&certificate))?;
    Ok(Arc::new(Clay { code, shape, encode }))
}

impl Shape {
    fn new(n: usize, k: usize, d: usize) -> Result<Self, CodeError> {
        let refuse = |expected: String| {
            Err(CodeError::invalid("shape of clay", expected, format!("n={n}, k={k}, d={d}")))
        };
        if !(k + 1..n).contains(&d) {
            return refuse(format!("d from k + 1 = {} to n - 1 = {}", k + 1, n - 1));
        }
        let q = d - k + 1;
        let t = n.div_ceil(q);
        let w = q.checked_pow(t as u32).filter(|w| *w <= MAX_W);
        let Some(w) = w else {
            return refuse(format!(
                "at most {MAX_W} sub-blocks, q^t with q = d - k + 1 = {q} and t = ceil(n/q) = {t}"
            ));
        };
        if n * w * k * w > MAX_GENERATOR_BYTES {
            return refuse(format!(
                "a generator, (n w) x (k w) with w = {w}, of at most {MAX_GENERATOR_BYTES} bytes"
            ));
        }
        let layer = crate::parse(&format!("rs:n={},k={}", q * t, k + q * t - n))?.generator().clone();
        Ok(Self { n, k, q, t, w, layer })
    }

    fn nodes(&self) -> usize {
        self.q * self.t
    }

    /// The node of a block.
    fn node(&self, block: BlockIndex) -> Node {
        let block = usize::from(block.0);
        if block < self.k { block } else { block + self.nodes() - self.n }
    }

    /// The block of a node that is not virtual.
    fn block(&self, node: Node) -> Option<usize> {
        let virtual_nodes = self.nodes() - self.n;
        match node {
            _ if node < self.k => Some(node),
            _ => (node - self.k).checked_sub(virtual_nodes).map(|i| self.k + i),
        }
    }

    /// Digit y of a layer.
    fn digit(&self, layer: usize, y: usize) -> usize {
        layer / self.q.pow(y as u32) % self.q
    }

    /// The layer with digit y changed to x.
    fn with_digit(&self, layer: usize, y: usize, x: usize) -> usize {
        let unit = self.q.pow(y as u32);
        layer - self.digit(layer, y) * unit + x * unit
    }

    /// The partner of a symbol; none where U = C.
    fn partner(&self, node: Node, layer: usize) -> Option<(Node, usize)> {
        let (x, y) = (node % self.q, node / self.q);
        let digit = self.digit(layer, y);
        (digit != x).then(|| (y * self.q + digit, self.with_digit(layer, y, x)))
    }

    fn encode(&self) -> Ecdag {
        let parities: Vec<Node> = (self.k..self.n).map(|b| self.node(BlockIndex(b as u8))).collect();
        Graph::new(self, parities.clone(), parities, None).build()
    }

    /// The distance, if the generator (by rows of blocks) is that of a Clay code of this shape.
    ///
    /// The condition is that in every layer the parity checks of the MDS code hold for U. Then any m = n - k lost
    /// blocks are decoded (the paper, section 4.4). Layers are processed in order of the number of their unpaired
    /// symbols that are lost. In each layer the U of all remaining blocks are known from C and from earlier
    /// layers, so the MDS code gives the U of the lost blocks; then C follows from U. The MDS code can decode
    /// because at most m of the q t nodes are lost.
    pub(crate) fn distance(&self, generator: &Matrix) -> Option<usize> {
        let (rows, cols) = (generator.rows(), generator.cols());
        if (rows, cols) != (self.n * self.w, self.k * self.w) || GAMMA < 2 {
            return None;
        }
        let dimension = self.layer.cols();
        for z in 0..self.w {
            let uncoupled: Vec<Vec<u8>> =
                (0..self.nodes()).map(|node| self.uncoupled(generator, node, z)).collect();
            for parity in dimension..self.nodes() {
                let mut sum = uncoupled[parity].clone();
                for (u, &coef) in uncoupled.iter().zip(self.layer.row(parity)) {
                    add_scaled(&mut sum, u, coef);
                }
                if sum.iter().any(|&c| c != 0) {
                    return None;
                }
            }
        }
        Some(self.n - self.k + 1)
    }

    /// U of this node and layer, as a combination of the data.
    fn uncoupled(&self, generator: &Matrix, node: Node, z: usize) -> Vec<u8> {
        let row = |node: Node, z: usize| self.block(node).map(|block| generator.row(block * self.w + z));
        let mut sum = row(node, z).map_or_else(|| vec![0; generator.cols()], <[u8]>::to_vec);
        if let Some(partner) = self.partner(node, z).and_then(|(node, z)| row(node, z)) {
            add_scaled(&mut sum, partner, GAMMA);
        }
        sum
    }
}

/// A Clay code: generator and claims like any code, but its own graphs.
#[derive(Debug)]
struct Clay {
    code: LinearCode,
    shape: Shape,
    encode: Ecdag,
}

impl Clay {
    /// The d helpers of a repair: the other nodes of the lost node's column, then the most preferred others; none
    /// when a node of that column is missing or there are fewer than d.
    fn helpers(&self, available: &[BlockIndex], lost: Node) -> Option<Vec<Node>> {
        let shape = &self.shape;
        let column = lost / shape.q;
        let of_column = |node: &Node| node / shape.q == column;
        let mates = (column * shape.q..(column + 1) * shape.q).filter(|&node| node != lost);
        let real = mates.filter(|&node| shape.block(node).is_some()).count();
        let nodes: Vec<Node> = available.iter().map(|&block| shape.node(block)).collect();
        let mut helpers: Vec<Node> = nodes.iter().copied().filter(of_column).collect();
        let d = shape.q + shape.k - 1;
        if helpers.len() < real || nodes.len() < d {
            return None;
        }
        let more = d.saturating_sub(helpers.len());
        helpers.extend(nodes.into_iter().filter(|node| !of_column(node)).take(more));
        Some(helpers)
    }
}

impl Code for Clay {
    fn name(&self) -> &str {
        self.code.name()
    }

    fn family(&self) -> &str {
        self.code.family()
    }

    fn n(&self) -> usize {
        self.code.n()
    }

    fn k(&self) -> usize {
        self.code.k()
    }

    fn w(&self) -> usize {
        self.code.w()
    }

    fn generator(&self) -> &Matrix {
        self.code.generator()
    }

    fn encode(&self) -> Ecdag {
        self.encode.clone()
    }

    fn decode(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Ecdag, CodeError> {
        let shape = &self.shape;
        validate(shape.n, available, lost)?;
        if lost.is_empty() {
            return Ok(Ecdag::new(shape.n, shape.w));
        }
        let gone: Vec<Node> = lost.iter().map(|&block| shape.node(block)).collect();
        let (known, single) = match gone[..] {
            [one] => match self.helpers(available, one) {
                Some(helpers) => (helpers, Some(one)),
                None => (self.first_k(available, lost)?, None),
            },
            _ => (self.first_k(available, lost)?, None),
        };
        let unread = (0..shape.nodes()).filter(|node| shape.block(*node).is_some() && !known.contains(node));
        Ok(Graph::new(shape, unread.collect(), gone, single).build())
    }

    fn place(&self) -> Vec<Vec<BlockIndex>> {
        self.code.place()
    }

    fn groups(&self) -> Vec<Vec<BlockIndex>> {
        Vec::new()
    }

    fn distance(&self) -> usize {
        self.code.distance()
    }

    fn recoverable(&self, lost: &[BlockIndex]) -> bool {
        let distinct: std::collections::BTreeSet<_> = lost.iter().collect();
        distinct.len() < self.distance()
    }
}

impl Clay {
    /// The first k available blocks, as nodes.
    fn first_k(&self, available: &[BlockIndex], lost: &[BlockIndex]) -> Result<Vec<Node>, CodeError> {
        let Shape { n, k, .. } = self.shape;
        if available.len() >= k {
            return Ok(available.iter().take(k).map(|&block| self.shape.node(block)).collect());
        }
        let blocks = (0..n).map(|b| BlockIndex(b as u8));
        Err(CodeError::Unrecoverable {
            lost: lost.to_vec(),
            available: available.to_vec(),
            needed: blocks.filter(|block| !available.contains(block)).collect(),
            missing: k - available.len(),
        })
    }
}
