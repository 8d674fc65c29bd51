//! An agent starts: it gets or keeps its id, and what it holds is compared with what it should hold.
//!
//! What it lacks or holds otherwise is flagged lost; what nobody needs becomes garbage and is
//! deleted by calls that the agent confirms (the reply names none). Refused: a second live agent with
//! the id of another one.

use std::sync::Arc;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Register, Registered};

use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::NodeRecord;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Register) -> Result<Registered> {
    let record = NodeRecord {
        rack: request.rack,
        control: request.control,
        data: request.data,
        dir: request.dir,
        incarnation: request.incarnation,
        draining: false,
        stopped: false,
    };
    if let Some(node) = request.node {
        check(cluster, node, &record)?;
    }
    let asked = request.node;
    let enrolled = cluster.meta.off(move |meta| meta.enroll(asked, record)).await?;
    let node = enrolled.node;
    let blocks = request.blocks;
    let worker = cluster.clone();
    // While the comparison runs, its blocks cannot be written: the node is not usable before it is
    // enrolled below, unless it is only registering again.
    let lost = cluster
        .meta
        .off(move |meta| {
            let keep = worker.written_to(node);
            let comparison = meta.snapshot()?.compare(node, &blocks)?;
            meta.reconcile(node, &comparison, &blocks, &keep)
        })
        .await?;
    cluster.members().enrolled(node, enrolled.record, cluster.now_ms());
    cluster.auto().nodes_changed();
    cluster.sweep.notify_one();
    match lost.len() {
        0 => tracing::info!("{node} is here"),
        n => tracing::warn!("{node} is here, but {n} of its blocks are missing or not as recorded"),
    }
    let heartbeat_ms = cluster.config.heartbeat.as_millis() as u64;
    Ok(Registered { node, heartbeat_ms, delete: Vec::new() })
}

fn check(cluster: &Cluster, node: NodeId, record: &NodeRecord) -> Result<()> {
    if node.is_client() {
        return Err(CoordinatorError::Invalid {
            what: "node id",
            expected: format!("at most {}", u32::MAX - 1),
            got: node.0.to_string(),
        });
    }
    let members = cluster.members();
    match members.rival(node, record, cluster.now_ms()) {
        None => Ok(()),
        Some(rival) => Err(CoordinatorError::Exists {
            what: "node id",
            name: node.0.to_string(),
            hint: format!(": a live agent on {} has it", rival.record.dir),
        }),
    }
}
