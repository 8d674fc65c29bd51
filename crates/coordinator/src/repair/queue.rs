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

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

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

#[derive(Debug)]
struct Entry {
    order: Order,
    watchers: BTreeMap<AskId, (BTreeSet<BlockIndex>, u64)>,
    running: Option<BTreeSet<BlockIndex>>,
    nodes: BTreeSet<NodeId>,
    overtaken: u32,
}

/// The queue.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    per_node: u32,
    running: usize,
    load: HashMap<NodeId, u32>,
    /// All of `load` together.
    parts: usize,
    next: u64,
    asks: BTreeMap<AskId, Ask>,
    entries: HashMap<StripeId, Entry>,
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
            load: HashMap::new(),
            parts: 0,
            next: 1,
            asks: BTreeMap::new(),
            entries: HashMap::new(),
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
                    running: None,
                    nodes: want.nodes,
                    overtaken: 0,
                }
            });
            let (blocks, bytes) = entry.watchers.entry(id).or_insert_with(|| {
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
        let Some(mut entry) = self.entries.remove(&stripe) else { return Vec::new() };
        let Some(tried) = entry.running.take() else {
            self.entries.insert(stripe, entry);
            return Vec::new();
        };
        self.running -= 1;
        self.parts -= entry.nodes.len();
        for node in &entry.nodes {
            if let Some(load) = self.load.get_mut(node) {
                *load = load.saturating_sub(1);
            }
        }
        self.load.retain(|_, load| *load > 0);
        let (served, rest): (BTreeMap<_, _>, BTreeMap<_, _>) =
            entry.watchers.into_iter().partition(|(_, (blocks, _))| blocks.is_subset(&tried));
        let mut commands = Vec::new();
        for (id, (blocks, bytes)) in &served {
            let Some(ask) = self.asks.get_mut(id) else { continue };
            ask.hear(blocks, *bytes, outcome);
            commands.push(Command::Progress(*id, ask.done_bytes, ask.total_bytes));
        }
        if !rest.is_empty() {
            // Blocks that were asked for while it ran, beyond those it mended: once more.
            self.entries.insert(stripe, Entry { watchers: rest, ..entry });
            self.waiting.push_front(stripe);
        }
        for id in served.into_keys() {
            commands.extend(self.settle(id));
        }
        commands.extend(self.start());
        commands
    }

    /// Blocks waiting for or under repair.
    pub fn pending(&self) -> u64 {
        let blocks = |entry: &Entry| {
            let mut all: BTreeSet<BlockIndex> = entry.running.clone().unwrap_or_default();
            all.extend(entry.watchers.values().flat_map(|(blocks, _)| blocks));
            all.len() as u64
        };
        self.entries.values().map(blocks).sum()
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
        (entry.running, entry.overtaken) = (Some(blocks), 0);
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
mod tests {
    use super::*;
    use kintsu_plan::Method;
    use proptest::prelude::*;

    const ORDER: Order = Order {
        method: Method::Pipeline,
        slice_bytes: 1,
        in_place: false,
        schedule: kintsu_plan::Schedule::Balanced,
        requestors: None,
        per_node: 0,
    };

    const PER_NODE: u32 = 2;

    /// Three nodes that each stripe shares with others.
    fn nodes(stripe: u64) -> BTreeSet<NodeId> {
        [stripe % 2, 2 + stripe % 3, 5 + stripe % 5].map(|node| NodeId(node as u32)).into()
    }

    fn want(stripe: u64, blocks: &[u8]) -> Want {
        let blocks = blocks.iter().map(|&b| BlockIndex(b)).collect::<Vec<_>>();
        Want { stripe: StripeId(stripe), bytes: blocks.len() as u64, blocks, nodes: nodes(stripe) }
    }

    fn mended(blocks: &[BlockIndex]) -> Outcome {
        Outcome { mended: blocks.to_vec(), ..Outcome::default() }
    }

    #[test]
    fn asks_for_one_stripe_share_the_work() {
        let mut queue = Queue::new(2, 2);
        let (first, commands) = queue.ask(ORDER, false);
        assert_eq!(commands, [Command::Fetch(first)]);
        let started = queue.page(first, vec![want(1, &[0])], true);
        assert_eq!(started, [Command::Start(StripeId(1), vec![BlockIndex(0)], ORDER)]);
        let (second, _) = queue.ask(ORDER, false);
        assert_eq!(queue.page(second, vec![want(1, &[0])], true), []);
        let (third, _) = queue.ask(ORDER, false);
        assert_eq!(queue.page(third, vec![want(1, &[0, 3])], true), []);
        assert_eq!(queue.pending(), 2);
        let commands = queue.ended(StripeId(1), &mended(&[BlockIndex(0)]));
        let finished: Vec<_> = commands.iter().filter(|c| matches!(c, Command::Finish(..))).collect();
        assert_eq!(finished.len(), 2);
        assert!(commands.contains(&Command::Start(StripeId(1), vec![BlockIndex(0), BlockIndex(3)], ORDER)));
        let commands = queue.ended(StripeId(1), &mended(&[BlockIndex(3)]));
        assert!(matches!(&commands[..], [Command::Progress(..), Command::Finish(id, asked)]
            if *id == third && asked.tally.blocks == 1));
        assert_eq!((queue.pending(), queue.asks()), (0, 0));
    }

    #[test]
    fn an_urgent_ask_goes_first_and_an_empty_one_ends_at_once() {
        let mut queue = Queue::new(1, 1);
        let (slow, _) = queue.ask(ORDER, false);
        queue.page(slow, vec![want(1, &[0]), want(2, &[0])], true);
        let (fast, _) = queue.ask(ORDER, true);
        queue.page(fast, vec![want(9, &[0])], true);
        let commands = queue.ended(StripeId(1), &mended(&[]));
        assert!(commands.contains(&Command::Start(StripeId(9), vec![BlockIndex(0)], ORDER)));
        let (none, _) = queue.ask(ORDER, false);
        assert!(matches!(&queue.page(none, vec![], true)[..], [Command::Finish(id, _)] if *id == none));
    }

    fn started(commands: &[Command]) -> Vec<u64> {
        let stripe = |command: &Command| match command {
            Command::Start(stripe, ..) => Some(stripe.0),
            _ => None,
        };
        commands.iter().filter_map(stripe).collect()
    }

    #[test]
    fn a_stripe_whose_nodes_are_busy_is_overtaken_but_not_for_ever() {
        let mut queue = Queue::new(100, 1);
        let (id, _) = queue.ask(ORDER, false);
        let busy = |stripe, node: u32| Want { nodes: [NodeId(node)].into(), ..want(stripe, &[0]) };
        let both = Want { nodes: [NodeId(0), NodeId(1)].into(), ..want(1000, &[0]) };
        let mut page = vec![busy(0, 0), busy(1, 1), both];
        page.extend((2..200).map(|stripe| busy(stripe, stripe as u32 % 2)));
        assert_eq!(started(&queue.page(id, page, true)), [0, 1]);
        // The two nodes never rest at the same time, until the first in line has waited long enough.
        let (mut last, mut ends) = ([0, 1], 0);
        let turn = loop {
            let next = started(&queue.ended(StripeId(last[ends % 2]), &mended(&[BlockIndex(0)])));
            ends += 1;
            match next[..] {
                [1000] => break ends,
                [stripe] => last[(ends - 1) % 2] = stripe,
                _ => assert!(next.is_empty() && ends > PATIENCE as usize, "{next:?}"),
            }
        };
        assert_eq!(turn, PATIENCE as usize + 2);
        assert_eq!(started(&queue.ended(StripeId(1000), &mended(&[BlockIndex(0)]))).len(), 2);
    }

    #[test]
    fn more_stripes_run_where_their_trees_were_planned_together() {
        let together = Order { method: Method::Optimal, ..ORDER };
        for (order, running) in [
            (ORDER, 2),
            (Order { schedule: kintsu_plan::Schedule::Greedy, ..together.clone() }, 2),
            (together.clone(), 2 * TOGETHER),
            (Order { per_node: 5, ..together.clone() }, 5),
        ] {
            let mut queue = Queue::new(2, PER_NODE);
            let (id, _) = queue.ask(order.clone(), false);
            let one = |stripe| Want { nodes: [NodeId(0)].into(), ..want(stripe, &[0]) };
            assert_eq!(
                started(&queue.page(id, (0..100).map(one).collect(), false)).len(),
                running,
                "{order:?}"
            );
            // Others wait until no more run than they may.
            let (other, _) = queue.ask(ORDER, true);
            let page = vec![Want { nodes: [NodeId(9)].into(), ..want(1000, &[0]) }];
            assert_eq!(started(&queue.page(other, page, true)), []);
        }
    }

    /// Plays the driver: pages and endings come in the order that `choices` say.
    fn play(limit: usize, asks: Vec<Vec<Vec<Want>>>, choices: Vec<usize>) {
        let mut queue = Queue::new(limit, PER_NODE);
        let (mut todo, mut pages, mut running) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        let (mut finished, mut wanted) = (BTreeMap::new(), BTreeMap::new());
        for ask in asks {
            let (id, commands) = queue.ask(ORDER, ask.len() % 2 == 1);
            let stripes: BTreeSet<StripeId> = ask.iter().flatten().map(|w| w.stripe).collect();
            wanted.insert(id, stripes.len());
            pages.insert(id, ask.into_iter());
            todo.extend(commands);
        }
        let (mut turn, mut told) = (0, BTreeMap::<AskId, usize>::new());
        loop {
            let mut ready = Vec::new();
            for command in std::mem::take(&mut todo) {
                match command {
                    Command::Start(stripe, blocks, _) => {
                        assert!(!blocks.is_empty());
                        assert!(running.insert(stripe, blocks).is_none(), "{stripe} runs twice");
                        assert!(running.len() <= limit);
                        let mut load = BTreeMap::<NodeId, u32>::new();
                        for node in running.keys().flat_map(|stripe: &StripeId| nodes(stripe.0)) {
                            *load.entry(node).or_default() += 1;
                        }
                        assert!(load.values().all(|load| *load <= PER_NODE), "{load:?}");
                    }
                    Command::Progress(id, done, total) => {
                        assert!(done <= total);
                        *told.entry(id).or_default() += 1;
                    }
                    Command::Finish(id, _) => assert!(finished.insert(id, ()).is_none()),
                    fetch => ready.push(fetch),
                }
            }
            let choice = choices[turn % choices.len()];
            turn += 1;
            if !running.is_empty() && (choice.is_multiple_of(2) || ready.is_empty()) {
                let stripe = *running.keys().nth(choice % running.len()).unwrap();
                let blocks = running.remove(&stripe).unwrap();
                todo = ready;
                todo.extend(queue.ended(stripe, &mended(&blocks)));
            } else if let Some(Command::Fetch(id)) = ready.pop() {
                todo = ready;
                let rest = pages.get_mut(&id).unwrap();
                let page = rest.next().unwrap_or_default();
                todo.extend(queue.page(id, page, rest.len() == 0));
            } else {
                break;
            }
        }
        assert_eq!((queue.pending(), queue.asks(), queue.running), (0, 0, 0));
        assert!(queue.load.is_empty() && queue.parts == 0);
        assert_eq!(finished.len(), wanted.len());
        for (id, count) in wanted {
            // A stripe named by two pages of one ask is told once or twice, never less.
            assert!(told.get(&id).copied().unwrap_or(0) >= count);
        }
    }

    proptest! {
        #[test]
        fn the_queue_drains_whatever_happens(
            limit in 1usize..5,
            asks in prop::collection::vec(prop::collection::vec(
                prop::collection::vec((0u64..12, prop::collection::btree_set(0u8..5, 0..4)), 0..90), 0..4), 1..5),
            choices in prop::collection::vec(0usize..1000, 1..40),
        ) {
            let asks = asks.into_iter().map(|pages| pages.into_iter().map(|page| {
                let mut seen = BTreeSet::new();
                page.into_iter().filter(|(s, b)| !b.is_empty() && seen.insert(*s))
                    .map(|(s, b)| want(s, &b.into_iter().collect::<Vec<_>>())).collect()
            }).collect()).collect();
            play(limit, asks, choices);
        }
    }
}
