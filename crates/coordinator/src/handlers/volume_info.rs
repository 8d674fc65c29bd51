//! Tells about one volume.

use std::sync::Arc;

use kintsu_wire::message::{VolumeInfo, VolumeName};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: VolumeName) -> Result<VolumeInfo> {
    let volume = cluster.meta.off(move |meta| meta.snapshot()?.volume(&request.name)).await?;
    let held = cluster.volume_leases().is_held(volume.record.id, cluster.now_ms());
    Ok(volume.info(held))
}
