//! Changes the size of a volume. A stripe is stored whole at its first write, and nobody knows how much of it is in use: a volume
//! that shrinks must have no stripe behind the new end, and none that the end cuts. A writer that knows the former size makes none
//! there later.

use std::sync::Arc;

use kintsu_wire::message::{ResizeVolume, VolumeInfo};

use super::create_volume::{check_size, check_stripes};
use crate::cluster::Cluster;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: ResizeVolume) -> Result<VolumeInfo> {
    check_size(request.size)?;
    let ResizeVolume { name, size } = request;
    let resize = move |meta: &Meta| {
        let volume = meta.snapshot()?.volume(&name)?;
        let (id, block) = (volume.record.id, volume.record.block_bytes);
        check_stripes(size, block * u64::from(volume.code.k), block)?;
        meta.resize_volume(id, size)?;
        meta.snapshot()?.volume(&name)
    };
    let volume = cluster.meta.off(resize).await?;
    let held = cluster.volume_leases().is_held(volume.record.id, cluster.now_ms());
    Ok(volume.info(held))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::tests::{begin, cluster, volume, written};
    use crate::handlers::{begin_put, commit_put};
    use crate::meta::volumes::stripe_name;
    use kintsu_wire::message::{BeginPut, CommitPut, Encoding, StripeOfVolume};

    const STRIPE: u64 = 8192;

    async fn resize(cluster: &Arc<Cluster>, size: u64) -> Result<VolumeInfo> {
        handle(cluster, ResizeVolume { name: "disk".into(), size }).await
    }

    #[tokio::test]
    async fn no_writer_makes_a_stripe_behind_the_new_end() {
        let (_dir, cluster) = cluster(6, 3).await;
        volume(&cluster).await;
        let volume = cluster.meta.snapshot().unwrap().volumes().unwrap()[0].record.id;
        let stripe = |index| BeginPut {
            volume: Some(StripeOfVolume { volume, index, epoch: 0 }),
            ..begin(&stripe_name(volume, index), 16)
        };
        let ticket = begin_put::handle(&cluster, stripe(2)).await.unwrap();
        assert_eq!(resize(&cluster, 2 * STRIPE + 512).await.unwrap().size, 2 * STRIPE + 512);
        begin_put::handle(&cluster, stripe(2)).await.unwrap();
        resize(&cluster, 2 * STRIPE).await.unwrap();
        for index in [2, u64::MAX] {
            let refused = begin_put::handle(&cluster, stripe(index)).await.unwrap_err();
            assert!(refused.to_string().contains("before its end"), "{refused}");
        }
        // The first was begun before.
        let stripes = written(&ticket, Encoding::Online, 2);
        let commit = CommitPut { put: ticket.put, stripes, checksum: None, ending: None };
        let refused = commit_put::handle(&cluster, commit).await.unwrap_err();
        assert!(refused.to_string().contains("before its end"), "{refused}");
        assert!(cluster.meta.snapshot().unwrap().volume_logs(volume, 1, 9).unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_volume_gets_no_more_stripes_than_can_be_numbered_and_loses_none() {
        let (_dir, cluster) = cluster(6, 3).await;
        volume(&cluster).await;
        let most = STRIPE << 32;
        assert_eq!(resize(&cluster, most).await.unwrap().size, most);
        let refused = resize(&cluster, most + 512).await;
        assert!(matches!(refused, Err(CoordinatorError::Invalid { .. })), "{refused:?}");
        let refused = resize(&cluster, STRIPE - 512).await.unwrap_err();
        assert!(refused.to_string().contains("at least 8192 bytes"), "{refused}");
        assert_eq!(resize(&cluster, STRIPE).await.unwrap().size, STRIPE);
    }
}
