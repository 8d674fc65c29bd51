//! Returns the rates of the links, as they were told to the cluster.

use std::sync::Arc;

use kintsu_wire::message::Rates;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<Rates> {
    Ok(Rates::clone(&cluster.rates()))
}
