//! Returns a page of object names, by range scan.

use std::sync::Arc;

use kintsu_wire::message::{List, ListPage};

use crate::cluster::Cluster;
use crate::error::Result;

/// Most names in one answer.
const MOST_NAMES: u32 = 10_000;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: List) -> Result<ListPage> {
    let List { prefix, after, limit } = request;
    let limit = if limit == 0 { MOST_NAMES } else { limit.min(MOST_NAMES) };
    let page =
        move |meta: &crate::meta::Meta| meta.snapshot()?.list(&prefix, after.as_deref(), limit as usize);
    let (objects, more) = cluster.meta.off(page).await?;
    Ok(ListPage { objects, more })
}
