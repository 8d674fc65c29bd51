//! Assigns the stripes of a page to nodes, together, before any of them runs.
//!
//! What is decided here is a preference: the nodes may have changed when a stripe's turn comes, and then its repair takes
//! others. Where no assignment can be made the repair finds out why.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::{Shares, StripeView, Waiting};

use crate::cluster::Cluster;
use crate::engine::repair::{Losses, Order, Want};
use crate::error::Result;
use crate::meta::{Snapshot, StripeRecord};

/// What the pages of one ask have given to nodes so far.
#[derive(Debug, Clone, Default)]
pub struct Dealt {
    shares: Shares,
    /// The stripes, for the bound of the time that they take.
    pub losses: Losses,
}

/// Fills in which nodes have a part in mending each stripe, and puts the stripes in the order in which they are best
/// begun.
///
/// # Errors
/// The disk fails.
pub fn assign(
    cluster: &Cluster,
    snapshot: &Snapshot,
    order: &Order,
    dealt: &mut Dealt,
    wants: &mut [Want],
) -> Result<()> {
    let (topology, readable) = cluster.nodes();
    let topology = order.narrow(topology);
    let (mut waiting, mut at) = (Vec::new(), Vec::new());
    for (i, want) in wants.iter().enumerate().filter(|(_, want)| !want.blocks.is_empty()) {
        if let Some(stripe) = snapshot.stripe(want.stripe)? {
            waiting.push(wait(cluster, snapshot, want, &stripe, &readable)?);
            at.push(i);
        }
    }
    waiting.iter().for_each(|waiting| dealt.losses.add(waiting));
    let slow = cluster.laggards().now(cluster.now_ms());
    let waiting: Vec<_> = waiting.into_iter().map(|waiting| without(&slow, waiting)).collect();
    // The planning may take a while, and others repair meanwhile.
    let mut recovery = cluster.recovery().clone();
    let assigned = recovery.window(order.schedule, order.method, &mut dealt.shares, &topology, &waiting);
    cluster.recovery().keep(assigned.iter().flatten());
    let mut turns: BTreeMap<StripeId, usize> = BTreeMap::new();
    for (i, assignment) in at.into_iter().zip(assigned) {
        if let Ok(assignment) = assignment {
            wants[i].nodes = assignment.nodes();
            turns.insert(assignment.stripe, assignment.turn);
        }
    }
    wants.sort_by_key(|want| turns.get(&want.stripe).copied());
    Ok(())
}

/// A stripe as its repair will see it: what cannot be read has no home, and nodes that keep a block of it or still
/// have to delete one must not get another.
fn wait(
    cluster: &Cluster,
    snapshot: &Snapshot,
    want: &Want,
    stripe: &StripeRecord,
    readable: &BTreeSet<NodeId>,
) -> Result<Waiting> {
    let mut homes = vec![None; stripe.blocks.len()];
    let mut barred = BTreeSet::new();
    for (index, block) in stripe.made().filter(|(index, _)| !want.blocks.contains(index)) {
        homes[usize::from(index.0)] = Some(block.node).filter(|node| !block.lost && readable.contains(node));
        barred.insert(block.node);
    }
    for node in readable {
        if snapshot.must_sweep(*node, want.stripe)? {
            barred.insert(*node);
        }
    }
    let view = StripeView { id: want.stripe, code: cluster.code(stripe.code)?, layout: stripe.layout, homes };
    Ok(Waiting { view, lost: want.blocks.clone(), barred })
}

/// The stripe without the blocks of as many of these slow nodes as it can spare, the first ones rather than the others:
/// its repair goes around them, and must not lose for that what was planned for all together.
fn without(slow: &[NodeId], waiting: Waiting) -> Waiting {
    let without = |count: usize| {
        let mut left = waiting.clone();
        let slow = |home: &NodeId| slow[..count].contains(home);
        left.view.homes.iter_mut().for_each(|home| *home = home.filter(|home| !slow(home)));
        left
    };
    let suffices = |left: &Waiting| {
        let known = [left.view.absent(), left.view.available()].concat();
        left.view.code.decode(&known, &left.lost).is_ok()
    };
    let spared = (1..=slow.len()).rev().map(without).find(suffices);
    spared.unwrap_or(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::pages::{Place, Source, page};
    use crate::handlers::tests::{cluster, put, silence};

    #[tokio::test]
    async fn stripes_are_planned_together_without_slow_nodes_as_far_as_they_can_spare_them() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 320).await;
        silence(&cluster, &[0]);
        let order = Order { method: kintsu_plan::Method::Optimal, ..Order::default() };
        let wants = async || {
            let dealt = Dealt::default();
            let source = Source::Node(NodeId(0));
            page(&cluster, source, Place::default(), order.clone(), dealt).await.unwrap().0.wants
        };
        let stripes = |wants: &[Want], node: NodeId| {
            let snapshot = cluster.meta.snapshot().unwrap();
            let helps = |want: &&Want| {
                let stripe = snapshot.stripe(want.stripe).unwrap().unwrap();
                stripe.made().any(|(_, block)| block.node == node) && want.nodes.contains(&node)
            };
            wants.iter().filter(helps).count()
        };
        let before = wants().await;
        assert!(stripes(&before, NodeId(2)) > 0, "{before:?}");
        for repair in [1, 2] {
            cluster.laggards().found(NodeId(2), repair, cluster.now_ms());
        }
        let after = wants().await;
        assert_eq!((after.len(), stripes(&after, NodeId(2))), (before.len(), 0), "{after:?}");
        // Of two, two cannot be had from one.
        for repair in [3, 4] {
            cluster.laggards().found(NodeId(1), repair, cluster.now_ms());
            cluster.laggards().found(NodeId(3), repair, cluster.now_ms());
        }
        let most = wants().await;
        assert_eq!(most.len(), before.len());
        assert!(most.iter().all(|want| !want.nodes.is_empty()), "{most:?}");
    }
}
