//! Blocks that the metadata do not know. They are set aside on their nodes, taken back if the metadata turn
//! out to need them, and purged after a long time.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{AsideBlock, BlockRef, HeldBlock, Nothing, Purge, SetAside, TakeBack};
use tonic::Status;

use super::commit::{LOOK_BATCH, look};
use crate::cluster::Cluster;
use crate::engine::quarantine::{self, Unknown};
use crate::error::{CoordinatorError, Result};
use crate::meta::{Fence, Landing, Meta, StripeRecord};

/// Most unknown blocks per call.
const BATCH: usize = 250;
/// Most unknown blocks that are looked up at once.
const LOOKED: usize = 8192;
/// Time between two checks whether the gate is open.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often nodes are told to purge.
const PURGE_EVERY: Duration = Duration::from_secs(600);

/// More than the time between a node's list of what is set aside and its purge.
const UNTIL_PURGED_S: u64 = 3600;

/// Takes back the blocks of a node's quarantine that the metadata miss. Then, once the gate is open, sets
/// aside the blocks that the metadata do not know.
pub async fn settle_quarantine(cluster: Arc<Cluster>, unknown: Unknown, aside: Vec<AsideBlock>) {
    let node = unknown.node;
    take_back(&cluster, node, aside).await;
    // If another task waits for this node already, that task takes the newest list. So a node that registers
    // again and again has only one waiting task and one list.
    if !cluster.unknown().add(unknown) {
        return;
    }
    while !cluster.gate().is_open() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let Some(unknown) = cluster.unknown().take(node) else { return };
    if let Err(error) = set_aside(&cluster, unknown).await {
        tracing::warn!("unknown blocks stay where they are on {node}: {error}");
    }
}

/// If one block cannot be taken back, the others still are.
async fn take_back(cluster: &Arc<Cluster>, node: NodeId, aside: Vec<AsideBlock>) {
    for block in aside {
        if let Err(error) = take_if_missed(cluster, node, block).await {
            tracing::warn!("the quarantine of {node}: {error}");
            if !cluster.members().readable(node) {
                return;
            }
        }
    }
}

async fn take_if_missed(cluster: &Arc<Cluster>, node: NodeId, block: AsideBlock) -> Result<()> {
    let Some(held) = block.held else { return Ok(()) };
    if cluster.meta.off(move |meta| meta.snapshot()?.misses(node, &held)).await?.is_none() {
        return Ok(());
    }
    restore(cluster, node, block.name).await?;
    Ok(())
}

/// Has a node take a block back out of its quarantine. If the metadata miss it, it is recorded as found there.
///
/// # Errors
/// The node does not do so; `Conflict` if it was wiped meanwhile; the disk fails.
pub async fn restore(cluster: &Arc<Cluster>, node: NodeId, name: String) -> Result<HeldBlock> {
    let since = cluster.meta.off(move |meta| meta.snapshot()?.fence(node)).await?;
    let taken = cluster.agent(node)?.take_back(TakeBack { name }).await;
    let held = taken.map_err(unavailable(node))?.into_inner();
    welcome(cluster, node, since, &held).await?;
    Ok(held)
}

/// A complete block is in its place on a node, which had this fence before it was asked. If the metadata miss the block, it is
/// recorded as found there; says whether.
async fn welcome(cluster: &Arc<Cluster>, node: NodeId, since: Fence, held: &HeldBlock) -> Result<bool> {
    let held = held.clone();
    let found = move |meta: &Meta| {
        let Some(home) = meta.snapshot()?.misses(node, &held)? else { return Ok(false) };
        let BlockId { stripe, index } = held.id;
        let landing =
            Landing { index, from: home, to: node, generation: held.generation, digest: held.digest };
        meta.rehome_any(stripe, &[landing], || meta.snapshot()?.still(node, since))?;
        tracing::info!("{} was missed and is found on {node}", held.id);
        Ok(true)
    };
    cluster.meta.off(found).await
}

/// Sets aside those of these blocks that are still unknown and still there, as long as the gate is open.
///
/// # Errors
/// The node cannot be reached, the disk fails.
pub async fn set_aside(cluster: &Arc<Cluster>, unknown: Unknown) -> Result<()> {
    let node = unknown.node;
    let mut still = Vec::new();
    for batch in unknown.blocks.chunks(LOOKED) {
        let writing = cluster.written_to(node);
        let batch: Vec<BlockRef> = batch.iter().filter(|file| !writing.contains(&file.id)).copied().collect();
        still.extend(cluster.meta.off(move |meta| meta.snapshot()?.unknown(node, &batch)).await?);
    }
    let mut there = Vec::new();
    let since = cluster.meta.off(move |meta| meta.snapshot()?.fence(node)).await?;
    for batch in still.chunks(LOOK_BATCH) {
        // What was garbage when the list was made is unknown now because it was deleted since.
        let found = look(cluster, node, batch.to_vec()).await;
        let found = found.map_err(|reason| CoordinatorError::Unavailable { node, reason })?;
        for (block, found) in batch.iter().zip(found) {
            let Some(held) = found else { continue };
            // Its home may have lost it since the list was made.
            if !welcome(cluster, node, since, &held).await? {
                there.push(*block);
            }
        }
    }
    let Some(unknown) = unknown.still(there) else { return Ok(()) };
    if let Some(count) = unknown.held() {
        tracing::error!(
            "{count} of {} blocks of {node} are unknown to the metadata: its quarantine is not purged until `kintsu quarantine \
             confirm {}`",
            unknown.of,
            node.0
        );
        cluster.meta.off(move |meta| meta.change_node(node, |record| record.held = count)).await?;
        cluster.members().recorded(node, |record| record.held = count);
    }
    for batch in unknown.blocks.chunks(BATCH) {
        if !cluster.gate().is_open() {
            return Ok(());
        }
        // The claim keeps writers away until the node has moved the files.
        let (blocks, _claimed) = cluster.claim_unknown(node, batch.to_vec()).await?;
        if !blocks.is_empty() {
            cluster.agent(node)?.set_aside(SetAside { blocks }).await.map_err(unavailable(node))?;
        }
    }
    Ok(())
}

/// Has nodes purge blocks that were set aside long ago. Runs until the coordinator ends.
pub async fn purge(cluster: Arc<Cluster>) {
    loop {
        let keep = cluster.config.quarantine_keep;
        tokio::time::sleep(PURGE_EVERY.min(keep.max(Duration::from_millis(200)))).await;
        if !cluster.gate().is_open() {
            continue;
        }
        let nodes = quarantine::purging(&cluster.members());
        for node in nodes {
            let worker = cluster.clone();
            cluster.spawn(async move {
                if let Err(error) = purge_node(&worker, node, keep).await {
                    tracing::info!("the quarantine of {node}: {error}");
                }
            });
        }
    }
}

/// First takes back what the metadata miss by now. If a stripe misses a block or its node, nothing is deleted that was set
/// aside as late as a block of that stripe, because it may be needed to read the stripe.
async fn purge_node(cluster: &Arc<Cluster>, node: NodeId, keep: Duration) -> Result<()> {
    let mut old = cluster.agent(node)?.aside(Nothing {}).await.map_err(unavailable(node))?.into_inner().aside;
    old.retain(|block| block.age_s >= keep.as_secs());
    let Some(oldest) = old.iter().map(|block| block.age_s).max() else { return Ok(()) };
    let ages: Vec<_> = old.iter().map(|block| (block.id.stripe, block.age_s)).collect();
    take_back(cluster, node, old).await;
    let down = cluster.members().down();
    let spared = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut spared = None;
        for (stripe, age_s) in ages {
            let record = snapshot.stripe(stripe)?;
            let misses = |record: StripeRecord| record.made().any(|(_, b)| b.lost || down.contains(&b.node));
            if record.is_some_and(misses) {
                spared = spared.max(Some(age_s));
            }
        }
        Ok(spared)
    };
    let spared = cluster.meta.off(spared).await?;
    let older_than_s = spared.map_or(keep.as_secs(), |age_s| age_s + UNTIL_PURGED_S);
    if older_than_s > oldest {
        return Ok(());
    }
    let purge = Purge { older_than_s };
    let purged = cluster.agent(node)?.purge(purge).await.map_err(unavailable(node))?.into_inner().blocks;
    if purged > 0 {
        tracing::info!(
            "deleted blocks on {node} that were set aside over {} days ago: {purged}",
            older_than_s / 86_400
        );
    }
    Ok(())
}

fn unavailable(node: NodeId) -> impl Fn(Status) -> CoordinatorError {
    move |status| CoordinatorError::Unavailable { node, reason: status.message().into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::wipe;
    use crate::handlers::tests::cluster;
    use crate::live::Live;
    use crate::meta::LostBlock;
    use kintsu_dag::{BlockIndex, StripeId};
    use kintsu_wire::message::FaultKind;

    fn unknown(node: NodeId, blocks: &[BlockRef]) -> Unknown {
        let count = blocks.len() as u64;
        Unknown { node, blocks: blocks.to_vec(), count, of: 100 * count }
    }

    fn file(stripe: u64) -> BlockRef {
        let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(0) };
        BlockRef { id, generation: 1 }
    }

    #[tokio::test]
    async fn while_the_gate_is_closed_one_list_of_a_node_waits_and_that_is_the_newest() {
        let (_dir, cluster) = cluster(2, 1).await;
        cluster.gate().fall_behind("older".into());
        let settle =
            |stripe| settle_quarantine(cluster.clone(), unknown(NodeId(1), &[file(stripe)]), Vec::new());
        let first = tokio::spawn(settle(900));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        settle(901).await;
        assert!(!first.is_finished());
        cluster.gate().catch_up();
        first.await.unwrap();
        assert!(cluster.unknown().take(NodeId(1)).is_none());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_deleted_since_it_was_listed_alarms_nobody() {
        let live = Live::start(5).await;
        live.put("a").await;
        let gone: Vec<BlockRef> = (900..911).map(file).collect();
        let unknown = Unknown { of: 22, ..unknown(NodeId(1), &gone) };
        assert!(unknown.held().is_some(), "many");
        set_aside(&live.cluster, unknown).await.unwrap();
        assert_eq!(live.cluster.meta.snapshot().unwrap().nodes().unwrap()[&NodeId(1)].held, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_its_home_lost_since_it_was_listed_is_not_set_aside() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let (home, other) = (record.blocks[0].unwrap().node, live.spare(&record));
        live.copy(home, other, stripe, 0);
        let id = BlockId { stripe, index: BlockIndex(0) };
        let lost = LostBlock { id, node: home, why: FaultKind::Missing };
        assert_eq!(live.cluster.meta.mark_lost(&[lost]).unwrap(), [id]);
        let file = BlockRef { id, generation: record.generation };
        set_aside(&live.cluster, unknown(other, &[file])).await.unwrap();
        let now = live.cluster.meta.snapshot().unwrap().stripe(stripe).unwrap().unwrap();
        let block = now.blocks[0].unwrap();
        assert_eq!((block.node, block.lost), (other, false));
        assert!(live.file(other, stripe, 0).exists());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_was_seen_on_a_node_before_its_wipe_is_not_found_there_after_it() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let (home, other) = (record.blocks[0].unwrap().node, live.spare(&record));
        let meta = &live.cluster.meta;
        let id = BlockId { stripe, index: BlockIndex(0) };
        meta.mark_lost(&[LostBlock { id, node: home, why: FaultKind::Missing }]).unwrap();
        live.copy(home, other, stripe, 0);
        let before = meta.snapshot().unwrap().fence(other).unwrap();
        let file = BlockRef { id, generation: record.generation };
        let held = look(&live.cluster, other, vec![file]).await.unwrap().pop().flatten().unwrap();
        assert!(meta.change_node(other, wipe::ordered).unwrap());
        meta.wipe(other).unwrap();
        let found = welcome(&live.cluster, other, before, &held).await;
        assert!(matches!(found, Err(CoordinatorError::Conflict { .. })), "{found:?}");
        let block = || meta.snapshot().unwrap().stripe(stripe).unwrap().unwrap().blocks[0].unwrap();
        assert_eq!((block().node, block().lost), (home, true));
        let now = meta.snapshot().unwrap().fence(other).unwrap();
        assert!(welcome(&live.cluster, other, now, &held).await.unwrap());
        assert_eq!((block().node, block().lost), (other, false));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_is_being_written_is_not_set_aside_and_what_is_being_set_aside_is_not_written() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let (from, to) = (record.blocks[0].unwrap().node, live.spare(&record));
        let file = BlockRef { id: BlockId { stripe, index: BlockIndex(0) }, generation: record.generation };
        live.copy(from, to, stripe, 0);
        let writing = live.cluster.claim(vec![(to, file.id)]).await.unwrap().unwrap();
        set_aside(&live.cluster, unknown(to, &[file])).await.unwrap();
        assert!(live.file(to, stripe, 0).exists());
        drop(writing);
        let (files, moving) = live.cluster.claim_unknown(to, vec![file]).await.unwrap();
        assert_eq!(files, [file]);
        assert!(live.cluster.claim(vec![(to, file.id)]).await.unwrap().is_err());
        drop(moving);
        live.cluster.gate().fall_behind("older".into());
        set_aside(&live.cluster, unknown(to, &[file])).await.unwrap();
        assert!(live.file(to, stripe, 0).exists(), "the gate is closed");
        live.cluster.gate().catch_up();
        set_aside(&live.cluster, unknown(to, &[file])).await.unwrap();
        assert!(!live.file(to, stripe, 0).exists());
        live.check("a").await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_block_that_cannot_be_taken_back_keeps_no_other_from_it() {
        let live = Live::start(4).await;
        let node = NodeId(0);
        let mut files = Vec::new();
        for name in ["a", "b"] {
            let (stripe, record) = live.put(name).await;
            let (index, _) = record.made().find(|(_, block)| block.node == node).unwrap();
            files.push(BlockRef { id: BlockId { stripe, index }, generation: record.generation });
        }
        let lost = |file: &BlockRef| LostBlock { id: file.id, node, why: FaultKind::Missing };
        live.cluster.meta.mark_lost(&files.iter().map(lost).collect::<Vec<_>>()).unwrap();
        let mut agent = live.cluster.agent(node).unwrap();
        agent.set_aside(SetAside { blocks: files.clone() }).await.unwrap();
        let mut aside = agent.aside(Nothing {}).await.unwrap().into_inner().aside;
        assert_eq!(aside.len(), 2);
        aside[0].name = "0-0-0".into();
        let back = aside[1].id;
        settle_quarantine(live.cluster.clone(), unknown(node, &[]), aside).await;
        let snapshot = live.cluster.meta.snapshot().unwrap();
        assert_eq!((snapshot.why_lost(back).unwrap(), snapshot.totals().unwrap().lost), (None, 1));
        assert!(live.file(node, back.stripe, back.index.0).exists());
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_stripe_may_need_is_not_purged() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let other = live.spare(&record);
        let id = |index| BlockId { stripe, index: BlockIndex(index) };
        let home = |index: u8| record.blocks[usize::from(index)].unwrap().node;
        let aside = async |indices: &[u8]| {
            indices.iter().for_each(|index| live.copy(home(*index), other, stripe, *index));
            let block = |index: &u8| BlockRef { id: id(*index), generation: record.generation };
            let blocks = indices.iter().map(block).collect();
            live.cluster.agent(other).unwrap().set_aside(SetAside { blocks }).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2100)).await;
        };
        let lose = |index: u8| {
            let lost = LostBlock { id: id(index), node: home(index), why: FaultKind::Missing };
            live.cluster.meta.mark_lost(&[lost]).unwrap();
        };
        let purged = async || {
            purge_node(&live.cluster, other, Duration::from_secs(1)).await.unwrap();
            let left = live.cluster.agent(other).unwrap().aside(Nothing {}).await.unwrap().into_inner().aside;
            left.iter().map(|block| block.id.index.0).collect::<Vec<_>>()
        };
        aside(&[3]).await;
        assert_eq!(purged().await, [0u8; 0], "nothing is lost");
        aside(&[0, 1]).await;
        lose(0);
        lose(2);
        // A stripe has one block on a node at most, so one is taken back. The other stays, because block 2 is lost.
        assert_eq!(purged().await, [1]);
        assert!(live.file(other, stripe, 0).exists());
        assert_eq!(live.cluster.meta.snapshot().unwrap().why_lost(id(0)).unwrap(), None);
        live.check("a").await;
    }
}
