//! Decides when the stripes that wait are planned again: in phases (ChameleonEC, section III), if links have
//! changed since they were planned. What is under repair is not touched.

use kintsu_plan::Rates;
use kintsu_plan::many::PHASE_SECONDS;

/// A link has changed if its rate is this many times as high as before, or as low.
const CHANGED: f64 = 1.25;

/// The phase under way.
#[derive(Debug, Default)]
pub struct Phases {
    begun_ms: u64,
    rates: Rates,
}

impl Phases {
    /// Time has passed, and these rates are idle now: whether to plan again. A new phase begins then, and when nothing
    /// waits.
    pub fn tick(&mut self, now_ms: u64, rates: &Rates, waiting: bool) -> bool {
        let over = now_ms.saturating_sub(self.begun_ms) as f64 >= PHASE_SECONDS * 1000.0;
        if waiting && !over {
            return false;
        }
        let plan = waiting && self.have_changed(rates);
        if plan || !waiting {
            self.rates = rates.clone();
        }
        self.begun_ms = now_ms;
        plan
    }

    fn have_changed(&self, rates: &Rates) -> bool {
        let changed = |(link, rate): (_, std::num::NonZeroU64)| {
            self.rates.of(link).is_none_or(|before| {
                let (now, before) = (rate.get() as f64, before.get() as f64);
                now > before * CHANGED || before > now * CHANGED
            })
        };
        rates.known().any(changed)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use kintsu_dag::NodeId;

    use super::*;

    #[test]
    fn what_waits_is_planned_again_after_a_phase_in_which_links_have_changed() {
        let rates = |one: u64| {
            let mut rates = Rates::even((0..3).map(NodeId), NonZeroU64::new(100).unwrap());
            rates.up.insert(NodeId(1), NonZeroU64::new(one).unwrap());
            rates
        };
        let mut phases = Phases::default();
        assert!(!phases.tick(1000, &rates(100), false));
        assert!(!phases.tick(21_000, &rates(90), true), "hardly");
        assert!(!phases.tick(40_000, &rates(10), true), "the phase goes on");
        assert!(phases.tick(41_000, &rates(10), true));
        assert!(!phases.tick(61_000, &rates(10), true), "that is known");
        assert!(phases.tick(81_000, &rates(100), true));
    }
}
