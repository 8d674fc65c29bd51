//! All blocks of a put are durable: the whole object becomes visible in one transaction. Repeating the call is
//! harmless; a client may repeat it if it lost the reply.
//!
//! Nodes that were restarted or wiped after the put wrote to them are asked whether they still have the blocks. If
//! one does not, nothing becomes visible, and the client is told which stripes to write again.

use std::sync::Arc;

use kintsu_wire::message::{CommitPut, CommitReply, RefusedStripe};

use super::begin_put::grant;
use super::change;
use crate::cluster::Cluster;
use crate::driver::{self, Committed, With};
use crate::engine::commit::Refusal;
use crate::error::{CoordinatorError, Result};

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CommitPut) -> Result<CommitReply> {
    let CommitPut { put, stripes, checksum, ending } = request;
    if let Some(ending) = &ending {
        change::check(&ending.change)?;
    }
    let with = With { checksum, ending, members: None, code: change::code_of_nothing()? };
    let committing = driver::commit(cluster.clone(), put, stripes.into(), with);
    let committed = cluster.whole(committing).await?;
    Ok(match committed {
        Committed::Visible(object) => CommitReply::Visible(object),
        Committed::Refused(refusals) => CommitReply::Refused(refused(cluster, refusals)),
        Committed::Unmet(check) => CommitReply::Unmet(check),
        Committed::Pack(_) => return Err(CoordinatorError::Internal("a put ended as a pack".into())),
    })
}

/// Stripes that must be written again, as their client sees them.
pub fn refused(cluster: &Cluster, refusals: Vec<Refusal>) -> Vec<RefusedStripe> {
    let shown = |Refusal { stripe, node, detail }| {
        let offset = stripe.offset;
        RefusedStripe { offset, grant: grant(cluster, stripe), node, detail }
    };
    refusals.into_iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{
        begin, cluster, enlist, registration, reopen, silence, until, visible, written,
    };
    use crate::handlers::{begin_put, lookup, register};
    use kintsu_dag::NodeId;
    use kintsu_wire::message::{Encoding, Lookup, Register, WrittenStripe};

    #[tokio::test]
    async fn an_object_is_visible_after_its_commit_and_not_before() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let view =
            || lookup::handle(&cluster, Lookup { name: "a".into(), first: 1, limit: 2, at: None, id: None });
        assert!(matches!(view().await, Err(CoordinatorError::NotFound { .. })));
        let stripes = written(&ticket, Encoding::Online, 2);
        let commit = || CommitPut { put: ticket.put, stripes: stripes.clone(), checksum: None, ending: None };
        let info = visible(handle(&cluster, commit()).await.unwrap());
        assert_eq!(visible(handle(&cluster, commit()).await.unwrap()), info);
        let view = view().await.unwrap();
        assert_eq!((view.object.size, view.object.stripes, view.object.encoded), (100, 4, true));
        assert_eq!(view.stripes.iter().map(|s| s.offset).collect::<Vec<_>>(), [32, 64]);
        assert!(view.nodes.iter().all(|n| n.alive));
    }

    #[tokio::test]
    async fn a_put_that_is_not_renewed_is_undone() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let late = cluster.leases().expired(u64::MAX);
        assert_eq!(late, [ticket.put]);
        cluster.meta.abort_put(ticket.put).unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        let error = handle(&cluster, CommitPut { put: ticket.put, stripes, checksum: None, ending: None })
            .await
            .unwrap_err();
        assert!(error.to_string().contains("lease"), "{error}");
    }

    #[tokio::test]
    async fn a_put_that_was_committed_has_no_lease_though_its_caller_is_gone() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        {
            let mut call = std::pin::pin!(handle(
                &cluster,
                CommitPut { put: ticket.put, stripes, checksum: None, ending: None }
            ));
            assert!(futures::poll!(&mut call).is_pending());
        }
        until(|| cluster.meta.snapshot().unwrap().totals().unwrap().objects == 1).await;
        until(|| cluster.leases().expired(u64::MAX).is_empty()).await;
        assert!(!cluster.leases().renew(ticket.put, 0));
    }

    /// Stripes that a commit refuses.
    async fn refusals(cluster: &Arc<Cluster>, put: u64, stripes: Vec<WrittenStripe>) -> Vec<RefusedStripe> {
        match handle(cluster, CommitPut { put, stripes, checksum: None, ending: None }).await.unwrap() {
            CommitReply::Refused(stripes) => stripes,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_node_that_was_started_again_must_show_its_blocks() {
        let (dir, first) = cluster(4, 2).await;
        let ticket = begin_put::handle(&first, begin("a", 60)).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        register::handle(&first, Register { incarnation: 2, ..registration(1, 1) }).await.unwrap();
        // No agent listens there: the node cannot be asked, but it is not dead. The fence outlasts the
        // coordinator.
        first.close().await.unwrap();
        let cluster = reopen(&dir);
        let refused = refusals(&cluster, ticket.put, stripes.clone()).await;
        let ids: Vec<_> = refused.iter().map(|r| r.grant.id).collect();
        assert_eq!(ids, stripes.iter().map(|s| s.id).collect::<Vec<_>>());
        assert!(refused.iter().all(|r| r.node == NodeId(1)), "{refused:?}");
        assert!(refused[0].detail.contains("cannot be asked"), "{}", refused[0].detail);
        assert_eq!((refused[0].offset, refused[1].offset), (0, 32));
        let totals = cluster.meta.snapshot().unwrap().totals().unwrap();
        assert_eq!((totals.objects, totals.puts), (0, 1));
    }

    #[tokio::test]
    async fn a_wipe_is_noticed_though_the_agent_was_not_started_again() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 60)).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        assert!(cluster.meta.bump_epoch(NodeId(2)).unwrap());
        let refused = refusals(&cluster, ticket.put, stripes).await;
        assert!(refused.len() == 2 && refused.iter().all(|r| r.node == NodeId(2)), "{refused:?}");
        // The epoch outlasts another registration of the same agent.
        register::handle(&cluster, registration(2, 0)).await.unwrap();
        assert_eq!(cluster.meta.snapshot().unwrap().nodes().unwrap()[&NodeId(2)].epoch, 1);
    }

    #[tokio::test]
    async fn blocks_on_dead_nodes_are_lost_from_the_start_where_that_can_be_borne() {
        let (_dir, cluster) = cluster(4, 4).await;
        let ticket = begin_put::handle(&cluster, begin("a", 60)).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        silence(&cluster, &[0, 1, 3]);
        let refused = refusals(&cluster, ticket.put, stripes.clone()).await;
        assert!(refused.len() == 2 && refused[0].detail.contains("cannot be read"), "{refused:?}");
        enlist(&cluster, registration(3, 3)).await.unwrap();
        visible(
            handle(&cluster, CommitPut { put: ticket.put, stripes, checksum: None, ending: None })
                .await
                .unwrap(),
        );
        let tallies = cluster.meta.snapshot().unwrap().tallies().unwrap();
        assert_eq!((tallies[&NodeId(0)], tallies[&NodeId(1)]), ((2, 2), (2, 2)));
        assert_eq!((tallies[&NodeId(2)], tallies[&NodeId(3)]), ((2, 0), (2, 0)));
    }

    #[tokio::test]
    async fn without_parity_no_dead_node_can_be_borne() {
        let (_dir, cluster) = cluster(4, 4).await;
        let begin = kintsu_wire::message::BeginPut { encoding: Encoding::Offline, ..begin("a", 30) };
        let ticket = begin_put::handle(&cluster, begin).await.unwrap();
        let stripes = written(&ticket, Encoding::Offline, 2);
        let home = ticket.stripes[0].homes[0].unwrap();
        silence(&cluster, &[home.0]);
        let refused = refusals(&cluster, ticket.put, stripes).await;
        assert!(refused.len() == 1 && refused[0].node == home, "{refused:?}");
    }
}
