//! One update as the schemes see it: dirty symbols and touched parity symbols, by rack.

use std::collections::BTreeMap;

use kintsu_algebra::Matrix;
use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, RackId, Sink, Vertex};

use super::Dirty;
use crate::{PlanError, StripeView, Topology};

/// What is dirty in a stripe, what has to follow, and where both are.
#[derive(Debug)]
pub(super) struct Scene<'a> {
    pub view: &'a StripeView,
    /// The dirty symbols; column c of `rows` belongs to `symbols[c]`.
    pub symbols: Vec<Vertex>,
    /// The parity symbols that change, with a home.
    pub targets: Vec<Vertex>,
    /// `targets x symbols`: what each target gets of each delta.
    pub rows: Matrix,
    /// The racks with something dirty or touched.
    pub racks: Vec<Rack>,
    /// Parity blocks that should change and have no home.
    pub left_out: Vec<BlockIndex>,
}

/// One rack's part.
#[derive(Debug, Default, Clone)]
pub(super) struct Rack {
    /// Columns whose deltas are at home here, with the node.
    pub own: Vec<(usize, NodeId)>,
    /// Columns of which replicas are here, with the node.
    pub replicas: Vec<(usize, NodeId)>,
    /// Rows of the parities here, with the node.
    pub targets: Vec<(usize, NodeId)>,
}

impl Rack {
    /// Columns known here, each with a node; home before replica.
    pub fn known(&self, replicas: bool) -> BTreeMap<usize, NodeId> {
        let mut known: BTreeMap<usize, NodeId> = BTreeMap::new();
        if replicas {
            known.extend(self.replicas.iter().copied());
        }
        known.extend(self.own.iter().copied());
        known
    }

    /// The node that sends and receives for this rack: of the first parity, else of the first delta.
    pub fn gate(&self) -> NodeId {
        let all = self.targets.iter().chain(&self.own).chain(&self.replicas);
        all.map(|(_, node)| *node).next().unwrap_or(NodeId::CLIENT)
    }
}

impl<'a> Scene<'a> {
    pub fn new(view: &'a StripeView, topology: &Topology, dirty: &Dirty) -> Result<Self, PlanError> {
        view.check("dirty blocks", &dirty.blocks)?;
        let k = view.code.k();
        if let Some(parity) = dirty.blocks.iter().find(|block| usize::from(block.0) >= k) {
            return Err(PlanError::Invalid {
                what: format!("dirty blocks of {}", view.id),
                expected: format!("data blocks, below b{k}"),
                got: parity.to_string(),
            });
        }
        let mut blocks = dirty.blocks.clone();
        blocks.sort_unstable();
        let symbols: Vec<Vertex> = blocks.iter().flat_map(|block| view.symbols(*block)).collect();
        let generator = view.code.generator();
        let touched = |row: &Vertex| symbols.iter().any(|c| generator.row(row.0 as usize)[c.0 as usize] != 0);
        let parities = view.indices().skip(k).filter(|block| view.block_len(*block) > 0);
        let all: Vec<Vertex> = parities.flat_map(|block| view.symbols(block)).filter(touched).collect();
        let (targets, homeless): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|symbol| view.home(view.block_of(*symbol)).is_ok());
        let mut left_out: Vec<_> = homeless.into_iter().map(|symbol| view.block_of(symbol)).collect();
        left_out.dedup();
        let rows = Matrix::from_fn(targets.len(), symbols.len(), |i, j| {
            generator.row(targets[i].0 as usize)[symbols[j].0 as usize]
        });
        let mut racks: BTreeMap<Option<RackId>, Rack> = BTreeMap::new();
        for (column, symbol) in symbols.iter().enumerate() {
            let block = view.block_of(*symbol);
            let replicas = dirty.replicas.get(&block).map_or(&[][..], Vec::as_slice);
            match (view.home(block), replicas.first().copied()) {
                (Ok(home), _) => racks.entry(topology.rack(home)).or_default().own.push((column, home)),
                // Without a home the replica is the only copy of the delta.
                (Err(_), Some(node)) => {
                    racks.entry(topology.rack(node)).or_default().own.push((column, node));
                    continue;
                }
                (Err(none), None) => return Err(none),
            }
            for &node in replicas {
                racks.entry(topology.rack(node)).or_default().replicas.push((column, node));
            }
        }
        for (row, symbol) in targets.iter().enumerate() {
            let home = view.home(view.block_of(*symbol))?;
            racks.entry(topology.rack(home)).or_default().targets.push((row, home));
        }
        Ok(Self { view, symbols, targets, rows, racks: racks.into_values().collect(), left_out })
    }

    /// The parity blocks that change and have a home.
    pub fn parities(&self) -> Vec<BlockIndex> {
        let mut blocks: Vec<_> = self.targets.iter().map(|symbol| self.view.block_of(*symbol)).collect();
        blocks.dedup();
        blocks
    }

    /// The rank of these rows over these columns: the fewest symbols from which somebody who knows all other columns
    /// can compute the rows.
    pub fn rank(&self, rows: &[usize], columns: &[usize]) -> usize {
        if rows.is_empty() || columns.is_empty() {
            return 0;
        }
        Matrix::from_fn(rows.len(), columns.len(), |i, j| self.rows.row(rows[i])[columns[j]]).rank()
    }

    /// The rows of a rack's parities.
    pub fn rows_of(&self, rack: usize) -> Vec<usize> {
        self.racks[rack].targets.iter().map(|(row, _)| *row).collect()
    }

    /// These graphs, with the deltas added to the dirty blocks themselves: where they are loaded at home, else by a graph
    /// for itself that only does that.
    pub fn data_too(&self, mut graphs: Vec<Placed>) -> Vec<Placed> {
        let mut rest = Placed {
            graph: Ecdag::new(self.view.code.n(), self.view.code.w()),
            load_at: BTreeMap::new(),
            compute_at: BTreeMap::new(),
            persist_at: BTreeMap::new(),
        };
        for &symbol in &self.symbols {
            let Ok(home) = self.view.home(self.view.block_of(symbol)) else { continue };
            let leaf = |placed: &&mut Placed| {
                placed.load_at.get(&symbol) == Some(&home) && placed.graph.leaves().contains(&symbol)
            };
            let placed = graphs.iter_mut().find(leaf).unwrap_or(&mut rest);
            placed.load_at.insert(symbol, home);
            placed.persist_at.insert(symbol, (home, Sink::BlockXor));
        }
        graphs.retain(|placed| !placed.persist_at.is_empty());
        if !rest.persist_at.is_empty() {
            graphs.push(rest);
        }
        graphs
    }

    /// A vector with one column alone.
    pub fn unit(&self, column: usize) -> Vec<u8> {
        let mut vector = vec![0; self.symbols.len()];
        vector[column] = 1;
        vector
    }

    /// A row with these columns alone.
    pub fn part(&self, row: usize, columns: &[usize]) -> Vec<u8> {
        let mut vector = vec![0; self.symbols.len()];
        columns.iter().for_each(|&column| vector[column] = self.rows.row(row)[column]);
        vector
    }
}
