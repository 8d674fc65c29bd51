//! Full-node recovery: repairs of many stripes with the load spread evenly (ECPipe, section 3.3).
//!
//! The clock is a counter of repairs. A node remembers when it was last a helper and when it was
//! last a requestor; the least recently used ones are taken. This is state without I/O: the
//! same calls give the same plans.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId};

use crate::{Method, PlanError, Repair, RepairPlan, StripeView, Topology, place_lost, repair};

/// Which nodes have helped, and when.
#[derive(Debug, Clone, Default)]
pub struct Recovery {
    clock: u64,
    helped: BTreeMap<NodeId, u64>,
    requested: BTreeMap<NodeId, u64>,
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

    /// The requestors least recently used; nothing counts as used yet.
    ///
    /// # Errors
    /// As [`place_lost`].
    pub fn requestors(
        &self,
        view: &StripeView,
        topology: &Topology,
        lost: &[BlockIndex],
    ) -> Result<Vec<NodeId>, PlanError> {
        place_lost(view, topology, lost, &mut |node| last(&self.requested, node))
    }

    /// Plans a repair for given requestors, with the helpers least recently used: the first attempt
    /// where the requestors are decided otherwise, or a later one that goes on where an earlier one
    /// was interrupted. A plan that is returned counts as used.
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
        let planned = repair(view, topology, wanted, &|node| last(&self.helped, node), excluded)?;
        self.clock += 1;
        for helper in &planned.helpers {
            self.helped.insert(view.home(*helper)?, self.clock);
        }
        self.requested.extend(planned.requestors.iter().map(|node| (*node, self.clock)));
        Ok(planned)
    }
}

fn last(used: &BTreeMap<NodeId, u64>, node: NodeId) -> u64 {
    used.get(&node).copied().unwrap_or(0)
}
