//! A client gives up its put: the blocks that it wrote become garbage. Repeating the call is harmless.

use std::sync::Arc;

use kintsu_wire::message::{Done, PutRef};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: PutRef) -> Result<Done> {
    let (put, worker) = (request.put, cluster.clone());
    let abort = async move {
        worker.meta.off(move |meta| meta.abort_put(put)).await?;
        worker.leases().end(put);
        worker.sweep.notify_one();
        Ok(Done {})
    };
    cluster.whole(abort).await
}
