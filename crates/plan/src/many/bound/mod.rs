//! How fast many stripes can be repaired together: a time that no recovery beats.
//!
//! Model: the links of nodes and racks carry bytes at their rates, and all stripes are repaired at the same time.
//! Stripe s lost blocks of B_s bytes, and each repair tree puts a load on every link. The least time T for which some
//! weights of trees load no link beyond its capacity times T is a linear program. Its dual gives [`bound`]: for
//! any prices y of links, T >= sum_s B_s cost_s(y) / sum_l C_l y_l, where cost_s is the cheapest repair of the
//! stripe from its helpers to its requestors. Rates of pairs of nodes are ignored here.

mod links;
mod price;
mod requestors;
mod respond;
#[cfg(test)]
mod tests;

use kintsu_dag::NodeId;

use crate::Topology;

/// A stripe that lost blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Bytes of a lost block.
    pub bytes: u64,
    /// How many blocks it lost, each of which another node gets.
    pub blocks: usize,
    /// Helpers in a tree.
    pub k: usize,
    /// The nodes that can help: any k of them, or exactly k.
    pub helpers: Vec<NodeId>,
    /// Whether any k of the helpers and lost blocks determine all of them, as in an MDS code, and each helper has one block.
    pub any: bool,
    /// Common requestors that must not get the blocks; helpers never do.
    pub barred: Vec<NodeId>,
}

/// A time in seconds that no schedule of linear repairs of these stripes can beat, whatever trees it uses; 0 where
/// no rates are known. The work is bounded: the more stripes, the fewer prices are tried. The result is a valid
/// bound in any case. `common` are the nodes that may get blocks.
pub fn bound(losses: &[Loss], common: &[NodeId], topology: &Topology) -> f64 {
    let links = links::LinkNumbers::of(losses, common, topology);
    price::bound(&links)
}
