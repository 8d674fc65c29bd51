//! The cluster in numbers: from counters, and from an index scan over blocks that are lost or on nodes that are
//! down, never over all stripes. The result of a slow scan is reused for a time in proportion to its duration.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use kintsu_dag::{NodeId, StripeId};
use kintsu_wire::message::ClusterStatus;

use crate::cluster::Cluster;
use crate::driver::readable;
use crate::error::Result;
use crate::meta::{Meta, Snapshot};

/// Rows of a page.
const PAGE: usize = 8192;
/// The result of a scan is reused for this many times the scan's duration,
const REST: u64 = 20;
/// but not at all if the scan took less than this: the status of a small cluster is never old.
const CHEAP_MS: u64 = 200;

/// The last scan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Damage {
    degraded: u64,
    unreadable: u64,
    until_ms: u64,
}

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<ClusterStatus> {
    let damage = damage(cluster).await?;
    let (worker, now) = (cluster.clone(), cluster.unix_seconds());
    let read = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        Ok((snapshot.totals()?, worker.copies.last(&snapshot, now)?))
    };
    let (totals, metadata_copy) = cluster.meta.off(read).await?;
    let (alive, dead) = {
        let members = cluster.members();
        let alive = members.iter().filter(|(_, m)| m.up).count();
        (alive as u32, (members.iter().count() - alive) as u32)
    };
    let mut held_back = cluster.gate().reasons();
    held_back.extend(cluster.members().iter().filter(|(_, m)| m.record.held > 0).map(|(node, m)| {
        format!(
            "{node}: {} blocks at once were unknown to the metadata; they are set aside and not purged: look at \
             them with `kintsu quarantine ls --node {}`, then `kintsu quarantine confirm {}`",
            m.record.held, node.0, node.0
        )
    }));
    Ok(ClusterStatus {
        objects: totals.objects,
        object_bytes: totals.object_bytes,
        stripes: totals.stripes,
        alive,
        dead,
        degraded_stripes: damage.degraded,
        unreadable_stripes: damage.unreadable,
        repairs_pending: cluster.queue().pending(),
        puts_pending: totals.puts,
        garbage: totals.garbage,
        cluster: Some(cluster.id),
        held_back,
        metadata_copy,
    })
}

async fn damage(cluster: &Arc<Cluster>) -> Result<Damage> {
    let known = *cluster.damage();
    let started_ms = cluster.now_ms();
    if started_ms < known.until_ms {
        return Ok(known);
    }
    let down = cluster.members().down();
    let worker = cluster.clone();
    let (degraded, unreadable) =
        cluster.meta.off(move |meta| scan(&worker, &meta.snapshot()?, &down)).await?;
    let now_ms = cluster.now_ms();
    let took_ms = now_ms - started_ms;
    let rest_ms = if took_ms < CHEAP_MS { 0 } else { took_ms * REST };
    let damage = Damage { degraded, unreadable, until_ms: now_ms + rest_ms };
    *cluster.damage() = damage;
    Ok(damage)
}

fn scan(cluster: &Cluster, snapshot: &Snapshot, down: &BTreeSet<NodeId>) -> Result<(u64, u64)> {
    let mut seen: HashSet<StripeId> = HashSet::new();
    let mut unreadable = 0;
    let mut look = |id: StripeId| -> Result<()> {
        if !seen.insert(id) {
            return Ok(());
        }
        let Some(stripe) = snapshot.stripe(id)? else { return Ok(()) };
        unreadable += u64::from(!readable(cluster, &stripe, down)?);
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
    Ok((seen.len() as u64, unreadable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{cluster, put, silence};

    #[tokio::test]
    async fn damage_is_counted_by_stripe() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        let status = handle(&cluster).await.unwrap();
        assert_eq!((status.stripes, status.degraded_stripes, status.unreadable_stripes), (2, 0, 0));
        assert_eq!((status.alive, status.dead), (4, 0));
        silence(&cluster, &[0]);
        *cluster.damage() = Damage::default();
        let status = handle(&cluster).await.unwrap();
        assert_eq!((status.alive, status.dead, status.degraded_stripes), (3, 1, 2));
        assert_eq!(status.unreadable_stripes, 0);
        silence(&cluster, &[0, 1, 2]);
        *cluster.damage() = Damage::default();
        assert_eq!(handle(&cluster).await.unwrap().unreadable_stripes, 2);
    }
}
