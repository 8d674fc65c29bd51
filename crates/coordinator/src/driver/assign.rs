//! Assigns the stripes of a page to nodes, together, before any of them runs.
//!
//! What is decided here is a preference: the nodes may have changed when a stripe's turn comes, and then its repair takes
//! others. Where no assignment can be made the repair finds out why.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, StripeId};
use kintsu_plan::{Shares, StripeView, Waiting};

use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Snapshot, StripeRecord};
use crate::repair::{Losses, Order, Want};

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
    // The planning may take a while, and others repair meanwhile.
    let mut recovery = cluster.recovery().clone();
    let assigned = recovery.window(order.schedule, order.method, &mut dealt.shares, &topology, &waiting);
    cluster.recovery().keep(assigned.iter().flatten());
    waiting.iter().for_each(|waiting| dealt.losses.add(waiting));
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
