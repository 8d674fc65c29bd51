//! Decides what the links of nodes and racks can carry, and how much of that users leave.
//!
//! The capacity of a link is what an operator set; else what a probe measured, or more, if more was seen; else what the
//! hardware negotiated. The foreground is what an interface or a disk carried, less what background work moved of all agents
//! that share it (`shared`). Planners get what is left: capacity less foreground.
//!
//! Agents of one host count the same interface, and agents on one file system the same disk. So each of them has the capacity and the
//! foreground of the whole, and planners do not know that these links are one. What agents of one host send each other does not pass
//! the interface, but counts as background: users there seem to take that much less than they do.
//!
//! The capacity of a disk is the most that it read and wrote together while background work kept it busy all the time. Users may
//! do so with small requests that say nothing of what it can carry. A disk that was never busy all the time has no known capacity: it
//! may carry more than was ever seen. A disk that serves many requests at once may carry more than its capacity says, which is
//! seen when repairs give it more to do.
//!
//! Users come in bursts, so what was seen of a link in the last seconds differs from what it will carry in the next ones. What all links differ
//! by chance is taken off before planners get it ([`Alike`]): a plan that follows bursts loads links unevenly.
//!
//! Nobody counts what passes the links of racks. What users take of them is bounded by what they take of the nodes' links
//! ([`Bandwidth::spare`]). That is near the truth where clients are in no rack, and too much where they are in the racks
//! of the nodes that they talk to. So only the schedulers of many repairs get it, and nothing is limited or expected by it.
//!
//! Invariants: a link or disk whose capacity is not known has no rate, so it counts as unlimited; one that has a rate keeps
//! at least a tenth of it, however busy users are, and the link of a rack half.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::Rates;
use kintsu_plan::many::Disks;
use kintsu_wire::message::{Counters, KnownLink, KnownRates, LinkEnd, RateSource, Way};

mod shared;

use super::median;
use shared::Background;
pub use shared::Place;

/// Counters that were read at shorter intervals say little.
const LEAST_INTERVAL_MS: u64 = 400;
/// The foreground is smoothed over this time: users' operations come in bursts, and plans that follow each of them load links unevenly.
const SMOOTHED_MS: f64 = 3000.0;
/// By [`Way`]: whether an agent counts bytes when it hands them to a buffer, so before they are carried.
const COUNTED_FIRST: [bool; 4] = [true, false, false, true];
/// The time in which buffers are emptied. What is still missing then was no more than a wrong estimate of the headers.
const BUFFERED_MS: f64 = 10_000.0;
/// Packets have headers, which the counters of an interface include and those of an agent do not.
const WITH_HEADERS: f64 = 1.06;
/// A disk that had requests for this part of the time had work all the time.
const BUSY: f64 = 0.9;
/// Background work had the disk if it told of this part of what the disk carried: at least half, and not much more than all, as
/// when it reads what is still in memory.
const OF_BACKGROUND: std::ops::RangeInclusive<f64> = 0.5..=2.0;
/// This part of a capacity is left to background work.
const LEAST_LEFT: u64 = 10;
/// The same where capacity or users are known roughly: of disks and of links of racks.
const LEAST_LEFT_OF_ROUGH: u64 = 2;

/// A link that never carried this many bytes a second is no busy one.
const QUIET: u64 = 1 << 20;
/// From so many links on is what they have in common known.
const LEAST_ALIKE: usize = 4;
/// The standard deviation of a normal distribution, in median absolute deviations.
const NORMAL: f64 = 1.4826;
/// Users that take less than this part of a capacity cannot be told from noise.
const NOISE: u64 = 16;

/// Four numbers of a node, by [`Way`].
type Flows = [f64; 4];
const WAYS: [Way; 4] = [Way::Up, Way::Down, Way::Read, Way::Write];

/// What is known of all links.
#[derive(Debug, Default)]
pub struct Bandwidth {
    nodes: BTreeMap<NodeId, NodeLinks>,
    racks: BTreeMap<RackId, Measured>,
    background: Background,
}

/// What a probe measured, in bytes a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Sending.
    pub up: Option<NonZeroU64>,
    /// Receiving.
    pub down: Option<NonZeroU64>,
}

#[derive(Debug, Default)]
struct NodeLinks {
    last: Option<Counters>,
    /// What all agents that share its interface and disk had moved in the background then, in bytes.
    background: Flows,
    /// Smoothed, before noise is taken off. `None` until two heartbeats have told it, or where nothing counts.
    foreground: [Option<Foreground>; 4],
    /// Bytes of background work that agents have counted and that were not seen to leave.
    buffered: Flows,
    /// The most that the interface carried between two heartbeats, up and down.
    most: [f64; 2],
    /// The most that the disk read and wrote together while it was busy all the time, in bytes a second.
    disk: Option<u64>,
    measured: Measured,
    /// Users took part of the link while it was measured, so it may carry more.
    disturbed: bool,
}

/// What users take, smoothed.
#[derive(Debug, Clone, Copy)]
struct Foreground {
    /// Bytes a second.
    rate: f64,
    /// The variance of what the rate was smoothed from.
    variance: f64,
    /// The sum of the squares of the weights with which that counts: one over the number of moments, if they count alike.
    squares: f64,
    /// For how long it has been seen, in milliseconds.
    seen_ms: f64,
}

impl Foreground {
    /// Nothing was seen yet.
    const UNSEEN: Self = Self { rate: 0.0, variance: 0.0, squares: 1.0, seen_ms: 0.0 };

    /// For this long users took so much. As long as little was seen, it is the average of all that was.
    fn seen(self, rate: f64, took_ms: f64) -> Self {
        let seen_ms = self.seen_ms + took_ms;
        let weight = (1.0 - (-took_ms / SMOOTHED_MS).exp()).max(took_ms / seen_ms);
        let off = rate - self.rate;
        Self {
            rate: self.rate + off * weight,
            variance: (1.0 - weight) * (self.variance + off * off * weight),
            squares: (1.0 - weight).powi(2) * self.squares + weight * weight,
            seen_ms,
        }
    }

    /// The variance of the rate itself, if what was seen of it tells.
    fn error(self) -> Option<f64> {
        let error = self.variance * self.squares / (1.0 - self.squares);
        error.is_finite().then_some(error)
    }
}

impl Bandwidth {
    /// A heartbeat has told the counters of a node, at this time of the coordinator.
    pub fn heard(&mut self, node: NodeId, counters: Counters, now_ms: u64) {
        let links = self.nodes.entry(node).or_default();
        let last = links.last.unwrap_or(counters);
        // 0 if the agent has started again.
        let took_ms = counters.at_ms.saturating_sub(last.at_ms);
        if (1..LEAST_INTERVAL_MS).contains(&took_ms) {
            return;
        }
        links.last = Some(counters);
        let (own, own_before) = (background(&counters), background(&last));
        let moved = std::array::from_fn(|way| own[way].saturating_sub(own_before[way]));
        self.background.told(node, now_ms, took_ms, moved);
        let all = self.background.all(node, now_ms);
        let before = std::mem::replace(&mut links.background, all);
        if took_ms > 0 {
            let background = std::array::from_fn(|way| (all[way] - before[way]).max(0.0));
            links.carried(&last, &counters, background);
        }
    }

    /// Where a node is.
    pub fn placed(&mut self, node: NodeId, place: Place) {
        if self.background.placed(node, place) {
            // It may count another interface or disk now.
            self.nodes.entry(node).or_default().last = None;
        }
    }

    /// A probe has measured the links of nodes and racks.
    pub fn measured(&mut self, nodes: BTreeMap<NodeId, Measured>, racks: BTreeMap<RackId, Measured>) {
        for (node, measured) in nodes {
            let links = self.nodes.entry(node).or_default();
            links.measured = measured;
            let rates = [measured.up, measured.down].into_iter().enumerate();
            links.disturbed = rates.fold(false, |so_far, (way, rate)| {
                so_far || rate.is_some_and(|rate| is_felt(links.users(way).unwrap_or(0), rate.get()))
            });
            // What was seen before may have been another link.
            links.most = [0.0; 2];
        }
        self.racks = racks;
    }

    /// These nodes are down: they have no users any more.
    pub fn down(&mut self, nodes: &BTreeSet<NodeId>) {
        for (_, links) in self.nodes.iter_mut().filter(|(node, _)| nodes.contains(node)) {
            links.foreground = [None; 4];
        }
    }

    /// A node is forgotten.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.background.forget(node);
    }

    /// Whether what a node can send and receive must be measured: no operator set it, no probe measured it while users left it
    /// alone, and its agent does not share its host's loopback with all others.
    pub fn is_open(&self, told: &Rates, node: NodeId) -> bool {
        let links = self.nodes.get(&node);
        let counts = links.and_then(|links| links.last).is_some_and(|last| last.link.is_some());
        let measured = links.is_some_and(|links| links.measured.up.is_some() && !links.disturbed);
        counts && !measured && !(told.up.contains_key(&node) && told.down.contains_key(&node))
    }

    /// Whether a probe measured what a node sends, be it beside users.
    pub fn was_measured(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|links| links.measured.up.is_some())
    }

    /// Whether users take so much of a node's link now that a probe would measure what they leave.
    pub fn is_busy(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|links| {
            (0..2).any(|way| {
                let known = [links.measured.up, links.measured.down][way].map_or(0, NonZeroU64::get);
                let carries = known.max(links.most[way] as u64).max(QUIET);
                is_felt(links.users(way).unwrap_or(0), carries)
            })
        })
    }

    /// What users leave of every link whose capacity is known. Links of racks count as idle.
    pub fn idle(&self, told: &Rates) -> Rates {
        self.left(told, true, |_| true)
    }

    /// The same, and of the links of racks only what users leave for sure, or half.
    pub fn spare(&self, told: &Rates) -> Rates {
        let mut spare = self.idle(told);
        if spare.rack_up.is_empty() && spare.rack_down.is_empty() {
            return spare;
        }
        let users = self.rack_users();
        for (way, of) in [(0, &mut spare.rack_up), (1, &mut spare.rack_down)] {
            for (rack, rate) in of {
                let users = users.get(rack).map_or(0, |users| users[way]);
                *rate = left_of(rate.get(), users, LEAST_LEFT_OF_ROUGH).unwrap_or(*rate);
            }
        }
        spare
    }

    /// What [`Bandwidth::idle`] has of links that were set, measured or seen to carry that much: what a repair may be expected to get.
    pub fn sure(&self, told: &Rates) -> Rates {
        self.left(told, true, |source| source != RateSource::Hardware)
    }

    /// All that these links carry.
    pub fn capacities(&self, told: &Rates) -> Rates {
        self.left(told, false, |_| true)
    }

    /// What users leave of disks, where that is less than what they leave of the node's link (`idle`): other disks are never what a
    /// repair waits for. Reading and writing share a disk, so both are what is left of it. Disks that agents share are left out: planners
    /// would take what such a disk carries for that of each of them.
    pub fn disks(&self, idle: &Rates) -> Disks {
        let mut disks = Disks::default();
        for (&node, links) in self.nodes.iter().filter(|(node, _)| !self.background.shares_disk(**node)) {
            let Some((capacity, _)) = links.capacity(None, 2) else { continue };
            let users = (2..4).filter_map(|way| links.users(way)).fold(0, u64::saturating_add);
            let rate = left_of(capacity, users, LEAST_LEFT_OF_ROUGH);
            let slower = |link: Option<&NonZeroU64>| rate.filter(|rate| link.is_some_and(|link| rate < link));
            disks.read.extend(slower(idle.up.get(&node)).map(|rate| (node, rate)));
            disks.write.extend(slower(idle.down.get(&node)).map(|rate| (node, rate)));
        }
        disks
    }

    fn left(&self, told: &Rates, by_users: bool, counts: impl Fn(RateSource) -> bool) -> Rates {
        let mut idle = told.clone();
        for (way, of) in [(0, &mut idle.up), (1, &mut idle.down)] {
            let alike = if by_users { Alike::of(self.nodes.values(), way) } else { Alike::default() };
            for (&node, links) in &self.nodes {
                let capacity =
                    links.capacity(of.get(&node).copied(), way).filter(|(_, source)| counts(*source));
                if let Some((capacity, _)) = capacity {
                    let users = links.foreground[way].filter(|_| by_users).map_or(0.0, |users| users.rate);
                    let users = alike.expected(users).max(0.0) as u64;
                    of.extend(left_of(capacity, users, LEAST_LEFT).map(|left| (node, left)));
                }
            }
        }
        for (&rack, measured) in &self.racks {
            for (rate, of) in [(measured.up, &mut idle.rack_up), (measured.down, &mut idle.rack_down)] {
                if let Some(rate) = rate {
                    of.entry(rack).or_insert(rate);
                }
            }
        }
        idle
    }

    /// The most that users may take of the links of racks, up and down, in bytes a second: all that they take of the links of
    /// the racks' hosts.
    fn rack_users(&self) -> BTreeMap<RackId, [u64; 2]> {
        let mut hosts: BTreeMap<(RackId, IpAddr), [u64; 2]> = BTreeMap::new();
        for (node, links) in &self.nodes {
            let Some(place) = self.background.place(*node) else { continue };
            let host = hosts.entry((place.rack, place.address)).or_default();
            for (way, most) in host.iter_mut().enumerate() {
                *most = links.users(way).unwrap_or(0).max(*most);
            }
        }
        let mut racks: BTreeMap<RackId, [u64; 2]> = BTreeMap::new();
        for ((rack, _), [up, down]) in hosts {
            let users = racks.entry(rack).or_default();
            *users = [users[0].saturating_add(up), users[1].saturating_add(down)];
        }
        racks
    }

    /// Everything that is known, for people.
    pub fn known(&self, told: &Rates) -> KnownRates {
        let mut links = Vec::new();
        let all = self.nodes.keys().chain(told.up.keys()).chain(told.down.keys());
        let none = NodeLinks::default();
        for &node in &all.copied().collect::<BTreeSet<_>>() {
            let of = self.nodes.get(&node).unwrap_or(&none);
            for (way, name) in WAYS.into_iter().enumerate() {
                let set = [&told.up, &told.down].get(way).and_then(|rates| rates.get(&node)).copied();
                let capacity = of.capacity(set, way);
                let foreground = of.users(way);
                if capacity.is_some() || foreground.is_some() {
                    links.push(KnownLink { end: LinkEnd::Node(node), way: name, capacity, foreground });
                }
            }
        }
        let one =
            |end, way, capacity, foreground| KnownLink { end, way, capacity: Some(capacity), foreground };
        let users = self.rack_users();
        let racks = told.rack_up.keys().chain(told.rack_down.keys()).chain(self.racks.keys());
        for &rack in &racks.copied().collect::<BTreeSet<_>>() {
            let measured = self.racks.get(&rack).copied().unwrap_or_default();
            let users = users.get(&rack).copied();
            for (way, set, measured, users) in [
                (Way::Up, told.rack_up.get(&rack), measured.up, users.map(|[up, _]| up)),
                (Way::Down, told.rack_down.get(&rack), measured.down, users.map(|[_, down]| down)),
            ] {
                let set = set.map(|rate| (rate.get(), RateSource::Set));
                let capacity = set.or(measured.map(|rate| (rate.get(), RateSource::Measured)));
                links.extend(capacity.map(|capacity| one(LinkEnd::Rack(rack), way, capacity, users)));
            }
        }
        let pair = |((from, to), rate): (&(NodeId, NodeId), &NonZeroU64)| {
            one(LinkEnd::Pair(*from, *to), Way::Up, (rate.get(), RateSource::Set), None)
        };
        links.extend(told.pairs.iter().map(pair));
        KnownRates { links }
    }
}

impl NodeLinks {
    /// What interface and disk carried between two heartbeats, of which `background` bytes were background work of all agents
    /// that share them.
    fn carried(&mut self, last: &Counters, counters: &Counters, background: Flows) {
        let took_ms = counters.at_ms.saturating_sub(last.at_ms);
        let (all, all_before) = (total(counters), total(last));
        let kept = (-(took_ms as f64) / BUFFERED_MS).exp();
        for way in 0..WAYS.len() {
            let (Some(now), Some(before)) = (all[way], all_before[way]) else {
                self.foreground[way] = None;
                continue;
            };
            // A counter that goes back belongs to another interface.
            let Some(carried) = now.checked_sub(before) else { continue };
            let second = |bytes: f64| bytes * 1000.0 / took_ms as f64;
            let rate = second(carried as f64);
            // May be negative where an agent counts what the interface carried a little before.
            let mut users = rate - second(background[way]) * WITH_HEADERS;
            if COUNTED_FIRST[way] {
                let less = users - second(self.buffered[way]);
                self.buffered[way] = (-less).max(0.0) * took_ms as f64 / 1000.0 * kept;
                users = less.max(0.0);
            }
            let before = self.foreground[way].unwrap_or(Foreground::UNSEEN);
            self.foreground[way] = Some(before.seen(users, took_ms as f64));
            if let Some(most) = self.most.get_mut(way) {
                *most = most.max(rate);
            }
        }
        // What a disk was seen to carry it can carry, whoever wanted it.
        let carried = carried_by_disk(last, counters).filter(|_| self.disk.is_some());
        self.disk = self.disk.max(carried).max(full_disk(last, counters, background));
    }

    /// What others than background work have carried lately, in bytes a second.
    fn users(&self, way: usize) -> Option<u64> {
        self.foreground[way].map(|users| users.rate.max(0.0) as u64)
    }

    fn capacity(&self, set: Option<NonZeroU64>, way: usize) -> Option<(u64, RateSource)> {
        if let Some(set) = set {
            return Some((set.get(), RateSource::Set));
        }
        if way >= 2 {
            return self.disk.map(|rate| (rate, RateSource::Seen));
        }
        let seen = self.most[way] as u64;
        match [self.measured.up, self.measured.down][way].map(NonZeroU64::get) {
            Some(measured) if seen > measured => Some((seen, RateSource::Seen)),
            Some(measured) => Some((measured, RateSource::Measured)),
            // It may never have been busy.
            None => {
                let speed = self.last.and_then(|last| last.link).and_then(|link| link.speed);
                speed.map(|speed| (speed, RateSource::Hardware))
            }
        }
    }
}

/// How far what users take of links in one direction differs, and how much of that is chance: moments of bursts.
#[derive(Debug, Clone, Copy, Default)]
struct Alike {
    median: f64,
    /// The part of the variance over all links that is chance. Some links that are much busier do not count.
    chance: f64,
    /// The standard error of what is known of a link.
    error: f64,
}

impl Alike {
    fn of<'a>(nodes: impl Iterator<Item = &'a NodeLinks>, way: usize) -> Self {
        let known = nodes.filter_map(|links| links.foreground[way]);
        let (rates, errors): (Vec<f64>, Vec<f64>) =
            known.filter_map(|users| Some((users.rate, users.error()?))).unzip();
        let Some(middle) = median(rates.clone()).filter(|_| rates.len() >= LEAST_ALIKE) else {
            return Self::default();
        };
        let off = median(rates.into_iter().map(|rate| (rate - middle).abs()).collect());
        let deviation = off.map_or(0.0, |off| NORMAL * off);
        let error = (errors.iter().sum::<f64>() / errors.len() as f64).sqrt();
        let chance = if deviation > error { (error / deviation).powi(2) } else { 1.0 };
        Self { median: middle, chance, error }
    }

    /// What users of a link are expected to take that took so much: what all links differ by chance is taken off (James and Stein, 1961), but never
    /// more than one standard error (Efron and Morris, 1972), so that a link that is much busier than all others stays so.
    fn expected(self, rate: f64) -> f64 {
        rate + ((self.median - rate) * self.chance).clamp(-self.error, self.error)
    }
}

/// Whether what users take of a capacity can be told from noise.
fn is_felt(users: u64, capacity: u64) -> bool {
    users.saturating_mul(NOISE) > capacity
}

/// What users leave of a capacity: all, if what they take cannot be told from noise, and one `least`th at least.
fn left_of(capacity: u64, users: u64, least: u64) -> Option<NonZeroU64> {
    let users = if is_felt(users, capacity) { users } else { 0 };
    NonZeroU64::new(capacity.saturating_sub(users).max(capacity / least))
}

/// What the disk read and wrote between two heartbeats, in bytes a second.
fn carried_by_disk(last: &Counters, now: &Counters) -> Option<u64> {
    let ((read, written), (read_before, written_before)) = (now.disk?, last.disk?);
    let carried = read.checked_sub(read_before)?.saturating_add(written.checked_sub(written_before)?);
    carried.saturating_mul(1000).checked_div(now.at_ms.saturating_sub(last.at_ms))
}

/// The same if `background` work kept the disk busy all the time.
fn full_disk(last: &Counters, now: &Counters, background: Flows) -> Option<u64> {
    let took_ms = now.at_ms.saturating_sub(last.at_ms) as f64;
    let busy_ms = now.disk_busy_ms?.checked_sub(last.disk_busy_ms?)?;
    let rate = carried_by_disk(last, now)?;
    let carried = rate as f64 * took_ms / 1000.0;
    let was_full = carried > 0.0 && busy_ms as f64 >= BUSY * took_ms;
    let by_background = OF_BACKGROUND.contains(&((background[2] + background[3]) / carried));
    (was_full && by_background).then_some(rate)
}

/// What interface and disk have carried, by way.
fn total(counters: &Counters) -> [Option<u64>; 4] {
    let Counters { link, disk, .. } = counters;
    [
        link.map(|link| link.sent),
        link.map(|link| link.received),
        disk.map(|(read, _)| read),
        disk.map(|(_, written)| written),
    ]
}

/// The part of it that was background work.
fn background(counters: &Counters) -> [u64; 4] {
    let of = counters.background;
    [of.sent, of.received, of.read, of.written]
}

#[cfg(test)]
mod tests;
