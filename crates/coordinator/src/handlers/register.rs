//! An agent starts: it gets or keeps its id. The list of its blocks follows page by page (`report_blocks`), and
//! after the last page the node is alive.
//!
//! Refused: an agent of another cluster, a folder that is not the node's, a second live agent of one folder. If an
//! agent remembers more than these metadata contain, the metadata count as older: from then on nothing is deleted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Register, Registered};

use super::report_blocks::Report;
use crate::cluster::Cluster;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Applicant, Meta, NodeRecord};

/// How long an agent that may be a rival has to accept a connection.
const ANSWER: Duration = Duration::from_secs(1);

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Register) -> Result<Registered> {
    if let Some(other) = request.cluster.filter(|other| *other != cluster.id) {
        tracing::warn!(
            "{} belongs to cluster {other}, not to this one, {}: refused",
            request.dir,
            cluster.id
        );
        return Err(CoordinatorError::Conflict {
            what: format!("registration of {}", request.dir),
            expected: format!("a folder of cluster {}", cluster.id),
            got: format!("one of cluster {other}; nothing was changed"),
        });
    }
    if let Some(node) = request.node {
        check_rival(cluster, node, request.control, request.incarnation).await?;
    }
    look_back(cluster, &request).await?;
    let Register { rack, control, data, dir, incarnation, .. } = request;
    let mut record = NodeRecord::new(rack, control, data, dir, incarnation);
    (record.name, record.rack_name) = (request.name, request.rack_name);
    let Register { node, folder, replace, moved, .. } = request;
    let applicant = Applicant { node, folder, replace, moved, record };
    let worker = cluster.clone();
    let enroll = move |meta: &Meta| {
        let enrolled = meta.enroll(applicant)?;
        if enrolled.replaced {
            // Repairs may have written to the folder that is gone. They must not commit that after the new folder's
            // list was compared.
            worker.places().wiped(enrolled.node);
        }
        Ok(enrolled)
    };
    let enrolled = cluster.meta.off(enroll).await?;
    let node = enrolled.node;
    cluster.members().called(node);
    if enrolled.replaced {
        tracing::warn!("{node} has another folder from now on: {folder}");
    }
    cluster.reports().insert(node, Report::new(enrolled.record, enrolled.ran, request.blocks));
    let heartbeat_ms = cluster.config.heartbeat.as_millis() as u64;
    let labels = cluster.is_rebuilding();
    if labels && cluster.rebuild().begins(node) {
        // It reports its blocks again: what it reported before may have moved since.
        cluster.meta.off(move |meta| meta.forget_found_on(node)).await?;
    }
    Ok(Registered { node, cluster: cluster.id, heartbeat_ms, seen: cluster.seen(), labels })
}

/// Refuses to replace an agent that still accepts connections.
async fn check_rival(cluster: &Cluster, node: NodeId, control: SocketAddr, incarnation: u64) -> Result<()> {
    let rival = {
        let members = cluster.members();
        let rival = members.rival(node, control, incarnation, cluster.now_ms());
        rival.map(|m| (m.record.control, m.record.dir.clone()))
    };
    let Some((address, dir)) = rival else { return Ok(()) };
    match tokio::time::timeout(ANSWER, kintsu_wire::net::TcpStream::connect(address)).await {
        Ok(Ok(_)) => Err(CoordinatorError::Exists {
            what: "node id",
            name: node.0.to_string(),
            hint: format!(": a live agent on {dir} at {address} has it"),
        }),
        _ => Ok(()),
    }
}

/// Checks whether the agent remembers more than these metadata contain. If so, they count as older from now on.
async fn look_back(cluster: &Arc<Cluster>, request: &Register) -> Result<()> {
    let (seen, next_stripe) = (request.seen, request.next_stripe);
    let who = request.node.map_or_else(|| request.dir.clone(), |node| format!("{node} ({})", request.dir));
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let unknown = seen.map(|seen| snapshot.holds(seen)).transpose()?.is_some_and(|holds| !holds);
        let beyond = next_stripe > snapshot.next_stripe()?;
        if !unknown && !beyond {
            return Ok(None);
        }
        let what = if unknown { "remembers later metadata" } else { "holds blocks of later stripes" };
        let why = format!(
            "the metadata are older than what agents hold: {who} {what}; was an older copy restored?"
        );
        let start = seen.filter(|_| unknown).map(|seen| (seen.boot, seen.nonce));
        let news = meta.fall_behind(&why, start, next_stripe)?;
        Ok(Some((why, news)))
    };
    if let Some((why, news)) = cluster.meta.off(look).await? {
        if cluster.config.accept_older {
            tracing::warn!("{why} The metadata are accepted as they are.");
            return cluster.meta.off(|meta| meta.accept_older()).await.map(drop);
        }
        let rebuilding = cluster.is_rebuilding();
        if news && !rebuilding {
            tracing::error!("{why}");
        }
        cluster.gate().fall_behind(why);
        cluster.outrun(seen.map_or(0, |seen| seen.boot));
        if cluster.config.restore.is_some() && !rebuilding {
            complete(cluster).await?;
        }
    }
    Ok(())
}

/// The metadata come from a copy and lack what was committed after it: starts a rebuild of that from the blocks.
async fn complete(cluster: &Arc<Cluster>) -> Result<()> {
    tracing::warn!("what was committed after the copy is rebuilt from the blocks of all agents");
    cluster.meta.off(|meta| meta.begin_rebuild()).await?;
    cluster.gate().set_rebuilding(true);
    // Agents that registered before must report their labels too.
    cluster.members().recall();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::tests::{begin, cluster, enlist, put, registration, reopen, silence};
    use crate::handlers::{begin_put, heartbeat};
    use kintsu_dag::{BlockId, BlockIndex, StripeId};
    use kintsu_wire::message::{DiskUsage, Heartbeat, NodeState};
    use kintsu_wire::{ClusterId, FolderId, Seen};

    fn beat(node: u32, incarnation: u64) -> Heartbeat {
        Heartbeat { node: NodeId(node), incarnation, usage: DiskUsage::default(), running: 0, failed: None }
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
        drop(cluster);
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
        drop(cluster);
        let again = reopen(&dir);
        assert!(again.gate().is_behind(), "a restart does not make them newer");
        drop(again);
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
        drop(accepted);
        let after = reopen(&dir);
        handle(&after, ahead).await.unwrap();
        handle(&after, late).await.unwrap();
        assert!(!after.gate().is_behind(), "also after the next start");
    }

    #[tokio::test]
    async fn a_put_gets_no_id_before_agents_have_said_whether_it_is_in_use() {
        let (dir, first) = cluster(4, 2).await;
        drop(first);
        let cluster = reopen(&dir);
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
    async fn blocks_of_stripes_that_were_never_given_show_that_metadata_are_older() {
        let (_dir, cluster) = cluster(2, 1).await;
        let ahead = Register { incarnation: 3, next_stripe: 1 << 20, ..registration(1, 0) };
        handle(&cluster, ahead).await.unwrap();
        assert!(cluster.gate().is_behind());
    }
}
