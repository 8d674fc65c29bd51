//! Time passes: carries out what is due then ([`crate::engine::tick`]).

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kintsu_dag::NodeId;

use super::doubts::reverify_node;
use super::guard::guarded;
use super::pages::Source;
use super::upgrade::settle_version;
use super::{damage_but_of_logs, drain, measure, rebalance, repair_jobs, start_repairs, steering, wipe};
use crate::cluster::Cluster;
use crate::engine::members::Change;
use crate::engine::repair::{Held, Order, held};
use crate::engine::tick::{Due, Machines, Ticks};
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// The slice of repairs whose request names none: the plan chooses it.
pub const AUTOMATIC_SLICE: u32 = 0;

/// Runs until the coordinator ends.
pub async fn ticks(cluster: Arc<Cluster>) {
    let period = (cluster.config.heartbeat / 2).max(Duration::from_millis(20));
    let running = Running { period_ms: period.as_millis() as u64, seen_ms: AtomicU64::new(cluster.now_ms()) };
    let look = async {
        loop {
            tokio::time::sleep(period).await;
            running.look(&cluster);
        }
    };
    let work = async {
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ticks = Ticks::default();
        loop {
            interval.tick().await;
            running.look(&cluster);
            if let Err(error) = guarded(tick(&cluster, &mut ticks)).await {
                tracing::error!("{error}");
            }
        }
    };
    tokio::join!(look, work);
}

/// Notices that this process could not run for a while: it was stopped, starved, or moved to another machine. Meanwhile
/// it heard nobody, and heartbeats wait to be read.
struct Running {
    /// Somebody looks this often.
    period_ms: u64,
    /// When somebody looked last.
    seen_ms: AtomicU64,
}

impl Running {
    fn look(&self, cluster: &Cluster) {
        let now_ms = cluster.now_ms();
        let away_ms = now_ms.saturating_sub(self.seen_ms.swap(now_ms, Ordering::Relaxed));
        if away_ms > 2 * self.period_ms {
            let stalled_ms = away_ms - self.period_ms;
            tracing::debug!("the coordinator could not run for {stalled_ms} ms");
            cluster.members().excuse(stalled_ms, now_ms);
            cluster.leases().excuse(stalled_ms);
        }
    }
}

async fn tick(cluster: &Arc<Cluster>, ticks: &mut Ticks) -> Result<()> {
    let now_ms = cluster.now_ms();
    give_way(cluster, now_ms).await?;
    let resumed = cluster.members().end_pauses(cluster.unix_seconds());
    for node in resumed {
        tracing::info!("the pause of {node} has ended");
    }
    let nodes: Vec<NodeId> = cluster.members().iter().map(|(node, _)| node).collect();
    let down = cluster.members().iter().filter(|(_, member)| !member.up).map(|(node, _)| node).collect();
    cluster.bandwidth().down(&down);
    let mut rates = cluster.rates();
    cluster.give_way().cap(&mut rates, nodes);
    cluster.queue().know(rates);
    steering::steer(cluster);
    repair_jobs::begin_phases(cluster);
    repair_jobs::plan_again(cluster);
    let due = {
        let (mut members, mut leases, mut gate) = (cluster.members(), cluster.leases(), cluster.gate());
        let (mut auto, wipes) = (cluster.auto(), cluster.wipes());
        let (told, links) = (cluster.told_rates(), cluster.bandwidth());
        let links = cluster.config.measure.then_some((&*links, &*told));
        let repairing = cluster.queue().jobs() > 0;
        let (members, leases, gate) = (&mut *members, &mut *leases, &mut *gate);
        ticks.tick(
            now_ms,
            Machines { members, leases, gate, auto: &mut auto, wipes: &wipes, links, repairing },
        )
    };
    settle_version(cluster);
    for due in due {
        match due {
            Due::Reread(node) => {
                let worker = cluster.clone();
                cluster.spawn(async move {
                    if let Err(error) = guarded(reverify_node(&worker, node)).await {
                        tracing::warn!("lost blocks of {node} were not read again: {error}");
                    }
                });
            }
            Due::Tell(Change::Down(node)) => tracing::warn!("{node} is dead"),
            Due::Tell(Change::Overdue(node)) => {
                tracing::warn!("{node} stays away: its blocks will be repaired");
            }
            Due::Tell(Change::Up(_)) => {}
            Due::Undo(put) => undo(cluster, put, now_ms).await,
            Due::Opened => {
                tracing::warn!(
                    "not all blocks were reported in time; what is missing counts as lost from now on"
                );
            }
            Due::Wipe(node) => wipe::go_on(cluster, node),
            Due::Measure => {
                let worker = cluster.clone();
                cluster.spawn(async move {
                    if let Err(error) = guarded(measure(&worker)).await {
                        tracing::debug!("links were not measured: {error}");
                    }
                });
            }
            Due::Drain(node) => drain::go_on(cluster, node).await?,
            Due::Rebalance => rebalance::go_on(cluster).await?,
            Due::Repairs(overdue) => start_due_repairs(cluster, overdue).await?,
        }
    }
    if cluster.meta.is_unsettled() && !cluster.is_rebuilding() {
        // A put that has begun outlives a crash from now on.
        cluster.meta.off(Meta::settle).await?;
    }
    Ok(())
}

/// What a tick does, for tests.
#[cfg(test)]
pub async fn tick_once(cluster: &Arc<Cluster>) {
    tick(cluster, &mut Ticks::default()).await.unwrap();
}

/// Has the limit of repairs follow what users feel.
async fn give_way(cluster: &Arc<Cluster>, now_ms: u64) -> Result<()> {
    let asks = cluster.give_way().asks_for_damage(now_ms);
    if asks {
        let endangered = cluster.queue().jobs() > 0 && damage_but_of_logs(cluster).await?.is_endangered();
        cluster.give_way().endangers(endangered);
    }
    cluster.give_way().tick(now_ms);
    Ok(())
}

/// Undoes a put whose lease has run out. One that cannot be undone now is tried again.
async fn undo(cluster: &Arc<Cluster>, put: u64, now_ms: u64) {
    match cluster.meta.off(move |meta| meta.abort_put(put)).await {
        Ok(true) => {
            tracing::info!("put {put} was not renewed: it is undone");
            cluster.leases().end(put);
        }
        // It ended before: it was committed or given up.
        Ok(false) | Err(CoordinatorError::Conflict { .. }) => cluster.leases().end(put),
        Err(error) => {
            tracing::error!("put {put} was not renewed, but cannot be undone: {error}");
            cluster.leases().put_back(put, now_ms);
        }
    }
    cluster.sweep.notify_one();
}

async fn start_due_repairs(cluster: &Arc<Cluster>, overdue: Vec<NodeId>) -> Result<()> {
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        Ok((snapshot.totals()?.lost, snapshot.tallies()?, snapshot.settings()?.repair_hold))
    };
    let (lost, tallies, share) = cluster.meta.off(look).await?;
    let placed = |node: &NodeId| tallies.get(node).map_or(0, |tally| tally.0);
    let now = held_now(cluster, &tallies, share);
    if cluster.auto().hold(now) {
        match now {
            Some(_) => {
                tracing::warn!("too much is gone at once: automatic repair is held, see `kintsu health`");
                repair_jobs::hold(cluster);
            }
            None => tracing::warn!("automatic repair is not held any more"),
        }
    }
    let overdue = if now.is_some() { Vec::new() } else { overdue };
    let placed = overdue.iter().map(placed).sum();
    if cluster.auto().tick(cluster.now_ms(), lost, placed) {
        let order = Order { slice_bytes: AUTOMATIC_SLICE, ..Order::default() };
        repair_jobs::start_repairs(cluster, Source::Overdue(overdue), order, None);
    }
    Ok(())
}

/// Whether automatic repair of nodes is held: `tallies` says how many blocks are placed on each node, `share` is the
/// operator's setting.
pub fn held_now(
    cluster: &Cluster,
    tallies: &BTreeMap<NodeId, (u64, u64)>,
    share: Option<NonZeroU32>,
) -> Option<Held> {
    held(cluster.members().holders(|node| tallies.get(&node).is_some_and(|tally| tally.0 > 0)), share)
}

/// Has these blocks repaired at once, on the nodes where they are if these live. If nobody listens and repairs may not start
/// by themselves yet, the blocks stay flagged, and are repaired later.
pub fn repair_now(
    cluster: &Arc<Cluster>,
    blocks: Vec<kintsu_dag::BlockId>,
    listener: Option<super::Listener>,
) {
    if !cluster.gate().may_repair(listener.is_some()) {
        return;
    }
    let order = Order { slice_bytes: AUTOMATIC_SLICE, in_place: true, ..Order::default() };
    start_repairs(cluster, Source::Blocks(blocks), order, listener);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{begin, cluster, enlist, put, registration, reopen_with, silence};
    use crate::handlers::{self, begin_put};
    use kintsu_wire::message::{CauseKind, ChangeSetting, Counters, Heartbeat, LinkCounters};

    #[tokio::test]
    async fn a_put_that_cannot_be_undone_keeps_no_other_put_and_no_repair() {
        let (dir, first) = cluster(4, 2).await;
        put(&first, "visible", 60).await;
        first.close().await.unwrap();
        let cluster = reopen_with(&dir, |config| (config.lease, config.grace) = Default::default());
        let mut puts = Vec::new();
        for name in ["a", "b", "c"] {
            puts.push(begin_put::handle(&cluster, begin(name, 60)).await.unwrap().put);
        }
        cluster.meta.spoil_put(puts[0]);
        for node in 0..4 {
            // All are here, without the blocks of the visible object.
            let here = kintsu_wire::message::Register { incarnation: 2, ..registration(node, node % 2) };
            enlist(&cluster, here).await.unwrap();
        }
        tick(&cluster, &mut Ticks::default()).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().puts().unwrap(), puts[..1], "the others are undone");
        assert_eq!(cluster.queue().jobs(), 1, "repairs are due");
        assert_eq!(cluster.leases().expired(u64::MAX), puts[..1], "it is tried again");
    }

    #[tokio::test]
    async fn what_users_took_of_a_node_ends_with_it() {
        let (_dir, cluster) = cluster(4, 2).await;
        for at_ms in [1000, 2000] {
            let link = Some(LinkCounters { sent: at_ms << 20, received: 0, speed: None });
            let beat = Heartbeat {
                node: NodeId(1),
                incarnation: 1,
                usage: Default::default(),
                running: 0,
                failed: None,
                counters: Counters { at_ms, link, ..Counters::default() },
            };
            handlers::heartbeat::handle(&cluster, beat).await.unwrap();
        }
        let users = || {
            let known = cluster.bandwidth().known(&Default::default()).links;
            known.iter().filter_map(|link| link.foreground).sum::<u64>()
        };
        tick(&cluster, &mut Ticks::default()).await.unwrap();
        assert!(users() > 0);
        silence(&cluster, &[1]);
        tick(&cluster, &mut Ticks::default()).await.unwrap();
        assert_eq!(users(), 0);
    }

    #[tokio::test]
    async fn when_a_whole_rack_is_gone_repairs_of_nodes_wait_for_an_operator() {
        let dir = tempfile::tempdir().unwrap();
        // Nodes die only when this test says so, however long the puts take.
        let cluster = reopen_with(&dir, |config| {
            (config.grace, config.dead_after) = (Duration::ZERO, Duration::from_secs(600));
        });
        for node in 0..8 {
            enlist(&cluster, registration(node, node % 4)).await.unwrap();
        }
        for name in 0..20 {
            put(&cluster, &name.to_string(), 60).await;
        }
        silence(&cluster, &[0, 1, 4]);
        let mut ticks = Ticks::default();
        tick(&cluster, &mut ticks).await.unwrap();
        assert_eq!(cluster.members().overdue().len(), 3);
        assert_eq!(
            (cluster.auto().held(), cluster.queue().jobs()),
            (Some(Held::Rack(kintsu_dag::RackId(0))), 0)
        );
        let health = handlers::health::handle(&cluster, Default::default()).await.unwrap();
        assert!(health.causes.iter().any(|cause| cause.kind == CauseKind::HeldRepairs), "{health:?}");
        // The operator lets them begin.
        handlers::change_setting::handle(&cluster, ChangeSetting::RepairHold(None)).await.unwrap();
        tick(&cluster, &mut ticks).await.unwrap();
        assert_eq!((cluster.auto().held(), cluster.queue().jobs()), (None, 1));
        // What has begun is held too: it ends after the stripes that are under repair.
        let quarter = ChangeSetting::RepairHold(NonZeroU32::new(25));
        handlers::change_setting::handle(&cluster, quarter).await.unwrap();
        tick(&cluster, &mut ticks).await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), async {
            while cluster.queue().jobs() > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
        tick(&cluster, &mut ticks).await.unwrap();
        assert_eq!((cluster.queue().jobs(), cluster.auto().is_cancelled()), (0, false));
    }

    #[tokio::test]
    async fn a_put_in_older_metadata_is_not_undone_and_a_rebuild_leaves_its_blocks_alone() {
        let (dir, first) = cluster(4, 2).await;
        begin_put::handle(&first, begin("a", 60)).await.unwrap();
        first.close().await.unwrap();
        let cluster = reopen_with(&dir, |config| config.lease = Duration::ZERO);
        // An agent holds blocks of later stripes.
        let later =
            kintsu_wire::message::Register { incarnation: 2, next_stripe: 1 << 20, ..registration(0, 0) };
        enlist(&cluster, later).await.unwrap();
        tick(&cluster, &mut Ticks::default()).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().puts().unwrap().len(), 1);
        cluster.meta.begin_rebuild().unwrap();
        let totals = cluster.meta.snapshot().unwrap().totals().unwrap();
        assert_eq!((totals.puts, totals.garbage), (0, 0));
    }

    #[tokio::test]
    async fn a_put_that_was_committed_keeps_no_other_put() {
        let (dir, first) = cluster(4, 2).await;
        let done = put(&first, "a", 60).await;
        first.close().await.unwrap();
        let cluster = reopen_with(&dir, |config| config.lease = Duration::ZERO);
        let visible = cluster.meta.snapshot().unwrap().object(&done.name).unwrap().id;
        // Its caller vanished before its lease could end.
        cluster.leases().grant(visible, 0);
        begin_put::handle(&cluster, begin("b", 60)).await.unwrap();
        tick(&cluster, &mut Ticks::default()).await.unwrap();
        assert!(cluster.meta.snapshot().unwrap().puts().unwrap().is_empty());
        assert!(cluster.leases().expired(u64::MAX).is_empty());
    }
}
