//! The verdict on modelled sources: links of their own, a link of the client that all share, bounded queues.

use super::*;

const MB: f64 = 1e6;
/// Bytes that a queue holds.
const QUEUE: f64 = 1.0 * MB;
const REST: u64 = 1 << 30;

/// A read of as many bytes from each source, in lockstep.
struct Read {
    /// What each link carries, in bytes a second, and from when on it carries another rate.
    rates: Vec<(f64, f64, f64)>,
    client: f64,
    /// The shares that sources get of the client's link are unequal by this factor.
    unfair: f64,
    now: f64,
    taken: f64,
    came: Vec<f64>,
    heard: BTreeMap<NodeId, Heard>,
}

impl Read {
    fn of(rates: &[f64]) -> Self {
        let heard = (0..rates.len()).map(|i| (NodeId(i as u32), Heard::default())).collect();
        let rates: Vec<_> = rates.iter().map(|rate| (*rate, f64::INFINITY, *rate)).collect();
        let came = vec![0.0; rates.len()];
        Self { rates, client: f64::INFINITY, unfair: 1.0, now: 0.0, taken: 0.0, came, heard }
    }

    /// A millisecond; sources answer after two.
    fn step(&mut self) {
        const STEP: f64 = 0.001;
        self.now += STEP;
        let count = self.rates.len();
        let waits: Vec<bool> = self.came.iter().map(|came| came - self.taken < QUEUE).collect();
        let weight = |i: usize| if i.is_multiple_of(2) { self.unfair } else { 1.0 };
        let weights: f64 = (0..count).filter(|i| waits[*i]).map(weight).sum();
        let shares: Vec<f64> = (0..count).map(|i| self.client * weight(i) / weights).collect();
        for i in 0..count {
            let heard = self.heard.get_mut(&NodeId(i as u32)).unwrap();
            heard.waits = waits[i];
            if !waits[i] {
                continue;
            }
            heard.waited += Duration::from_secs_f64(STEP);
            let (rate, until, then) = self.rates[i];
            let rate = if self.now < until { rate } else { then };
            if self.now > 0.002 && rate > 0.0 {
                self.came[i] += rate.min(shares[i]) * STEP;
                heard.took = Duration::from_secs_f64(self.now);
            }
            heard.bytes = self.came[i] as u64;
        }
        self.taken = self.came.iter().copied().fold(f64::INFINITY, f64::min);
    }

    /// Who is first late within some seconds, and when.
    fn judged(&mut self, watch: &mut Watch, learnt: &mut Learnt, seconds: f64) -> Option<(f64, Vec<u32>)> {
        while self.now < seconds {
            (0..10).for_each(|_| self.step());
            let late = watch.look(self.now, &self.heard, REST, learnt);
            if !late.is_empty() {
                return Some((self.now, late.iter().map(|late| late.node.0).collect()));
            }
        }
        None
    }

    fn watch(&self, learnt: &mut Learnt) -> Watch {
        Watch::new(self.now, self.heard.keys().copied().collect(), &BTreeSet::new(), learnt)
    }

    fn first_late(&mut self, seconds: f64) -> Option<(f64, Vec<u32>)> {
        let mut learnt = Learnt::new(Duration::from_millis(2));
        let mut watch = self.watch(&mut learnt);
        self.judged(&mut watch, &mut learnt, seconds)
    }
}

#[test]
fn one_at_a_tenth_is_found_soon_and_no_other() {
    for rate in [1.0, 5.0, 25.0, 125.0] {
        let mut rates = [rate * MB; 6];
        rates[3] = rate * MB / 10.0;
        let (at, who) = Read::of(&rates).first_late(60.0).unwrap();
        // Its queue is not waited for before those of the others are full.
        let filled = QUEUE / (0.9 * rate * MB);
        assert!(who == [3] && at < 0.12 + filled, "{rate}: {who:?} at {at}");
    }
    let (_, who) =
        Read::of(&[25.0 * MB, 2.5 * MB, 25.0 * MB, 25.0 * MB, 25.0 * MB, 1.0 * MB]).first_late(9.0).unwrap();
    assert_eq!(who, [5, 1], "the slowest first");
}

#[test]
fn one_that_becomes_slow_or_silent_is_found() {
    for (then, within) in [(2.5 * MB, 0.2), (0.0, 0.4)] {
        let mut read = Read::of(&[25.0 * MB; 6]);
        read.rates[0] = (25.0 * MB, 2.0, then);
        let (at, who) = read.first_late(9.0).unwrap();
        let filled = QUEUE / (25.0 * MB);
        assert!(who == [0] && at > 2.0 && at < 2.0 + filled + within, "{who:?} at {at}");
    }
    let mut rates = [25.0 * MB; 6];
    rates[5] = 0.0;
    let (at, who) = Read::of(&rates).first_late(9.0).unwrap();
    assert!(who == [5] && at < 0.4, "silent from the start: {who:?} at {at}");
}

#[test]
fn nodes_alike_are_not_blamed() {
    assert_eq!(Read::of(&[25.0 * MB; 6]).first_late(20.0), None);
    let uneven = [25.0, 22.0, 28.0, 25.0, 20.0, 24.0].map(|rate| rate * MB);
    assert_eq!(Read::of(&uneven).first_late(20.0), None);
    // All become slow.
    let mut read = Read::of(&[25.0 * MB; 6]);
    read.rates.iter_mut().for_each(|rate| *rate = (25.0 * MB, 2.0, 1.0 * MB));
    assert_eq!(read.first_late(20.0), None);
    read.rates.iter_mut().for_each(|rate| rate.2 = 0.0);
    assert_eq!(read.first_late(40.0), None);
}

#[test]
fn a_full_link_of_the_client_is_nobodys_fault() {
    for unfair in [1.0, 2.0, 5.0] {
        let read = Read::of(&[25.0 * MB; 6]);
        assert_eq!(Read { client: 25.0 * MB, unfair, ..read }.first_late(20.0), None, "{unfair}");
    }
    // One at a third of its rate still gets what it would get of the client's link.
    let mut rates = [25.0 * MB; 6];
    rates[0] = 8.0 * MB;
    assert_eq!(Read { client: 25.0 * MB, ..Read::of(&rates) }.first_late(20.0), None);
}

#[test]
fn a_pause_of_this_process_says_nothing() {
    let mut read = Read::of(&[25.0 * MB; 6]);
    let mut learnt = Learnt::new(Duration::ZERO);
    let mut watch = read.watch(&mut learnt);
    assert_eq!(read.judged(&mut watch, &mut learnt, 1.0), None);
    for _ in 0..5 {
        read.now += 3.0;
        read.heard.get_mut(&NodeId(2)).unwrap().waited += Duration::from_secs(3);
        assert_eq!(watch.look(read.now, &read.heard, REST, &mut learnt), []);
        let until = read.now + 0.5;
        assert_eq!(read.judged(&mut watch, &mut learnt, until), None);
    }
}

/// An attempt with one source of this rate, `node`, that begins at `begun`; whether the source is late within half a
/// second.
fn alone(learnt: &mut Learnt, begun: f64, node: u32, rate: f64) -> Option<(NodeId, f64)> {
    let nodes = BTreeSet::from([NodeId(node)]);
    let mut watch = Watch::new(begun, nodes, &BTreeSet::new(), learnt);
    let mut read = Read::of(&[rate]);
    (0..50).find_map(|_| {
        (0..10).for_each(|_| read.step());
        let heard = BTreeMap::from([(NodeId(node), read.heard[&NodeId(0)])]);
        let late = watch.look(begun + read.now, &heard, REST, learnt);
        late.first().map(|late| (late.node, read.now))
    })
}

#[test]
fn a_source_alone_is_compared_with_those_of_other_portions() {
    let mut learnt = Learnt::new(Duration::from_millis(2));
    assert_eq!(alone(&mut learnt, 0.0, 0, 2.5 * MB), None, "nothing to compare it with");
    let mut learnt = Learnt::new(Duration::from_millis(2));
    assert_eq!(alone(&mut learnt, 0.0, 1, 25.0 * MB), None);
    assert_eq!(alone(&mut learnt, 1.0, 3, 20.0 * MB), None);
    let (node, at) = alone(&mut learnt, 2.0, 2, 2.5 * MB).unwrap();
    assert!(node == NodeId(2) && at < 0.2, "{at}");
}

#[test]
fn attempts_through_one_node_share_its_link() {
    let mut learnt = Learnt::new(Duration::from_millis(2));
    assert_eq!(alone(&mut learnt, 0.0, 1, 25.0 * MB), None);
    for (others, is_late) in [(0, true), (2, false)] {
        let known = Learnt::new(Duration::from_millis(2));
        let mut learnt = Learnt { sources: learnt.sources.clone(), most: learnt.most, ..known };
        for other in 0..others {
            let nodes = BTreeSet::from([NodeId(2), NodeId(5)]);
            learnt.running.insert(100 + other, (nodes, f64::INFINITY));
        }
        assert_eq!(alone(&mut learnt, 1.0, 2, 8.0 * MB).is_some(), is_late);
    }
}

#[test]
fn silence_of_a_source_alone_is_waited_for_longer_each_time() {
    let mut learnt = Learnt::new(Duration::from_millis(2));
    let mut ends = Vec::new();
    for _ in 0..3 {
        let mut read = Read::of(&[0.0]);
        let mut watch = read.watch(&mut learnt);
        let mut late = Vec::new();
        while late.is_empty() {
            (0..10).for_each(|_| read.step());
            late = watch.look(read.now, &read.heard, REST, &mut learnt);
        }
        learnt.changed(&late[0], read.now);
        ends.push((read.now / LEAST_SILENCE).round());
    }
    assert_eq!(ends, [1.0, 2.0, 4.0]);
}

#[test]
fn a_change_that_did_not_help_is_not_made_again() {
    let mut rates = [25.0 * MB; 6];
    rates[3] = 2.5 * MB;
    let mut learnt = Learnt::new(Duration::from_millis(2));
    let mut read = Read::of(&rates);
    let mut watch = read.watch(&mut learnt);
    let found = read.judged(&mut watch, &mut learnt, 9.0);
    assert_eq!(found.map(|found| found.1), Some(vec![3]));
    let late = Late { node: NodeId(3), rate: 2.5 * MB, expected: Some(25.0 * MB) };
    learnt.changed(&late, read.now);
    // Whatever is read now, it comes no faster.
    for other in [4, 5] {
        let begun = read.now;
        read = Read { now: begun, ..Read::of(&rates) };
        read.rates.swap(3, other);
        let mut watch = read.watch(&mut learnt);
        let found = read.judged(&mut watch, &mut learnt, begun + 20.0);
        assert!(other == 4 || found.is_none(), "{found:?}");
    }
}
