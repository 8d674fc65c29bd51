//! Stops, starts, pauses, wipes or drains a node, or ends its pause or drain, as [`crate::engine::members`] decides.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{JobEvent, JobReport, NodeCommand, Nothing};

use crate::answer::answer;
use crate::cluster::{Cluster, unknown_node};
use crate::driver::{self, Listener, jobs};
use crate::engine::members::{Refusal, Step};
use crate::error::{CoordinatorError, Result};

/// How long an agent may take to answer, or to register after its start.
const PATIENCE: Duration = Duration::from_secs(30);

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: NodeCommand, listener: Listener) -> Result<()> {
    let NodeCommand { node, action, force, seconds } = request;
    let launches = cluster.config.launcher.as_ref().is_some_and(|launcher| launcher.launches(node));
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
        Step::Pause => {
            let until = cluster.unix_seconds().saturating_add(seconds);
            pause(cluster, node, Some(until)).await?;
        }
        Step::Resume => pause(cluster, node, None).await?,
        Step::Drain => {
            driver::order_drain(cluster, node, listener).await;
            return Ok(());
        }
        Step::Wipe => return driver::order_wipe(cluster, node, force, listener).await,
    }
    let report = JobReport { kind: action.to_string(), ..JobReport::default() };
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

async fn record_stopped(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    cluster.meta.off(move |meta| meta.change_node(node, |record| record.stopped = true)).await?;
    cluster.members().stopped(node, cluster.now_ms());
    Ok(())
}

/// Begins no repair of a node's blocks until this time, in seconds since 1970. What has begun ends after the stripes that are
/// under repair.
async fn pause(cluster: &Arc<Cluster>, node: NodeId, until: Option<u64>) -> Result<()> {
    cluster.meta.off(move |meta| meta.change_node(node, |record| record.paused_until = until)).await?;
    if cluster.members().set_paused(node, until) {
        driver::hold_repairs(cluster);
    }
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

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::audit::Change as _;
    use crate::driver::tick_once;
    use crate::handlers::tests::{enlist, put, registration, reopen_with, silence};
    use kintsu_wire::message::{CauseKind, ChangeSetting, NodeAction, Repair, RepairTarget};
    use tokio::sync::mpsc;

    async fn command(cluster: &Arc<Cluster>, action: NodeAction, seconds: u64) {
        let (listener, mut events) = mpsc::channel(4);
        let command = NodeCommand { node: NodeId(1), action, force: false, seconds };
        handle(cluster, command, listener).await.unwrap();
        assert!(matches!(events.recv().await, Some(Ok(JobEvent::Ended(_)))));
    }

    #[test]
    fn the_audit_log_has_words_for_what_operators_change() {
        let wipe = NodeCommand { node: NodeId(3), action: NodeAction::Wipe, force: true, seconds: 0 };
        assert_eq!(wipe.about(), "wipe N3, by force");
        let repairs = [RepairTarget::Node(NodeId(3)), RepairTarget::Object("a".into()), RepairTarget::All]
            .map(Repair::new);
        assert_eq!(repairs.map(|repair| repair.about()), ["N3", "object \"a\"", "all that is lost"]);
        let settings =
            [ChangeSetting::RepairMaxRate(NonZeroU64::new(20_000_000)), ChangeSetting::RepairTarget(None)];
        let words = ["repair.max-rate 20000000 bytes/s", "repair.target none"];
        assert_eq!(settings.map(|setting| setting.about()), words);
    }

    #[tokio::test]
    async fn while_a_node_is_paused_no_repair_of_it_begins_also_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let open = || reopen_with(&dir, |config| config.grace = Duration::ZERO);
        let first = open();
        for node in 0..5 {
            enlist(&first, registration(node, node)).await.unwrap();
        }
        put(&first, "a", 60).await;
        command(&first, NodeAction::Pause, 3600).await;
        silence(&first, &[1]);
        tick_once(&first).await;
        assert_eq!((first.members().overdue().len(), first.queue().jobs()), (0, 0));
        let health = crate::handlers::health::handle(&first, Default::default()).await.unwrap();
        let paused = health.causes.iter().find(|cause| cause.kind == CauseKind::PausedNodes).unwrap();
        assert_eq!(paused.nodes, [NodeId(1)]);
        first.close().await.unwrap();
        let again = open();
        for node in [0, 2, 3, 4] {
            let here = kintsu_wire::message::Register { incarnation: 2, ..registration(node, node) };
            enlist(&again, here).await.unwrap();
        }
        silence(&again, &[1]);
        tick_once(&again).await;
        assert!(again.members().overdue().is_empty());
        command(&again, NodeAction::Resume, 0).await;
        tick_once(&again).await;
        assert_eq!(again.members().overdue().len(), 1);
        assert_eq!(again.meta.snapshot().unwrap().nodes().unwrap()[&NodeId(1)].paused_until, None);
    }
}
