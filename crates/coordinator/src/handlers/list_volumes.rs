//! Lists all volumes.

use std::sync::Arc;

use kintsu_wire::message::VolumeList;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<VolumeList> {
    let volumes = cluster.meta.off(|meta| meta.snapshot()?.volumes()).await?;
    let (leases, now_ms) = (cluster.volume_leases(), cluster.now_ms());
    let info = |volume: &crate::meta::Volume| volume.info(leases.is_held(volume.record.id, now_ms));
    Ok(VolumeList { volumes: volumes.iter().map(info).collect() })
}
