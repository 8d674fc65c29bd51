//! Reports the progress and the end of a job that somebody began before.

use std::sync::Arc;

use kintsu_wire::message::JobId;

use crate::cluster::Cluster;
use crate::driver::{Listener, jobs};
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: JobId, listener: Listener) -> Result<()> {
    jobs::follow(cluster, request.id, listener)
}
