//! Tells what was counted since the start. Changes nothing.

use std::sync::Arc;

use kintsu_wire::message::Counts;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<Counts> {
    Ok(cluster.tallies().told(cluster.now_ms()))
}
