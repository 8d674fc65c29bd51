//! Stops, starts, wipes or drains a node, or ends its drain, as [`crate::engine::members`] decides.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{JobEvent, JobReport, NodeAction, NodeCommand, Nothing};

use crate::answer::answer;
use crate::cluster::{Cluster, unknown_node};
use crate::driver::{self, Listener, jobs};
use crate::engine::members::{Refusal, Step};
use crate::error::{CoordinatorError, Result};

/// How long an agent may take to answer, or to register after its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: NodeCommand, listener: Listener) -> Result<()> {
    let NodeCommand { node, action, force } = request;
    let launches = cluster.config.launcher.is_some();
    let step = cluster.members().command(node, action, launches).map_err(|why| refused(node, why))?;
    match step {
        Step::Nothing => {}
        Step::EndAgent => {
            let mut agent = cluster.agent(node)?;
            answer(node, PATIENCE, "it did not answer in time", agent.shutdown(Nothing {})).await?;
            record_stopped(cluster, node).await?;
        }
        Step::RecordStopped => record_stopped(cluster, node).await?,
        Step::Launch => launch(cluster, node).await?,
        Step::Undrain => jobs::undrain(cluster, node).await?,
        Step::Drain => return driver::order_drain(cluster, node, listener).await,
        Step::Wipe => return driver::order_wipe(cluster, node, force, listener).await,
    }
    let report = JobReport { kind: word(action).into(), ..JobReport::default() };
    // The caller may be gone.
    let _ = listener.send(Ok(JobEvent::Ended(report))).await;
    Ok(())
}

/// The error for a refused command.
pub fn refused(node: NodeId, why: Refusal) -> CoordinatorError {
    match why {
        Refusal::Unknown => unknown_node(node),
        Refusal::State { what, expected, got } => CoordinatorError::Conflict { what, expected, got },
    }
}

fn word(action: NodeAction) -> &'static str {
    match action {
        NodeAction::Stop => "stop",
        NodeAction::Start => "start",
        NodeAction::Wipe => "wipe",
        NodeAction::Drain => "drain",
        NodeAction::Undrain => "undrain",
    }
}

async fn record_stopped(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    cluster.meta.off(move |meta| meta.change_node(node, |record| record.stopped = true)).await?;
    cluster.members().stopped(node, cluster.now_ms());
    Ok(())
}

/// Starts the agent, and waits until it has registered.
async fn launch(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    let Some(launcher) = &cluster.config.launcher else { return Ok(()) };
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
