//! Rebuilds metadata from the blocks that agents hold. After agents have reported their blocks, a pass makes
//! every object visible that can be read, one object after another, the newest first.
//!
//! An object that any agent remembers as removed does not become visible; if it is visible already, it is
//! removed. So each pass first asks all living agents, and does not begin until each of them has answered.
//! Nothing is deleted until an operator has ended the rebuild.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use kintsu_code::{Code, USER};
use kintsu_dag::NodeId;
use kintsu_wire::message::{CodeLabel, DigestBytes, Incomplete, Nothing, RebuildStatus};

use super::guard::guarded;
use crate::answer::answer;
use crate::cluster::Cluster;
use crate::engine::rebuild::{Wanted, assemble};
use crate::error::{CoordinatorError, Result};
use crate::meta::{CodeRecord, Meta, Noted, Shown};

/// How long a pass waits after a report: agents often report at about the same time.
const QUIET: Duration = Duration::from_secs(1);
/// While agents are still reporting, a pass waits again, up to this many times.
const MOST_WAITS: u32 = 20;
/// Delay before a pass that failed is tried again.
const AGAIN: Duration = Duration::from_secs(2);
/// How long an agent may take to say which objects it remembers as removed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most incomplete objects that are named.
const NAMED: usize = 1000;

/// Ranges of ids of removed objects: first and last.
type Ranges = Vec<(u64, u64)>;

/// The progress of a rebuild.
#[derive(Debug, Default)]
pub struct Rebuild {
    /// What each node has reported: blocks, and blocks without labels.
    told: BTreeMap<NodeId, (u64, u64)>,
    /// The nodes that have reported all their blocks.
    done: BTreeSet<NodeId>,
    /// The objects that each node remembers as removed, and the start (incarnation) of the node that said so.
    removed: HashMap<NodeId, (u64, Ranges)>,
    /// How many complete reports have come, from all nodes.
    tellings: u64,
    /// How many of these reports the passes have covered.
    worked_in: u64,
    shown: u64,
    dropped: u64,
    incomplete: Vec<Incomplete>,
    incomplete_count: u64,
    waiting: Option<String>,
}

impl Rebuild {
    /// A node begins a report. Returns whether it has reported something before.
    pub fn begins(&mut self, node: NodeId) -> bool {
        self.done.remove(&node);
        self.told.insert(node, (0, 0)).is_some()
    }

    /// A node has reported some blocks.
    pub fn noted(&mut self, node: NodeId, noted: Noted) {
        let told = self.told.entry(node).or_default();
        (told.0, told.1) = (told.0 + noted.blocks, told.1 + noted.without_label);
    }

    /// A node has reported all its blocks.
    pub fn ends(&mut self, node: NodeId) {
        self.done.insert(node);
        self.tellings += 1;
    }

    /// Whether a node has reported all its blocks.
    pub fn has_told(&self, node: NodeId) -> bool {
        self.done.contains(&node)
    }

    /// Whether the passes have covered all reports.
    pub fn is_settled(&self) -> bool {
        self.worked_in == self.tellings
    }

    /// A pass has ended. `tellings` is the number of complete reports when it began: it may not cover later
    /// ones.
    fn passed(&mut self, tellings: u64, outcome: &mut Outcome) {
        self.shown += outcome.shown;
        self.dropped += outcome.dropped.len() as u64;
        self.incomplete = std::mem::take(&mut outcome.incomplete);
        self.incomplete_count = outcome.incomplete_count;
        self.waiting = None;
        self.worked_in = tellings;
    }

    /// The status, for operators.
    pub fn status(&self, active: bool) -> RebuildStatus {
        RebuildStatus {
            active,
            agents: self.done.len() as u64,
            blocks: self.told.values().map(|told| told.0).sum(),
            without_label: self.told.values().map(|told| told.1).sum(),
            shown: self.shown,
            removed: self.dropped,
            incomplete: self.incomplete_count,
            first_incomplete: self.incomplete.clone(),
            waiting: self.waiting.clone(),
        }
    }
}

/// Makes passes until the coordinator ends.
pub async fn rebuild(cluster: Arc<Cluster>) {
    loop {
        tokio::select! {
            () = cluster.rebuilt.notified() => {}
            () = tokio::time::sleep(AGAIN) => {}
        }
        if !cluster.is_rebuilding() || cluster.rebuild().is_settled() {
            continue;
        }
        for _ in 0..MOST_WAITS {
            tokio::time::sleep(QUIET).await;
            if cluster.reports().is_empty() {
                break;
            }
        }
        if let Err(error) = guarded(pass(&cluster)).await {
            tracing::warn!("rebuilding has to wait: {error}");
            cluster.rebuild().waiting = Some(error.to_string());
        }
    }
}

/// The result of a pass.
#[derive(Default)]
struct Outcome {
    shown: u64,
    dropped: Vec<String>,
    incomplete: Vec<Incomplete>,
    incomplete_count: u64,
}

/// Makes all objects visible that are complete now.
///
/// # Errors
/// An agent does not say which objects it remembers as removed; the disk fails.
pub(super) async fn pass(cluster: &Arc<Cluster>) -> Result<()> {
    let tellings = cluster.rebuild().tellings;
    let removed = removed(cluster).await?;
    let worker = cluster.clone();
    let mut outcome = cluster.meta.off(move |meta| build(&worker, meta, &removed)).await?;
    let status = {
        let mut rebuild = cluster.rebuild();
        rebuild.passed(tellings, &mut outcome);
        rebuild.status(true)
    };
    for name in &outcome.dropped {
        tracing::warn!("{name:?} is removed: an agent remembers its removal");
    }
    tracing::warn!(
        "rebuilding: {} agents, {} blocks, {} objects back, {} incomplete (`kintsu rebuild` shows them, `kintsu rebuild \
         finish` ends it)",
        status.agents,
        status.blocks,
        status.shown,
        status.incomplete
    );
    cluster.auto().nodes_changed();
    Ok(())
}

/// The objects that the metadata or any living agent remember as removed, as ordered ranges of ids.
async fn removed(cluster: &Arc<Cluster>) -> Result<Ranges> {
    let living: Vec<(NodeId, u64)> = {
        let members = cluster.members();
        members.iter().filter(|(_, m)| m.up).map(|(node, m)| (node, m.record.incarnation)).collect()
    };
    for (node, start) in living {
        if cluster.rebuild().removed.get(&node).is_some_and(|known| known.0 == start) {
            continue;
        }
        let mut agent = cluster.agent(node)?;
        let late = "it did not say which objects are removed";
        let ranges = answer(node, PATIENCE, late, agent.removed(Nothing {})).await?.ranges;
        cluster.rebuild().removed.insert(node, (start, ranges));
    }
    let own = cluster.meta.off(|meta| meta.snapshot()?.graves(0, usize::MAX)).await?;
    let mut ranges: Ranges = own.into_iter().map(|(_, object)| (object, object)).collect();
    ranges.extend(cluster.rebuild().removed.values().flat_map(|(_, ranges)| ranges.iter().copied()));
    Ok(merged(ranges))
}

/// The same ids as ordered ranges that neither overlap nor touch.
fn merged(mut ranges: Ranges) -> Ranges {
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    let mut out: Ranges = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match out.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

fn is_in(ranges: &Ranges, id: u64) -> bool {
    let before = ranges.partition_point(|(first, _)| *first <= id);
    before.checked_sub(1).is_some_and(|at| ranges[at].1 >= id)
}

/// Does the work of one pass, over all objects that were found. Blocking.
fn build(cluster: &Cluster, meta: &Meta, removed: &Ranges) -> Result<Outcome> {
    let mut outcome = Outcome { dropped: meta.drop_buried(removed)?, ..Outcome::default() };
    let mut codes = Codes::default();
    for id in meta.snapshot()?.found_objects()? {
        let snapshot = meta.snapshot()?;
        if is_in(removed, id) || snapshot.name(id)?.is_some() || snapshot.put(id)?.is_some() {
            meta.drop_found(&[id])?;
            continue;
        }
        let Some((object, found)) = snapshot.found(id)? else { continue };
        if snapshot.object_id(&object.name)?.is_some_and(|known| known > id) {
            // An older version: its blocks stay where they are, and stay unknown.
            continue;
        }
        let nodes: BTreeSet<NodeId> = snapshot.nodes()?.into_keys().collect();
        let whole = codes.find(&object.code).and_then(|code| {
            let (size, encoding) = (object.size, object.encoding);
            let wanted = Wanted { id, size, encoding, code: code.as_ref(), key: 0, nodes: &nodes };
            Ok((CodeRecord::of(code.as_ref()), assemble(wanted, &found)?))
        });
        drop(found);
        let (name, size) = (object.name.clone(), object.size);
        let shown = match whole {
            Ok((code, stripes)) => {
                match meta.show_found(Shown { object, code, stripes }, cluster.unix_seconds()) {
                    Ok(shown) => Ok(shown),
                    Err(
                        error @ (CoordinatorError::Conflict { .. }
                        | CoordinatorError::NotFound { .. }
                        | CoordinatorError::Corrupt { .. }),
                    ) => Err(error.to_string()),
                    Err(error) => return Err(error),
                }
            }
            Err(missing) => Err(missing),
        };
        match shown {
            Ok(None) => {}
            Ok(Some(unheard)) => {
                let now = cluster.now_ms();
                let mut members = cluster.members();
                unheard.into_iter().for_each(|(node, record)| members.unheard(node, record, now));
                outcome.shown += 1;
            }
            Err(missing) => {
                outcome.incomplete_count += 1;
                if outcome.incomplete.len() < NAMED {
                    outcome.incomplete.push(Incomplete { name, version: id, size, missing });
                }
            }
        }
    }
    meta.settle()?;
    Ok(outcome)
}

/// The codes that labels name, each proved once per pass.
#[derive(Default)]
struct Codes(HashMap<(String, DigestBytes), Result<Arc<dyn Code>, String>>);

impl Codes {
    fn find(&mut self, label: &CodeLabel) -> Result<Arc<dyn Code>, String> {
        let key = (label.name.clone(), label.generator);
        self.0.entry(key).or_insert_with(|| prove(label)).clone()
    }
}

/// The code of a label, if its name still means the generator that the label records.
fn prove(label: &CodeLabel) -> Result<Arc<dyn Code>, String> {
    let name = &label.name;
    let code = match (&label.definition, name.starts_with(USER)) {
        (Some(definition), true) => definition.prove(),
        (None, false) => kintsu_code::parse(name),
        _ => {
            return Err(format!("code {name}: expected a definition if and only if it is a registered code"));
        }
    };
    let code = code.map_err(|e| format!("code {name}: {e}"))?;
    let now = CodeLabel::of(code.as_ref(), label.definition.clone());
    if (&now.name, now.n, now.k, now.w, now.generator) == (name, label.n, label.k, label.w, label.generator) {
        return Ok(code);
    }
    Err(format!("code {name}: expected the generator in the blocks' labels, got another one by this name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn merged_ranges_hold_the_same_ids(ranges in prop::collection::vec((0u64..40, 0u64..40), 0..12)) {
            let merged = merged(ranges.clone());
            for id in 0..42 {
                let held = ranges.iter().any(|(first, last)| (*first..=*last).contains(&id));
                prop_assert_eq!(is_in(&merged, id), held, "{}", id);
            }
            prop_assert!(merged.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }
    }

    #[test]
    fn a_node_that_tells_again_during_a_pass_is_worked_in_by_the_next_one() {
        let mut rebuild = Rebuild::default();
        assert!(rebuild.is_settled() && !rebuild.begins(NodeId(1)));
        rebuild.ends(NodeId(1));
        let at_the_begin = rebuild.tellings;
        assert!(rebuild.begins(NodeId(1)) && !rebuild.is_settled());
        rebuild.ends(NodeId(1));
        rebuild.passed(at_the_begin, &mut Outcome::default());
        assert!(!rebuild.is_settled());
        rebuild.passed(rebuild.tellings, &mut Outcome::default());
        assert!(rebuild.is_settled());
    }

    #[test]
    fn a_code_counts_only_if_it_means_the_generator_of_the_label() {
        let code = kintsu_code::parse("rs:n=5,k=3").unwrap();
        let label = CodeLabel::of(code.as_ref(), None);
        assert_eq!(prove(&label).unwrap().name(), "rs:n=5,k=3");
        let other = CodeLabel { generator: [1; 16], ..label.clone() };
        assert!(prove(&other).unwrap_err().contains("another one by this name"));
        let nameless = CodeLabel { name: "user:mine".into(), ..label };
        assert!(prove(&nameless).unwrap_err().contains("expected a definition"));
    }
}
