//! Has a job begin nothing more until it is resumed. What it has begun is finished.

use std::sync::Arc;

use kintsu_wire::message::{JobId, JobInfo};

use crate::cluster::Cluster;
use crate::driver::jobs;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: JobId) -> Result<JobInfo> {
    jobs::pause(cluster, request.id, true)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use kintsu_dag::NodeId;
    use kintsu_wire::message::{JobEvent, JobState};
    use tokio::sync::mpsc;

    use super::*;
    use crate::driver::{Source, start_repairs};
    use crate::engine::repair::Order;
    use crate::handlers::tests::{cluster, put, silence};
    use crate::handlers::{cancel_job, resume_job};

    #[tokio::test]
    async fn a_paused_repair_begins_no_stripe_until_it_is_resumed() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 48).await;
        silence(&cluster, &[0]);
        // Nobody waits for agents that are not there.
        cluster.panics.store(true, Ordering::SeqCst);
        let (listener, mut events) = mpsc::channel(64);
        // Its first page is not fetched before this test waits for something.
        start_repairs(&cluster, Source::Node(NodeId(0)), Order::default(), Some(listener));
        let Some(Ok(JobEvent::Began(job))) = events.recv().await else { panic!("not in the table") };
        let id = JobId { id: job.id };
        assert_eq!(handle(&cluster, id).await.unwrap().state, JobState::Paused);
        assert_eq!(handle(&cluster, id).await.unwrap().state, JobState::Paused, "twice is once");
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(cluster.queue().jobs(), 1);
        assert_eq!(resume_job::handle(&cluster, id).await.unwrap().state, JobState::Running);
        while let Some(event) = events.recv().await {
            if matches!(event.unwrap(), JobEvent::Ended(_)) {
                break;
            }
        }
        let ended = handle(&cluster, id).await.unwrap_err();
        assert!(ended.to_string().contains("one that has ended"), "{ended}");
        assert!(cancel_job::handle(&cluster, id).await.is_err());
    }
}
