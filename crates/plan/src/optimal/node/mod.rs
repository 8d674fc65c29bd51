//! Recovery of a whole node: how fast many stripes can be repaired together, and trees that nearly reach this
//! time.
//!
//! Model: the links of nodes and racks carry bytes at their rates, and all stripes are repaired at the same time.
//! Stripe s lost B_s bytes, and each repair tree puts a load on every link. The least time T for which some
//! weights of trees load no link beyond its capacity times T is a linear program. Its dual gives [`bound`]: for
//! any prices y of links, T >= sum_s B_s cost_s(y) / sum_l C_l y_l, where cost_s is the cheapest tree over the
//! stripe's helpers and requestors. [`plan`] gives each stripe a tree in turn and then looks for better trees,
//! until the busiest link is nearly as idle as the bound allows. Rates of pairs of nodes are ignored here.
//!
//! Both are pure functions of the stripes' homes: the same stripes give the same plan.

mod links;
mod order;
mod price;
mod requestors;
mod respond;
mod schedule;
#[cfg(test)]
mod tests;

use kintsu_dag::NodeId;

use super::SharedTree;
use crate::Topology;

/// A stripe that lost a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// Bytes of the lost block.
    pub bytes: u64,
    /// Helpers in a tree.
    pub k: usize,
    /// The nodes that can help: any k of them, or exactly k.
    pub helpers: Vec<NodeId>,
    /// Common requestors that must not get the block; helpers never do.
    pub barred: Vec<NodeId>,
}

/// How the stripes are repaired.
#[derive(Debug, Clone, PartialEq)]
pub struct RecoverySchedule {
    /// In the order of the losses.
    pub repairs: Vec<Assigned>,
    /// The numbers of the repairs in the order in which to start them: any stretch of the order loads all links
    /// evenly.
    pub order: Vec<usize>,
    /// Seconds until the busiest link has carried its load; 0 where no rates are known.
    pub seconds: f64,
    /// No schedule is faster, in seconds.
    pub bound: f64,
}

/// The repair of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assigned {
    /// The node that gets the block.
    pub requestor: NodeId,
    /// The trees that its slices go along.
    pub trees: Vec<SharedTree>,
}

/// A time in seconds that no schedule of linear repairs of these stripes can beat, whatever trees it uses; 0 where
/// no rates are known. The work is bounded: the more stripes, the fewer prices are tried. The result is a valid
/// bound in any case. `common` are the nodes that may get blocks.
pub fn bound(losses: &[Loss], common: &[NodeId], topology: &Topology) -> f64 {
    let links = links::LinkNumbers::of(losses, common, topology);
    price::bound(&links)
}

/// Requestors, helpers and trees for all stripes. `None` when a loss has fewer than k helpers, k is 0, or no node
/// may get the block.
///
/// Where there are many more stripes than nodes, each stripe has one tree. Where there are few stripes, each has
/// several trees with shares.
pub fn plan(losses: &[Loss], common: &[NodeId], topology: &Topology) -> Option<RecoverySchedule> {
    let links = links::LinkNumbers::of(losses, common, topology);
    schedule::schedule(&links)
}
