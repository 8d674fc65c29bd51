//! Lists the blocks that one node, or every node, has set aside.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{AsideBlock, NodeQuarantine, Nothing, Quarantine, QuarantineList};

use crate::cluster::{Cluster, unknown_node};
use crate::error::Result;

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Quarantine) -> Result<QuarantineList> {
    let nodes: Vec<(NodeId, u64, bool)> = {
        let members = cluster.members();
        let wanted = |node: &NodeId| request.node.is_none_or(|wanted| wanted == *node);
        let all = members.iter().filter(|(node, _)| wanted(node));
        all.map(|(node, m)| (node, m.record.held, m.up)).collect()
    };
    if let (Some(node), true) = (request.node, nodes.is_empty()) {
        return Err(unknown_node(node));
    }
    let looks = nodes.into_iter().map(|(node, held, up)| async move {
        let looked = if up { look(cluster, node).await } else { Err("the node is not alive".to_owned()) };
        match looked {
            Ok(aside) => NodeQuarantine { node, held, aside, error: None },
            Err(error) => NodeQuarantine { node, held, aside: Vec::new(), error: Some(error) },
        }
    });
    let nodes = futures::future::join_all(looks).await;
    Ok(QuarantineList { nodes, keep_s: cluster.config.quarantine_keep.as_secs() })
}

async fn look(cluster: &Arc<Cluster>, node: NodeId) -> Result<Vec<AsideBlock>, String> {
    let mut agent = cluster.agent(node).map_err(|e| e.to_string())?;
    match tokio::time::timeout(PATIENCE, agent.aside(Nothing {})).await {
        Ok(Ok(reply)) => Ok(reply.into_inner().aside),
        Ok(Err(status)) => Err(status.message().to_owned()),
        Err(_) => Err(format!("no answer within {PATIENCE:?}")),
    }
}
