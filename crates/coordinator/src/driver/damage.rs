//! What can be read while nodes are away, and what more would be lost without one.

use std::collections::{BTreeSet, HashSet};
use std::fmt;

use kintsu_dag::{BlockIndex, NodeId};

use super::pages::unavailable;
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::{Snapshot, StripeRecord};

/// Rows of a page.
const PAGE: usize = 8192;
/// Objects that are told by name.
const NAMED: usize = 3;

/// What could not be read any more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Harm {
    /// Stripes.
    pub stripes: u64,
    /// Objects that have them.
    pub objects: u64,
    /// The names of the first few.
    pub names: Vec<String>,
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let several = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let names: Vec<String> = self.names.iter().map(|name| format!("{name:?}")).collect();
        let more = if self.objects > self.names.len() as u64 { ", ..." } else { "" };
        let (stripes, objects) = (several(self.stripes, "stripe"), several(self.objects, "object"));
        write!(f, "{stripes} of {objects} that could not be read afterwards: {}{more}", names.join(", "))
    }
}

/// Whether a stripe can be read while these nodes are gone.
///
/// # Errors
/// The metadata contradict themselves.
pub fn readable(cluster: &Cluster, stripe: &StripeRecord, gone: &BTreeSet<NodeId>) -> Result<bool> {
    let code = cluster.code(stripe.code)?;
    let lost = unavailable(stripe, gone);
    let data = |b: &BlockIndex| usize::from(b.0) < code.k();
    Ok(if stripe.encoded {
        lost.len() < code.distance() || code.recoverable(&lost)
    } else {
        !lost.iter().any(data)
    })
}

/// The stripes that need the blocks of a node: with `gone` and without it they cannot be read. A scan over the blocks
/// of the node, page by page. Blocking.
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
