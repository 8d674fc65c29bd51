//! Decides whether a repair that cannot be planned now waits for news of nodes, and of which nodes.
//!
//! It waits only for nodes whose return would help: those that were not reached lately, and those that have to delete a file
//! first. It does not wait for ever: after some waits each such node was either heard of or counts as dead.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;
use kintsu_plan::{PlanError, Recovery, Topology};

use super::{Attempt, Circumstances, StripeRepair};
use crate::engine::members::Members;

/// How often the planning of one stripe may still wait for news of nodes.
#[derive(Debug)]
pub struct WaitBudget(u32);

impl WaitBudget {
    /// Each wait takes half a heartbeat. There are enough waits for a node that was not reached to be either
    /// heard of or declared dead.
    pub fn new(heartbeat_ms: u64, dead_after_ms: u64) -> Self {
        let rounds = (2 * heartbeat_ms + dead_after_ms) * 2 / heartbeat_ms.max(1);
        Self(u32::try_from(rounds).unwrap_or(u32::MAX))
    }

    /// Whether it may wait once more.
    pub fn again(&mut self) -> bool {
        let more = self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        more
    }
}

/// How planning an attempt ended.
#[derive(Debug)]
pub enum Planned {
    /// It can be run.
    Attempt(Box<Attempt>),
    /// There is no plan now, but there may be one when these nodes are heard of.
    Later(PlanError, Vec<NodeId>),
    /// There is no plan, and waiting does not help.
    Never(PlanError),
}

/// The nodes that blocks can be read from, and those of them of which news may come.
#[derive(Debug, Clone)]
pub struct MayReturn {
    there: BTreeSet<NodeId>,
    /// Those that were not reached lately, and whether they could take blocks.
    suspects: BTreeMap<NodeId, bool>,
}

impl MayReturn {
    /// The nodes as the members know them now.
    pub fn new(members: &Members) -> Self {
        let there = || members.iter().filter(|(_, m)| m.holds());
        let suspects = there().filter(|(_, m)| m.suspect).map(|(id, m)| (id, !m.record.draining));
        Self { suspects: suspects.collect(), there: there().map(|(id, _)| id).collect() }
    }

    /// The nodes whose return would make a plan possible; empty if there is no plan even with them.
    fn awaited(
        &self,
        repair: &StripeRepair,
        topology: &Topology,
        sweeping: &BTreeSet<NodeId>,
        part: &Recovery,
    ) -> Vec<NodeId> {
        let mut awaited: BTreeSet<NodeId> = self.suspects.keys().copied().collect();
        awaited.extend(sweeping.intersection(&self.there));
        if awaited.is_empty() {
            return Vec::new();
        }
        let mut best = topology.clone();
        for (node, known) in &mut best.nodes {
            known.usable |= self.suspects.get(node).is_some_and(|usable| *usable);
        }
        let best = repair.order().narrow(best);
        let circumstances = Circumstances {
            topology: &best,
            sweeping: &BTreeSet::new(),
            readable: &|node| self.there.contains(&node),
            slow: &[],
            fresh_key: 0,
        };
        if repair.could(circumstances, part) { awaited.into_iter().collect() } else { Vec::new() }
    }
}

/// Plans the next attempt; without a plan, says whether to wait. `may_return` is asked for only then.
pub fn plan(
    repair: &mut StripeRepair,
    at: Circumstances<'_>,
    part: &mut Recovery,
    may_return: impl FnOnce() -> MayReturn,
) -> Planned {
    match repair.plan(at, part) {
        Ok(attempt) => Planned::Attempt(Box::new(attempt)),
        Err(error @ (PlanError::Unrecoverable { .. } | PlanError::Placement { .. })) => {
            let awaited = may_return().awaited(repair, at.topology, at.sweeping, part);
            let error = repair.order().explain(error);
            if awaited.is_empty() { Planned::Never(error) } else { Planned::Later(error, awaited) }
        }
        Err(error) => Planned::Never(repair.order().explain(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;
    use crate::engine::repair::Order;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::BlockIndex;

    /// Plans the repair of block 0 of rs:n=4,k=2 on six nodes; node 0 is dead.
    fn planned(suspects: &[u32], sweeping: &[u32], dead: &[u32]) -> Planned {
        let patience = Patience { dead_after_ms: 50, grace_ms: 600 };
        let mut members = Members::new(patience, BTreeMap::new(), 0);
        for node in 0..6 {
            members.enrolled(NodeId(node), record(1), 0);
        }
        for node in dead.iter().chain(&[0]) {
            members.stopped(NodeId(*node), 1);
        }
        suspects.iter().for_each(|node| members.suspect(NodeId(*node)));
        let (topology, usable) = (members.topology(), members.usable());
        let sweeping = sweeping.iter().map(|node| NodeId(*node)).collect();
        let at = Circumstances {
            topology: &topology,
            sweeping: &sweeping,
            readable: &|node| usable.contains(&node),
            slow: &[],
            fresh_key: 1,
        };
        let mut repair = StripeRepair::new(stripe("rs:n=4,k=2", &[]), vec![BlockIndex(0)], Order::default());
        plan(&mut repair, at, &mut Recovery::default(), || MayReturn::new(&members))
    }

    #[test]
    fn a_repair_waits_for_the_nodes_whose_return_would_help_and_for_no_others() {
        assert!(matches!(planned(&[1], &[], &[]), Planned::Attempt(_)));
        let nodes = |ids: &[u32]| ids.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let later = |planned| match planned {
            Planned::Later(_, awaited) => awaited,
            other => panic!("{other:?}"),
        };
        // Two of the three blocks that are left must be read.
        assert_eq!(later(planned(&[1, 2], &[], &[])), nodes(&[1, 2]));
        assert!(matches!(planned(&[4], &[], &[1, 2]), Planned::Never(_)), "nothing helps");
        // No node may take the block before it has deleted a file.
        assert_eq!(later(planned(&[], &[4, 5], &[])), nodes(&[4, 5]));
        assert!(matches!(planned(&[], &[], &[4, 5]), Planned::Never(_)));
    }

    #[test]
    fn it_waits_until_a_silent_node_would_count_as_dead_and_no_longer() {
        let mut waits = WaitBudget::new(100, 500);
        assert_eq!((0..99).filter(|_| waits.again()).count(), 14);
        assert!(!waits.again());
    }
}
