//! The repair of one stripe, from the first plan through faults and new plans to the blocks' new homes: a
//! pure state machine.
//!
//! Slices are independent. So if an attempt was interrupted at byte s, the next one begins at s, with the
//! same requestors and resume key but other helpers. The repair starts over only if a requestor itself
//! failed, or if the result was wrong.
//!
//! A helper whose block is bad is not used again. A helper that was lost or stalled is used again only when
//! nothing else is left, because that may have been a false alarm. A helper that is only slow is avoided
//! where others can replace it.
//!
//! Invariants: a block gets a new home only after an attempt reported it durable there with the recorded
//! digest; no two blocks of the stripe get the same home; every fault reduces what may be used or counts
//! towards [`ATTEMPTS_BEYOND_NODES`], so the repair ends.
//!
//! This file does not judge bytes. Agents compare a repaired block with `expect` before they make it visible;
//! here the digest is compared once more, because metadata depend on it.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_plan::{
    DIGEST_UNKNOWN, Method, PlanError, Recovery, Repair, RepairPlan, StripeView, Topology, read,
};
use kintsu_wire::message::{DigestBytes, Fault, FaultKind, GoneAround, RunOutcome};

use super::Order;
use crate::engine::places::Place;
use crate::engine::slow;
use crate::engine::stripe::Stripe;
use crate::meta::change::{Landing, LostBlock};
use crate::meta::record::BlockRecord;

/// Attempts a repair may make beyond one for each block of the stripe.
const ATTEMPTS_BEYOND_NODES: usize = 8;
/// How often the nodes that were lost or stalled get another chance when nothing else is left: on a loaded machine many
/// are silent for a moment, one after the other.
const CHANCES: u32 = 3;
/// How often a repair may replace helpers that are slow.
const TURNS: usize = 3;
/// The repair is given up after this many results that differ from the record.
const MISMATCHES: u32 = 3;

/// What the cluster looks like when an attempt is planned.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    /// The nodes.
    pub topology: &'a Topology,
    /// Nodes that still have to delete a block of this stripe: they must not be given one.
    pub sweeping: &'a BTreeSet<NodeId>,
    /// Whether blocks can be read from a node.
    pub readable: &'a dyn Fn(NodeId) -> bool,
    /// Nodes that were found slow, to be avoided where possible.
    pub slow: &'a [NodeId],
    /// A resume key that was never used.
    pub fresh_key: u64,
}

/// One attempt, planned.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The stripe as it was planned for.
    pub view: StripeView,
    /// The plan.
    pub plan: RepairPlan,
    /// First byte of every block that is not repaired yet.
    pub start: u64,
    /// The key that joins this attempt with earlier ones, so that it continues them.
    pub resume_key: u64,
}

impl Attempt {
    /// The nodes whose blocks are read.
    pub fn helpers(&self) -> Vec<NodeId> {
        self.plan.helpers.iter().filter_map(|block| home(&self.view, *block)).collect()
    }
}

/// What follows from an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The blocks are durable at their new homes.
    Done(Vec<Landing>),
    /// Plan again.
    Again,
    /// Give up.
    Failed(String),
}

/// A block that a repair cannot read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Absent {
    /// Which block of the stripe.
    pub index: BlockIndex,
    /// Where it should be.
    pub node: NodeId,
    /// It was flagged lost before the repair.
    pub lost: bool,
    /// The repair does not use it: it was found bad, or its node failed.
    pub shunned: bool,
}

/// The repair of some blocks of one stripe.
#[derive(Debug, Clone)]
pub struct StripeRepair {
    stripe: Stripe,
    wanted: Vec<BlockIndex>,
    order: Order,
    shunned_nodes: BTreeSet<NodeId>,
    /// Those of the shunned nodes that were lost or stalled; they get another chance when nothing else is
    /// left.
    cut_off: BTreeSet<NodeId>,
    forgiven: u32,
    /// Nodes found slow, the most recently found first.
    slow: Vec<NodeId>,
    turns: usize,
    around: Vec<GoneAround>,
    shunned_blocks: BTreeSet<BlockIndex>,
    going: Option<Going>,
    attempts: usize,
    mismatches: u32,
    touched: BTreeSet<(NodeId, BlockIndex)>,
    bad: Vec<LostBlock>,
}

/// The state that the next attempt continues.
#[derive(Debug, Clone)]
struct Going {
    requestors: Vec<NodeId>,
    start: u64,
    resume_key: u64,
}

impl StripeRepair {
    /// A repair of `wanted` blocks that were made and cannot be read at their homes.
    pub fn new(stripe: Stripe, wanted: Vec<BlockIndex>, order: Order) -> Self {
        Self {
            stripe,
            wanted,
            order,
            shunned_nodes: BTreeSet::new(),
            cut_off: BTreeSet::new(),
            forgiven: 0,
            slow: Vec::new(),
            turns: 0,
            around: Vec::new(),
            shunned_blocks: BTreeSet::new(),
            going: None,
            attempts: 0,
            mismatches: 0,
            touched: BTreeSet::new(),
            bad: Vec::new(),
        }
    }

    /// The id of the stripe.
    pub fn id(&self) -> StripeId {
        self.stripe.id
    }

    /// The generation that its blocks were first written with.
    pub fn generation(&self) -> u32 {
        self.stripe.record.generation
    }

    /// The generation of a block now.
    pub fn generation_of(&self, index: BlockIndex) -> u32 {
        self.stripe.record.generation_of(index)
    }

    /// The generations of all blocks, by index.
    pub fn generations(&self) -> Vec<u32> {
        self.stripe.generations()
    }

    /// How it is to be done.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The recorded digests, by block index.
    pub fn expect(&self) -> Vec<Option<DigestBytes>> {
        self.stripe.expect()
    }

    /// The blocks that turned out bad at their homes.
    pub fn bad(&self) -> &[LostBlock] {
        &self.bad
    }

    /// The nodes that the repair avoided, in this order, with the reasons.
    pub fn around(&self) -> &[GoneAround] {
        &self.around
    }

    /// The length of the longest block.
    pub fn whole(&self) -> u64 {
        self.stripe.longest()
    }

    /// Every place that an attempt may have written to.
    pub fn touched(&self) -> impl Iterator<Item = (NodeId, BlockId)> + '_ {
        self.touched.iter().map(|&(node, index)| (node, BlockId { stripe: self.stripe.id, index }))
    }

    /// The places that an attempt writes to.
    pub fn places(&self, attempt: &Attempt) -> Vec<(NodeId, BlockId)> {
        let place = |(node, index): (&NodeId, &BlockIndex)| {
            (*node, BlockId { stripe: self.stripe.id, index: *index })
        };
        attempt.plan.requestors.iter().zip(&self.wanted).map(place).collect()
    }

    /// The blocks that were made and cannot be read now.
    pub fn absent(&self, readable: &dyn Fn(NodeId) -> bool) -> Vec<Absent> {
        let shunned = |index: BlockIndex, block: &BlockRecord| {
            self.shunned_blocks.contains(&index) || self.shunned_nodes.contains(&block.node)
        };
        let absent = |(index, block): (BlockIndex, &BlockRecord)| {
            let absent = Absent { index, node: block.node, lost: block.lost, shunned: shunned(index, block) };
            (absent.lost || absent.shunned || !readable(block.node)).then_some(absent)
        };
        self.made().filter_map(absent).collect()
    }

    /// Whether an attempt could be planned in these circumstances; nothing changes.
    pub fn could(&self, at: Circumstances<'_>, recovery: &Recovery) -> bool {
        let mut dry = self.clone();
        // Whether there is a plan does not depend on the method, so any method will do.
        dry.order.method = Method::Conventional;
        dry.plan(at, &mut recovery.clone()).is_ok()
    }

    /// Plans the next attempt.
    ///
    /// # Errors
    /// Too few blocks or nodes are left; the plan fails its proof.
    pub fn plan(&mut self, at: Circumstances<'_>, recovery: &mut Recovery) -> Result<Attempt, PlanError> {
        match self.plan_once(at, recovery) {
            Err(PlanError::Unrecoverable { .. } | PlanError::Placement { .. })
                if self.forgiven < CHANCES && !self.cut_off.is_empty() =>
            {
                self.forgiven += 1;
                for node in std::mem::take(&mut self.cut_off) {
                    self.shunned_nodes.remove(&node);
                }
                self.plan_once(at, recovery)
            }
            planned => planned,
        }
    }

    fn plan_once(&mut self, at: Circumstances<'_>, recovery: &mut Recovery) -> Result<Attempt, PlanError> {
        let view = self.view(at.readable);
        let going = self.going.clone().filter(|g| g.requestors.iter().all(|node| self.may_write(*node, at)));
        let going = match going {
            Some(going) => going,
            None => Going {
                requestors: self.requestors(&view, at, recovery).map_err(|e| self.deeper(&view, e))?,
                start: 0,
                resume_key: at.fresh_key,
            },
        };
        let (lost, requestors) = (self.wanted.clone(), going.requestors.clone());
        let repair = Repair { lost, requestors, method: self.order.method };
        let slow: Vec<NodeId> = self.slow.iter().chain(at.slow).copied().collect();
        let mut assign = |excluded: &[BlockIndex]| recovery.assign(&view, at.topology, &repair, excluded);
        let spared = slow::without(&view, &slow, |_, excluded| match assign(excluded) {
            Err(PlanError::Unrecoverable { .. }) => None,
            planned => Some(planned),
        });
        let plan = spared.unwrap_or_else(|| assign(&[]))?;
        self.attempts += 1;
        self.touched.extend(going.requestors.iter().copied().zip(self.wanted.iter().copied()));
        let (start, resume_key) = (going.start, going.resume_key);
        self.going = Some(going);
        Ok(Attempt { view, plan, start, resume_key })
    }

    /// The longest beginning of `suspects` (likeliest first, helpers only) that the rest of an attempt could
    /// do without; may be empty.
    pub fn could_spare(&self, attempt: &Attempt, suspects: &[NodeId], topology: &Topology) -> Vec<NodeId> {
        if self.turns >= TURNS {
            return Vec::new();
        }
        let helpers = attempt.helpers();
        let slow: Vec<_> = suspects.iter().copied().filter(|node| helpers.contains(node)).collect();
        let (lost, requestors) = (self.wanted.clone(), attempt.plan.requestors.clone());
        let repair = Repair { lost, requestors, method: self.order.method };
        let before = slow::held(&attempt.view, &self.slow);
        let spared = slow::without(&attempt.view, &slow, |count, blocks| {
            let others = before.iter().filter(|block| !blocks.contains(block));
            let excluded: Vec<_> = blocks.iter().chain(others).copied().collect();
            let planned = kintsu_plan::repair(&attempt.view, topology, &repair, &|_| 0, &excluded);
            planned.is_ok().then(|| slow[..count].to_vec())
        });
        spared.unwrap_or_default()
    }

    /// The attempt under way is ended because these nodes are slow; [`StripeRepair::ended`] follows.
    pub fn turn(&mut self, slow: &[NodeId], upto: u64, why: &str) {
        self.turns += 1;
        for &node in slow.iter().rev() {
            self.slow.retain(|known| *known != node);
            self.slow.insert(0, node);
        }
        self.around.extend(slow.iter().map(|node| GoneAround {
            stripe: self.stripe.id,
            node: *node,
            upto,
            why: why.to_owned(),
        }));
    }

    /// The attempt has ended, with a fault or without. All requestors have finished up to byte `upto`.
    pub fn ended(&mut self, outcomes: &[RunOutcome], upto: u64, fault: Option<&Fault>) -> Verdict {
        let Some(going) = self.going.clone() else {
            return Verdict::Failed(format!("{}: an attempt ended that was not planned", self.stripe.id));
        };
        match (self.landings(&going, outcomes), fault) {
            (Ok(landings), _) if landings.len() == self.wanted.len() => Verdict::Done(landings),
            (Err(wrong), _) => self.differs(wrong),
            (Ok(_), Some(fault)) => self.blame(&going, upto, fault),
            (Ok(landings), None) => {
                let (have, want) = (landings.len(), self.wanted.len());
                self.differs(format!("expected {want} durable blocks, got {have} and no fault"))
            }
        }
    }

    /// Nobody may write to a place of the planned attempt now: as if its node had stalled.
    pub fn barred(&mut self, (node, id): Place, start: u64) -> (Fault, Verdict) {
        let detail = format!("it still deletes an earlier file of {id}, or is being wiped or drained");
        let fault = Fault { kind: FaultKind::Stalled, node, block: None, detail };
        let verdict = self.ended(&[], start, Some(&fault));
        (fault, verdict)
    }

    /// The stripe with the homes of those blocks that can be read. The wanted blocks have no home.
    fn view(&self, readable: &dyn Fn(NodeId) -> bool) -> StripeView {
        self.stripe.view(|index, block| {
            let shunned = self.shunned_blocks.contains(&index) || self.shunned_nodes.contains(&block.node);
            let made = block.digest.is_some() && !block.lost && !self.wanted.contains(&index);
            made && !shunned && readable(block.node)
        })
    }

    /// Whether a node may get a block of this stripe: it is usable, is not shunned, keeps no other block of
    /// the stripe, and has none to delete.
    fn may_write(&self, node: NodeId, at: Circumstances<'_>) -> bool {
        let usable = at.topology.nodes.get(&node).is_some_and(|n| n.usable);
        usable
            && !self.shunned_nodes.contains(&node)
            && !at.sweeping.contains(&node)
            && !self.made().any(|(index, block)| block.node == node && !self.wanted.contains(&index))
    }

    fn requestors(
        &self,
        view: &StripeView,
        at: Circumstances<'_>,
        recovery: &Recovery,
    ) -> Result<Vec<NodeId>, PlanError> {
        let mut topology = at.topology.clone();
        for (id, node) in &mut topology.nodes {
            node.usable = self.may_write(*id, at);
        }
        let mut view = view.clone();
        if self.order.in_place {
            for &index in &self.wanted {
                let home = self.stripe.record.blocks[usize::from(index.0)].map(|b| b.node);
                view.homes[usize::from(index.0)] = home.filter(|node| self.may_write(*node, at));
            }
        }
        let place = |b: &BlockIndex| view.homes[usize::from(b.0)];
        let rest: Vec<_> = self.wanted.iter().copied().filter(|b| place(b).is_none()).collect();
        let mut chosen = recovery.requestors(&view, &topology, &rest)?.into_iter();
        let all: Option<Vec<_>> = self.wanted.iter().map(|b| place(b).or_else(|| chosen.next())).collect();
        all.ok_or_else(|| PlanError::Placement {
            expected: format!("{} requestors for {}", self.wanted.len(), self.stripe.id),
            got: "fewer".into(),
        })
    }

    /// The reason why there is no plan. If the blocks are beyond repair, that matters more than a lack of
    /// nodes.
    fn deeper(&self, view: &StripeView, error: PlanError) -> PlanError {
        match read(view, &self.wanted, &[]) {
            Err(beyond @ PlanError::Unrecoverable { .. }) => beyond,
            _ => error,
        }
    }

    /// The wanted blocks that are durable as recorded. `Err` describes one that differs from its record.
    fn landings(&self, going: &Going, outcomes: &[RunOutcome]) -> Result<Vec<Landing>, String> {
        let mut out = Vec::new();
        for (&index, &to) in self.wanted.iter().zip(&going.requestors) {
            let id = BlockId { stripe: self.stripe.id, index };
            let Some(recorded) = self.stripe.record.blocks[usize::from(index.0)] else { continue };
            let mut written = outcomes.iter().filter(|o| o.node == to).flat_map(|o| &o.written);
            let Some(held) = written.rfind(|h| h.id == id) else { continue };
            let len = self.stripe.block_len(index);
            // A block that was not found when the metadata were rebuilt has no recorded digest: any digest is
            // accepted.
            let unknown = recorded.digest == Some(DIGEST_UNKNOWN);
            let as_recorded = unknown || Some(held.digest) == recorded.digest;
            let same = as_recorded && held.generation == recorded.generation;
            if !same || held.len != len {
                return Err(format!(
                    "{id} on {to}: expected {len} bytes of generation {} as recorded, got {} bytes of \
                     generation {} with another digest or length",
                    recorded.generation, held.len, held.generation
                ));
            }
            let (from, generation) = (recorded.node, held.generation);
            out.push(Landing { index, from, to, generation, digest: held.digest });
        }
        Ok(out)
    }

    /// Decides what follows from a fault.
    fn blame(&mut self, going: &Going, upto: u64, fault: &Fault) -> Verdict {
        use FaultKind::{Aborted, Corrupt, Io, Mismatch, Missing, Stale};
        if self.attempts > self.stripe.record.blocks.len() + ATTEMPTS_BEYOND_NODES {
            return Verdict::Failed(format!(
                "{}: gave up after {} attempts: {fault}",
                self.stripe.id, self.attempts
            ));
        }
        let upto = upto.max(going.start);
        let whole = self.stripe.longest();
        let mut go_on = upto < whole;
        match (fault.kind, fault.block) {
            (Mismatch, _) => return self.differs(fault.to_string()),
            (Aborted, _) => {}
            (Corrupt | Missing | Stale, Some(block)) if block.stripe == self.stripe.id => {
                // The rotten block may be the unfinished one of a requestor. Then the repair starts over.
                go_on &= !self.wanted.contains(&block.index);
                self.spoil(block, fault);
            }
            // The disk cannot read this block; other blocks of the node may be sound.
            (Io, Some(block)) if self.is_home(block, fault.node) => self.spoil(block, fault),
            (kind, _) => {
                go_on &= !going.requestors.contains(&fault.node);
                self.shunned_nodes.insert(fault.node);
                if kind.is_silence() {
                    self.cut_off.insert(fault.node);
                }
            }
        }
        if fault.kind != Aborted {
            let (stripe, node, why) = (self.stripe.id, fault.node, fault.to_string());
            self.around.push(GoneAround { stripe, node, upto, why });
        }
        self.going = go_on.then(|| Going { start: upto, ..going.clone() });
        Verdict::Again
    }

    /// Whether this node is the home of the block, and the block belongs to this stripe and is not being
    /// repaired.
    fn is_home(&self, id: BlockId, node: NodeId) -> bool {
        let recorded = self.stripe.record.blocks.get(usize::from(id.index.0)).copied().flatten();
        let made = recorded.is_some_and(|b| b.node == node && b.digest.is_some());
        id.stripe == self.stripe.id && made && !self.wanted.contains(&id.index)
    }

    /// A helper's block is bad. It is not used again, and it is reported if the helper is its home.
    fn spoil(&mut self, id: BlockId, fault: &Fault) {
        let at_home = |b: &BlockRecord| b.node == fault.node && !b.lost;
        let recorded = self.stripe.record.blocks.get(usize::from(id.index.0)).copied().flatten();
        if recorded.as_ref().is_some_and(at_home) && !self.wanted.contains(&id.index) {
            self.shunned_blocks.insert(id.index);
            self.bad.push(LostBlock { id, node: fault.node, why: fault.kind });
        } else if !self.wanted.contains(&id.index) {
            self.shunned_nodes.insert(fault.node);
        }
    }

    /// The result differs from the record: the block of some helper is wrong in a way that its own checksums
    /// do not show. The repair starts over.
    fn differs(&mut self, what: String) -> Verdict {
        self.going = None;
        self.mismatches += 1;
        if self.mismatches >= MISMATCHES {
            return Verdict::Failed(format!(
                "{}: gave up after {MISMATCHES} wrong results: {what}",
                self.stripe.id
            ));
        }
        Verdict::Again
    }

    fn made(&self) -> impl Iterator<Item = (BlockIndex, &BlockRecord)> {
        self.stripe.record.made()
    }
}

/// The home of a block.
fn home(view: &StripeView, block: BlockIndex) -> Option<NodeId> {
    view.homes.get(usize::from(block.0)).copied().flatten()
}

#[cfg(test)]
mod tests;
