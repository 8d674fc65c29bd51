//! Tells where stripes of a volume are and, to its writer, where their updates are to be logged. For the writer the logs are
//! first brought where nodes answer, if they are not there.

use std::sync::Arc;

use kintsu_wire::message::{MapVolume, VolumeMap};

use super::renew_volume::check_writer;
use crate::cluster::Cluster;
use crate::driver::{self, Wanted};
use crate::error::Result;

/// Most stripes in one answer.
const MOST_STRIPES: u64 = 1024;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: MapVolume) -> Result<VolumeMap> {
    let MapVolume { volume, first, count, writer, failed, own } = request;
    if let Some(writer) = writer {
        check_writer(cluster, volume, writer)?;
    }
    let worker = cluster.clone();
    let (count, writes) = (count.min(MOST_STRIPES), writer.is_some());
    let own = writes && own.unwrap_or(true);
    let wanted = Wanted { volume, first, count, writes, own, failed };
    // A change of logs that was begun is ended, even if the caller is gone.
    let map = async move { driver::map(&worker, wanted).await };
    let (size, taken, stripes) = cluster.whole(map).await?;
    if let Some(writer) = writer {
        // Meanwhile another one may have taken the volume.
        check_writer(cluster, volume, writer)?;
    }
    let nodes = cluster.members().addresses();
    Ok(VolumeMap { taken, size, stripes, nodes })
}
