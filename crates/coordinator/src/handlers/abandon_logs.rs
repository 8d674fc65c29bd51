//! Tells which logs of a volume no node has that answers, and goes on without them if the operator wants that.

use std::sync::Arc;

use kintsu_wire::message::{AbandonLogs, AbandonedLogs};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: AbandonLogs) -> Result<AbandonedLogs> {
    let AbandonLogs { name, abandon } = request;
    let find = move |meta: &Meta| Ok(meta.snapshot()?.volume(&name)?.record);
    let volume = cluster.meta.off(find).await?;
    let worker = cluster.clone();
    let logs = cluster.whole(async move { driver::lost_logs(&worker, &volume, abandon).await }).await?;
    Ok(AbandonedLogs { logs })
}
