//! Straggler-aware re-scheduling (ChameleonEC, section III-C), as pure functions of the progress.
//!
//! A transmission is late when it should have ended some time ago ([`super::Expected::sent_by`]) and has not. Two
//! things can be done:
//!
//! - re-tuning: if its receiver is a helper, the sender sends to the requestor instead, so the helper need not wait
//!   for it. Slices are independent: the repair goes on from the byte that the requestor has reached;
//! - re-ordering: otherwise the repair is postponed, so that others are not delayed with it. It is woken when the
//!   nodes that it needs have nothing else to send or receive, in the same phase or in a later one.
//!
//! Of several late transmissions of a repair only those count whose sender does not itself wait for a late one.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;

use super::chameleon::expectations;
use super::desk::Desk;
use super::scene::{Planned, Route, Scene};

/// A repair under way.
#[derive(Debug, Clone, PartialEq)]
pub struct Underway {
    /// What runs. Its trees carry the bytes from `start` on.
    pub planned: Planned,
    /// The first byte of the block that this attempt repairs.
    pub start: u64,
    /// When each sender should be done, on the clock of `now` in [`reschedule`].
    pub sent_by: BTreeMap<NodeId, f64>,
    /// Bytes of the block, counted from its first one, that each sender has sent its part of. A sender without an
    /// entry is at `start`.
    pub sent: BTreeMap<NodeId, u64>,
    /// The first byte that the requestor does not have yet.
    pub upto: u64,
    /// Whether it waits until its nodes have time.
    pub postponed: bool,
}

/// What is to be done with a repair, by its place in the list.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Stop it for now; it keeps what it has.
    Postpone(usize),
    /// Let it go on from the byte that it has reached.
    Wake {
        /// Which repair.
        repair: usize,
        /// Its new expectations.
        sent_by: BTreeMap<NodeId, f64>,
    },
    /// Go on along other trees.
    Retune {
        /// Which repair.
        repair: usize,
        /// The new trees, to the same requestor.
        planned: Planned,
        /// The byte from which they begin.
        start: u64,
        /// Their expectations.
        sent_by: BTreeMap<NodeId, f64>,
    },
}

impl Underway {
    fn done(&self) -> bool {
        self.upto >= self.planned.bytes
    }

    /// Bytes of the block that are not repaired yet.
    pub fn left(&self) -> u64 {
        self.planned.bytes.saturating_sub(self.upto)
    }

    /// Transmissions that have not ended: sender, receiver, and the bytes that are left.
    fn open(&self) -> Vec<(NodeId, NodeId, f64)> {
        let left = |from: &NodeId| {
            let sent = self.sent.get(from).copied().unwrap_or(self.start);
            self.planned.bytes.saturating_sub(sent) as f64
        };
        let sends = self.planned.sends().into_iter().map(|(from, to, part)| (from, to, part * left(&from)));
        sends.filter(|(_, _, left)| !self.done() && *left > 0.0).collect()
    }

    /// The late transmissions that do not wait for other late ones.
    fn late(&self, now: f64, threshold: f64) -> Vec<(NodeId, NodeId)> {
        let is_late =
            |from: &NodeId| self.sent_by.get(from).is_some_and(|expected| now > expected + threshold);
        let late = self.open().into_iter().filter(|(from, ..)| is_late(from)).map(|(from, to, _)| (from, to));
        let late: Vec<(NodeId, NodeId)> = late.collect();
        let receivers: BTreeSet<NodeId> = late.iter().map(|(_, to)| *to).collect();
        late.into_iter().filter(|(from, _)| !receivers.contains(from)).collect()
    }

    fn nodes(&self) -> BTreeSet<NodeId> {
        self.open().into_iter().flat_map(|(from, to, _)| [from, to]).collect()
    }
}

/// What follows from the progress at time `now`. A transmission is late `threshold` seconds after its expectation.
/// `scene` has the bandwidth that is idle now; its work under way is ignored, because it is in `underway`.
///
/// The steps are in the order in which to take them, at most one for each repair.
pub fn reschedule(scene: &Scene<'_>, underway: &[Underway], now: f64, threshold: f64) -> Vec<Step> {
    let mut postponed: Vec<bool> = underway.iter().map(|repair| repair.postponed).collect();
    let mut steps = Vec::new();
    for (number, repair) in underway.iter().enumerate().filter(|(_, repair)| !repair.postponed) {
        let late = repair.late(now, threshold);
        if late.is_empty() {
            continue;
        }
        if let Some(planned) = redirected(&repair.planned, &late) {
            let sent_by = expected(scene, underway, &postponed, (number, &planned), now);
            steps.push(Step::Retune { repair: number, planned, start: repair.upto, sent_by });
            continue;
        }
        let others = (0..underway.len()).filter(|other| *other != number && !postponed[*other]);
        // Where nothing else goes on, postponing helps nobody.
        if others.into_iter().any(|other| !underway[other].done()) {
            postponed[number] = true;
            steps.push(Step::Postpone(number));
        }
    }
    let was: Vec<usize> = (0..underway.len()).filter(|number| underway[*number].postponed).collect();
    for number in was {
        let wanted = underway[number].nodes();
        let busy = (0..underway.len()).filter(|other| !postponed[*other]);
        let mut busy = busy.flat_map(|other| underway[other].nodes());
        if !underway[number].done() && !busy.any(|node| wanted.contains(&node)) {
            postponed[number] = false;
            let planned = &underway[number].planned;
            let sent_by = expected(scene, underway, &postponed, (number, planned), now);
            steps.push(Step::Wake { repair: number, sent_by });
        }
    }
    steps
}

/// For each of these repairs, in how many seconds its senders should be done if all that are not postponed share the
/// links. As in [`reschedule`], work under way in `scene` is ignored.
pub fn shared_expectations(scene: &Scene<'_>, underway: &[Underway]) -> Vec<BTreeMap<NodeId, f64>> {
    let mut desk = Desk::new(&Scene { underway: &[], ..*scene }, &[]);
    for repair in underway.iter().filter(|repair| !repair.postponed) {
        desk.carry(&repair.planned, repair.left() as f64);
    }
    underway.iter().map(|repair| expectations(&desk, &repair.planned)).collect()
}

/// The repair with the late transmissions to helpers redirected to the requestor; `None` if there are none.
fn redirected(planned: &Planned, late: &[(NodeId, NodeId)]) -> Option<Planned> {
    let Route::Trees(trees) = &planned.route else { return None };
    let mut trees = trees.clone();
    let mut changed = false;
    for tree in &mut trees {
        for (from, to) in late {
            if let Some(parent) = tree.parents.get_mut(from).filter(|parent| **parent == Some(*to)) {
                *parent = None;
                changed = true;
            }
        }
    }
    changed.then(|| Planned { route: Route::Trees(trees), ..planned.clone() })
}

/// The expectations of a repair that goes on now beside the others.
fn expected(
    scene: &Scene<'_>,
    underway: &[Underway],
    postponed: &[bool],
    (number, planned): (usize, &Planned),
    now: f64,
) -> BTreeMap<NodeId, f64> {
    let mut desk = Desk::new(&Scene { underway: &[], ..*scene }, &[]);
    for (other, repair) in underway.iter().enumerate() {
        if other != number && !postponed[other] {
            repair.open().into_iter().for_each(|(from, to, bytes)| desk.carry_between(from, to, bytes));
        }
    }
    desk.carry(planned, underway[number].left() as f64);
    let from_now = expectations(&desk, planned);
    from_now.into_iter().map(|(node, seconds)| (node, now + seconds)).collect()
}
