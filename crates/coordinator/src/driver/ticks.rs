//! Time passes: silent nodes die, leases run out, repairs that are due start.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;

use super::doubts::reverify_node;
use super::guard::guarded;
use super::pages::Source;
use super::{ask, asks};
use crate::cluster::Cluster;
use crate::engine::members::Change;
use crate::engine::repair::Order;
use crate::error::{CoordinatorError, Result};

/// Slice of repairs that nobody gave one for: the one that suits the plan.
pub const AUTOMATIC_SLICE: u32 = 0;

/// Runs until the coordinator ends.
pub async fn ticks(cluster: Arc<Cluster>) {
    let period = (cluster.config.heartbeat / 2).max(Duration::from_millis(20));
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut starts = HashMap::new();
    loop {
        interval.tick().await;
        look_again(&cluster, &mut starts);
        if let Err(error) = guarded(tick(&cluster)).await {
            tracing::error!("{error}");
        }
    }
}

async fn tick(cluster: &Arc<Cluster>) -> Result<()> {
    let now_ms = cluster.now_ms();
    let changes = cluster.members().tick(now_ms);
    for change in changes {
        match change {
            Change::Down(node) => {
                tracing::warn!("{node} is dead");
                cluster.auto().nodes_changed();
            }
            Change::Overdue(node) => tracing::warn!("{node} stays away: its blocks will be repaired"),
            Change::Up(_) => {}
        }
    }
    // In older metadata such a put may be one that was committed since.
    if cluster.gate().is_trusted() {
        undo_late_puts(cluster, now_ms).await;
    }
    if cluster.gate().tick(now_ms) {
        tracing::warn!("not all blocks were reported in time; what is missing counts as lost from now on");
    }
    if !cluster.gate().is_open() {
        return Ok(());
    }
    // Not before: older metadata may order a wipe that was completed long ago.
    super::wipe::go_on(cluster);
    start_due_repairs(cluster).await
}

/// Undoes the puts whose leases have run out. One that cannot be undone now keeps no other, and is tried again.
async fn undo_late_puts(cluster: &Arc<Cluster>, now_ms: u64) {
    let late = cluster.leases().expired(now_ms);
    for put in late {
        match cluster.meta.off(move |meta| meta.abort_put(put)).await {
            Ok(true) => tracing::info!("put {put} was not renewed: it is undone"),
            // It ended before: it was committed or given up.
            Ok(false) | Err(CoordinatorError::Conflict { .. }) => {}
            Err(error) => {
                tracing::error!("put {put} was not renewed, but cannot be undone: {error}");
                cluster.leases().put_back(put, now_ms);
            }
        }
        cluster.sweep.notify_one();
    }
}

/// Has nodes that have started since the last look read again what only reading can clear.
fn look_again(cluster: &Arc<Cluster>, starts: &mut HashMap<NodeId, u64>) {
    let living: Vec<(NodeId, u64)> = {
        let members = cluster.members();
        members.iter().filter(|(_, m)| m.holds()).map(|(id, m)| (id, m.record.incarnation)).collect()
    };
    for (node, start) in living {
        if starts.insert(node, start) != Some(start) {
            let worker = cluster.clone();
            cluster.spawn(async move {
                if let Err(error) = guarded(reverify_node(&worker, node)).await {
                    tracing::warn!("lost blocks of {node} were not read again: {error}");
                }
            });
        }
    }
}

async fn start_due_repairs(cluster: &Arc<Cluster>) -> Result<()> {
    let overdue: Vec<_> = cluster.members().overdue().iter().copied().collect();
    let nodes = overdue.clone();
    let (lost, placed) = cluster
        .meta
        .off(move |meta| {
            let snapshot = meta.snapshot()?;
            let tallies = snapshot.tallies()?;
            let placed = nodes.iter().filter_map(|n| tallies.get(n)).map(|t| t.0).sum();
            Ok((snapshot.totals()?.lost, placed))
        })
        .await?;
    if cluster.auto().tick(cluster.now_ms(), lost, placed) {
        let order = Order { slice_bytes: AUTOMATIC_SLICE, ..Order::default() };
        asks::ask(cluster, Source::Overdue(overdue), order, None);
    }
    Ok(())
}

/// Has these blocks mended at once, where they are if their nodes live. Where nobody listens, and repairs may not start
/// by themselves yet, they wait as lost blocks do.
pub fn mend_now(cluster: &Arc<Cluster>, blocks: Vec<kintsu_dag::BlockId>, listener: Option<super::Listener>) {
    if listener.is_none() && !cluster.gate().is_open() {
        return;
    }
    let order = Order { slice_bytes: AUTOMATIC_SLICE, in_place: true, ..Order::default() };
    ask(cluster, Source::Blocks(blocks), order, listener);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::begin_put;
    use crate::handlers::tests::{begin, cluster, enlist, put, registration, reopen_with};

    #[tokio::test]
    async fn a_put_that_cannot_be_undone_keeps_no_other_put_and_no_repair() {
        let (dir, first) = cluster(4, 2).await;
        put(&first, "visible", 60).await;
        drop(first);
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
        tick(&cluster).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().puts().unwrap(), puts[..1], "the others are undone");
        assert_eq!(cluster.queue().asks(), 1, "repairs are due");
        assert_eq!(cluster.leases().expired(u64::MAX), puts[..1], "it is tried again");
    }

    #[tokio::test]
    async fn a_put_in_older_metadata_is_not_undone_and_a_rebuild_leaves_its_blocks_alone() {
        let (dir, first) = cluster(4, 2).await;
        begin_put::handle(&first, begin("a", 60)).await.unwrap();
        drop(first);
        let cluster = reopen_with(&dir, |config| config.lease = Duration::ZERO);
        // An agent holds blocks of later stripes.
        let later =
            kintsu_wire::message::Register { incarnation: 2, next_stripe: 1000, ..registration(0, 0) };
        enlist(&cluster, later).await.unwrap();
        tick(&cluster).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().puts().unwrap().len(), 1);
        cluster.meta.begin_rebuild().unwrap();
        let totals = cluster.meta.snapshot().unwrap().totals().unwrap();
        assert_eq!((totals.puts, totals.garbage), (0, 0));
    }

    #[tokio::test]
    async fn a_put_that_was_committed_keeps_no_other_put() {
        let (dir, first) = cluster(4, 2).await;
        let done = put(&first, "a", 60).await;
        drop(first);
        let cluster = reopen_with(&dir, |config| config.lease = Duration::ZERO);
        let visible = cluster.meta.snapshot().unwrap().object(&done.name).unwrap().id;
        // Its caller vanished before its lease could end.
        cluster.leases().grant(visible, 0);
        begin_put::handle(&cluster, begin("b", 60)).await.unwrap();
        tick(&cluster).await.unwrap();
        assert!(cluster.meta.snapshot().unwrap().puts().unwrap().is_empty());
        assert!(cluster.leases().expired(u64::MAX).is_empty());
    }
}
