//! Empties a node. [`crate::engine::drain`] decides; this file reads, plans, copies and commits, and tells it
//! the results.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{StripeView, copy};
use kintsu_wire::message::{BlockRef, JobReport};

use super::Listener;
use super::doubts::doubt;
use super::guard::guarded;
use super::jobs::{self, Job};
use super::run::{ReadyPlan, run};
use super::ticks::{AUTOMATIC_SLICE, repair_now};
use super::volumes::carry;
use crate::cluster::{Cluster, lock};
use crate::engine::drain::{Drain, Found, Move, Passed, Ran, Used};
use crate::engine::jobs::Work;
use crate::engine::repair::Tally;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Meta, Snapshot};

/// Rows of a page.
const PAGE: usize = 256;

/// Begins to move all blocks of a node elsewhere, or follows the job that does so already. The order is recorded: it
/// stays in force over restarts until it is revoked.
///
/// # Errors
/// The disk fails.
pub async fn order(cluster: &Arc<Cluster>, node: NodeId, listener: Listener) -> Result<()> {
    if let Some(id) = cluster.jobs.look(|jobs| jobs.drain_of(node)) {
        return jobs::follow(cluster, id, listener);
    }
    // Set first: a stripe that is granted after the drain is recorded must avoid the node.
    let before = cluster.members().set_draining(node, true);
    let ordered = cluster.meta.off(move |meta| meta.change_node(node, |record| record.draining = true)).await;
    if let Err(error) = ordered {
        cluster.members().set_draining(node, before);
        return Err(error);
    }
    begin(cluster, node, Some(listener));
    Ok(())
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
    let runs = cluster.jobs.look(|jobs| jobs.drain_of(node)).is_some();
    if placed + puts > 0 && !runs {
        tracing::info!("the drain of {node} goes on; left: {placed} blocks, {puts} puts");
        begin(cluster, node, None);
    }
    Ok(())
}

fn begin(cluster: &Arc<Cluster>, node: NodeId, listener: Option<Listener>) {
    let job = Job::begin(cluster, Work::Drain(node), format!("node {}", node.0), listener);
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
        // The puts are counted before the blocks are listed: what these puts commit meanwhile is moved in
        // this pass or in the next one.
        let puts = cluster.meta.off(move |meta| meta.snapshot()?.puts_on(node)).await?;
        pass(cluster, node, &mut drain, &used, job).await?;
        let draining = cluster.members().node(node).is_some_and(|m| m.record.draining);
        match drain.passed(puts, draining && !job.is_cancelled()) {
            Passed::Ended | Passed::Revoked => break,
            Passed::Wait => {
                let (done, note) = (drain.done(), format!("waiting for puts to {node}: {puts} left"));
                job.progress(done, done, &note);
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

async fn move_block(
    cluster: &Arc<Cluster>,
    id: BlockId,
    from: NodeId,
    used: &Arc<Mutex<Used>>,
    tally: &mut Tally,
) -> Result<()> {
    let slot = cluster.slots.clone().acquire_owned().await;
    let _slot = slot.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let mut block = Move::new(id, from);
    while block.begins() {
        let Some((stripe, mut label)) = cluster.load(id.stripe).await? else { return Ok(()) };
        let view = match block.read(Some(&stripe)) {
            Found::Settled => return Ok(()),
            Found::Lost => {
                repair_now(cluster, vec![id], None);
                return Err(conflict(from, "a block that is lost; it is being repaired".into()));
            }
            Found::Copy(view) => view,
        };
        let (worker, machine, given) = (cluster.clone(), block.clone(), used.clone());
        let planning = move |meta: &Meta| {
            let to = target(&worker, &meta.snapshot()?, &machine, &view, id, &given)?;
            let plan = copy(&view, id.index, to)?;
            Ok((view, to, plan))
        };
        let (view, to, plan) = cluster.meta.off(planning).await?;
        // The claim is held until the block has its new home, or what was written is recorded as garbage.
        let Ok(writing) = cluster.claim(vec![(to, id)]).await? else {
            block.refused(to);
            tokio::time::sleep(cluster.config.heartbeat / 2).await;
            continue;
        };
        if let Some(home) = label.homes.get_mut(usize::from(id.index.0)) {
            *home = Some(to);
        }
        let (label, expect, generation) = (label.pack(), stripe.expect(), stripe.record.generation);
        let generations = stripe.generations();
        let job = ReadyPlan {
            plan: &plan,
            view: &view,
            generations: &generations,
            start: 0,
            slice_bytes: AUTOMATIC_SLICE,
            expect: &expect,
            label: &label,
            resume_key: 0,
        };
        let (programs, conducted) = run(cluster, job).await?;
        tally.attempt(&programs, &conducted.outcomes);
        match block.ran(&stripe, to, &conducted.outcomes, conducted.fault.as_ref()) {
            Ran::Landed(landing) => {
                let changed = carry(cluster, id.stripe, &[landing]).await?;
                let carried = changed.as_ref().map(|changed| changed.relogged.clone());
                let land = move |meta: &Meta| {
                    let (landings, check) = ([landing], || writing.check());
                    let moved =
                        meta.rehome_logged(id.stripe, generation, &landings, carried.as_ref(), check)?;
                    Ok((moved, writing))
                };
                let (moved, _writing) = cluster.meta.off(land).await?;
                tally.blocks += moved.len() as u64;
                cluster.sweep.notify_one();
                return Ok(());
            }
            Ran::Again { doubt: bad, wait } => {
                let rubble = (to, BlockRef { id, generation: stripe.record.generation_of(id.index) });
                cluster.meta.off(move |meta| meta.trash(&[rubble])).await?;
                if let Some(bad) = bad {
                    doubt(cluster, bad).await?;
                }
                if wait {
                    tokio::time::sleep(cluster.config.heartbeat / 2).await;
                }
            }
        }
    }
    Err(conflict(from, block.gave_up()))
}

/// Chooses a node for the block. Blocking.
fn target(
    cluster: &Cluster,
    snapshot: &Snapshot,
    block: &Move,
    view: &StripeView,
    id: BlockId,
    used: &Mutex<Used>,
) -> Result<NodeId> {
    let sweeping = cluster.sweeping(snapshot, id.stripe)?;
    let (topology, _) = cluster.nodes();
    Ok(block.target(view, topology, &sweeping, &mut lock(used))?)
}

fn conflict(node: NodeId, got: String) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: format!("moving a block from {node}"),
        expected: "a block that can be read and a node that takes it".into(),
        got,
    }
}

#[cfg(test)]
mod tests {
    use crate::handlers::tests::{begin, cluster, written};
    use crate::handlers::{abort_put, begin_put, command_node, commit_put};
    use kintsu_wire::message::{CommitPut, Encoding, JobEvent, NodeAction, NodeCommand, PutRef};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn puts_that_were_given_the_node_before_are_waited_for() {
        for commit in [true, false] {
            let (_dir, cluster) = cluster(5, 5).await;
            let ticket = begin_put::handle(&cluster, begin("a", 16)).await.unwrap();
            let (home, put) = (ticket.stripes[0].homes[0].unwrap(), ticket.put);
            let (listener, mut events) = mpsc::channel(64);
            let drain = NodeCommand { node: home, action: NodeAction::Drain, force: false };
            command_node::handle(&cluster, drain, listener).await.unwrap();
            assert!(matches!(events.recv().await, Some(Ok(JobEvent::Began(_)))));
            let Some(Ok(JobEvent::Progress { note, .. })) = events.recv().await else {
                panic!("it did not wait")
            };
            assert_eq!(note, format!("waiting for puts to {home}: 1 left"));
            if commit {
                let stripes = written(&ticket, Encoding::Online, 2);
                commit_put::handle(&cluster, CommitPut { put, stripes, checksum: None }).await.unwrap();
            } else {
                abort_put::handle(&cluster, PutRef { put }).await.unwrap();
            }
            let report = loop {
                match events.recv().await {
                    Some(Ok(JobEvent::Ended(report))) => break report,
                    Some(Ok(JobEvent::Progress { .. })) => {}
                    other => panic!("expected a report, got {other:?}"),
                }
            };
            // No agent runs that could move the block: the test only checks that the drain found it.
            assert_eq!(report.failed.len(), usize::from(commit), "{:?}", report.failed);
        }
    }
}
