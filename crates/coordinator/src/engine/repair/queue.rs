//! Which stripes are to be mended, for whom, and how many at once: a pure state machine.
//!
//! An *ask* is one wish (a user's call, a dead node, a rotten block); it names its stripes page by
//! page, so that a node with a million blocks costs no memory here. A stripe is mended by one worker at a
//! time; asks for the same stripe share the work, and each hears how its own blocks fared.
//!
//! A node has a part in a few stripes at once, as helper or requestor: enough to keep its links full, and not so
//! many that they wait for each other. A stripe that must wait for its nodes lets later ones go before it, but not for
//! ever.
//!
//! Invariants: at most `limit` stripes run ([`TOGETHER`] times that where they were planned together), and no node has a
//! part in more of them than their orders allow; a stripe runs once at a time; every want of an ask is
//! reported to it exactly once; an ask is finished exactly once, after its last page and want.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_wire::message::{BadBlock, GoneAround};

use super::{Order, Tally};

/// Pages are fetched while an ask has fewer open stripes than this.
const OPEN_STRIPES: usize = 64;
/// So many times more stripes are open, and run at once, in all and of a node on the mean, where their trees were planned
/// together: then all links are loaded alike if many share each of them, and no stripe waits for another's nodes.
const TOGETHER: usize = 12;
/// Failures, and nodes gone around, that an ask tells one by one; later failures are only counted.
const TOLD: usize = 100;
/// Waiting stripes that are looked at for one whose nodes are free.
const LOOK_AHEAD: usize = 64;
/// Stripes that may go before one that came earlier.
const PATIENCE: u32 = 64;

/// Names an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// Blocks of one stripe that an ask wants mended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Which stripe.
    pub stripe: StripeId,
    /// Which blocks of it.
    pub blocks: Vec<BlockIndex>,
    /// Their length together.
    pub bytes: u64,
    /// The nodes that will have a part in it, as far as that is known.
    pub nodes: BTreeSet<NodeId>,
}

/// How the work on a stripe ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The blocks that are readable again by this work.
    pub mended: Vec<BlockIndex>,
    /// What it cost.
    pub tally: Tally,
    /// Why blocks could not be mended.
    pub failed: Option<String>,
    /// Blocks that turned out bad on the way.
    pub bad: Vec<BadBlock>,
    /// Whom it went around.
    pub around: Vec<GoneAround>,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Fetch the next page of this ask and answer with [`Queue::page`].
    Fetch(AskId),
    /// Mend these blocks of this stripe and answer with [`Queue::ended`].
    Start(StripeId, Vec<BlockIndex>, Order),
    /// Tell whoever asked how far it is: bytes done, bytes known.
    Progress(AskId, u64, u64),
    /// Tell whoever asked that everything is done.
    Finish(AskId, Asked),
}

/// What has become of an ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// How it was to be done.
    pub order: Order,
    /// What it cost.
    pub tally: Tally,
    /// What could not be done, with the reason.
    pub failed: Vec<String>,
    /// Blocks that turned out bad on the way.
    pub bad: Vec<BadBlock>,
    /// Whom it went around.
    pub around: Vec<GoneAround>,
}

#[derive(Debug)]
struct Ask {
    asked: Asked,
    urgent: bool,
    fetching: bool,
    last_page: bool,
    open: usize,
    untold: u64,
    done_bytes: u64,
    total_bytes: u64,
}

/// The blocks that each ask waits for, and their bytes.
type Watchers = BTreeMap<AskId, (BTreeSet<BlockIndex>, u64)>;

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
    /// All of `load` together.
    parts: usize,
    next: u64,
    asks: BTreeMap<AskId, Ask>,
    entries: BTreeMap<StripeId, Entry>,
    waiting: VecDeque<StripeId>,
}

impl Queue {
    /// A queue that runs at most `limit` stripes at once, of which any node has a part in `per_node`, where the
    /// order does not say otherwise.
    pub fn new(limit: usize, per_node: u32) -> Self {
        Self {
            limit: limit.max(1),
            per_node: per_node.max(1),
            running: 0,
            load: BTreeMap::new(),
            parts: 0,
            next: 1,
            asks: BTreeMap::new(),
            entries: BTreeMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// A new ask. An urgent one goes before all others.
    pub fn ask(&mut self, order: Order, urgent: bool) -> (AskId, Vec<Command>) {
        let id = AskId(self.next);
        self.next += 1;
        let asked =
            Asked { order, tally: Tally::default(), failed: Vec::new(), bad: Vec::new(), around: Vec::new() };
        let ask = Ask {
            asked,
            urgent,
            fetching: true,
            last_page: false,
            open: 0,
            untold: 0,
            done_bytes: 0,
            total_bytes: 0,
        };
        self.asks.insert(id, ask);
        (id, vec![Command::Fetch(id)])
    }

    /// A page of an ask has come; `last` when there are no more.
    pub fn page(&mut self, id: AskId, wants: Vec<Want>, last: bool) -> Vec<Command> {
        let Some(ask) = self.asks.get_mut(&id) else { return Vec::new() };
        (ask.fetching, ask.last_page) = (false, last);
        for want in wants.into_iter().filter(|w| !w.blocks.is_empty()) {
            ask.total_bytes += want.bytes;
            let order = ask.asked.order.clone();
            let entry = self.entries.entry(want.stripe).or_insert_with(|| {
                let put = if ask.urgent { VecDeque::push_front } else { VecDeque::push_back };
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
                ask.open += 1;
                Default::default()
            });
            blocks.extend(want.blocks);
            *bytes += want.bytes;
            entry.order = order;
        }
        self.settle(id)
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
            let Some(ask) = self.asks.get_mut(id) else { continue };
            ask.hear(blocks, *bytes, outcome);
            commands.push(Command::Progress(*id, ask.done_bytes, ask.total_bytes));
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

    /// The asks that wait for a stripe: bytes done, bytes known.
    pub fn standing(&self, stripe: StripeId) -> Vec<(AskId, u64, u64)> {
        let entry = self.entries.get(&stripe).into_iter();
        let watchers = entry.flat_map(|entry| entry.watchers.keys().chain(entry.late.keys()));
        let known = watchers.filter_map(|id| Some((*id, self.asks.get(id)?)));
        known.map(|(id, ask)| (id, ask.done_bytes, ask.total_bytes)).collect()
    }

    /// Asks under way.
    pub fn asks(&self) -> usize {
        self.asks.len()
    }

    /// What an ask needs next: a page, its end, or workers.
    fn settle(&mut self, id: AskId) -> Vec<Command> {
        let mut commands = self.start();
        let Some(ask) = self.asks.get_mut(&id) else { return commands };
        if !ask.fetching && !ask.last_page && ask.open < scaled(&ask.asked.order, OPEN_STRIPES) {
            ask.fetching = true;
            commands.push(Command::Fetch(id));
        }
        if ask.last_page && ask.open == 0 && !ask.fetching {
            let ask = self.asks.remove(&id).expect("it was just found");
            commands.push(Command::Finish(id, ask.told()));
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

    /// Whether one more stripe may run, and all its nodes may have one more part.
    fn is_free(&self, entry: &Entry) -> bool {
        let order = &entry.order;
        if self.running >= scaled(order, self.limit) {
            return false;
        }
        if order.per_node == 0 && order.together() {
            // On the mean of the nodes: to hold back those of the busiest one would leave them for last.
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

/// A limit for stripes of this order.
fn scaled(order: &Order, limit: usize) -> usize {
    if order.together() { limit.saturating_mul(TOGETHER) } else { limit }
}

impl Ask {
    fn hear(&mut self, blocks: &BTreeSet<BlockIndex>, bytes: u64, outcome: &Outcome) {
        self.open -= 1;
        self.done_bytes += bytes;
        let mended = outcome.mended.iter().filter(|b| blocks.contains(b)).count() as u64;
        self.asked.tally.add(&Tally { blocks: mended, ..outcome.tally.clone() });
        self.asked.bad.extend(outcome.bad.iter().cloned());
        let room = TOLD.saturating_sub(self.asked.around.len());
        self.asked.around.extend(outcome.around.iter().take(room).cloned());
        match &outcome.failed {
            Some(reason) if self.asked.failed.len() < TOLD => self.asked.failed.push(reason.clone()),
            Some(_) => self.untold += 1,
            None => {}
        }
    }

    fn told(mut self) -> Asked {
        if self.untold > 0 {
            self.asked.failed.push(format!("and {} more stripes", self.untold));
        }
        self.asked
    }
}

#[cfg(test)]
mod tests;
