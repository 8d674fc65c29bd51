//! Copies of the metadata on agents. A copy is made regularly if something was committed since the last one,
//! and at a clean shutdown.
//!
//! A snapshot is offered under a number. Agents are told the number, fetch the copy with a call of their own,
//! check it and keep it. The copies go to agents in different racks where possible. If an agent does not take
//! the copy, another agent is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use kintsu_dag::{NodeId, RackId};
use kintsu_wire::Credentials;
use kintsu_wire::copy::CopyHeader;
use kintsu_wire::message::{KeepCopy, LastCopy};
use tokio::sync::Semaphore;

use crate::answer::answer;
use crate::cluster::{Cluster, lock};
use crate::error::{CoordinatorError, Result};
use crate::meta::{Meta, Snapshot};

/// How long an agent may take to fetch and store a copy.
const PATIENCE: Duration = Duration::from_secs(300);
/// The same limit for the last copy, when the coordinator shuts down.
const LAST_PATIENCE: Duration = Duration::from_secs(15);
/// Delay before the next try if no agent took a copy, and before the first copy of a new cluster.
const SOON: Duration = Duration::from_secs(30);
/// Most copies that agents and operators may read at once.
const SERVED: usize = 4;

/// A snapshot that agents can fetch as a copy.
pub struct Offer {
    pub header: CopyHeader,
    pub snapshot: Snapshot,
    /// Number of transactions that were committed when the snapshot was taken.
    history: u64,
}

/// The state of the copies.
pub struct Copies {
    credentials: Credentials,
    /// Limits how many copies are served at once.
    pub serving: Arc<Semaphore>,
    /// Allows only one copy at a time to be given to agents.
    turn: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    offer: Option<Arc<Offer>>,
    /// [`Meta::history`] at the last copy. While it has this value, nothing was committed since that copy.
    unchanged: Option<u64>,
    nodes: Vec<NodeId>,
}

/// A copy that agents took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its number.
    pub number: u64,
    /// The agents that keep it; empty when none took it.
    pub nodes: Vec<NodeId>,
    /// Why other agents did not take it.
    pub failed: Vec<String>,
}

impl Copied {
    /// The result if no agent took a copy within `limit`.
    pub fn late(limit: Duration) -> Self {
        let failed = vec![format!("no agent has kept it within {} s", limit.as_secs())];
        Self { number: 0, nodes: Vec::new(), failed }
    }
}

impl Copies {
    pub fn new(credentials: Credentials) -> Self {
        let serving = Arc::new(Semaphore::new(SERVED));
        Self { credentials, serving, turn: tokio::sync::Mutex::default(), state: Mutex::default() }
    }

    /// Takes a snapshot now, and makes the header of its copy.
    ///
    /// # Errors
    /// The disk fails.
    pub fn take(&self, meta: &Meta, unix_seconds: u64) -> Result<Offer> {
        // The history is read before the snapshot is taken. If something is committed in between, it is in
        // the copy, and only an unnecessary copy follows.
        let history = meta.history();
        let snapshot = meta.snapshot()?;
        let header = snapshot.copy_header(unix_seconds, self.credentials.cluster())?;
        Ok(Offer { header, snapshot, history })
    }

    /// The snapshot that agents may fetch under this number.
    pub fn offered(&self, number: u64) -> Option<Arc<Offer>> {
        lock(&self.state).offer.clone().filter(|offer| offer.header.number == number)
    }

    /// The newest copy that agents took.
    ///
    /// # Errors
    /// The disk fails.
    pub fn last(&self, snapshot: &Snapshot, unix_seconds: u64) -> Result<Option<LastCopy>> {
        let nodes = lock(&self.state).nodes.clone();
        let last = snapshot.last_copy()?;
        Ok(last.map(|(_, time)| LastCopy { age_seconds: unix_seconds.saturating_sub(time), nodes }))
    }

    /// The agents that took the newest copy since the start.
    pub fn holders(&self) -> Vec<NodeId> {
        lock(&self.state).nodes.clone()
    }

    /// Whether something was committed since the last copy, as far as known.
    pub fn changed(&self, meta: &Meta) -> bool {
        lock(&self.state).unchanged != Some(meta.history())
    }
}

/// Makes copies until the coordinator ends.
pub async fn copies(cluster: Arc<Cluster>) {
    let (count, every) = (cluster.config.metadata_copies, cluster.config.copy_every);
    if count == 0 {
        return;
    }
    let first = cluster.meta.off(|meta| Ok(meta.snapshot()?.last_copy()?.is_none())).await;
    let mut pause = if first.unwrap_or(false) { every.min(SOON) } else { every };
    loop {
        tokio::time::sleep(pause).await;
        pause = match copy(&cluster, PATIENCE).await {
            Ok(Some(copied)) if copied.nodes.is_empty() => every.min(SOON),
            Ok(_) => every,
            Err(error) => {
                tracing::error!("no copy of the metadata: {error}");
                every.min(SOON)
            }
        };
    }
}

/// Makes a last copy before the coordinator ends; `None` if none is needed or possible.
pub async fn last_copy(cluster: &Arc<Cluster>) -> Option<Copied> {
    if cluster.config.metadata_copies == 0 || cluster.members().usable().is_empty() {
        return None;
    }
    match copy(cluster, LAST_PATIENCE).await {
        Ok(copied) => copied,
        Err(error) => Some(Copied { number: 0, nodes: Vec::new(), failed: vec![error.to_string()] }),
    }
}

async fn copy(cluster: &Arc<Cluster>, patience: Duration) -> Result<Option<Copied>> {
    let _turn = cluster.copies.turn.lock().await;
    // Metadata that are older than what agents remember, or only partly rebuilt, must replace no better copy.
    if !cluster.gate().is_trusted() || !cluster.copies.changed(&cluster.meta) {
        return Ok(None);
    }
    let (worker, now) = (cluster.clone(), cluster.unix_seconds());
    let offer = Arc::new(cluster.meta.off(move |meta| worker.copies.take(meta, now)).await?);
    lock(&cluster.copies.state).offer = Some(offer.clone());
    let copied = give(cluster, &offer.header, patience).await;
    // The store keeps old pages as long as the snapshot lives.
    lock(&cluster.copies.state).offer = None;
    if copied.nodes.is_empty() {
        // A cluster without agents is not worth a warning.
        if let Some(failure) = copied.failed.first() {
            let count = copied.failed.len();
            tracing::warn!("none of {count} agents took a copy of the metadata; the first: {failure}");
        }
        return Ok(Some(copied));
    }
    let nodes: Vec<String> = copied.nodes.iter().map(ToString::to_string).collect();
    tracing::info!("copy {} of the metadata is kept by {}", copied.number, nodes.join(", "));
    let header = offer.header.clone();
    cluster.meta.off(move |meta| meta.copied(&header)).await?;
    let mut state = lock(&cluster.copies.state);
    state.unchanged = Some(offer.history);
    state.nodes = copied.nodes.clone();
    Ok(Some(copied))
}

/// Has agents take the copy on offer.
async fn give(cluster: &Arc<Cluster>, header: &CopyHeader, patience: Duration) -> Copied {
    let living: Vec<(NodeId, RackId)> = {
        let members = cluster.members();
        let usable = members.usable();
        let living = members.iter().filter(|(id, _)| usable.contains(id));
        living.map(|(id, member)| (id, member.record.rack)).collect()
    };
    let mut candidates = spread(&living).into_iter();
    let count = cluster.config.metadata_copies;
    let mut copied = Copied { number: header.number, nodes: Vec::new(), failed: Vec::new() };
    let keep = |node| async move { (node, keep(cluster, node, header.number, patience).await) };
    let mut under_way: FuturesUnordered<_> = candidates.by_ref().take(count).map(keep).collect();
    while let Some((node, kept)) = under_way.next().await {
        match kept {
            Ok(()) => copied.nodes.push(node),
            Err(error) => {
                tracing::info!("{error}");
                copied.failed.push(error.to_string());
                under_way.extend(candidates.next().map(keep));
            }
        }
    }
    copied.nodes.sort_unstable();
    copied
}

async fn keep(cluster: &Arc<Cluster>, node: NodeId, number: u64, patience: Duration) -> Result<()> {
    let mut agent = cluster.agent(node)?;
    let late = format!("it did not keep a copy within {} s", patience.as_secs());
    let got = answer(node, patience, &late, agent.keep_copy(KeepCopy { number })).await?.number;
    if got == number {
        return Ok(());
    }
    Err(CoordinatorError::Unavailable { node, reason: format!("expected copy {number}, got {got}") })
}

/// The order in which nodes are asked: one of each rack, then a second one of each rack, and so on. The order
/// is the same each time while the same nodes are alive, so that few nodes keep old copies.
fn spread(nodes: &[(NodeId, RackId)]) -> Vec<NodeId> {
    let mut racks: BTreeMap<RackId, u32> = BTreeMap::new();
    let turn = |&(node, rack): &(NodeId, RackId)| {
        let turn = racks.entry(rack).or_default();
        *turn += 1;
        (*turn, rack, node)
    };
    let mut turns: Vec<_> = nodes.iter().map(turn).collect();
    turns.sort_unstable();
    turns.into_iter().map(|(_, _, node)| node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_go_to_different_racks_where_there_are_such() {
        let nodes = |racks: &[u32]| -> Vec<_> {
            racks.iter().enumerate().map(|(i, &rack)| (NodeId(i as u32), RackId(rack))).collect()
        };
        let ids = |ids: &[u32]| ids.iter().map(|&id| NodeId(id)).collect::<Vec<_>>();
        assert_eq!(spread(&nodes(&[0, 0, 1, 1, 2])), ids(&[0, 2, 4, 1, 3]));
        assert_eq!(spread(&nodes(&[5, 5, 5])), ids(&[0, 1, 2]));
        assert_eq!(spread(&nodes(&[])), ids(&[]));
    }
}
