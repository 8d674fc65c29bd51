//! A client tells how long its last operations took.

use std::sync::Arc;

use kintsu_wire::message::{Done, Felt};

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Felt) -> Result<Done> {
    cluster.tallies().felt(&request.micros);
    cluster.give_way().felt(&request.micros);
    Ok(Done {})
}
