//! Decides which stripes are compared with their codes next, and what is known of those that contradict themselves. The driver has
//! agents do the work.
//!
//! No block is read or repaired but as it was recorded. So blocks of a stripe can contradict each other only if one was recorded
//! wrong: a client computed a wrong parity, or a commit of a volume added to it what was not added to the data. Then a loss
//! would be repaired wrong, or not at all. To find that out, one parity block is computed from all others, and compared. It
//! says nothing of which block is wrong, so nothing follows but that operators are told.

use std::collections::BTreeSet;

use kintsu_dag::{BlockIndex, NodeId, Sink, StripeId};
use kintsu_plan::{DIGEST_UNKNOWN, Plan, PlanError, StripeView, Topology, compare};
use kintsu_wire::message::NodeScrub;
use serde::{Deserialize, Serialize};

use super::patrol::{PORTION, is_recorded, pass};
use super::stripe::Stripe;
use crate::meta::record::BlockRecord;

/// All stripes are compared once in this many periods of the scrub: unlike verifying, comparing sends blocks between nodes.
const PERIODS: u64 = 3;

/// Most stripes that are remembered; where there are more, something is wrong with all of them.
const MOST_WRONG: usize = 1000;

/// How far the stripes were compared, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agreement {
    /// The pass over all stripes, in order of their ids. What it counts are stripes.
    pub pass: Option<NodeScrub>,
    /// The stripes that contradict themselves. Some may be gone by now.
    pub wrong: BTreeSet<StripeId>,
}

/// What a comparison of a stripe says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Its blocks are what its code makes of them.
    Agrees,
    /// They are not.
    Contradicts,
    /// It cannot be compared now, or never.
    Unknown,
}

impl Agreement {
    /// Begins a pass if one is due at `now` (in seconds, as all times here). `every`: the period of the scrub. Returns whether one
    /// has begun, which is to be recorded: its time goes on over restarts.
    pub fn begins(&mut self, now: u64, every: u64) -> bool {
        let next = pass(self.pass, now, every.saturating_mul(PERIODS)).or(self.pass);
        std::mem::replace(&mut self.pass, next) != next
    }

    /// How many stripes of the pass are due, where there are so many. None is due at its begin, so that a cluster of a few hours
    /// compares nothing.
    pub fn due(&self, now: u64, every: u64, stripes: u64) -> u64 {
        let Some(pass) = self.pass.filter(|pass| !pass.ended) else { return 0 };
        let (every, passed) = (every.saturating_mul(PERIODS), now.saturating_sub(pass.began));
        if passed >= every {
            return PORTION;
        }
        let by_now = u128::from(stripes) * u128::from(passed) / u128::from(every);
        u64::try_from(by_now).unwrap_or(stripes).saturating_sub(pass.done).min(PORTION)
    }

    /// These stripes came next; `ended`: no more come after them. Returns whether that is to be recorded.
    pub fn compared(&mut self, seen: &[(StripeId, Compared)], ended: bool, now: u64, stripes: u64) -> bool {
        let Some(pass) = self.pass else { return false };
        let mut changed = false;
        for (id, says) in seen {
            changed |= match says {
                Compared::Agrees => self.wrong.remove(id),
                Compared::Contradicts if self.wrong.len() < MOST_WRONG => self.wrong.insert(*id),
                Compared::Contradicts | Compared::Unknown => false,
            };
        }
        let done = pass.done + seen.len() as u64;
        let upto = seen.last().map(|(id, _)| *id).or(pass.upto);
        let verified = if ended { Some(now) } else { pass.verified };
        self.pass = Some(NodeScrub { done, upto, ended, verified, ..pass });
        changed || ended || is_recorded(pass.done, done, stripes)
    }
}

/// The stripe as it is compared, with all of its blocks. `None` if one cannot be read now or has no known digest, and for codes
/// with sub-blocks, which cannot be compared.
pub fn whole(stripe: &Stripe, readable: impl Fn(NodeId) -> bool) -> Option<StripeView> {
    let known = |block: &BlockRecord| {
        !block.lost && block.digest.is_some_and(|digest| digest != DIGEST_UNKNOWN) && readable(block.node)
    };
    let all = stripe.record.made().all(|(_, block)| known(block));
    let whole = stripe.record.encoded && stripe.code.w() == 1 && all;
    whole.then(|| stripe.view(|_, block| block.digest.is_some()))
}

/// The parity block that is computed from all others and compared, and the plan for that. `None` if no more blocks are there than
/// the code needs. A parity block is as long as any, so all bytes of all blocks take part.
///
/// # Errors
/// Those of planning.
pub fn planned(view: &StripeView, topology: &Topology) -> Result<Option<(BlockIndex, Plan)>, PlanError> {
    let parities = view.available().into_iter().rev().filter(|index| usize::from(index.0) >= view.code.k());
    for index in parities {
        if let Some(plan) = compare(view, topology, index, Sink::Compare)? {
            return Ok(Some((index, plan)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::RackId;
    use kintsu_plan::Node;

    const EVERY: u64 = 1000;

    /// Compares what is due of stripes 1 to `stripes`; returns how many were.
    fn step(agreement: &mut Agreement, now: u64, stripes: u64) -> u64 {
        agreement.begins(now, EVERY);
        let due = agreement.due(now, EVERY, stripes);
        let after = agreement.pass.and_then(|pass| pass.upto).map_or(0, |stripe| stripe.0);
        let last = (after + due).min(stripes);
        let seen: Vec<_> = (after + 1..=last).map(|id| (StripeId(id), Compared::Agrees)).collect();
        if due > 0 {
            agreement.compared(&seen, last == stripes, now, stripes);
        }
        seen.len() as u64
    }

    #[test]
    fn each_stripe_is_compared_once_in_some_periods_evenly_and_none_at_the_begin() {
        let (mut agreement, mut sum) = (Agreement::default(), 0);
        let all = PERIODS * EVERY;
        for now in 0..=all {
            sum += step(&mut agreement, now, 300);
            assert_eq!(sum, 300 * now / all, "after {now} s");
        }
        assert!(agreement.pass.unwrap().ended);
        assert_eq!(step(&mut agreement, all + 9, 300), 0, "the next pass begins");
        assert_eq!(step(&mut agreement, all + 19, 300), 1);
    }

    #[test]
    fn what_contradicts_itself_is_known_until_it_agrees() {
        let mut agreement = Agreement::default();
        assert!(agreement.begins(0, EVERY) && !agreement.begins(1, EVERY));
        let id = StripeId(5);
        let mut says = |says, now| {
            let recorded = agreement.compared(&[(id, says)], false, now, 1_000_000);
            (recorded, agreement.wrong.contains(&id))
        };
        assert_eq!(says(Compared::Agrees, 1), (true, false), "it is the first of the pass");
        assert_eq!(says(Compared::Contradicts, 2), (true, true));
        assert_eq!(says(Compared::Unknown, 3), (false, true));
        assert_eq!(says(Compared::Contradicts, 4), (false, true));
        assert_eq!(says(Compared::Agrees, 5), (true, false));
        assert_eq!(says(Compared::Agrees, 6), (false, false));
    }

    #[test]
    fn a_whole_stripe_is_compared_at_its_last_parity() {
        let node = |id| Node { rack: RackId(id), usable: true, used_bytes: 0, room_bytes: None };
        let nodes = (0..4).map(|id| (NodeId(id), node(id))).collect();
        let topology = Topology { nodes, ..Topology::default() };
        let sound = stripe("rs:n=4,k=2", &[]);
        let (at, plan) = planned(&whole(&sound, |_| true).unwrap(), &topology).unwrap().unwrap();
        let sinks: Vec<_> = plan.lanes[0].placed.persist_at.values().copied().collect();
        assert_eq!((at, sinks), (BlockIndex(3), vec![(NodeId(3), Sink::Compare)]));
    }

    #[test]
    fn a_stripe_that_is_not_whole_is_not_compared() {
        let sound = stripe("rs:n=4,k=2", &[]);
        assert!(whole(&sound, |node| node != NodeId(1)).is_none());
        assert!(whole(&stripe("rs:n=4,k=2", &[2]), |_| true).is_none());
        assert!(whole(&stripe("clay:n=6,k=4,d=5", &[]), |_| true).is_none());
        let (mut plain, mut unknown) = (sound.clone(), sound);
        plain.record.encoded = false;
        unknown.record.blocks[0].as_mut().unwrap().digest = Some(DIGEST_UNKNOWN);
        assert!(whole(&plain, |_| true).is_none() && whole(&unknown, |_| true).is_none());
    }
}
