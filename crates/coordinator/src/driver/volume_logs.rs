//! Brings the logs of volumes back to as many nodes as they need when one of these is gone, though nobody writes: a second
//! node that goes then takes nothing with it. A log returns to the home of its block when that answers again, and to a second
//! rack when there is one again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockIndex, NodeId, RackId, StripeId};
use kintsu_wire::FolderId;
use kintsu_wire::message::LostLog;
use tokio::time::Instant;

use super::guard::guarded;
use super::upgrade::check_volumes;
use super::volume_relog::{GivenUp, How, relog};
use super::volumes::{has_log, record};
use crate::cluster::Cluster;
use crate::engine::health::LogFacts;
use crate::error::Result;
use crate::meta::record::StripeRecord;
use crate::meta::{Meta, Snapshot, StripeLogs, Volume, VolumeRecord};

/// How often nodes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The longest pause while logs are left that no node can give.
const REST: Duration = Duration::from_secs(30);
/// All rows are looked at again after this long though no node came or went: a repair may have given a block back to its
/// home.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Rows of a page.
const PAGE: u64 = 1024;

/// The nodes that answer.
#[derive(Debug, Clone)]
pub struct Holders {
    /// Their logs, by folder ([`FolderId::log`]).
    pub folders: BTreeMap<NodeId, FolderId>,
    /// The racks of those that may log for another block.
    pub racks: BTreeMap<NodeId, RackId>,
}

/// Runs until the coordinator ends.
pub async fn keep_logs(cluster: Arc<Cluster>) {
    let mut settled = None;
    let mut pause = LOOK_EVERY;
    loop {
        tokio::time::sleep(pause).await;
        let (holders, now) = (holders(&cluster), Instant::now());
        let is_settled = |(then, since): &(BTreeMap<NodeId, FolderId>, Instant)| {
            *then == holders.folders && now - *since < AGAIN_AFTER
        };
        let waits = !cluster.gate().is_open() || check_volumes(&cluster).is_err();
        if waits || settled.as_ref().is_some_and(is_settled) {
            continue;
        }
        pause = match guarded(move_logs(&cluster)).await {
            Ok(None) => {
                settled = Some((holders.folders, now));
                LOOK_EVERY
            }
            Ok(Some(left)) => {
                tracing::warn!("{left}");
                (pause * 2).min(REST)
            }
            Err(error) => {
                tracing::warn!("logs of volumes: {error}");
                (pause * 2).min(REST)
            }
        };
    }
}

/// Moves all that is due; says what was left, if something was.
///
/// # Errors
/// The metadata cannot be read.
pub async fn move_logs(cluster: &Arc<Cluster>) -> Result<Option<String>> {
    let holders = holders(cluster);
    let volumes = cluster.meta.off(|meta| meta.snapshot()?.volumes()).await?;
    let (mut moved, mut left) = (0, Vec::new());
    for volume in volumes.into_iter().map(|volume| volume.record.id) {
        let mut first = 0;
        loop {
            let held = holders.clone();
            let page = cluster.meta.off(move |meta| due(meta, &held, volume, first, PAGE)).await?;
            // One after the other: several at once would take from users what they need for their own moves.
            for stripe in page.due {
                match move_log(cluster, &holders, volume, stripe).await {
                    Ok(done) => moved += u64::from(done),
                    Err(error) => left.push(error),
                }
            }
            match page.next {
                Some(next) => first = next,
                None => break,
            }
        }
    }
    if moved > 0 {
        tracing::info!("the logs of {moved} stripes of volumes are on other nodes now");
    }
    let say = |error| format!("{} stripes of volumes have too few logs; the first: {error}", left.len());
    Ok(left.first().map(say))
}

/// Moves the log of one stripe; false if it is where it should be.
async fn move_log(
    cluster: &Arc<Cluster>,
    holders: &Holders,
    volume: u64,
    (index, stripe): (u64, StripeId),
) -> Result<bool> {
    let _moving = cluster.turns.moving().await;
    let _turn = cluster.turns.of(stripe).await;
    // Its writer may have had it moved meanwhile.
    let held = holders.clone();
    let again = cluster.meta.off(move |meta| due(meta, &held, volume, index, 1)).await?;
    if again.due.first() != Some(&(index, stripe)) {
        return Ok(false);
    }
    let relogged = relog(cluster, volume, index, &[], How::Move).await?;
    record(cluster, relogged).await?;
    Ok(true)
}

/// The logs of a volume that no node has which answers. If some of them are given up, only these are told, and begin empty elsewhere:
/// their blocks are then as the last commit left them.
///
/// # Errors
/// The metadata cannot be read or written; too few nodes answer; a stripe of such a log has another one that no node has and that is
/// not given up.
pub async fn lost_logs(
    cluster: &Arc<Cluster>,
    volume: &VolumeRecord,
    given_up: &GivenUp,
) -> Result<Vec<LostLog>> {
    let abandon = *given_up != GivenUp::None;
    let holders = holders(cluster);
    let (id, block_bytes) = (volume.id, volume.block_bytes);
    let (mut lost, mut first) = (Vec::new(), 0);
    loop {
        let page = cluster.meta.off(move |meta| meta.snapshot()?.volume_rows(id, first, PAGE)).await?;
        let Some((last, _)) = page.last() else { return Ok(lost) };
        first = last + 1;
        for (index, row) in page {
            let has = |node: &NodeId| has_log(holders.folders.get(node).copied(), &row.folders, *node);
            let gone = |(_, log): &(usize, &Vec<NodeId>)| !log.is_empty() && !log.iter().any(has);
            let is_meant = |(_, log): &(usize, &Vec<NodeId>)| !abandon || given_up.includes(log);
            let k = row.logs.len() as u64;
            let logs =
                row.logs.iter().enumerate().filter(gone).filter(is_meant).map(|(block, nodes)| LostLog {
                    offset: (index * k + block as u64) * block_bytes,
                    len: block_bytes,
                    nodes: nodes.clone(),
                });
            let before = lost.len();
            lost.extend(logs);
            if abandon && lost.len() > before {
                let _turn = cluster.turns.of(StripeId(row.stripe)).await;
                let relogged = relog(cluster, id, index, &[], How::Abandon(given_up.clone())).await?;
                record(cluster, relogged).await?;
                tracing::warn!(
                    "{} logs of stripe {index} of volume {id:016x} are abandoned",
                    lost.len() - before
                );
            }
        }
    }
}

/// Which logs of volumes are not on all nodes that should have them, with `holders` as the nodes that answer, and how many stripes were
/// looked at: all that have logs. Blocking.
///
/// # Errors
/// The metadata cannot be read.
pub fn short_logs(snapshot: &Snapshot, holders: &Holders) -> Result<(LogFacts, usize)> {
    let (mut facts, mut looked) = (LogFacts::default(), 0);
    for Volume { name, record, .. } in snapshot.volumes()? {
        // All that was acknowledged is in the blocks: a log that is lost begins empty elsewhere.
        if record.scheme.row().at_once {
            continue;
        }
        let mut first = 0;
        loop {
            let page = snapshot.volume_rows(record.id, first, PAGE)?;
            let Some((last, _)) = page.last() else { break };
            first = last + 1;
            looked += page.len();
            for (_, row) in &page {
                let has = |node: &NodeId| has_log(holders.folders.get(node).copied(), &row.folders, *node);
                facts.look(&name, &row.logs, has);
            }
        }
    }
    Ok((facts, looked))
}

/// The nodes that answer now.
pub fn holders(cluster: &Cluster) -> Holders {
    let members = cluster.members();
    let up = members.iter().filter(|(_, member)| member.holds());
    let folders = up.filter_map(|(node, member)| Some((node, member.record.log()?))).collect();
    let nodes = members.topology().nodes.into_iter().filter(|(_, node)| node.usable);
    Holders { folders, racks: nodes.map(|(id, node)| (id, node.rack)).collect() }
}

#[derive(Default)]
struct Page {
    /// Position and id of stripes whose logs are to be moved.
    due: Vec<(u64, StripeId)>,
    /// Where the next page begins, if there is one.
    next: Option<u64>,
}

/// Reads rows of a volume, at most `count` positions.
fn due(meta: &Meta, holders: &Holders, volume: u64, first: u64, count: u64) -> Result<Page> {
    let snapshot = meta.snapshot()?;
    let mut page = Page::default();
    for (index, logs) in snapshot.volume_rows(volume, first, count)? {
        page.next = Some(index + 1);
        let id = StripeId(logs.stripe);
        if snapshot.stripe(id)?.is_some_and(|stripe| is_due(&logs, &stripe, holders)) {
            page.due.push((index, id));
        }
    }
    Ok(page)
}

/// Whether a node that logs is gone, the home of a block is there again and does not log for it, or all that log are in one
/// rack though there are others.
fn is_due(row: &StripeLogs, stripe: &StripeRecord, holders: &Holders) -> bool {
    row.logs.iter().enumerate().filter(|(_, log)| !log.is_empty()).any(|(index, log)| {
        let is_gone = |node: &NodeId| !has_log(holders.folders.get(node).copied(), &row.folders, *node);
        let home = stripe.block(BlockIndex(index as u8)).filter(|block| !block.lost).map(|block| block.node);
        let is_away =
            home.is_some_and(|home| holders.folders.contains_key(&home) && log.first() != Some(&home));
        is_away || log.iter().any(is_gone) || is_near(log, &holders.racks)
    })
}

/// Whether several nodes log, in one rack, and there are others.
fn is_near(log: &[NodeId], racks: &BTreeMap<NodeId, RackId>) -> bool {
    let Some(rack) = log.first().and_then(|node| racks.get(node)) else { return false };
    log.len() > 1
        && log.iter().all(|node| racks.get(node) == Some(rack))
        && racks.values().any(|other| other != rack)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;

    #[test]
    fn logs_move_from_nodes_that_are_gone_or_lost_their_folder_and_return_to_their_home() {
        let folder = |byte: u8| FolderId([byte; 16]);
        // Block i is on node i, and each node has a rack of its own.
        let stripe = stripe("rs:n=4,k=2", &[]).record;
        let nodes = |all: &[u32]| Holders {
            folders: all.iter().map(|&n| (NodeId(n), folder(n as u8))).collect(),
            racks: all.iter().map(|&n| (NodeId(n), RackId(n))).collect(),
        };
        let row = |logs: [[u32; 2]; 2]| StripeLogs {
            logs: logs.map(|log| log.map(NodeId).to_vec()).to_vec(),
            folders: nodes(&[0, 1, 2, 3]).folders,
            ..StripeLogs::default()
        };
        let all = nodes(&[0, 1, 2, 3]);
        assert!(!is_due(&row([[0, 2], [1, 3]]), &stripe, &all));
        assert!(!is_due(&StripeLogs::default(), &stripe, &nodes(&[0])), "nobody has written");
        assert!(is_due(&row([[0, 2], [1, 3]]), &stripe, &nodes(&[0, 1, 2])), "node 3 is gone");
        assert!(is_due(&row([[0, 2], [3, 2]]), &stripe, &all), "node 1 does not log for its block");
        assert!(!is_due(&row([[0, 2], [3, 2]]), &stripe, &nodes(&[0, 2, 3])), "node 1 is not there");
        let mut other = all.clone();
        other.folders.insert(NodeId(2), folder(9));
        assert!(is_due(&row([[0, 2], [1, 3]]), &stripe, &other), "node 2 has another folder");
        let mut beside = all;
        beside.racks.insert(NodeId(2), RackId(0));
        assert!(is_due(&row([[0, 2], [1, 3]]), &stripe, &beside), "nodes 0 and 2 are in one rack");
        assert!(!is_due(&row([[0, 3], [1, 2]]), &stripe, &beside));
        beside.racks.values_mut().for_each(|rack| *rack = RackId(0));
        assert!(!is_due(&row([[0, 2], [1, 3]]), &stripe, &beside), "there is no other rack");
    }
}
