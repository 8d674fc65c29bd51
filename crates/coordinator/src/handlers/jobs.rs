//! Lists the jobs: those that run, and the last ones that have ended.

use std::sync::Arc;

use kintsu_wire::message::JobList;

use crate::cluster::Cluster;
use crate::driver::jobs;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<JobList> {
    Ok(JobList { jobs: jobs::list(cluster), repair_limit: Some(cluster.give_way().standing()) })
}
