//! Has agents verify every block that they hold, compares that with the metadata, and has bad and missing blocks repaired, as
//! [`crate::engine::scrub`] decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{HeldBlock, JobEvent, JobReport, ScrubBlocks};
use tokio::sync::mpsc;

use super::guard::guarded;
use super::jobs::Job;
use super::ticks::repair_now;
use super::volumes::promote_decided;
use super::{patrol, quarantine};
use crate::cluster::{Cluster, lock};
use crate::engine::census::{self, Proof, Read};
use crate::engine::scrub::{Scrub, Scrubbed};
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;
use crate::meta::record::Fence;

/// Rows of a page.
const PAGE: usize = 8192;

/// Verifies the blocks of these nodes, as this job.
pub async fn scrub(cluster: Arc<Cluster>, nodes: Vec<NodeId>, job: Job) {
    let end = guarded(scrub_all(&cluster, nodes, &job)).await;
    job.end(end).await;
}

/// Blocks checked on each node, and blocks there.
type Checked = Mutex<BTreeMap<NodeId, (u64, u64)>>;

async fn scrub_all(cluster: &Arc<Cluster>, nodes: Vec<NodeId>, job: &Job) -> Result<JobReport> {
    let (started_ms, began) = (cluster.now_ms(), cluster.unix_seconds());
    let checked = &Checked::default();
    let scrubs = nodes.into_iter().map(|node| async move {
        let mut scrub = Scrub::new(node);
        let ended = scrub_node(cluster, node, &mut scrub, (checked, job)).await;
        if ended.is_ok() && !job.is_cancelled() {
            patrol::verified(cluster, node, began, scrub.checked()).await?;
        }
        Ok((node, scrub, ended))
    });
    let mut sum = Scrubbed::default();
    let scrubs = futures::future::join_all(scrubs).await.into_iter().collect::<Result<Vec<_>>>()?;
    let flagged = settle(cluster, scrubs, &mut sum).await?;
    repair(cluster, flagged, &mut sum).await;
    if job.is_cancelled() {
        sum.cancelled();
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    Ok(sum.end(seconds))
}

/// Sets aside what nobody knows and flags what is bad; returns the blocks that are to be repaired.
///
/// # Errors
/// The disk fails.
pub async fn settle(
    cluster: &Arc<Cluster>,
    scrubs: Vec<(NodeId, Scrub, Result<()>)>,
    sum: &mut Scrubbed,
) -> Result<Vec<BlockId>> {
    for (node, scrub, ended) in scrubs {
        let unknown = sum.add(scrub, ended.err().map(|error| error.to_string()));
        if cluster.gate().is_open()
            && let Err(error) = quarantine::set_aside(cluster, unknown).await
        {
            sum.failed(format!("{node}: blocks that nobody knows stay where they are: {error}"));
        }
    }
    let lost = sum.lost();
    Ok(sum.flagged(cluster.meta.off(move |meta| meta.mark_lost(&lost)).await?))
}

async fn scrub_node(
    cluster: &Arc<Cluster>,
    node: NodeId,
    scrub: &mut Scrub,
    asked: (&Checked, &Job),
) -> Result<()> {
    let (fence, placed) = cluster.meta.off(move |meta| placed(meta, node)).await?;
    let part = Part { node, fence, placed, range: ScrubBlocks::default() };
    verify(cluster, part, scrub, Some(asked)).await
}

/// Some blocks of a node.
pub struct Part {
    /// The node.
    pub node: NodeId,
    /// Its fence.
    pub fence: Fence,
    /// Those that the metadata place there.
    pub placed: Vec<BlockId>,
    /// The range of their stripes.
    pub range: ScrubBlocks,
}

/// Has a node verify some of its blocks. If somebody `asked` for it, that job is told the progress.
///
/// # Errors
/// The node does not come to the end; the disk fails.
pub async fn verify(
    cluster: &Arc<Cluster>,
    part: Part,
    scrub: &mut Scrub,
    asked: Option<(&Checked, &Job)>,
) -> Result<()> {
    let Part { node, fence, placed, range } = part;
    scrub.begin(placed);
    let unavailable = |s: tonic::Status| CoordinatorError::Unavailable { node, reason: s.message().into() };
    let mut events = cluster.agent(node)?.scrub(range).await.map_err(unavailable)?.into_inner();
    loop {
        let event = match asked {
            None => events.message().await.map_err(unavailable)?,
            Some((_, job)) => {
                // The agent waits, too, when nobody takes its results.
                job.unpaused().await;
                tokio::select! {
                    event = events.message() => event.map_err(unavailable)?,
                    // The agent stops when nobody takes its results.
                    () = job.cancelled() => break,
                }
            }
        };
        let Some(event) = event else { break };
        let sum = asked.map(|(checked, job)| {
            let mut all = lock(checked);
            all.insert(node, (event.checked, event.total));
            (job, all.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)))
        });
        if let Some(batch) = scrub.verified(event) {
            scrub.compared(compare(cluster, (node, fence), batch).await?);
            if let Some((job, sum)) = sum {
                job.progress(sum.0, sum.1, &format!("verifying {node}"));
            }
        }
    }
    let rest = scrub.rest();
    scrub.compared(compare(cluster, (node, fence), rest).await?);
    if !asked.is_some_and(|(_, job)| job.is_cancelled()) {
        scrub.complete();
    }
    Ok(())
}

/// The fence of a node, and its blocks.
fn placed(meta: &Meta, node: NodeId) -> Result<(Fence, Vec<BlockId>)> {
    let snapshot = meta.snapshot()?;
    let fence = snapshot.fence(node)?;
    let mut out: Vec<BlockId> = Vec::new();
    loop {
        let page = snapshot.placed(node, out.last().map(|b| b.stripe), PAGE)?;
        if page.is_empty() {
            return Ok((fence, out));
        }
        out.extend(page);
    }
}

/// Compares blocks that were read whole, after their node had this fence, with the metadata; sound ones lose their flags.
async fn compare(
    cluster: &Arc<Cluster>,
    (node, fence): (NodeId, Fence),
    mut held: Vec<HeldBlock>,
) -> Result<Vec<Read>> {
    promote_decided(cluster, node, &mut held).await?;
    let worker = cluster.clone();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let (mut read, mut found) = (Vec::with_capacity(held.len()), Vec::new());
        for block in held {
            let stripe = snapshot.stripe(block.id.stripe)?;
            let k = stripe.as_ref().map(|stripe| worker.code(stripe.code)).transpose()?.map(|code| code.k());
            let is = census::read(node, &block, stripe.as_ref().zip(k));
            if is == Read::Found {
                found.push((block.id, node));
            }
            read.push(is);
        }
        Ok((read, meta.mark_found(&found, Proof::Read, Some(fence))?))
    };
    let (read, cleared) = cluster.meta.off(look).await?;
    if !cleared.is_empty() {
        tracing::info!("blocks on {node} that counted as lost and are sound: {}", cleared.len());
    }
    Ok(read)
}

/// Has bad blocks repaired and adds that to the report.
async fn repair(cluster: &Arc<Cluster>, blocks: Vec<BlockId>, sum: &mut Scrubbed) {
    if blocks.is_empty() {
        return;
    }
    let (events, mut stream) = mpsc::channel(16);
    repair_now(cluster, blocks, Some(events));
    while let Some(event) = stream.recv().await {
        match event {
            Ok(JobEvent::Ended(repair)) => return sum.repaired(repair),
            // It is a job of its own, with its own progress.
            Ok(_) => {}
            Err(status) => sum.failed(status.message().into()),
        }
    }
}
