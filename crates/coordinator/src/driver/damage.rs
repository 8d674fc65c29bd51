//! Finds which stripes can be read while nodes are gone, and which more could not be read without a given
//! node ([`crate::engine::damage`]).
//!
//! The damage of the cluster comes from an index scan over blocks that are lost or on nodes that are down, never over
//! all stripes. The logs of volumes have no such index: their rows are scanned, but not while all nodes stay with which all
//! logs were whole. The result of a scan of many stripes is reused for a time in proportion to its duration.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use kintsu_dag::{NodeId, StripeId};
use kintsu_wire::FolderId;
use kintsu_wire::message::{AbsentBlock, DamagedStripe};

use super::volume_logs::{holders, short_logs};
use crate::cluster::Cluster;
use crate::engine::damage::{self, Harm, Harmed, Owners, Whose};
use crate::engine::health::LogFacts;
use crate::error::Result;
use crate::meta::{Meta, Snapshot};

/// Rows of a page.
const PAGE: usize = 8192;
/// The result of a scan is reused for this many times the scan's duration,
const REST: u64 = 20;
/// but not at all if it looked at no more stripes or objects than this: where little is damaged the status is never old, however
/// slow the machine is.
const FEW: usize = 4096;
/// Most damaged stripes that are remembered; the others are only counted.
const WORST: usize = 10_000;

/// The last scan.
#[derive(Debug, Clone, Default)]
pub struct Scanned {
    /// Stripes that cannot be read.
    pub unreadable: u64,
    /// Whose bytes these have.
    pub owners: Owners,
    /// The other damaged stripes, by how many more losses each bears for sure.
    pub reduced: BTreeMap<u64, u64>,
    /// The worst ones.
    pub worst: Arc<Vec<StripeId>>,
    /// The logs of volumes that are not on all of their nodes.
    pub logs: LogFacts,
    /// Whether the logs were looked at, or need not be.
    has_logs: bool,
    /// The folders of all nodes, if all answered then.
    folders: Option<BTreeMap<NodeId, FolderId>>,
    /// Stripes that it looked at.
    looked: usize,
    until_ms: u64,
}

impl Scanned {
    /// Whether one more loss may end a stripe that can still be read. Stripes that cannot be read do not count: haste saves
    /// nothing of them.
    pub fn is_endangered(&self) -> bool {
        self.reduced.contains_key(&0)
    }

    /// Stripes with blocks that cannot be read.
    pub fn degraded(&self) -> u64 {
        self.unreadable + self.reduced.values().sum::<u64>()
    }
}

/// The damage of the cluster now, or a short while ago.
///
/// # Errors
/// The metadata contradict themselves.
pub async fn damage(cluster: &Arc<Cluster>) -> Result<Scanned> {
    look(cluster, true).await
}

/// The same without the logs of volumes, for whoever must not wait until all of their rows are read: the logs are those of an
/// earlier scan.
///
/// # Errors
/// Those of [`damage`].
pub async fn damage_but_of_logs(cluster: &Arc<Cluster>) -> Result<Scanned> {
    look(cluster, false).await
}

async fn look(cluster: &Arc<Cluster>, logs: bool) -> Result<Scanned> {
    let known = cluster.damage().clone();
    let started_ms = cluster.now_ms();
    if started_ms < known.until_ms && (known.has_logs || !logs) {
        return Ok(known);
    }
    let (down, nodes) = {
        let members = cluster.members();
        (members.down(), members.iter().count())
    };
    let (worker, holders) = (cluster.clone(), holders(cluster));
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut scanned = scan(&worker, &snapshot, &down)?;
        // Logs move among the nodes and their folders, so whole ones stay whole as long as all of these are there. While one is
        // away, logs may have moved to it meanwhile.
        let folders = Some(holders.folders.clone()).filter(|folders| folders.len() == nodes);
        if known.logs.is_whole() && folders.is_some() && known.folders == folders {
            (scanned.has_logs, scanned.folders) = (true, folders);
        } else if logs {
            let (logs, looked) = short_logs(&snapshot, &holders)?;
            (scanned.logs, scanned.looked) = (logs, scanned.looked + looked);
            (scanned.has_logs, scanned.folders) = (true, folders);
        } else {
            scanned.logs = known.logs;
        }
        Ok(scanned)
    };
    let mut scanned = cluster.meta.off(find).await?;
    scanned.until_ms = reused_until(scanned.looked, started_ms, cluster.now_ms());
    *cluster.damage() = scanned.clone();
    Ok(scanned)
}

/// Until when the result of a scan is reused that looked at so many stripes or objects.
pub fn reused_until(looked: usize, started_ms: u64, now_ms: u64) -> u64 {
    now_ms + if looked <= FEW { 0 } else { (now_ms - started_ms) * REST }
}

fn scan(cluster: &Cluster, snapshot: &Snapshot, down: &BTreeSet<NodeId>) -> Result<Scanned> {
    let (mut seen, mut owners) = (HashSet::new(), HashSet::new());
    let (mut scanned, mut found) = (Scanned::default(), Vec::new());
    let mut look = |id: StripeId| -> Result<()> {
        if !seen.insert(id) {
            return Ok(());
        }
        let Some(stripe) = snapshot.stripe(id)? else { return Ok(()) };
        let bears = damage::bears(&stripe, cluster.code(stripe.code)?.as_ref(), down);
        match bears {
            Some(more) => *scanned.reduced.entry(more).or_default() += 1,
            None => {
                scanned.unreadable += 1;
                owners.insert(stripe.owner);
            }
        }
        found.push((bears, id));
        Ok(())
    };
    let mut after = None;
    loop {
        let page = snapshot.lost(after, PAGE)?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.stripe);
        page.iter().try_for_each(|(id, _)| look(id.stripe))?;
    }
    for &node in down {
        let mut after = None;
        loop {
            let page = snapshot.placed(node, after, PAGE)?;
            let Some(last) = page.last() else { break };
            after = Some(last.stripe);
            page.iter().try_for_each(|id| look(id.stripe))?;
        }
    }
    // `None`, which cannot be read, comes first.
    found.sort_unstable();
    for owner in owners {
        if let Some(whose) = snapshot.whose(owner)? {
            scanned.owners.add(&whose);
        }
    }
    scanned.looked = seen.len();
    scanned.worst = Arc::new(found.into_iter().take(WORST).map(|(_, id)| id).collect());
    Ok(scanned)
}

/// What is damaged of these stripes now; those that are whole or gone by now are left out, and at most `limit` that can
/// be read and as many that cannot are returned.
///
/// # Errors
/// The metadata contradict themselves.
pub async fn describe(
    cluster: &Arc<Cluster>,
    stripes: Arc<Vec<StripeId>>,
    limit: usize,
) -> Result<Vec<DamagedStripe>> {
    let down = cluster.members().down();
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut out: [Vec<DamagedStripe>; 2] = Default::default();
        for &id in stripes.iter() {
            if out.iter().all(|list| list.len() >= limit) {
                break;
            }
            let Some(stripe) = snapshot.stripe(id)? else { continue };
            let code = worker.code(stripe.code)?;
            let bears = damage::bears(&stripe, code.as_ref(), &down);
            let list = &mut out[usize::from(bears.is_some())];
            let gone = damage::unavailable(&stripe, &down);
            if gone.is_empty() || list.len() >= limit {
                continue;
            }
            let absent = |(index, block): (_, &crate::meta::BlockRecord)| {
                gone.contains(&index).then_some(AbsentBlock { index, node: block.node, lost: block.lost })
            };
            let (object, others, volume) = match snapshot.whose(stripe.owner)? {
                Some(Whose::Objects(name, count)) => (name, count.saturating_sub(1), false),
                Some(Whose::Volume(name)) => (name, 0, true),
                None => Default::default(),
            };
            list.push(DamagedStripe {
                stripe: id,
                object,
                volume,
                others,
                code: code.name().into(),
                readable: bears.is_some(),
                bears: bears.unwrap_or(0),
                absent: stripe.made().filter_map(absent).collect(),
            });
        }
        Ok(out.concat())
    };
    cluster.meta.off(look).await
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
    let mut harmed = Harmed::default();
    let mut after = None;
    loop {
        let page = snapshot.placed(node, after, PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.stripe);
        for id in &page {
            let Some(stripe) = snapshot.stripe(id.stripe)? else { continue };
            harmed.look(&stripe, id.index, cluster.code(stripe.code)?.as_ref(), &gone);
        }
    }
    harmed.end(|owner| snapshot.whose(owner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put, silence};

    #[tokio::test]
    async fn stripes_are_endangered_that_one_more_loss_would_end_and_not_those_that_are_lost() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        let mut seen = Vec::new();
        for dead in [&[][..], &[0], &[0, 1], &[0, 1, 2]] {
            silence(&cluster, dead);
            let damage = damage_but_of_logs(&cluster).await.unwrap();
            seen.push((damage.degraded() > 0, damage.unreadable > 0, damage.is_endangered()));
        }
        let expected =
            [(false, false, false), (true, false, false), (true, false, true), (true, true, false)];
        assert_eq!(seen, expected);
    }
}
