//! The writer of a volume has ended: another one need not wait for the end of its lease.

use std::sync::Arc;

use kintsu_wire::message::{Done, VolumeWriter};

use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: VolumeWriter) -> Result<Done> {
    let VolumeWriter { volume, writer } = request;
    if cluster.volume_leases().end(volume, writer) {
        let close = move |meta: &Meta| {
            meta.change_volume(volume, |record| {
                if record.writer == Some(writer) {
                    record.writer = None;
                }
                Ok(())
            })
        };
        cluster.meta.off(close).await?;
    }
    Ok(Done {})
}
