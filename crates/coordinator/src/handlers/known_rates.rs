//! Tells what is known of the links and disks, and how.

use std::sync::Arc;

use kintsu_wire::message::KnownRates;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<KnownRates> {
    let told = cluster.told_rates();
    Ok(cluster.bandwidth().known(&told))
}
