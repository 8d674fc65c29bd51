//! Sweeps of garbage, decided here and done elsewhere: which nodes are swept now, and what a node's answer shows.
//!
//! Invariants: a node is swept once at a time; a node that failed is left alone for a time that grows with each failure; only
//! files that a node was asked to delete count as deleted.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, NodeId};
use kintsu_wire::message::{BlockRef, Deleted};

/// A node that failed is left alone for so long, twice as long after each failure,
const FIRST_REST_MS: u64 = 500;
/// but no longer than this.
const LONGEST_REST_MS: u64 = 60_000;

/// What is known of the sweeps of all nodes.
#[derive(Debug, Default)]
pub struct Sweeps(BTreeMap<NodeId, State>);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    busy: bool,
    failures: u32,
    not_before_ms: u64,
    told: u64,
}

impl Sweeps {
    /// A node is to be swept: the number of the last removed object that it was told of. `None` if it is being swept, or
    /// has to be left alone.
    pub fn begin(&mut self, node: NodeId, now_ms: u64) -> Option<u64> {
        let state = self.0.entry(node).or_default();
        if state.busy || now_ms < state.not_before_ms {
            return None;
        }
        state.busy = true;
        Some(state.told)
    }

    /// The number of the last removed object that a node was told of.
    pub fn told(&self, node: NodeId) -> u64 {
        self.0.get(&node).map_or(0, |state| state.told)
    }

    /// Whether a node is being swept.
    #[cfg(test)]
    pub fn is_busy(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|state| state.busy)
    }

    /// The sweep of a node has ended; it was told of the removed objects up to number `told`.
    pub fn ended(&mut self, node: NodeId, told: u64, failed: bool, now_ms: u64) {
        let state = self.0.entry(node).or_default();
        (state.busy, state.told) = (false, told);
        if !failed {
            state.failures = 0;
            return;
        }
        let rest_ms = (FIRST_REST_MS << state.failures.min(10)).min(LONGEST_REST_MS);
        state.failures += 1;
        state.not_before_ms = now_ms + rest_ms;
    }
}

/// The files of one node that could not be deleted.
#[derive(Debug, Default)]
pub struct Stuck {
    files: BTreeSet<BlockId>,
    reason: String,
}

impl Stuck {
    /// A node was asked to delete these files, and has answered: the files that are gone. `None` if it did not say what
    /// became of all of them.
    pub fn answered(&mut self, asked: &[BlockRef], deleted: Deleted) -> Option<Vec<BlockRef>> {
        let ids: BTreeSet<(BlockId, u32)> = asked.iter().map(|file| (file.id, file.generation)).collect();
        let Deleted { mut gone, failed } = deleted;
        gone.retain(|file| ids.contains(&(file.id, file.generation)));
        if gone.len() + failed.len() < ids.len() {
            return None;
        }
        for (file, why) in failed {
            self.files.insert(file.id);
            self.reason = why;
        }
        Some(gone)
    }

    /// The files that are not tried again by this sweep.
    pub fn files(&self) -> &BTreeSet<BlockId> {
        &self.files
    }

    /// Why garbage is left, if it is.
    pub fn why(&self) -> Option<String> {
        let count = self.files.len();
        (count > 0).then(|| format!("{count} of its files could not be deleted: {}", self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockIndex, StripeId};

    const NODE: NodeId = NodeId(1);

    fn file(stripe: u64) -> BlockRef {
        BlockRef { id: BlockId { stripe: StripeId(stripe), index: BlockIndex(0) }, generation: 1 }
    }

    #[test]
    fn a_node_is_swept_once_at_a_time_and_rests_longer_after_each_failure() {
        let mut sweeps = Sweeps::default();
        assert_eq!((sweeps.begin(NODE, 0), sweeps.begin(NODE, 0)), (Some(0), None));
        sweeps.ended(NODE, 5, true, 0);
        assert_eq!((sweeps.begin(NODE, 499), sweeps.begin(NODE, 500)), (None, Some(5)));
        sweeps.ended(NODE, 5, true, 500);
        assert_eq!((sweeps.begin(NODE, 1499), sweeps.begin(NODE, 1500)), (None, Some(5)));
        sweeps.ended(NODE, 9, false, 1500);
        assert_eq!(sweeps.begin(NODE, 1500), Some(9));
        for _ in 0..40 {
            sweeps.ended(NODE, 9, true, 2000);
        }
        assert_eq!((sweeps.begin(NODE, 61_999), sweeps.begin(NODE, 62_000)), (None, Some(9)));
    }

    #[test]
    fn only_files_that_were_asked_for_count_and_all_must_be_accounted_for() {
        let deleted = |gone: &[u64], failed: &[u64]| Deleted {
            gone: gone.iter().map(|stripe| file(*stripe)).collect(),
            failed: failed.iter().map(|stripe| (file(*stripe), "busy".into())).collect(),
        };
        let mut stuck = Stuck::default();
        let asked = [file(1), file(2)];
        assert_eq!(stuck.answered(&asked, deleted(&[1, 2, 3], &[])), Some(asked.to_vec()));
        assert_eq!(stuck.answered(&asked, deleted(&[1, 3], &[])), None);
        assert_eq!(stuck.why(), None);
        assert_eq!(stuck.answered(&asked, deleted(&[1], &[2])), Some(vec![file(1)]));
        assert!(stuck.files().contains(&file(2).id));
        assert_eq!(stuck.why().unwrap(), "1 of its files could not be deleted: busy");
    }
}
