//! Returns what users leave of the links whose capacity is known.

use std::sync::Arc;

use kintsu_wire::message::Rates;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<Rates> {
    Ok(cluster.rates())
}
