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
use crate::error::Result;
use crate::members::Change;
use crate::repair::Order;

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
    let late = cluster.leases().expired(now_ms);
    for put in late {
        tracing::info!("put {put} was not renewed: it is undone");
        cluster.meta.off(move |meta| meta.abort_put(put)).await?;
        cluster.sweep.notify_one();
    }
    if cluster.gate().tick(now_ms) {
        tracing::warn!("not all blocks were reported in time; what is missing counts as lost from now on");
    }
    super::wipe::go_on(cluster);
    if cluster.gate().may_repair() { start_due_repairs(cluster).await } else { Ok(()) }
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
    if listener.is_none() && !cluster.gate().may_repair() {
        return;
    }
    let order = Order { slice_bytes: AUTOMATIC_SLICE, in_place: true, ..Order::default() };
    ask(cluster, Source::Blocks(blocks), order, listener);
}
