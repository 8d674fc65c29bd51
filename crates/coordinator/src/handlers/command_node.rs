//! Stops, starts, wipes or drains a node.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{JobEvent, JobReport, NodeAction, NodeCommand, Nothing};

use crate::answer::answer;
use crate::cluster::{Cluster, unknown_node};
use crate::driver::{self, Listener};
use crate::error::{CoordinatorError, Result};
use crate::meta::NodeRecord;

/// How long an agent may take to answer, or to register after its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: NodeCommand, listener: Listener) -> Result<()> {
    let node = request.node;
    if cluster.members().node(node).is_none() {
        return Err(unknown_node(node));
    }
    let kind = match request.action {
        NodeAction::Drain => {
            // Set first: a stripe that is granted after the drain is recorded must avoid the node.
            let before = cluster.members().set_draining(node, true);
            if let Err(error) = record(cluster, node, |record| record.draining = true).await {
                cluster.members().set_draining(node, before);
                return Err(error);
            }
            cluster.spawn(driver::drain(cluster.clone(), node, listener));
            return Ok(());
        }
        NodeAction::Stop => stop(cluster, node).await.map(|()| "stop")?,
        NodeAction::Start => start(cluster, node).await.map(|()| "start")?,
        NodeAction::Wipe => return driver::order_wipe(cluster, node, request.force, listener).await,
    };
    let report = JobReport { kind: kind.into(), ..JobReport::default() };
    // The caller may be gone.
    let _ = listener.send(Ok(JobEvent::Ended(report))).await;
    Ok(())
}

/// Ends the agent. If the node is down already, it is only recorded as stopped.
async fn stop(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    if cluster.members().readable(node) {
        let mut agent = cluster.agent(node)?;
        answer(node, PATIENCE, "it did not answer in time", agent.shutdown(Nothing {})).await?;
    }
    record(cluster, node, |record| record.stopped = true).await?;
    cluster.members().stopped(node, cluster.now_ms());
    Ok(())
}

/// Starts the agent again, if this process can do so. On a living node this only cancels the drain.
async fn start(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    record(cluster, node, |record| record.draining = false).await?;
    cluster.members().set_draining(node, false);
    if cluster.members().readable(node) {
        return Ok(());
    }
    let Some(launcher) = &cluster.config.launcher else {
        let dir = cluster.members().node(node).map(|m| m.record.dir.clone()).unwrap_or_default();
        return Err(CoordinatorError::Conflict {
            what: format!("start of {node}"),
            expected: "a coordinator that runs its agents itself (kintsu up)".into(),
            got: format!("one that does not: run `kintsu agent --dir {dir}` on the node's host"),
        });
    };
    launcher.launch(node).await.map_err(|reason| CoordinatorError::Unavailable { node, reason })?;
    let deadline = cluster.now_ms() + PATIENCE.as_millis() as u64;
    while !cluster.members().readable(node) {
        if cluster.now_ms() > deadline {
            let reason = "its agent was started but did not register".into();
            return Err(CoordinatorError::Unavailable { node, reason });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn record(
    cluster: &Arc<Cluster>,
    node: NodeId,
    change: impl FnOnce(&mut NodeRecord) + Send + 'static,
) -> Result<()> {
    cluster.meta.off(move |meta| meta.change_node(node, change)).await.map(drop)
}
