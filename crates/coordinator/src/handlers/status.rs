//! The cluster in numbers, with the verdict about it ([`super::health`]).

use std::sync::Arc;

use kintsu_wire::message::{ClusterStatus, HealthSummary};

use super::health;
use crate::cluster::Cluster;
use crate::driver::damage;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<ClusterStatus> {
    let damage = damage(cluster).await?;
    let health = health::judged(cluster, &damage, 0).await?;
    let health = HealthSummary { verdict: health.verdict, headline: health.headline };
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
    // One lock after the other: the guards of one statement live until its end.
    let repairs_pending = cluster.queue().pending();
    let repair_limit = Some(cluster.give_way().standing());
    let compared = (!cluster.config.scrub_every.is_zero()).then(|| cluster.agreement().shown());
    Ok(ClusterStatus {
        objects: totals.objects,
        object_bytes: totals.object_bytes,
        stripes: totals.stripes,
        alive,
        dead,
        degraded_stripes: damage.degraded(),
        unreadable_stripes: damage.unreadable,
        repairs_pending,
        puts_pending: totals.puts,
        garbage: totals.garbage,
        cluster: Some(cluster.id),
        held_back,
        metadata_copy,
        health,
        repair_limit,
        compared,
    })
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
        let status = handle(&cluster).await.unwrap();
        assert_eq!((status.alive, status.dead, status.degraded_stripes), (3, 1, 2));
        assert_eq!(status.unreadable_stripes, 0);
        silence(&cluster, &[0, 1, 2]);
        assert_eq!(handle(&cluster).await.unwrap().unreadable_stripes, 2);
    }
}
