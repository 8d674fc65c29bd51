//! The verdict about the cluster: gathers the facts, and lets [`crate::engine::health`] judge them.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::NodeId;
use kintsu_wire::message::{AskHealth, Health};

use super::space::recorded;
use crate::cluster::Cluster;
use crate::driver::{Scanned, damage, describe, held_now, used_codes};
use crate::engine::health::{CodeFacts, CopyFacts, Damage, Facts, NodeFacts, RepairFacts, judge};
use crate::error::Result;
use crate::meta::Meta;

/// Most stripes that are named for a cause, so that the answer stays well below the size limit of messages.
const MOST: u32 = 10_000;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: AskHealth) -> Result<Health> {
    let damage = damage(cluster).await?;
    judged(cluster, &damage, request.stripes.min(MOST)).await
}

/// The verdict, with at most this many stripes for each cause.
pub async fn judged(cluster: &Arc<Cluster>, damage: &Scanned, stripes: u32) -> Result<Health> {
    let worst = match stripes {
        0 => Vec::new(),
        limit => describe(cluster, damage.worst.clone(), limit as usize).await?,
    };
    let wrong = cluster.agreement().wrong.clone();
    let read = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let copied = snapshot.last_copy()?.map(|(_, time)| time);
        let mut contradicting = Vec::new();
        for id in wrong {
            let owner = snapshot.stripe(id)?.map(|stripe| stripe.owner);
            // One that is gone is no trouble any more.
            if let Some(whose) = owner.map(|owner| snapshot.whose(owner)).transpose()?.flatten() {
                contradicting.push((id, whose.to_string()));
            }
        }
        let share = snapshot.settings()?.repair_hold;
        Ok((snapshot.totals()?, copied, snapshot.tallies()?, share, contradicting))
    };
    let (totals, copied, tallies, share, contradicting) = cluster.meta.off(read).await?;
    let now = cluster.unix_seconds();
    let drains: BTreeSet<NodeId> = cluster.jobs.look(|jobs| jobs.drained().into_iter().collect());
    let (nodes, grace_ms): (Vec<NodeFacts>, u64) = {
        let (members, now_ms) = (cluster.members(), cluster.now_ms());
        let topology = members.topology();
        let node = |(id, member): (NodeId, &crate::engine::members::Member)| NodeFacts {
            id,
            state: member.state(),
            down_ms: if member.up { 0 } else { now_ms.saturating_sub(member.down_ms) },
            placed: tallies.get(&id).map_or(0, |tally| tally.0),
            held: member.record.held,
            aside: member.usage.aside_blocks,
            fullness: members.reserve().fullness(member.usage),
            open: topology.nodes.get(&id).is_some_and(|node| node.usable && node.has_room(1)),
            suspect: member.suspect,
            wiping: member.record.wiping,
            draining: member.record.draining,
            drain_runs: drains.contains(&id),
            unheard: member.record.is_unheard(),
            failed: member.failed.clone(),
            paused_s: member.record.paused_until.map(|until| until.saturating_sub(now)),
            unverified_s: member
                .record
                .scrub
                .map_or(0, |scrub| now.saturating_sub(scrub.verified.unwrap_or(scrub.began))),
        };
        (members.iter().map(node).collect(), members.patience().grace_ms)
    };
    let codes = codes(cluster, nodes.iter().filter(|node| node.open).count()).await?;
    // One lock after the other: the guards of one statement live until its end.
    let gate = cluster.gate().facts();
    let pending = cluster.queue().pending();
    let cancelled = cluster.auto().is_cancelled();
    let held = held_now(cluster, &tallies, share);
    let scrub_every_s = cluster.config.scrub_every.as_secs();
    let late_stripes = cluster.agreement().late(now, scrub_every_s, totals.stripes);
    let hanging_puts = cluster.leases().hanging();
    let facts = Facts {
        nodes,
        damage: Damage {
            unreadable: damage.unreadable,
            owners: damage.owners.clone(),
            reduced: damage.reduced.clone(),
            worst,
        },
        logs: damage.logs.clone(),
        contradicting,
        gate,
        repairs: RepairFacts {
            pending,
            failed: cluster.jobs.look(|jobs| jobs.failed_repair().map(|(id, why)| (id, why.to_owned()))),
            cancelled,
            held,
            grace_ms,
        },
        copies: CopyFacts {
            wanted: cluster.config.metadata_copies,
            age_s: copied.map(|time| now.saturating_sub(time)),
            holders: cluster.copies.holders(),
            unchanged: !cluster.copies.changed(&cluster.meta),
            every_s: cluster.config.copy_every.as_secs(),
            uptime_s: cluster.now_ms() / 1000,
        },
        scrub_every_s,
        late_stripes,
        stored: totals.objects + totals.stripes,
        plain: totals.plain,
        hanging_puts,
        clock_back_s: copied.map_or(0, |time| time.saturating_sub(now)),
        codes,
    };
    Ok(judge(&facts))
}

/// The codes in use, if a recorded one needs more than these open nodes. Where no code does, nothing follows from them.
async fn codes(cluster: &Arc<Cluster>, open: usize) -> Result<Vec<CodeFacts>> {
    let recorded = recorded(cluster).await?;
    if recorded.iter().all(|(_, code)| code.n() <= open) {
        return Ok(Vec::new());
    }
    let used = used_codes(cluster).await?;
    let facts = |(_, code): &(u16, Arc<dyn Code>)| CodeFacts {
        name: code.name().to_owned(),
        n: code.n(),
        k: code.k(),
    };
    Ok(recorded.iter().filter(|(key, _)| used.contains(key)).map(facts).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::begin_put;
    use crate::handlers::tests::{begin, cluster, put, silence, volume};
    use kintsu_wire::message::{CauseKind, Level};

    #[tokio::test]
    async fn the_verdict_follows_the_nodes() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        let ask = async |stripes| handle(&cluster, AskHealth { stripes }).await.unwrap();
        let well = ask(9).await;
        assert_eq!((well.verdict, well.headline.as_str()), (Level::Healthy, "healthy"), "{well:?}");
        silence(&cluster, &[0]);
        let degraded = ask(1).await;
        assert_eq!(degraded.verdict, Level::Warning, "{degraded:?}");
        let reduced =
            degraded.causes.iter().find(|cause| cause.kind == CauseKind::ReducedRedundancy).unwrap();
        assert_eq!((reduced.count, reduced.stripes.len(), reduced.stripes[0].bears), (2, 1, 1));
        assert_eq!((reduced.stripes[0].object.as_str(), reduced.stripes[0].absent[0].node), ("a", NodeId(0)));
        silence(&cluster, &[0, 1, 2]);
        let lost = ask(9).await;
        assert_eq!(lost.causes[0].kind, CauseKind::UnreadableStripes);
        assert_eq!((lost.causes[0].count, lost.causes[0].stripes.len()), (2, 2));
        assert!(
            lost.headline.starts_with("error: 2 stripes of 1 object cannot be read; "),
            "{}",
            lost.headline
        );
    }

    #[tokio::test]
    async fn a_code_that_needs_more_nodes_is_a_warning_as_long_as_it_is_in_use() {
        let (_dir, cluster) = cluster(6, 6).await;
        put(&cluster, "a", 48).await;
        silence(&cluster, &[0, 1, 2]);
        let refused = async || {
            let health = handle(&cluster, AskHealth::default()).await.unwrap();
            health.causes.into_iter().find(|cause| cause.kind == CauseKind::NoPlace)
        };
        let cause = refused().await.unwrap();
        assert_eq!(cause.level, Level::Warning);
        assert!(cause.title.starts_with("puts of all but small objects with rs:n=4,k=2"), "{}", cause.title);
        assert!(begin_put::handle(&cluster, begin("b", 48)).await.is_err());
        put(&cluster, "small", 8).await;
        for name in ["a", "small"] {
            assert!(refused().await.is_some());
            cluster.meta.remove(name).unwrap();
        }
        assert_eq!(refused().await, None, "no object has the code");
        silence(&cluster, &[]);
        volume(&cluster).await;
        silence(&cluster, &[0, 1, 2]);
        assert!(refused().await.is_some());
    }

    #[tokio::test]
    async fn a_stripe_of_a_volume_is_named_as_the_volume() {
        let (_dir, cluster) = cluster(6, 3).await;
        volume(&cluster).await;
        silence(&cluster, &[0, 1, 2, 3, 4]);
        let health = handle(&cluster, AskHealth { stripes: 9 }).await.unwrap();
        let cause = &health.causes[0];
        assert_eq!(
            (cause.kind, cause.title.as_str()),
            (CauseKind::UnreadableStripes, "1 stripe of 1 volume cannot be read")
        );
        assert_eq!((cause.stripes[0].object.as_str(), cause.stripes[0].volume), ("disk", true));
        assert!(cause.advice.contains("restore the volumes"), "{}", cause.advice);
    }

    #[tokio::test]
    async fn a_volume_of_which_no_living_node_has_a_log_is_an_error_until_one_is_back() {
        let (_dir, cluster) = cluster(6, 3).await;
        let [home, spare] = volume(&cluster).await[0][..] else { panic!("two nodes log") };
        let about_logs = async |dead: &[NodeId]| {
            silence(&cluster, &dead.iter().map(|node| node.0).collect::<Vec<_>>());
            let health = handle(&cluster, AskHealth::default()).await.unwrap();
            let logs =
                health.causes.iter().filter(|c| matches!(c.kind, CauseKind::LostLogs | CauseKind::FewLogs));
            let logs: Vec<_> = logs.map(|cause| (cause.kind, cause.count)).collect();
            (health.verdict, logs)
        };
        assert_eq!(about_logs(&[]).await, (Level::Healthy, Vec::new()));
        assert_eq!(about_logs(&[home, spare]).await, (Level::Error, vec![(CauseKind::LostLogs, 1)]));
        assert_eq!(about_logs(&[home]).await, (Level::Warning, vec![(CauseKind::FewLogs, 1)]));
        assert_eq!(about_logs(&[]).await, (Level::Healthy, Vec::new()));
    }
}
