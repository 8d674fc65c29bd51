//! Has agents delete garbage. A row of garbage is removed only when the node has said that the file is gone.
//!
//! Each node is swept by a task of its own, so that a slow node does not delay the others. A node that fails
//! is left alone for a time that grows with each failure. A place that is being written to is never swept,
//! and a place that is being swept is never written to: see [`crate::engine::places`].

use std::sync::{Arc, Mutex};
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{BlockRef, DeleteBlocks, Deleted};

use super::guard::guarded;
use crate::answer::answer;
use crate::cluster::{Cluster, lock};
use crate::engine::sweep::{Stuck, Sweeps};
use crate::error::{CoordinatorError, Result};
use crate::meta::Meta;

/// Most files that one call deletes.
const BATCH: usize = 250;
/// Most ids of removed objects that one call carries.
const TOMBSTONES: usize = 16_384;
/// How often nodes that could not be reached are tried again.
const PERIOD: Duration = Duration::from_secs(2);
/// How long an agent may take for a batch.
const PATIENCE: Duration = Duration::from_secs(20);
type Shared = Arc<Mutex<Sweeps>>;

/// Sweeps the nodes until the coordinator ends.
pub async fn sweep(cluster: Arc<Cluster>) {
    let sweeps = Shared::default();
    let mut tell_at = cluster.now_ms();
    loop {
        tokio::select! {
            () = cluster.sweep.notified() => {}
            () = tokio::time::sleep(PERIOD) => {}
        }
        if !cluster.gate().is_open() {
            continue;
        }
        let known = |meta: &Meta| {
            let snapshot = meta.snapshot()?;
            Ok((snapshot.any_garbage()?, snapshot.left_behind()?))
        };
        let (garbage, left_behind) = cluster.meta.off(known).await.unwrap_or_else(|error| {
            tracing::error!("{error}");
            (true, 0)
        });
        // Objects whose bytes stay in a pack: not at each removal, because each node makes what it is told durable.
        let tells = cluster.now_ms() >= tell_at;
        if tells {
            tell_at = cluster.now_ms() + PERIOD.as_millis() as u64;
        }
        let (_, living) = cluster.nodes();
        for node in living {
            if garbage || tells && lock(&sweeps).told(node) < left_behind {
                begin(&cluster, &sweeps, (node, left_behind));
            }
        }
    }
}

/// Starts the sweep of a node, unless one is running or the node is to be left alone. The node is to be told of the removed
/// objects up to number `upto` though it has nothing to delete.
fn begin(cluster: &Arc<Cluster>, sweeps: &Shared, (node, upto): (NodeId, u64)) {
    let Some(mut told) = lock(sweeps).begin(node, cluster.now_ms()) else { return };
    let (worker, sweeps) = (cluster.clone(), sweeps.clone());
    cluster.spawn(async move {
        let swept = async {
            sweep_node(&worker, node, &mut told).await?;
            if told < upto {
                let tombstones = untold_tombstones(&worker, node, &mut told).await?;
                call(&worker, node, Vec::new(), &tombstones).await?;
                told = tombstones.last().map_or(told, |tombstone| tombstone.0);
            }
            Ok(())
        };
        let swept = guarded(swept).await;
        lock(&sweeps).ended(node, told, swept.is_err(), worker.now_ms());
        if let Err(error) = swept {
            tracing::info!("garbage stays on {node} for now: {error}");
        }
    });
}

/// Has one node delete all its garbage. `told` is the number of the last removed object that the node was
/// told of.
///
/// # Errors
/// The node cannot be reached, is too slow, or could not delete some files; those stay garbage.
pub(super) async fn sweep_node(cluster: &Arc<Cluster>, node: NodeId, told: &mut u64) -> Result<()> {
    let mut stuck = Stuck::default();
    while cluster.gate().is_open() {
        // The claim is held until it is committed that the files are gone.
        let without = stuck.files().iter().copied().collect();
        let (blocks, _sweeping) = cluster.claim_garbage(node, BATCH, without).await?;
        if blocks.is_empty() {
            break;
        }
        let tombstones = untold_tombstones(cluster, node, told).await?;
        let deleted = call(cluster, node, blocks.clone(), &tombstones).await?;
        *told = tombstones.last().map_or(*told, |tombstone| tombstone.0);
        let silent = || unavailable(node, "it did not say what became of all files".into());
        let gone = stuck.answered(&blocks, deleted).ok_or_else(silent)?;
        cluster.meta.off(move |meta| meta.swept(node, &gone)).await?;
    }
    stuck.why().map_or(Ok(()), |why| Err(unavailable(node, why)))
}

/// The objects that were removed since a node was last told: the call that deletes their blocks tells it of them first.
/// If there are more than one call carries, the node is told of the others here.
async fn untold_tombstones(cluster: &Arc<Cluster>, node: NodeId, told: &mut u64) -> Result<Vec<(u64, u64)>> {
    loop {
        let after = *told;
        let tombstones = cluster.meta.off(move |meta| meta.snapshot()?.tombstones(after, TOMBSTONES)).await?;
        match tombstones.last() {
            Some((last, _)) if tombstones.len() == TOMBSTONES => {
                call(cluster, node, Vec::new(), &tombstones).await?;
                *told = *last;
            }
            _ => return Ok(tombstones),
        }
    }
}

async fn call(
    cluster: &Arc<Cluster>,
    node: NodeId,
    blocks: Vec<BlockRef>,
    tombstones: &[(u64, u64)],
) -> Result<Deleted> {
    let mut agent = cluster.agent(node)?;
    let removed = tombstones.iter().map(|tombstone| tombstone.1).collect();
    let request = DeleteBlocks { blocks, removed, number: cluster.next_number() };
    answer(node, PATIENCE, "it did not delete in time", agent.delete(request)).await
}

fn unavailable(node: NodeId, reason: String) -> CoordinatorError {
    CoordinatorError::Unavailable { node, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::remove;
    use crate::handlers::tests::{enlist, registration};
    use crate::live::Live;
    use crate::meta::Landing;
    use kintsu_dag::{BlockId, BlockIndex};
    use kintsu_wire::message::{Nothing, Register, Remove};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_sweep_spares_what_another_job_writes_and_has_not_committed() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let block = record.blocks[0].unwrap();
        let (from, to) = (block.node, live.spare(&record));
        let id = BlockId { stripe, index: BlockIndex(0) };
        // One drain has written the block to another node, and has not committed that yet.
        let writing = live.cluster.claim(vec![(to, id)]).await.unwrap().unwrap();
        live.copy(from, to, stripe, 0);
        // Another drain failed, and recorded the same place as garbage.
        live.cluster.meta.trash(&[(to, BlockRef { id, generation: record.generation })]).unwrap();
        sweep_node(&live.cluster, to, &mut 0).await.unwrap();
        assert!(live.file(to, stripe, 0).exists(), "the first drain's block was swept");
        let landing =
            Landing { index: BlockIndex(0), from, to, generation: 1, digest: block.digest.unwrap() };
        assert_eq!(live.cluster.meta.rehome(stripe, record.generation, &[landing]).unwrap(), [BlockIndex(0)]);
        drop(writing);
        for node in [from, to] {
            sweep_node(&live.cluster, node, &mut 0).await.unwrap();
        }
        assert!(live.file(to, stripe, 0).exists() && !live.file(from, stripe, 0).exists());
        assert_eq!(live.cluster.meta.snapshot().unwrap().totals().unwrap().garbage, 0);
        live.check("a").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_place_that_is_swept_is_not_written_to_until_that_is_committed() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let to = live.spare(&record);
        let id = BlockId { stripe, index: BlockIndex(0) };
        let file = BlockRef { id, generation: record.generation };
        live.cluster.meta.trash(&[(to, file)]).unwrap();
        let (files, sweeping) = live.cluster.claim_garbage(to, 10, Default::default()).await.unwrap();
        assert_eq!(files, [file]);
        assert!(live.cluster.claim(vec![(to, id)]).await.unwrap().is_err(), "it is being swept");
        drop(sweeping);
        // The call may have timed out here while the node still works on it.
        assert!(live.cluster.claim(vec![(to, id)]).await.unwrap().is_err(), "its row is still there");
        live.cluster.meta.swept(to, &files).unwrap();
        assert!(live.cluster.claim(vec![(to, id)]).await.unwrap().is_ok());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_file_that_could_not_be_deleted_stays_garbage_and_removed_objects_are_remembered() {
        let live = Live::start(4).await;
        let (stripe, record) = live.put("a").await;
        let put = record.owner;
        let (stuck, other) = (record.blocks[0].unwrap().node, record.blocks[1].unwrap().node);
        let file = live.file(stuck, stripe, 0);
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir(&file).unwrap();
        remove::handle(&live.cluster, Remove { name: "a".into() }).await.unwrap();
        let error = sweep_node(&live.cluster, stuck, &mut 0).await.unwrap_err().to_string();
        assert!(error.contains("1 of its files could not be deleted"), "{error}");
        sweep_node(&live.cluster, other, &mut 0).await.unwrap();
        let garbage = |node| live.cluster.meta.snapshot().unwrap().garbage(node, 10).unwrap().len();
        assert_eq!((garbage(stuck), garbage(other)), (1, 0));
        std::fs::remove_dir(&file).unwrap();
        sweep_node(&live.cluster, stuck, &mut 0).await.unwrap();
        assert_eq!(garbage(stuck), 0);
        for node in [stuck, other] {
            let mut agent = live.cluster.agent(node).unwrap();
            assert_eq!(agent.removed(Nothing {}).await.unwrap().into_inner().ranges, [(put, put)]);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_that_does_not_answer_holds_up_no_other() {
        let live = Live::start(4).await;
        let (stripe, record) = live.put("a").await;
        // It accepts connections and never answers.
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let hung = NodeId(9);
        let known = Register { control: mute.local_addr().unwrap(), ..registration(9, 9) };
        enlist(&live.cluster, known).await.unwrap();
        let other = record.blocks[0].unwrap().node;
        let spare = BlockId { stripe: kintsu_dag::StripeId(stripe.0 + 100), index: BlockIndex(0) };
        let rubble = BlockRef { id: spare, generation: 1 };
        let sweeps = Shared::default();
        // Twice: a second round must not wait for the end of the first.
        for _ in 0..2 {
            live.cluster.meta.trash(&[(hung, rubble), (other, rubble)]).unwrap();
            begin(&live.cluster, &sweeps, (hung, 0));
            begin(&live.cluster, &sweeps, (other, 0));
            live.until("the other node is swept", |cluster| {
                let swept = !cluster.meta.snapshot().unwrap().is_garbage(other, spare).unwrap();
                swept && !lock(&sweeps).is_busy(other)
            })
            .await;
            assert!(lock(&sweeps).is_busy(hung), "the hung node is still waited for");
        }
    }
}
