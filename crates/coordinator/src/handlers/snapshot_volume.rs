//! Takes a snapshot of a volume: another one, to read only, with all that was acknowledged until now.

use std::sync::Arc;

use kintsu_wire::message::{SnapshotVolume, TakenSnapshot};

use super::create_volume::{check_volume_name, random};
use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: SnapshotVolume) -> Result<TakenSnapshot> {
    let SnapshotVolume { name, snapshot } = request;
    check_volume_name(&snapshot)?;
    let find = move |meta: &Meta| Ok(meta.snapshot()?.volume(&name)?.record.id);
    let volume = cluster.meta.off(find).await?;
    let new = (random()?, cluster.unix_seconds());
    let worker = cluster.clone();
    // A snapshot that was begun is ended, even if the caller is gone.
    cluster.whole(async move { driver::take_snapshot(&worker, (volume, snapshot), new).await }).await
}
