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
        epoch: 0,
    };
    if let Some(node) = request.node {
        check(cluster, node, &record)?;
    }
    let asked = request.node;
    let enrolled = cluster.meta.off(move |meta| meta.enroll(asked, record)).await?;
    let node = enrolled.node;
    let blocks = request.blocks;
    let _turn = cluster.registering.acquire().await;
    let worker = cluster.clone();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::heartbeat;
    use crate::handlers::tests::{cluster, put, registration, reopen, silence};
    use kintsu_wire::message::{DiskUsage, Heartbeat, NodeState};

    fn beat(node: u32, incarnation: u64) -> Heartbeat {
        Heartbeat { node: NodeId(node), incarnation, usage: DiskUsage::default(), running: 0 }
    }

    #[tokio::test]
    async fn ids_are_given_once_and_kept() {
        let (dir, cluster) = cluster(3, 1).await;
        let new = Register { node: None, dir: "/new".into(), ..registration(0, 0) };
        let given = handle(&cluster, new.clone()).await.unwrap();
        assert_eq!(given.node, NodeId(3));
        drop(cluster);
        let cluster = reopen(&dir);
        assert_eq!(handle(&cluster, new).await.unwrap().node, NodeId(4));
        assert_eq!(cluster.members().node(NodeId(3)).unwrap().state(), NodeState::Alive);
        let own = Register { node: Some(NodeId::CLIENT), ..registration(0, 0) };
        assert!(matches!(handle(&cluster, own).await, Err(CoordinatorError::Invalid { .. })));
    }

    #[tokio::test]
    async fn a_second_agent_of_one_id_is_refused_while_the_first_lives() {
        let (_dir, cluster) = cluster(2, 1).await;
        let second = Register { dir: "/other".into(), incarnation: 2, ..registration(1, 0) };
        let error = handle(&cluster, second.clone()).await.unwrap_err();
        assert!(error.to_string().contains("/node1"), "{error}");
        let restarted = Register { incarnation: 3, ..registration(1, 0) };
        handle(&cluster, restarted).await.unwrap();
        assert!(heartbeat::handle(&cluster, beat(1, 1)).await.unwrap().register_again);
        assert!(!heartbeat::handle(&cluster, beat(1, 3)).await.unwrap().register_again);
        silence(&cluster, &[1]);
        handle(&cluster, second).await.unwrap();
    }

    #[tokio::test]
    async fn what_an_agent_lacks_is_lost() {
        let (_dir, cluster) = cluster(4, 1).await;
        put(&cluster, "a", 48).await;
        let again = Register { incarnation: 2, ..registration(2, 0) };
        handle(&cluster, again).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().tallies().unwrap()[&NodeId(2)], (2, 2));
    }
}
