//! The scrub that runs by itself: has nodes verify portions of their blocks when [`crate::engine::patrol`] says that these are
//! due, and has the damage repaired. Which blocks were verified is recorded with the node.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{NodeScrub, ScrubBlocks};

use super::guard::guarded;
use super::scrub::{Part, settle, verify};
use super::ticks::repair_now;
use crate::cluster::Cluster;
use crate::engine::patrol::{Portion, Verified};
use crate::engine::scrub::{Scrub, Scrubbed};
use crate::error::Result;

/// The longest time between two looks at what is due.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The shortest.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(200);

/// Runs until the coordinator ends.
pub async fn patrol(cluster: Arc<Cluster>) {
    let every = cluster.config.scrub_every;
    if every.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(pause(every)).await;
        match guarded(due(&cluster, cluster.unix_seconds())).await {
            Ok(portions) => {
                for portion in portions {
                    let worker = cluster.clone();
                    cluster.spawn(async move { run(&worker, portion).await });
                }
            }
            Err(error) => tracing::warn!("no block is verified now: {error}"),
        }
    }
}

/// The time between two looks at what is due of a pass that takes `every`.
pub fn pause(every: Duration) -> Duration {
    (every / 1000).clamp(LOOK_AT_MOST_EVERY, LOOK_EVERY)
}

/// The portions that are due.
async fn due(cluster: &Arc<Cluster>, now: u64) -> Result<Vec<Portion>> {
    if !cluster.gate().is_open() {
        return Ok(Vec::new());
    }
    let tallies = cluster.meta.off(|meta| meta.snapshot()?.tallies()).await?;
    let placed = |node| tallies.get(&node).map_or(0, |tally| tally.0);
    let every = cluster.config.scrub_every.as_secs().max(1);
    let members = cluster.members();
    Ok(cluster.patrol().due(now, every, &members, placed))
}

/// Verifies a portion, and goes on from there the next time. One that fails is tried again later.
async fn run(cluster: &Arc<Cluster>, portion: Portion) {
    let node = portion.node;
    let verified = guarded(verify_portion(cluster, portion)).await.unwrap_or_else(|error| {
        tracing::info!("blocks on {node} are verified later: {error}");
        Verified::Failed
    });
    let now = cluster.unix_seconds();
    let next = cluster.patrol().ended(portion, verified, now);
    if let Some((scrub, durably)) = next
        && let Err(error) = know(cluster, node, scrub, durably).await
    {
        tracing::warn!("that blocks on {node} were verified is not recorded: {error}");
    }
}

async fn verify_portion(cluster: &Arc<Cluster>, portion: Portion) -> Result<Verified> {
    let Portion { node, scrub: NodeScrub { upto: after, .. }, blocks, .. } = portion;
    let most = usize::try_from(blocks).unwrap_or(usize::MAX - 1);
    let (fence, mut placed) = cluster
        .meta
        .off(move |meta| {
            let snapshot = meta.snapshot()?;
            Ok((snapshot.fence(node)?, snapshot.placed(node, after, most + 1)?))
        })
        .await?;
    let more = placed.len() > most;
    placed.truncate(most);
    let (count, last) = (placed.len() as u64, placed.last().map(|block| block.stripe).filter(|_| more));
    let mut scrub = Scrub::new(node);
    let part = Part { node, fence, placed, range: ScrubBlocks { after, upto: last } };
    let ended = verify(cluster, part, &mut scrub, None).await;
    let complete = ended.is_ok();
    let mut sum = Scrubbed::default();
    let bad = settle(cluster, vec![(node, scrub, ended)], &mut sum).await?;
    for failure in sum.end(0.0).failed {
        tracing::info!("verifying blocks: {failure}");
    }
    if !bad.is_empty() {
        tracing::warn!("{node} had bad blocks: {}", bad.len());
        repair_now(cluster, bad, None);
    }
    Ok(match (complete, last) {
        (false, _) => Verified::Failed,
        (true, Some(last)) => Verified::Upto(last, count),
        (true, None) => Verified::ToTheEnd(count),
    })
}

/// All blocks of a node were verified at once, from `began` on, because somebody asked for that.
///
/// # Errors
/// The disk fails.
pub async fn verified(cluster: &Arc<Cluster>, node: NodeId, began: u64, done: u64) -> Result<()> {
    let verified = Some(cluster.unix_seconds());
    know(cluster, node, NodeScrub { began, done, upto: None, ended: true, verified }, true).await
}

/// From now on the pass of a node is at this point.
async fn know(cluster: &Arc<Cluster>, node: NodeId, scrub: NodeScrub, durably: bool) -> Result<()> {
    let known = cluster.members().node(node).and_then(|member| member.record.scrub);
    if known.is_some_and(|known| known.verified > scrub.verified) {
        // All blocks were verified on request meanwhile.
        return Ok(());
    }
    cluster.members().recorded(node, |record| record.scrub = Some(scrub));
    if durably {
        cluster.meta.off(move |meta| meta.change_node(node, |record| record.scrub = Some(scrub))).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Live;

    /// Verifies what is due this many seconds after `began`.
    async fn pass(live: &Live, began: u64, seconds: u64) {
        for portion in due(&live.cluster, began + seconds).await.unwrap() {
            run(&live.cluster, portion).await;
        }
    }

    fn scrub_of(cluster: &Cluster, node: NodeId) -> Option<NodeScrub> {
        cluster.meta.snapshot().unwrap().nodes().unwrap()[&node].scrub
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn rot_is_found_and_repaired_by_itself_and_a_restart_goes_on_where_it_was() {
        let live = Live::start(4).await;
        let mut stripes = Vec::new();
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            stripes.push(live.put(name).await);
        }
        let node = NodeId(0);
        let (id, record) = stripes.pop().unwrap();
        let (index, _) = record.made().find(|(_, block)| block.node == node).unwrap();
        live.flip(node, id, index.0);
        let month = live.cluster.config.scrub_every.as_secs();
        let began = live.cluster.unix_seconds();
        pass(&live, began, 0).await;
        pass(&live, began, month / 2).await;
        let half = scrub_of(&live.cluster, node).unwrap();
        assert_eq!((half.done, half.ended, half.verified), (5, false, None), "{half:?}");
        assert_eq!(live.cluster.meta.snapshot().unwrap().totals().unwrap().lost, 0, "it is not there yet");
        let (live, _old) = live.reopen().await;
        for node in 0..4 {
            // The agents still talk to the old one.
            let known = scrub_of(&live.cluster, NodeId(node));
            assert_eq!(known.unwrap().done, 5);
            let record = live.cluster.meta.snapshot().unwrap().nodes().unwrap()[&NodeId(node)].clone();
            live.cluster.members().enrolled(NodeId(node), record, 0);
        }
        live.cluster.gate().tick(u64::MAX);
        pass(&live, began, month).await;
        let whole = scrub_of(&live.cluster, node).unwrap();
        assert_eq!((whole.done, whole.ended), (8, true), "{whole:?}");
        live.until("the rotten block is repaired", |cluster| {
            let snapshot = cluster.meta.snapshot().unwrap();
            snapshot.totals().unwrap().lost == 0 && cluster.queue().jobs() == 0
        })
        .await;
        live.check("h").await;
        let file = live.file(node, id, index.0);
        assert!(std::fs::exists(file).unwrap(), "it has its place again");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_scrub_on_request_is_a_pass() {
        let live = Live::start(4).await;
        live.put("a").await;
        live.follow(live.client.scrub(None).await.unwrap()).await;
        let scrub = scrub_of(&live.cluster, NodeId(2)).unwrap();
        assert!(scrub.ended && scrub.verified.is_some() && scrub.done == 1, "{scrub:?}");
        let now = scrub.began;
        assert_eq!(due(&live.cluster, now + 1000).await.unwrap(), []);
    }
}
