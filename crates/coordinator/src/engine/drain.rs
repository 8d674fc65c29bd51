//! Decides how a node is emptied: which block is moved next, where to, what follows from an attempt, and when
//! the drain has ended. The driver does the work.
//!
//! Each block is copied to another node as it is, without decoding. A block that cannot be read any more is
//! left to repair. Puts, repairs and encodings that began before the drain may still write to this node: the drain
//! waits for them, and moves what they commit too.
//!
//! Invariants: a block counts as moved only when it is durable at its new home with the recorded digest; a
//! block that failed is not tried again by the same drain, so every pass ends; a drain ends only after a pass
//! that began while nothing of that was under way.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{PlanError, StripeView, Topology, place_lost};
use kintsu_wire::message::{Fault, RunOutcome};

use super::doubt::is_reason;
use super::repair::Tally;
use super::stripe::Stripe;
use crate::meta::change::{Landing, LostBlock};

/// Most attempts for one block.
const ATTEMPTS: u32 = 4;

/// Which nodes take blocks that leave their node. The bytes of a block are those of its file, which nodes tell as used.
pub trait Takers: Send + 'static {
    /// Leaves only those nodes usable that take a block of this many bytes from this node.
    fn offer(&self, topology: &mut Topology, from: NodeId, bytes: u64);

    /// Of several nodes that may take a block, the one of the smallest rank does.
    fn rank(&self, node: NodeId) -> u64;

    /// A block is given from a node to another.
    fn gave(&mut self, from: NodeId, to: NodeId, bytes: u64);

    /// It was not moved after all.
    fn took_back(&mut self, from: NodeId, to: NodeId, bytes: u64);
}

/// How many blocks a drain has given to each node: all nodes take blocks, the one least used first.
pub type Used = BTreeMap<NodeId, u64>;

impl Takers for Used {
    fn offer(&self, _: &mut Topology, _: NodeId, _: u64) {}

    fn rank(&self, node: NodeId) -> u64 {
        self.get(&node).copied().unwrap_or(0)
    }

    fn gave(&mut self, _: NodeId, to: NodeId, _: u64) {
        *self.entry(to).or_default() += 1;
    }

    /// It counts all the same, so that the next attempt prefers another node.
    fn took_back(&mut self, _: NodeId, _: NodeId, _: u64) {}
}

/// The progress of one drain.
#[derive(Debug, Default)]
pub struct Drain {
    tally: Tally,
    failed: BTreeMap<BlockId, String>,
    done: u64,
    total: u64,
    cancelled: Option<String>,
}

/// What follows from a pass over all blocks of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passed {
    /// The drain has ended.
    Ended,
    /// Wait a moment and begin another pass.
    Wait,
    /// The drain was revoked.
    Revoked,
}

impl Drain {
    /// A pass over `placed` blocks begins.
    pub fn begin(&mut self, placed: u64) {
        self.total = self.done + placed;
    }

    /// The blocks of a page that are to be moved: those that have not failed before.
    pub fn due(&self, page: Vec<BlockId>) -> Vec<BlockId> {
        page.into_iter().filter(|id| !self.failed.contains_key(id)).collect()
    }

    /// A block was moved, or could not be moved. Returns how many blocks are done, and how many are known.
    pub fn moved(&mut self, id: BlockId, failed: Option<String>, cost: &Tally) -> (u64, u64) {
        self.tally.add(cost);
        self.done += 1;
        self.failed.extend(failed.map(|why| (id, why)));
        (self.done, self.total)
    }

    /// A pass has ended. When it began, so many puts, repairs and others were to bring blocks to the node.
    pub fn passed(&self, underway: u64, draining: bool) -> Passed {
        match (underway, draining) {
            (_, false) => Passed::Revoked,
            (0, true) => Passed::Ended,
            (_, true) => Passed::Wait,
        }
    }

    /// The drain was cancelled while `left` blocks were on the node.
    pub fn cancelled(&mut self, node: NodeId, left: u64) {
        if left > 0 {
            self.cancelled = Some(format!(
                "cancelled: {left} blocks stay on node {0}, which gets new blocks again; `kintsu node drain {0}` \
                 drains it anew",
                node.0
            ));
        }
    }

    /// Blocks that were moved or failed.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// What it cost, and what could not be moved.
    pub fn end(self) -> (Tally, Vec<String>) {
        let failed = self.failed.into_iter().map(|(id, why)| format!("{id}: {why}"));
        (self.tally, self.cancelled.into_iter().chain(failed).collect())
    }
}

/// One block that is moved away from a node.
#[derive(Debug, Clone)]
pub struct Move {
    id: BlockId,
    from: NodeId,
    barred: BTreeSet<NodeId>,
    attempts: u32,
    last: String,
}

/// What to do about a block, now that its stripe was read.
#[derive(Debug, Clone)]
pub enum Found {
    /// Nothing: the block is gone, or its home is elsewhere.
    Settled,
    /// It is flagged lost: have it repaired.
    Lost,
    /// Plan a copy of the block in this view of the stripe, and run that plan.
    Copy(StripeView),
}

/// What follows from an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ran {
    /// The block is durable at its target: make that its home.
    Landed(Landing),
    /// Record what was written as garbage. If there is a `doubt`, have that block read again. Then try again:
    /// at once, or after a moment if `wait` is set.
    Again { doubt: Option<LostBlock>, wait: bool },
}

impl Move {
    /// A block that is to leave a node.
    pub fn new(id: BlockId, from: NodeId) -> Self {
        Self { id, from, barred: BTreeSet::new(), attempts: 0, last: String::new() }
    }

    /// Whether there is another attempt. An attempt begins with reading the stripe.
    pub fn begins(&mut self) -> bool {
        self.attempts += 1;
        self.attempts <= ATTEMPTS
    }

    /// What to do, now that the stripe was read.
    pub fn read(&self, stripe: Option<&Stripe>) -> Found {
        let here = |stripe: &&Stripe| stripe.record.block(self.id.index).is_some_and(|b| b.node == self.from);
        match stripe.filter(here) {
            None => Found::Settled,
            Some(stripe) if stripe.record.block(self.id.index).is_some_and(|b| b.lost) => Found::Lost,
            Some(stripe) => Found::Copy(stripe.view(|_, block| block.digest.is_some())),
        }
    }

    /// Chooses a node for the block, whose file has so many bytes: the one that the takers prefer, of those that have no
    /// block of the stripe to delete. It may be the node that the block is on.
    ///
    /// # Errors
    /// `Placement` when there is none.
    pub fn target(
        &self,
        view: &StripeView,
        bytes: u64,
        mut topology: Topology,
        sweeping: &BTreeSet<NodeId>,
        takers: &mut impl Takers,
    ) -> Result<NodeId, PlanError> {
        for (node, known) in &mut topology.nodes {
            known.usable &= !sweeping.contains(node) && !self.barred.contains(node);
        }
        takers.offer(&mut topology, self.from, bytes);
        let chosen = place_lost(view, &topology, &[self.id.index], &mut |node| takers.rank(node))?;
        let Some(&to) = chosen.first() else {
            let (expected, got) = ("one more usable node".into(), "none".into());
            return Err(PlanError::Placement { expected, got });
        };
        if to != self.from {
            takers.gave(self.from, to, bytes);
        }
        Ok(to)
    }

    /// The target cannot be written to now: wait a moment and try again.
    pub fn refused(&mut self, to: NodeId) {
        self.last = format!("{to} still deletes an earlier file of {}", self.id);
    }

    /// The block had become another one when it was copied, as by a commit of updates: try again.
    pub fn changed(&mut self) {
        self.last = format!("{} was changed while it was copied", self.id);
    }

    /// A copy to `to` has ended.
    pub fn ran(
        &mut self,
        stripe: &Stripe,
        to: NodeId,
        outcomes: &[RunOutcome],
        fault: Option<&Fault>,
    ) -> Ran {
        let (id, from, generation) = (self.id, self.from, stripe.record.generation_of(self.id.index));
        let digest = stripe.record.block(id.index).and_then(|b| b.digest);
        let mut written = outcomes.iter().filter(|o| o.node == to).flat_map(|o| &o.written);
        let held = written.find(|h| h.id == id && h.generation == generation && Some(h.digest) == digest);
        if let Some(held) = held {
            return Ran::Landed(Landing { index: id.index, from, to, generation, digest: held.digest });
        }
        self.last = fault.map_or("no durable block".into(), ToString::to_string);
        match fault {
            Some(fault) if fault.node == from && fault.block == Some(id) => {
                let doubt = is_reason(fault.kind).then_some(LostBlock { id, node: from, why: fault.kind });
                Ran::Again { doubt, wait: false }
            }
            Some(fault) if fault.node != from => {
                self.barred.insert(fault.node);
                Ran::Again { doubt: None, wait: false }
            }
            _ => Ran::Again { doubt: None, wait: true },
        }
    }

    /// Why there is no further attempt.
    pub fn gave_up(&self) -> String {
        format!("{ATTEMPTS} failed attempts: {}", self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::stripe::tests::stripe;
    use kintsu_dag::{BlockIndex, RackId};
    use kintsu_plan::Node;
    use kintsu_wire::message::{FaultKind, HeldBlock};

    fn block(index: u8) -> BlockId {
        BlockId { stripe: stripe("rs:n=4,k=2", &[]).id, index: BlockIndex(index) }
    }

    fn fault(kind: FaultKind, node: u32, block: Option<BlockId>) -> Fault {
        Fault { kind, node: NodeId(node), block, detail: String::new() }
    }

    #[test]
    fn a_drain_waits_for_puts_and_ends_after_a_pass_without() {
        let mut drain = Drain::default();
        drain.begin(2);
        assert_eq!(drain.due(vec![block(0), block(1)]).len(), 2);
        assert_eq!(drain.moved(block(0), None, &Tally::default()), (1, 2));
        assert_eq!(drain.moved(block(1), Some("no node".into()), &Tally::default()), (2, 2));
        assert_eq!((drain.passed(3, true), drain.passed(3, false)), (Passed::Wait, Passed::Revoked));
        // A block that failed is not tried again.
        drain.begin(2);
        assert_eq!(drain.due(vec![block(1), block(2)]), [block(2)]);
        assert_eq!(drain.moved(block(2), None, &Tally::default()), (3, 4));
        assert_eq!((drain.passed(0, true), drain.passed(0, false)), (Passed::Ended, Passed::Revoked));
        assert_eq!(drain.done(), 3);
        assert_eq!(drain.end().1, [format!("{}: no node", block(1))]);
    }

    #[test]
    fn a_block_that_is_gone_is_settled_a_lost_one_is_repaired_and_another_copied() {
        let (here, there) = (Move::new(block(1), NodeId(1)), Move::new(block(1), NodeId(2)));
        let (sound, lost) = (stripe("rs:n=4,k=2", &[]), stripe("rs:n=4,k=2", &[1]));
        assert!(matches!(here.read(None), Found::Settled));
        assert!(matches!(there.read(Some(&sound)), Found::Settled));
        assert!(matches!(here.read(Some(&lost)), Found::Lost));
        assert!(matches!(here.read(Some(&sound)), Found::Copy(view) if view.lost().is_empty()));
    }

    #[test]
    fn it_goes_to_the_node_least_used_that_may_take_it() {
        // Node 1 is drained: it takes no blocks.
        let node = |i| (NodeId(i), Node { rack: RackId(i), usable: i != 1, used_bytes: 0, room_bytes: None });
        let topology = Topology { nodes: (0..8).map(node).collect(), ..Topology::default() };
        let (mut block, stripe) = (Move::new(block(1), NodeId(1)), stripe("rs:n=4,k=2", &[]));
        let Found::Copy(view) = block.read(Some(&stripe)) else { panic!("not to be copied") };
        let mut used = Used::from([(NodeId(7), 2)]);
        assert_eq!(
            block.ran(&stripe, NodeId(6), &[], Some(&fault(FaultKind::Lost, 6, None))),
            Ran::Again { doubt: None, wait: false }
        );
        let mut next = || block.target(&view, 1, topology.clone(), &BTreeSet::from([NodeId(5)]), &mut used);
        assert_eq!([next().unwrap(), next().unwrap()], [NodeId(4); 2]);
    }

    #[test]
    fn only_a_durable_block_with_the_recorded_digest_lands_and_faults_have_consequences() {
        let (mut it, stripe, to) = (Move::new(block(1), NodeId(1)), stripe("rs:n=4,k=2", &[]), NodeId(6));
        let outcome = |digest: u8| {
            let held = HeldBlock { id: block(1), generation: 1, len: 1000, digest: [digest; 16] };
            let (sent, written) = (Vec::new(), vec![held]);
            [RunOutcome { node: to, fault: None, upto: 1000, bytes_read: 0, sent, written }]
        };
        let landing = Landing { index: BlockIndex(1), from: NodeId(1), to, generation: 1, digest: [1; 16] };
        assert_eq!(it.ran(&stripe, to, &outcome(1), None), Ran::Landed(landing));
        assert_eq!(it.ran(&stripe, to, &outcome(9), None), Ran::Again { doubt: None, wait: true });
        let bad = fault(FaultKind::Corrupt, 1, Some(block(1)));
        let doubt = Some(LostBlock { id: block(1), node: NodeId(1), why: FaultKind::Corrupt });
        assert_eq!(it.ran(&stripe, to, &[], Some(&bad)), Ran::Again { doubt, wait: false });
        let lost = fault(FaultKind::Lost, 1, None);
        assert_eq!(it.ran(&stripe, to, &[], Some(&lost)), Ran::Again { doubt: None, wait: true });
        it.refused(to);
        assert_eq!((0..9).filter(|_| it.begins()).count(), 4);
        assert_eq!(
            it.gave_up(),
            format!("4 failed attempts: {to} still deletes an earlier file of {}", block(1))
        );
    }
}
