//! Lower bounds on the time of a recovery, from the total capacity of the links.
//!
//! For codes without sub-blocks, any linear repair of a stripe sends at least as many blocks as the smallest
//! repair has helpers. Each lost block is sent to a requestor. Each rack with helpers, other than the requestor's,
//! sends out at least one block (ECPipe, Algorithm 1, finds the least number of such racks). These bytes, divided
//! by the total capacity of all links of a kind, are a bound. It is loose where the load cannot be even.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::Topology;

use crate::cluster::{Cluster, LostStripe};

/// A lower bound in seconds on any recovery whose repairs have at least `helpers` helpers: the largest of the sums
/// over all remaining nodes, all requestors and all racks.
pub(crate) fn floor(
    cluster: &Cluster,
    topology: &Topology,
    lost: &[LostStripe],
    requestors: &[NodeId],
    helpers: usize,
) -> f64 {
    let rates = &topology.rates;
    let left = || topology.nodes.iter().filter(|(_, node)| node.usable).map(|(id, _)| *id);
    let racks: BTreeSet<RackId> = left().filter_map(|node| topology.rack(node)).collect();
    let block = cluster.block_bytes as f64;
    let sent = block * (lost.len() * helpers) as f64;
    // A stripe that has a block on every requestor is repaired at another node.
    let comes = |stripe: &&LostStripe| {
        let free = requestors.iter().filter(|node| !stripe.homes.contains(&Some(**node)));
        free.take(stripe.homes.len()).count() >= stripe.lost().len()
    };
    let blocks: usize = lost.iter().filter(comes).map(|stripe| stripe.lost().len()).sum();
    let across: usize = lost.iter().map(|stripe| racks_left(topology, stripe, helpers)).sum();
    let across = block * across as f64;
    let parts = [
        (sent, together(left(), &rates.up)),
        (sent, together(left(), &rates.down)),
        (block * blocks as f64, together(requestors.iter().copied(), &rates.down)),
        (across, together(racks.iter().copied(), &rates.rack_up)),
        (across, together(racks.iter().copied(), &rates.rack_down)),
    ];
    parts.into_iter().map(|(bytes, rate)| bytes / rate).fold(0.0, f64::max)
}

/// The total capacity of links; infinite when one of them has no rate.
fn together<K: Ord>(mut of: impl Iterator<Item = K>, rates: &BTreeMap<K, std::num::NonZeroU64>) -> f64 {
    of.try_fold(0.0, |sum, key| Some(sum + rates.get(&key)?.get() as f64)).unwrap_or(f64::INFINITY)
}

/// The least number of racks that a repair with this many helpers must send out of, over all places of the
/// requestor.
fn racks_left(topology: &Topology, stripe: &LostStripe, helpers: usize) -> usize {
    let mut crowds: BTreeMap<Option<RackId>, usize> = BTreeMap::new();
    for home in stripe.homes.iter().flatten() {
        *crowds.entry(topology.rack(*home)).or_default() += 1;
    }
    let mut crowds: Vec<usize> = crowds.into_values().collect();
    crowds.sort_unstable();
    // At best, the requestor is in the rack with the most blocks.
    let mut missing = helpers.saturating_sub(crowds.pop().unwrap_or(0));
    let mut racks = 0;
    while let Some(crowd) = crowds.pop().filter(|_| missing > 0) {
        missing = missing.saturating_sub(crowd);
        racks += 1;
    }
    racks
}
