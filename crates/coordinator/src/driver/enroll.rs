//! Registers agents and compares what they hold with the metadata, as [`crate::engine::enroll`] decides.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{AsideBlock, BlockPage, BlockRef, FaultKind, HeldBlock, Register, Registered};

use super::commit::{LOOK_BATCH, look};
use super::quarantine::settle_quarantine;
use super::upgrade::{check_agent, everybody_hands_on, settle_version};
use super::volumes::promote_decided;
use crate::cluster::Cluster;
use crate::engine::enroll::{self, Late, Older, OutOfTurn, Page, Range, Reported};
use crate::engine::identity::{Applicant, belongs};
use crate::engine::places::Place;
use crate::engine::quarantine::Unknown;
use crate::error::{CoordinatorError, Result};
use crate::meta::{MOST_ID, Meta, NodeRecord};

/// How long an agent that may be a rival has to accept a connection.
const ANSWER: Duration = Duration::from_secs(1);

/// Gives an agent its id, or lets it keep its id, and expects the list of its blocks.
///
/// # Errors
/// The agent belongs to another cluster or another node, or another live agent has its id; the disk fails.
pub async fn register(cluster: &Arc<Cluster>, request: Register) -> Result<Registered> {
    belongs(cluster.id, request.cluster, &request.dir).map_err(|refused| {
        let error = CoordinatorError::from(refused);
        tracing::warn!("{error}");
        error
    })?;
    if let Some(node) = request.node {
        check_rival(cluster, node, request.control, request.incarnation).await?;
    }
    check_agent(cluster, &request)?;
    look_back(cluster, &request).await?;
    let Register { rack, control, data, dir, incarnation, .. } = request;
    let mut record = NodeRecord::new(rack, control, data, dir, incarnation);
    (record.name, record.rack_name) = (request.name, request.rack_name);
    (record.protocol, record.log) = (request.protocol, request.log);
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
    let had_log = cluster.members().node(node).and_then(|known| known.record.log());
    cluster.members().called(node, request.protocol);
    settle_version(cluster);
    if enrolled.replaced {
        tracing::warn!("{node} has another folder from now on: {folder}");
    } else if had_log.is_some_and(|log| enrolled.record.log() != Some(log)) {
        tracing::warn!(
            "the log of {node} was damaged, or a crash cut it off: others give it what it may lack"
        );
    }
    cluster.reports().begin(node, enrolled.record, enrolled.ran, request.blocks);
    let heartbeat_ms = cluster.config.heartbeat.as_millis() as u64;
    let labels = cluster.is_rebuilding();
    if labels && cluster.rebuild().begins(node) {
        // It reports its blocks again: what it reported before may have moved since.
        cluster.meta.off(move |meta| meta.forget_found_on(node)).await?;
    }
    let tickets = cluster.tickets.as_ref().map(|tickets| tickets.for_agent(node));
    let (seen, agents_too) = (cluster.seen(), everybody_hands_on(cluster));
    Ok(Registered { node, cluster: cluster.id, heartbeat_ms, seen, labels, tickets, agents_too })
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
///
/// # Errors
/// It tells of a stripe whose id is never given; the disk fails.
async fn look_back(cluster: &Arc<Cluster>, request: &Register) -> Result<()> {
    let (seen, next_stripe) = (request.seen, request.next_stripe);
    if next_stripe > MOST_ID {
        return Err(CoordinatorError::Invalid {
            what: "next stripe of a registration",
            expected: format!("{MOST_ID} at most"),
            got: next_stripe.to_string(),
        });
    }
    let who = request.node.map_or_else(|| request.dir.clone(), |node| format!("{node} ({})", request.dir));
    let look = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let unknown = seen.map(|seen| snapshot.holds(seen)).transpose()?.is_some_and(|holds| !holds);
        let beyond = next_stripe > snapshot.next_stripe()?;
        let Some(why) = enroll::older(&who, unknown, beyond) else { return Ok(None) };
        let start = seen.filter(|_| unknown).map(|seen| (seen.boot, seen.nonce));
        let news = meta.fall_behind(&why, start, next_stripe)?;
        Ok(Some((why, news)))
    };
    let Some((why, news)) = cluster.meta.off(look).await? else { return Ok(()) };
    let (accept, restored) = (cluster.config.accept_older, cluster.config.restore.is_some());
    match enroll::on_older(accept, restored, cluster.is_rebuilding(), news) {
        Older::Accepted => {
            tracing::warn!("{why} The metadata are accepted as they are.");
            cluster.meta.off(|meta| meta.accept_older()).await.map(drop)
        }
        Older::Closed { tell, complete } => {
            if tell {
                tracing::error!("{why}");
            }
            cluster.gate().fall_behind(why);
            cluster.outrun(seen.map_or(0, |seen| seen.boot));
            if complete { rebuild_rest(cluster).await } else { Ok(()) }
        }
    }
}

/// The metadata come from a copy and lack what was committed after it: starts a rebuild of that from the blocks.
async fn rebuild_rest(cluster: &Arc<Cluster>) -> Result<()> {
    tracing::warn!("what was committed after the copy is rebuilt from the blocks of all agents");
    cluster.meta.off(|meta| meta.begin_rebuild()).await?;
    cluster.gate().set_rebuilding(true);
    // Agents that registered before must report their labels too.
    cluster.members().recall();
    Ok(())
}

/// Compares a page of an agent's list of blocks with the blocks that it should hold. After the last page the node is alive.
///
/// # Errors
/// The page is not the next one; the disk fails; the agent does not answer.
pub async fn report_blocks(cluster: &Arc<Cluster>, page: BlockPage) -> Result<()> {
    let BlockPage { node, incarnation, number, upto, blocks, damaged, aside, labels } = page;
    let page = Page { node, incarnation, number, upto };
    let out_of_turn = |OutOfTurn| CoordinatorError::Unavailable {
        node,
        reason: format!(
            "page {number} of its blocks: expected the next page of a registration, got one out of order"
        ),
    };
    let (range, ran, since) = cluster.reports().turn(page).map_err(out_of_turn)?;
    let turn = cluster.registering.acquire().await;
    let _turn = turn.map_err(|e| CoordinatorError::Storage(e.to_string()))?;
    let damaged: BTreeSet<BlockId> = damaged.iter().map(|bad| bad.id).collect();
    let mut late = match ran {
        true => Some(look_again(cluster, node, range, &blocks, &damaged).await?),
        false => None,
    };
    let found = late.as_mut().map(|late| std::mem::take(&mut late.found)).unwrap_or_default();
    let mut blocks: Vec<HeldBlock> = blocks.into_iter().chain(found).collect();
    promote_decided(cluster, node, &mut blocks).await?;
    let worker = cluster.clone();
    let (lost, unknown) = cluster
        .meta
        .off(move |meta| {
            let keep = worker.written_to(node);
            let compare = || {
                let mut comparison = meta.snapshot()?.compare(node, range, &blocks, &damaged)?;
                if let Some(late) = &late {
                    late.spare(&mut comparison);
                }
                // A block that is being deleted does not get its home here.
                {
                    let mut places = worker.places();
                    comparison.strays.retain(|stray| places.write(&[(node, stray.file.id)]).is_ok());
                }
                let taken: Vec<Place> = comparison.strays.iter().map(|stray| (node, stray.file.id)).collect();
                let reconciled = meta.reconcile(node, range, &comparison, &blocks, &keep, Some(since));
                worker.places().written(&taken);
                reconciled
            };
            let (lost, unknown) = compare()?;
            if unknown.is_empty() || !worker.is_rebuilding() {
                return Ok((lost, unknown));
            }
            let unknown_blocks = enroll::unknown_of(&blocks, &unknown);
            let noted = meta.note_found(node, &unknown_blocks, &labels.into_iter().collect())?;
            worker.rebuild().noted(node, noted.blocks, noted.without_label);
            // Late blocks: their stripes became visible meanwhile.
            if noted.late > 0 { compare() } else { Ok((lost, unknown)) }
        })
        .await?;
    let compared = cluster.reports().compared(page, lost.len() as u64, unknown);
    if let Some(reported) = compared.map_err(out_of_turn)? {
        ended(cluster, node, reported, aside);
    }
    Ok(())
}

/// Asks a running node about the blocks that its list lacks: they may have been written since.
async fn look_again(
    cluster: &Arc<Cluster>,
    node: NodeId,
    range: Range,
    blocks: &[HeldBlock],
    damaged: &BTreeSet<BlockId>,
) -> Result<Late> {
    let (listed, bad) = (blocks.to_vec(), damaged.clone());
    let find = move |meta: &Meta| {
        let snapshot = meta.snapshot()?;
        let lost = snapshot.compare(node, range, &listed, &bad)?.lost;
        let mut missing = Vec::new();
        for block in lost.iter().filter(|block| block.why == FaultKind::Missing) {
            if let Some(stripe) = snapshot.stripe(block.id.stripe)? {
                missing.push(BlockRef { id: block.id, generation: stripe.generation_of(block.id.index) });
            }
        }
        Ok((lost.into_iter().map(|block| block.id).collect(), missing))
    };
    let (asked, missing) = cluster.meta.off(find).await?;
    let mut found = Vec::new();
    for batch in missing.chunks(LOOK_BATCH) {
        let told = look(cluster, node, batch.to_vec()).await;
        let told = told.map_err(|reason| CoordinatorError::Unavailable { node, reason })?;
        found.extend(told.into_iter().flatten());
    }
    Ok(Late { asked, found })
}

/// All blocks of a node are reported.
fn ended(cluster: &Arc<Cluster>, node: NodeId, reported: Reported, aside: Vec<AsideBlock>) {
    let Reported { record, lost, unknown } = reported;
    cluster.members().enrolled(node, record, cluster.now_ms());
    settle_version(cluster);
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
    if unknown.count > 0 && !rebuilding {
        let Unknown { count, of, .. } = unknown;
        tracing::warn!("blocks on {node} that the metadata do not know: {count} of {of}");
    }
    if !unknown.blocks.is_empty() || !aside.is_empty() {
        cluster.spawn(settle_quarantine(cluster.clone(), unknown, aside));
    }
}
