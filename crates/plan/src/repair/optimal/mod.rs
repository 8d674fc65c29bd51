//! The best repair that the links allow: how fast it can be, and the trees that reach this rate.
//!
//! A repair that sends all slices along one path is as slow as the slowest of its links. Here several trees share
//! the slices, so that every helper gives what its links can carry. [`bound`] gives the rate that no repair of one
//! block can beat, [`forest`] finds trees that come within one percent of it, and [`over_trees`] makes a plan of
//! them. Only the rates of links count here, not delays or disks.

pub mod bound;
mod lp;
pub(crate) mod network;
mod price;
mod shares;
#[cfg(test)]
mod tests;
mod trees;

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, Ecdag, NodeId, Placed, over_tree};

use super::method::MethodRow;
use super::rebuild::{Part, decode, parts, union};
use super::{any_will_do, by_shape, persist, weighted};
use crate::program::proved;
use crate::{PlanError, Repair, RepairPlan, StripeView, Topology};

pub(crate) use trees::ways;
pub use trees::{Forest, SharedTree, forest};

pub(crate) const METHOD: MethodRow = MethodRow {
    name: "optimal",
    about: "The best trees that the rates of the links allow; a chain if no rates are known",
    // One graph, for a read, goes along the best path.
    shape: weighted::shape,
    plan: Some(plan),
    together: true,
    scheduler: Some("auto"),
    ..weighted::METHOD
};

/// Plans the repair along the best trees over blocks of `preference`. Where rates do not decide, earlier blocks
/// are taken first. Lost blocks that have no helper in common are repaired along the best paths.
pub(super) fn plan(
    view: &StripeView,
    topology: &Topology,
    repair: &Repair,
    preference: &[BlockIndex],
) -> Result<RepairPlan, PlanError> {
    let Some((nodes, k)) = candidates(view, preference, &repair.lost)? else {
        return by_shape(view, topology, repair, preference);
    };
    let Some(forest) = forest(topology, &nodes, &repair.requestors, k) else {
        return by_shape(view, topology, repair, preference);
    };
    over_trees(view, &repair.lost, &repair.requestors, &forest.trees)
}

/// A lower bound in seconds on the repair of one block, from the rates of the links; `None` where no link limits
/// it. For codes that are not MDS, or that have sub-blocks, the bound holds for repairs from the helpers that
/// [`crate::Method::Pipeline`] would take.
///
/// # Errors
/// As [`crate::repair`].
pub fn least_seconds(
    view: &StripeView,
    topology: &Topology,
    lost: BlockIndex,
    requestor: NodeId,
) -> Result<Option<f64>, PlanError> {
    let preference: Vec<BlockIndex> = view.available().into_iter().filter(|block| *block != lost).collect();
    let Some((nodes, k)) = candidates(view, &preference, &[lost])? else { return Ok(None) };
    let rate = bound::in_topology(topology, &nodes, requestor, k);
    let bytes = view.layout.longest(view.code.k()) as f64;
    Ok((rate.is_finite() && rate > 0.0).then(|| bytes / rate))
}

/// The candidate helpers, and how many of them are in each tree; `None` for lost blocks that have no helper in
/// common.
///
/// # Errors
/// `Unrecoverable` when blocks of `preference` do not determine the lost ones.
pub(crate) fn candidates(
    view: &StripeView,
    preference: &[BlockIndex],
    lost: &[BlockIndex],
) -> Result<Option<(Vec<NodeId>, usize)>, PlanError> {
    let parts = parts(view, &decode(view, preference, lost)?)?;
    let [part] = &parts[..] else { return Ok(None) };
    let (blocks, k) = match any_will_do(view) {
        // Blocks without bytes are known to be zero.
        true => (preference, view.code.k().saturating_sub(view.absent().len()).max(1)),
        false => (&part.helpers[..], part.helpers.len()),
    };
    Ok(Some((blocks.iter().map(|block| view.home(*block)).collect::<Result<_, _>>()?, k)))
}

/// The plan that divides the slices among these trees by their shares and reads the blocks that the trees' nodes
/// hold.
///
/// # Errors
/// `Unrecoverable` when the blocks of a tree do not determine the lost ones; `Invalid` for a node without a
/// block of the stripe, or a tree that needs several computations at the requestor where there are several;
/// `Graph` when a tree does not lead to the requestor.
pub fn over_trees(
    view: &StripeView,
    lost: &[BlockIndex],
    requestors: &[NodeId],
    trees: &[SharedTree],
) -> Result<RepairPlan, PlanError> {
    let mut lanes = Vec::with_capacity(trees.len());
    let mut helpers = BTreeSet::new();
    for tree in trees {
        let blocks = blocks_of(view, tree.parents.keys())?;
        lanes.push(over_one(view, lost, requestors, tree, &blocks)?);
        helpers.extend(blocks.into_values());
    }
    let mut plan = proved(view, lanes, lost)?;
    plan.lanes.iter_mut().zip(trees).for_each(|(lane, tree)| lane.share = tree.share);
    Ok(RepairPlan {
        plan,
        helpers: helpers.into_iter().collect(),
        lost: lost.to_vec(),
        requestors: requestors.to_vec(),
        path_is_best: None,
    })
}

/// The plan that repairs each lost block at its requestor along a tree of its own.
///
/// # Errors
/// As [`over_trees`]; `Invalid` for a block without a tree.
pub fn over_own_trees(
    view: &StripeView,
    lost: &[BlockIndex],
    requestors: &[NodeId],
    trees: &BTreeMap<BlockIndex, SharedTree>,
) -> Result<RepairPlan, PlanError> {
    let mut whole = Placed {
        graph: Ecdag::new(0, 1),
        load_at: BTreeMap::new(),
        compute_at: BTreeMap::new(),
        persist_at: BTreeMap::new(),
    };
    let (mut graphs, mut helpers) = (Vec::with_capacity(lost.len()), BTreeSet::new());
    for (block, requestor) in lost.iter().zip(requestors) {
        let tree = trees.get(block).ok_or_else(|| PlanError::Invalid {
            what: format!("trees for {}", view.id),
            expected: format!("one for {block}"),
            got: crate::error::listed(&trees.keys().copied().collect::<Vec<_>>()),
        })?;
        let blocks = blocks_of(view, tree.parents.keys())?;
        let placed = over_one(view, &[*block], &[*requestor], tree, &blocks)?;
        graphs.push(placed.graph);
        whole.load_at.extend(placed.load_at);
        whole.compute_at.extend(placed.compute_at);
        whole.persist_at.extend(placed.persist_at);
        helpers.extend(blocks.into_values());
    }
    whole.graph = union(graphs)?;
    Ok(RepairPlan {
        plan: proved(view, vec![whole], lost)?,
        helpers: helpers.into_iter().collect(),
        lost: lost.to_vec(),
        requestors: requestors.to_vec(),
        path_is_best: None,
    })
}

fn over_one(
    view: &StripeView,
    lost: &[BlockIndex],
    requestors: &[NodeId],
    tree: &SharedTree,
    blocks: &BTreeMap<NodeId, BlockIndex>,
) -> Result<Placed, PlanError> {
    let preference: Vec<BlockIndex> = blocks.values().copied().collect();
    let parts = parts(view, &decode(view, &preference, lost)?)?;
    let [part] = &parts[..] else {
        return Err(PlanError::Invalid {
            what: "tree".into(),
            expected: "lost blocks that have helpers in common".into(),
            got: crate::error::listed(lost),
        });
    };
    let graph = shaped(view, part, tree, blocks)?;
    let mut placed =
        Placed { graph, load_at: BTreeMap::new(), compute_at: BTreeMap::new(), persist_at: BTreeMap::new() };
    for leaf in placed.graph.leaves() {
        placed.load_at.insert(leaf, view.home(view.block_of(leaf))?);
    }
    // This binds only what no helper computes: a place given by a bind comes first.
    let symbols = lost.iter().flat_map(|block| view.symbols(*block));
    placed.compute_at.extend(symbols.map(|symbol| (symbol, requestors[0])));
    let goals: Vec<_> = lost.iter().copied().zip(requestors.iter().copied()).collect();
    persist(view, &mut placed, &goals);
    Ok(placed)
}

/// The linear map of the part along the tree. A helper that contributes nothing is skipped.
fn shaped(
    view: &StripeView,
    part: &Part,
    tree: &SharedTree,
    blocks: &BTreeMap<NodeId, BlockIndex>,
) -> Result<Ecdag, PlanError> {
    let order: Vec<NodeId> = tree.parents.keys().copied().collect();
    let route: Vec<BlockIndex> = order.iter().map(|node| blocks[node]).collect();
    let (hops, coefs) = part.hops(view, &route);
    let number = |node: &NodeId| order.binary_search(node).unwrap_or(order.len());
    let parents: Vec<Option<usize>> = tree.parents.values().map(|up| up.as_ref().map(number)).collect();
    Ok(over_tree(view.code.n(), view.code.w(), &hops, &parents, &part.targets, &coefs)?)
}

fn blocks_of<'a>(
    view: &StripeView,
    nodes: impl Iterator<Item = &'a NodeId>,
) -> Result<BTreeMap<NodeId, BlockIndex>, PlanError> {
    let block_on = |node: &NodeId| {
        let found = view.indices().find(|block| view.has(*block, &[]) && view.home(*block) == Ok(*node));
        found.map(|block| (*node, block)).ok_or_else(|| PlanError::Placement {
            expected: format!("a block of {} on {node}", view.id),
            got: "none".into(),
        })
    };
    nodes.map(block_on).collect()
}
