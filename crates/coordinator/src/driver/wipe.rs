//! Wipes a node: it is recorded already that it will be, and nothing is read from it or written to it. Its agent
//! deletes all blocks, however long that takes; then its blocks are flagged lost and the record of the wipe goes.
//!
//! What ends in between is completed by the ticks: a living node that is to be wiped, and that nobody wipes, is wiped
//! again. Blocks cannot have come there meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{JobEvent, JobReport, Nothing};

use super::damage::{Harm, needing};
use super::guard::guarded;
use super::{Listener, asks};
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// How often whoever asked hears that the wipe goes on.
const NEWS: Duration = Duration::from_secs(1);

/// What could not be read any more if a node lost all its blocks now.
///
/// # Errors
/// The disk fails.
pub async fn would_cost(cluster: &Arc<Cluster>, node: NodeId) -> Result<Harm> {
    let gone: BTreeSet<NodeId> = cluster.members().down().into_iter().collect();
    let worker = cluster.clone();
    cluster.meta.off(move |meta| needing(&worker, &meta.snapshot()?, node, gone)).await
}

/// Wipes a node that is recorded as to be wiped, and reports to `listener`. When it is being wiped already, this
/// waits for the end of that.
pub async fn wipe(cluster: Arc<Cluster>, node: NodeId, listener: Option<Listener>) {
    let started_ms = cluster.now_ms();
    let wiped = guarded(turn(&cluster, node, listener.as_ref())).await;
    if let Err(error) = &wiped {
        tracing::warn!("{node} is not wiped yet: {error}");
    }
    let Some(listener) = listener else { return };
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let report = JobReport { kind: "wipe".into(), seconds, ..JobReport::default() };
    asks::tell(&listener, wiped.map(|()| JobEvent::Ended(report))).await;
}

/// Completes wipes that were interrupted, as far as their nodes are there.
pub fn go_on(cluster: &Arc<Cluster>) {
    let due: Vec<NodeId> = {
        let members = cluster.members();
        members.iter().filter(|(_, m)| m.up && m.record.wiping).map(|(id, _)| id).collect()
    };
    for node in due {
        if !cluster.wipes().contains(&node) {
            tracing::info!("{node} was to be wiped: that goes on");
            cluster.spawn(wipe(cluster.clone(), node, None));
        }
    }
}

async fn turn(cluster: &Arc<Cluster>, node: NodeId, listener: Option<&Listener>) -> Result<()> {
    loop {
        let first = cluster.wipes().insert(node);
        if first {
            let _once = Once { cluster, node };
            let erased = erase(cluster, node, listener).await;
            if erased.is_err() {
                tokio::time::sleep(NEWS).await;
            }
            return erased;
        }
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
        if !cluster.members().wiping(node) {
            return Ok(());
        }
    }
}

async fn erase(cluster: &Arc<Cluster>, node: NodeId, listener: Option<&Listener>) -> Result<()> {
    let records = cluster.meta.off(|meta| meta.snapshot()?.nodes()).await?;
    if !records.get(&node).is_some_and(|record| record.wiping) {
        cluster.members().set_wiping(node, false);
        return Ok(());
    }
    let unavailable = |reason: String| CoordinatorError::Unavailable { node, reason };
    let mut agent = cluster.agent(node)?;
    let started_ms = cluster.now_ms();
    let call = agent.wipe(Nothing {});
    tokio::pin!(call);
    loop {
        tokio::select! {
            ended = &mut call => {
                ended.map_err(|status| unavailable(status.message().into()))?;
                break;
            }
            () = tokio::time::sleep(NEWS.min(cluster.config.heartbeat)) => {
                // It may take as long as it likes, but not longer than it lives.
                if !cluster.members().readable(node) {
                    return Err(unavailable("it went away; it is wiped when it is back".into()));
                }
                if let Some(listener) = listener {
                    let (done, total) = ((cluster.now_ms() - started_ms) / 1000, 0);
                    let note = format!("wiping {node}");
                    // A slow listener misses progress, never the end.
                    let _ = listener.try_send(Ok(JobEvent::Progress { done, total, note }));
                }
            }
        }
    }
    let lost = cluster.meta.off(move |meta| meta.wipe(node)).await?;
    cluster.members().set_wiping(node, false);
    tracing::warn!("{node} was wiped: {lost} blocks lost");
    Ok(())
}

/// Lets a node be wiped again when this is dropped.
struct Once<'a> {
    cluster: &'a Cluster,
    node: NodeId,
}

impl Drop for Once<'_> {
    fn drop(&mut self) {
        self.cluster.wipes().remove(&self.node);
    }
}
