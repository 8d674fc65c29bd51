//! Verifies all blocks on one node or on all living nodes, and repairs the damage that it finds.

use std::sync::Arc;

use kintsu_wire::message::Scrub;

use crate::cluster::{Cluster, unknown_node};
use crate::driver::{self, Job, Listener};
use crate::engine::jobs::Work;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Scrub, listener: Listener) -> Result<()> {
    let nodes: Vec<_> = {
        let members = cluster.members();
        match request.node {
            None => members.iter().filter(|(_, m)| m.up).map(|(id, _)| id).collect(),
            Some(node) if members.node(node).is_none() => return Err(unknown_node(node)),
            Some(node) if !members.readable(node) => {
                return Err(CoordinatorError::Unavailable { node, reason: "expected a living node".into() });
            }
            Some(node) => vec![node],
        }
    };
    let what = request.node.map_or("all living nodes".into(), |node| format!("node {}", node.0));
    let job = Job::begin(cluster, Work::Scrub, what, Some(listener));
    cluster.spawn(driver::scrub(cluster.clone(), nodes, job));
    Ok(())
}
