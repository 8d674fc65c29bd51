//! Decides how fast repairs and other background work may be, so that users hardly notice them: a controller that holds
//! the 99th percentile (P99) of the times that clients report at a target. Without a target it only tells the P99.
//!
//! The target is a percentage above the usual P99, which is measured while no repair runs. Where one runs for long, or the
//! P99 stays far from all that is known, repairs pause (nearly) for two windows to measure it, because users may do something
//! else now. What they do in turns is remembered ([`levels`]). The first window after they changed says nothing, because it
//! has operations of both kinds.
//!
//! After each other window the limit of repairs is multiplied by a power of `aim / P99`: larger steps down than up.
//! The aim is the target less a margin, which grows with a window above the target and shrinks with each one below it, in
//! such a ratio that one in [`ONE_IN`] windows is above the target. It is never less than the noise of a window's P99 demands.
//! The limit is not raised while repairs do not use it.
//!
//! Invariants: the limit is never below the floor, but for measurements, nor above the ceiling; without a target, and while
//! a stripe is one loss from unreadable, it is the ceiling. Reads no clock.

mod levels;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::NodeId;
use kintsu_plan::Rates;
use kintsu_wire::message::{Counters, RepairLimit, Settings, WhyLimit};

use self::levels::{Found, Level, Levels};

/// A window lasts this long, in milliseconds, and longer if it has fewer than [`ENOUGH`] operations or if the P99 of such
/// windows varies much, up to [`LONGEST_MS`].
const WINDOW_MS: u64 = 5000;
const LONGEST_MS: u64 = 20_000;
/// This many standard deviations of a window's P99 (a logarithm) are to be at most this part of what it may rise by.
const DEVIATIONS: f64 = 2.5;
const OF_ROOM: f64 = 0.6;
/// Operations from which a P99 is worth something.
const ENOUGH: usize = 200;
/// With fewer operations in the longest window there are hardly any users.
const FEW: usize = 20;
/// Most operations of a window that are kept.
const KEPT: usize = 1 << 16;
/// Windows after which the usual P99 is measured again, and after which that may be done because the P99 rose far.
const LOOK_AFTER: u32 = 60;
const LOOK_EARLY: u32 = 4;
/// A jump from one window to the next (a logarithm): users do something else, or are more or fewer.
const JUMP: f64 = 0.25;
/// The part of the floor that repairs have while the usual P99 is measured.
const MEASURING: f64 = 0.1;
/// The part of a new measurement in the variance.
const NEWEST: f64 = 0.125;
/// How often the driver looks for stripes that are one loss from unreadable, in milliseconds.
const LOOK_MS: u64 = 4000;
/// The part of a limit from which it counts as used.
const USED: f64 = 0.7;

/// Exponents of `aim / P99`, down and up, and the largest steps.
const DOWN: f64 = 3.5;
const UP: f64 = 1.2;
const MOST_DOWN: f64 = 1.0 / 3.0;
const MOST_UP: f64 = 1.1;
/// The largest step while the limit has not yet been high enough to be felt.
const MOST_AT_FIRST: f64 = 1.5;

/// One in this many windows may be above the target.
const ONE_IN: f64 = 400.0;
/// How much one window above the target adds to the margin (a logarithm).
const MARGIN_STEP: f64 = 0.03;
/// The least, the first and the most of the way from the target to the usual P99 that the margin takes.
const LEAST_MARGIN: f64 = 0.06;
const FIRST_MARGIN: f64 = 0.33;
const MOST_MARGIN: f64 = 0.85;
/// The least margin in standard deviations of a window's P99.
const MARGIN_DEVIATIONS: f64 = 1.6;

/// The controller.
#[derive(Debug)]
pub struct GiveWay {
    settings: Settings,
    /// The times of users' operations in this window, in microseconds.
    micros: Vec<u32>,
    count: usize,
    began_ms: u64,
    /// What background work sent in this window, by node.
    carried: BTreeMap<NodeId, Carried>,
    phase: Phase,
    /// The limit that the target demands, in bytes a second.
    rate: f64,
    /// It was once high enough to be felt.
    felt: bool,
    /// The usual P99 of what users do.
    levels: Levels,
    /// The variance of the logarithm of the P99 of windows of [`WINDOW_MS`].
    variance: f64,
    /// How long the last window was, in milliseconds.
    long_ms: u64,
    /// A logarithm; `None` before the first window.
    margin: Option<f64>,
    /// Whether the last window was above the target.
    over: bool,
    /// The logarithm of the P99 of the last window, if repairs had the same kind of limit then.
    before: Option<f64>,
    /// Whether the last window said nothing because users changed in it.
    mixed: bool,
    /// The last windows that were at the floor, without a break.
    at_floor: u32,
    endangered: bool,
    /// When to look for endangered stripes.
    next_look_ms: u64,
    last: Last,
}

/// What a window is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Repairs have the limit of the controller.
    Holding,
    /// They pause, and operations that began before still end.
    Calming,
    /// They pause, and the usual P99 is measured.
    Looking,
}

/// The last window that said something.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    /// In microseconds; `None` without users.
    p99: Option<f64>,
    /// Bytes a second that background work sent at the busiest node.
    carried: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Carried {
    last: Counters,
    bytes: u64,
    ms: u64,
}

impl Carried {
    fn rate(&self) -> f64 {
        if self.ms == 0 { 0.0 } else { self.bytes as f64 * 1000.0 / self.ms as f64 }
    }
}

impl GiveWay {
    /// With these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            micros: Vec::new(),
            count: 0,
            began_ms: 0,
            carried: BTreeMap::new(),
            phase: Phase::Calming,
            rate: settings.repair_min_rate.get() as f64,
            felt: false,
            levels: Levels::default(),
            variance: 0.0,
            long_ms: WINDOW_MS,
            margin: None,
            over: false,
            before: None,
            mixed: false,
            at_floor: 0,
            endangered: false,
            next_look_ms: 0,
            last: Last::default(),
        }
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    /// The settings have changed.
    pub fn set(&mut self, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        if before.repair_target.is_none() && settings.repair_target.is_some() {
            let (carried, endangered) = (std::mem::take(&mut self.carried), self.endangered);
            *self = Self { carried, endangered, began_ms: self.began_ms, ..Self::new(settings) };
        }
        self.rate = self.within(self.rate);
    }

    /// Users' operations took this long, in microseconds.
    pub fn felt(&mut self, micros: &[u32]) {
        self.count += micros.len();
        let room = KEPT.saturating_sub(self.micros.len());
        self.micros.extend(micros.iter().take(room));
    }

    /// A heartbeat has told what background work of a node has carried.
    pub fn heard(&mut self, node: NodeId, counters: Counters) {
        let known = self.carried.entry(node).or_insert(Carried { last: counters, ..Carried::default() });
        let last = std::mem::replace(&mut known.last, counters);
        // What is sent keeps the limit at once; queues and reading ahead make the other ways uneven. An agent that has
        // started again counts from zero.
        known.bytes += counters.background.sent.saturating_sub(last.background.sent);
        known.ms += counters.at_ms.saturating_sub(last.at_ms);
    }

    /// A node is forgotten.
    pub fn forget(&mut self, node: NodeId) {
        self.carried.remove(&node);
    }

    /// Whether the driver is to find out now whether a stripe that is to be repaired is one loss from unreadable.
    pub fn asks_for_damage(&mut self, now_ms: u64) -> bool {
        let asks = self.settings.repair_target.is_some() && now_ms >= self.next_look_ms;
        if asks {
            self.next_look_ms = now_ms + LOOK_MS;
        }
        asks
    }

    /// Whether such a stripe was found.
    pub fn endangers(&mut self, endangered: bool) {
        self.endangered = endangered;
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        let long = now_ms.saturating_sub(self.began_ms);
        if long < self.window_ms() || (self.count < ENOUGH && long < LONGEST_MS) {
            return;
        }
        self.long_ms = long;
        let p99 = (self.count >= FEW).then(|| percentile(&mut self.micros)).flatten();
        let carried = self.carried.values().map(Carried::rate).fold(0.0, f64::max);
        (self.count, self.began_ms, self.last) = (0, now_ms, Last { p99, carried });
        self.micros.clear();
        self.carried.values_mut().for_each(|of| (of.bytes, of.ms) = (0, 0));
        if !self.endangered {
            self.decide();
        }
    }

    /// Bytes a second that background work may now send, receive and read on each node; `None`: as many as there is room
    /// for.
    pub fn rate(&self) -> Option<NonZeroU64> {
        let most = self.settings.repair_max_rate;
        if self.settings.repair_target.is_none() || self.endangered {
            return most;
        }
        let rate = if self.phase == Phase::Holding { self.rate } else { self.floor() * MEASURING };
        NonZeroU64::new(rate as u64).or(most)
    }

    /// Lowers the rates of these nodes' links to what background work will have of them when no measurement is under way.
    pub fn cap(&self, rates: &mut Rates, nodes: impl IntoIterator<Item = NodeId>) {
        let held = self.settings.repair_target.is_some() && !self.endangered;
        let held = held.then_some(self.rate as u64).and_then(NonZeroU64::new);
        let Some(most) = held.or(self.settings.repair_max_rate) else { return };
        for node in nodes {
            for of in [&mut rates.up, &mut rates.down] {
                let rate = of.entry(node).or_insert(most);
                *rate = most.min(*rate);
            }
        }
    }

    /// The limit and why it is so.
    pub fn standing(&self) -> RepairLimit {
        let rate = self.rate();
        let held = self.settings.repair_target.is_some() && !self.endangered;
        let why = match (held, rate) {
            (false, _) if self.settings.repair_target.is_some() => WhyLimit::Endangered,
            (false, None) => WhyLimit::Free,
            (false, Some(_)) => WhyLimit::MaxRate,
            (true, _) if self.phase != Phase::Holding => WhyLimit::Looking,
            (true, _) if self.last.p99.is_none() => WhyLimit::NoUsers,
            (true, _) => WhyLimit::Target,
        };
        let micros = |log: f64| log.exp() as u64;
        let usual = self.levels.now().map(|level| level.usual);
        RepairLimit {
            rate,
            why,
            sent: self.last.carried as u64,
            p99_us: self.last.p99.map(|p99| p99 as u64),
            usual_us: usual.map(micros),
            target_us: usual.zip(self.room()).map(|(usual, room)| micros(usual + room)),
        }
    }

    /// The logarithm of how much the P99 may rise.
    fn room(&self) -> Option<f64> {
        self.settings.repair_target.map(|percent| (1.0 + f64::from(percent.get()) / 100.0).ln())
    }

    /// How long a window must be so that noise is small beside what the P99 may rise by.
    fn window_ms(&self) -> u64 {
        let part = self.room().map_or(0.0, |room| DEVIATIONS * self.variance.sqrt() / (OF_ROOM * room));
        ((WINDOW_MS as f64 * part * part) as u64).clamp(WINDOW_MS, LONGEST_MS)
    }

    fn floor(&self) -> f64 {
        self.settings.repair_min_rate.get() as f64
    }

    fn within(&self, rate: f64) -> f64 {
        let most = self.settings.repair_max_rate.map_or(f64::MAX, |most| most.get() as f64);
        rate.clamp(self.floor(), most.max(self.floor()))
    }

    /// What follows from the window that has ended.
    fn decide(&mut self) {
        let Some(room) = self.room() else { return };
        let Last { p99, carried } = self.last;
        let Some(p99) = p99 else {
            // Nobody is disturbed.
            (self.phase, self.before) = (Phase::Holding, None);
            self.go(MOST_AT_FIRST, carried);
            return;
        };
        let p99 = p99.max(1.0).ln();
        let jumped = self.before.replace(p99).is_some_and(|before| (p99 - before).abs() > JUMP);
        match self.phase {
            Phase::Calming => self.phase = Phase::Looking,
            Phase::Looking => {
                self.learn(p99);
                (self.phase, self.before) = (Phase::Holding, None);
            }
            Phase::Holding => self.go_on(room, p99, carried, jumped),
        }
    }

    /// What follows from a window in which repairs had the limit.
    fn go_on(&mut self, room: f64, p99: f64, carried: f64, jumped: bool) {
        let found = self.levels.find(p99, room);
        let idle = carried <= self.floor() * 1.1 && carried < USED * self.rate;
        if let (Found::Other, Some(level)) = (found, self.levels.now()) {
            // Up only halfway, because what was found long ago may be too much now.
            self.rate = self.within(level.rate.min((level.rate * self.rate).sqrt()));
        }
        self.felt &= !idle;
        let was_mixed = std::mem::take(&mut self.mixed);
        self.mixed = !was_mixed && (jumped || found != Found::Same);
        if self.mixed {
            return;
        }
        if idle {
            self.learn(p99);
            return;
        }
        self.at_floor = if self.rate <= self.floor() { self.at_floor + 1 } else { 0 };
        if self.at_floor > 1 {
            // The floor is what repairs have in any case.
            self.learn(p99);
        }
        match self.levels.now().copied().filter(|level| !due(level, found, p99 - room, was_mixed)) {
            Some(level) => self.hold(level.usual, room, p99, carried),
            None => self.phase = Phase::Calming,
        }
        self.levels.held(self.rate);
    }

    /// The usual P99 was measured.
    fn learn(&mut self, p99: f64) {
        let Some(usual) = self.levels.learn(p99, self.rate) else { return };
        let square = (p99 - usual).powi(2) * self.long_ms as f64 / WINDOW_MS as f64;
        self.variance += (square - self.variance) * if self.variance == 0.0 { 1.0 } else { NEWEST };
    }

    /// Moves the limit towards the aim.
    fn hold(&mut self, usual: f64, room: f64, p99: f64, carried: f64) {
        let target = usual + room;
        let over = p99 > target;
        let mut margin = self.margin.unwrap_or(room * FIRST_MARGIN);
        // A limit that was too high for a while says nothing about noise.
        if !over || (self.felt && !self.over) {
            let step = if over { 1.0 - 1.0 / ONE_IN } else { -1.0 / ONE_IN };
            let most = room * MOST_MARGIN;
            let noise = (self.variance * WINDOW_MS as f64 / self.long_ms as f64).sqrt();
            let least = (MARGIN_DEVIATIONS * noise).max(room * LEAST_MARGIN);
            margin = (margin + MARGIN_STEP * step).clamp(least.min(most), most);
        }
        (self.margin, self.over) = (Some(margin), over);
        let left = target - margin - p99;
        if left < 0.0 {
            self.felt = true;
            // What is not used cannot be what users feel.
            self.rate = self.rate.min(carried.max(self.floor()) * 1.1);
            self.go((DOWN * left).exp().max(MOST_DOWN), carried);
        } else if self.felt {
            self.go((UP * left).exp().min(MOST_UP), carried);
        } else {
            self.go(MOST_AT_FIRST.powf((left / (room - margin)).min(1.0)), carried);
        }
    }

    /// Multiplies the limit by `factor`; it is raised only if it is used.
    fn go(&mut self, factor: f64, carried: f64) {
        if factor < 1.0 || carried >= USED * self.rate {
            self.rate = self.within(self.rate * factor);
        }
    }
}

/// Whether the usual P99 is to be measured: what was known is old, or `least`, a window's P99 less what it may rise by, is of no
/// level that is known, and was so in the window before.
fn due(level: &Level, found: Found, least: f64, was_mixed: bool) -> bool {
    let risen = was_mixed && least > level.usual + levels::OTHER;
    found == Found::Faster || level.since_look >= LOOK_AFTER || (risen && level.since_look >= LOOK_EARLY)
}

/// The 99th percentile.
fn percentile(micros: &mut [u32]) -> Option<f64> {
    let rank = (micros.len() * 99).div_ceil(100).checked_sub(1)?;
    Some(f64::from(*micros.select_nth_unstable(rank).1))
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns;
