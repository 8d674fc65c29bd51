//! Has a job end early. What it cannot leave half done is finished first.

use std::sync::Arc;

use kintsu_wire::message::{JobId, JobInfo};

use crate::cluster::Cluster;
use crate::driver::jobs;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: JobId) -> Result<JobInfo> {
    jobs::cancel(cluster, request.id).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::tests::{begin, cluster};
    use crate::handlers::{begin_put, command_node, follow_job};
    use kintsu_wire::message::{JobEvent, JobState, NodeAction, NodeCommand};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_cancelled_drain_ends_and_its_node_gets_blocks_again() {
        let (_dir, cluster) = cluster(5, 5).await;
        let ticket = begin_put::handle(&cluster, begin("a", 16)).await.unwrap();
        let node = ticket.stripes[0].homes[0].unwrap();
        let (listener, mut events) = mpsc::channel(64);
        let drain = NodeCommand { node, action: NodeAction::Drain, force: false, seconds: 0 };
        command_node::handle(&cluster, drain.clone(), listener).await.unwrap();
        let Some(Ok(JobEvent::Began(job))) = events.recv().await else { panic!("not in the table") };
        // The put to the node is waited for. A second drain follows the first.
        let (second, mut seconds_events) = mpsc::channel(64);
        command_node::handle(&cluster, drain, second).await.unwrap();
        let Some(Ok(JobEvent::Began(again))) = seconds_events.recv().await else { panic!("not followed") };
        assert_eq!(again.id, job.id);
        assert!(!cluster.nodes().0.nodes[&node].usable);
        let start = NodeCommand { node, action: NodeAction::Start, force: false, seconds: 0 };
        let (ignored, _) = mpsc::channel(64);
        command_node::handle(&cluster, start, ignored).await.unwrap();
        assert!(!cluster.nodes().0.nodes[&node].usable, "a start leaves the drain alone");
        handle(&cluster, JobId { id: job.id }).await.unwrap();
        assert!(cluster.nodes().0.nodes[&node].usable);
        while let Some(event) = events.recv().await {
            if matches!(event.unwrap(), JobEvent::Ended(_)) {
                break;
            }
        }
        let ended = crate::handlers::jobs::handle(&cluster).await.unwrap().jobs;
        assert!(ended.iter().all(|job| job.state.has_ended() && job.state != JobState::Failed), "{ended:?}");
        let gone = handle(&cluster, JobId { id: job.id }).await.unwrap_err();
        assert!(gone.to_string().contains("one that has ended"), "{gone}");
        let (late, mut late_events) = mpsc::channel(64);
        follow_job::handle(&cluster, JobId { id: job.id }, late).await.unwrap();
        assert!(matches!(late_events.recv().await, Some(Ok(JobEvent::Began(_)))));
        assert!(matches!(late_events.recv().await, Some(Ok(JobEvent::Ended(_)))));
        let unknown = handle(&cluster, JobId { id: 7 }).await;
        assert!(matches!(unknown, Err(CoordinatorError::NotFound { .. })));
    }
}
