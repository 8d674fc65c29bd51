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

use shared::Background;
pub use shared::Place;

/// Counters that were read at shorter intervals say little.
const LEAST_INTERVAL_MS: u64 = 400;
/// The time over which the foreground is smoothed.
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
    foreground: [Option<f64>; 4],
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
            links.carried(&last, &counters, std::array::from_fn(|way| (all[way] - before[way]).max(0.0)));
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
        for (&node, links) in &self.nodes {
            for (way, of) in [(0, &mut idle.up), (1, &mut idle.down)] {
                let capacity =
                    links.capacity(of.get(&node).copied(), way).filter(|(_, source)| counts(*source));
                if let Some((capacity, _)) = capacity {
                    let users = links.users(way).filter(|_| by_users).unwrap_or(0);
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
        let weight = 1.0 - (-(took_ms as f64) / SMOOTHED_MS).exp();
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
            let smoothed = self.foreground[way].map_or(users, |old| old + (users - old) * weight);
            self.foreground[way] = Some(smoothed);
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
        self.foreground[way].map(|rate| rate.max(0.0) as u64)
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
mod tests {
    use super::*;
    use kintsu_wire::message::{LinkCounters, Moved};

    const NODE: NodeId = NodeId(1);

    fn counters(at_ms: u64, sent: u64, repair: u64) -> Counters {
        Counters {
            at_ms,
            link: Some(LinkCounters { sent, received: 0, speed: None }),
            disk: None,
            disk_busy_ms: None,
            background: Moved { sent: repair, ..Moved::default() },
        }
    }

    /// A heartbeat that comes when the agent's clock says.
    fn hear(it: &mut Bandwidth, node: NodeId, counters: Counters) {
        it.heard(node, counters, counters.at_ms);
    }

    fn place(host: u8) -> Place {
        Place { rack: RackId(0), address: [10, 0, 0, host].into(), medium: Some(u64::from(host)) }
    }

    fn rate(rate: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(rate)
    }

    #[test]
    fn users_have_what_repairs_did_not_carry() {
        let mut it = Bandwidth::default();
        let told = Rates::even([NODE], rate(10_000).unwrap());
        hear(&mut it, NODE, counters(1000, 0, 0));
        assert_eq!(it.idle(&told), told);
        // 4000 bytes in a second; 1000 of them, and their headers, were a repair.
        hear(&mut it, NODE, counters(2000, 4000, 1000));
        assert_eq!(it.idle(&told).up[&NODE], rate(10_000 - 2940).unwrap());
        assert_eq!(it.capacities(&told), told);
        // A whole minute of heavy use: a tenth is left.
        hear(&mut it, NODE, counters(62_000, 4000 + 60 * 20_000, 1000));
        assert_eq!(it.idle(&told).up[&NODE], rate(1000).unwrap());
        // The agent starts again: its clock goes back, and nothing is concluded.
        hear(&mut it, NODE, counters(500, 10, 0));
        hear(&mut it, NODE, counters(1500, 10, 0));
        let left = it.idle(&told).up[&NODE].get();
        assert!((1000..10_000).contains(&left), "{left}");
    }

    #[test]
    fn what_leaves_a_buffer_after_a_repair_is_no_user() {
        let mut it = Bandwidth::default();
        let told = Rates::even([NODE], rate(10_000).unwrap());
        hear(&mut it, NODE, counters(1000, 0, 0));
        // 10,000 bytes of a repair are handed over in a second. Half of them, with headers, leave in the next one.
        hear(&mut it, NODE, counters(2000, 5_300, 10_000));
        hear(&mut it, NODE, counters(3000, 10_000, 10_000));
        assert_eq!(it.idle(&told), told);
        // Then somebody else sends.
        hear(&mut it, NODE, counters(4000, 20_000, 10_000));
        assert!(it.idle(&told).up[&NODE].get() < 8000);
    }

    /// Bytes that something has moved by now which moves `rate` bytes a second between these times, in milliseconds.
    fn moved(rate: u64, (from, to): (u64, u64), now_ms: u64) -> u64 {
        (now_ms.clamp(from, to) - from) * rate / 1000
    }

    /// Interface and disk have carried this in each direction, and background work was a part of it.
    fn both_ways(at_ms: u64, carried: u64, part: u64) -> Counters {
        Counters {
            at_ms,
            link: Some(LinkCounters { sent: carried, received: carried, speed: None }),
            disk: Some((carried, carried)),
            disk_busy_ms: None,
            background: Moved { sent: part, received: part, read: part, written: part },
        }
    }

    #[test]
    fn agents_that_share_a_link_and_a_disk_do_not_take_each_others_repairs_for_users() {
        let mut it = Bandwidth::default();
        let [one, two, apart] = [1, 2, 3].map(NodeId);
        for (node, host) in [(one, 1), (two, 1), (apart, 2)] {
            it.placed(node, place(host));
        }
        // Both repair for a while; the second one is killed while it does. Users move 10,000 bytes a second everywhere.
        let of_one = |now_ms| moved(20_000, (10_000, 20_000), now_ms);
        let of_two = |now_ms| moved(40_000, (5000, 29_300), now_ms);
        let users = |now_ms: u64| now_ms * 10;
        let host = |now_ms| users(now_ms) + (of_one(now_ms) + of_two(now_ms)) * 106 / 100;
        let mut off = BTreeMap::new();
        for s in 1..60_u64 {
            // Heartbeats come a little late, and agents have clocks of their own.
            let late_ms = [0, 130, 40, 210][s as usize % 4];
            let (first, second) = (1000 * s + late_ms, 1000 * s + 700 - late_ms);
            it.heard(one, both_ways(first, host(first), of_one(first)), first);
            it.heard(apart, both_ways(first, users(first), 0), first);
            if second < 29_300 {
                it.heard(two, both_ways(second + 77_000, host(second), of_two(second)), second);
            }
            if s > 2 {
                let off_by = |node: NodeId| {
                    let off_by = |way| it.nodes[&node].users(way).unwrap().abs_diff(10_000);
                    (0..4).map(off_by).max().unwrap()
                };
                off.insert(s, [one, two, apart].map(off_by));
            }
        }
        let most =
            |from: u64, to: u64, node: usize| off.range(from..to).map(|(_, of)| of[node]).max().unwrap();
        assert!(most(3, 60, 2) < 100, "a host of its own: {off:?}");
        assert!(most(3, 5, 0) < 100 && most(15, 20, 0) < 1000 && most(15, 20, 1) < 1000, "{off:?}");
        assert!(most(25, 29, 1) < 1000 && most(50, 60, 0) < 1000, "{off:?}");
        // A repair that has just begun or ended is not told yet: at most its bytes of a second, smoothed.
        assert!(most(3, 60, 0) < 13_000 && most(3, 29, 1) < 13_000, "{off:?}");
    }

    #[test]
    fn an_agent_that_comes_or_is_forgotten_hides_no_users() {
        let (mut it, mut most) = (Bandwidth::default(), 0);
        let [here, guest] = [1, 2].map(NodeId);
        it.placed(here, place(1));
        it.placed(guest, place(2));
        for s in 1..40_u64 {
            let now_ms = 1000 * s;
            let repaired = 100_000 * (s.clamp(10, 19) - 10);
            let carried = 10_000 * s + repaired * 106 / 100;
            match s {
                // It does much where it is.
                1..10 => it.heard(guest, both_ways(now_ms, s << 32, s << 32), now_ms),
                10..20 => {
                    it.placed(guest, place(1));
                    it.heard(guest, both_ways(now_ms, carried, (10 << 32) + repaired), now_ms);
                }
                _ => it.forget(guest),
            }
            it.heard(here, both_ways(now_ms, carried, 0), now_ms);
            if s > 2 {
                let off_by = |way| it.nodes[&here].users(way).unwrap().abs_diff(10_000);
                most = (0..4).map(off_by).fold(most, u64::max);
            }
        }
        assert!(most < 100, "{most}");
    }

    #[test]
    fn a_capacity_comes_from_the_best_source() {
        let mut it = Bandwidth::default();
        let none = Rates::default();
        hear(&mut it, NODE, counters(1000, 0, 0));
        hear(&mut it, NODE, counters(2000, 500, 0));
        assert!(it.is_open(&none, NODE));
        assert_eq!(it.idle(&none), none, "a link that carried little may carry more");
        it.measured([(NODE, Measured { up: rate(8000), down: rate(4000) })].into(), BTreeMap::new());
        assert!(!it.is_open(&none, NODE));
        let source = |it: &Bandwidth, told: &Rates| it.known(told).links[0].capacity.unwrap();
        assert_eq!(source(&it, &none), (8000, RateSource::Measured));
        assert_eq!(it.idle(&none).down[&NODE], rate(4000).unwrap());
        hear(&mut it, NODE, counters(3000, 9500, 9000));
        assert_eq!(source(&it, &none), (9000, RateSource::Seen));
        let told = Rates::even([NODE], rate(7000).unwrap());
        assert_eq!(source(&it, &told), (7000, RateSource::Set));
        it.forget(NODE);
        assert_eq!(it.idle(&none), none);
    }

    #[test]
    fn a_link_that_users_took_part_of_is_measured_again() {
        let (mut it, none) = (Bandwidth::default(), Rates::default());
        let mib = |count: u64| count << 20;
        hear(&mut it, NODE, counters(1000, 0, 0));
        assert!(!it.is_busy(NODE), "nothing is known");
        hear(&mut it, NODE, counters(2000, mib(3), 0));
        assert!(it.is_busy(NODE));
        let measured = |up| [(NODE, Measured { up: rate(up), down: rate(up) })].into();
        it.measured(measured(mib(3)), BTreeMap::new());
        assert!(it.is_open(&none, NODE) && it.is_busy(NODE));
        hear(&mut it, NODE, counters(32_000, mib(3), 0));
        assert!(it.is_open(&none, NODE) && !it.is_busy(NODE), "they have ended");
        it.measured(measured(mib(6)), BTreeMap::new());
        assert!(!it.is_open(&none, NODE));
        // A little of a fast link does not matter.
        hear(&mut it, NODE, counters(33_000, mib(4), 0));
        it.measured(measured(mib(1000)), BTreeMap::new());
        assert!(!it.is_open(&none, NODE) && !it.is_busy(NODE));
    }

    #[test]
    fn a_disk_is_known_by_what_it_carried_while_it_was_busy_and_counts_where_it_is_slower_than_the_link() {
        let mut it = Bandwidth::default();
        let links = |rate| Rates::even([NODE], NonZeroU64::new(rate).unwrap());
        let disks = |it: &Bandwidth, links: &Rates| {
            let disks = it.disks(links);
            let of = |of: BTreeMap<NodeId, NonZeroU64>| of.get(&NODE).map(|rate| rate.get());
            (of(disks.read), of(disks.write))
        };
        let (mut read, mut written, mut busy_ms) = (0, 0, 0);
        let mut second = |it: &mut Bandwidth, at: u64, users: u64, repair: u64, busy: u64| {
            (read, written, busy_ms) = (read + users + repair, written + 1000, busy_ms + busy);
            let background = Moved { read: at * repair, written: at * 1000, ..Moved::default() };
            let (disk, disk_busy_ms) = (Some((read, written)), Some(busy_ms));
            hear(it, NODE, Counters { at_ms: at * 1000, link: None, disk, disk_busy_ms, background });
        };
        // It carries little, and could carry more.
        (1..3).for_each(|at| second(&mut it, at, 0, 4000, 500));
        assert_eq!(disks(&it, &links(100_000)), (None, None));
        assert!(it.known(&Rates::default()).links.iter().all(|link| link.capacity.is_none()));
        // Repairs keep it busy: 9000 bytes a second in all.
        second(&mut it, 3, 4000, 4000, 950);
        let (read, written) = disks(&it, &links(100_000));
        assert!(read == written && read.is_some_and(|left| (4500..9000).contains(&left)), "{read:?}");
        assert_eq!(disks(&it, &links(800)), (None, None), "a slower link");
        assert_eq!(disks(&it, &Rates::default()), (None, None), "a link that nobody knows");
        // Users have ended.
        (4..60).for_each(|at| second(&mut it, at, 0, 4000, 100));
        assert_eq!(disks(&it, &links(100_000)), (Some(9000), Some(9000)));
        let seen = it.known(&Rates::default()).links;
        let seen = seen.iter().find(|link| link.way == Way::Read).unwrap().capacity;
        assert_eq!(seen, Some((9000, RateSource::Seen)));
        // Another agent uses the disk too.
        for node in [NODE, NodeId(NODE.0 + 1)] {
            it.placed(node, Place { medium: Some(1), ..place(node.0 as u8) });
        }
        assert_eq!(it.disks(&links(100_000)), Disks::default());
    }

    #[test]
    fn a_disk_that_users_keep_busy_with_little_has_no_known_capacity() {
        let mut it = Bandwidth::default();
        let mut told =
            Counters { at_ms: 1000, disk: Some((0, 0)), disk_busy_ms: Some(0), ..Counters::default() };
        hear(&mut it, NODE, told);
        // A second in which the disk is busy.
        let mut carried = |bytes: u64, repair: u64| {
            told.at_ms += 1000;
            told.disk = told.disk.map(|(read, written)| (read + bytes, written));
            told.disk_busy_ms = told.disk_busy_ms.map(|busy_ms| busy_ms + 1000);
            told.background.read += repair;
            hear(&mut it, NODE, told);
            let links = it.known(&Rates::default()).links;
            links.iter().find(|link| link.way == Way::Read).and_then(|link| link.capacity)
        };
        assert_eq!(carried(4000, 0), None, "users read here and there");
        assert_eq!(carried(4000, 1900), None, "and still do most of the work");
        assert_eq!(carried(4000, 1 << 30), None, "the repair reads what is in memory");
        assert_eq!(carried(500_000, 400_000), Some((500_000, RateSource::Seen)));
        assert_eq!(carried(4000, 3000), Some((500_000, RateSource::Seen)));
        assert_eq!(carried(900_000, 0), Some((900_000, RateSource::Seen)), "users show that it can do more");
    }

    #[test]
    fn what_users_take_of_nodes_they_may_take_of_racks() {
        let mut it = Bandwidth::default();
        let nodes = [1, 2, 3].map(NodeId);
        let of_rack = |rate| [(RackId(0), NonZeroU64::new(rate).unwrap())].into();
        let told = Rates { rack_up: of_rack(20_000), ..Rates::even(nodes, rate(10_000).unwrap()) };
        // Nodes 2 and 3 are agents of one host.
        for (node, host) in nodes.into_iter().zip([1, 2, 2]) {
            it.placed(node, place(host));
            hear(&mut it, node, counters(1000, 0, 0));
            hear(&mut it, node, counters(2000, 2000, 0));
        }
        let left = |it: &Bandwidth, told: &Rates| it.spare(told).rack_up[&RackId(0)].get();
        assert_eq!(left(&it, &told), 16_000);
        for known in [it.idle(&told), it.sure(&told), it.capacities(&told)] {
            assert_eq!(known.rack_up, told.rack_up, "nobody counts it");
        }
        let narrow = Rates { rack_up: of_rack(3000), ..told.clone() };
        assert_eq!(left(&it, &narrow), 1500);
        let known = it.known(&told).links;
        let rack = known.iter().find(|link| link.end == LinkEnd::Rack(RackId(0))).unwrap();
        assert_eq!((rack.capacity, rack.foreground), (Some((20_000, RateSource::Set)), Some(4000)));
        // The users of node 1 have ended.
        hear(&mut it, NodeId(1), counters(12_000, 2000, 0));
        assert!((17_900..=18_000).contains(&left(&it, &told)), "{}", left(&it, &told));
        // The other host is dead.
        it.down(&[2, 3].map(NodeId).into());
        assert_eq!(left(&it, &told), 20_000);
    }

    #[test]
    fn a_little_more_use_of_each_host_is_a_little_more_of_the_rack() {
        let left = |used: u64| {
            let mut it = Bandwidth::default();
            for host in 0..20 {
                let node = NodeId(u32::from(host));
                it.placed(node, place(host));
                hear(&mut it, node, counters(1000, 0, 0));
                hear(&mut it, node, counters(2000, used, 0));
            }
            let nodes = Rates::even((0..20).map(NodeId), rate(10_000).unwrap());
            let told = Rates { rack_up: [(RackId(0), rate(40_000).unwrap())].into(), ..nodes };
            it.spare(&told).rack_up[&RackId(0)].get()
        };
        // A sixteenth of a host's link is 625.
        assert_eq!([100, 600, 650].map(left), [40_000, 28_000, 27_000]);
    }

    #[test]
    fn repairs_of_other_agents_of_the_host_are_no_users_of_its_rack() {
        let mut it = Bandwidth::default();
        let [idle, repairs] = [1, 2].map(NodeId);
        it.placed(idle, place(1));
        it.placed(repairs, place(1));
        for at_ms in [1000, 2000, 3000] {
            let (repaired, carried) = (at_ms * 5, at_ms * 5 * 106 / 100);
            hear(&mut it, repairs, counters(at_ms, carried, repaired));
            hear(&mut it, idle, counters(at_ms, carried, 0));
        }
        let nodes = Rates::even([idle, repairs], rate(10_000).unwrap());
        let told = Rates { rack_up: [(RackId(0), rate(10_000).unwrap())].into(), ..nodes };
        assert_eq!(it.spare(&told), told);
    }

    #[test]
    fn no_number_of_an_agent_is_too_large() {
        let mut it = Bandwidth::default();
        for node in [1, 2].map(NodeId) {
            it.placed(node, place(node.0 as u8));
            for at_ms in [1000, 2000] {
                let counted = (at_ms - 1000) * (u64::MAX / 1000);
                let link = LinkCounters { sent: counted, received: counted, speed: None };
                let background =
                    Moved { read: counted / 10 * 3, written: counted / 10 * 3, ..Moved::default() };
                hear(
                    &mut it,
                    node,
                    Counters {
                        at_ms,
                        link: Some(link),
                        disk: Some((counted, counted)),
                        disk_busy_ms: Some(at_ms),
                        background,
                    },
                );
            }
        }
        let nodes = Rates::even([1, 2].map(NodeId), rate(u64::MAX).unwrap());
        let told = Rates { rack_up: [(RackId(0), rate(1000).unwrap())].into(), ..nodes };
        assert_eq!(it.spare(&told).rack_up[&RackId(0)], rate(500).unwrap());
        assert!(it.known(&told).links.iter().any(|link| link.foreground == Some(u64::MAX)));
        it.disks(&told);
    }

    #[test]
    fn what_was_set_for_racks_is_not_replaced_by_what_was_measured() {
        let mut it = Bandwidth::default();
        let measured = Measured { up: rate(5), down: rate(6) };
        it.measured(BTreeMap::new(), [(RackId(0), measured)].into());
        let told = Rates { rack_up: [(RackId(0), rate(9).unwrap())].into(), ..Rates::default() };
        let idle = it.idle(&told);
        assert_eq!(
            (idle.rack_up[&RackId(0)], idle.rack_down[&RackId(0)]),
            (rate(9).unwrap(), rate(6).unwrap())
        );
        let sources: Vec<_> = it.known(&told).links.iter().map(|link| link.capacity.unwrap().1).collect();
        assert_eq!(sources, [RateSource::Set, RateSource::Measured]);
    }
}
