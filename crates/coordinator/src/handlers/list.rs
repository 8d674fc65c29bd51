//! Returns a page of object names and common prefixes, by range scans.

use std::sync::Arc;

use kintsu_wire::message::{List, ListPage};

use crate::cluster::Cluster;
use crate::error::Result;

/// Most names in one answer.
const MOST_NAMES: u32 = 10_000;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: List) -> Result<ListPage> {
    let limit = if request.limit == 0 { MOST_NAMES } else { request.limit.min(MOST_NAMES) };
    let list = List { limit, ..request };
    cluster.meta.off(move |meta| meta.snapshot()?.list(&list)).await
}
