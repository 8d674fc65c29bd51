//! Removes a volume that nobody writes to, or a snapshot: its stripes, then its name, then what agents have logged for it. What
//! snapshots share with it becomes theirs. A removal that was interrupted goes on when it is asked for again.

use std::sync::Arc;

use kintsu_wire::message::{VolumeInfo, VolumeName};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// Stripes that are forgotten in one transaction.
const STRIPES_AT_ONCE: usize = 256;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: VolumeName) -> Result<VolumeInfo> {
    let find = move |meta: &Meta| meta.snapshot()?.volume(&request.name);
    let volume = cluster.meta.off(find).await?;
    let id = volume.record.id;
    if cluster.volume_leases().is_held(id, cluster.now_ms()) {
        return Err(CoordinatorError::Conflict {
            what: format!("removal of volume {:?}", volume.name),
            expected: "no writer".into(),
            got: "one with a lease; end it first".into(),
        });
    }
    let epoch = cluster
        .meta
        .off(move |meta| {
            // No writer that went away can make a stripe from now on.
            meta.change_volume(id, |record| {
                record.epoch += 1;
                record.removing = true;
                (record.taken, record.writer) = (record.epoch, None);
                Ok(record.epoch)
            })
        })
        .await?;
    driver::fence_everywhere(cluster, id, epoch).await;
    let drop_stripes = move |meta: &Meta| {
        let mut first = Some(0);
        while let Some(from) = first {
            first = meta.drop_volume_stripes(id, from, STRIPES_AT_ONCE)?;
        }
        Ok(())
    };
    cluster.meta.off(drop_stripes).await?;
    let worker = cluster.clone();
    cluster.whole(async move { driver::give_all(&worker, id).await }).await?;
    cluster.meta.off(move |meta| meta.remove_volume(id)).await?;
    driver::release_volume(cluster, id).await;
    cluster.sweep.notify_one();
    Ok(volume.info(false))
}
