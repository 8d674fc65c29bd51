//! All blocks of a put are durable: the whole object becomes visible in one transaction. Repeating the call is
//! harmless; a client may repeat it if it lost the reply.
//!
//! Nodes that were restarted or wiped after the put wrote to them are asked whether they still have the blocks. If
//! one does not, nothing becomes visible, and the client is told which stripes to write again.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_wire::message::{
    BlockRef, CommitPut, CommitReply, HeldBlock, LookBlocks, RefusedStripe, WrittenStripe,
};

use super::begin_put::grant;
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Commit, Doubt, Evidence, Fence, Meta, Refusal, Told};

/// How many times the commit is tried. After each failed try, the doubtful nodes are asked.
const ROUNDS: usize = 5;
/// Most blocks that one call asks an agent about.
const LOOK_BATCH: usize = 1000;
/// How long an agent may take to check a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: CommitPut) -> Result<CommitReply> {
    let (put, worker) = (request.put, cluster.clone());
    let commit = async move {
        let committed = commit(&worker, put, request.stripes.into()).await;
        if matches!(committed, Ok(CommitReply::Visible(_)) | Err(CoordinatorError::Exists { .. })) {
            worker.leases().end(put);
            // The blocks of a replaced object, or of this put, may have become garbage.
            worker.sweep.notify_one();
        }
        committed
    };
    cluster.whole(commit).await
}

async fn commit(cluster: &Arc<Cluster>, put: u64, written: Arc<[WrittenStripe]>) -> Result<CommitReply> {
    let mut told: Arc<BTreeMap<NodeId, Told>> = Arc::default();
    let mut restless = None;
    for _ in 0..ROUNDS {
        let down = cluster.members().down();
        let (now, worker, written, known) =
            (cluster.unix_seconds(), cluster.clone(), written.clone(), told.clone());
        let tried = move |meta: &Meta| {
            // The code is needed only if nodes are dead.
            let code = OnceCell::new();
            let bearable = |lost: &[BlockIndex]| {
                let code = code.get_or_init(|| code_of(&worker, meta, put).ok().flatten());
                code.as_ref().is_some_and(|code| code.recoverable(lost))
            };
            let evidence = Evidence { down: &down, told: &known, bearable: &bearable };
            meta.try_commit(put, &written, now, &evidence)
        };
        match cluster.meta.off(tried).await? {
            Commit::Visible(object) => return Ok(CommitReply::Visible(object)),
            Commit::Refused(refusals) => {
                tracing::info!("put {put}: {} stripes must be written again", refusals.len());
                return Ok(CommitReply::Refused(refusals.into_iter().map(refused).collect()));
            }
            Commit::Unsure(doubts) => {
                restless = doubts.first().map(|doubt| doubt.node);
                let answers = doubts.into_iter().map(|doubt| ask(cluster, doubt));
                let answers = futures::future::join_all(answers).await;
                told = Arc::new(answers.into_iter().collect());
                if cluster.stop.is_cancelled() {
                    break;
                }
            }
        }
    }
    Err(CoordinatorError::Conflict {
        what: format!("commit of put {put}"),
        expected: "nodes that are not restarted while they are asked for its blocks".into(),
        got: format!("{} restarted again and again", restless.map_or("one".into(), |node| node.to_string())),
    })
}

/// The code of a put under way.
fn code_of(cluster: &Arc<Cluster>, meta: &Meta, put: u64) -> Result<Option<Arc<dyn Code>>> {
    meta.snapshot()?.put(put)?.map(|put| cluster.code(put.code)).transpose()
}

fn refused(refusal: Refusal) -> RefusedStripe {
    let Refusal { stripe, node, detail } = refusal;
    RefusedStripe { offset: stripe.offset, grant: grant(stripe), node, detail }
}

/// Asks a node which of these blocks it still holds exactly as they were written.
async fn ask(cluster: &Arc<Cluster>, doubt: Doubt) -> (NodeId, Told) {
    let Doubt { node, fence, blocks } = doubt;
    let mut told = Told { fence, there: HashSet::new(), missing: HashMap::new() };
    let mut silent = registered(cluster, node, fence).await.err();
    for batch in blocks.chunks(LOOK_BATCH) {
        let found = match &silent {
            None => look(cluster, node, batch).await,
            Some(reason) => Err(String::clone(reason)),
        };
        match found {
            Ok(found) => {
                for (want, got) in batch.iter().zip(found) {
                    match got {
                        Some(got) if got == *want => drop(told.there.insert(want.id)),
                        got => drop(told.missing.insert(want.id, difference(node, want, got.as_ref()))),
                    }
                }
            }
            Err(reason) => {
                let detail =
                    format!("{node} was started again or wiped after it was written to, and {reason}");
                told.missing.extend(batch.iter().map(|want| (want.id, detail.clone())));
                silent = Some(reason);
            }
        }
    }
    (node, told)
}

/// Waits until a restarted node can be asked: it must register and report its blocks first.
async fn registered(cluster: &Arc<Cluster>, node: NodeId, fence: Option<Fence>) -> Result<(), String> {
    let until = cluster.now_ms() + PATIENCE.as_millis() as u64;
    let known = || {
        let members = cluster.members();
        let member = members.node(node).filter(|member| member.up);
        member.is_none_or(|member| fence.is_none_or(|fence| fence.incarnation == member.record.incarnation))
    };
    while !known() {
        if cluster.now_ms() > until || cluster.stop.is_cancelled() {
            return Err("has not reported its blocks yet".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn look(
    cluster: &Arc<Cluster>,
    node: NodeId,
    blocks: &[HeldBlock],
) -> Result<Vec<Option<HeldBlock>>, String> {
    let mut agent = cluster.agent(node).map_err(|e| e.to_string())?;
    let wanted = blocks.iter().map(|b| BlockRef { id: b.id, generation: b.generation }).collect();
    let looking = tokio::time::timeout(PATIENCE, agent.look(LookBlocks { blocks: wanted }));
    let found = match cluster.stop.run_until_cancelled(looking).await {
        Some(Ok(Ok(found))) => found.into_inner().blocks,
        Some(Ok(Err(status))) => return Err(format!("cannot be asked for its blocks: {}", status.message())),
        Some(Err(_)) => return Err(format!("did not answer within {PATIENCE:?}")),
        None => return Err("cannot be asked: the coordinator ends".into()),
    };
    if found.len() == blocks.len() {
        return Ok(found);
    }
    Err(format!("answered for {} blocks, expected {}", found.len(), blocks.len()))
}

fn difference(node: NodeId, want: &HeldBlock, got: Option<&HeldBlock>) -> String {
    let what = match got {
        None => "it does not have the block any more",
        Some(_) => "it has another block in its place",
    };
    format!("{} on {node}: {node} was started again or wiped after it was written to, and {what}", want.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{
        begin, cluster, enlist, registration, reopen, silence, until, visible, written,
    };
    use crate::handlers::{begin_put, lookup, register};
    use kintsu_wire::message::{Encoding, Lookup, Register};

    #[tokio::test]
    async fn an_object_is_visible_after_its_commit_and_not_before() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let view = || lookup::handle(&cluster, Lookup { name: "a".into(), first: 1, limit: 2 });
        assert!(matches!(view().await, Err(CoordinatorError::NotFound { .. })));
        let stripes = written(&ticket, Encoding::Online, 2);
        let commit = || CommitPut { put: ticket.put, stripes: stripes.clone() };
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
        let error = handle(&cluster, CommitPut { put: ticket.put, stripes }).await.unwrap_err();
        assert!(error.to_string().contains("lease"), "{error}");
    }

    #[tokio::test]
    async fn a_put_that_was_committed_has_no_lease_though_its_caller_is_gone() {
        let (_dir, cluster) = cluster(4, 2).await;
        let ticket = begin_put::handle(&cluster, begin("a", 100)).await.unwrap();
        let stripes = written(&ticket, Encoding::Online, 2);
        {
            let mut call = std::pin::pin!(handle(&cluster, CommitPut { put: ticket.put, stripes }));
            assert!(futures::poll!(&mut call).is_pending());
        }
        until(|| cluster.meta.snapshot().unwrap().totals().unwrap().objects == 1).await;
        until(|| cluster.leases().expired(u64::MAX).is_empty()).await;
        assert!(!cluster.leases().renew(ticket.put, 0));
    }

    /// Stripes that a commit refuses.
    async fn refusals(cluster: &Arc<Cluster>, put: u64, stripes: Vec<WrittenStripe>) -> Vec<RefusedStripe> {
        match handle(cluster, CommitPut { put, stripes }).await.unwrap() {
            CommitReply::Refused(stripes) => stripes,
            CommitReply::Visible(object) => panic!("{object:?} is visible"),
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
        drop(first);
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
        visible(handle(&cluster, CommitPut { put: ticket.put, stripes }).await.unwrap());
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
