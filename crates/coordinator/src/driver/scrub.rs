//! Has agents verify every block they hold, compares that with the metadata, and has mended what is
//! bad or missing.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{
    BadBlock, BlockRef, FaultKind, HeldBlock, JobEvent, JobReport, Nothing, ScrubEvent,
};
use tokio::sync::mpsc;

use super::doubts::differs;
use super::guard::guarded;
use super::quarantine::Unknown;
use super::ticks::mend_now;
use super::{Listener, asks, quarantine};
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::{LostBlock, Meta, Proof};

/// Events compared with the metadata at once.
const BATCH: usize = 256;
/// Rows of a page.
const PAGE: usize = 8192;

/// What one node's scrub found.
#[derive(Default)]
struct Findings {
    checked: u64,
    bytes: u64,
    bad: Vec<BadBlock>,
    unknown: Vec<BlockRef>,
}

/// How blocks that were read whole differ from what is recorded.
#[derive(Default)]
struct Judged {
    bad: Vec<BadBlock>,
    unknown: Vec<BlockRef>,
    /// Flagged lost, but as recorded.
    sound: Vec<(BlockId, NodeId)>,
}

/// Verifies the blocks of these nodes and reports to `listener`.
pub async fn scrub(cluster: Arc<Cluster>, nodes: Vec<NodeId>, listener: Listener) {
    let end = guarded(scrub_all(&cluster, nodes, &listener)).await;
    asks::tell(&listener, end).await;
}

async fn scrub_all(cluster: &Arc<Cluster>, nodes: Vec<NodeId>, listener: &Listener) -> Result<JobEvent> {
    let started_ms = cluster.now_ms();
    let scrubs = nodes.into_iter().map(|node| async move {
        let mut found = Findings::default();
        let ended = scrub_node(cluster, node, &mut found, listener).await;
        (node, ended, found)
    });
    let mut report = JobReport { kind: "scrub".into(), ..JobReport::default() };
    let mut lost = Vec::new();
    for (node, ended, found) in futures::future::join_all(scrubs).await {
        report.blocks_checked += found.checked;
        report.bytes_read += found.bytes;
        lost.extend(found.bad.iter().map(|b| LostBlock { id: b.id, node: b.node, why: b.kind }));
        if let Err(error) = discard(cluster, node, found.unknown, found.checked).await {
            report.failed.push(format!("{node}: blocks that nobody knows stay where they are: {error}"));
        }
        report.bad.extend(found.bad);
        if let Err(error) = ended {
            report.failed.push(format!("{node}: {error}"));
        }
    }
    let marked = cluster.meta.off(move |meta| meta.mark_lost(&lost)).await?;
    // What is gone or moved by now was no loss.
    report.bad.retain(|bad| marked.contains(&bad.id));
    mend(cluster, marked, &mut report, listener).await;
    report.seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    Ok(JobEvent::Ended(report))
}

async fn scrub_node(
    cluster: &Arc<Cluster>,
    node: NodeId,
    found: &mut Findings,
    listener: &Listener,
) -> Result<()> {
    let expected = cluster.meta.off(move |meta| placed(meta, node)).await?;
    let unavailable = |s: tonic::Status| CoordinatorError::Unavailable { node, reason: s.message().into() };
    let mut events = cluster.agent(node)?.scrub(Nothing {}).await.map_err(unavailable)?.into_inner();
    let mut seen: HashSet<BlockId> = HashSet::new();
    let mut batch: Vec<HeldBlock> = Vec::new();
    while let Some(event) = events.message().await.map_err(unavailable)? {
        let ScrubEvent { total, checked, bytes, result } = event;
        (found.checked, found.bytes) = (checked, bytes);
        match result {
            Ok(held) => {
                seen.insert(held.id);
                batch.push(held);
            }
            Err(fault) => {
                if let Some(id) = fault.block {
                    seen.insert(id);
                    found.bad.push(BadBlock { id, node, kind: fault.kind, detail: fault.detail });
                }
            }
        }
        if batch.len() >= BATCH {
            compare(cluster, node, std::mem::take(&mut batch), found).await?;
            let note = format!("verifying {node}");
            // A slow listener misses progress, never the end.
            let _ = listener.try_send(Ok(JobEvent::Progress { done: checked, total, note }));
        }
    }
    compare(cluster, node, batch, found).await?;
    let missing = expected.into_iter().filter(|id| !seen.contains(id));
    found.bad.extend(missing.map(|id| {
        let detail = "expected a block, got no file of it".into();
        BadBlock { id, node, kind: FaultKind::Missing, detail }
    }));
    Ok(())
}

fn placed(meta: &Meta, node: NodeId) -> Result<Vec<BlockId>> {
    let snapshot = meta.snapshot()?;
    let mut out: Vec<BlockId> = Vec::new();
    loop {
        let page = snapshot.placed(node, out.last().map(|b| b.stripe), PAGE)?;
        if page.is_empty() {
            return Ok(out);
        }
        out.extend(page);
    }
}

async fn compare(
    cluster: &Arc<Cluster>,
    node: NodeId,
    held: Vec<HeldBlock>,
    found: &mut Findings,
) -> Result<()> {
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let judged = judge(&worker, meta, node, held)?;
        let cleared = meta.mark_found(&judged.sound, Proof::Read)?;
        Ok((judged, cleared))
    };
    let (judged, cleared) = cluster.meta.off(look).await?;
    if !cleared.is_empty() {
        tracing::info!("{} blocks on {node} that counted as lost are sound", cleared.len());
    }
    found.bad.extend(judged.bad);
    found.unknown.extend(judged.unknown);
    Ok(())
}

fn judge(cluster: &Cluster, meta: &Meta, node: NodeId, held: Vec<HeldBlock>) -> Result<Judged> {
    let snapshot = meta.snapshot()?;
    let mut judged = Judged::default();
    for block in held {
        let id = block.id;
        let stripe = snapshot.stripe(id.stripe)?;
        let recorded = stripe.as_ref().and_then(|s| Some((s, s.block(id.index)?)));
        let recorded = recorded.filter(|(_, b)| b.node == node && b.digest.is_some());
        let Some((stripe, recorded)) = recorded else {
            judged.unknown.push(BlockRef { id, generation: block.generation });
            continue;
        };
        let k = cluster.code(stripe.code)?.k();
        match differs(stripe, recorded, k, &block) {
            Some((kind, detail)) => judged.bad.push(BadBlock { id, node, kind, detail }),
            None if recorded.lost => judged.sound.push((id, node)),
            None => {}
        }
    }
    Ok(judged)
}

/// Sets these blocks of `of` aside, unless somebody knows them or the gate is closed.
async fn discard(cluster: &Arc<Cluster>, node: NodeId, blocks: Vec<BlockRef>, of: u64) -> Result<()> {
    if !cluster.gate().is_open() {
        return Ok(());
    }
    let count = blocks.len() as u64;
    quarantine::set_aside(cluster, Unknown { node, blocks, count, of }).await
}

/// Has bad blocks mended and adds that to the report.
async fn mend(cluster: &Arc<Cluster>, blocks: Vec<BlockId>, report: &mut JobReport, listener: &Listener) {
    if blocks.is_empty() {
        return;
    }
    let blocks: BTreeSet<BlockId> = blocks.into_iter().collect();
    let (events, mut stream) = mpsc::channel(16);
    mend_now(cluster, blocks.into_iter().collect(), Some(events));
    while let Some(event) = stream.recv().await {
        match event {
            Ok(JobEvent::Ended(mended)) => {
                report.method = mended.method;
                report.blocks = mended.blocks;
                report.blocks_read = mended.blocks_read;
                report.bytes_read += mended.bytes_read;
                report.bytes_moved = mended.bytes_moved;
                report.bytes_across_racks = mended.bytes_across_racks;
                report.max_link_bytes = mended.max_link_bytes;
                report.failed.extend(mended.failed);
                report.around = mended.around;
                return;
            }
            Ok(progress) => drop(listener.try_send(Ok(progress))),
            Err(status) => report.failed.push(status.message().into()),
        }
    }
}
