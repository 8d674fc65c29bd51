//! Changes the size of a volume. What lies behind the new end must not be in use.

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
        let kept = size.div_ceil(stripe);
        let behind = meta.snapshot()?.volume_logs(volume.record.id, kept, u64::MAX)?;
        if let Some((last, _)) = behind.last() {
            return Err(CoordinatorError::Conflict {
                what: format!("resize of volume {name:?} to {size} bytes"),
                expected: format!(
                    "nothing written behind the new end, at least {} bytes",
                    (last + 1) * stripe
                ),
                got: format!("{} stripes there", behind.len()),
            });
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
