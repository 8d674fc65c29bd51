//! Brings what is logged for a volume into its blocks and parities now: all, or what was logged for some blocks.

use std::sync::Arc;

use kintsu_plan::update::Scheme;
use kintsu_wire::message::{CommitVolume, CommittedVolume};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CommitVolume) -> Result<CommittedVolume> {
    let CommitVolume { name, scheme, blocks } = request;
    let scheme = scheme.as_deref().map(str::parse::<Scheme>).transpose()?;
    let find = move |meta: &Meta| Ok(meta.snapshot()?.volume(&name)?.record);
    let volume = cluster.meta.off(find).await?;
    let scheme = scheme.unwrap_or(volume.scheme);
    let worker = cluster.clone();
    let commit = async move {
        match blocks {
            Some(blocks) => driver::commit_blocks(&worker, volume.id, blocks, scheme).await,
            None => driver::commit_volume(&worker, volume.id, scheme).await,
        }
    };
    cluster.whole(commit).await
}
