//! Tells the settings of the cluster.

use std::sync::Arc;

use kintsu_wire::message::Settings;

use crate::cluster::Cluster;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>) -> Result<Settings> {
    Ok(cluster.give_way().settings())
}
