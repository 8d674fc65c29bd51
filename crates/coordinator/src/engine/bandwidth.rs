//! Decides what the links of nodes and racks can carry, and how much of that users leave.
//!
//! The capacity of a link is what an operator set; else what a probe measured, or more, if more was seen; else what the
//! hardware negotiated. The foreground is what an interface carried, less what background work of its agent moved.
//! Planners get what is left: capacity less foreground.
//!
//! Invariants: a link whose capacity is not known has no rate, so it counts as unlimited; a link that has one keeps
//! at least a tenth of it, however busy users are.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};
use kintsu_plan::Rates;
use kintsu_wire::message::{Counters, KnownLink, KnownRates, LinkEnd, RateSource, Way};

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
/// This part of a link's capacity is left to background work.
const LEAST_LEFT: u64 = 10;

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
    /// Smoothed, before noise is taken off. `None` until two heartbeats have told it, or where nothing counts.
    foreground: [Option<f64>; 4],
    /// Bytes of background work that agents have counted and that were not seen to leave.
    buffered: Flows,
    /// The most that was carried between two heartbeats.
    most: Flows,
    measured: Measured,
    /// Users took part of the link while it was measured, so it may carry more.
    disturbed: bool,
}

impl Bandwidth {
    /// A heartbeat has told the counters of a node.
    pub fn heard(&mut self, node: NodeId, counters: Counters) {
        let links = self.nodes.entry(node).or_default();
        let Some(last) = links.last else {
            links.last = Some(counters);
            return;
        };
        let took_ms = counters.at_ms.saturating_sub(last.at_ms);
        if counters.at_ms > last.at_ms && took_ms < LEAST_INTERVAL_MS {
            return;
        }
        links.last = Some(counters);
        if took_ms == 0 {
            // The agent has started again.
            return;
        }
        let (all, own) = (total(&counters), background(&counters));
        let (all_before, own_before) = (total(&last), background(&last));
        let weight = 1.0 - (-(took_ms as f64) / SMOOTHED_MS).exp();
        let kept = (-(took_ms as f64) / BUFFERED_MS).exp();
        for way in 0..WAYS.len() {
            let (Some(now), Some(before)) = (all[way], all_before[way]) else {
                links.foreground[way] = None;
                continue;
            };
            // A counter that goes back belongs to another interface.
            let Some(carried) = now.checked_sub(before) else { continue };
            let second = |bytes: f64| bytes * 1000.0 / took_ms as f64;
            let rate = second(carried as f64);
            let repair = second(own[way].saturating_sub(own_before[way]) as f64) * WITH_HEADERS;
            // May be negative where an agent counts what the interface carried a little before.
            let mut users = rate - repair;
            if COUNTED_FIRST[way] {
                let less = users - second(links.buffered[way]);
                links.buffered[way] = (-less).max(0.0) * took_ms as f64 / 1000.0 * kept;
                users = less.max(0.0);
            }
            let smoothed = links.foreground[way].map_or(users, |old| old + (users - old) * weight);
            links.foreground[way] = Some(smoothed);
            links.most[way] = links.most[way].max(rate);
        }
    }

    /// A probe has measured the links of nodes and racks.
    pub fn measured(&mut self, nodes: BTreeMap<NodeId, Measured>, racks: BTreeMap<RackId, Measured>) {
        for (node, measured) in nodes {
            let links = self.nodes.entry(node).or_default();
            links.measured = measured;
            let rates = [measured.up, measured.down].into_iter().enumerate();
            links.disturbed = rates.fold(false, |so_far, (way, rate)| {
                so_far || rate.is_some_and(|rate| links.users(way).unwrap_or(0) * NOISE > rate.get())
            });
            // What was seen before may have been another link.
            (links.most[0], links.most[1]) = (0.0, 0.0);
        }
        self.racks = racks;
    }

    /// A node is forgotten.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
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
                links.users(way).unwrap_or(0) * NOISE > carries
            })
        })
    }

    /// What users leave of every link whose capacity is known.
    pub fn idle(&self, told: &Rates) -> Rates {
        self.left(told, true, |_| true)
    }

    /// The same of links that were set, measured or seen to carry that much: what a repair may be expected to get.
    pub fn sure(&self, told: &Rates) -> Rates {
        self.left(told, true, |source| source != RateSource::Hardware)
    }

    /// All that these links carry.
    pub fn capacities(&self, told: &Rates) -> Rates {
        self.left(told, false, |_| true)
    }

    fn left(&self, told: &Rates, by_users: bool, counts: impl Fn(RateSource) -> bool) -> Rates {
        let mut idle = told.clone();
        for (&node, links) in &self.nodes {
            for (way, of) in [(0, &mut idle.up), (1, &mut idle.down)] {
                let capacity =
                    links.capacity(of.get(&node).copied(), way).filter(|(_, source)| counts(*source));
                if let Some((capacity, _)) = capacity {
                    let users =
                        links.users(way).filter(|users| by_users && users * NOISE > capacity).unwrap_or(0);
                    let left = capacity.saturating_sub(users).max(capacity / LEAST_LEFT);
                    of.extend(NonZeroU64::new(left).map(|left| (node, left)));
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

    /// Everything that is known, for people.
    pub fn known(&self, told: &Rates) -> KnownRates {
        let mut links = Vec::new();
        let all = self.nodes.keys().chain(told.up.keys()).chain(told.down.keys());
        let none = NodeLinks::default();
        for &node in &all.copied().collect::<std::collections::BTreeSet<_>>() {
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
        let one = |end, way, capacity| KnownLink { end, way, capacity: Some(capacity), foreground: None };
        let racks = told.rack_up.keys().chain(told.rack_down.keys()).chain(self.racks.keys());
        for &rack in &racks.copied().collect::<std::collections::BTreeSet<_>>() {
            let measured = self.racks.get(&rack).copied().unwrap_or_default();
            for (way, set, measured) in [
                (Way::Up, told.rack_up.get(&rack), measured.up),
                (Way::Down, told.rack_down.get(&rack), measured.down),
            ] {
                let set = set.map(|rate| (rate.get(), RateSource::Set));
                let capacity = set.or(measured.map(|rate| (rate.get(), RateSource::Measured)));
                links.extend(capacity.map(|capacity| one(LinkEnd::Rack(rack), way, capacity)));
            }
        }
        let pair = |((from, to), rate): (&(NodeId, NodeId), &NonZeroU64)| {
            one(LinkEnd::Pair(*from, *to), Way::Up, (rate.get(), RateSource::Set))
        };
        links.extend(told.pairs.iter().map(pair));
        KnownRates { links }
    }
}

impl NodeLinks {
    /// What others than background work have carried lately, in bytes a second.
    fn users(&self, way: usize) -> Option<u64> {
        self.foreground[way].map(|rate| rate.max(0.0) as u64)
    }

    fn capacity(&self, set: Option<NonZeroU64>, way: usize) -> Option<(u64, RateSource)> {
        if let Some(set) = set {
            return Some((set.get(), RateSource::Set));
        }
        let seen = (self.most[way] > 0.0).then_some((self.most[way] as u64, RateSource::Seen));
        let measured = [self.measured.up, self.measured.down].get(way).copied().flatten();
        match (measured.map(NonZeroU64::get), seen) {
            (Some(measured), Some((seen, source))) if seen > measured => Some((seen, source)),
            (Some(measured), _) => Some((measured, RateSource::Measured)),
            // What a disk once carried is the best that is known of it. A link may never have been busy.
            (None, seen) if way >= 2 => seen,
            (None, _) => {
                let speed = self.last.and_then(|last| last.link).and_then(|link| link.speed);
                speed.map(|speed| (speed, RateSource::Hardware))
            }
        }
    }
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
            background: Moved { sent: repair, ..Moved::default() },
        }
    }

    fn rate(rate: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(rate)
    }

    #[test]
    fn users_have_what_repairs_did_not_carry() {
        let mut it = Bandwidth::default();
        let told = Rates::even([NODE], rate(10_000).unwrap());
        it.heard(NODE, counters(1000, 0, 0));
        assert_eq!(it.idle(&told), told);
        // 4000 bytes in a second; 1000 of them, and their headers, were a repair.
        it.heard(NODE, counters(2000, 4000, 1000));
        assert_eq!(it.idle(&told).up[&NODE], rate(10_000 - 2940).unwrap());
        assert_eq!(it.capacities(&told), told);
        // A whole minute of heavy use: a tenth is left.
        it.heard(NODE, counters(62_000, 4000 + 60 * 20_000, 1000));
        assert_eq!(it.idle(&told).up[&NODE], rate(1000).unwrap());
        // The agent starts again: its clock goes back, and nothing is concluded.
        it.heard(NODE, counters(500, 10, 0));
        it.heard(NODE, counters(1500, 10, 0));
        let left = it.idle(&told).up[&NODE].get();
        assert!((1000..10_000).contains(&left), "{left}");
    }

    #[test]
    fn what_leaves_a_buffer_after_a_repair_is_no_user() {
        let mut it = Bandwidth::default();
        let told = Rates::even([NODE], rate(10_000).unwrap());
        it.heard(NODE, counters(1000, 0, 0));
        // 10,000 bytes of a repair are handed over in a second. Half of them, with headers, leave in the next one.
        it.heard(NODE, counters(2000, 5_300, 10_000));
        it.heard(NODE, counters(3000, 10_000, 10_000));
        assert_eq!(it.idle(&told), told);
        // Then somebody else sends.
        it.heard(NODE, counters(4000, 20_000, 10_000));
        assert!(it.idle(&told).up[&NODE].get() < 8000);
    }

    #[test]
    fn a_capacity_comes_from_the_best_source() {
        let mut it = Bandwidth::default();
        let none = Rates::default();
        it.heard(NODE, counters(1000, 0, 0));
        it.heard(NODE, counters(2000, 500, 0));
        assert!(it.is_open(&none, NODE));
        assert_eq!(it.idle(&none), none, "a link that carried little may carry more");
        it.measured([(NODE, Measured { up: rate(8000), down: rate(4000) })].into(), BTreeMap::new());
        assert!(!it.is_open(&none, NODE));
        let source = |it: &Bandwidth, told: &Rates| it.known(told).links[0].capacity.unwrap();
        assert_eq!(source(&it, &none), (8000, RateSource::Measured));
        assert_eq!(it.idle(&none).down[&NODE], rate(4000).unwrap());
        it.heard(NODE, counters(3000, 9500, 9000));
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
        it.heard(NODE, counters(1000, 0, 0));
        assert!(!it.is_busy(NODE), "nothing is known");
        it.heard(NODE, counters(2000, mib(3), 0));
        assert!(it.is_busy(NODE));
        let measured = |up| [(NODE, Measured { up: rate(up), down: rate(up) })].into();
        it.measured(measured(mib(3)), BTreeMap::new());
        assert!(it.is_open(&none, NODE) && it.is_busy(NODE));
        it.heard(NODE, counters(32_000, mib(3), 0));
        assert!(it.is_open(&none, NODE) && !it.is_busy(NODE), "they have ended");
        it.measured(measured(mib(6)), BTreeMap::new());
        assert!(!it.is_open(&none, NODE));
        // A little of a fast link does not matter.
        it.heard(NODE, counters(33_000, mib(4), 0));
        it.measured(measured(mib(1000)), BTreeMap::new());
        assert!(!it.is_open(&none, NODE) && !it.is_busy(NODE));
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
