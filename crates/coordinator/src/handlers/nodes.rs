//! Lists all nodes, with their states and the number of blocks placed on them.

use std::sync::Arc;

use kintsu_wire::message::NodeList;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<NodeList> {
    let tallies = cluster.meta.off(|meta| meta.snapshot()?.tallies()).await?;
    let nodes = cluster.members().infos(&tallies, cluster.now_ms());
    Ok(NodeList { nodes })
}
