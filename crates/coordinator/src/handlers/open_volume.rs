//! Opens a volume: to read it, or as its only writer, with a new epoch.

use std::sync::Arc;

use kintsu_wire::message::{OpenVolume, OpenedVolume};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: OpenVolume) -> Result<OpenedVolume> {
    let OpenVolume { name, writer, take } = request;
    driver::check_volumes(cluster)?;
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let volume = snapshot.volume(&name)?;
        Ok((snapshot.definition(volume.record.code)?, volume))
    };
    let (definition, mut volume) = cluster.meta.off(find).await?;
    let id = volume.record.id;
    driver::check_stays(&volume)?;
    if writer.is_some() && volume.record.snapshot.is_some() {
        return Err(CoordinatorError::Invalid {
            what: "volume to write to",
            expected: "one that is not a snapshot; those are only read".into(),
            got: volume.name,
        });
    }
    if let Some(writer) = writer {
        let now_ms = cluster.now_ms();
        let other = cluster.volume_leases().other(id, writer, now_ms);
        if let Some(left_ms) = other.filter(|_| !take) {
            return Err(CoordinatorError::Conflict {
                what: format!("volume {:?}", volume.name),
                expected: "no other writer; --take would take it over".into(),
                got: format!("one whose lease lasts {:.1} s more if it is not renewed", left_ms as f64 / 1e3),
            });
        }
        let take_over = move |meta: &Meta| {
            meta.change_volume(id, |record| {
                record.epoch += 1;
                (record.taken, record.writer) = (record.epoch, Some(writer));
                Ok(record.clone())
            })
        };
        volume.record = cluster.meta.off(take_over).await?;
        cluster.volume_leases().grant(id, writer, cluster.now_ms());
        driver::fence_everywhere(cluster, id, volume.record.epoch).await;
    }
    let (held, lease_ms) = {
        let leases = cluster.volume_leases();
        (leases.is_held(id, cluster.now_ms()), leases.lease_ms())
    };
    let (taken, cluster) = (volume.record.taken, cluster.id);
    Ok(OpenedVolume { volume: volume.info(held), taken, lease_ms, definition, cluster })
}
