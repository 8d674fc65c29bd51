//! Has the blocks of stripes compared with each other when [`crate::engine::agreement`] says that it is time: one parity block is
//! computed from all others by a proved plan, and the agent that has it compares. Nothing is changed, whatever is found.

use std::sync::Arc;

use kintsu_dag::{BlockId, StripeId};
use kintsu_wire::message::FaultKind;
use kintsu_wire::version::COMPARES;

use super::guard::guarded;
use super::patrol::pause;
use super::run::{ReadyPlan, run};
use super::ticks::AUTOMATIC_SLICE;
use crate::cluster::Cluster;
use crate::engine::agreement::{Compared, planned, whole};
use crate::error::Result;

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

/// Compares the stripes that are due, one after the other.
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
    let (due, after) = {
        let known = cluster.agreement();
        (known.due(now, every, stripes), known.pass.and_then(|pass| pass.upto))
    };
    if due == 0 {
        return Ok(());
    }
    let most = usize::try_from(due).unwrap_or(usize::MAX - 1);
    let mut ids = cluster.meta.off(move |meta| meta.snapshot()?.stripes_after(after, most + 1)).await?;
    let ended = ids.len() <= most;
    ids.truncate(most);
    let mut seen = Vec::with_capacity(ids.len());
    for id in ids {
        let says = compared(cluster, id).await.unwrap_or_else(|error| {
            tracing::info!("stripe {id} is not compared: {error}");
            Compared::Unknown
        });
        seen.push((id, says));
    }
    let news = cluster.agreement().compared(&seen, ended, now, stripes);
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

async fn record(cluster: &Arc<Cluster>) -> Result<()> {
    let known = cluster.agreement().clone();
    cluster.meta.off(move |meta| meta.record_agreement(&known)).await
}

/// What a stripe says. That it contradicts itself is believed only if it is found twice: the memory of a node may have erred.
async fn compared(cluster: &Arc<Cluster>, id: StripeId) -> Result<Compared> {
    match compare_once(cluster, id).await? {
        Compared::Contradicts => {}
        other => return Ok(other),
    }
    let again = compare_once(cluster, id).await?;
    if again == Compared::Contradicts {
        tracing::error!("the blocks of stripe {id} contradict each other; see `kintsu health`");
    }
    Ok(again)
}

async fn compare_once(cluster: &Arc<Cluster>, id: StripeId) -> Result<Compared> {
    let Some((stripe, _)) = cluster.load(id).await? else { return Ok(Compared::Unknown) };
    let (topology, usable) = cluster.nodes();
    let Some(view) = whole(&stripe, |node| usable.contains(&node)) else { return Ok(Compared::Unknown) };
    let planning = cluster.meta.off(move |_| Ok(planned(&view, &topology)?.map(|plan| (view, plan)))).await?;
    let Some((view, (index, plan))) = planning else { return Ok(Compared::Unknown) };
    let (generations, expect) = (stripe.generations(), stripe.expect());
    let ready = ReadyPlan {
        plan: &plan,
        view: &view,
        generations: &generations,
        start: 0,
        slice_bytes: AUTOMATIC_SLICE,
        expect: &expect,
        label: &[],
        resume_key: 0,
    };
    let (_, ended) = run(cluster, ready).await?;
    let block = Some(BlockId { stripe: id, index });
    Ok(match ended.fault {
        None => Compared::Agrees,
        Some(fault) if fault.kind == FaultKind::Mismatch && fault.block == block => Compared::Contradicts,
        Some(_) => Compared::Unknown,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::handlers::health;
    use crate::live::Live;
    use crate::meta::StripeRecord;
    use crate::meta::volumes::Decision;
    use kintsu_dag::BlockIndex;
    use kintsu_store::{BlockStore, FileStore, Generation, block_path};
    use kintsu_wire::message::{AskHealth, Cause, CauseKind, Level};

    /// A parity of the next generation that has nothing to do with the data, under valid checksums, and recorded like this: as a
    /// commit leaves it that adds something wrong.
    fn commit_wrong_parity(live: &Live, stripe: StripeId, record: StripeRecord) {
        let index = BlockIndex(3);
        let (node, before) = record.block(index).map(|block| (block.node, block.generation)).unwrap();
        let (id, generation) = (BlockId { stripe, index }, before + 1);
        let (len, unit) = (record.layout.block_len(2, index), record.layout.unit_bytes());
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap();
        let mut write = store.create(id, Generation(generation), len, unit, &[]).unwrap();
        write.write_at(0, &vec![0x5a; len as usize]).unwrap();
        let digest = write.finish(None).unwrap().digest.0;
        let file = live.file(node, stripe, index.0);
        std::fs::remove_file(&file).unwrap();
        std::fs::copy(block_path(dir.path(), id), file).unwrap();
        let decision = Decision { from: record, generation, blocks: BTreeMap::from([(index, Some(digest))]) };
        assert!(live.cluster.meta.decide(stripe, &decision, || Ok(())).unwrap());
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
}
