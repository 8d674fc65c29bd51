//! Decides whether a repair has become so slow that it is worth avoiding the nodes that delay it: numbers in,
//! verdict out. `suspects` finds out which nodes these are.
//!
//! What is expected comes first from the best rate of this repair so far, and from the rates of other repairs that run
//! now or ended lately. Without any of these, a part of what the plan promised is expected, where rates of links were
//! set or measured. Repairs that run at once share links. If more repairs run than when a rate was measured,
//! proportionally less is expected. If fewer run, the expectation does not grow, because not every link was shared.
//!
//! How long a rate is measured follows the repair too: longer the more repairs run, because each gets its turns on a
//! link less often, and at least a few times the longest break of the repair so far, so that a loaded machine
//! does not look like a slow node. A node that all repairs together keep busy does not count as slow
//! ([`RepairSpeeds::is_busy`]), because its link already carries much of what it can.
//!
//! ChameleonEC's repairs are judged by expectation alone (`courses`): a transmission is late if it lags by a tenth of a phase (2 s)
//! and a quarter of the time that the rates of links promise. That does not replace the constants below. It needs rates of links and
//! a common plan, and most repairs have neither: on a loopback nothing is known, and a block that is repaired by itself
//! shares no plan. It takes seconds, in which a block of 64 MiB is repaired on links of 1 Gb/s. And what users
//! leave of links changes within a phase, so a promise is the weakest thing to compare with.
//!
//! | constants | what they are |
//! |---|---|
//! | [`WINDOW_MS`], [`SHARED_MS`], [`CROWD`], [`BREAKS`], [`LONG`], [`STILL`] | how long a rate is measured, so that noise is no verdict |
//! | [`SLOW`], [`PROMISED`], [`BUSY`] | how far a rate may be below each kind of expectation |
//! | [`WORTH`], [`CHANGE_MS`] | when another plan gains more than it costs |
//! | [`BETTER`], [`REMEMBERED`], [`REMEMBERED_MS`] | what is learnt from changes and from other repairs |
//!
//! Invariants: no verdict before the rate was too low for a part of a window ([`LONG`]) without a break; no verdict if
//! the rest takes hardly longer than making a new plan; a change of helpers that did not help lowers the expected
//! rate, so that helpers are not changed again where that does not help. Reads no clock.

use std::collections::{BTreeMap, VecDeque};

use kintsu_dag::NodeId;

use crate::engine::median;

/// The window over which the rate of a repair that runs alone is measured, in milliseconds.
const WINDOW_MS: u64 = 150;
/// For each other repair that runs, it is longer by this.
const SHARED_MS: u64 = 500;
/// Beyond this many repairs the window stops growing.
const CROWD: u64 = 32;
/// A window is at least this many times as long as the longest break of the repair.
const BREAKS: u64 = 3;
/// The rate must have been too low for this part of a window without interruption, but for no more than these milliseconds.
const LONG: (f64, u64) = (0.34, 750);
/// If nothing comes at all, it must have been too low for this many times as long, because a node that is cut off is
/// detected by its silence before that.
const STILL: u64 = 8;
/// A repair is slow if its rate is below the expected rate divided by this.
const SLOW: f64 = 2.5;
/// This part of the rate that the plan promised is expected where there is nothing to compare with.
const PROMISED: f64 = 0.25;
/// A node is busy if the repairs through it get at least what it can carry divided by this.
const BUSY: f64 = 5.0;
/// Re-plan only if continuing takes this many times longer.
const WORTH: f64 = 2.0;
/// The time that it takes to end an attempt and begin another, in milliseconds.
const CHANGE_MS: f64 = 200.0;
/// A change of helpers has helped only if the repair became this many times faster.
const BETTER: f64 = 1.5;
/// How many ended repairs are remembered, and for how long.
const REMEMBERED: usize = 32;
const REMEMBERED_MS: u64 = 120_000;

/// A repair is slow, and it is worth avoiding the nodes to blame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slow {
    /// Its rate, in bytes of every block per millisecond.
    pub rate: f64,
    /// The rate that was expected.
    pub expected: f64,
}

/// The rate of a repair while this many were running.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Made {
    /// In bytes of every block per millisecond.
    rate: f64,
    running: usize,
}

impl Made {
    /// The rate to expect of it while `running` repairs run.
    fn among(self, running: usize) -> f64 {
        self.rate * (self.running as f64 / running as f64).min(1.0)
    }

    /// The rate of a repair that runs alone, if all repairs had shared all links.
    fn alone(self) -> f64 {
        self.rate * self.running as f64
    }
}

/// The rates of all repairs of a coordinator.
#[derive(Debug, Clone, Default)]
pub struct RepairSpeeds {
    running: BTreeMap<u64, Running>,
    ended: VecDeque<(u64, Made)>,
}

/// A repair under way.
#[derive(Debug, Clone, Default)]
struct Running {
    /// Its rate, measured over a full window.
    rate: Option<f64>,
    /// Its rate over the time since it began, or over the last window.
    lately: f64,
    /// Its helpers and requestors.
    nodes: Vec<NodeId>,
}

impl RepairSpeeds {
    /// A repair has begun.
    pub fn begun(&mut self, repair: u64) {
        self.running.insert(repair, Running::default());
    }

    /// A repair begins an attempt with these helpers and requestors.
    pub fn goes(&mut self, repair: u64, nodes: Vec<NodeId>) {
        if let Some(known) = self.running.get_mut(&repair) {
            *known = Running { nodes, ..Running::default() };
        }
    }

    /// Whether all repairs together keep a node busy. `told` is the rate of the node's link in bytes per
    /// millisecond, if the cluster was told one: then the node is busy if all repairs through it get at least
    /// `told / BUSY`. Otherwise it is busy if the other repairs get at least `1 / BUSY` as much through it as
    /// through the busiest node. A repair that began too recently to be measured counts with its rate so far,
    /// but at least with the rate of `repair`.
    pub fn is_busy(&self, node: NodeId, repair: u64, told: Option<f64>) -> bool {
        let own = self.running.get(&repair).and_then(|running| running.rate).unwrap_or(0.0);
        let mut through: BTreeMap<NodeId, f64> = BTreeMap::new();
        for other in self.others(repair) {
            for node in &other.nodes {
                *through.entry(*node).or_default() += other.rate.unwrap_or(other.lately.max(own));
            }
        }
        let others = through.get(&node).copied().unwrap_or(0.0);
        let (all, can) = match told {
            Some(told) => (others + own, told),
            None => (others, through.values().copied().fold(0.0, f64::max)),
        };
        all * BUSY >= can && others > 0.0
    }

    /// How many repairs run, including this one.
    pub fn running(&self) -> usize {
        self.running.len().max(1)
    }

    /// The window over which a rate is measured, in milliseconds.
    pub fn window_ms(&self) -> u64 {
        WINDOW_MS + SHARED_MS * (self.running() as u64 - 1).min(CROWD)
    }

    /// Notes the rate of a repair. `long` says that it was measured over a full window and can be compared.
    fn makes(&mut self, repair: u64, rate: f64, long: bool) {
        if let Some(known) = self.running.get_mut(&repair) {
            known.lately = rate;
            known.rate = if long { Some(rate) } else { known.rate };
        }
    }

    /// A repair has ended. It repaired `made` bytes of every block in `took_ms`.
    pub fn ended(&mut self, repair: u64, now_ms: u64, made: u64, took_ms: u64) {
        let running = self.running();
        self.running.remove(&repair);
        if made > 0 {
            let rate = made as f64 / took_ms.max(1) as f64;
            self.ended.push_back((now_ms, Made { rate, running }));
        }
        if self.ended.len() > REMEMBERED {
            self.ended.pop_front();
        }
    }

    /// The other repairs under way.
    fn others(&self, repair: u64) -> impl Iterator<Item = &Running> {
        self.running.iter().filter(move |(other, _)| **other != repair).map(|(_, running)| running)
    }

    /// The usual rate of other repairs: the median of those that run, if there are three or more; else the
    /// median of those that ended lately.
    fn usual(&self, repair: u64, now_ms: u64) -> Option<f64> {
        let running: Vec<f64> = self.others(repair).filter_map(|other| other.rate).collect();
        if running.len() >= 3 {
            return median(running);
        }
        let lately = self.ended.iter().filter(|(at, _)| now_ms.saturating_sub(*at) <= REMEMBERED_MS);
        median(lately.map(|(_, made)| made.among(self.running())).collect())
    }
}

/// Measures the speed of one repair over all its attempts.
#[derive(Debug, Clone)]
pub struct RepairSpeed {
    repair: u64,
    end: u64,
    /// Where the attempt under way began.
    start: u64,
    /// Measurements of one window and a little more: the time, the byte that the repair had reached, and how
    /// many repairs ran.
    seen: VecDeque<(u64, u64, usize)>,
    /// When the byte was reached that it has reached now.
    advanced: Option<u64>,
    /// The longest time between two advances.
    longest_break: u64,
    /// What the plan of this attempt promised for a repair that runs alone.
    promised: Option<f64>,
    /// Its best rate so far.
    best: Option<Made>,
    /// Since when it has been slow.
    slow_since: Option<u64>,
    /// Its rate, as if it ran alone, before its helpers were last changed. `None` once it is known whether
    /// that helped.
    before: Option<f64>,
    /// A change of helpers did not help: other repairs are no measure for this one any more.
    resigned: bool,
}

impl RepairSpeed {
    /// A repair of blocks of `end` bytes at most.
    pub fn new(repair: u64, end: u64) -> Self {
        Self {
            repair,
            end,
            start: 0,
            seen: VecDeque::new(),
            advanced: None,
            longest_break: 0,
            promised: None,
            best: None,
            slow_since: None,
            before: None,
            resigned: false,
        }
    }

    /// An attempt begins at byte `start`. Its plan promised this rate, in bytes of every block per millisecond.
    pub fn begin(&mut self, now_ms: u64, start: u64, promised: Option<f64>) {
        self.start = start;
        self.promised = promised;
        self.advanced = None;
        self.seen.clear();
        self.seen.push_back((now_ms, start, 1));
        self.slow_since = None;
    }

    /// The last attempt was ended to avoid slow nodes.
    pub fn turned(&mut self, slow: Slow, rates: &RepairSpeeds) {
        self.before = Some(slow.rate * rates.running() as f64);
    }

    /// The repair has reached byte `upto`. Returns a verdict if it is slow.
    pub fn note(&mut self, now_ms: u64, upto: u64, rates: &mut RepairSpeeds) -> Option<Slow> {
        if self.seen.back().is_some_and(|(_, before, _)| *before < upto) {
            let took = self.advanced.map_or(0, |at| now_ms.saturating_sub(at));
            self.longest_break = self.longest_break.max(took);
            self.advanced = Some(now_ms);
        }
        self.seen.push_back((now_ms, upto, rates.running()));
        let window = rates.window_ms().max(BREAKS * self.longest_break);
        while self.seen.get(1).is_some_and(|(at, ..)| now_ms.saturating_sub(*at) >= window) {
            self.seen.pop_front();
        }
        let &(since, from, _) = self.seen.front()?;
        let took = now_ms.saturating_sub(since);
        let rate = upto.saturating_sub(from) as f64 / took.max(1) as f64;
        rates.makes(self.repair, rate, took >= window);
        if took < window || upto >= self.end {
            return None;
        }
        // If other repairs began or ended within the window, the count that expects less of this one is used.
        let ran = self.seen.iter().skip(1).map(|(.., ran)| *ran);
        let (fewest, most) = (ran.clone().min().unwrap_or(1), ran.max().unwrap_or(1));
        if from > self.start {
            // Until the first slices have arrived, the rate only shows how long the path is.
            self.learn(Made { rate, running: fewest }, most);
        }
        let usual = if self.resigned { None } else { rates.usual(self.repair, now_ms) };
        let promised = self.promised.filter(|_| usual.is_none() && !self.resigned);
        let promised = promised.map(|rate| rate * PROMISED / most as f64);
        let best = self.best.map(|best| best.among(most));
        let expected = best.into_iter().chain(usual).chain(promised).fold(0.0, f64::max);
        if rate * SLOW >= expected {
            self.slow_since = None;
            return None;
        }
        let since = *self.slow_since.get_or_insert(now_ms);
        if self.latest() * SLOW >= expected {
            // It has just recovered.
            return None;
        }
        let left = (self.end - upto) as f64;
        let worth = left / rate > WORTH * (left / expected + CHANGE_MS);
        let long = ((window as f64 * LONG.0) as u64).min(LONG.1);
        let long = if rate == 0.0 { STILL * long } else { long };
        (now_ms.saturating_sub(since) >= long && worth).then_some(Slow { rate, expected })
    }

    /// The rate between the last two measurements.
    fn latest(&self) -> f64 {
        let mut last = self.seen.iter().rev();
        let (Some((now, upto, _)), Some((since, from, _))) = (last.next(), last.next()) else { return 0.0 };
        upto.saturating_sub(*from) as f64 / now.saturating_sub(*since).max(1) as f64
    }

    /// Notes the rate of the repair while `running` repairs run, for later comparison.
    fn learn(&mut self, made: Made, running: usize) {
        match self.before.take() {
            // The change did not help, so no node was to blame: this is the best possible rate.
            Some(before) if made.alone() < before * BETTER => {
                (self.best, self.resigned) = (Some(made), true);
            }
            _ => self.best = Some(self.best.map_or(made, |best| better(best, made, running))),
        }
    }
}

/// The one that promises the higher rate while `running` repairs run.
fn better(one: Made, other: Made, running: usize) -> Made {
    if other.among(running) >= one.among(running) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: u64 = 64 << 20;
    /// Time between two measurements, in milliseconds.
    const LOOK: u64 = 50;

    /// A repair in simulated time.
    struct Run {
        speed: RepairSpeed,
        rates: RepairSpeeds,
        now: u64,
        upto: f64,
    }

    impl Run {
        fn new() -> Self {
            let (mut speed, mut rates) = (RepairSpeed::new(1, END), RepairSpeeds::default());
            rates.begun(1);
            speed.begin(0, 0, None);
            Self { speed, rates, now: 0, upto: 0.0 }
        }

        /// Runs for this long at a rate (bytes per millisecond), or until the first verdict.
        fn go(&mut self, ms: u64, rate: f64) -> Option<Slow> {
            for _ in 0..ms / LOOK {
                self.now += LOOK;
                self.upto = (self.upto + rate * LOOK as f64).min(END as f64);
                let verdict = self.speed.note(self.now, self.upto as u64, &mut self.rates);
                if verdict.is_some() {
                    return verdict;
                }
            }
            None
        }

        fn turn(&mut self, slow: Slow) {
            self.speed.turned(slow, &self.rates);
            self.speed.begin(self.now, self.upto as u64, None);
        }
    }

    #[test]
    fn a_fall_to_a_tenth_is_noticed_at_once() {
        let mut run = Run::new();
        assert_eq!(run.go(3000, 5000.0), None);
        let slow = run.go(60_000, 500.0).unwrap();
        assert!((slow.expected - 5000.0).abs() < 1.0 && slow.rate < 5000.0 / SLOW);
        assert!(run.now <= 3000 + 2 * WINDOW_MS, "{}", run.now);
    }

    #[test]
    fn a_fall_to_a_half_or_for_a_moment_is_not() {
        let mut run = Run::new();
        assert_eq!(run.go(3000, 5000.0), None);
        assert_eq!(run.go(2000, 2500.0), None);
        assert_eq!(run.go(2 * LOOK, 100.0), None);
        assert_eq!(run.go(2000, 5000.0), None);
    }

    #[test]
    fn nor_near_the_end_nor_after_it() {
        let mut run = Run::new();
        assert_eq!(run.go(13_400, 5000.0), None);
        // The rest takes a fifth of a second at this rate.
        assert_eq!(run.go(20_000, 500.0), None);
        assert_eq!(run.upto, END as f64);
    }

    #[test]
    fn slow_from_the_start_is_known_by_what_others_made() {
        let mut run = Run::new();
        assert_eq!(run.go(20_000, 300.0), None, "there is nothing to compare with");
        let mut run = Run::new();
        for other in 2..6 {
            run.rates.begun(other);
            run.rates.ended(other, 0, END, 6000);
        }
        assert!(run.go(20_000, 300.0).is_some());
        // So it is by what the plan promised.
        for (promised, slow) in [(1000.0, false), (5000.0, true)] {
            let mut run = Run::new();
            run.speed.begin(0, 0, Some(promised));
            assert_eq!(run.go(20_000, 300.0).is_some(), slow);
        }
        // A repair that ended long ago is no measure.
        let mut run = Run::new();
        run.rates.begun(2);
        run.rates.ended(2, 0, END, 6000);
        (run.now, run.upto) = (REMEMBERED_MS + 1, 0.0);
        run.speed.begin(run.now, 0, None);
        assert_eq!(run.go(20_000, 300.0), None);
    }

    #[test]
    fn a_standstill_is_the_slowest_pace() {
        let mut run = Run::new();
        assert_eq!(run.go(3000, 5000.0), None);
        assert_eq!(run.go(60_000, 0.0).unwrap().rate, 0.0);
        let long = WINDOW_MS as f64 * LONG.0;
        assert!(run.now >= 3000 + STILL * long as u64, "silence is looked at first");
    }

    #[test]
    fn sharing_with_others_is_no_slowness() {
        let mut run = Run::new();
        assert_eq!(run.go(3000, 5000.0), None);
        (2..=6).for_each(|other| run.rates.begun(other));
        assert_eq!(run.go(20_000, 5000.0 / 6.0), None);
    }

    #[test]
    fn nor_is_a_rate_that_stays_when_others_have_ended() {
        let mut run = Run::new();
        (2..=20).for_each(|other| run.rates.begun(other));
        assert_eq!(run.go(20_000, 300.0), None);
        (2..=20).for_each(|other| run.rates.ended(other, run.now, END, 200_000));
        assert_eq!(run.go(20_000, 300.0), None);
        assert!(run.go(60_000, 30.0).is_some());
    }

    #[test]
    fn in_a_crowd_a_rate_is_measured_for_longer() {
        // Bytes come for one second in every ten.
        let mut run = Run::new();
        (2..=20).for_each(|other| run.rates.begun(other));
        for _ in 0..8 {
            assert_eq!(run.go(1000, 3000.0), None);
            assert_eq!(run.go(9000, 0.0), None);
        }
        assert!(run.go(60_000, 0.0).is_some());
    }

    #[test]
    fn a_repair_that_makes_breaks_is_measured_for_longer() {
        // Nothing for 200 ms, again and again: as on a machine that does many things at once.
        let mut run = Run::new();
        for _ in 0..20 {
            assert_eq!(run.go(100, 5000.0), None);
            assert_eq!(run.go(200, 0.0), None);
        }
        assert!(run.go(60_000, 100.0).is_some());
    }

    #[test]
    fn what_slows_all_alike_is_nobodys_fault_to_look_for_twice() {
        let mut run = Run::new();
        assert_eq!(run.go(3000, 5000.0), None);
        let slow = run.go(60_000, 500.0).unwrap();
        run.turn(slow);
        assert_eq!(run.go(60_000, 500.0), None, "the change brought nothing");
        // A change that helps keeps the expected rate, so that the next slow node is found too.
        let mut run = Run::new();
        assert_eq!(run.go(2000, 5000.0), None);
        let slow = run.go(60_000, 500.0).unwrap();
        run.turn(slow);
        assert_eq!(run.go(2000, 4500.0), None);
        assert!(run.go(60_000, 500.0).is_some());
    }

    #[test]
    fn a_node_that_others_keep_busy_is_not_slow() {
        let mut rates = RepairSpeeds::default();
        for (repair, nodes, rate) in
            [(1, [1, 2], 10.0), (2, [1, 3], 400.0), (3, [1, 4], 300.0), (4, [2, 4], 60.0)]
        {
            rates.begun(repair);
            rates.goes(repair, nodes.map(NodeId).into());
            rates.makes(repair, rate, true);
        }
        let busy = |node, told| rates.is_busy(NodeId(node), 1, told);
        assert!(busy(1, Some(3000.0)) && busy(1, None));
        // Its link can carry much more than that.
        assert!(!busy(1, Some(4000.0)));
        assert!(!busy(2, Some(3000.0)) && !busy(2, None));
        assert!(busy(2, Some(300.0)));
        // A node that no other repair uses is not busy, however slow this repair is.
        assert!(!rates.is_busy(NodeId(3), 2, Some(1.0)) && !busy(9, None));
        // A repair that began a moment ago counts with the rate of this one.
        assert!(!busy(2, Some(400.0)));
        rates.begun(5);
        rates.goes(5, vec![NodeId(2)]);
        assert!(rates.is_busy(NodeId(2), 1, Some(400.0)));
        // It counts with its own rate if that is higher.
        rates.makes(5, 100.0, false);
        assert!(rates.is_busy(NodeId(2), 1, Some(850.0)) && !rates.is_busy(NodeId(2), 1, Some(900.0)));
    }

    #[test]
    fn where_three_others_run_they_are_the_measure() {
        let mut rates = RepairSpeeds::default();
        for repair in 1..=4 {
            rates.begun(repair);
            rates.makes(repair, 400.0 * repair as f64, true);
        }
        assert_eq!(rates.usual(1, 0), Some(1200.0));
        rates.ended(4, 0, 1000, 10);
        assert_eq!(rates.usual(1, 0), Some(100.0), "two others are too few: those that ended");
    }
}
