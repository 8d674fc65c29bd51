//! Full-node recovery: repairs of many stripes with the load spread over nodes (ECPipe, section 3.3).
//!
//! - [`Schedule`]: the rules by which helpers and requestors are chosen;
//! - [`Recovery::window`]: assigns helpers and requestors to the next stripes together;
//! - [`Recovery::requestors`] and [`Recovery::assign`]: plan one repair with the assigned nodes or, where these
//!   are no longer usable, with the least recently used ones.
//!
//! The clock is a counter of repairs. A node remembers when it was last a helper and when it was
//! last a requestor. This is state without I/O: the same calls give the same plans.

mod schedule;
mod together;
mod window;

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId, StripeId};

use crate::{Method, PlanError, Repair, RepairPlan, StripeView, Topology, place_lost, repair};

pub use schedule::Schedule;
pub use window::{Assignment, DamagedStripe, Shares, choose_requestors};

/// When each node last helped, and what is assigned to which node.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    clock: u64,
    helped: BTreeMap<NodeId, u64>,
    requested: BTreeMap<NodeId, u64>,
    assigned: BTreeMap<StripeId, Assignment>,
}

impl Recovery {
    /// No node has helped yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans the repair of the `lost` blocks of one stripe: requestors and helpers are those least
    /// recently used by this schedule. A plan that is returned counts as used.
    ///
    /// # Errors
    /// As [`place_lost`] and [`repair`]; then nothing counts as used.
    pub fn choose(
        &mut self,
        view: &StripeView,
        topology: &Topology,
        lost: &[BlockIndex],
        method: Method,
        excluded: &[BlockIndex],
    ) -> Result<RepairPlan, PlanError> {
        let requestors = self.requestors(view, topology, lost)?;
        let wanted = Repair { lost: lost.to_vec(), requestors, method };
        self.assign(view, topology, &wanted, excluded)
    }

    /// The assigned requestors that are usable and hold no block of the stripe; for the other blocks the least
    /// recently used nodes. Nothing counts as used yet.
    ///
    /// # Errors
    /// As [`place_lost`].
    pub fn requestors(
        &self,
        view: &StripeView,
        topology: &Topology,
        lost: &[BlockIndex],
    ) -> Result<Vec<NodeId>, PlanError> {
        view.check("lost blocks", lost)?;
        let mut view = view.clone();
        for block in lost {
            view.homes[usize::from(block.0)] = None;
        }
        if let Some(assignment) = self.assigned.get(&view.id) {
            for (block, &node) in assignment.requestors.iter().filter(|(block, _)| lost.contains(block)) {
                let usable = topology.nodes.get(&node).is_some_and(|known| known.usable);
                if usable && !view.homes.contains(&Some(node)) {
                    view.homes[usize::from(block.0)] = Some(node);
                }
            }
        }
        let rest: Vec<_> = lost.iter().copied().filter(|b| view.homes[usize::from(b.0)].is_none()).collect();
        let chosen = place_lost(&view, topology, &rest, &mut |node| last(&self.requested, node))?;
        for (block, node) in rest.into_iter().zip(chosen) {
            view.homes[usize::from(block.0)] = Some(node);
        }
        lost.iter().map(|block| view.home(*block)).collect()
    }

    /// Plans a repair for given requestors: a first attempt, or a later one that continues an interrupted one. It
    /// uses the assigned trees. Where there are none, or their nodes are gone, it prefers the assigned helpers and
    /// then the least recently used nodes. A plan that is returned counts as used.
    ///
    /// # Errors
    /// As [`repair`]; then nothing counts as used.
    pub fn assign(
        &mut self,
        view: &StripeView,
        topology: &Topology,
        wanted: &Repair,
        excluded: &[BlockIndex],
    ) -> Result<RepairPlan, PlanError> {
        let assigned = self.assigned.get(&view.id);
        let whole = assigned.filter(|assignment| assignment.holds(view, wanted, excluded));
        if let Some(planned) = whole.and_then(|assignment| assignment.plan(view, topology, wanted).ok()) {
            return Ok(planned.paced(whole.and_then(|assignment| assignment.rate)));
        }
        let rank = |node| match assigned {
            Some(assignment) if assignment.helpers.contains(&node) => 0,
            _ => last(&self.helped, node) + 1,
        };
        let decided =
            assigned.and_then(|assignment| assignment.method).filter(|_| wanted.method.row().together);
        let wanted = &Repair { method: decided.unwrap_or(wanted.method), ..wanted.clone() };
        let planned = repair(view, topology, wanted, &rank, excluded)?;
        if assigned.is_none() {
            let helpers = planned.helpers.iter().map(|helper| view.home(*helper));
            self.mark(helpers.collect::<Result<Vec<_>, _>>()?, planned.requestors.iter().copied());
        }
        Ok(planned)
    }

    /// A copy of the state that the plan of one stripe needs, so that the plan can be made without blocking
    /// others.
    pub fn part(&self, stripe: StripeId) -> Self {
        let assigned = self.assigned.get(&stripe).map(|assignment| (stripe, assignment.clone()));
        Self {
            clock: self.clock,
            helped: self.helped.clone(),
            requested: self.requested.clone(),
            assigned: assigned.into_iter().collect(),
        }
    }

    /// Counts a plan that was made with a [`Recovery::part`] as used.
    pub fn used(
        &mut self,
        stripe: StripeId,
        helpers: impl IntoIterator<Item = NodeId>,
        requestors: impl IntoIterator<Item = NodeId>,
    ) {
        if !self.assigned.contains_key(&stripe) {
            self.mark(helpers, requestors);
        }
    }

    /// Adopts assignments that [`Recovery::window`] made on a clone.
    pub fn keep<'a>(&mut self, assigned: impl IntoIterator<Item = &'a Assignment>) {
        for assignment in assigned {
            self.mark(assignment.helpers.iter().copied(), assignment.requestors.values().copied());
            self.assigned.insert(assignment.stripe, assignment.clone());
        }
    }

    /// What is assigned to a stripe.
    pub fn assignment(&self, stripe: StripeId) -> Option<&Assignment> {
        self.assigned.get(&stripe)
    }

    /// Forgets the assignment of a stripe that is repaired or will not be repaired.
    pub fn release(&mut self, stripe: StripeId) {
        self.assigned.remove(&stripe);
    }

    fn mark(
        &mut self,
        helpers: impl IntoIterator<Item = NodeId>,
        requestors: impl IntoIterator<Item = NodeId>,
    ) {
        self.clock += 1;
        self.helped.extend(helpers.into_iter().map(|node| (node, self.clock)));
        self.requested.extend(requestors.into_iter().map(|node| (node, self.clock)));
    }
}

fn last(used: &BTreeMap<NodeId, u64>, node: NodeId) -> u64 {
    used.get(&node).copied().unwrap_or(0)
}
