//! Decides which stripes are compared with their codes next, and what is known of those that contradict themselves. The driver has
//! agents do the work.
//!
//! No block is read or repaired but as it was recorded. So blocks of a stripe can contradict each other only if one was recorded
//! wrong: a client computed a wrong parity, or a commit of a volume added to it what was not added to the data. Then a loss
//! would be repaired wrong, or not at all. To find that out, one parity block is computed from all others, and compared; of codes
//! with sub-blocks all parity blocks are, from the data blocks. It says nothing of which block is wrong, so nothing follows but that
//! operators are told.
//!
//! A stripe that cannot be compared when its turn comes waits, and is tried again until it was compared or is gone, while the pass
//! goes on. What neither was compared nor waits is counted.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId, Sink, StripeId};
use kintsu_plan::{DIGEST_UNKNOWN, Plan, PlanError, StripeView, Topology, compare, compare_encoded};
use kintsu_wire::message::{ComparedStripes, NodeScrub};
use serde::{Deserialize, Serialize};

use super::patrol::{PORTION, is_recorded, pass};
use super::stripe::Stripe;
use crate::meta::record::BlockRecord;

/// Most stripes that are remembered; where there are more, something is wrong with all of them.
const MOST_WRONG: usize = 1000;

/// Most stripes that wait; where there are more, so much is away that the next pass is soon enough.
const MOST_WAITING: usize = 1000;

/// A stripe that waits is tried again after this time, in seconds.
pub const RETRY_S: u64 = 600;

/// Most stripes that are tried again at a time: a run that fails may have taken long.
const MOST_AGAIN: usize = 8;

/// How far the stripes were compared, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Agreement {
    /// The pass over all stripes, in order of their ids. What it counts are stripes.
    pub pass: Option<NodeScrub>,
    /// The stripes that contradict themselves. Some may be gone by now.
    pub wrong: BTreeSet<StripeId>,
    /// The stripes that wait, and when each was last tried.
    pub waiting: BTreeMap<StripeId, u64>,
    /// Stripes that the pass under way has come to and that were neither compared nor wait.
    pub not_compared: u64,
    /// How many these were when a pass last came to the end.
    pub not_compared_before: u64,
}

/// What a comparison of a stripe says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Its blocks are what its code makes of them, or it is gone.
    Agrees,
    /// They are not.
    Contradicts,
    /// It cannot be compared now: a block cannot be read, or something came in between.
    Later,
    /// It cannot be compared as it is: it has no parity yet, or no more blocks than needed.
    Never,
}

impl Agreement {
    /// Begins a pass if one is due at `now` (in seconds, as all times here). `every`: the period of the scrub, in which all stripes are
    /// compared once too. Returns whether one
    /// has begun, which is to be recorded: its time goes on over restarts.
    pub fn begins(&mut self, now: u64, every: u64) -> bool {
        let next = pass(self.pass, now, every).or(self.pass);
        std::mem::replace(&mut self.pass, next) != next
    }

    /// How many stripes of the pass are due, where there are so many. None is due at its begin, so that a cluster of a few hours
    /// compares nothing.
    pub fn due(&self, now: u64, every: u64, stripes: u64) -> u64 {
        let Some(pass) = self.pass.filter(|pass| !pass.ended) else { return 0 };
        let passed = now.saturating_sub(pass.began);
        if passed >= every {
            return PORTION;
        }
        let by_now = u128::from(stripes) * u128::from(passed) / u128::from(every);
        u64::try_from(by_now).unwrap_or(stripes).saturating_sub(pass.done).min(PORTION)
    }

    /// The stripes that have waited long enough to be tried again: some of them, the longest wait first.
    pub fn again(&self, now: u64) -> Vec<StripeId> {
        let due = self.waiting.iter().filter(|(_, tried)| now.saturating_sub(**tried) >= RETRY_S);
        let mut due: Vec<_> = due.map(|(id, tried)| (*tried, *id)).collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).take(MOST_AGAIN).collect()
    }

    /// How many stripes a pass has yet to come to that should have ended long ago. `None`: nothing is late.
    pub fn late(&self, now: u64, every: u64, stripes: u64) -> Option<u64> {
        let pass = self.pass.filter(|_| every > 0 && stripes > 0)?;
        // A pass that was due long ago may have begun just now.
        let unended = now.saturating_sub(pass.verified.unwrap_or(0).max(pass.began));
        let left = if pass.ended { stripes } else { stripes.saturating_sub(pass.done).max(1) };
        (unended > every.saturating_mul(2)).then_some(left)
    }

    /// What operators are shown.
    pub fn shown(&self) -> ComparedStripes {
        let Self { pass, not_compared, not_compared_before, .. } = *self;
        ComparedStripes { pass, waiting: self.waiting.len() as u64, not_compared, not_compared_before }
    }

    /// These stripes were looked at. Returns whether that is to be recorded.
    pub fn learn(&mut self, seen: &[(StripeId, Compared)], now: u64) -> bool {
        let mut changed = false;
        for (id, says) in seen {
            self.waiting.remove(id);
            changed |= match says {
                Compared::Agrees => self.wrong.remove(id),
                Compared::Contradicts => self.wrong.insert(*id),
                Compared::Later if self.waiting.len() < MOST_WAITING => {
                    self.waiting.insert(*id, now);
                    false
                }
                Compared::Later | Compared::Never => {
                    self.not_compared += 1;
                    false
                }
            };
        }
        changed
    }

    /// Of the stripes that contradict themselves only these still exist. The others are forgotten, and those that are too many.
    pub fn keep(&mut self, there: &BTreeSet<StripeId>) {
        self.wrong = self.wrong.intersection(there).copied().take(MOST_WRONG).collect();
    }

    /// These stripes of the pass came next; `ended`: no more come after them. Returns whether that is to be recorded.
    pub fn compared(&mut self, seen: &[(StripeId, Compared)], ended: bool, now: u64, stripes: u64) -> bool {
        let Some(pass) = self.pass else { return false };
        let changed = self.learn(seen, now);
        if ended {
            self.not_compared_before = std::mem::take(&mut self.not_compared);
        }
        let done = pass.done + seen.len() as u64;
        let upto = seen.last().map(|(id, _)| *id).or(pass.upto);
        let verified = if ended { Some(now) } else { pass.verified };
        self.pass = Some(NodeScrub { done, upto, ended, verified, ..pass });
        changed || ended || is_recorded(pass.done, done, stripes)
    }
}

/// The stripe as it is compared, with all of its blocks.
///
/// # Errors
/// `Later` if a block cannot be read now or has no known digest; `Never` without parity.
pub fn whole(stripe: &Stripe, readable: impl Fn(NodeId) -> bool) -> Result<StripeView, Compared> {
    if !stripe.record.encoded {
        return Err(Compared::Never);
    }
    let known = |block: &BlockRecord| {
        !block.lost && block.digest.is_some_and(|digest| digest != DIGEST_UNKNOWN) && readable(block.node)
    };
    match stripe.record.made().all(|(_, block)| known(block)) {
        true => Ok(stripe.view(|_, block| block.digest.is_some())),
        false => Err(Compared::Later),
    }
}

/// The parity blocks that are computed and compared, and the plan for that: one from all other blocks, or, where the code has
/// sub-blocks, all from the data blocks. `None` if no more blocks are there than the code needs. A parity block is as long as any, so
/// all bytes of all blocks take part.
///
/// # Errors
/// Those of planning.
pub fn planned(view: &StripeView, topology: &Topology) -> Result<Option<(Vec<BlockIndex>, Plan)>, PlanError> {
    let mut parities = view.available();
    parities.retain(|index| usize::from(index.0) >= view.code.k());
    if view.code.w() != 1 {
        return Ok(Some((parities, compare_encoded(view, topology)?)));
    }
    for index in parities.into_iter().rev() {
        if let Some(plan) = compare(view, topology, index, Sink::Compare)? {
            return Ok(Some((vec![index], plan)));
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
    fn each_stripe_is_compared_once_in_a_period_evenly_and_none_at_the_begin() {
        let (mut agreement, mut sum) = (Agreement::default(), 0);
        for now in 0..=EVERY {
            sum += step(&mut agreement, now, 300);
            assert_eq!(sum, 300 * now / EVERY, "after {now} s");
        }
        assert!(agreement.pass.unwrap().ended);
        assert_eq!(step(&mut agreement, EVERY + 3, 300), 0, "the next pass begins");
        assert_eq!(step(&mut agreement, EVERY + 7, 300), 1);
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
        assert_eq!(says(Compared::Later, 3), (false, true));
        assert_eq!(says(Compared::Contradicts, 4), (false, true));
        assert_eq!(says(Compared::Agrees, 5), (true, false));
        assert_eq!(says(Compared::Agrees, 6), (false, false));
    }

    #[test]
    fn what_cannot_be_compared_waits_or_is_counted() {
        let (mut agreement, most) = (Agreement::default(), MOST_WAITING as u64);
        agreement.begins(0, EVERY);
        let away: Vec<_> = (0..most + 3).map(|id| (StripeId(id), Compared::Later)).collect();
        agreement.compared(&away, false, 5, 9999);
        agreement.compared(&[(StripeId(8888), Compared::Never)], true, 6, 9999);
        let counts = |agreement: &Agreement| {
            let shown = agreement.shown();
            (shown.waiting, shown.not_compared, shown.not_compared_before)
        };
        assert_eq!(counts(&agreement), (most, 0, 4), "so many wait, and three more do not");
        agreement.begins(EVERY, EVERY);
        assert_eq!(agreement.again(4 + RETRY_S), []);
        let due = agreement.again(5 + RETRY_S);
        assert_eq!((due.len(), due[0]), (MOST_AGAIN, StripeId(0)));
        let seen = [(due[0], Compared::Agrees), (due[1], Compared::Contradicts), (due[2], Compared::Later)];
        assert!(agreement.learn(&seen, 5 + RETRY_S));
        assert_eq!(agreement.wrong, BTreeSet::from([due[1]]));
        assert_eq!(agreement.again(5 + RETRY_S)[0], StripeId(3), "others come first");
        assert_eq!(counts(&agreement), (most - 2, 0, 4));
    }

    #[test]
    fn stripes_that_are_gone_keep_no_others_out() {
        let mut agreement = Agreement::default();
        let wrong = |ids: std::ops::Range<u64>| {
            ids.map(|id| (StripeId(id), Compared::Contradicts)).collect::<Vec<_>>()
        };
        let most = MOST_WRONG as u64;
        agreement.learn(&wrong(0..most), 0);
        assert!(agreement.learn(&wrong(most..most + 1), 0));
        let mut there = agreement.wrong.clone();
        agreement.keep(&there);
        assert_eq!(agreement.wrong.len(), MOST_WRONG);
        agreement.learn(&wrong(most..most + 1), 0);
        there.remove(&StripeId(0));
        agreement.keep(&there);
        assert_eq!(agreement.wrong, there);
    }

    #[test]
    fn a_pass_is_late_when_none_has_ended_for_twice_its_time() {
        let (mut agreement, twice) = (Agreement::default(), 2 * EVERY);
        assert_eq!(agreement.late(u64::MAX, EVERY, 100), None, "none has begun");
        agreement.begins(7, EVERY);
        agreement.compared(&[(StripeId(1), Compared::Agrees)], false, 8, 100);
        assert_eq!(agreement.late(7 + twice, EVERY, 100), None);
        assert_eq!(agreement.late(8 + twice, EVERY, 100), Some(99));
        assert_eq!(agreement.late(8 + twice, 0, 100), None, "it was switched off");
        agreement.compared(&[(StripeId(2), Compared::Agrees)], true, 50, 100);
        assert_eq!(agreement.late(50 + twice, EVERY, 100), None);
        assert_eq!(agreement.late(51 + twice, EVERY, 100), Some(100), "the next one has not even begun");
        agreement.begins(60 + twice, EVERY);
        assert_eq!(agreement.late(61 + twice, EVERY, 100), None, "it has begun");
    }

    /// A stripe without these blocks; the digests of all are known.
    fn known(code: &str, lost: &[u8]) -> Stripe {
        let mut stripe = stripe(code, lost);
        let blocks = stripe.record.blocks.iter_mut().flatten();
        blocks.for_each(|block| block.digest = Some([7; 16]));
        stripe
    }

    #[test]
    fn a_whole_stripe_is_compared_at_its_last_parity_and_one_of_sub_blocks_at_all() {
        let node = |id| Node { rack: RackId(id), usable: true, used_bytes: 0, room_bytes: None };
        let nodes = (0..6).map(|id| (NodeId(id), node(id))).collect();
        let topology = Topology { nodes, ..Topology::default() };
        for (code, parities) in [("rs:n=4,k=2", &[3][..]), ("clay:n=6,k=4,d=5", &[4, 5])] {
            let sound = known(code, &[]);
            let (at, plan) = planned(&whole(&sound, |_| true).unwrap(), &topology).unwrap().unwrap();
            let sinks = &plan.lanes[0].placed.persist_at;
            assert!(sinks.values().all(|(_, sink)| *sink == Sink::Compare), "{code}");
            let nodes: BTreeSet<NodeId> = sinks.values().map(|(node, _)| *node).collect();
            assert_eq!(nodes, parities.iter().map(|at| NodeId((*at).into())).collect(), "{code}");
            assert_eq!(at, parities.iter().copied().map(BlockIndex).collect::<Vec<_>>(), "{code}");
        }
    }

    #[test]
    fn a_stripe_that_is_not_whole_is_not_compared() {
        let sound = known("rs:n=4,k=2", &[]);
        assert_eq!(whole(&sound, |_| true).err(), None);
        assert_eq!(whole(&sound, |node| node != NodeId(1)).err(), Some(Compared::Later));
        assert_eq!(whole(&known("rs:n=4,k=2", &[2]), |_| true).err(), Some(Compared::Later));
        let (mut plain, mut unknown) = (sound.clone(), sound);
        plain.record.encoded = false;
        unknown.record.blocks[0].as_mut().unwrap().digest = Some(DIGEST_UNKNOWN);
        assert_eq!(whole(&plain, |_| true).err(), Some(Compared::Never));
        assert_eq!(whole(&unknown, |_| true).err(), Some(Compared::Later));
    }
}
