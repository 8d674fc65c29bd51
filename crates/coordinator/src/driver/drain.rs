//! Empties a node. [`crate::engine::drain`] decides; this file lists blocks, has them moved, and tells it the results.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use kintsu_dag::NodeId;
use kintsu_wire::message::JobReport;

use super::Listener;
use super::guard::guarded;
use super::jobs::Job;
use super::mover::move_block;
use crate::cluster::Cluster;
use crate::engine::drain::{Drain, Passed, Used};
use crate::engine::jobs::Work;
use crate::engine::repair::Tally;
use crate::error::Result;
use crate::meta::Meta;

/// Rows of a page.
const PAGE: usize = 256;

/// Begins to move all blocks of a node elsewhere, or follows the job that does so already. The order is recorded: it
/// stays in force over restarts until it is revoked. `listener` hears of a disk that fails too.
pub async fn order(cluster: &Arc<Cluster>, node: NodeId, listener: Listener) {
    // The job first: a tick that sees the order begins no second one.
    let Some(job) = begin(cluster, node, Some(listener)) else { return };
    // Then the member: a stripe that is granted after the drain is recorded must avoid the node.
    let before = cluster.members().set_draining(node, true);
    let ordered = cluster.meta.off(move |meta| meta.change_node(node, |record| record.draining = true)).await;
    match ordered {
        Ok(_) => work(cluster, node, job),
        Err(error) => {
            cluster.members().set_draining(node, before);
            job.end(Err(error)).await;
        }
    }
}

/// Goes on with a drain that a restart interrupted, if blocks are left on the node or puts may bring some.
///
/// # Errors
/// The disk fails.
pub async fn go_on(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let placed = snapshot.tallies()?.get(&node).map_or(0, |tally| tally.0);
        Ok((placed, snapshot.puts_on(node)?))
    };
    let (placed, puts) = cluster.meta.off(look).await?;
    if placed + puts > 0
        && let Some(job) = begin(cluster, node, None)
    {
        tracing::info!("the drain of {node} goes on; left: {placed} blocks, {puts} puts");
        work(cluster, node, job);
    }
    Ok(())
}

/// The job, unless one empties the node already: then `listener` follows that one.
fn begin(cluster: &Arc<Cluster>, node: NodeId, listener: Option<Listener>) -> Option<Job> {
    Job::only(cluster, Work::Drain(node), format!("node {}", node.0), listener)
}

fn work(cluster: &Arc<Cluster>, node: NodeId, job: Job) {
    let worker = cluster.clone();
    cluster.spawn(async move {
        let end = guarded(drain_all(&worker, node, &job)).await;
        job.end(end).await;
    });
}

async fn drain_all(cluster: &Arc<Cluster>, node: NodeId, job: &Job) -> Result<JobReport> {
    let started_ms = cluster.now_ms();
    let (mut drain, used) = (Drain::default(), Arc::default());
    loop {
        // What is to come is counted before the blocks are listed: what is committed meanwhile is moved in this pass or
        // in the next one.
        let (puts, writes) = coming(cluster, node).await?;
        pass(cluster, node, &mut drain, &used, job).await?;
        let draining = cluster.members().node(node).is_some_and(|m| m.record.draining);
        match drain.passed(puts + writes, draining && !job.is_cancelled()) {
            Passed::Ended | Passed::Revoked => break,
            Passed::Wait => {
                let note = match puts {
                    0 => format!("waiting for blocks that are being written to {node}: {writes} left"),
                    puts => format!("waiting for puts to {node}: {puts} left"),
                };
                job.progress(drain.done(), drain.done(), &note);
                tokio::select! {
                    () = tokio::time::sleep(cluster.config.heartbeat / 2) => {}
                    () = job.cancelled() => {}
                }
            }
        }
    }
    if job.is_cancelled() {
        let left = cluster.meta.off(|meta| meta.snapshot()?.tallies()).await?;
        drain.cancelled(node, left.get(&node).map_or(0, |tally| tally.0));
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let (tally, failed) = drain.end();
    let mut report = tally.report("drain", None, &cluster.nodes().0, seconds);
    report.failed = failed;
    Ok(report)
}

/// How many puts may write to the node, and how many blocks others are writing there that are not at home there yet. Nobody
/// begins to write others there: placement leaves the node out, and [`Cluster::claim`] refuses it.
async fn coming(cluster: &Arc<Cluster>, node: NodeId) -> Result<(u64, u64)> {
    let written = cluster.written_to(node);
    let look = move |meta: &Meta| {
        let (snapshot, mut writes) = (meta.snapshot()?, 0);
        for id in written {
            writes += u64::from(!snapshot.is_placed(node, id)?);
        }
        Ok((snapshot.puts_on(node)?, writes))
    };
    cluster.meta.off(look).await
}

/// Moves the blocks that are on the node now, except those that failed before.
async fn pass(
    cluster: &Arc<Cluster>,
    node: NodeId,
    drain: &mut Drain,
    used: &Arc<Mutex<Used>>,
    job: &Job,
) -> Result<()> {
    let tallies = cluster.meta.off(|meta| meta.snapshot()?.tallies()).await?;
    drain.begin(tallies.get(&node).map_or(0, |t| t.0));
    let mut after = None;
    loop {
        let page = cluster.meta.off(move |meta| meta.snapshot()?.placed(node, after, PAGE)).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.stripe);
        let mut moves =
            futures::stream::iter(drain.due(page).into_iter().take_while(|_| !job.is_cancelled()))
                .map(|id| async move {
                    let mut tally = Tally::default();
                    job.unpaused().await;
                    (id, move_block(cluster, id, node, used, &mut tally).await, tally)
                })
                .buffer_unordered(cluster.config.parallel.max(1));
        while let Some((id, moved, cost)) = moves.next().await {
            let failed = moved.err().map(|error| error.to_string());
            let (done, total) = drain.moved(id, failed, &cost);
            job.progress(done, total, "moving blocks");
        }
        if job.is_cancelled() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{begin, cluster, landing, put, stripe, written};
    use crate::handlers::{abort_put, begin_put, command_node, commit_put};
    use kintsu_dag::{BlockId, BlockIndex};
    use kintsu_wire::message::{CommitPut, Encoding, JobEvent, NodeAction, NodeCommand, PutRef};
    use tokio::sync::mpsc::{Receiver, channel};
    use tonic::Status;

    type Events = Receiver<std::result::Result<JobEvent, Status>>;

    /// Orders a drain that waits for something; returns what it says then.
    async fn waits(cluster: &Arc<Cluster>, node: NodeId) -> (String, Events) {
        let (listener, mut events) = channel(64);
        let drain = NodeCommand { node, action: NodeAction::Drain, force: false, seconds: 0 };
        command_node::handle(cluster, drain, listener).await.unwrap();
        assert!(matches!(events.recv().await, Some(Ok(JobEvent::Began(_)))));
        let Some(Ok(JobEvent::Progress { note, .. })) = events.recv().await else {
            panic!("it did not wait")
        };
        (note, events)
    }

    async fn report(mut events: Events) -> JobReport {
        loop {
            match events.recv().await {
                Some(Ok(JobEvent::Ended(report))) => return report,
                Some(Ok(JobEvent::Progress { .. })) => {}
                other => panic!("expected a report, got {other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn puts_that_were_given_the_node_before_are_waited_for() {
        for commit in [true, false] {
            let (_dir, cluster) = cluster(5, 5).await;
            let ticket = begin_put::handle(&cluster, begin("a", 16)).await.unwrap();
            let (home, put) = (ticket.stripes[0].homes[0].unwrap(), ticket.put);
            let (note, events) = waits(&cluster, home).await;
            assert_eq!(note, format!("waiting for puts to {home}: 1 left"));
            if commit {
                let stripes = written(&ticket, Encoding::Online, 2);
                commit_put::handle(&cluster, CommitPut { put, stripes, checksum: None, ending: None })
                    .await
                    .unwrap();
            } else {
                abort_put::handle(&cluster, PutRef { put }).await.unwrap();
            }
            let report = report(events).await;
            // No agent runs that could move the block: the test only checks that the drain found it.
            assert_eq!(report.failed.len(), usize::from(commit), "{:?}", report.failed);
        }
    }

    #[tokio::test]
    async fn a_block_that_somebody_writes_to_the_node_when_its_drain_is_ordered_is_waited_for() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 16).await;
        let (id, record) = stripe(&cluster, "a");
        let to = (0..5).map(NodeId).find(|node| record.made().all(|(_, b)| b.node != *node)).unwrap();
        let place = |index| (to, BlockId { stripe: id, index: BlockIndex(index) });
        let writing = cluster.claim(vec![place(0)]).await.unwrap().unwrap();
        let (note, events) = waits(&cluster, to).await;
        assert_eq!(note, format!("waiting for blocks that are being written to {to}: 1 left"));
        assert!(cluster.claim(vec![place(1)]).await.unwrap().is_err(), "nobody begins to write there");
        cluster.meta.rehome(id, 1, &[landing(&record, BlockIndex(0), to)]).unwrap();
        drop(writing);
        // No agent runs that could move it.
        assert_eq!(report(events).await.failed.len(), 1);
        assert!(
            cluster.claim(vec![place(0)]).await.unwrap().is_ok(),
            "a commit changes the block where it is"
        );
    }
}
