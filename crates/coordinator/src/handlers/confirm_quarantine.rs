//! An operator has looked: what looked unknown at once on a node may be purged in time.

use std::sync::Arc;

use kintsu_wire::message::{Done, NodeRef};

use crate::cluster::{Cluster, unknown_node};
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: NodeRef) -> Result<Done> {
    let node = request.node;
    if !cluster.meta.off(move |meta| meta.change_node(node, |record| record.held = 0)).await? {
        return Err(unknown_node(node));
    }
    cluster.members().recorded(node, |record| record.held = 0);
    Ok(Done {})
}
