//! Returns the id of the cluster. A client asks for it first, because it must show the id to agents.

use std::sync::Arc;

use kintsu_wire::message::ClusterInfo;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<ClusterInfo> {
    Ok(ClusterInfo { cluster: cluster.id })
}
