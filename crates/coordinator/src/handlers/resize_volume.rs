//! Changes the size of a volume. A stripe is stored whole at its first write, and nobody knows how much of it is in use: a volume
//! that shrinks must have no stripe behind the new end, and none that the end cuts.

use std::sync::Arc;

use kintsu_wire::message::{ResizeVolume, VolumeInfo};

use super::create_volume::check_size;
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: ResizeVolume) -> Result<VolumeInfo> {
    check_size(request.size)?;
    let ResizeVolume { name, size } = request;
    let resize = move |meta: &Meta| {
        let volume = meta.snapshot()?.volume(&name)?;
        if volume.record.snapshot.is_some() {
            return Err(CoordinatorError::Invalid {
                what: "volume to resize",
                expected: "one that is not a snapshot, which keeps the size that its volume had".into(),
                got: name,
            });
        }
        let stripe = volume.record.block_bytes * u64::from(volume.code.k);
        let present = volume.record.size;
        if size < present {
            let cut = meta.snapshot()?.volume_logs(volume.record.id, size / stripe, u64::MAX)?;
            if let Some((last, _)) = cut.last() {
                let least = ((last + 1) * stripe).min(present);
                return Err(CoordinatorError::Conflict {
                    what: format!("resize of volume {name:?} to {size} bytes"),
                    expected: format!("at least {least} bytes, which keep every stored stripe whole"),
                    got: format!("{} stored stripes that the new end cuts or leaves behind it", cut.len()),
                });
            }
        }
        meta.change_volume(volume.record.id, |record| {
            record.size = size;
            Ok(())
        })?;
        meta.snapshot()?.volume(&name)
    };
    let volume = cluster.meta.off(resize).await?;
    let held = cluster.volume_leases().is_held(volume.record.id, cluster.now_ms());
    Ok(volume.info(held))
}
