//! Moves blocks from fuller to emptier nodes, as [`crate::engine::rebalance`] decides, by the means of a drain. The order is
//! recorded until the work has ended or is cancelled, so that it goes on after a restart.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use kintsu_dag::NodeId;
use kintsu_wire::message::JobReport;

use super::Listener;
use super::guard::guarded;
use super::jobs::Job;
use super::mover::move_block;
use crate::cluster::{Cluster, lock};
use crate::engine::jobs::Work;
use crate::engine::rebalance::{Ledger, may_begin};
use crate::engine::repair::Tally;
use crate::error::Result;

/// Rows of a page.
const PAGE: usize = 256;
/// Most failures that are named.
const NAMED: usize = 100;

/// Begins to rebalance, or follows the job that does so already.
///
/// # Errors
/// The disk fails.
pub async fn order(cluster: &Arc<Cluster>, listener: Listener) -> Result<()> {
    cluster.meta.off(|meta| meta.order_rebalance(true)).await?;
    work(cluster, Some(listener));
    Ok(())
}

/// Goes on with what a restart interrupted.
///
/// # Errors
/// The disk fails.
pub async fn go_on(cluster: &Arc<Cluster>) -> Result<()> {
    if cluster.meta.off(|meta| meta.snapshot()?.rebalance_ordered()).await? {
        tracing::info!("the rebalance goes on");
        work(cluster, None);
    }
    Ok(())
}

fn work(cluster: &Arc<Cluster>, listener: Option<Listener>) {
    let Some(job) = Job::only(cluster, Work::Rebalance, "all nodes".into(), listener) else { return };
    let worker = cluster.clone();
    cluster.spawn(async move {
        let end = guarded(rebalance(&worker, &job)).await;
        let end = match worker.meta.off(|meta| meta.order_rebalance(false)).await {
            Ok(()) => end,
            Err(error) => end.and(Err(error)),
        };
        job.end(end).await;
    });
}

async fn rebalance(cluster: &Arc<Cluster>, job: &Job) -> Result<JobReport> {
    let begins = || may_begin(&cluster.members(), &cluster.gate(), cluster.now_ms());
    while !begins() && !job.is_cancelled() {
        job.progress(0, 0, "waiting until all nodes have told how full they are");
        tokio::select! {
            () = tokio::time::sleep(cluster.config.heartbeat / 2) => {}
            () = job.cancelled() => {}
        }
    }
    let started_ms = cluster.now_ms();
    let ledger = Ledger::new(&cluster.nodes().0);
    let (givers, total) = (ledger.givers(), ledger.left());
    let ledger = Arc::new(Mutex::new(ledger));
    let (mut tally, mut failed) = (Tally::default(), Vec::new());
    for node in givers {
        give(cluster, node, &ledger, job, total, &mut tally, &mut failed).await?;
    }
    if job.is_cancelled() {
        let left = lock(&ledger).left();
        failed.insert(0, format!("cancelled: {left} bytes would have moved too"));
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let mut report = tally.report("rebalance", None, &cluster.nodes().0, seconds);
    report.failed = failed;
    Ok(report)
}

/// Moves blocks of a node away until it is no fuller than the others.
async fn give(
    cluster: &Arc<Cluster>,
    node: NodeId,
    ledger: &Arc<Mutex<Ledger>>,
    job: &Job,
    total: u64,
    tally: &mut Tally,
    failed: &mut Vec<String>,
) -> Result<()> {
    let mut after = None;
    loop {
        let page = cluster.meta.off(move |meta| meta.snapshot()?.placed(node, after, PAGE)).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.stripe);
        let goes_on = || !job.is_cancelled() && lock(ledger).gives(node, 0);
        let mut moves = futures::stream::iter(page.into_iter().take_while(|_| goes_on()))
            .map(|id| async move {
                let mut tally = Tally::default();
                job.unpaused().await;
                (id, move_block(cluster, id, node, ledger, &mut tally).await, tally)
            })
            .buffer_unordered(cluster.config.parallel.max(1));
        while let Some((id, moved, cost)) = moves.next().await {
            tally.add(&cost);
            if let Err(error) = moved
                && failed.len() < NAMED
            {
                failed.push(format!("{id}: {error}"));
            }
            let left = lock(ledger).left();
            job.progress(total.saturating_sub(left), total, &format!("moving blocks of node {}", node.0));
        }
        if !goes_on() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Live;
    use kintsu_wire::message::{JobEvent, JobInfo};

    /// Four nodes with the 48 blocks of these objects, and a fifth one that has none.
    async fn uneven() -> (Live, Vec<String>) {
        let mut live = Live::start(4).await;
        let names: Vec<String> = (0..12).map(|name| name.to_string()).collect();
        for name in &names {
            live.put(name).await;
        }
        live.add(4).await;
        assert_eq!(placed(&live.cluster, 4), 0);
        live.until("all nodes have told what they hold", |cluster| {
            let tells = |node: u32| {
                let usage = cluster.members().node(NodeId(node)).unwrap().usage;
                usage.capacity_bytes > 0 && usage.blocks == placed(cluster, node)
            };
            (0..5).all(tells)
        })
        .await;
        (live, names)
    }

    /// The blocks of a node by the metadata.
    fn placed(cluster: &Cluster, node: u32) -> u64 {
        cluster.meta.snapshot().unwrap().tallies().unwrap().get(&NodeId(node)).map_or(0, |t| t.0)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_came_later_takes_its_part_and_objects_stay_readable() {
        let (live, names) = uneven().await;
        let (listener, mut events) = tokio::sync::mpsc::channel(1024);
        order(&live.cluster, listener).await.unwrap();
        let report = loop {
            if let JobEvent::Ended(report) = events.recv().await.unwrap().unwrap() {
                break report;
            }
        };
        assert_eq!(report.failed, Vec::<String>::new());
        // 48 blocks on five nodes are 9.6 each.
        assert!((8..=10).contains(&placed(&live.cluster, 4)), "{report:?}");
        assert_eq!(report.blocks, placed(&live.cluster, 4));
        for name in &names {
            live.check(name).await;
        }
        assert!(!live.cluster.meta.snapshot().unwrap().rebalance_ordered().unwrap());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_ordered_goes_on_after_a_restart() {
        let (live, _) = uneven().await;
        live.cluster.meta.order_rebalance(true).unwrap();
        let (live, old) = live.reopen().await;
        go_on(&live.cluster).await.unwrap();
        live.until("the rebalance waits for the nodes", |cluster| {
            let waits = |job: JobInfo| job.note.starts_with("waiting until all nodes");
            cluster.jobs.look(|jobs| {
                jobs.running(&Work::Rebalance).and_then(|id| jobs.info(id, 0)).is_some_and(waits)
            })
        })
        .await;
        let told: Vec<_> = old
            .members()
            .iter()
            .map(|(node, member)| (node, member.record.incarnation, member.usage))
            .collect();
        for (node, incarnation, usage) in told {
            // The first heartbeat after a start tells how full the node is, and is answered by the demand to register.
            let now_ms = live.cluster.now_ms();
            live.cluster.members().seen(node, incarnation, usage, None, now_ms).unwrap_err();
        }
        live.until("the rebalance has ended", |cluster| {
            !cluster.meta.snapshot().unwrap().rebalance_ordered().unwrap()
        })
        .await;
        assert!((8..=10).contains(&placed(&live.cluster, 4)), "{} blocks", placed(&live.cluster, 4));
    }
}
