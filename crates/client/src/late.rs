//! Decides which source of a running read is late: numbers in, verdict out. Reads no clock.
//!
//! What to expect of a source is learnt from the others, not configured: each source's rate is measured while the
//! read waits for it, and the expected rate is their median. A source is compared with it only while most others
//! are ahead of the source. If the client's own link is full, that does not last: the last source that the read waits
//! for gets the whole link. Attempts of several portions that read from one node share its link.
//!
//! A source is late when it has held up the read for as long as it takes to start again without it (learnt too:
//! the time until the first bytes came), and going on with it takes clearly longer than that. A source that is
//! silent while others deliver is late in the end, whatever its rate was.
//!
//! Invariants: no source is blamed for a pause of this process; a change of sources that did not help lowers the
//! expectation, so that a read does not start again and again where no source is faster.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_runtime::Heard;

/// How often a running read is looked at.
pub(crate) const TICK: Duration = Duration::from_millis(10);

/// If two looks are further apart than this, in seconds, this process was paused, and no source is judged.
const PAUSE: f64 = 0.04;

/// A source is slow if its rate is below the expected one divided by this.
const SLOW: f64 = 1.5;

/// The same where other portions may have a larger share of a link: of the client's, while the total rate is as high as
/// ever, or of the source's, if they read from it too.
const FAR_SLOWER: f64 = 4.0;

/// Least delay, in seconds, for which a read starts again. Shorter ones are noise.
const LEAST_DELAY: f64 = 0.05;

/// If no other source of its attempt is ahead of a source, it must have held up the read this many times longer.
const ALONE: f64 = 2.0;

/// Least silence, in seconds, after which a source is late if no rate is known to compare it with.
const LEAST_SILENCE: f64 = 0.25;

/// The same in multiples of the time in which sources usually answer.
const ANSWERS: f64 = 8.0;

/// In this many seconds, the delay that a source is blamed for fades to half.
const HALF_LIFE: f64 = 0.25;

/// The window over which the total rate is measured, in seconds.
const INFLOW: f64 = 0.05;

/// The shortest time over which a rate is measured once queues have filled, in seconds.
const MEASURED_OVER: f64 = 0.1;

/// A change has helped only if the read became this many times faster.
const BETTER: f64 = 1.3;

/// Stands for all sources if slices are combined on their way: the client cannot see which node holds them up.
pub(crate) const ON_THE_WAY: NodeId = NodeId::CLIENT;

/// A source that is late.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Late {
    pub node: NodeId,
    /// Bytes a second that came from it.
    pub rate: f64,
    /// Bytes a second that the others have shown to be possible; `None` if only its silence is known.
    pub expected: Option<f64>,
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.expected {
            Some(expected) => {
                let (rate, expected) = (self.rate / 1e6, expected / 1e6);
                write!(f, "{} is slow: expected {expected:.1} MB/s, got {rate:.1}", self.node)
            }
            None => write!(f, "{} is silent", self.node),
        }
    }
}

/// What a read has learnt about its sources, over all its portions.
#[derive(Debug)]
pub(crate) struct Learnt {
    sources: BTreeMap<NodeId, Source>,
    /// Times and bytes of what came lately; and the highest total rate so far, in bytes a second.
    inflow: VecDeque<(f64, u64)>,
    most: f64,
    /// Seconds until the first bytes of a source, in general.
    answer: f64,
    /// Upper limit of the expected rate.
    cap: f64,
    /// If it is not known yet whether the last change helped: the rate before it, and its time.
    before: Option<(f64, f64)>,
    /// The nodes of each running attempt, and when something last came.
    running: BTreeMap<u64, (BTreeSet<NodeId>, f64)>,
    /// Attempts until now.
    attempts: u64,
    /// Changes because of silence; each doubles the patience with a source that is the only one.
    lonely: i32,
}

/// One source.
#[derive(Debug, Clone, Copy, Default)]
struct Source {
    /// Its rate, in bytes a second, while the read waited for it.
    rate: Option<f64>,
    /// Seconds by which it has held up the read.
    lost: f64,
    /// Bytes and seconds while the read waited for it alone.
    alone: (f64, f64),
}

/// Watches the sources of one attempt.
#[derive(Debug)]
pub(crate) struct Watch {
    attempt: u64,
    nodes: BTreeSet<NodeId>,
    seen: BTreeMap<NodeId, Seen>,
    begun: f64,
    looked: f64,
    /// Seconds in which the read waited for some source all the time.
    limited: f64,
}

/// One source of an attempt.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    heard: Heard,
    /// Whether the rate at which it filled the queue is known.
    filled: bool,
    /// Bytes while `limited`.
    bytes: u64,
    /// Seconds since its last byte, while it was waited for.
    silent: f64,
    /// Nothing is expected of it.
    excused: bool,
}

/// A source between two looks.
struct Step {
    node: NodeId,
    bytes: u64,
    waited: f64,
    heard: Heard,
}

impl Step {
    /// Whether the read had what it needed of this source most of the time.
    fn is_ahead(&self, tick: f64) -> bool {
        self.heard.done || (self.waited < tick / 2.0 && self.heard.bytes > 0)
    }
}

impl Learnt {
    /// For a cluster that has just answered a call within `answered`.
    pub fn new(answered: Duration) -> Self {
        Self {
            sources: BTreeMap::new(),
            inflow: VecDeque::new(),
            most: 0.0,
            answer: answered.as_secs_f64(),
            cap: f64::INFINITY,
            before: None,
            running: BTreeMap::new(),
            attempts: 0,
            lonely: 0,
        }
    }

    /// The time that it takes to start again, in seconds.
    fn delay(&self) -> f64 {
        self.answer.max(LEAST_DELAY)
    }

    /// The rate to expect of `node`: the median of the others'.
    fn expected(&self, node: NodeId) -> Option<f64> {
        let others = self.sources.iter().filter(|(other, _)| **other != node && **other != ON_THE_WAY);
        let mut rates: Vec<f64> = others.filter_map(|(_, source)| source.rate).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len().saturating_sub(1) / 2).map(|rate| rate.min(self.cap))
    }

    /// The attempts that share the links of a source, or of any of all `nodes` if slices are combined on their way.
    fn sharing(&self, node: NodeId, nodes: &BTreeSet<NodeId>) -> f64 {
        let through = |node: &NodeId| self.running.values().filter(|(nodes, _)| nodes.contains(node)).count();
        let most = if node == ON_THE_WAY { nodes.iter().map(through).max() } else { Some(through(&node)) };
        most.unwrap_or(1).max(1) as f64
    }

    /// Takes into account that `bytes` came in an attempt until `now`.
    fn came(&mut self, now: f64, bytes: u64, attempt: u64, nodes: &BTreeSet<NodeId>) {
        if bytes > 0 {
            self.running.insert(attempt, (nodes.clone(), now));
        }
        self.running.retain(|_, (_, at)| *at > now - INFLOW);
        self.inflow.push_back((now, bytes));
        while self.inflow.front().is_some_and(|(at, _)| *at < now - INFLOW) {
            self.inflow.pop_front();
        }
        self.most = self.most.max(self.lately());
    }

    fn lately(&self) -> f64 {
        self.inflow.iter().map(|(_, bytes)| *bytes as f64).sum::<f64>() / INFLOW
    }

    /// A source has reached this rate.
    fn showed(&mut self, node: NodeId, rate: f64) {
        let known = &mut self.sources.entry(node).or_default().rate;
        *known = Some(known.map_or(rate, |known| known.max(rate)));
    }

    /// Whether `rest` bytes come much sooner if they are read without this source.
    pub fn is_worth(&self, late: &Late, rest: u64) -> bool {
        let rest = rest as f64;
        let again = late.expected.map_or(0.0, |expected| rest / expected) + self.delay();
        rest > 0.0 && rest > SLOW * again * late.rate
    }

    /// The read goes on without this source; the next rates show whether that helps.
    pub fn changed(&mut self, late: &Late, now: f64) {
        match late.expected {
            Some(_) => self.before = Some((late.rate, now)),
            None => self.lonely += 1,
        }
        self.sources.remove(&late.node);
    }
}

impl Watch {
    /// For an attempt that begins now and reads from `nodes`. Nothing is expected of the sources `excused`.
    pub fn new(now: f64, nodes: BTreeSet<NodeId>, excused: &BTreeSet<NodeId>, learnt: &mut Learnt) -> Self {
        learnt.attempts += 1;
        let attempt = learnt.attempts;
        let excused = excused.iter().map(|node| (*node, Seen { excused: true, ..Seen::default() }));
        Self { attempt, nodes, seen: excused.collect(), begun: now, looked: now, limited: 0.0 }
    }

    /// Nothing is expected of this source any more.
    pub fn excuse(&mut self, node: NodeId) {
        self.seen.entry(node).or_default().excused = true;
    }

    /// Looks at what has come until `now` (seconds of the read), when about `rest` bytes of each source are still to
    /// be read. Returns the sources that are late, the slowest first.
    pub fn look(
        &mut self,
        now: f64,
        heard: &BTreeMap<NodeId, Heard>,
        rest: u64,
        learnt: &mut Learnt,
    ) -> Vec<Late> {
        let tick = now - self.looked;
        self.looked = now;
        let steps: Vec<Step> = heard.iter().map(|(node, heard)| self.step(*node, *heard)).collect();
        if tick <= 0.0 || tick > PAUSE {
            self.limited = 0.0;
            self.seen.values_mut().for_each(|seen| seen.bytes = 0);
            return Vec::new();
        }
        learnt.came(now, steps.iter().map(|step| step.bytes).sum(), self.attempt, &self.nodes);
        self.measure(&steps, now, tick, learnt);
        let mut late: Vec<Late> =
            steps.iter().filter_map(|step| self.judge(step, &steps, tick, rest, learnt)).collect();
        late.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        late
    }

    fn step(&mut self, node: NodeId, heard: Heard) -> Step {
        let seen = self.seen.entry(node).or_default();
        let bytes = heard.bytes.saturating_sub(seen.heard.bytes);
        let waited = heard.waited.saturating_sub(seen.heard.waited).as_secs_f64();
        seen.heard = heard;
        Step { node, bytes, waited, heard }
    }

    /// Learns rates: when a queue fills for the first time, and while no other limit than the sources is seen.
    fn measure(&mut self, steps: &[Step], now: f64, tick: f64, learnt: &mut Learnt) {
        for step in steps {
            let Some(seen) = self.seen.get_mut(&step.node) else { continue };
            if step.bytes > 0 && step.bytes == step.heard.bytes {
                // The first bytes of all.
                learnt.answer =
                    (now - self.begun).min((learnt.answer * 3.0 + now - self.begun) / 4.0).max(0.0);
            }
            if !seen.filled && step.heard.bytes > 0 && step.is_ahead(tick) {
                seen.filled = true;
                let rate = step.heard.bytes as f64 / step.heard.took.as_secs_f64().max(1e-6);
                learnt.showed(step.node, rate);
            }
        }
        let limited = steps.iter().any(|step| step.waited >= 0.8 * tick);
        self.limited = if limited { self.limited + tick } else { 0.0 };
        for step in steps {
            let Some(seen) = self.seen.get_mut(&step.node) else { continue };
            seen.bytes = if limited { seen.bytes + step.bytes } else { 0 };
        }
        if self.limited < MEASURED_OVER {
            return;
        }
        let mut rates = Vec::new();
        for step in steps.iter().filter(|step| !step.heard.done) {
            let Some(seen) = self.seen.get_mut(&step.node) else { continue };
            let rate = std::mem::take(&mut seen.bytes) as f64 / self.limited;
            learnt.showed(step.node, rate);
            rates.push(rate);
        }
        self.limited = 0.0;
        // The read is as fast as its slowest source.
        if let Some(rate) = rates.into_iter().reduce(f64::min)
            && let Some((before, _)) = learnt.before.filter(|(_, at)| *at <= self.begun)
        {
            learnt.before = None;
            if rate < before * BETTER {
                learnt.cap = learnt.cap.min(rate.max(before));
            }
        }
    }

    fn judge(
        &mut self,
        step: &Step,
        steps: &[Step],
        tick: f64,
        rest: u64,
        learnt: &mut Learnt,
    ) -> Option<Late> {
        let seen = self.seen.get_mut(&step.node)?;
        if step.heard.done || seen.excused {
            return None;
        }
        seen.silent = if step.bytes > 0 { 0.0 } else { seen.silent + step.waited };
        let silent = seen.silent;
        let others = steps.iter().filter(|other| other.node != step.node);
        let ahead = others.filter(|other| other.is_ahead(tick)).count();
        let alone = 2 * ahead >= steps.len() - 1;
        let sharing = learnt.sharing(step.node, &self.nodes);
        let expected = learnt.expected(step.node).map(|rate| rate / sharing);
        let delay = learnt.delay() * if steps.len() == 1 { ALONE } else { 1.0 };
        // A source that has not answered yet may need as long for that as others did.
        let answers = step.heard.bytes > 0 || self.looked - self.begun > 2.0 * learnt.answer;
        let waited = if alone && answers { step.waited } else { 0.0 };
        let others = steps.iter().filter(|other| other.node != step.node);
        let is_fair = match others.map(|other| learnt.sharing(other.node, &self.nodes)).reduce(f64::min) {
            Some(least) => sharing <= least,
            None => sharing <= 1.0 && learnt.lately() * SLOW <= learnt.most,
        };
        let clear = if is_fair { SLOW } else { FAR_SLOWER };
        let lonely = if steps.len() == 1 { 2f64.powi(learnt.lonely) } else { 1.0 };
        let patience = LEAST_SILENCE.max(ANSWERS * learnt.answer) * lonely;

        let source = learnt.sources.entry(step.node).or_default();
        let rate = source.waited(waited, if alone { step.bytes } else { 0 }, tick);
        let due = expected.map(|rate| step.bytes as f64 / rate);
        source.lost = due.map_or(0.0, |due| (source.lost * kept(tick) + waited - due).max(0.0));
        let slow = Late { node: step.node, rate, expected };
        let is_slow = source.lost >= delay
            && silent < learnt.delay() / 2.0
            && expected.is_some_and(|expected| rate * clear <= expected);
        if is_slow && learnt.is_worth(&slow, rest) {
            return Some(slow);
        }
        let compared = alone || (ahead > 0 && silent >= 4.0 * patience);
        let is_silent = silent >= patience && compared;
        is_silent.then_some(Late { node: step.node, rate: 0.0, expected: None })
    }
}

impl Source {
    /// The read has waited for it alone for some seconds more, and got this. Returns its rate, in which what was long
    /// ago hardly counts.
    fn waited(&mut self, seconds: f64, bytes: u64, tick: f64) -> f64 {
        let kept = kept(tick);
        self.alone = (self.alone.0 * kept + bytes as f64, self.alone.1 * kept + seconds);
        if self.alone.1 > 0.0 { self.alone.0 / self.alone.1 } else { 0.0 }
    }
}

/// The part of what was known that still counts `tick` seconds later.
fn kept(tick: f64) -> f64 {
    0.5f64.powf(tick / HALF_LIFE)
}

#[cfg(test)]
mod tests;
