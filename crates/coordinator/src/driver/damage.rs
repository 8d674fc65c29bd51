//! Finds which stripes can be read while nodes are gone, and which more could not be read without a given
//! node ([`crate::engine::damage`]).

use std::collections::{BTreeSet, HashSet};

use kintsu_dag::NodeId;

use crate::cluster::Cluster;
use crate::engine::damage::{self, Harm};
use crate::error::Result;
use crate::meta::{Snapshot, StripeRecord};

/// Rows of a page.
const PAGE: usize = 8192;
/// Most objects that are named.
const NAMED: usize = 3;

/// Whether a stripe can be read while these nodes are gone.
///
/// # Errors
/// The metadata contradict themselves.
pub fn readable(cluster: &Cluster, stripe: &StripeRecord, gone: &BTreeSet<NodeId>) -> Result<bool> {
    Ok(damage::readable(stripe, cluster.code(stripe.code)?.as_ref(), gone))
}

/// The stripes that need the block of a node: they could not be read while this node and those in `gone` are
/// gone. Scans the blocks of the node, page by page. Blocking.
///
/// # Errors
/// The metadata contradict themselves.
pub fn needing(
    cluster: &Cluster,
    snapshot: &Snapshot,
    node: NodeId,
    mut gone: BTreeSet<NodeId>,
) -> Result<Harm> {
    gone.insert(node);
    let mut harm = Harm::default();
    let mut owners: HashSet<u64> = HashSet::new();
    let mut after = None;
    loop {
        let page = snapshot.placed(node, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.stripe);
        for id in &page {
            let Some(stripe) = snapshot.stripe(id.stripe)? else { continue };
            let held = stripe.block(id.index).is_some_and(|b| !b.lost);
            if !held || readable(cluster, &stripe, &gone)? {
                continue;
            }
            harm.stripes += 1;
            if owners.insert(stripe.owner) && harm.names.len() < NAMED {
                harm.names.extend(snapshot.name(stripe.owner)?);
            }
        }
    }
    harm.objects = owners.len() as u64;
    Ok(harm)
}
