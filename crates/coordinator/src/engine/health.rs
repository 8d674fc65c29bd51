//! The verdict about a cluster: a pure function of facts that the driver gathers.
//!
//! Each cause says what is wrong, how serious that is, and what to do. An error means that data cannot be read or may be
//! missing, or that nothing can be written; a warning that something needs attention while all data can be read. The
//! verdict is that of the most serious cause.

mod data;
mod metadata;
mod nodes;

use std::collections::{BTreeMap, BTreeSet};

use super::damage::Owners;
use super::repair::Held;
use kintsu_dag::{NodeId, StripeId};
use kintsu_wire::message::{Cause, CauseKind, DamagedStripe, Fullness, Health, Level, NodeState};

/// Most nodes that a cause names.
const NAMED: usize = 20;
/// Most causes that the headline names.
const IN_HEADLINE: usize = 3;

/// What is known of the cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// All nodes, by id.
    pub nodes: Vec<NodeFacts>,
    /// The stripes with blocks that cannot be read.
    pub damage: Damage,
    /// The logs of volumes that are not on all of their nodes.
    pub logs: LogFacts,
    /// Stripes whose blocks contradict each other, and whose they are.
    pub contradicting: Vec<(StripeId, String)>,
    /// What holds back deletes and automatic repairs.
    pub gate: GateFacts,
    /// The repairs.
    pub repairs: RepairFacts,
    /// The copies of the metadata.
    pub copies: CopyFacts,
    /// Each block is to be verified once in this time, in seconds; 0: only on request.
    pub scrub_every_s: u64,
    /// Stripes that were not compared with their codes in time, if that is late.
    pub late_stripes: Option<u64>,
    /// Visible objects, and stripes: those of volumes belong to no object.
    pub stored: u64,
    /// Stripes that have no parity yet.
    pub plain: u64,
    /// Puts that could not be undone when their lease ran out.
    pub hanging_puts: u64,
    /// By how many seconds the clock is behind that of the last copy of the metadata.
    pub clock_back_s: u64,
    /// The codes in use; they may be left out if all of them have nodes enough.
    pub codes: Vec<CodeFacts>,
}

/// A code that objects, puts or volumes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeFacts {
    /// Its name.
    pub name: String,
    /// Blocks of a stripe.
    pub n: usize,
    /// Blocks of data of a stripe.
    pub k: usize,
}

impl CodeFacts {
    /// Blocks of the smallest stripe: only one block of data has bytes.
    pub fn fewest(&self) -> usize {
        self.n - self.k + 1
    }
}

/// One node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its id.
    pub id: NodeId,
    /// Its state.
    pub state: NodeState,
    /// For how long it has been down, in milliseconds.
    pub down_ms: u64,
    /// Blocks placed on it.
    pub placed: u64,
    /// Blocks that looked unknown at once and wait for an operator.
    pub held: u64,
    /// Blocks in its quarantine.
    pub aside: u64,
    /// How full it is.
    pub fullness: Fullness,
    /// Whether it gets new blocks.
    pub open: bool,
    /// Somebody could not reach it since its last heartbeat.
    pub suspect: bool,
    /// It is to be wiped.
    pub wiping: bool,
    /// It gets no new blocks, because it was told to drain.
    pub draining: bool,
    /// A job moves its blocks elsewhere.
    pub drain_runs: bool,
    /// It is known from blocks or from the metadata only.
    pub unheard: bool,
    /// Why its disk cannot be used.
    pub failed: Option<String>,
    /// For how long not all of its blocks have been verified, in seconds.
    pub unverified_s: u64,
    /// For how long no repair of its blocks begins by itself, in seconds.
    pub paused_s: Option<u64>,
}

/// The stripes with blocks that cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Damage {
    /// Stripes that cannot be read.
    pub unreadable: u64,
    /// Whose bytes these have.
    pub owners: Owners,
    /// The others, by how many more losses each bears for sure.
    pub reduced: BTreeMap<u64, u64>,
    /// The most damaged ones.
    pub worst: Vec<DamagedStripe>,
}

impl Damage {
    /// Stripes with blocks that cannot be read.
    pub fn degraded(&self) -> u64 {
        self.unreadable + self.reduced.values().sum::<u64>()
    }
}

/// The logs of volumes that are not on all nodes that were to keep them. A log has what was written to a block since its last
/// commit, so a block without a log cannot be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFacts {
    /// Logs that no living node has, by the names of their volumes.
    pub lost: BTreeMap<String, ShortLogs>,
    /// Logs that a living node has, but not all that should.
    pub few: BTreeMap<String, ShortLogs>,
}

/// Logs of one volume that nodes lack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShortLogs {
    /// How many blocks they are of.
    pub logs: u64,
    /// The nodes that should have them, and are gone or lost their folders.
    pub nodes: BTreeSet<NodeId>,
}

impl LogFacts {
    /// Notes the logs of a stripe of a volume: for each block the nodes that are to keep it. `has`: the node lives, and has it.
    pub fn look(&mut self, volume: &str, logs: &[Vec<NodeId>], has: impl Fn(&NodeId) -> bool) {
        for log in logs {
            let gone: Vec<NodeId> = log.iter().copied().filter(|node| !has(node)).collect();
            if gone.is_empty() {
                continue;
            }
            let short = if gone.len() == log.len() { &mut self.lost } else { &mut self.few };
            let short = short.entry(volume.to_owned()).or_default();
            short.logs += 1;
            short.nodes.extend(gone);
        }
    }

    /// Whether every log is on all of its nodes.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.few.is_empty()
    }

    /// The volumes of which a node that is gone should have logs.
    pub fn volumes_of(&self, node: NodeId) -> BTreeSet<&str> {
        let short = self.lost.iter().chain(&self.few);
        short.filter(|(_, short)| short.nodes.contains(&node)).map(|(volume, _)| volume.as_str()).collect()
    }
}

/// What holds back deletes and automatic repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GateFacts {
    /// Why the metadata count as older than what agents hold.
    pub behind: Option<String>,
    /// The metadata are being rebuilt from blocks.
    pub rebuilding: bool,
    /// Blocks that are not reported yet since the start, of all placed blocks, and the nodes that have not reported.
    pub unreported: Option<(u64, u64, Vec<NodeId>)>,
}

/// The repairs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RepairFacts {
    /// Blocks waiting for or under repair.
    pub pending: u64,
    /// The job and the first failure of the repair that ended last, if it failed.
    pub failed: Option<(u64, String)>,
    /// Automatic repairs were cancelled.
    pub cancelled: bool,
    /// Why automatic repairs of nodes are held.
    pub held: Option<Held>,
    /// A node that is down for so long has its blocks repaired.
    pub grace_ms: u64,
}

/// The copies of the metadata.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CopyFacts {
    /// How many agents are to keep each copy.
    pub wanted: usize,
    /// Age of the newest copy in seconds.
    pub age_s: Option<u64>,
    /// The nodes that took it since the start.
    pub holders: Vec<NodeId>,
    /// Nothing was committed since.
    pub unchanged: bool,
    /// Time between two copies, in seconds.
    pub every_s: u64,
    /// Time since the start of the coordinator, in seconds.
    pub uptime_s: u64,
}

/// The verdict about a cluster.
pub fn judge(facts: &Facts) -> Health {
    let mut causes = Vec::new();
    data::judge(facts, &mut causes);
    nodes::judge(facts, &mut causes);
    metadata::judge(facts, &mut causes);
    causes.sort_by_key(|cause| (std::cmp::Reverse(cause.level), cause.kind));
    let verdict = causes.first().map_or(Level::Healthy, |cause| cause.level);
    Health { verdict, headline: headline(verdict, &causes), causes }
}

fn headline(verdict: Level, causes: &[Cause]) -> String {
    let counted: Vec<&Cause> = causes.iter().filter(|cause| cause.level > Level::Healthy).collect();
    if counted.is_empty() {
        return verdict.to_string();
    }
    let mut text = format!("{verdict}: ");
    let titles: Vec<&str> = counted.iter().take(IN_HEADLINE).map(|cause| cause.title.as_str()).collect();
    text.push_str(&titles.join("; "));
    if counted.len() > IN_HEADLINE {
        text.push_str(&format!("; and {} more", counted.len() - IN_HEADLINE));
    }
    text
}

/// A cause without lists.
fn cause(level: Level, kind: CauseKind, count: u64, title: String, advice: impl Into<String>) -> Cause {
    let (nodes, stripes, details) = Default::default();
    Cause { level, kind, title, advice: advice.into(), count, nodes, stripes, details }
}

/// A cause about nodes. `what` is said of one or several of them: `is dead`, `are dead`.
fn about(
    level: Level,
    kind: CauseKind,
    nodes: &[NodeId],
    what: [&str; 2],
    advice: impl Into<String>,
) -> Cause {
    let title = format!("{} {}", named(nodes), what[usize::from(nodes.len() != 1)]);
    let named = nodes.iter().take(NAMED).copied().collect();
    Cause { nodes: named, ..cause(level, kind, nodes.len() as u64, title, advice) }
}

/// `node 3`, `nodes 3, 4 and 7`, `nodes 3, 4, 7 and 9 others`.
fn named(nodes: &[NodeId]) -> String {
    const SHOWN: usize = 4;
    let ids: Vec<String> = nodes.iter().map(|node| node.0.to_string()).collect();
    match ids.as_slice() {
        [] => "no node".into(),
        [one] => format!("node {one}"),
        all if all.len() <= SHOWN => {
            format!("nodes {} and {}", all[..all.len() - 1].join(", "), all[all.len() - 1])
        }
        all => format!("nodes {} and {} others", all[..SHOWN - 1].join(", "), all.len() - (SHOWN - 1)),
    }
}

/// `1 stripe`, `2 stripes`.
pub(super) fn several(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A duration for people.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
