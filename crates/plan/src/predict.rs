//! The least time of a plan, from the load that it puts on each link.

use std::collections::BTreeMap;

use crate::{Account, Plan, PlanError, Topology};

/// Seconds that the busiest link needs for what the plan sends over it, for blocks of `block_bytes`, at the rates
/// of the topology. It does not include the time to fill a pipeline, the overhead of each slice, or other traffic.
/// 0 where no rates are known.
///
/// # Errors
/// `Graph` when a lane does not lower.
pub fn predicted(plan: &Plan, topology: &Topology, block_bytes: u64) -> Result<f64, PlanError> {
    let account = Account::of(plan, topology, block_bytes)?;
    let mut loads = BTreeMap::new();
    for link in &account.links {
        for (limit, rate) in topology.limits(link.from, link.to) {
            let (bytes, _) = loads.entry(limit).or_insert((0, rate));
            *bytes += link.bytes;
        }
    }
    let seconds = loads.values().map(|(bytes, rate)| *bytes as f64 / rate.get() as f64);
    Ok(seconds.fold(0.0, f64::max))
}
