//! Decides about wipes: whether one is refused, what is recorded of it, and which interrupted wipes continue.
//! The driver does the work.
//!
//! Invariants: a wipe is recorded before anything is deleted, and until it has ended; no node is wiped twice
//! at the same time; each wipe begins two new epochs of its node, so that puts under way check when they
//! commit whether their blocks are still there.

use std::collections::BTreeSet;

use kintsu_dag::NodeId;

use super::damage::Harm;
use super::members::Members;
use crate::meta::record::NodeRecord;

/// The nodes that are being wiped now.
#[derive(Debug, Default)]
pub struct Wipes(BTreeSet<NodeId>);

impl Wipes {
    /// The wipe of a node begins. Returns false if the node is being wiped already: then wait for the end of
    /// that wipe.
    pub fn begin(&mut self, node: NodeId) -> bool {
        self.0.insert(node)
    }

    /// The wipe of a node has ended, or was interrupted.
    pub fn end(&mut self, node: NodeId) {
        self.0.remove(&node);
    }

    /// The wipes that were interrupted and can go on: those of living nodes that nobody wipes.
    pub fn due(&self, members: &Members) -> Vec<NodeId> {
        let interrupted = members.iter().filter(|(id, m)| m.up && m.record.wiping && !self.0.contains(id));
        interrupted.map(|(id, _)| id).collect()
    }
}

/// Why a wipe that costs this is refused, if it is.
pub fn refused(harm: &Harm, force: bool) -> Option<String> {
    (harm.stripes > 0 && !force).then(|| harm.to_string())
}

/// A wipe is ordered: nothing is read from the node or written to it any more.
pub fn ordered(record: &mut NodeRecord) {
    record.wiping = true;
    record.epoch += 1;
}

/// All blocks of the node are gone.
pub fn ended(record: &mut NodeRecord) {
    record.wiping = false;
    record.epoch += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::damage::Owners;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;

    #[test]
    fn a_wipe_that_costs_an_object_is_refused_unless_it_is_forced() {
        let owners = Owners { objects: 1, ..Owners::default() };
        let harm = Harm { stripes: 2, owners, names: vec!["a".into()] };
        assert!(refused(&harm, false).unwrap().starts_with("2 stripes of 1 object"));
        assert_eq!((refused(&harm, true), refused(&Harm::default(), false)), (None, None));
    }

    #[test]
    fn an_interrupted_wipe_goes_on_when_its_node_lives_and_nobody_wipes_it() {
        let (mut one, two) = (record(1), record(1));
        ordered(&mut one);
        assert!(one.wiping && one.fence() != two.fence());
        let patience = Patience { dead_after_ms: 50, grace_ms: 600 };
        let records = [(NodeId(1), one.clone()), (NodeId(2), two)];
        let mut members = Members::new(patience, records.into(), 0);
        let mut wipes = Wipes::default();
        assert_eq!(wipes.due(&members), [NodeId(1)]);
        assert!(wipes.begin(NodeId(1)) && !wipes.begin(NodeId(1)) && wipes.due(&members).is_empty());
        wipes.end(NodeId(1));
        members.tick(60);
        assert_eq!(wipes.due(&members), [], "it is dead");
        let before = one.fence();
        ended(&mut one);
        assert!(!one.wiping && one.fence() != before);
    }
}
