//! Decides when the stripes that wait are planned again: in phases (ChameleonEC, section III), if links or disks have
//! changed since they were planned. What is under repair is not touched.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_plan::traffic::Link;

/// A link has changed if its rate is this many times as high as before, or as low.
const CHANGED: f64 = 1.25;

/// What links and disks have idle, where that is known.
type Idle = BTreeMap<Link, NonZeroU64>;

/// The phase under way.
#[derive(Debug)]
pub struct Phases {
    span_ms: u64,
    begun_ms: u64,
    idle: Idle,
}

impl Phases {
    /// Phases of this span, in milliseconds.
    pub fn new(span_ms: u64) -> Self {
        Self { span_ms, begun_ms: 0, idle: Idle::new() }
    }

    /// Time has passed, and these rates are idle now: whether to plan again. A new phase begins then, and when nothing
    /// waits.
    pub fn tick(&mut self, now_ms: u64, idle: Idle, waiting: bool) -> bool {
        let over = now_ms.saturating_sub(self.begun_ms) >= self.span_ms;
        if waiting && !over {
            return false;
        }
        let plan = waiting && self.have_changed(&idle);
        if plan || !waiting {
            self.idle = idle;
        }
        self.begun_ms = now_ms;
        plan
    }

    fn have_changed(&self, idle: &Idle) -> bool {
        let changed = |link: &Link| match (rate(&self.idle, *link), rate(idle, *link)) {
            (Some(before), Some(now)) => now > before * CHANGED || before > now * CHANGED,
            (before, _) => before.is_none(),
        };
        idle.keys().chain(self.idle.keys()).any(changed)
    }
}

/// What a link or disk has idle, in bytes a second, if that is known. A disk without a rate is not slower than its node's link.
fn rate(idle: &Idle, link: Link) -> Option<f64> {
    let with_link = match link {
        Link::DiskRead(node) => Some(Link::NodeUp(node)),
        Link::DiskWrite(node) => Some(Link::NodeDown(node)),
        _ => None,
    };
    let rate = idle.get(&link).or_else(|| idle.get(&with_link?));
    rate.map(|rate| rate.get() as f64)
}

#[cfg(test)]
mod tests {
    use kintsu_dag::NodeId;
    use kintsu_plan::Rates;

    use super::*;

    #[test]
    fn what_waits_is_planned_again_after_a_phase_in_which_links_have_changed() {
        let rates = |one: u64| {
            let mut rates = Rates::even((0..3).map(NodeId), NonZeroU64::new(100).unwrap());
            rates.up.insert(NodeId(1), NonZeroU64::new(one).unwrap());
            rates.known().collect::<Idle>()
        };
        let mut phases = Phases::new(20_000);
        assert!(!phases.tick(1000, rates(100), false));
        assert!(!phases.tick(21_000, rates(90), true), "hardly");
        assert!(!phases.tick(40_000, rates(10), true), "the phase goes on");
        assert!(phases.tick(41_000, rates(10), true));
        assert!(!phases.tick(61_000, rates(10), true), "that is known");
        assert!(phases.tick(81_000, rates(100), true));
        let disk = (Link::DiskRead(NodeId(1)), NonZeroU64::MIN);
        let with_disk = || rates(100).into_iter().chain([disk]).collect::<Idle>();
        assert!(phases.tick(101_000, with_disk(), true), "a disk is slow");
        assert!(!phases.tick(121_000, with_disk(), true));
        assert!(phases.tick(141_000, rates(100), true), "it is not any more");
        let hardly = (Link::DiskRead(NodeId(0)), NonZeroU64::new(85).unwrap());
        let with_hardly = || rates(100).into_iter().chain([hardly]).collect::<Idle>();
        assert!(!phases.tick(161_000, with_hardly(), true), "a disk is hardly slower than its link");
        assert!(!phases.tick(181_000, with_hardly(), false));
        assert!(!phases.tick(201_000, rates(100), true), "it is not any more");
    }
}
