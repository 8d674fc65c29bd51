//! Tells which logs of a volume no node has that answers, and goes on without them if the operator wants that: without those that the
//! operator knows of. More nodes may be away by then.

use std::sync::Arc;

use kintsu_wire::message::{AbandonLogs, AbandonedLogs};

use crate::cluster::Cluster;
use crate::driver::{self, GivenUp};
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: AbandonLogs) -> Result<AbandonedLogs> {
    let AbandonLogs { name, abandon, nodes } = request;
    let given_up = match (abandon, nodes) {
        (false, _) => GivenUp::None,
        (true, None) => GivenUp::All,
        (true, Some(nodes)) => GivenUp::Of(nodes),
    };
    let find = move |meta: &Meta| Ok(meta.snapshot()?.volume(&name)?.record);
    let volume = cluster.meta.off(find).await?;
    let worker = cluster.clone();
    let logs = cluster.whole(async move { driver::lost_logs(&worker, &volume, &given_up).await }).await?;
    Ok(AbandonedLogs { logs })
}
