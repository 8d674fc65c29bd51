//! Removes an object; its blocks become garbage. During a rebuild, an older version that was found whole takes its place.

use std::sync::Arc;

use kintsu_wire::message::{ObjectInfo, Remove};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::volumes::RESERVED;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Remove) -> Result<ObjectInfo> {
    if request.name.starts_with(RESERVED) {
        return Err(CoordinatorError::Invalid {
            what: "object name",
            expected: "an object; stripes of a volume go with the volume".into(),
            got: request.name,
        });
    }
    let removed = cluster.meta.off(move |meta| meta.remove(&request.name)).await?;
    cluster.sweep.notify_one();
    if cluster.is_rebuilding() {
        cluster.rebuild().uncovers();
        cluster.rebuilt.notify_one();
    }
    Ok(removed)
}
