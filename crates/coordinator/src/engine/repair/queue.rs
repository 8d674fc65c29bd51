//! Decides which stripes are repaired, for which jobs, and how many at once: a pure state machine.
//!
//! A *job* is one request for repairs: a user's call, a dead node, a rotten block. It
//! names its stripes page by page, so that a node with a million blocks costs no memory here. A stripe is
//! repaired by one worker at a time. Jobs that want the same stripe share the work, and each job is told what
//! became of its own blocks.
//!
//! A node takes part in a few stripes at once, as helper or requestor: enough to keep its links full, and not
//! so many that they wait for each other. While a stripe waits for its nodes, later stripes may overtake it,
//! but only a limited number of times.
//!
//! Invariants: at most `limit` stripes run ([`TOGETHER`] times as many if they were planned together); no
//! node takes part in more of them than their orders allow; a stripe runs once at a time; every want of a job
//! is reported to it exactly once; a job is finished exactly once, after its last page and its last want.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_wire::message::{BadBlock, GoneAround};

use super::{Order, Tally};

/// Pages are fetched while a job has fewer open stripes than this.
const OPEN_STRIPES: usize = 64;
/// If the trees of stripes were planned together, this many times more stripes are open, and run at once,
/// both in total and per node on average. Then many stripes share each link, so all links are loaded alike,
/// and no stripe waits for the nodes of another one.
const TOGETHER: usize = 12;
/// Most failures, and most avoided nodes, that a job reports one by one; further failures are only counted.
const TOLD: usize = 100;
/// How many waiting stripes are searched for one whose nodes are free.
const LOOK_AHEAD: usize = 64;
/// How many later stripes may overtake a waiting one.
const PATIENCE: u32 = 64;

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
    /// The nodes that will take part in it, as far as that is known.
    pub nodes: BTreeSet<NodeId>,
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
    /// Blocks that turned out bad on the way.
    pub bad: Vec<BadBlock>,
    /// The nodes that were avoided, with the reasons.
    pub around: Vec<GoneAround>,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Fetch the next page of this job and answer with [`Queue::page`].
    Fetch(RepairJobId),
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
    fetching: bool,
    last_page: bool,
    open: usize,
    untold: u64,
    done_bytes: u64,
    total_bytes: u64,
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
    nodes: BTreeSet<NodeId>,
    overtaken: u32,
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    per_node: u32,
    running: usize,
    load: BTreeMap<NodeId, u32>,
    /// The sum of `load`.
    parts: usize,
    next: u64,
    jobs: BTreeMap<RepairJobId, RepairJob>,
    entries: BTreeMap<StripeId, Entry>,
    waiting: VecDeque<StripeId>,
}

impl Queue {
    /// A queue that runs at most `limit` stripes at once. A node takes part in at most `per_node` of them,
    /// unless the order says otherwise.
    pub fn new(limit: usize, per_node: u32) -> Self {
        Self {
            limit: limit.max(1),
            per_node: per_node.max(1),
            running: 0,
            load: BTreeMap::new(),
            parts: 0,
            next: 1,
            jobs: BTreeMap::new(),
            entries: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Adds a job. The stripes of an urgent one go before all others.
    pub fn add(&mut self, order: Order, urgent: bool) -> (RepairJobId, Vec<Command>) {
        let id = RepairJobId(self.next);
        self.next += 1;
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
            fetching: true,
            last_page: false,
            open: 0,
            untold: 0,
            done_bytes: 0,
            total_bytes: 0,
        };
        self.jobs.insert(id, job);
        (id, vec![Command::Fetch(id)])
    }

    /// A page of a job has come; `last` says that there are no more.
    pub fn page(&mut self, id: RepairJobId, wants: Vec<Want>, last: bool) -> Vec<Command> {
        let Some(job) = self.jobs.get_mut(&id) else { return Vec::new() };
        let cancelled = job.result.cancelled;
        (job.fetching, job.last_page) = (false, last || cancelled);
        for want in wants.into_iter().filter(|w| !w.blocks.is_empty() && !cancelled) {
            job.total_bytes += want.bytes;
            let order = job.result.order.clone();
            let entry = self.entries.entry(want.stripe).or_insert_with(|| {
                let put = if job.urgent { VecDeque::push_front } else { VecDeque::push_back };
                put(&mut self.waiting, want.stripe);
                Entry {
                    order: order.clone(),
                    watchers: BTreeMap::new(),
                    late: BTreeMap::new(),
                    running: false,
                    nodes: want.nodes,
                    overtaken: 0,
                }
            });
            let watchers = if entry.running { &mut entry.late } else { &mut entry.watchers };
            let (blocks, bytes) = watchers.entry(id).or_insert_with(|| {
                job.open += 1;
                Default::default()
            });
            blocks.extend(want.blocks);
            *bytes += want.bytes;
            entry.order = order;
        }
        self.settle(id)
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
        unwanted.iter().for_each(|stripe| drop(self.entries.remove(stripe)));
        self.waiting.retain(|stripe| self.entries.contains_key(stripe));
        job.open -= dropped;
        let more = if job.last_page { "" } else { " and all later ones" };
        (job.result.cancelled, job.last_page) = (true, true);
        if dropped > 0 || !more.is_empty() {
            job.result.failed.push(format!("cancelled: {dropped} stripes{more} were not repaired"));
        }
        (unwanted, self.settle(id))
    }

    /// The work on a stripe has ended.
    pub fn ended(&mut self, stripe: StripeId, outcome: &Outcome) -> Vec<Command> {
        if !self.entries.get(&stripe).is_some_and(|entry| entry.running) {
            return Vec::new();
        }
        let Some(entry) = self.entries.remove(&stripe) else { return Vec::new() };
        self.running -= 1;
        self.parts -= entry.nodes.len();
        for node in &entry.nodes {
            if let Some(load) = self.load.get_mut(node) {
                *load = load.saturating_sub(1);
            }
        }
        self.load.retain(|_, load| *load > 0);
        let mut commands = Vec::new();
        for (id, (blocks, bytes)) in &entry.watchers {
            let Some(job) = self.jobs.get_mut(id) else { continue };
            job.hear(blocks, *bytes, outcome);
            commands.push(Command::Progress(*id, job.done_bytes, job.total_bytes));
        }
        let Entry { watchers, late, .. } = entry;
        if !late.is_empty() {
            let late = Entry { watchers: late, late: BTreeMap::new(), running: false, ..entry };
            self.entries.insert(stripe, late);
            self.waiting.push_front(stripe);
        }
        for id in watchers.into_keys() {
            commands.extend(self.settle(id));
        }
        commands.extend(self.start());
        commands
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

    /// Number of jobs under way.
    pub fn jobs(&self) -> usize {
        self.jobs.len()
    }

    /// What a job needs next: a page, its end, or workers.
    fn settle(&mut self, id: RepairJobId) -> Vec<Command> {
        let mut commands = self.start();
        let Some(job) = self.jobs.get_mut(&id) else { return commands };
        if !job.fetching && !job.last_page && job.open < scaled(&job.result.order, OPEN_STRIPES) {
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
        let mut at = 0;
        while at < LOOK_AHEAD {
            let Some(&stripe) = self.waiting.get(at) else { break };
            let Some(entry) = self.entries.get(&stripe) else {
                self.waiting.remove(at);
                continue;
            };
            if self.is_free(entry) {
                self.waiting.remove(at);
                commands.extend(self.begin(stripe));
                for earlier in self.waiting.iter().take(at) {
                    self.entries.entry(*earlier).and_modify(|entry| entry.overtaken += 1);
                }
            } else if entry.overtaken < PATIENCE {
                at += 1;
            } else {
                break;
            }
        }
        commands
    }

    /// Whether this stripe may run now, and each of its nodes may take part in one more.
    fn is_free(&self, entry: &Entry) -> bool {
        let order = &entry.order;
        if self.running >= scaled(order, self.limit) {
            return false;
        }
        if order.per_node == 0 && order.together() {
            // The limit applies to the average over the nodes. If it applied to the busiest node, the stripes
            // of that node would be left for last.
            let nodes = self.load.len().max(entry.nodes.len());
            return self.parts + entry.nodes.len() <= nodes * scaled(order, self.per_node as usize);
        }
        let most = if order.per_node == 0 { self.per_node } else { order.per_node };
        entry.nodes.iter().all(|node| self.load.get(node).is_none_or(|load| *load < most))
    }

    fn begin(&mut self, stripe: StripeId) -> Option<Command> {
        let entry = self.entries.get_mut(&stripe)?;
        let blocks: BTreeSet<_> = entry.watchers.values().flat_map(|(blocks, _)| blocks).copied().collect();
        self.parts += entry.nodes.len();
        for node in &entry.nodes {
            *self.load.entry(*node).or_default() += 1;
        }
        let command = Command::Start(stripe, blocks.iter().copied().collect(), entry.order.clone());
        (entry.running, entry.overtaken) = (true, 0);
        self.running += 1;
        Some(command)
    }
}

/// The limit for stripes of this order.
fn scaled(order: &Order, limit: usize) -> usize {
    if order.together() { limit.saturating_mul(TOGETHER) } else { limit }
}

impl RepairJob {
    fn hear(&mut self, blocks: &BTreeSet<BlockIndex>, bytes: u64, outcome: &Outcome) {
        self.open -= 1;
        self.done_bytes += bytes;
        let repaired = outcome.repaired.iter().filter(|b| blocks.contains(b)).count() as u64;
        self.result.tally.add(&Tally { blocks: repaired, ..outcome.tally.clone() });
        self.result.bad.extend(outcome.bad.iter().cloned());
        let room = TOLD.saturating_sub(self.result.around.len());
        self.result.around.extend(outcome.around.iter().take(room).cloned());
        match &outcome.failed {
            Some(reason) if self.result.failed.len() < TOLD => self.result.failed.push(reason.clone()),
            Some(_) => self.untold += 1,
            None => {}
        }
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
