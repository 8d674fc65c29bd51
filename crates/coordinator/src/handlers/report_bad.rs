//! Somebody found a bad block: it is flagged lost, if the metadata still place it there, and mended
//! at once. A node that does not answer is no bad block: heartbeats decide about nodes.

use std::sync::Arc;

use kintsu_wire::message::{BadBlock, Done, FaultKind};

use crate::cluster::Cluster;
use crate::driver::mend_now;
use crate::error::Result;
use crate::meta::LostBlock;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: BadBlock) -> Result<Done> {
    use FaultKind::{Corrupt, Missing, Stale};
    if !matches!(request.kind, Corrupt | Missing | Stale) {
        return Ok(Done {});
    }
    let lost = LostBlock { id: request.id, node: request.node, why: request.kind };
    let marked = cluster.meta.off(move |meta| meta.mark_lost(&[lost])).await?;
    if !marked.is_empty() {
        tracing::warn!("{} on {} is bad: {}", request.id, request.node, request.detail);
        mend_now(cluster, marked, None);
    }
    Ok(Done {})
}
