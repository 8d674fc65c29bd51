//! Brings all that is logged for a volume into its blocks and parities now.

use std::sync::Arc;

use kintsu_plan::update::Scheme;
use kintsu_wire::message::{CommitVolume, CommittedVolume};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CommitVolume) -> Result<CommittedVolume> {
    let scheme = request.scheme.as_deref().map_or(Ok(Scheme::default()), str::parse)?;
    let find = move |meta: &Meta| Ok(meta.snapshot()?.volume(&request.name)?.record.id);
    let volume = cluster.meta.off(find).await?;
    let worker = cluster.clone();
    cluster.whole(async move { driver::commit_volume(&worker, volume, scheme).await }).await
}
