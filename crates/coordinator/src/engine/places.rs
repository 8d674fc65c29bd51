//! Decides which job may write or delete which block file: a pure state machine.
//!
//! A *place* is a block on a node. Jobs claim the places that they write to, and keep the claim until their
//! results are committed and their leftovers are recorded as garbage. A sweep claims the places whose files
//! it deletes: from before it reads the rows of garbage until it has committed that the files are gone. A job
//! that sets files aside claims their places in the same way as a sweep.
//!
//! Invariants: a place is never claimed for writing and for sweeping at once; several jobs may write to one
//! place (the node's store lets only one of them succeed), but only one sweep may sweep it; a claim that was
//! held when its node was wiped or forgotten is void, because what was written under it may be gone.
//!
//! Claims are not durable. After a restart nothing is being written or swept, and only the rows of garbage
//! remain.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, NodeId};

/// A block on a node.
pub type Place = (NodeId, BlockId);

/// All claims.
#[derive(Debug, Default)]
pub struct Places {
    claims: BTreeMap<Place, Claim>,
    /// How often each node was wiped, replaced or forgotten since the start.
    wipes: BTreeMap<NodeId, u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Claim {
    /// This many jobs write there.
    Written(u32),
    Swept,
}

impl Places {
    /// Claims places for writing: all of them or none.
    ///
    /// # Errors
    /// A place that is being swept.
    pub fn write(&mut self, places: &[Place]) -> Result<(), Place> {
        if let Some(place) = places.iter().find(|place| self.claims.get(place) == Some(&Claim::Swept)) {
            return Err(*place);
        }
        for place in places {
            match self.claims.entry(*place).or_insert(Claim::Written(0)) {
                Claim::Written(jobs) => *jobs += 1,
                Claim::Swept => {}
            }
        }
        Ok(())
    }

    /// Gives up one claim for writing on each of these places.
    pub fn written(&mut self, places: &[Place]) {
        for place in places {
            match self.claims.get_mut(place) {
                Some(Claim::Written(jobs)) if *jobs > 1 => *jobs -= 1,
                Some(Claim::Written(_)) => drop(self.claims.remove(place)),
                Some(Claim::Swept) | None => {}
            }
        }
    }

    /// Claims for sweeping those of these places that nobody has claimed, and returns them.
    pub fn sweep(&mut self, places: impl IntoIterator<Item = Place>) -> Vec<Place> {
        let free = |place: &Place| !self.claims.contains_key(place);
        let free: BTreeSet<Place> = places.into_iter().filter(free).collect();
        self.claims.extend(free.iter().map(|place| (*place, Claim::Swept)));
        free.into_iter().collect()
    }

    /// Gives up the claims of a sweep.
    pub fn swept(&mut self, places: &[Place]) {
        for place in places {
            if self.claims.get(place) == Some(&Claim::Swept) {
                self.claims.remove(place);
            }
        }
    }

    /// The blocks that are being written to a node.
    pub fn written_to(&self, node: NodeId) -> BTreeSet<BlockId> {
        let writes = self.claims.iter().filter(|(_, claim)| matches!(claim, Claim::Written(_)));
        writes.filter(|((at, _), _)| *at == node).map(|((_, id), _)| *id).collect()
    }

    /// A node is about to be wiped or forgotten, or has got another folder: what was written there under the claims of now
    /// does not count.
    pub fn wiped(&mut self, node: NodeId) {
        *self.wipes.entry(node).or_default() += 1;
    }

    /// How often a node was wiped, replaced or forgotten: a claim is void when this has grown since it was taken.
    pub fn wipes(&self, node: NodeId) -> u64 {
        self.wipes.get(&node).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockIndex, StripeId};
    use proptest::prelude::*;

    fn place(node: u8, index: u8) -> Place {
        (NodeId(node.into()), BlockId { stripe: StripeId(1), index: BlockIndex(index) })
    }

    #[derive(Debug, Clone)]
    enum Step {
        Write(Vec<Place>),
        Written(usize),
        Sweep(Vec<Place>),
        Swept(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let some = || prop::collection::vec((0u8..2, 0u8..4).prop_map(|(n, i)| place(n, i)), 0..5);
        prop_oneof![
            some().prop_map(|mut places| {
                places.sort_unstable();
                places.dedup();
                Step::Write(places)
            }),
            (0usize..8).prop_map(Step::Written),
            some().prop_map(Step::Sweep),
            (0usize..8).prop_map(Step::Swept),
        ]
    }

    proptest! {
        #[test]
        fn no_place_is_written_and_swept_at_once_and_all_are_free_at_the_end(
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let mut places = Places::default();
            let (mut writers, mut sweeps): (Vec<Vec<Place>>, Vec<Vec<Place>>) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Write(wanted) => {
                        let swept = sweeps.iter().flatten().any(|place| wanted.contains(place));
                        let claimed = places.write(&wanted);
                        prop_assert_eq!(claimed.is_err(), swept);
                        if claimed.is_ok() {
                            writers.push(wanted);
                        }
                    }
                    Step::Written(at) if at < writers.len() => places.written(&writers.swap_remove(at)),
                    Step::Sweep(wanted) => {
                        let got = places.sweep(wanted.clone());
                        for place in wanted {
                            let taken = writers.iter().chain(&sweeps).flatten().any(|other| *other == place);
                            prop_assert_eq!(got.contains(&place), !taken);
                        }
                        sweeps.push(got);
                    }
                    Step::Swept(at) if at < sweeps.len() => places.swept(&sweeps.swap_remove(at)),
                    Step::Written(_) | Step::Swept(_) => {}
                }
                for node in [0, 1] {
                    let mut want: BTreeSet<Place> = writers.iter().flatten().copied().collect();
                    want.retain(|(at, _)| at.0 == node);
                    let want: BTreeSet<BlockId> = want.into_iter().map(|(_, id)| id).collect();
                    prop_assert_eq!(places.written_to(NodeId(node)), want);
                }
            }
            writers.iter().for_each(|claim| places.written(claim));
            sweeps.iter().for_each(|claim| places.swept(claim));
            prop_assert!(places.claims.is_empty());
        }
    }
}
