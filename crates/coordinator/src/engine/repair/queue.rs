//! Decides which stripes are repaired, for which jobs, and how many at once: a pure state machine.
//!
//! A *job* is one request for repairs: a user's call, a dead node, a rotten block. It
//! names its stripes page by page, so that a node with a million blocks costs no memory here. A stripe is
//! repaired by one worker at a time. Jobs that want the same stripe share the work, and each job is told what
//! became of its own blocks.
//!
//! The stripe that bears the fewest further losses goes first, whichever job wants it and whichever nodes are gone;
//! among equals the stripes of urgent jobs, then those that came first. A stripe starts when the links that it loads
//! have room for more ([`Flight`]). Until then later stripes may overtake it, but only a limited number of times: more
//! often, the more losses it bears. Stripes of jobs whose method works in phases are held until their phase begins
//! (`phased`).
//!
//! Invariants: at most `limit` stripes run; no link is given more while it has enough to carry; where an order says
//! how many stripes a node takes part in, no node takes part in more; a stripe runs once at a time; every want of a
//! job is reported to it exactly once; a job is finished exactly once, after its last page and its last want.

mod phased;
mod shown;

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::Rates;
use kintsu_plan::traffic::Loads;
use kintsu_wire::message::{BadBlock, GoneAround};

use super::flight::{self, Flight, LinkLoads};
use super::{Order, Tally};

/// Pages are fetched while a job has fewer open stripes than this: enough to choose from when links become free.
const OPEN_STRIPES: usize = 768;
/// Most failures, and most avoided nodes, that a job reports one by one; further failures are only counted.
const TOLD: usize = 100;
/// How many waiting stripes are searched for one whose links have room.
const LOOK_AHEAD: usize = 64;
/// How many stripes may overtake one that bears no further loss, and how many times as many for each loss that it
/// bears.
const PATIENCE: u64 = 64;
/// How often a stripe is repaired again, behind all that bear as few losses, because nodes were silent.
const AGAIN: u32 = 3;
/// What a stripe has in flight is counted again after each such part of its blocks.
const STEPS: u64 = 8;

/// The id of a repair job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepairJobId(pub u64);

/// Blocks of one stripe that a job wants repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Which stripe.
    pub stripe: StripeId,
    /// Which blocks of it.
    pub blocks: Vec<BlockIndex>,
    /// Their total length.
    pub bytes: u64,
    /// How many more losses the stripe bears for sure.
    pub bears: u64,
    /// The nodes that will take part in it, as far as that is known.
    pub nodes: BTreeSet<NodeId>,
    /// What it will put on each link, as far as that is known.
    pub loads: LinkLoads,
    /// It was planned, and is for a later phase.
    pub is_later: bool,
}

/// How the work on a stripe ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The blocks that were repaired.
    pub repaired: Vec<BlockIndex>,
    /// What it cost.
    pub tally: Tally,
    /// Why some blocks could not be repaired.
    pub failed: Option<String>,
    /// It failed because nodes were silent, which may live: links may carry too much.
    pub cut_off: bool,
    /// Blocks that turned out bad on the way.
    pub bad: Vec<BadBlock>,
    /// The nodes that were avoided, with the reasons.
    pub around: Vec<GoneAround>,
}

impl Outcome {
    /// Adds what a later repair of the same stripe did; why blocks could not be repaired stays as it is.
    pub fn add(&mut self, later: Self) {
        self.repaired.extend(later.repaired);
        self.tally.add(&later.tally);
        self.bad.extend(later.bad);
        self.around.extend(later.around);
    }
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Fetch the next page of this job and answer with [`Queue::page`].
    Fetch(RepairJobId),
    /// Plan the next phase of this job, of [`Queue::not_begun`], and answer with [`Queue::phase`].
    Plan(RepairJobId),
    /// Repair these blocks of this stripe and answer with [`Queue::ended`].
    Start(StripeId, Vec<BlockIndex>, Order),
    /// Report the progress of this job: bytes done, bytes known.
    Progress(RepairJobId, u64, u64),
    /// Report the end of this job.
    Finish(RepairJobId, RepairResult),
}

/// The result of a repair job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepairResult {
    /// How the repairs were to be done.
    pub order: Order,
    /// What it cost.
    pub tally: Tally,
    /// What could not be done, with the reason.
    pub failed: Vec<String>,
    /// Blocks that turned out bad on the way.
    pub bad: Vec<BadBlock>,
    /// The nodes that were avoided, with the reasons.
    pub around: Vec<GoneAround>,
    /// It was cancelled.
    pub cancelled: bool,
}

#[derive(Debug)]
struct RepairJob {
    result: RepairResult,
    urgent: bool,
    paused: bool,
    fetching: bool,
    last_page: bool,
    open: usize,
    untold: u64,
    done_bytes: u64,
    total_bytes: u64,
    /// If its stripes begin phase by phase.
    phase: Option<phased::Phase>,
}

/// The blocks that each ask waits for, and their bytes.
type Watchers = BTreeMap<RepairJobId, (BTreeSet<BlockIndex>, u64)>;

#[derive(Debug)]
struct Entry {
    order: Order,
    watchers: Watchers,
    /// Those that came after the work began. Blocks that were flagged since may have been repaired before that, so the
    /// end of this work says nothing about them.
    late: Watchers,
    running: bool,
    /// It is not yet its phase.
    held: bool,
    nodes: BTreeSet<NodeId>,
    loads: LinkLoads,
    /// What of the loads is in flight.
    in_flight: LinkLoads,
    rank: Rank,
    /// It lets no other pass once so many stripes have been started.
    due: u64,
    /// How often it was repaired in vain because nodes were silent.
    again: u32,
}

/// The order of waiting stripes: further losses that it bears, not urgent, number of arrival.
type Rank = (u64, bool, u64);

/// The queue.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    running: usize,
    /// How many running stripes each node takes part in.
    parts: BTreeMap<NodeId, u32>,
    flight: Flight,
    next: u64,
    arrived: u64,
    started: u64,
    jobs: BTreeMap<RepairJobId, RepairJob>,
    entries: BTreeMap<StripeId, Entry>,
    waiting: BTreeMap<Rank, StripeId>,
    /// The same stripes by [`Entry::due`] and arrival.
    due: BTreeMap<(u64, u64), StripeId>,
}

impl Queue {
    /// A queue that runs at most `limit` stripes at once. A link always takes `share` of them.
    pub fn new(limit: usize, share: u64) -> Self {
        Self {
            limit: limit.max(1),
            running: 0,
            parts: BTreeMap::new(),
            flight: Flight::new(share),
            next: 1,
            arrived: 0,
            started: 0,
            jobs: BTreeMap::new(),
            entries: BTreeMap::new(),
            waiting: BTreeMap::new(),
            due: BTreeMap::new(),
        }
    }

    /// From now on the links have these rates.
    pub fn know(&mut self, rates: Rates) {
        self.flight.know(rates);
    }

    /// Adds a job. The stripes of an urgent one go before others that bear as many losses, and wait for no phase.
    pub fn add(&mut self, order: Order, urgent: bool) -> (RepairJobId, Vec<Command>) {
        let id = RepairJobId(self.next);
        self.next += 1;
        let phase = (!urgent && order.in_phases()).then(Default::default);
        let result = RepairResult {
            order,
            tally: Tally::default(),
            failed: Vec::new(),
            bad: Vec::new(),
            around: Vec::new(),
            cancelled: false,
        };
        let job = RepairJob {
            result,
            urgent,
            paused: false,
            fetching: true,
            last_page: false,
            open: 0,
            untold: 0,
            done_bytes: 0,
            total_bytes: 0,
            phase,
        };
        self.jobs.insert(id, job);
        (id, vec![Command::Fetch(id)])
    }

    /// A page of a job has come; `last` says that there are no more.
    pub fn page(&mut self, id: RepairJobId, wants: Vec<Want>, last: bool) -> Vec<Command> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        let cancelled = job.result.cancelled;
        (job.fetching, job.last_page) = (false, last || cancelled);
        let (order, urgent, in_phases) = (job.result.order.clone(), job.urgent, job.phase.is_some());
        for want in wants.into_iter().filter(|w| !w.blocks.is_empty() && !cancelled) {
            let (stripe, blocks, bytes) = (want.stripe, want.blocks.clone(), want.bytes);
            self.enter(want, &order, urgent, in_phases);
            let known = self.jobs.get_mut(&id).zip(self.entries.get_mut(&stripe));
            let Some((job, entry)) = known else { continue };
            job.total_bytes += bytes;
            let watchers = if entry.running { &mut entry.late } else { &mut entry.watchers };
            let watched = watchers.entry(id).or_insert_with(|| {
                job.open += 1;
                Default::default()
            });
            watched.0.extend(blocks);
            watched.1 += bytes;
            entry.order = order.clone();
            if !entry.running {
                self.wait(stripe);
            }
        }
        let mut commands = self.settle(id);
        commands.extend(self.new_page(id));
        commands
    }

    /// A stripe is wanted: it waits, unless it does or runs already. It is held if nobody wants it before its phase.
    fn enter(&mut self, want: Want, order: &Order, urgent: bool, held: bool) {
        if let Some(entry) = self.entries.get_mut(&want.stripe) {
            // It may have lost more since, or somebody is in a hurry now.
            let (bears, patient, arrival) = entry.rank;
            let rank = (bears.min(want.bears), patient && !urgent, arrival);
            if self.waiting.remove(&entry.rank).is_some() {
                self.waiting.insert(rank, want.stripe);
            }
            entry.rank = rank;
            entry.held &= held;
            return;
        }
        self.arrived += 1;
        let entry = Entry {
            order: order.clone(),
            watchers: BTreeMap::new(),
            late: BTreeMap::new(),
            running: false,
            held,
            nodes: want.nodes,
            loads: want.loads,
            in_flight: Vec::new(),
            rank: (want.bears, !urgent, self.arrived),
            due: self.due_after(want.bears),
            again: 0,
        };
        self.entries.insert(want.stripe, entry);
        self.wait(want.stripe);
    }

    /// When a stripe that comes now and bears so many losses lets no other pass.
    fn due_after(&self, bears: u64) -> u64 {
        let patience = PATIENCE.saturating_mul(bears.saturating_mul(PATIENCE).saturating_add(1));
        (self.started + self.waiting.len() as u64).saturating_add(patience)
    }

    /// A job is to end early: it gets no more pages, and its stripes that have not begun are dropped. Those under
    /// repair are finished. Returns the stripes that no job wants any more, and what the driver is to do.
    pub fn cancel(&mut self, id: RepairJobId) -> (Vec<StripeId>, Vec<Command>) {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.result.cancelled) else {
            return Default::default();
        };
        let (mut dropped, mut unwanted) = (0, Vec::new());
        for (stripe, entry) in &mut self.entries {
            let watchers = if entry.running { &mut entry.late } else { &mut entry.watchers };
            dropped += usize::from(watchers.remove(&id).is_some());
            if !entry.running && entry.watchers.is_empty() {
                unwanted.push(*stripe);
            }
        }
        for stripe in &unwanted {
            if let Some(entry) = self.entries.remove(stripe) {
                self.waiting.remove(&entry.rank);
                self.due.remove(&(entry.due, entry.rank.2));
            }
        }
        job.open -= dropped;
        let more = if job.last_page { "" } else { " and all later ones" };
        (job.result.cancelled, job.last_page) = (true, true);
        if dropped > 0 || !more.is_empty() {
            job.result.failed.push(format!("cancelled: {dropped} stripes{more} were not repaired"));
        }
        (unwanted, self.settle(id))
    }

    /// A job is to begin no stripe until it is resumed, except those that another job wants too.
    pub fn pause(&mut self, id: RepairJobId, paused: bool) -> Vec<Command> {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.paused = paused;
        }
        let wanted = |(_, entry): &(&StripeId, &Entry)| !entry.running && entry.watchers.contains_key(&id);
        let stripes: Vec<StripeId> = self.entries.iter().filter(wanted).map(|(stripe, _)| *stripe).collect();
        stripes.into_iter().for_each(|stripe| self.wait(stripe));
        let mut commands = self.settle(id);
        commands.extend(self.resume_phases(id));
        commands
    }

    /// The work on a stripe has ended.
    pub fn ended(&mut self, stripe: StripeId, outcome: &Outcome) -> Vec<Command> {
        if !self.entries.get(&stripe).is_some_and(|entry| entry.running) {
            return Vec::new();
        }
        let Some(entry) = self.entries.remove(&stripe) else { return Vec::new() };
        self.running -= 1;
        self.flight.remove(&entry.in_flight);
        for node in &entry.nodes {
            self.parts.entry(*node).and_modify(|parts| *parts -= 1);
        }
        self.parts.retain(|_, parts| *parts > 0);
        if self.may_do_again(&entry, outcome) {
            self.again(stripe, entry, outcome);
            return self.start();
        }
        let mut commands = Vec::new();
        for (id, (blocks, bytes)) in &entry.watchers {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            job.hear(blocks, *bytes, outcome);
            commands.push(Command::Progress(*id, job.done_bytes, job.total_bytes));
        }
        let Entry { watchers, late, .. } = entry;
        if !late.is_empty() {
            let (late, in_flight) = ((late, BTreeMap::new()), Vec::new());
            let late = Entry { watchers: late.0, late: late.1, running: false, in_flight, ..entry };
            self.entries.insert(stripe, late);
            self.wait(stripe);
        }
        for id in watchers.into_keys() {
            commands.extend(self.settle(id));
            commands.extend(self.end_in_phase(id, stripe));
        }
        commands.extend(self.start());
        commands
    }

    fn may_do_again(&self, entry: &Entry, outcome: &Outcome) -> bool {
        let wanted = |id| self.jobs.get(id).is_some_and(|job: &RepairJob| !job.result.cancelled);
        let in_vain = outcome.cut_off && outcome.failed.is_some() && outcome.repaired.is_empty();
        in_vain && entry.again < AGAIN && entry.late.is_empty() && entry.watchers.keys().all(wanted)
    }

    /// Has a stripe wait once more, behind the others.
    fn again(&mut self, stripe: StripeId, entry: Entry, outcome: &Outcome) {
        for id in entry.watchers.keys() {
            if let Some(job) = self.jobs.get_mut(id) {
                job.pay(0, outcome);
            }
        }
        self.arrived += 1;
        let (bears, patient, _) = entry.rank;
        let (rank, due) = ((bears, patient, self.arrived), self.due_after(bears));
        let in_flight = Vec::new();
        let entry = Entry { running: false, in_flight, rank, due, again: entry.again + 1, ..entry };
        self.entries.insert(stripe, entry);
        self.wait(stripe);
    }

    /// A running stripe has reached byte `upto` of its `whole` bytes: it has less in flight now.
    pub fn reached(&mut self, stripe: StripeId, upto: u64, whole: u64) -> Vec<Command> {
        let Some(entry) = self.entries.get_mut(&stripe).filter(|entry| entry.running) else {
            return Vec::new();
        };
        let step = whole.div_ceil(STEPS).max(1);
        let rest = flight::left(&entry.loads, upto / step * step, whole);
        if rest == entry.in_flight {
            return Vec::new();
        }
        self.flight.remove(&entry.in_flight);
        self.flight.add(&rest);
        entry.in_flight = rest;
        self.start()
    }

    /// Blocks waiting for or under repair.
    pub fn pending(&self) -> u64 {
        let blocks = |entry: &Entry| {
            let watchers = entry.watchers.values().chain(entry.late.values());
            watchers.flat_map(|(blocks, _)| blocks).collect::<BTreeSet<_>>().len() as u64
        };
        self.entries.values().map(blocks).sum()
    }

    /// The jobs that wait for a stripe, each with its bytes done and bytes known.
    pub fn standing(&self, stripe: StripeId) -> Vec<(RepairJobId, u64, u64)> {
        let entry = self.entries.get(&stripe).into_iter();
        let watchers = entry.flat_map(|entry| entry.watchers.keys().chain(entry.late.keys()));
        let known = watchers.filter_map(|id| Some((*id, self.jobs.get(id)?)));
        known.map(|(id, job)| (id, job.done_bytes, job.total_bytes)).collect()
    }

    /// The stripes of a job that wait, most urgent first, with the blocks that are wanted.
    pub fn waiting(&self, id: RepairJobId) -> Vec<(StripeId, Vec<BlockIndex>)> {
        let wanted = |stripe: &StripeId| {
            let (blocks, _) = self.entries.get(stripe)?.watchers.get(&id)?;
            Some((*stripe, blocks.iter().copied().collect()))
        };
        self.waiting.values().filter_map(wanted).collect()
    }

    /// Stripes were planned again, in the order in which they should begin. Those that still wait take the new plans,
    /// and their places in the line among each other.
    pub fn planned_again(&mut self, wants: Vec<Want>) -> Vec<Command> {
        let waits = |queue: &Self, want: &Want| queue.entries.get(&want.stripe).is_some_and(|e| !e.running);
        let wants: Vec<Want> = wants.into_iter().filter(|want| waits(self, want)).collect();
        let mut arrivals: Vec<(u64, u64)> = Vec::with_capacity(wants.len());
        for want in &wants {
            if let Some(entry) = self.entries.get(&want.stripe) {
                arrivals.push((entry.rank.2, entry.due));
                self.waiting.remove(&entry.rank);
                self.due.remove(&(entry.due, entry.rank.2));
            }
        }
        arrivals.sort_unstable();
        for (want, (arrival, due)) in wants.into_iter().zip(arrivals) {
            if let Some(entry) = self.entries.get_mut(&want.stripe) {
                (entry.rank.2, entry.due) = (arrival, due);
                (entry.nodes, entry.loads) = (want.nodes, want.loads);
            }
            self.wait(want.stripe);
        }
        self.start()
    }

    /// What links and disks still have to carry: for the stripes under repair, and for those that wait for their turn except
    /// `these`.
    pub fn underway(&self, these: &BTreeSet<StripeId>) -> LinkLoads {
        let mut left = Loads::default();
        for (stripe, entry) in &self.entries {
            let loads = match entry.running {
                true => &entry.in_flight,
                // What only paused jobs want has no turn.
                false if these.contains(stripe) || !self.waiting.contains_key(&entry.rank) => continue,
                false => &entry.loads,
            };
            left.extend(loads.iter().copied());
        }
        left.iter().filter(|(_, bytes)| *bytes > 0).collect()
    }

    /// Whether a stripe waits for or is under repair.
    pub fn has(&self, stripe: StripeId) -> bool {
        self.entries.contains_key(&stripe)
    }

    /// What a job has done and knows of, in bytes; `None` for one that has ended.
    pub fn progress(&self, id: RepairJobId) -> Option<(u64, u64)> {
        self.jobs.get(&id).map(|job| (job.done_bytes, job.total_bytes))
    }

    /// Number of jobs under way.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// What a job needs next: a page, its end, or workers.
    fn settle(&mut self, id: RepairJobId) -> Vec<Command> {
        let mut commands = self.start();
        let Some(job) = self.jobs.get_mut(&id) else { return commands };
        if !job.paused && !job.fetching && !job.last_page && job.open < OPEN_STRIPES {
            job.fetching = true;
            commands.push(Command::Fetch(id));
        }
        if job.last_page && job.open == 0 && !job.fetching {
            let job = self.jobs.remove(&id).expect("it was just found");
            commands.push(Command::Finish(id, job.told()));
        }
        commands
    }

    fn start(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        while let Some(stripe) = self.free() {
            commands.extend(self.begin(stripe));
        }
        commands
    }

    /// The next stripe that may run now.
    fn free(&self) -> Option<StripeId> {
        if self.running >= self.limit {
            return None;
        }
        let is_free = |stripe: &&StripeId| self.entries.get(*stripe).is_some_and(|entry| self.is_free(entry));
        match self.due.first_key_value() {
            // Nothing passes it any more, so the links that it needs will have room.
            Some(((due, _), stripe)) if *due <= self.started => Some(stripe).filter(is_free).copied(),
            _ => self.waiting.values().take(LOOK_AHEAD).find(is_free).copied(),
        }
    }

    /// Whether the links of this stripe have room for it; or, if its order says how many repairs a node takes part in
    /// at once, whether its nodes take part in fewer.
    fn is_free(&self, entry: &Entry) -> bool {
        match entry.order.per_node {
            0 => self.flight.has_room(&entry.loads),
            most => entry.nodes.iter().all(|node| self.parts.get(node).is_none_or(|parts| *parts < most)),
        }
    }

    /// A stripe waits for its turn; if only paused jobs want it, or it is held, it has none.
    fn wait(&mut self, stripe: StripeId) {
        let Some(entry) = self.entries.get(&stripe) else { return };
        let paused = |id| self.jobs.get(id).is_some_and(|job| job.paused);
        let due = (entry.due, entry.rank.2);
        if !entry.held && (entry.watchers.is_empty() || !entry.watchers.keys().all(paused)) {
            self.waiting.insert(entry.rank, stripe);
            self.due.insert(due, stripe);
        } else {
            self.waiting.remove(&entry.rank);
            self.due.remove(&due);
        }
    }

    fn begin(&mut self, stripe: StripeId) -> Option<Command> {
        let entry = self.entries.get_mut(&stripe)?;
        self.waiting.remove(&entry.rank);
        self.due.remove(&(entry.due, entry.rank.2));
        let blocks: BTreeSet<_> = entry.watchers.values().flat_map(|(blocks, _)| blocks).copied().collect();
        entry.running = true;
        entry.in_flight = entry.loads.clone();
        self.flight.add(&entry.in_flight);
        entry.nodes.iter().for_each(|node| *self.parts.entry(*node).or_default() += 1);
        self.running += 1;
        self.started += 1;
        Some(Command::Start(stripe, blocks.into_iter().collect(), entry.order.clone()))
    }
}

impl RepairJob {
    fn hear(&mut self, blocks: &BTreeSet<BlockIndex>, bytes: u64, outcome: &Outcome) {
        self.open -= 1;
        self.done_bytes += bytes;
        self.pay(outcome.repaired.iter().filter(|b| blocks.contains(b)).count() as u64, outcome);
        match &outcome.failed {
            Some(reason) if self.result.failed.len() < TOLD => self.result.failed.push(reason.clone()),
            Some(_) => self.untold += 1,
            None => {}
        }
    }

    /// What the work on a stripe cost and found; so many blocks of this job were repaired.
    fn pay(&mut self, blocks: u64, outcome: &Outcome) {
        self.result.tally.add(&Tally { blocks, ..outcome.tally.clone() });
        self.result.bad.extend(outcome.bad.iter().cloned());
        let room = TOLD.saturating_sub(self.result.around.len());
        self.result.around.extend(outcome.around.iter().take(room).cloned());
    }

    fn told(mut self) -> RepairResult {
        if self.untold > 0 {
            self.result.failed.push(format!("and {} more stripes", self.untold));
        }
        self.result
    }
}

#[cfg(test)]
mod tests;
