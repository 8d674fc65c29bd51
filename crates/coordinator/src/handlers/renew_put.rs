//! A client is still writing: the lease of its put starts again with its full length.

use std::sync::Arc;

use kintsu_wire::message::{Done, PutRef};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: PutRef) -> Result<Done> {
    if cluster.leases().renew(request.put, cluster.now_ms()) {
        return Ok(Done {});
    }
    Err(CoordinatorError::NotFound {
        what: "put (it ended, or its lease ran out)",
        name: request.put.to_string(),
    })
}
