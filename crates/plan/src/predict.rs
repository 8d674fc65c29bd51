//! How long a plan takes at least, by the load that it puts on each link.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use crate::{Account, Plan, PlanError, Topology};

/// Seconds in which the busiest link carries what the plan sends over it, for blocks of so many bytes, by the rates of
/// the topology. Filling a pipeline and what each slice costs are not in it, nor is anything else on the links. 0 where
/// no rates are known.
///
/// # Errors
/// `Graph` when a lane does not lower.
pub fn predicted(plan: &Plan, topology: &Topology, block_bytes: u64) -> Result<f64, PlanError> {
    let account = Account::of(plan, topology, block_bytes)?;
    let rates = &topology.rates;
    let mut worst: f64 = 0.0;
    let mut load = |bytes: u64, rate: Option<&NonZeroU64>| {
        if let Some(rate) = rate {
            worst = worst.max(bytes as f64 / rate.get() as f64);
        }
    };
    account.sent.iter().for_each(|(node, bytes)| load(*bytes, rates.up.get(node)));
    account.received.iter().for_each(|(node, bytes)| load(*bytes, rates.down.get(node)));
    let (mut leaves, mut enters) = (BTreeMap::new(), BTreeMap::new());
    for link in &account.links {
        load(link.bytes, rates.pairs.get(&(link.from, link.to)));
        if link.across_racks {
            *leaves.entry(topology.rack(link.from)).or_insert(0) += link.bytes;
            *enters.entry(topology.rack(link.to)).or_insert(0) += link.bytes;
        }
    }
    leaves.iter().for_each(|(rack, bytes)| load(*bytes, rack.and_then(|rack| rates.rack_up.get(&rack))));
    enters.iter().for_each(|(rack, bytes)| load(*bytes, rack.and_then(|rack| rates.rack_down.get(&rack))));
    Ok(worst)
}
