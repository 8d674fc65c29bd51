//! How long each method would take for one repair, and the lower bound.

use kintsu_dag::BlockIndex;
use serde::Serialize;

use crate::{Method, PlanError, Repair, StripeView, Topology, optimal, predicted, repair};

/// Predicted times of all methods that stream ([`Method::streamed`]) for one repair, by the load of the
/// busiest link ([`predicted`]).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Seconds that no repair can beat; known for one lost block.
    pub bound_seconds: Option<f64>,
    /// The predicted time of each method.
    pub methods: Vec<MethodTime>,
}

/// One method's time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MethodTime {
    /// The method.
    pub method: Method,
    /// Its predicted time.
    pub seconds: f64,
}

impl Comparison {
    /// For the repair of these blocks to these requestors. `None` where no rates are known.
    ///
    /// # Errors
    /// As [`repair`].
    pub fn of(
        view: &StripeView,
        topology: &Topology,
        lost: &[BlockIndex],
        requestors: &[kintsu_dag::NodeId],
    ) -> Result<Option<Self>, PlanError> {
        if topology.rates.is_empty() {
            return Ok(None);
        }
        let block_bytes = view.layout.longest(view.code.k());
        let time = |method: Method| {
            let wanted = Repair { lost: lost.to_vec(), requestors: requestors.to_vec(), method };
            let planned = repair(view, topology, &wanted, &|_| 0, &[])?;
            Ok(MethodTime { method, seconds: predicted(&planned.plan, topology, block_bytes)? })
        };
        let methods = Method::streamed().map(time).collect::<Result<_, PlanError>>()?;
        let bound_seconds = match (lost, requestors) {
            ([lost], [requestor]) => optimal::least_seconds(view, topology, *lost, *requestor)?,
            _ => None,
        };
        Ok(Some(Self { bound_seconds, methods }))
    }
}
