//! How far a rebuild of the metadata is: what the agents told, what is gone for good, and when an operator may end it.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;
use kintsu_wire::message::{Covered, Incomplete, RebuildStatus};

/// Incomplete objects that are told by name.
const NAMED: usize = 1000;

/// Ids of removed objects, as ranges: first and last.
pub type Ranges = Vec<(u64, u64)>;

/// How far a rebuild is.
#[derive(Debug, Default)]
pub struct Rebuild {
    /// What each node told: blocks, and blocks without labels.
    told: BTreeMap<NodeId, (u64, u64)>,
    /// The nodes that have told all.
    done: BTreeSet<NodeId>,
    /// The objects that each node remembers as removed, and the start (incarnation) of the node that said so.
    removed: BTreeMap<NodeId, (u64, Ranges)>,
    /// How often a node has reported everything.
    tellings: u64,
    /// How many of these reports are taken into account.
    worked_in: u64,
    shown: u64,
    dropped: u64,
    incomplete: Vec<Incomplete>,
    incomplete_count: u64,
    covered: Vec<Covered>,
    covered_count: u64,
    waiting: Option<String>,
}

/// What a pass over all that was found came to.
#[derive(Debug, Default)]
pub struct Pass {
    /// Objects that are visible again.
    pub shown: u64,
    /// The names of objects that an agent remembers as removed.
    pub dropped: Vec<String>,
    incomplete: Vec<Incomplete>,
    incomplete_count: u64,
    covered: Vec<Covered>,
    covered_count: u64,
}

impl Pass {
    /// One that begins after these objects were removed.
    pub fn new(dropped: Vec<String>) -> Self {
        Self { dropped, ..Self::default() }
    }

    /// An object cannot be shown.
    pub fn incomplete(&mut self, object: Incomplete) {
        self.incomplete_count += 1;
        if self.incomplete.len() < NAMED {
            self.incomplete.push(object);
        }
    }

    /// An object is whole, and a newer version of it is visible.
    pub fn covered(&mut self, object: Covered) {
        // It may be found at several places.
        if self.covered.iter().any(|known| known.version == object.version) {
            return;
        }
        self.covered_count += 1;
        if self.covered.len() < NAMED {
            self.covered.push(object);
        }
    }
}

impl Rebuild {
    /// A node begins to tell. Whether it told something before.
    pub fn begins(&mut self, node: NodeId) -> bool {
        self.done.remove(&node);
        self.told.insert(node, (0, 0)).is_some()
    }

    /// A node has told of some blocks, and of some without labels.
    pub fn noted(&mut self, node: NodeId, blocks: u64, without_label: u64) {
        let told = self.told.entry(node).or_default();
        (told.0, told.1) = (told.0 + blocks, told.1 + without_label);
    }

    /// A node has told of all its blocks.
    pub fn ends(&mut self, node: NodeId) {
        self.done.insert(node);
        self.tellings += 1;
    }

    /// An object was removed: an older version of it may become visible.
    pub fn uncovers(&mut self) {
        self.tellings += 1;
    }

    /// Those of these living nodes, with the starts of their agents, that must be asked which objects are removed.
    pub fn unasked(&self, mut living: Vec<(NodeId, u64)>) -> Vec<(NodeId, u64)> {
        living.retain(|(node, start)| self.removed.get(node).is_none_or(|known| known.0 != *start));
        living
    }

    /// A node remembers these objects as removed.
    pub fn remembers(&mut self, node: NodeId, start: u64, removed: Ranges) {
        self.removed.insert(node, (start, removed));
    }

    /// All objects that are gone for good, as the nodes and the metadata, which know `own`, remember.
    pub fn removed(&self, own: impl Iterator<Item = u64>) -> Ranges {
        let mut ranges: Ranges = own.map(|object| (object, object)).collect();
        ranges.extend(self.removed.values().flat_map(|(_, ranges)| ranges.iter().copied()));
        merged(ranges)
    }

    /// Whether all news are worked in.
    pub fn is_settled(&self) -> bool {
        self.worked_in == self.tellings
    }

    /// How often a node has told all: a pass that begins now works in so much.
    pub fn tellings(&self) -> u64 {
        self.tellings
    }

    /// A pass is done that began when nodes had told all so often. Who told in between may have told more.
    pub fn passed(&mut self, tellings: u64, pass: Pass) {
        self.shown += pass.shown;
        self.dropped += pass.dropped.len() as u64;
        (self.incomplete, self.incomplete_count) = (pass.incomplete, pass.incomplete_count);
        (self.covered, self.covered_count) = (pass.covered, pass.covered_count);
        self.waiting = None;
        self.worked_in = tellings;
    }

    /// A pass could not be made.
    pub fn waits(&mut self, why: String) {
        self.waiting = Some(why);
    }

    /// Why an operator cannot end it yet, if so: what is expected, and what there is.
    pub fn unfinished(&self, living: &[NodeId]) -> Option<(&'static str, String)> {
        if let Some(node) = living.iter().find(|node| !self.done.contains(node)) {
            return Some(("block reports from all living nodes", format!("none from {node} yet")));
        }
        self.unsettled().map(|got| ("all reports of agents to be processed", got))
    }

    /// Why not all news are worked in yet.
    fn unsettled(&self) -> Option<String> {
        let news = || "reports that have just come: try again in a moment".into();
        (!self.is_settled()).then(|| self.waiting.clone().unwrap_or_else(news))
    }

    /// For people.
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
            covered: self.covered_count,
            first_covered: self.covered.clone(),
            waiting: self.unsettled().filter(|_| active),
        }
    }
}

/// The same ids as ranges in order that do not touch.
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

/// Whether an id is in ranges that are in order.
pub fn is_in(ranges: &Ranges, id: u64) -> bool {
    let before = ranges.partition_point(|(first, _)| *first <= id);
    before.checked_sub(1).is_some_and(|at| ranges[at].1 >= id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NODE: NodeId = NodeId(1);

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
        assert!(rebuild.is_settled() && !rebuild.begins(NODE));
        rebuild.ends(NODE);
        let at_the_begin = rebuild.tellings();
        assert!(rebuild.begins(NODE) && !rebuild.is_settled());
        rebuild.ends(NODE);
        rebuild.passed(at_the_begin, Pass::default());
        assert!(!rebuild.is_settled());
        rebuild.passed(rebuild.tellings(), Pass::default());
        assert!(rebuild.is_settled());
    }

    #[test]
    fn it_ends_only_when_all_living_nodes_have_told_all_and_that_is_worked_in() {
        let mut rebuild = Rebuild::default();
        let got = |rebuild: &Rebuild| rebuild.unfinished(&[NODE]).map(|(_, got)| got);
        assert_eq!(got(&rebuild).unwrap(), "none from N1 yet");
        rebuild.begins(NODE);
        rebuild.ends(NODE);
        assert!(got(&rebuild).unwrap().contains("try again"));
        assert_eq!(rebuild.status(true).waiting, got(&rebuild), "who looks sees that it is not all");
        rebuild.waits("N2 is silent".into());
        assert_eq!(got(&rebuild).unwrap(), "N2 is silent");
        rebuild.passed(rebuild.tellings(), Pass::default());
        assert_eq!((got(&rebuild), rebuild.status(true).waiting), (None, None));
    }

    #[test]
    fn a_node_is_asked_for_removed_objects_once_a_start() {
        let mut rebuild = Rebuild::default();
        assert_eq!(rebuild.unasked(vec![(NODE, 7)]), [(NODE, 7)]);
        rebuild.remembers(NODE, 7, vec![(3, 5)]);
        assert_eq!(rebuild.unasked(vec![(NODE, 7)]), []);
        assert_eq!(rebuild.unasked(vec![(NODE, 8)]), [(NODE, 8)]);
        assert_eq!(rebuild.removed([6, 9].into_iter()), [(3, 6), (9, 9)]);
    }
}
