//! Compares a page of an agent's list of blocks with the blocks that it should hold. After the last page the node
//! is alive.
//!
//! A block that is missing or not as recorded is flagged lost. A block that is lost at its home but sound on this
//! node gets its home here. Unknown blocks are never deleted: they are set aside on the node, once the gate is
//! open.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_wire::message::{BlockPage, BlockRef, Done, FaultKind, HeldBlock, LookBlocks};

use crate::answer::answer;
use crate::cluster::Cluster;
use crate::driver;
use crate::engine::places::Place;
use crate::error::{CoordinatorError, Result};
use crate::meta::{Meta, NodeRecord, Noted, Range};

/// Most unknown blocks of one node that are remembered until they are set aside; the others wait for the next
/// report or scrub.
const MOST_UNKNOWN: usize = 100_000;

/// Most blocks that one call asks a node about.
const LOOKED: usize = 1024;
/// How long the node may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// The registrations under way.
pub type Reports = HashMap<NodeId, Report>;

/// A registration under way.
#[derive(Debug, Clone)]
pub struct Report {
    record: NodeRecord,
    /// The agent is not new: a block that its list lacks may have been written after the list was made.
    ran: bool,
    /// Blocks that the node said it holds.
    blocks: u64,
    /// The page that must come next.
    next: u64,
    after: Option<StripeId>,
    lost: u64,
    unknown: Vec<BlockRef>,
    unknown_count: u64,
}

impl Report {
    /// A registration whose first page is still to come.
    pub fn new(record: NodeRecord, ran: bool, blocks: u64) -> Self {
        Self { record, ran, blocks, next: 0, after: None, lost: 0, unknown: Vec::new(), unknown_count: 0 }
    }
}

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, page: BlockPage) -> Result<Done> {
    let BlockPage { node, incarnation, number, upto, blocks, damaged, aside, labels } = page;
    let (range, ran) = {
        let reports = cluster.reports();
        let report = reports.get(&node).filter(|r| r.record.incarnation == incarnation && r.next == number);
        let report = report.ok_or_else(|| out_of_turn(node, number))?;
        (Range { after: report.after, upto }, report.ran)
    };
    let turn = cluster.registering.acquire().await;
    let _turn = turn.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let damaged: HashSet<BlockId> = damaged.iter().map(|bad| bad.id).collect();
    let late = if ran { look_again(cluster, node, range, &blocks, &damaged).await? } else { Late::default() };
    let blocks: Vec<HeldBlock> = blocks.into_iter().chain(late.found).collect();
    let worker = cluster.clone();
    let (lost, unknown) = cluster
        .meta
        .off(move |meta| {
            let keep = worker.written_to(node);
            let compare = || {
                let mut comparison = meta.snapshot()?.compare(node, range, &blocks, &damaged)?;
                // A block that was placed there after `look_again` asked was also written after the list was made.
                comparison.lost.retain(|lost| !ran || late.asked.contains(&lost.id));
                // A block that is being deleted does not get its home here.
                let strays = comparison.strays.iter().map(|stray| (node, stray.file.id));
                let taken: Vec<Place> = {
                    let mut places = worker.places();
                    strays.filter(|place| places.write(&[*place]).is_ok()).collect()
                };
                comparison.strays.retain(|stray| taken.contains(&(node, stray.file.id)));
                let reconciled = meta.reconcile(node, range, &comparison, &blocks, &keep);
                worker.places().written(&taken);
                reconciled
            };
            let (lost, unknown) = compare()?;
            if unknown.is_empty() || !worker.is_rebuilding() {
                return Ok((lost, unknown));
            }
            let noted = note(meta, node, &blocks, &unknown, labels)?;
            worker.rebuild().noted(node, noted);
            // Late blocks: their stripes became visible meanwhile.
            if noted.late > 0 { compare() } else { Ok((lost, unknown)) }
        })
        .await?;
    let done = {
        let mut reports = cluster.reports();
        let report =
            reports.get_mut(&node).filter(|r| r.record.incarnation == incarnation && r.next == number);
        let report = report.ok_or_else(|| out_of_turn(node, number))?;
        (report.next, report.after) = (number + 1, upto);
        report.lost += lost.len() as u64;
        report.unknown_count += unknown.len() as u64;
        let room = MOST_UNKNOWN.saturating_sub(report.unknown.len());
        report.unknown.extend(unknown.into_iter().take(room));
        upto.is_none().then(|| reports.remove(&node)).flatten()
    };
    if let Some(report) = done {
        ended(cluster, node, report, aside);
    }
    Ok(Done {})
}

/// The blocks that a node was asked about once more.
#[derive(Default)]
struct Late {
    /// The blocks that seemed to be missing or not as recorded.
    asked: HashSet<BlockId>,
    /// Those that are there now although the list lacked them.
    found: Vec<HeldBlock>,
}

/// Asks a running node about the blocks that its list lacks: they may have been written since.
async fn look_again(
    cluster: &Arc<Cluster>,
    node: NodeId,
    range: Range,
    blocks: &[HeldBlock],
    damaged: &HashSet<BlockId>,
) -> Result<Late> {
    let (listed, bad) = (blocks.to_vec(), damaged.clone());
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let lost = snapshot.compare(node, range, &listed, &bad)?.lost;
        let mut missing = Vec::new();
        for block in lost.iter().filter(|block| block.why == FaultKind::Missing) {
            if let Some(stripe) = snapshot.stripe(block.id.stripe)? {
                missing.push(BlockRef { id: block.id, generation: stripe.generation });
            }
        }
        Ok((lost.into_iter().map(|block| block.id).collect(), missing))
    };
    let (asked, missing) = cluster.meta.off(find).await?;
    let mut found = Vec::new();
    for batch in missing.chunks(LOOKED) {
        let mut agent = cluster.agent(node)?;
        let looking = agent.look(LookBlocks { blocks: batch.to_vec() });
        let told = answer(node, PATIENCE, "it does not report its blocks", looking).await?;
        found.extend(told.blocks.into_iter().flatten());
    }
    Ok(Late { asked, found })
}

/// Notes the blocks that the metadata do not know, for the rebuild.
fn note(
    meta: &Meta,
    node: NodeId,
    held: &[HeldBlock],
    unknown: &[BlockRef],
    labels: Vec<(StripeId, bytes::Bytes)>,
) -> Result<Noted> {
    let unknown: HashSet<BlockRef> = unknown.iter().copied().collect();
    let is_unknown = |b: &&HeldBlock| unknown.contains(&BlockRef { id: b.id, generation: b.generation });
    let mut blocks: Vec<HeldBlock> = held.iter().filter(is_unknown).cloned().collect();
    blocks.sort_unstable_by_key(|b| b.id);
    meta.note_found(node, &blocks, &labels.into_iter().collect())
}

/// All blocks of a node are reported.
fn ended(cluster: &Arc<Cluster>, node: NodeId, report: Report, aside: Vec<kintsu_wire::message::AsideBlock>) {
    let Report { record, blocks, lost, unknown, unknown_count, .. } = report;
    cluster.members().enrolled(node, record, cluster.now_ms());
    if cluster.gate().reported(node) {
        tracing::info!("nearly all blocks are reported");
    }
    cluster.auto().nodes_changed();
    cluster.sweep.notify_one();
    match lost {
        0 => tracing::info!("{node} is registered"),
        n => tracing::warn!("{node} is registered, but {n} of its blocks are missing or not as recorded"),
    }
    let rebuilding = cluster.is_rebuilding();
    if rebuilding {
        cluster.rebuild().ends(node);
        cluster.rebuilt.notify_one();
    }
    if unknown_count > 0 && !rebuilding {
        tracing::warn!("{node} holds {unknown_count} blocks of {blocks} that the metadata do not know");
    }
    if !unknown.is_empty() || !aside.is_empty() {
        let found = driver::Unknown { node, blocks: unknown, count: unknown_count, of: blocks };
        cluster.spawn(driver::settle_quarantine(cluster.clone(), found, aside));
    }
}

fn out_of_turn(node: NodeId, number: u64) -> CoordinatorError {
    CoordinatorError::Unavailable {
        node,
        reason: format!(
            "page {number} of its blocks: expected the next page of a registration, got one out of order"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handlers::register;
    use crate::handlers::tests::page;
    use crate::live::Live;
    use crate::meta::LostBlock;
    use kintsu_wire::message::Register;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_running_agent_wrote_after_it_made_its_list_is_not_lost() {
        let live = Live::start(5).await;
        let (_, record) = live.put("a").await;
        let node = record.blocks[0].unwrap().node;
        let known = live.cluster.members().node(node).unwrap().record.clone();
        let again = Register {
            node: Some(node),
            name: None,
            rack: known.rack,
            rack_name: None,
            control: known.control,
            data: known.data,
            dir: known.dir.clone(),
            incarnation: known.incarnation,
            cluster: Some(live.cluster.id),
            folder: known.folder.unwrap(),
            seen: None,
            blocks: 0,
            next_stripe: 0,
            replace: false,
            moved: false,
        };
        // The agent made its list before the put, and sends it after the commit.
        register::handle(&live.cluster, again).await.unwrap();
        handle(&live.cluster, page(node, known.incarnation, Vec::new())).await.unwrap();
        assert_eq!(live.cluster.meta.snapshot().unwrap().totals().unwrap().lost, 0);
        live.check("a").await;
    }
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_block_that_is_being_deleted_does_not_get_its_home_there() {
        let live = Live::start(5).await;
        let (stripe, record) = live.put("a").await;
        let block = record.blocks[0].unwrap();
        let (from, to) = (block.node, live.spare(&record));
        let id = BlockId { stripe, index: kintsu_dag::BlockIndex(0) };
        let file = BlockRef { id, generation: record.generation };
        live.copy(from, to, stripe, 0);
        live.cluster.meta.trash(&[(to, file)]).unwrap();
        let (_, sweeping) = live.cluster.claim_garbage(to, 10, HashSet::new()).await.unwrap();
        live.cluster.meta.mark_lost(&[LostBlock { id, node: from, why: FaultKind::Corrupt }]).unwrap();
        let known = live.cluster.members().node(to).unwrap().record.clone();
        let len = record.layout.block_len(2, id.index);
        let held = HeldBlock { id, generation: record.generation, len, digest: block.digest.unwrap() };
        let home = || live.cluster.meta.snapshot().unwrap().stripe(stripe).unwrap().unwrap().blocks[0];
        for (guard, expected) in [(Some(sweeping), from), (None, to)] {
            let report = Report::new(known.clone(), false, 1);
            live.cluster.reports().insert(to, report);
            handle(&live.cluster, page(to, known.incarnation, vec![held.clone()])).await.unwrap();
            assert_eq!(home().unwrap().node, expected);
            drop(guard);
        }
    }
}
