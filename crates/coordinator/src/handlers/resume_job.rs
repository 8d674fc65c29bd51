//! Has a paused job go on.

use std::sync::Arc;

use kintsu_wire::message::{JobId, JobInfo};

use crate::cluster::Cluster;
use crate::driver::jobs;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: JobId) -> Result<JobInfo> {
    jobs::pause(cluster, request.id, false)
}
