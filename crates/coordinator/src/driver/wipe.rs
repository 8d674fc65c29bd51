//! Wipes a node, as [`crate::engine::wipe`] decides. The wipe is recorded first: from then on nothing is read from the node
//! or written to it. Its agent deletes all blocks, however long that takes. Then its blocks are flagged lost, and the record
//! of the wipe is removed.
//!
//! A wipe that is interrupted is completed by the ticks. Blocks cannot have come there meanwhile.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{JobReport, Nothing};

use super::Listener;
use super::damage::needing;
use super::guard::guarded;
use super::jobs::Job;
use crate::cluster::Cluster;
use crate::engine::damage::Harm;
use crate::engine::jobs::Work;
use crate::engine::wipe::{ordered, refused};
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// How often the listener is told that the wipe goes on.
const NEWS: Duration = Duration::from_secs(1);

/// Has all blocks of a living node deleted. The wipe is recorded before anything is deleted; so it is completed later
/// if the coordinator or the agent ends meanwhile.
///
/// # Errors
/// The node is not alive; the wipe costs objects and is not forced; the disk fails.
pub async fn order(cluster: &Arc<Cluster>, node: NodeId, force: bool, listener: Listener) -> Result<()> {
    if !cluster.members().readable(node) {
        let reason = "expected a living node: start it first".into();
        return Err(CoordinatorError::Unavailable { node, reason });
    }
    // One at a time: with two wipes at once, each must count the blocks that the other deletes.
    let _judging = cluster.judging.acquire().await.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let turn = loop {
        let turn = Turn::take(cluster, node);
        // Who has the turn while the node is not barred is about to give it back.
        if turn.is_some() || cluster.members().wiping(node) {
            break turn;
        }
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
    };
    let turn = match turn {
        Some(turn) if !cluster.members().wiping(node) => Some(record(cluster, turn, force).await?),
        // Its wipe was interrupted, or is under way.
        turn => turn,
    };
    begin(cluster, node, Some(listener), turn);
    Ok(())
}

/// Records the wipe of a node whose turn this is, unless it costs too much: then the node is as it was.
async fn record(cluster: &Arc<Cluster>, mut turn: Turn, force: bool) -> Result<Turn> {
    let node = turn.node;
    // A wipe that is refused should disturb nobody.
    judge(cluster, node, force).await?;
    if is_back(FixedFault::WipesUnrecorded) {
        return Ok(turn);
    }
    // From now on nothing is read from the node or written to it, also after a restart.
    turn.bar();
    // Blocks may have got their homes there meanwhile. What was being committed when the node was barred is committed
    // when this is.
    cluster.meta.off(Meta::settle).await?;
    let harm = judge(cluster, node, force).await?;
    // The turn goes with the commit, which ends even if the caller stops waiting for it: until then no tick takes the
    // node for one whose wipe was interrupted.
    let commit = move |meta: &Meta| {
        meta.change_node(node, ordered)?;
        turn.unrecorded = false;
        Ok(turn)
    };
    let turn = cluster.meta.off(commit).await?;
    if harm.stripes > 0 {
        tracing::warn!("{node} is wiped although that costs {harm}");
    }
    Ok(turn)
}

/// What a wipe costs.
///
/// # Errors
/// `Conflict` if that is too much, or nobody knows, because the metadata lack something; the disk fails.
async fn judge(cluster: &Arc<Cluster>, node: NodeId, force: bool) -> Result<Harm> {
    if !force {
        cluster.gate().check_trusted(&format!("wipe of {node} without --force"))?;
    }
    let harm = would_cost(cluster, node).await?;
    match refused(&harm, force) {
        None => Ok(harm),
        Some(got) => Err(CoordinatorError::Conflict {
            what: format!("wipe of {node}"),
            expected: "blocks that the rest of the cluster can do without (--force wipes it anyway)".into(),
            got,
        }),
    }
}

/// What could not be read any more if a node lost all its blocks now. After a start nodes count as up until they are missed.
async fn would_cost(cluster: &Arc<Cluster>, node: NodeId) -> Result<Harm> {
    let mut gone = cluster.members().down();
    gone.extend(cluster.gate().unreported());
    let worker = cluster.clone();
    cluster.meta.off(move |meta| needing(&worker, &meta.snapshot()?, node, gone)).await
}

fn begin(cluster: &Arc<Cluster>, node: NodeId, listener: Option<Listener>, turn: Option<Turn>) {
    let job = Job::begin(cluster, Work::Wipe(node), format!("node {}", node.0), listener);
    cluster.spawn(wipe(cluster.clone(), node, job, turn));
}

/// Wipes a node that is recorded as to be wiped, as this job. When it is being wiped already, this waits for the
/// end of that.
async fn wipe(cluster: Arc<Cluster>, node: NodeId, job: Job, turn: Option<Turn>) {
    let started_ms = cluster.now_ms();
    let wiped = guarded(in_turn(&cluster, node, &job, turn)).await;
    if let Err(error) = &wiped {
        tracing::warn!("{node} is not wiped yet: {error}");
    }
    let seconds = cluster.now_ms().saturating_sub(started_ms) as f64 / 1000.0;
    let report = JobReport { kind: "wipe".into(), seconds, ..JobReport::default() };
    job.end(wiped.map(|()| report)).await;
}

/// Completes a wipe that was interrupted.
pub fn go_on(cluster: &Arc<Cluster>, node: NodeId) {
    tracing::info!("the interrupted wipe of {node} continues");
    begin(cluster, node, None, None);
}

async fn in_turn(cluster: &Arc<Cluster>, node: NodeId, job: &Job, mut turn: Option<Turn>) -> Result<()> {
    loop {
        if let Some(_turn) = turn.take().or_else(|| Turn::take(cluster, node)) {
            let erased = erase(cluster, node, job).await;
            if erased.is_err() {
                tokio::time::sleep(NEWS).await;
            }
            return erased;
        }
        tokio::time::sleep(cluster.config.heartbeat / 2).await;
        if !cluster.members().wiping(node) {
            return Ok(());
        }
    }
}

async fn erase(cluster: &Arc<Cluster>, node: NodeId, job: &Job) -> Result<()> {
    let records = cluster.meta.off(|meta| meta.snapshot()?.nodes()).await?;
    if !records.get(&node).is_some_and(|record| record.wiping) && !is_back(FixedFault::WipesUnrecorded) {
        cluster.members().set_wiping(node, false);
        return Ok(());
    }
    let unavailable = |reason: String| CoordinatorError::Unavailable { node, reason };
    let mut agent = cluster.agent(node)?;
    let started_ms = cluster.now_ms();
    let call = agent.wipe(Nothing {});
    tokio::pin!(call);
    loop {
        tokio::select! {
            ended = &mut call => {
                ended.map_err(|status| unavailable(status.message().into()))?;
                break;
            }
            () = tokio::time::sleep(NEWS.min(cluster.config.heartbeat)) => {
                // The agent may take any time, as long as it is alive.
                if !cluster.members().readable(node) {
                    return Err(unavailable("it went away; it is wiped when it is back".into()));
                }
                job.progress((cluster.now_ms() - started_ms) / 1000, 0, &format!("wiping {node}"));
            }
        }
    }
    // A list of blocks that the node began to report before the wipe is out of date: it must begin again.
    cluster.reports().forget(node);
    let lost = cluster.meta.off(move |meta| meta.wipe(node)).await?;
    cluster.members().set_wiping(node, false);
    tracing::warn!("{node} was wiped: {lost} block{} lost", if lost == 1 { "" } else { "s" });
    Ok(())
}

/// The turn to wipe a node, until this is dropped.
struct Turn {
    cluster: Arc<Cluster>,
    node: NodeId,
    /// The node is barred, and its wipe is not recorded.
    unrecorded: bool,
}

impl Turn {
    /// `None` if it is another's turn.
    fn take(cluster: &Arc<Cluster>, node: NodeId) -> Option<Self> {
        let first = cluster.wipes().begin(node);
        first.then(|| Self { cluster: cluster.clone(), node, unrecorded: false })
    }

    /// Nothing is read from the node or written to it from now on, and what is being written there gets no home there.
    fn bar(&mut self) {
        self.unrecorded = true;
        self.cluster.members().set_wiping(self.node, true);
        self.cluster.places().wiped(self.node);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.unrecorded {
            self.cluster.members().set_wiping(self.node, false);
        }
        self.cluster.wipes().end(self.node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{jobs, tick_once};
    use crate::handlers::command_node;
    use crate::handlers::tests::{cluster, enlist, landing, put, registration, silence, stripe, until};
    use crate::live::Live;
    use kintsu_wire::message::{BlockPage, HeldBlock, JobEvent, NodeAction, NodeCommand, Register};
    use tokio::sync::mpsc;

    fn command(node: NodeId, force: bool) -> NodeCommand {
        NodeCommand { node, action: NodeAction::Wipe, force, seconds: 0 }
    }

    fn recorded(cluster: &Cluster, node: NodeId) -> bool {
        cluster.meta.snapshot().unwrap().nodes().unwrap()[&node].wiping
    }

    #[tokio::test]
    async fn the_intent_is_durable_before_anything_is_erased() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 48).await;
        // Its agent takes the call and does not answer.
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let known = Register { control: mute.local_addr().unwrap(), incarnation: 2, ..registration(1, 1) };
        enlist(&cluster, known).await.unwrap();
        let (listener, _events) = mpsc::channel(64);
        command_node::handle(&cluster, command(NodeId(1), false), listener).await.unwrap();
        let _called = mute.accept().await.unwrap();
        assert!(recorded(&cluster, NodeId(1)), "the agent was told before it was recorded");
        let (topology, readable) = cluster.nodes();
        assert!(!topology.nodes[&NodeId(1)].usable && !readable.contains(&NodeId(1)));
        assert!(cluster.members().down().contains(&NodeId(1)));
        let place = (
            NodeId(1),
            kintsu_dag::BlockId { stripe: kintsu_dag::StripeId(1), index: kintsu_dag::BlockIndex(0) },
        );
        assert!(cluster.claim(vec![place]).await.unwrap().is_err(), "nothing is written there");
    }

    /// Keeps the metadata from being changed until the other end is dropped. Returns when nobody else can change them.
    async fn keep_from_changes(cluster: &Arc<Cluster>) -> std::sync::mpsc::Sender<()> {
        let (kept, (go_on, until)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let meta = cluster.meta.clone();
        tokio::task::spawn_blocking(move || {
            meta.change_node(NodeId(0), |_| {
                kept.0.send(()).unwrap();
                until.recv().unwrap_err();
            })
        });
        tokio::task::spawn_blocking(move || kept.1.recv().unwrap()).await.unwrap();
        go_on
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn while_nobody_knows_what_a_wipe_costs_it_needs_force() {
        let live = Live::start(5).await;
        let (_, record) = live.put("a").await;
        let node = record.blocks[0].unwrap().node;
        let order = async |live: &Live, force| {
            let (listener, _events) = mpsc::channel(64);
            command_node::handle(&live.cluster, command(node, force), listener).await
        };
        live.cluster.gate().fall_behind("the metadata are older".into());
        let error = order(&live, false).await.unwrap_err();
        assert!(error.to_string().contains("the metadata are older"), "{error}");
        assert!(!recorded(&live.cluster, node) && !live.cluster.members().wiping(node));
        // The next coordinator has heard of no agent yet: the others may be gone.
        let (live, dir) = live.reopen().await;
        let gone = would_cost(&live.cluster, node).await.unwrap();
        assert_eq!(gone.stripes, 1);
        drop(dir);
    }

    #[tokio::test]
    async fn a_tick_takes_no_wipe_for_interrupted_that_is_being_recorded() {
        let (_dir, cluster) = cluster(5, 5).await;
        let agent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let known = Register { control: agent.local_addr().unwrap(), incarnation: 2, ..registration(1, 1) };
        enlist(&cluster, known).await.unwrap();
        let kept = keep_from_changes(&cluster).await;
        let (worker, (listener, _events)) = (cluster.clone(), mpsc::channel(64));
        let order = tokio::spawn(async move {
            command_node::handle(&worker, command(NodeId(1), false), listener).await.unwrap();
        });
        until(|| cluster.members().wiping(NodeId(1))).await;
        tick_once(&cluster).await;
        assert!(jobs::list(&cluster).is_empty(), "the tick goes on with a wipe that has not begun");
        drop(kept);
        order.await.unwrap();
        let _called = agent.accept().await.unwrap();
        assert!(recorded(&cluster, NodeId(1)) && cluster.members().wiping(NodeId(1)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_wipe_whose_coordinator_died_after_the_agent_had_erased_is_settled_by_the_next_one() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let node = record.blocks[0].unwrap().node;
        live.cluster.meta.change_node(node, |record| record.wiping = true).unwrap();
        live.cluster.agent(node).unwrap().wipe(Nothing {}).await.unwrap();
        assert!(!live.file(node, stripe, 0).exists());
        assert_eq!(live.cluster.meta.snapshot().unwrap().tallies().unwrap()[&node], (1, 0));
        // The next coordinator, before it has heard of any agent but with the same metadata.
        let (live, dir) = live.reopen().await;
        let cluster = &live.cluster;
        assert!(!cluster.nodes().1.contains(&node), "nothing is read from it");
        go_on(cluster, node);
        live.until("it is settled", |cluster| !recorded(cluster, node)).await;
        assert_eq!(cluster.meta.snapshot().unwrap().tallies().unwrap()[&node], (1, 1));
        live.until("it is used again", |cluster| cluster.nodes().1.contains(&node)).await;
        drop(dir);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_written_before_a_wipe_does_not_become_a_home_after_it() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let (block, to) = (record.blocks[0].unwrap(), live.spare(&record));
        let index = kintsu_dag::BlockIndex(0);
        let place = (to, kintsu_dag::BlockId { stripe, index });
        let writing = live.cluster.claim(vec![place]).await.unwrap().unwrap();
        live.copy(block.node, to, stripe, 0);
        let (listener, mut events) = mpsc::channel(64);
        command_node::handle(&live.cluster, command(to, false), listener).await.unwrap();
        while let Some(event) = events.recv().await {
            if matches!(event.unwrap(), JobEvent::Ended(_)) {
                break;
            }
        }
        assert!(!recorded(&live.cluster, to) && !live.file(to, stripe, 0).exists());
        let landing = landing(&record, index, to);
        let check = || writing.check();
        let error = live.cluster.meta.rehome_if(stripe, record.generation, &[landing], check).unwrap_err();
        assert!(error.to_string().contains("wiped, replaced or forgotten meanwhile"), "{error}");
        drop(writing);
        live.check("a").await;
    }

    #[tokio::test]
    async fn a_wipe_counts_a_block_that_is_just_getting_its_home_there() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 16).await;
        let (stripe, record) = stripe(&cluster, "a");
        let homes: Vec<NodeId> = record.made().map(|(_, block)| block.node).collect();
        let node = (0..5).map(NodeId).find(|node| !homes.contains(node)).unwrap();
        // The stripe needs both of the blocks that are left, and one of them has just been moved.
        silence(&cluster, &[homes[2].0, homes[3].0]);
        let index = kintsu_dag::BlockIndex(0);
        let place = (node, kintsu_dag::BlockId { stripe, index });
        let writing = cluster.claim(vec![place]).await.unwrap().unwrap();
        let landing = landing(&record, index, node);
        let (checked, (go_on, ordered)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let meta = cluster.meta.clone();
        let landed = tokio::task::spawn_blocking(move || {
            meta.rehome_if(stripe, record.generation, &[landing], || {
                writing.check()?;
                checked.0.send(()).unwrap();
                ordered.recv().unwrap();
                Ok(())
            })
        });
        tokio::task::spawn_blocking(move || checked.1.recv().unwrap()).await.unwrap();
        let (worker, (listener, _events)) = (cluster.clone(), mpsc::channel(64));
        let order =
            tokio::spawn(async move { command_node::handle(&worker, command(node, false), listener).await });
        until(|| cluster.members().wiping(node)).await;
        go_on.send(()).unwrap();
        assert_eq!(landed.await.unwrap().unwrap(), [index]);
        let refused = order.await.unwrap().unwrap_err().to_string();
        assert!(refused.contains("1 stripe of 1 object"), "{refused}");
        assert!(!recorded(&cluster, node) && !cluster.members().wiping(node));
        assert!(cluster.claim(vec![place]).await.unwrap().is_ok(), "the node is used as before");
    }

    /// A node registers again, and is wiped before its list has come, or while that is being compared.
    async fn lists_and_is_wiped(while_compared: bool) {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let index = kintsu_dag::BlockIndex(0);
        let block = record.blocks[0].unwrap();
        let node = block.node;
        let known = live.cluster.members().node(node).unwrap().record.clone();
        let incarnation = known.incarnation;
        let again = Register {
            node: Some(node),
            rack: known.rack,
            control: known.control,
            data: known.data,
            dir: known.dir.clone(),
            cluster: Some(live.cluster.id),
            folder: known.folder.unwrap(),
            incarnation,
            ..registration(node.0, node.0)
        };
        crate::handlers::register::handle(&live.cluster, again).await.unwrap();
        let id = kintsu_dag::BlockId { stripe, index };
        let (len, digest) = (record.layout.block_len(2, index), block.digest.unwrap());
        let held = HeldBlock { id, generation: record.generation, len, digest };
        let page = BlockPage {
            node,
            incarnation,
            number: 0,
            upto: None,
            blocks: vec![held],
            damaged: Vec::new(),
            aside: Vec::new(),
            labels: Vec::new(),
        };
        let mut late = std::pin::pin!(crate::handlers::report_blocks::handle(&live.cluster, page));
        let pages = live.cluster.registering.acquire_many(2).await.unwrap();
        if while_compared {
            assert!(futures::poll!(&mut late).is_pending());
        }
        live.cluster.meta.change_node(node, ordered).unwrap();
        let job = Job::begin(&live.cluster, Work::Wipe(node), String::new(), None);
        erase(&live.cluster, node, &job).await.unwrap();
        drop(pages);
        assert!(late.await.unwrap_err().to_string().contains("out of order"));
        assert_eq!(live.cluster.meta.snapshot().unwrap().tallies().unwrap()[&node], (1, 1));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_that_was_made_before_a_wipe_does_not_count_after_it() {
        lists_and_is_wiped(false).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_list_that_is_being_compared_during_a_wipe_does_not_count_after_it() {
        lists_and_is_wiped(true).await;
    }

    #[tokio::test]
    async fn a_wipe_that_costs_an_object_is_refused_unless_it_is_forced() {
        let (_dir, cluster) = cluster(4, 4).await;
        put(&cluster, "a", 48).await;
        put(&cluster, "b", 16).await;
        assert_eq!(would_cost(&cluster, NodeId(2)).await.unwrap(), Harm::default());
        silence(&cluster, &[0, 1]);
        let (listener, mut events) = mpsc::channel(64);
        let refused = command_node::handle(&cluster, command(NodeId(2), false), listener.clone()).await;
        let message = refused.unwrap_err().to_string();
        assert!(message.contains("3 stripes of 2 objects") && message.contains("\"a\", \"b\""), "{message}");
        assert!(message.contains("--force") && !recorded(&cluster, NodeId(2)), "{message}");
        command_node::handle(&cluster, command(NodeId(2), true), listener).await.unwrap();
        assert!(recorded(&cluster, NodeId(2)));
        // Its agent cannot be reached: the wipe stays recorded, and the listener gets the error.
        assert!(matches!(events.recv().await, Some(Ok(JobEvent::Began(_)))));
        let error = events.recv().await.unwrap().unwrap_err();
        assert!(error.message().contains("N2"), "{error}");
        assert!(recorded(&cluster, NodeId(2)));
    }
}
