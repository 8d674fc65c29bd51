//! The rate limit on helpers that wait for no other node (here called first senders).
//!
//! A link may carry streams of first senders and streams of later hops. The first senders would fill the queue of
//! the link before the later hops have anything to send. Each later hop would then wait in one full queue after
//! another. Therefore first senders start slices no faster than the plan's busiest link can carry them. All other
//! nodes follow the slices that they receive.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use crate::traffic::{Disks, Link, Transfers};
use crate::{Plan, PlanError, RunMode, Topology, predicted};

/// The part of a link's rate that is left for payload: a little less than the 1448/1514 of TCP in full Ethernet
/// frames.
pub(crate) const PAYLOAD: f64 = 0.95;

/// The block size for which the rate is computed.
const BLOCK_BYTES: u64 = 1 << 40;

impl Plan {
    /// Upper limit on the rate at which first senders start their slices, in bytes of each block a second; `None`:
    /// no limit.
    pub fn rate_limit(&self) -> Option<NonZeroU64> {
        let alone = self.rate.filter(|_| self.rate_limited);
        let rate = self.paced.or(alone).filter(|_| self.run_mode == RunMode::Streamed)?;
        Some(NonZeroU64::new((rate.get() as f64 * PAYLOAD) as u64).unwrap_or(NonZeroU64::MIN))
    }

    /// The same limit for one lane with this share of the slices.
    pub fn rate_of(&self, share: u32) -> Option<NonZeroU64> {
        let shares: u128 = self.lanes.iter().map(|lane| u128::from(lane.share)).sum();
        let part = u128::from(self.rate_limit()?.get()) * u128::from(share) / shares.max(1);
        Some(NonZeroU64::new(part as u64).unwrap_or(NonZeroU64::MIN))
    }

    /// Sets [`Plan::rate`] from the rates of the topology, and [`Plan::rate_limited`] where the limit helps.
    ///
    /// # Errors
    /// `Graph` when a lane does not lower.
    pub(crate) fn limited_to(mut self, topology: &Topology) -> Result<Self, PlanError> {
        let seconds = if topology.rates.is_empty() { 0.0 } else { predicted(&self, topology, BLOCK_BYTES)? };
        if seconds > 0.0 {
            self.rate = NonZeroU64::new((BLOCK_BYTES as f64 / seconds) as u64);
            self.rate_limited = self.run_mode == RunMode::Streamed && self.mixes_depths(topology)?;
        }
        Ok(self)
    }

    /// Whether a link with a rate carries both streams of first senders and streams that wait for others.
    fn mixes_depths(&self, topology: &Topology) -> Result<bool, PlanError> {
        let (mut first, mut later): (BTreeSet<Link>, BTreeSet<Link>) = Default::default();
        for lane in &self.lanes {
            for transfer in Transfers::of(&lane.placed.lower()?, Disks::default()).iter() {
                let side = if transfer.waits.is_empty() { &mut first } else { &mut later };
                side.extend(topology.links(transfer.way).filter(|link| topology.rates.of(*link).is_some()));
            }
        }
        Ok(!first.is_disjoint(&later))
    }
}
