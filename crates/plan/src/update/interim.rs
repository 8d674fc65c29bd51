//! Where the replica of an update waits until the parity has followed (CAU, section 3.4).
//!
//! It must survive the rack of the data node, so it goes to another rack. The paper takes a parity node there. If all
//! replicas of a stripe are in one rack, the hub, with the parities or most of them, the commit needs no further
//! transfer to this rack, and only as many as the rank to each other one: the replica was the transfer. What is at
//! home in the hub's rack goes to the rack with the next most parities.

use kintsu_dag::{BlockIndex, NodeId, RackId};

use super::{InterimRule, Scheme};
use crate::{PlanError, StripeView, Topology};

/// Where a replica goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interim {
    /// The node.
    pub node: NodeId,
    /// Whether it is in another rack than the block's home.
    pub other_rack: bool,
}

/// The node for interim replicas of a data block: a parity node of the stripe in another rack, else any home of the
/// stripe or usable node in another rack, else another node. `None` for schemes without replicas.
///
/// # Errors
/// `Placement` for a block without a home, or when there is no other node at all.
pub fn interim_home(
    view: &StripeView,
    topology: &Topology,
    block: BlockIndex,
    scheme: Scheme,
) -> Result<Option<Interim>, PlanError> {
    let rule = scheme.row().interim;
    if rule == InterimRule::None {
        return Ok(None);
    }
    let home = view.home(block)?;
    let usable = |node: &NodeId| topology.nodes.get(node).is_some_and(|known| known.usable);
    let parities: Vec<(BlockIndex, NodeId)> = view
        .indices()
        .skip(view.code.k())
        .filter(|parity| view.block_len(*parity) > 0)
        .filter_map(|parity| Some((parity, view.home(parity).ok()?)))
        .filter(|(_, node)| usable(node))
        .collect();
    let far = |node: &NodeId| topology.across_racks(home, *node);
    let mut candidates: Vec<NodeId> =
        parities.iter().filter(|(parity, _)| depends(view, *parity, block)).map(|(_, node)| *node).collect();
    candidates.retain(far);
    if rule == InterimRule::Hub {
        let crowd =
            |rack: Option<RackId>| parities.iter().filter(|(_, node)| topology.rack(*node) == rack).count();
        let most = candidates.iter().map(|node| crowd(topology.rack(*node))).max();
        let hub = candidates
            .iter()
            .map(|node| topology.rack(*node))
            .filter(|rack| Some(crowd(*rack)) == most)
            .min();
        candidates.retain(|node| Some(topology.rack(*node)) == hub);
    }
    if let Some(&node) = candidates.get(usize::from(block.0) % candidates.len().max(1)) {
        return Ok(Some(Interim { node, other_rack: true }));
    }
    let stripe = view.homes.iter().copied().flatten().filter(usable);
    let all: Vec<NodeId> =
        stripe.chain(topology.nodes.keys().copied().filter(usable)).filter(|node| *node != home).collect();
    let far_first = all.iter().find(|node| far(node)).or(all.first());
    let chosen = far_first.map(|&node| Interim { node, other_rack: far(&node) });
    chosen.map(Some).ok_or_else(|| PlanError::Placement {
        expected: format!("a usable node besides {home} for a replica of {block} of {}", view.id),
        got: "none".into(),
    })
}

/// The nodes of the parities that change with a data block, as far as they have homes.
pub fn parity_homes(view: &StripeView, block: BlockIndex) -> Vec<NodeId> {
    let parities = view.indices().skip(view.code.k()).filter(|parity| view.block_len(*parity) > 0);
    let changed = parities.filter(|parity| depends(view, *parity, block));
    changed.filter_map(|parity| view.home(parity).ok()).collect()
}

/// Whether a parity block changes with a data block.
fn depends(view: &StripeView, parity: BlockIndex, data: BlockIndex) -> bool {
    let generator = view.code.generator();
    let changes =
        |row: u32| view.symbols(data).any(|column| generator.row(row as usize)[column.0 as usize] != 0);
    view.symbols(parity).any(|row| changes(row.0))
}
