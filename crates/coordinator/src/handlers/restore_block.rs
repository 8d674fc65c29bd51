//! Has a node take a block back out of its quarantine. If the metadata list the block as lost, it counts as found.

use std::sync::Arc;

use kintsu_wire::message::{HeldBlock, RestoreBlock, TakeBack};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: RestoreBlock) -> Result<HeldBlock> {
    let RestoreBlock { node, name } = request;
    let mut agent = cluster.agent(node)?;
    let unavailable = |s: tonic::Status| CoordinatorError::Unavailable { node, reason: s.message().into() };
    let held = agent.take_back(TakeBack { name }).await.map_err(unavailable)?.into_inner();
    driver::welcome(cluster, node, &held).await?;
    Ok(held)
}
