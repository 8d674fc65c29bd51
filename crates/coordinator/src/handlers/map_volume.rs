//! Tells where stripes of a volume are and, to its writer, where their updates are to be logged. For the writer the logs are
//! first brought where nodes answer, if they are not there.

use std::sync::Arc;

use kintsu_wire::message::{MapVolume, VolumeMap};

use super::renew_volume::check_writer;
use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;

/// Most stripes in one answer.
const MOST_STRIPES: u64 = 1024;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: MapVolume) -> Result<VolumeMap> {
    let MapVolume { volume, first, count, writer, failed } = request;
    if let Some(writer) = writer {
        check_writer(cluster, volume, writer)?;
    }
    let worker = cluster.clone();
    let count = count.min(MOST_STRIPES);
    // A change of logs that was begun is ended, even if the caller is gone.
    let map = async move { driver::map(&worker, volume, (first, count), writer.is_some(), failed).await };
    let (record, stripes) = cluster.whole(map).await?;
    if let Some(writer) = writer {
        // Meanwhile another one may have taken the volume.
        check_writer(cluster, volume, writer)?;
    }
    let nodes = cluster.members().addresses();
    Ok(VolumeMap { taken: record.taken, size: record.size, stripes, nodes })
}
