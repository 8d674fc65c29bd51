//! Decides what is due when time has passed: which nodes are dead, which puts are undone, which wipes
//! continue, and whether repairs may be due.
//!
//! Invariant: while the gate is closed, nothing is wiped and no repair starts automatically, because older
//! metadata may order a wipe that was completed long ago.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;

use super::gate::Gate;
use super::leases::Leases;
use super::members::{Change, Members};
use super::repair::Auto;
use super::wipe::Wipes;

/// Something that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    /// Have this node read its flagged blocks again: it has started since the last tick.
    Reread(NodeId),
    /// Report this change.
    Tell(Change),
    /// Undo this put: its lease has run out.
    Undo(u64),
    /// Report that the gate is open although not all blocks were reported.
    Opened,
    /// Complete the wipe of this node.
    Wipe(NodeId),
    /// Check whether repairs are due, including those of the blocks on these nodes.
    Repairs(Vec<NodeId>),
}

/// The machines that are told the time.
pub struct Machines<'a> {
    /// The nodes.
    pub members: &'a mut Members,
    /// The puts under way.
    pub leases: &'a mut Leases,
    /// What may be deleted and repaired.
    pub gate: &'a mut Gate,
    /// When repairs start automatically.
    pub auto: &'a mut Auto,
    /// The wipes under way.
    pub wipes: &'a Wipes,
}

/// The starts of agents that were seen by ticks so far.
#[derive(Debug, Default)]
pub struct Ticks(BTreeMap<NodeId, u64>);

impl Ticks {
    /// Time has passed: what is due now, in this order.
    pub fn tick(&mut self, now_ms: u64, machines: Machines<'_>) -> Vec<Due> {
        let Machines { members, leases, gate, auto, wipes } = machines;
        let mut due = Vec::new();
        for (node, member) in members.iter().filter(|(_, m)| m.holds()) {
            let start = member.record.incarnation;
            if self.0.insert(node, start) != Some(start) {
                due.push(Due::Reread(node));
            }
        }
        for change in members.tick(now_ms) {
            if matches!(change, Change::Down(_)) {
                auto.nodes_changed();
            }
            due.push(Due::Tell(change));
        }
        // In older metadata such a put may have been committed since.
        if gate.is_trusted() {
            due.extend(leases.expired(now_ms).into_iter().map(Due::Undo));
        }
        if gate.tick(now_ms) {
            due.push(Due::Opened);
        }
        if gate.is_open() {
            due.extend(wipes.due(members).into_iter().map(Due::Wipe));
            due.push(Due::Repairs(members.overdue().iter().copied().collect()));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;

    const NODE: NodeId = NodeId(1);

    struct All(Ticks, Members, Leases, Gate, Auto, Wipes);

    impl All {
        fn new(behind: Option<String>) -> Self {
            let mut members = Members::new(Patience { dead_after_ms: 50, grace_ms: 600 }, BTreeMap::new(), 0);
            members.enrolled(NODE, record(7), 0);
            let gate = Gate::new(BTreeMap::from([(NodeId(2), 10)]), 0, behind);
            Self(Ticks::default(), members, Leases::new(30, [5], 0), gate, Auto::new(600), Wipes::default())
        }

        fn tick(&mut self, now_ms: u64) -> Vec<Due> {
            let (members, leases, gate) = (&mut self.1, &mut self.2, &mut self.3);
            self.0.tick(now_ms, Machines { members, leases, gate, auto: &mut self.4, wipes: &self.5 })
        }
    }

    #[test]
    fn each_start_is_seen_once_and_time_does_the_rest() {
        let mut all = All::new(None);
        assert_eq!(all.tick(1), [Due::Reread(NODE)]);
        assert_eq!(all.tick(2), []);
        all.1.enrolled(NODE, record(8), 2);
        assert_eq!(all.tick(30), [Due::Reread(NODE), Due::Undo(5)]);
        assert_eq!(all.tick(52), [Due::Tell(Change::Down(NODE))]);
        assert_eq!(all.tick(652), [Due::Tell(Change::Overdue(NODE))]);
        assert_eq!(all.tick(30_000), [Due::Opened, Due::Repairs(vec![NODE])]);
        assert_eq!(all.tick(30_001), [Due::Repairs(vec![NODE])]);
    }

    #[test]
    fn nothing_is_wiped_or_repaired_while_the_gate_is_closed() {
        for behind in [None, Some("older".to_owned())] {
            let mut all = All::new(behind.clone());
            all.1.set_wiping(NODE, true);
            assert_eq!(all.tick(1), []);
            all.1.seen(NODE, 7, Default::default(), None, 30_000).unwrap();
            let open = [Due::Undo(5), Due::Opened, Due::Wipe(NODE), Due::Repairs(Vec::new())];
            assert_eq!(all.tick(30_001), if behind.is_none() { &open[..] } else { &open[1..2] });
        }
    }
}
