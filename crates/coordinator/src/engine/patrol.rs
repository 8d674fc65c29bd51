//! Decides which blocks are verified next by the scrub that runs by itself. The driver does the work.
//!
//! It goes through the blocks of each node in order of their stripes, one pass in each period, a portion at a time, spread evenly
//! over the period. A node that was away, or blocks that came meanwhile, make the pass late: then portions follow each
//! other as fast as users and the limit of background work allow.
//!
//! Invariant: a pass counts as complete only if every portion of it was verified to its end.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{NodeId, StripeId};
use kintsu_wire::message::NodeScrub;
use kintsu_wire::version::SCRUBS_RANGES;

use super::members::Members;

/// Most blocks of a portion.
pub const PORTION: u64 = 64;
/// A portion that was not verified is tried again after this time, in seconds.
const RETRY_S: u64 = 60;
/// How often a pass is recorded, so that a restart goes on near the place where the last start ended.
const RECORDS_A_PASS: u64 = 64;

/// Blocks to be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Portion {
    /// On which node.
    pub node: NodeId,
    /// The pass, as it is now.
    pub scrub: NodeScrub,
    /// How many blocks: those of the stripes after the last one that the pass has come to.
    pub blocks: u64,
    /// How many blocks are on the node.
    pub placed: u64,
}

/// How a portion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified {
    /// All its blocks were read, up to this stripe; how many they were.
    Upto(StripeId, u64),
    /// All blocks to the end of the pass were read.
    ToTheEnd(u64),
    /// The node did not read all of them.
    Failed,
}

/// The portions under way.
#[derive(Debug, Default)]
pub struct Patrol {
    running: BTreeSet<NodeId>,
    /// Not before this time.
    failed: BTreeMap<NodeId, u64>,
}

impl Patrol {
    /// The portions that are due at `now` (in seconds, as all times here), at most one on each node. They count as running from
    /// now on. `every`: the period; 0 for no scrub. `placed` says how many blocks are on a node.
    pub fn due(
        &mut self,
        now: u64,
        every: u64,
        members: &Members,
        placed: impl Fn(NodeId) -> u64,
    ) -> Vec<Portion> {
        self.failed.retain(|_, again| *again > now);
        let idle = |node: &NodeId| !self.running.contains(node) && !self.failed.contains_key(node);
        // An older agent would read all its blocks for each portion.
        let able = members.iter().filter(|(_, member)| {
            member.holds() && member.reported && member.record.protocol >= SCRUBS_RANGES
        });
        let due: Vec<Portion> = able
            .filter(|(node, _)| every > 0 && idle(node))
            .filter_map(|(node, member)| {
                let scrub = pass(member.record.scrub, now, every)?;
                let placed = placed(node);
                let blocks = owed(&scrub, placed, now, every);
                (blocks > 0).then_some(Portion { node, scrub, blocks, placed })
            })
            .collect();
        self.running.extend(due.iter().map(|portion| portion.node));
        due
    }

    /// A portion has ended. Returns what is known of the pass from now on, and whether that is to be recorded.
    pub fn ended(&mut self, portion: Portion, how: Verified, now: u64) -> Option<(NodeScrub, bool)> {
        self.running.remove(&portion.node);
        let Portion { node, scrub, .. } = portion;
        let (upto, blocks, ended) = match how {
            Verified::Upto(stripe, blocks) => (Some(stripe), blocks, false),
            Verified::ToTheEnd(blocks) => (scrub.upto, blocks, true),
            Verified::Failed => {
                self.failed.insert(node, now + RETRY_S);
                return None;
            }
        };
        let done = scrub.done + blocks;
        let verified = if ended { Some(now) } else { scrub.verified };
        let next = NodeScrub { upto, done, ended, verified, ..scrub };
        Some((next, ended || is_recorded(scrub.done, done, portion.placed)))
    }
}

/// Whether a pass over `all` is recorded now that it has come from `before` to `done`: its portions are many where much is stored,
/// and most of them need no transaction.
pub(super) fn is_recorded(before: u64, done: u64, all: u64) -> bool {
    let step = (all / RECORDS_A_PASS).max(1);
    before == 0 || before / step != done / step
}

/// The pass that is to go on or to begin; `None` while the next one is not due.
pub(super) fn pass(last: Option<NodeScrub>, now: u64, every: u64) -> Option<NodeScrub> {
    match last {
        Some(last) if !last.ended => Some(last),
        Some(last) if now < last.began.saturating_add(every) => None,
        last => {
            let verified = last.and_then(|last| last.verified);
            Some(NodeScrub { began: now, verified, ..NodeScrub::default() })
        }
    }
}

/// How many blocks of a pass are due now, where `placed` are on the node: the first one is due at the begin.
fn owed(scrub: &NodeScrub, placed: u64, now: u64, every: u64) -> u64 {
    let passed = now.saturating_sub(scrub.began);
    if passed >= every {
        // It has to end, however many blocks came or went meanwhile.
        return PORTION;
    }
    let before = u128::from(placed) * u128::from(passed) / u128::from(every);
    let by_now = u64::try_from(before).map_or(placed, |before| before.saturating_add(1).min(placed));
    by_now.saturating_sub(scrub.done).min(PORTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::members::Patience;
    use crate::engine::members::tests::record;

    const NODE: NodeId = NodeId(1);
    const EVERY: u64 = 1000;

    fn members() -> Members {
        let mut members = Members::new(Patience { dead_after_ms: 50, grace_ms: 600 }, BTreeMap::new(), 0);
        members.enrolled(NODE, record(7), 0);
        members
    }

    /// Verifies what is due each second, of a node with the blocks of stripes 1 to `placed`; returns how many blocks by then, and
    /// how often they were recorded.
    fn verify(patrol: &mut Patrol, members: &mut Members, placed: u64, now: u64) -> (u64, u64) {
        let (mut blocks, mut records) = (0, 0);
        for portion in patrol.due(now, EVERY, members, |_| placed) {
            let after = portion.scrub.upto.map_or(0, |stripe| stripe.0);
            let read = portion.blocks.min(placed - after);
            let how = match after + read == placed {
                true => Verified::ToTheEnd(read),
                false => Verified::Upto(StripeId(after + read), read),
            };
            let (scrub, record) = patrol.ended(portion, how, now).unwrap();
            members.recorded(portion.node, |record| record.scrub = Some(scrub));
            blocks += read;
            records += u64::from(record);
        }
        (blocks, records)
    }

    #[test]
    fn each_block_is_verified_once_in_a_period_evenly() {
        let (mut patrol, mut members) = (Patrol::default(), members());
        let mut sum = 0;
        // The second pass begins when the first one has ended and its time is over.
        for began in [0, EVERY + 1] {
            let before = sum;
            for passed in 0..=EVERY {
                sum += verify(&mut patrol, &mut members, 5000, began + passed).0;
                let due = (passed * 5000 / EVERY + 1).min(5000);
                assert_eq!(sum - before, due, "{passed} s after {began}");
            }
        }
    }

    #[test]
    fn a_pass_ends_with_the_last_block_and_the_next_one_waits_for_its_time() {
        let (mut patrol, mut members) = (Patrol::default(), members());
        let scrub = |members: &Members| members.node(NODE).unwrap().record.scrub;
        verify(&mut patrol, &mut members, 0, 0);
        assert_eq!(scrub(&members), None, "there is nothing to verify");
        let blocks: Vec<u64> = (0..=EVERY).map(|now| verify(&mut patrol, &mut members, 4, now).0).collect();
        let at: Vec<usize> = (0..blocks.len()).filter(|now| blocks[*now] > 0).collect();
        assert_eq!(at, [0, 250, 500, 750, 1000]);
        let second = scrub(&members).unwrap();
        assert_eq!((second.began, second.done, second.verified), (EVERY, 1, Some(750)));
    }

    #[test]
    fn a_node_that_was_away_catches_up_and_seldom_needs_a_transaction() {
        let (mut patrol, mut members) = (Patrol::default(), members());
        members.recorded(NODE, |record| record.scrub = Some(NodeScrub::default()));
        let (mut blocks, mut records) = (0, 0);
        for _ in 0..100_000 / PORTION + 1 {
            let one = verify(&mut patrol, &mut members, 100_000, EVERY);
            blocks += one.0;
            records += one.1;
        }
        assert_eq!(blocks, 100_000);
        assert!(members.node(NODE).unwrap().record.scrub.unwrap().ended);
        assert!(records <= RECORDS_A_PASS + 2, "{records}");
    }

    #[test]
    fn one_portion_of_a_node_runs_and_one_that_failed_is_tried_again_later() {
        let (mut patrol, mut members) = (Patrol::default(), members());
        members.recorded(NODE, |record| record.scrub = Some(NodeScrub::default()));
        let due = patrol.due(500, EVERY, &members, |_| 10);
        assert_eq!((due.len(), due[0].blocks), (1, 6));
        assert_eq!(patrol.due(500, EVERY, &members, |_| 10), []);
        assert_eq!(patrol.ended(due[0], Verified::Failed, 500), None);
        assert_eq!(patrol.due(500 + RETRY_S - 1, EVERY, &members, |_| 10), []);
        assert_eq!(patrol.due(500 + RETRY_S, EVERY, &members, |_| 10).len(), 1);
        assert_eq!(patrol.due(999, 0, &members, |_| 10), [], "it was switched off");
    }

    #[test]
    fn a_node_that_is_not_there_is_not_verified() {
        let (mut patrol, mut members) = (Patrol::default(), members());
        members.recorded(NODE, |record| record.scrub = Some(NodeScrub::default()));
        members.stopped(NODE, 1);
        assert_eq!(patrol.due(500, EVERY, &members, |_| 10), []);
    }

    #[test]
    fn an_agent_that_knows_no_ranges_waits_for_its_upgrade() {
        let (mut patrol, mut members) = (Patrol::default(), members());
        members.recorded(NODE, |record| record.protocol = SCRUBS_RANGES - 1);
        assert_eq!(patrol.due(500, EVERY, &members, |_| 10), []);
        members.recorded(NODE, |record| record.protocol = SCRUBS_RANGES);
        assert_eq!(patrol.due(500, EVERY, &members, |_| 10).len(), 1);
    }
}
