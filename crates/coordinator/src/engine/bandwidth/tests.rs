//! What is known of links and disks, and what users leave of them.

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
fn bursts_are_evened_out_and_a_link_that_is_always_busy_stays_so() {
    const BUSY: NodeId = NodeId(12);
    let mut it = Bandwidth::default();
    let told = Rates::even((0..=12).map(NodeId), rate(10_000).unwrap());
    // In each second another part of the nodes has most to do; after some it was the same for all but one.
    let takes = |node: u32, second: u64| match NodeId(node) {
        BUSY => 8000,
        _ => 2000 + (u64::from(node) * 5 + second * 7) % 13 * 200,
    };
    let mut sent = [0; 13];
    for second in 1..=6 {
        for (node, sent) in (0..).zip(&mut sent) {
            hear(&mut it, NodeId(node), counters(second * 1000, *sent, 0));
            *sent += takes(node, second);
        }
    }
    let spread = |rates: Vec<u64>| rates.iter().max().unwrap() - rates.iter().min().unwrap();
    let known = it.known(&told).links;
    let seen = |node: u32| {
        let of = known.iter().find(|link| link.end == LinkEnd::Node(NodeId(node)) && link.way == Way::Up);
        of.and_then(|link| link.foreground).unwrap()
    };
    let idle = it.idle(&told).up;
    let (seen, expected) =
        (spread((0..12).map(seen).collect()), spread((0..12).map(|n| idle[&NodeId(n)].get()).collect()));
    assert!(seen > 300 && expected < seen / 2, "{seen} {expected}");
    assert!((2000..2500).contains(&idle[&BUSY].get()), "{idle:?}");
    assert_eq!(it.capacities(&told), told);
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
    let most = |from: u64, to: u64, node: usize| off.range(from..to).map(|(_, of)| of[node]).max().unwrap();
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
    let mut told = Counters { at_ms: 1000, disk: Some((0, 0)), disk_busy_ms: Some(0), ..Counters::default() };
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
            let background = Moved { read: counted / 10 * 3, written: counted / 10 * 3, ..Moved::default() };
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
    assert_eq!((idle.rack_up[&RackId(0)], idle.rack_down[&RackId(0)]), (rate(9).unwrap(), rate(6).unwrap()));
    let sources: Vec<_> = it.known(&told).links.iter().map(|link| link.capacity.unwrap().1).collect();
    assert_eq!(sources, [RateSource::Set, RateSource::Measured]);
}
