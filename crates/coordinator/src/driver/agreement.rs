//! Has the blocks of stripes compared with each other when [`crate::engine::agreement`] says that it is time: parity
//! blocks are computed from the others by a proved plan, and the agents that have them compare. What they say changes nothing; a block that cannot be
//! read for it is looked into as if a reader had reported it.

use std::collections::BTreeSet;
use std::sync::Arc;

use kintsu_dag::{BlockId, StripeId};
use kintsu_wire::message::FaultKind;
use kintsu_wire::version::COMPARES;

use super::doubts::report;
use super::guard::guarded;
use super::patrol::pause;
use super::run::{ReadyPlan, run};
use crate::cluster::Cluster;
use crate::engine::agreement::{Compared, planned, whole};
use crate::engine::doubt::is_reason;
use crate::error::Result;
use crate::meta::{LostBlock, Meta};

/// Runs until the coordinator ends.
pub async fn agreement(cluster: Arc<Cluster>) {
    let every = cluster.config.scrub_every;
    if every.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(pause(every)).await;
        if let Err(error) = guarded(look(&cluster, cluster.unix_seconds())).await {
            tracing::warn!("no stripe is compared now: {error}");
        }
    }
}

/// Compares the stripes that are due, and those whose wait is over.
async fn look(cluster: &Arc<Cluster>, now: u64) -> Result<()> {
    // Repairs have the links first.
    if !cluster.gate().is_open() || cluster.queue().jobs() > 0 || !all_compare(cluster) {
        return Ok(());
    }
    let every = cluster.config.scrub_every.as_secs().max(1);
    let begun = cluster.agreement().begins(now, every);
    if begun {
        record(cluster).await?;
    }
    let stripes = cluster.meta.off(|meta| meta.snapshot()?.totals()).await?.stripes;
    let (again, due, after) = {
        let known = cluster.agreement();
        (known.again(now), known.due(now, every, stripes), known.pass.and_then(|pass| pass.upto))
    };
    let mut news = false;
    if due > 0 {
        let most = usize::try_from(due).unwrap_or(usize::MAX - 1);
        let mut ids = cluster.meta.off(move |meta| meta.snapshot()?.stripes_after(after, most + 1)).await?;
        let last = ids.len() <= most;
        ids.truncate(most);
        let seen = compare_all(cluster, &ids).await;
        let ended = last && seen.len() == ids.len();
        news = cluster.agreement().compared(&seen, ended, now, stripes);
    }
    let seen = compare_all(cluster, &again).await;
    news |= cluster.agreement().learn(&seen, now);
    if news {
        record(cluster).await?;
    }
    Ok(())
}

/// Whether all agents that are there know how to compare.
fn all_compare(cluster: &Cluster) -> bool {
    let members = cluster.members();
    members.before(COMPARES).is_empty() && members.without_version().is_empty()
}

/// Records what is known, without stripes that are gone.
async fn record(cluster: &Arc<Cluster>) -> Result<()> {
    let wrong = cluster.agreement().wrong.clone();
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let mut there = BTreeSet::new();
        for id in wrong {
            if snapshot.stripe(id)?.is_some() {
                there.insert(id);
            }
        }
        Ok(there)
    };
    let there = cluster.meta.off(look).await?;
    let known = {
        let mut known = cluster.agreement();
        known.keep(&there);
        known.clone()
    };
    cluster.meta.off(move |meta| meta.record_agreement(&known)).await
}

/// What these stripes say, one after the other, until a repair begins.
async fn compare_all(cluster: &Arc<Cluster>, ids: &[StripeId]) -> Vec<(StripeId, Compared)> {
    let mut seen = Vec::with_capacity(ids.len());
    for &id in ids {
        if cluster.queue().jobs() > 0 {
            break;
        }
        let says = compared(cluster, id).await.unwrap_or_else(|error| {
            tracing::info!("stripe {id} is compared later: {error}");
            Compared::Later
        });
        seen.push((id, says));
    }
    seen
}

/// What a stripe says. That it contradicts itself is believed only if it is found twice: the memory of a node may have erred.
async fn compared(cluster: &Arc<Cluster>, id: StripeId) -> Result<Compared> {
    match compare_once(cluster, id).await? {
        Compared::Contradicts => {}
        other => return Ok(other),
    }
    let again = compare_once(cluster, id).await?;
    match again {
        Compared::Contradicts => {
            tracing::error!("the blocks of stripe {id} contradict each other; see `kintsu health`");
        }
        other => tracing::warn!("the blocks of stripe {id} contradicted each other once, then: {other:?}"),
    }
    Ok(again)
}

async fn compare_once(cluster: &Arc<Cluster>, id: StripeId) -> Result<Compared> {
    let Some((stripe, _)) = cluster.load(id).await? else { return Ok(Compared::Agrees) };
    let (topology, usable) = cluster.nodes();
    let view = match whole(&stripe, |node| usable.contains(&node)) {
        Ok(view) => view,
        Err(says) => return Ok(says),
    };
    let planning = cluster.meta.off(move |_| Ok(planned(&view, &topology)?.map(|plan| (view, plan)))).await?;
    let Some((view, (parities, plan))) = planning else { return Ok(Compared::Never) };
    let (generations, expect) = (stripe.generations(), stripe.expect());
    let ready = ReadyPlan { generations: &generations, expect: &expect, ..ReadyPlan::of(&plan, &view) };
    let (_, ended) = run(cluster, ready).await?;
    let Some(fault) = ended.fault else { return Ok(Compared::Agrees) };
    let differs = parities.into_iter().any(|index| fault.block == Some(BlockId { stripe: id, index }));
    if fault.kind == FaultKind::Mismatch && differs {
        return Ok(Compared::Contradicts);
    }
    // Its node reads the block again, as if a reader had reported it.
    if let Some(id) = fault.block.filter(|_| is_reason(fault.kind)) {
        report(cluster, vec![LostBlock { id, node: fault.node, why: fault.kind }]);
    }
    Ok(Compared::Later)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::driver::doubts::reverify_node;
    use crate::engine::agreement::RETRY_S;
    use crate::handlers::{health, status};
    use crate::live::Live;
    use crate::meta::StripeRecord;
    use crate::meta::volumes::Decision;
    use kintsu_dag::BlockIndex;
    use kintsu_store::{BlockStore, FileStore, Generation, block_path};
    use kintsu_wire::message::{AskHealth, Cause, CauseKind, ComparedStripes, DigestBytes, Level};

    const PARITY: BlockIndex = BlockIndex(3);

    /// A parity of the next generation that has nothing to do with the data, under valid checksums, and recorded like this: as a
    /// commit leaves it that adds something wrong.
    fn commit_wrong_parity(live: &Live, stripe: StripeId, record: StripeRecord) {
        let len = record.layout.block_len(2, PARITY);
        commit_wrong(live, stripe, record, PARITY, &vec![0x5a; len as usize]);
    }

    /// The same with this block, which becomes these bytes.
    fn commit_wrong(live: &Live, stripe: StripeId, record: StripeRecord, index: BlockIndex, bytes: &[u8]) {
        let generation = record.block(index).unwrap().generation + 1;
        let digest = write_wrong(live, stripe, &record, (index, generation), bytes);
        let blocks = BTreeMap::from([(index, Some(digest))]);
        let decision = Decision { from: record, generation, blocks };
        assert!(live.cluster.meta.decide(stripe, &decision, || Ok(())).unwrap());
    }

    /// Puts another block of these bytes in the place of a block; returns its digest.
    fn write_wrong(
        live: &Live,
        stripe: StripeId,
        record: &StripeRecord,
        (index, generation): (BlockIndex, u32),
        bytes: &[u8],
    ) -> DigestBytes {
        let (id, node) = (BlockId { stripe, index }, record.block(index).unwrap().node);
        let unit = record.layout.unit_bytes();
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        let mut write = store.create(id, Generation(generation), bytes.len() as u64, unit, &[]).unwrap();
        write.write_at(0, bytes).unwrap();
        let digest = write.finish(None).unwrap().digest.0;
        let file = live.file(node, stripe, index.0);
        std::fs::remove_file(&file).unwrap();
        std::fs::copy(block_path(dir.path(), id), file).unwrap();
        digest
    }

    /// Begins a pass, and compares all stripes; returns when that was.
    async fn pass(live: &Live) -> u64 {
        let began = live.cluster.unix_seconds();
        look(&live.cluster, began).await.unwrap();
        let later = began + 10 * live.cluster.config.scrub_every.as_secs();
        look(&live.cluster, later).await.unwrap();
        later
    }

    async fn counts(cluster: &Arc<Cluster>) -> ComparedStripes {
        status::handle(cluster).await.unwrap().compared.unwrap()
    }

    async fn shown(cluster: &Arc<Cluster>) -> Option<Cause> {
        let health = health::handle(cluster, AskHealth::default()).await.unwrap();
        health.causes.into_iter().find(|cause| cause.kind == CauseKind::ContradictingStripes)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_parity_that_was_recorded_wrong_is_found_and_shown_and_left_alone() {
        let live = Live::start(4).await;
        live.put("good").await;
        let (id, record) = live.put("bad").await;
        commit_wrong_parity(&live, id, record);
        let began = live.cluster.unix_seconds();
        look(&live.cluster, began).await.unwrap();
        assert_eq!(shown(&live.cluster).await, None, "it is not there yet");
        let later = began + 10 * live.cluster.config.scrub_every.as_secs();
        look(&live.cluster, later).await.unwrap();
        let cause = shown(&live.cluster).await.unwrap();
        assert_eq!((cause.level, cause.count), (Level::Error, 1));
        assert_eq!(cause.details, [format!("stripe {id} of \"bad\"")]);
        assert_eq!(live.cluster.meta.snapshot().unwrap().totals().unwrap().lost, 0);
        live.check("bad").await;

        let (live, _old) = live.reopen().await;
        assert!(shown(&live.cluster).await.is_some(), "a restart does not forget it");
        live.cluster.meta.remove("bad").unwrap();
        assert_eq!(shown(&live.cluster).await, None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_wrong_sub_block_is_found_whichever_block_has_it_and_whole_stripes_are_not_suspected() {
        const CELL: u32 = 16 << 10;
        for code in ["clay:n=4,k=2,d=3", "hitchhiker-xor:n=4,k=2", "less:n=4,k=2,alpha=2"] {
            let live = Live::start(4).await;
            live.put_as("good", code, CELL).await;
            let mut wrong = BTreeSet::new();
            for index in (0..4).map(BlockIndex) {
                let (stripe, record) = live.put_as(&format!("bad {}", index.0), code, CELL).await;
                let block = record.block(index).unwrap();
                let file = std::fs::read(live.file(block.node, stripe, index.0)).unwrap();
                let len = record.layout.block_len(2, index) as usize;
                let mut bytes = file[4096..][..len].to_vec();
                // One bit, in the first sub-block of the first cell.
                bytes[5] ^= 1;
                commit_wrong(&live, stripe, record, index, &bytes);
                wrong.insert(stripe);
            }
            pass(&live).await;
            assert_eq!(live.cluster.agreement().wrong, wrong, "{code}");
            let counts = counts(&live.cluster).await;
            assert_eq!((counts.waiting, counts.not_compared_before), (0, 0), "{code}");
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stripe_that_cannot_be_compared_now_is_compared_soon_after() {
        let live = Live::start(4).await;
        let (stripe, record) = live.put("bad").await;
        let (id, node) = (BlockId { stripe, index: BlockIndex(0) }, record.blocks[0].unwrap().node);
        commit_wrong_parity(&live, stripe, record);
        let flag = LostBlock { id, node, why: FaultKind::Corrupt };
        assert_eq!(live.cluster.meta.mark_lost(&[flag]).unwrap(), [id]);
        let later = pass(&live).await;
        let waits = counts(&live.cluster).await;
        assert_eq!((waits.waiting, waits.not_compared_before), (1, 0));
        let ended = waits.pass.unwrap();
        assert_eq!((ended.done, ended.ended, ended.verified), (1, true, Some(later)));
        reverify_node(&live.cluster, node).await.unwrap();
        look(&live.cluster, later + RETRY_S - 1).await.unwrap();
        assert_eq!(shown(&live.cluster).await, None, "it is tried again after a while");
        look(&live.cluster, later + RETRY_S).await.unwrap();
        assert_eq!(shown(&live.cluster).await.unwrap().count, 1);
        assert_eq!(counts(&live.cluster).await.waiting, 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_block_that_is_not_the_recorded_one_is_found_and_repaired() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let block = *record.block(PARITY).unwrap();
        let sound = std::fs::read(live.file(block.node, stripe, PARITY.0)).unwrap();
        let data = 4096..4096 + record.layout.block_len(2, PARITY) as usize;
        // Its agent finds nothing wrong: only the coordinator knows which digest was recorded.
        let other = vec![0x5a; data.len()];
        write_wrong(&live, stripe, &record, (PARITY, block.generation), &other);
        let later = pass(&live).await;
        live.until("the block is repaired and all nodes are heard of", |cluster| {
            let node = live.stripe("a").1.block(PARITY).unwrap().node;
            let bytes = std::fs::read(live.file(node, stripe, PARITY.0));
            let same = bytes.is_ok_and(|bytes| bytes[data.clone()] == sound[data.clone()]);
            same && cluster.queue().jobs() == 0 && cluster.nodes().1.len() == 5
        })
        .await;
        look(&live.cluster, later + RETRY_S).await.unwrap();
        assert_eq!(counts(&live.cluster).await.waiting, 0, "it agrees");
        assert_eq!(shown(&live.cluster).await, None);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn stripes_that_are_gone_keep_no_others_out() {
        let live = Live::start(4).await;
        let (id, record) = live.put("bad").await;
        commit_wrong_parity(&live, id, record);
        live.cluster.agreement().wrong.extend((0..1000).map(|gone| StripeId(1_000_000 + gone)));
        pass(&live).await;
        assert_eq!(shown(&live.cluster).await.unwrap().count, 1);
        let recorded = live.cluster.meta.snapshot().unwrap().agreement().unwrap();
        assert_eq!(recorded.wrong, BTreeSet::from([id]));
    }
}
