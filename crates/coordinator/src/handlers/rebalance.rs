//! Moves blocks from fuller to emptier nodes.

use std::sync::Arc;

use kintsu_wire::message::Nothing;

use crate::cluster::Cluster;
use crate::driver::{self, Listener};
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, _: Nothing, listener: Listener) -> Result<()> {
    driver::order_rebalance(cluster, listener).await
}
