//! The writer of a volume goes on.

use std::sync::Arc;

use kintsu_wire::message::{VolumeLease, VolumeWriter};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: VolumeWriter) -> Result<VolumeLease> {
    let VolumeWriter { volume, writer } = request;
    check_writer(cluster, volume, writer)?;
    let record = cluster.meta.off(move |meta| Ok(meta.snapshot()?.volume_by_id(volume)?.record)).await?;
    let lease_ms = cluster.volume_leases().lease_ms();
    Ok(VolumeLease { size: record.size, lease_ms })
}

/// Renews the lease of a writer.
///
/// # Errors
/// `Fenced` if it is not the writer.
pub fn check_writer(cluster: &Cluster, volume: u64, writer: u64) -> Result<()> {
    if cluster.volume_leases().renew(volume, writer, cluster.now_ms()) {
        return Ok(());
    }
    Err(CoordinatorError::Fenced {
        what: format!("volume {volume:016x}"),
        expected: "its writer".into(),
        got: "one that has no lease any more: another one has taken it over".into(),
    })
}
