//! Empties a node: each of its blocks is copied to another node as it is, without decoding; one that
//! cannot be read any more is left to repair. Puts that were given this node before write to it until they end:
//! they are waited for, and what they commit is moved too.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{PlanError, StripeView, copy, place_lost};
use kintsu_wire::message::{BlockRef, FaultKind, JobEvent};

use super::doubts::doubt;
use super::guard::guarded;
use super::run::{Job, run};
use super::ticks::{AUTOMATIC_SLICE, mend_now};
use super::{Listener, asks};
use crate::cluster::{Cluster, lock};
use crate::engine::repair::Tally;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Landing, LostBlock, Meta, Snapshot};

/// Rows of a page.
const PAGE: usize = 256;
/// Attempts for one block.
const ATTEMPTS: u32 = 4;

/// Moves all blocks of a node elsewhere and reports to `listener`.
pub async fn drain(cluster: Arc<Cluster>, node: NodeId, listener: Listener) {
    let end = guarded(drain_all(&cluster, node, &listener)).await;
    asks::tell(&listener, end).await;
}

/// One drain, as far as it has come.
#[derive(Default)]
struct Drain {
    tally: Tally,
    failed: BTreeMap<BlockId, String>,
    done: u64,
    used: Arc<Used>,
}

/// Blocks that a drain gave to each node.
type Used = Mutex<BTreeMap<NodeId, u64>>;

async fn drain_all(cluster: &Arc<Cluster>, node: NodeId, listener: &Listener) -> Result<JobEvent> {
    let started_ms = cluster.now_ms();
    let mut drain = Drain::default();
    loop {
        // Looked at before the blocks: what these puts commit meanwhile is moved below, or the next time.
        let puts = cluster.meta.off(move |meta| meta.snapshot()?.puts_on(node)).await?;
        drain.pass(cluster, node, listener).await?;
        if puts == 0 {
            break;
        }
        if !cluster.members().node(node).is_some_and(|m| m.record.draining) {
            return Err(conflict(node, "a node that is not drained any more".into()));
        }
        let note = format!("waiting for {puts} puts that write to {node}");
        // A slow listener misses progress, never the end.
        let _ = listener.try_send(Ok(JobEvent::Progress { done: drain.done, total: drain.done, note }));
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let mut report = drain.tally.report("drain", None, &cluster.nodes().0, seconds);
    report.failed = drain.failed.into_iter().map(|(id, why)| format!("{id}: {why}")).collect();
    Ok(JobEvent::Ended(report))
}

impl Drain {
    /// Moves what is placed on the node now, but for what failed before.
    async fn pass(&mut self, cluster: &Arc<Cluster>, node: NodeId, listener: &Listener) -> Result<()> {
        let tallies = cluster.meta.off(|meta| meta.snapshot()?.tallies()).await?;
        let total = self.done + tallies.get(&node).map_or(0, |t| t.0);
        let mut after = None;
        loop {
            let page = cluster.meta.off(move |meta| meta.snapshot()?.placed(node, after, PAGE)).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.stripe);
            let (used, failed) = (&self.used, &self.failed);
            let due: Vec<BlockId> = page.into_iter().filter(|id| !failed.contains_key(id)).collect();
            let mut moves = futures::stream::iter(due)
                .map(|id| async move {
                    let mut tally = Tally::default();
                    (id, move_block(cluster, id, node, used, &mut tally).await, tally)
                })
                .buffer_unordered(cluster.config.parallel.max(1));
            let mut failures = Vec::new();
            while let Some((id, moved, cost)) = moves.next().await {
                self.tally.add(&cost);
                self.done += 1;
                if let Err(error) = moved {
                    failures.push((id, error.to_string()));
                }
                let (done, note) = (self.done, "moving blocks".into());
                // A slow listener misses progress, never the end.
                let _ = listener.try_send(Ok(JobEvent::Progress { done, total, note }));
            }
            drop(moves);
            self.failed.extend(failures);
        }
    }
}

async fn move_block(
    cluster: &Arc<Cluster>,
    id: BlockId,
    from: NodeId,
    used: &Arc<Used>,
    tally: &mut Tally,
) -> Result<()> {
    let slot = cluster.slots.clone().acquire_owned().await;
    let _slot = slot.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let mut barred: Vec<NodeId> = Vec::new();
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        let Some((stripe, mut label)) = cluster.load(id.stripe).await? else { return Ok(()) };
        let Some(block) = stripe.record.block(id.index).filter(|b| b.node == from).copied() else {
            return Ok(());
        };
        if block.lost {
            mend_now(cluster, vec![id], None);
            return Err(conflict(from, "a block that is lost; it is being repaired".into()));
        }
        let view = stripe.view(|_, block| block.digest.is_some());
        let (worker, bars, given) = (cluster.clone(), barred.clone(), used.clone());
        let planning = move |meta: &Meta| {
            let to = target(&worker, &meta.snapshot()?, &view, id, &bars, &given)?;
            let plan = copy(&view, id.index, to)?;
            Ok((view, to, plan))
        };
        let (view, to, plan) = cluster.meta.off(planning).await?;
        let expect = stripe.expect();
        let generation = stripe.record.generation;
        // Held until the block has its home, or what was written is recorded as garbage.
        let Ok(writing) = cluster.claim(vec![(to, id)]).await? else {
            last = format!("{to} still deletes an earlier file of {id}");
            tokio::time::sleep(cluster.config.heartbeat / 2).await;
            continue;
        };
        if let Some(home) = label.homes.get_mut(usize::from(id.index.0)) {
            *home = Some(to);
        }
        let label = label.pack();
        let job = Job {
            plan: &plan,
            view: &view,
            generation,
            start: 0,
            slice_bytes: AUTOMATIC_SLICE,
            expect: &expect,
            label: &label,
            resume_key: 0,
        };
        let (programs, conducted) = run(cluster, job).await?;
        tally.attempt(&programs, &conducted.outcomes);
        let mut written = conducted.outcomes.iter().filter(|o| o.node == to).flat_map(|o| &o.written);
        let held =
            written.find(|h| h.id == id && h.generation == generation && Some(h.digest) == block.digest);
        if let Some(digest) = held.map(|h| h.digest) {
            let landing = Landing { index: id.index, from, to, digest };
            let (moved, _writing) = cluster
                .meta
                .off(move |meta| {
                    let moved = meta.rehome_if(id.stripe, generation, &[landing], || writing.check())?;
                    Ok((moved, writing))
                })
                .await?;
            tally.blocks += moved.len() as u64;
            cluster.sweep.notify_one();
            return Ok(());
        }
        let rubble = (to, BlockRef { id, generation });
        cluster.meta.off(move |meta| meta.trash(&[rubble])).await?;
        last = conducted.fault.as_ref().map_or("no durable block".into(), ToString::to_string);
        match conducted.fault {
            Some(fault) if fault.node == from && fault.block == Some(id) => {
                if matches!(
                    fault.kind,
                    FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale | FaultKind::Io
                ) {
                    let lost = LostBlock { id, node: from, why: fault.kind };
                    doubt(cluster, lost).await?;
                }
            }
            Some(fault) if fault.node != from => barred.push(fault.node),
            _ => tokio::time::sleep(cluster.config.heartbeat / 2).await,
        }
    }
    Err(conflict(from, format!("{ATTEMPTS} failed attempts: {last}")))
}

/// A node for the block: the one least used by this drain. Blocking.
fn target(
    cluster: &Cluster,
    snapshot: &Snapshot,
    view: &StripeView,
    id: BlockId,
    barred: &[NodeId],
    used: &Used,
) -> Result<NodeId> {
    let sweeping = cluster.sweeping(snapshot, id.stripe)?;
    let (mut topology, _) = cluster.nodes();
    for (node, known) in &mut topology.nodes {
        known.usable &= !sweeping.contains(node) && !barred.contains(node);
    }
    let mut used = lock(used);
    let chosen = place_lost(view, &topology, &[id.index], &mut |node| used.get(&node).copied().unwrap_or(0))?;
    let Some(&to) = chosen.first() else {
        let (expected, got) = ("one more usable node".into(), "none".into());
        return Err(PlanError::Placement { expected, got }.into());
    };
    *used.entry(to).or_default() += 1;
    Ok(to)
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
    use super::*;
    use crate::handlers::tests::{begin, cluster, written};
    use crate::handlers::{abort_put, begin_put, command_node, commit_put};
    use kintsu_wire::message::{CommitPut, Encoding, NodeAction, NodeCommand, PutRef};
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
            let Some(Ok(JobEvent::Progress { note, .. })) = events.recv().await else {
                panic!("it did not wait")
            };
            assert_eq!(note, format!("waiting for 1 puts that write to {home}"));
            if commit {
                let stripes = written(&ticket, Encoding::Online, 2);
                commit_put::handle(&cluster, CommitPut { put, stripes }).await.unwrap();
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
            // No agent is there to move it: what counts is that the block was found.
            assert_eq!(report.failed.len(), usize::from(commit), "{:?}", report.failed);
        }
    }
}
