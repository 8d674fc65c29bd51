//! An agent starts: it gets or keeps its id. The list of its blocks follows page by page (`report_blocks`), and
//! after the last page the node is alive.
//!
//! Refused: an agent of another cluster, a folder that is not the node's, a second live agent of one folder. If an
//! agent remembers more than these metadata contain, the metadata count as older: from then on nothing is deleted.

use std::sync::Arc;

use kintsu_wire::message::{Register, Registered};

use crate::cluster::Cluster;
use crate::driver;
use crate::error::Result;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Register) -> Result<Registered> {
    driver::register(cluster, request).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::error::CoordinatorError;
    use crate::handlers::tests::{begin, cluster, enlist, put, registration, reopen, reopen_with, silence};
    use crate::handlers::{begin_put, heartbeat};
    use crate::meta::MOST_ID;
    use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
    use kintsu_wire::message::{DiskUsage, Heartbeat, NodeState};
    use kintsu_wire::{ClusterId, FolderId, Seen};

    fn beat(node: u32, incarnation: u64) -> Heartbeat {
        Heartbeat {
            node: NodeId(node),
            incarnation,
            usage: DiskUsage::default(),
            running: 0,
            failed: None,
            counters: Default::default(),
        }
    }

    #[tokio::test]
    async fn ids_are_given_once_and_kept() {
        let (dir, cluster) = cluster(3, 1).await;
        let new = |folder| Register {
            node: None,
            dir: "/same".into(),
            folder: FolderId([folder; 16]),
            ..registration(0, 0)
        };
        assert_eq!(enlist(&cluster, new(91)).await.unwrap(), NodeId(3));
        assert_eq!(enlist(&cluster, new(91)).await.unwrap(), NodeId(3), "the reply was lost");
        cluster.close().await.unwrap();
        let cluster = reopen(&dir);
        assert_eq!(enlist(&cluster, new(92)).await.unwrap(), NodeId(4), "an equal path is another folder");
        assert_eq!(cluster.members().node(NodeId(3)).unwrap().state(), NodeState::Alive);
        let own = Register { node: Some(NodeId::CLIENT), ..registration(0, 0) };
        assert!(matches!(handle(&cluster, own).await, Err(CoordinatorError::Invalid { .. })));
    }

    #[tokio::test]
    async fn an_agent_of_another_cluster_is_refused_and_changes_nothing() {
        let (_dir, cluster) = cluster(2, 1).await;
        let foreign = ClusterId([9; 16]);
        let stranger =
            Register { node: None, cluster: Some(foreign), folder: FolderId([77; 16]), ..registration(0, 0) };
        let text = handle(&cluster, stranger).await.unwrap_err().to_string();
        assert!(text.contains(&foreign.to_string()) && text.contains(&cluster.id.to_string()), "{text}");
        assert_eq!(cluster.meta.snapshot().unwrap().nodes().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn a_second_agent_of_one_folder_is_refused_while_the_first_lives() {
        let (_dir, cluster) = cluster(2, 1).await;
        let alive = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let control = alive.local_addr().unwrap();
        enlist(&cluster, Register { control, incarnation: 2, ..registration(1, 0) }).await.unwrap();
        let second = Register { incarnation: 3, ..registration(1, 0) };
        let error = handle(&cluster, second.clone()).await.unwrap_err();
        assert!(error.to_string().contains("/node1"), "{error}");
        assert!(heartbeat::handle(&cluster, beat(1, 3)).await.unwrap().register_again);
        assert!(!heartbeat::handle(&cluster, beat(1, 2)).await.unwrap().register_again);
        // The first agent was killed: the next one need not wait until that one counts as dead.
        drop(alive);
        enlist(&cluster, second).await.unwrap();
        assert!(!heartbeat::handle(&cluster, beat(1, 3)).await.unwrap().register_again);
        silence(&cluster, &[1]);
    }

    #[tokio::test]
    async fn what_was_written_to_a_folder_that_was_replaced_is_not_committed() {
        let (_dir, cluster) = cluster(3, 1).await;
        let id = BlockId { stripe: StripeId(1), index: BlockIndex(0) };
        let writing = cluster.claim(vec![(NodeId(1), id)]).await.unwrap().unwrap();
        enlist(&cluster, Register { incarnation: 2, ..registration(1, 0) }).await.unwrap();
        writing.check().unwrap();
        let folder = FolderId([77; 16]);
        let new = Register { incarnation: 3, folder, replace: true, ..registration(1, 0) };
        enlist(&cluster, new).await.unwrap();
        assert!(writing.check().is_err());
        drop(writing);
        let again = cluster.claim(vec![(NodeId(1), id)]).await.unwrap().unwrap();
        again.check().unwrap();
    }

    #[tokio::test]
    async fn what_an_agent_lacks_is_lost() {
        let (_dir, cluster) = cluster(4, 1).await;
        put(&cluster, "a", 48).await;
        enlist(&cluster, Register { incarnation: 2, ..registration(2, 0) }).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().tallies().unwrap()[&NodeId(2)], (2, 2));
    }

    #[tokio::test]
    async fn an_agent_that_remembers_more_stops_all_deletion() {
        let (dir, cluster) = cluster(2, 1).await;
        let known = cluster.seen().expect("an empty cluster trusts itself");
        enlist(&cluster, Register { incarnation: 2, seen: Some(known), ..registration(0, 0) }).await.unwrap();
        assert!(cluster.gate().is_open());
        let later = Seen { history: known.history + 1000, ..known };
        let ahead = Register { incarnation: 3, seen: Some(later), next_stripe: 50, ..registration(1, 0) };
        let reply = handle(&cluster, ahead.clone()).await.unwrap();
        assert_eq!(reply.seen, None, "it goes on remembering the newer metadata");
        assert!(!cluster.gate().is_open() && cluster.gate().is_behind());
        assert!(cluster.gate().reasons()[0].contains("N1"), "{:?}", cluster.gate().reasons());
        assert!(cluster.meta.snapshot().unwrap().next_stripe().unwrap() > 50);
        cluster.close().await.unwrap();
        let again = reopen(&dir);
        assert!(again.gate().is_behind(), "a restart does not make them newer");
        again.close().await.unwrap();
        let mut config = crate::handlers::tests::config(&dir);
        config.accept_older = true;
        let accepted = Arc::new(Cluster::open(config, kintsu_wire::Credentials::none()).unwrap());
        assert!(!accepted.gate().is_behind());
        handle(&accepted, ahead.clone()).await.unwrap();
        // An agent that was away when the operator decided.
        let other = Seen { nonce: known.nonce ^ 1, ..later };
        let late = Register { incarnation: 4, seen: Some(other), ..registration(0, 0) };
        handle(&accepted, late.clone()).await.unwrap();
        assert!(!accepted.gate().is_behind(), "what is accepted stays accepted");
        accepted.close().await.unwrap();
        let after = reopen(&dir);
        handle(&after, ahead).await.unwrap();
        handle(&after, late).await.unwrap();
        assert!(!after.gate().is_behind(), "also after the next start");
    }

    #[tokio::test]
    async fn a_put_gets_no_id_before_agents_have_said_whether_it_is_in_use() {
        let (dir, first) = cluster(4, 2).await;
        first.close().await.unwrap();
        // The put waits for two heartbeats at most.
        let cluster = reopen_with(&dir, |config| config.heartbeat = Duration::from_secs(10));
        let putting = tokio::spawn({
            let cluster = cluster.clone();
            async move { begin_put::handle(&cluster, begin("a", 16)).await }
        });
        // The metadata are older: an agent holds a block of stripe 40.
        for node in 0..4 {
            tokio::task::yield_now().await;
            assert!(!putting.is_finished());
            let next_stripe = if node == 3 { 41 } else { 0 };
            enlist(&cluster, Register { incarnation: 2, next_stripe, ..registration(node, node % 2) })
                .await
                .unwrap();
        }
        let ticket = putting.await.unwrap().unwrap();
        assert!(ticket.stripes[0].id > StripeId(40), "{:?}", ticket.stripes);
    }

    #[tokio::test]
    async fn no_agent_makes_ids_of_stripes_run_out() {
        let (_dir, cluster) = cluster(4, 2).await;
        let id = async |name| begin_put::handle(&cluster, begin(name, 16)).await.unwrap().stripes[0].id;
        let first = id("a").await;
        for beyond in [MOST_ID + 1, u64::MAX] {
            let ahead = Register { incarnation: 3, next_stripe: beyond, ..registration(1, 0) };
            let refused = handle(&cluster, ahead).await.unwrap_err();
            assert!(matches!(refused, CoordinatorError::Invalid { .. }), "{refused}");
        }
        assert!(!cluster.gate().is_behind() && id("b").await > first);
        let ahead = Register { incarnation: 3, next_stripe: MOST_ID, ..registration(1, 0) };
        handle(&cluster, ahead).await.unwrap();
        let third = id("c").await;
        assert!(third >= StripeId(MOST_ID) && id("d").await > third);
    }

    #[tokio::test]
    async fn blocks_of_stripes_that_were_never_given_show_that_metadata_are_older() {
        let (_dir, cluster) = cluster(2, 1).await;
        let ahead = Register { incarnation: 3, next_stripe: 1 << 20, ..registration(1, 0) };
        handle(&cluster, ahead).await.unwrap();
        assert!(cluster.gate().is_behind());
    }
}
