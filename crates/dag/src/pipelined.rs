//! The rack-aware pipelined form of any graph (OpenEC, section 4.4 and Fig. 5).

use std::collections::BTreeMap;

use kintsu_algebra::Matrix;

use crate::{DagError, Ecdag, RackId, Vertex, chain};

/// The chain that computes the same map as `graph` with all partial sums of a rack added up
/// before they leave it: each rack's leaves follow one another, the racks with fewer leaves
/// first, the requestor's rack `last`. So every rack but the last sends out one vertex for each
/// target. A block's leaves (`w` symbols) are one hop.
///
/// # Errors
/// `Invalid` when nothing is computed; as [`Ecdag::flatten`].
pub fn pipelined(graph: &Ecdag, rack_of: &dyn Fn(Vertex) -> RackId, last: RackId) -> Result<Ecdag, DagError> {
    let (leaves, targets, coefs) = graph.flatten()?;
    let mut racks: BTreeMap<RackId, BTreeMap<u32, Vec<usize>>> = BTreeMap::new();
    for (column, &leaf) in leaves.iter().enumerate() {
        let hop = if graph.is_symbol(leaf) { leaf.0 / graph.w() as u32 } else { leaf.0 };
        racks.entry(rack_of(leaf)).or_default().entry(hop).or_default().push(column);
    }
    let mut racks: Vec<_> = racks.into_iter().collect();
    let size = |hops: &BTreeMap<u32, Vec<usize>>| hops.values().map(Vec::len).sum::<usize>();
    racks.sort_by_key(|(rack, hops)| (*rack == last, size(hops), *rack));
    let columns: Vec<Vec<usize>> = racks.into_iter().flat_map(|(_, hops)| hops.into_values()).collect();
    let hops: Vec<Vec<Vertex>> =
        columns.iter().map(|hop| hop.iter().map(|column| leaves[*column]).collect()).collect();
    let order: Vec<usize> = columns.concat();
    let coefs = Matrix::from_fn(targets.len(), order.len(), |row, column| coefs.row(row)[order[column]]);
    chain(graph.n(), graph.w(), &hops, &targets, &coefs)
}
