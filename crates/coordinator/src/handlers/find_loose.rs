//! Returns a page of the stripes of small objects that waste most of what a stripe costs.

use std::sync::Arc;

use kintsu_wire::message::{FindLoose, LooseStripes};

use crate::cluster::Cluster;
use crate::error::Result;

/// Most stripes in one answer.
const MOST_STRIPES: u32 = 1024;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: FindLoose) -> Result<LooseStripes> {
    let find = FindLoose { limit: request.limit.clamp(1, MOST_STRIPES), ..request };
    let now = cluster.unix_seconds();
    cluster.meta.off(move |meta| meta.snapshot()?.loose(&find, now)).await
}
