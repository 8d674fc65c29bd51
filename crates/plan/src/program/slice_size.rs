//! The default slice size of a plan.
//!
//! A window of L bytes that passes h hops in slices of s takes, in bytes of time on one link, about
//!
//! ```text
//! L + h s + (L / s) c
//! ```
//!
//! The three terms are: the bytes themselves; the way of the first slice through the pipeline (ECPipe, section
//! 3.2: long with few large slices); and the overhead c of each slice, its header and the work for it (section
//! 6.1: large with many small slices). The minimum is at s = sqrt(L c / h), and it is flat: half or twice that s
//! adds a quarter to the two small terms, and the nearest power of two at most 6%. The size is a power of two
//! because the units in which blocks are verified are. The formula ignores disks and other traffic and does not
//! predict times. It is not used for plans that move whole blocks or cells.
//!
//! Of N plans that share links and are paced to end together ([`Plan::paced`]), all pay for their bytes and slices, but
//! the links are busy with others while the first slice of one is on its way. That slice waits at each link for some
//! slices of the others: N L + h w s + N (L / s) c, where w slices pass a link before the one that came last.

use std::num::NonZeroU64;

use crate::traffic::{Disks, Transfers};
use crate::{Plan, PlanError};

/// The least slice: a page.
const LEAST_BYTES: u64 = 4 << 10;

/// Larger slices would gain nothing and take memory.
const MOST_BYTES: u64 = 1 << 20;

/// A slice's header on the wire (`docs/format.md`).
const HEADER_BYTES: u64 = 36;

/// The work for a slice at a hop, apart from its bytes. Measured: the processor time of agents on an emulated
/// cluster, for a repair along ten helpers, grows by 25 us for each slice and hop from slices of 256 KiB to 32 KiB
/// (wake-ups, and the short packet at the end of each), and by 3 us from 256 KiB to 4 KiB (the smallest slices
/// share both).
const SLICE_NANOSECONDS: u64 = 20_000;

/// Bytes a second assumed for links of unknown rate: 1 Gb/s.
const USUAL_RATE: u64 = 125_000_000;

/// How many slices pass a link that several plans share before the one that came last. Measured: 84 repairs of RS(14,10) on
/// 16 hosts of 50 Mb/s, blocks of 4 MiB, reach 0.86 of the bound with slices of 64 KiB, 0.91 with 32 and 0.90 with 16.
const QUEUE: u64 = 4;

/// Every lane gets at least this many turns; with fewer, lanes or plans that share links would not overlap.
const TURNS: u64 = 16;

/// Bytes in a slice: a power of two from 4 KiB to 1 MiB. The window of `window_bytes` passes `hops` links one
/// after the other, each at `rate` bytes a second and shared by `plans` plans, and its slices are dealt to the lanes in
/// turns of `period` slices.
pub fn slice_bytes(
    window_bytes: u64,
    hops: usize,
    period: u32,
    rate: Option<NonZeroU64>,
    plans: NonZeroU64,
) -> u32 {
    let rate = rate.map_or(USUAL_RATE, NonZeroU64::get);
    let cost = HEADER_BYTES as f64 + rate as f64 * SLICE_NANOSECONDS as f64 * 1e-9;
    let best = (plans.get() as f64 * window_bytes as f64 * cost
        / (hops.max(1) as f64 * plans.get().min(QUEUE) as f64))
        .sqrt();
    let turns = match (period, plans.get()) {
        (0 | 1, 1) => MOST_BYTES,
        _ => window_bytes / (TURNS * u64::from(period.max(1))),
    };
    // The nearest power of two is the largest one up to sqrt(2) times the best size.
    let nearest = (best * std::f64::consts::SQRT_2) as u64;
    1 << nearest.min(turns).clamp(LEAST_BYTES, MOST_BYTES).ilog2()
}

impl Plan {
    /// The slice size for `window_bytes` of each block, by [`slice_bytes`] for the longest path of this plan
    /// and its rate.
    ///
    /// # Errors
    /// `Graph` when a lane does not lower.
    pub fn slice_bytes(&self, window_bytes: u64) -> Result<u32, PlanError> {
        let mut hops = 0;
        for lane in &self.lanes {
            hops = Transfers::of(&lane.placed.lower()?, Disks::default()).depth().max(hops);
        }
        let period = self.lanes.iter().fold(0, |sum: u32, lane| sum.saturating_add(lane.share));
        Ok(slice_bytes(window_bytes, hops, period, self.rate, self.plans()))
    }

    /// How many plans like this one share its links.
    fn plans(&self) -> NonZeroU64 {
        let rates = self.rate.zip(self.paced);
        rates.and_then(|(alone, paced)| NonZeroU64::new(alone.get() / paced)).unwrap_or(NonZeroU64::MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALONE: NonZeroU64 = NonZeroU64::MIN;

    /// The two small terms, in bytes of time.
    fn costs(window: u64, hops: usize, slice: u64, rate: u64) -> f64 {
        let each = 36.0 + rate as f64 * 20_000e-9;
        hops as f64 * slice as f64 + window as f64 / slice as f64 * each
    }

    #[test]
    fn a_block_of_64_mib_along_ten_helpers_goes_in_slices_of_128_kib() {
        assert_eq!(slice_bytes(64 << 20, 10, 1, None, ALONE), 128 << 10);
        assert_eq!(slice_bytes(64 << 20, 10, 1, NonZeroU64::new(500_000_000 / 8), ALONE), 128 << 10);
        assert_eq!(slice_bytes(64 << 20, 1, 1, None, ALONE), 512 << 10);
        assert_eq!(slice_bytes(1 << 20, 10, 1, None, ALONE), 16 << 10);
        assert_eq!(slice_bytes(1 << 40, 1, 1, None, ALONE), 1 << 20);
        assert_eq!(slice_bytes(0, 0, 0, None, ALONE), 4 << 10);
        assert_eq!(slice_bytes(4 << 20, 1, 9, None, ALONE), 16 << 10);
        assert_eq!(slice_bytes(4 << 20, 1, u32::MAX, None, ALONE), 4 << 10);
    }

    #[test]
    fn plans_that_share_links_get_larger_slices_but_still_overlap() {
        let of =
            |plans| slice_bytes(2 << 20, 10, 1, NonZeroU64::new(6_250_000), NonZeroU64::new(plans).unwrap());
        assert_eq!([1, 4, 27, 84, 1000, 100_000].map(of), [8, 8, 16, 32, 64, 128].map(|kib| kib << 10));
    }

    proptest! {
        #[test]
        fn no_other_slice_is_better_by_more_than_rounding(
            window in 1u64 << 16..1 << 34, hops in 1usize..40, rate in 1u64 << 20..1 << 34,
        ) {
            let chosen = u64::from(slice_bytes(window, hops, 1, NonZeroU64::new(rate), ALONE));
            prop_assert!(chosen.is_power_of_two() && (4 << 10..=1 << 20).contains(&chosen));
            let cost = costs(window, hops, chosen, rate);
            for pages in 1..=256 {
                let other = costs(window, hops, pages * (4 << 10), rate);
                prop_assert!(cost <= 1.07 * other, "{chosen}: {cost}, {pages} pages: {other}");
            }
        }
    }
}
