//! How fast helpers that wait for nobody may begin their slices.
//!
//! Where a link carries streams of several depths, those of helpers that wait for nobody fill its queue before the
//! others have anything to send, and each later hop then waits in one full queue after the other. So these helpers
//! begin slices no faster than the plan's busiest link can carry them on; all others follow from what comes to them.

use std::collections::BTreeSet;
use std::num::NonZeroU64;

use crate::rates::Limit;
use crate::timeslots::Transfers;
use crate::{Pace, Plan, PlanError, Topology, predicted};

/// The part of a link's rate that payload can be, a little less: TCP in full Ethernet frames leaves 1448 of 1514 bytes.
const PAYLOAD: f64 = 0.95;

/// Bytes of a block by which the rate is reckoned.
const BLOCK_BYTES: u64 = 1 << 40;

impl Plan {
    /// Bytes of each block a second, no faster than which nodes that wait for no other begin their slices.
    pub fn held_rate(&self) -> Option<NonZeroU64> {
        let rate = self.rate.filter(|_| self.held && self.pace == Pace::Streamed)?;
        Some(NonZeroU64::new((rate.get() as f64 * PAYLOAD) as u64).unwrap_or(NonZeroU64::MIN))
    }

    /// The same for the slices of a lane with this share.
    pub fn rate_of(&self, share: u32) -> Option<NonZeroU64> {
        let shares: u128 = self.lanes.iter().map(|lane| u128::from(lane.share)).sum();
        let part = u128::from(self.held_rate()?.get()) * u128::from(share) / shares.max(1);
        Some(NonZeroU64::new(part as u64).unwrap_or(NonZeroU64::MIN))
    }

    /// With [`Plan::rate`] by the rates of the topology, and held to it where that is of use.
    ///
    /// # Errors
    /// `Graph` when a lane does not lower.
    pub(crate) fn held_to(mut self, topology: &Topology) -> Result<Self, PlanError> {
        let seconds = if topology.rates.is_empty() { 0.0 } else { predicted(&self, topology, BLOCK_BYTES)? };
        if seconds > 0.0 {
            self.rate = NonZeroU64::new((BLOCK_BYTES as f64 / seconds) as u64);
            self.held = self.pace == Pace::Streamed && self.mixes_depths(topology)?;
        }
        Ok(self)
    }

    /// Whether a link with a rate carries both streams that wait for others and some that do not.
    fn mixes_depths(&self, topology: &Topology) -> Result<bool, PlanError> {
        let (mut first, mut later): (BTreeSet<Limit>, BTreeSet<Limit>) = Default::default();
        for lane in &self.lanes {
            for ((from, to), waits) in Transfers::of(&lane.placed.lower()?).streams() {
                let side = if waits { &mut later } else { &mut first };
                side.extend(topology.limits(from, to).map(|(limit, _)| limit));
            }
        }
        Ok(!first.is_disjoint(&later))
    }
}
