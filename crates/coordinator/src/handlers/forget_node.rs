//! Forgets a node that is gone for good. Refused if the node is alive, if blocks are placed on it, or if a volume counts on its logs.

use std::sync::Arc;

use kintsu_wire::message::{Done, NodeRef};

use super::command_node::refused;
use crate::cluster::Cluster;
use crate::driver::{holders, short_logs};
use crate::error::Result;
use crate::meta::Meta;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: NodeRef) -> Result<Done> {
    let node = request.node;
    let (worker, holders) = (cluster.clone(), holders(cluster));
    let forget = move |meta: &Meta| {
        // A node that is down gets no logs, so this scan needs no transaction.
        let (logs, _) = short_logs(&meta.snapshot()?, &holders)?;
        let logged: Vec<String> = logs.volumes_of(node).into_iter().map(str::to_owned).collect();
        let may = |placed| {
            worker.members().may_forget(node, placed, &logged)?;
            // A repair may have written there before it went down, and must not commit that any more.
            worker.places().wiped(node);
            Ok(())
        };
        meta.forget_node(node, |placed| may(placed).map_err(|why| refused(node, why)))
    };
    cluster.meta.off(forget).await?;
    // If its agent comes back just now, it must register again.
    cluster.reports().forget(node);
    cluster.members().forget(node);
    cluster.bandwidth().forget(node);
    cluster.give_way().forget(node);
    tracing::info!("{node} is forgotten");
    Ok(Done {})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::tests::{
        cluster, enlist, landing, page, put, registration, silence, stripe, volume,
    };
    use crate::handlers::{register, report_blocks};
    use kintsu_dag::{BlockId, BlockIndex, NodeId};

    #[tokio::test]
    async fn only_a_dead_node_without_blocks_is_forgotten() {
        let (_dir, cluster) = cluster(5, 1).await;
        put(&cluster, "a", 16).await;
        let tallies = cluster.meta.snapshot().unwrap().tallies().unwrap();
        let empty = (0..5).map(NodeId).find(|node| tallies.get(node).is_none_or(|t| t.0 == 0)).unwrap();
        let full = (0..5).map(NodeId).find(|node| *node != empty).unwrap();
        let forget = |node| handle(&cluster, NodeRef { node });
        assert!(forget(empty).await.unwrap_err().to_string().contains("lives"));
        silence(&cluster, &[empty.0, full.0]);
        assert!(forget(full).await.unwrap_err().to_string().contains("placed"));
        forget(empty).await.unwrap();
        assert!(matches!(forget(empty).await, Err(CoordinatorError::NotFound { .. })));
    }

    #[tokio::test]
    async fn what_was_written_to_a_node_before_it_was_forgotten_gets_no_home_there() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 16).await;
        let (stripe, record) = stripe(&cluster, "a");
        let tallies = cluster.meta.snapshot().unwrap().tallies().unwrap();
        let empty = (0..5).map(NodeId).find(|node| tallies.get(node).is_none_or(|t| t.0 == 0)).unwrap();
        let index = BlockIndex(0);
        let writing = cluster.claim(vec![(empty, BlockId { stripe, index })]).await.unwrap().unwrap();
        silence(&cluster, &[empty.0]);
        handle(&cluster, NodeRef { node: empty }).await.unwrap();
        let landing = landing(&record, index, empty);
        let check = || writing.check();
        let error = cluster.meta.rehome_if(stripe, record.generation, &[landing], check).unwrap_err();
        assert!(error.to_string().contains("forgotten meanwhile"), "{error}");
        assert_eq!(cluster.meta.snapshot().unwrap().stripe(stripe).unwrap().unwrap(), record);
    }

    #[tokio::test]
    async fn a_node_with_the_log_of_a_volume_is_not_forgotten() {
        let (_dir, cluster) = cluster(6, 3).await;
        let spare = volume(&cluster).await[0][1];
        let tallies = cluster.meta.snapshot().unwrap().tallies().unwrap();
        assert_eq!(tallies.get(&spare).map_or(0, |tally| tally.0), 0, "no block is placed there");
        silence(&cluster, &[spare.0]);
        let refused = handle(&cluster, NodeRef { node: spare }).await.unwrap_err().to_string();
        assert!(refused.contains("one that has logs of volume \"disk\""), "{refused}");
    }

    #[tokio::test]
    async fn a_node_that_is_forgotten_while_it_tells_what_it_holds_begins_anew() {
        let (_dir, cluster) = cluster(2, 1).await;
        let node = NodeId(1);
        silence(&cluster, &[node.0]);
        register::handle(&cluster, registration(node.0, 0)).await.unwrap();
        handle(&cluster, NodeRef { node }).await.unwrap();
        assert!(report_blocks::handle(&cluster, page(node, 1, Vec::new())).await.is_err());
        assert!(cluster.members().node(node).is_none(), "a live node without a record in the metadata");
        enlist(&cluster, registration(node.0, 0)).await.unwrap();
        assert!(cluster.meta.snapshot().unwrap().nodes().unwrap().contains_key(&node));
    }
}
