//! An operator has looked at the many blocks of a node that were unknown at once: they may now be purged after the
//! usual time.

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
