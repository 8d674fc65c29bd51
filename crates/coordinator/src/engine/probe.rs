//! Decides which nodes send to which to measure links, and what follows from the results.
//!
//! In a round every node sends to one other node and receives from one. What comes through is the least of the
//! sender's uplink, the receiver's downlink and, between racks, their links to the core. A node's link carries at least
//! the best of its rounds. In a round within racks the links to the core carry nothing; if the nodes of a rack
//! together send much less to other racks than within their own, the rack's link holds them back.
//!
//! A node that only met slower ones looks as slow as they are. Which nodes these may be follows from the results, and more rounds
//! pair them with faster ones ([`unsure`]).
//!
//! A probe can only find too little: a processor was busy, or packets were lost. So the rounds are repeated until they find no
//! more than before ([`confirm`]).
//!
//! Agents at one address share an interface, and what they send each other does not pass it. So one of them measures
//! ([`one_of_each_host`]), and the others get what it found ([`for_all`]).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::num::NonZeroU64;

use kintsu_dag::{NodeId, RackId};

use super::bandwidth::Measured;

/// A rack's link to the core holds its nodes back if they send less than this part of what they could.
const HELD_BACK: f64 = 0.8;
/// Rates that differ by less than this factor from the next one count as alike.
const NEAR: f64 = 1.08;
/// How often the rounds are played at most.
pub const MOST_TURNS: usize = 4;
/// Rounds of each kind: with a single one, a slow node would make its partners look slow.
const ROUNDS: usize = 2;
/// How many rounds at most pair those that look slow with faster ones.
pub const MOST_MORE: usize = 4;

/// Where the nodes are: their racks and addresses.
pub type Places = BTreeMap<NodeId, (RackId, IpAddr)>;

/// One node of each address, with its rack.
pub fn one_of_each_host(places: &Places) -> BTreeMap<NodeId, RackId> {
    let mut seen = BTreeSet::new();
    let first = places.iter().filter(|(_, (_, address))| seen.insert(*address));
    first.map(|(node, (rack, _))| (*node, *rack)).collect()
}

/// What was measured at one node of each address, for all nodes.
pub fn for_all(places: &Places, measured: &BTreeMap<NodeId, Measured>) -> BTreeMap<NodeId, Measured> {
    let address = |node: &NodeId| places.get(node).map(|(_, address)| *address);
    let known: BTreeMap<IpAddr, Measured> =
        measured.iter().filter_map(|(node, measured)| Some((address(node)?, *measured))).collect();
    places.iter().filter_map(|(node, (_, address))| Some((*node, *known.get(address)?))).collect()
}

/// Senders and receivers of one round.
pub type Round = Vec<(NodeId, NodeId)>;

/// The rounds that measure these nodes: within racks, then across racks.
pub fn rounds(nodes: &BTreeMap<NodeId, RackId>) -> Vec<Round> {
    let mut racks: BTreeMap<RackId, Vec<NodeId>> = BTreeMap::new();
    nodes.iter().for_each(|(node, rack)| racks.entry(*rack).or_default().push(*node));
    let within = |shift: usize| -> Round { racks.values().flat_map(|rack| shifted(rack, shift)).collect() };
    // The racks in turn: a neighbour is in another rack, as far as possible.
    let longest = racks.values().map(Vec::len).max().unwrap_or(0);
    let dealt: Vec<NodeId> =
        (0..longest).flat_map(|i| racks.values().filter_map(move |rack| rack.get(i)).copied()).collect();
    let across = |shift: usize| -> Round {
        let pairs = shifted(&dealt, shift).into_iter();
        pairs.filter(|(from, to)| nodes.get(from) != nodes.get(to)).collect()
    };
    let all = (1..=ROUNDS).map(within).chain((1..=ROUNDS).map(across));
    let mut rounds: Vec<Round> = Vec::new();
    for round in all.filter(|round| !round.is_empty()) {
        if !rounds.contains(&round) {
            rounds.push(round);
        }
    }
    rounds
}

/// Each node sends to the one that is `shift` places behind it.
fn shifted(nodes: &[NodeId], shift: usize) -> Round {
    if shift.is_multiple_of(nodes.len().max(1)) {
        return Round::new();
    }
    let to = nodes.iter().cycle().skip(shift);
    nodes.iter().copied().zip(to.copied()).collect()
}

/// What was measured in the rounds: sender, receiver, bytes a second, `None` if nothing came or nothing was told.
pub type Result = (NodeId, NodeId, Option<f64>);

/// The links of nodes and racks.
pub type Links = (BTreeMap<NodeId, Measured>, BTreeMap<RackId, Measured>);

/// Whether rounds that were played once more found no link that carries more than was known.
pub fn confirm(before: &Links, now: &Links) -> bool {
    fn same<K: Ord>(before: &BTreeMap<K, Measured>, now: &BTreeMap<K, Measured>) -> bool {
        let near = |before: Option<NonZeroU64>, now: Option<NonZeroU64>| match (before, now) {
            (Some(before), Some(now)) => now.get() as f64 <= before.get() as f64 * NEAR,
            (before, now) => before == now,
        };
        let near =
            |(before, now): (&Measured, &Measured)| near(before.up, now.up) && near(before.down, now.down);
        before.keys().eq(now.keys()) && before.values().zip(now.values()).all(near)
    }
    same(&before.0, &now.0) && same(&before.1, &now.1)
}

/// What each node carried in one way, in bytes a second.
type Carried = BTreeMap<NodeId, f64>;

/// The most that each node sent and received.
fn most<'a>(results: impl Iterator<Item = &'a Result>) -> (Carried, Carried) {
    let (mut up, mut down) = (Carried::new(), Carried::new());
    for (from, to, rate) in results.filter_map(|&(from, to, rate)| Some((from, to, rate?))) {
        for (of, node) in [(&mut up, from), (&mut down, to)] {
            let entry = of.entry(node).or_default();
            *entry = entry.max(rate);
        }
    }
    (up, down)
}

/// A round for nodes that may be faster than they look: within their racks, and in the rounds of this kind before (`more`), they were
/// paired only with nodes that carry no more than they did. Empty if there is none, or nobody carries more.
pub fn unsure(nodes: &BTreeMap<NodeId, RackId>, rounds: &[Vec<Result>], more: &[Vec<Result>]) -> Round {
    let (up, down) = most(rounds.iter().chain(more).flatten());
    let near = |a: NodeId, b: NodeId| nodes.get(&a) == nodes.get(&b);
    let pair = |&(from, to, _): &Result| (from, to);
    let within = rounds.iter().flatten().map(pair).filter(|(from, to)| near(*from, *to));
    let met: BTreeSet<(NodeId, NodeId)> = within.chain(more.iter().flatten().map(pair)).collect();
    let (mut sends, mut receives) = (BTreeSet::new(), BTreeSet::new());
    let mut round = Round::new();
    for (&from, &rate) in &up {
        let fits = |to| !receives.contains(&to);
        if let Some(to) =
            faster((from, rate), &down, |to| met.contains(&(from, to)), fits, |to| near(from, to))
        {
            sends.insert(from);
            receives.insert(to);
            round.push((from, to));
        }
    }
    for (&to, &rate) in &down {
        let fits = |from| !sends.contains(&from) && !receives.contains(&to);
        if let Some(from) =
            faster((to, rate), &up, |from| met.contains(&(from, to)), fits, |from| near(from, to))
        {
            sends.insert(from);
            receives.insert(to);
            round.push((from, to));
        }
    }
    round
}

/// The node that can show whether this one, of which so much was seen, carries more: the fastest of those that fit, in its rack
/// if there is one. None if it was paired with a faster one already.
fn faster(
    (node, rate): (NodeId, f64),
    others: &Carried,
    met: impl Fn(NodeId) -> bool,
    fits: impl Fn(NodeId) -> bool,
    near: impl Fn(NodeId) -> bool,
) -> Option<NodeId> {
    let faster = || others.iter().filter(|(other, more)| **other != node && **more > rate * NEAR);
    if faster().any(|(other, _)| met(*other)) {
        return None;
    }
    let best =
        |a: &(&NodeId, &f64), b: &(&NodeId, &f64)| near(*a.0).cmp(&near(*b.0)).then(a.1.total_cmp(b.1));
    faster().filter(|(other, _)| fits(**other)).max_by(best).map(|(other, _)| *other)
}

/// The links of nodes and racks, by all rounds that were played; those of `more` say nothing of racks, because few nodes sent.
pub fn conclude(nodes: &BTreeMap<NodeId, RackId>, rounds: &[Vec<Result>], more: &[Vec<Result>]) -> Links {
    let (up, down) = most(rounds.iter().chain(more).flatten());
    let alike = alike(up.values().chain(down.values()).copied().collect());
    let whole = |rate: Option<&f64>| rate.and_then(|rate| NonZeroU64::new(alike(*rate) as u64));
    let node = |node: &NodeId| (*node, Measured { up: whole(up.get(node)), down: whole(down.get(node)) });
    let links = nodes.keys().map(node).filter(|(_, measured)| *measured != Measured::default()).collect();
    let mut racks = BTreeMap::new();
    for &rack in nodes.values() {
        let of = |node: &NodeId| nodes.get(node) == Some(&rack);
        let leaves = |(from, to, _): &&Result| of(from) && !of(to);
        let enters = |(from, to, _): &&Result| !of(from) && of(to);
        let measured = Measured {
            up: held_back(rounds, &leaves, |(from, to, _)| least(&up, *from, &down, *to)),
            down: held_back(rounds, &enters, |(from, to, _)| least(&up, *from, &down, *to)),
        };
        if measured != Measured::default() {
            racks.insert(rack, measured);
        }
    }
    (links, racks)
}

/// Links of one speed never measure exactly alike: each rate becomes the median of those near it.
fn alike(mut rates: Vec<f64>) -> impl Fn(f64) -> f64 {
    rates.sort_by(f64::total_cmp);
    let groups: Vec<Vec<f64>> =
        rates.chunk_by(|less, more| *more <= less * NEAR).map(<[f64]>::to_vec).collect();
    move |rate| {
        let group = groups.iter().find(|group| group.last().is_some_and(|last| rate <= *last));
        group.map_or(rate, |group| group[group.len() / 2])
    }
}

/// What the ends of a transfer would carry if nothing else held it back.
fn least(up: &BTreeMap<NodeId, f64>, from: NodeId, down: &BTreeMap<NodeId, f64>, to: NodeId) -> f64 {
    let of = |rates: &BTreeMap<NodeId, f64>, node| rates.get(&node).copied().unwrap_or(0.0);
    of(up, from).min(of(down, to))
}

/// The most that these transfers of one round carried together, if in no round they carried about what their ends
/// can. Of a round in which one of them told nothing it is not known.
fn held_back(
    rounds: &[Vec<Result>],
    counts: &dyn Fn(&&Result) -> bool,
    ends: impl Fn(&Result) -> f64,
) -> Option<NonZeroU64> {
    let mut most = 0.0_f64;
    for round in rounds {
        let of: Vec<&Result> = round.iter().filter(counts).collect();
        let Some(carried) = of.iter().map(|result| result.2).sum::<Option<f64>>() else { continue };
        let possible: f64 = of.iter().map(|result| ends(result)).sum();
        if carried >= possible * HELD_BACK && possible > 0.0 {
            return None;
        }
        most = most.max(carried);
    }
    NonZeroU64::new(most as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u32, racks: u32) -> BTreeMap<NodeId, RackId> {
        (0..count).map(|node| (NodeId(node), RackId(node % racks))).collect()
    }

    /// What the rounds would measure on these links.
    fn play(nodes: &BTreeMap<NodeId, RackId>, link: impl Fn(NodeId) -> f64, core: f64) -> Vec<Vec<Result>> {
        rounds(nodes).iter().map(|round| play_one(nodes, &link, core, round)).collect()
    }

    fn play_one(
        nodes: &BTreeMap<NodeId, RackId>,
        link: impl Fn(NodeId) -> f64,
        core: f64,
        round: &Round,
    ) -> Vec<Result> {
        let crosses = |from: &NodeId, to: &NodeId| nodes[from] != nodes[to];
        let play = |&(from, to): &(NodeId, NodeId)| {
            let ends = link(from).min(link(to));
            if !crosses(&from, &to) {
                return (from, to, Some(ends));
            }
            let leave = round.iter().filter(|(f, t)| nodes[f] == nodes[&from] && crosses(f, t)).count();
            (from, to, Some(ends.min(core / leave as f64)))
        };
        round.iter().map(play).collect()
    }

    #[test]
    fn in_a_round_each_node_sends_and_receives_at_most_once() {
        for (count, racks) in [(1, 1), (2, 1), (2, 2), (5, 2), (9, 3), (17, 1), (4, 4)] {
            for round in rounds(&nodes(count, racks)) {
                let distinct = |ends: Vec<NodeId>| {
                    let len = ends.len();
                    ends.into_iter().collect::<std::collections::BTreeSet<_>>().len() == len
                };
                assert!(round.iter().all(|(from, to)| from != to));
                assert!(distinct(round.iter().map(|(from, _)| *from).collect()));
                assert!(distinct(round.iter().map(|(_, to)| *to).collect()));
            }
        }
        assert!(rounds(&nodes(1, 1)).is_empty());
    }

    #[test]
    fn one_agent_of_a_host_measures_for_all_of_them() {
        let place = |(node, host): (u32, u8)| (NodeId(node), (RackId(0), IpAddr::from([10, 0, 0, host])));
        let places: Places = [(0, 1), (1, 1), (2, 2), (3, 1), (4, 3)].map(place).into();
        let measuring = one_of_each_host(&places);
        assert_eq!(measuring.keys().copied().collect::<Vec<_>>(), [0, 2, 4].map(NodeId));
        let (mut links, _) =
            conclude(&measuring, &play(&measuring, |node| 100.0 * f64::from(node.0 + 1), 1e9), &[]);
        links.remove(&NodeId(4));
        let all = for_all(&places, &links);
        assert_eq!(all.keys().copied().collect::<Vec<_>>(), [0, 1, 2, 3].map(NodeId), "node 4 told nothing");
        assert!([1, 3].into_iter().all(|node| all[&NodeId(node)] == links[&NodeId(0)]));
        assert_eq!(all[&NodeId(2)], links[&NodeId(2)]);
    }

    #[test]
    fn a_slow_node_makes_no_other_look_slow() {
        let all = nodes(6, 1);
        let (links, racks) =
            conclude(&all, &play(&all, |node| if node.0 == 2 { 10.0 } else { 100.0 }, 1e9), &[]);
        for (node, measured) in links {
            let rate = NonZeroU64::new(if node.0 == 2 { 10 } else { 100 });
            assert_eq!(measured, Measured { up: rate, down: rate }, "{node}");
        }
        assert!(racks.is_empty());
    }

    #[test]
    fn fast_nodes_that_met_only_slow_ones_are_found() {
        let even = |node: NodeId| if node.0.is_multiple_of(2) { 25.0 } else { 50.0 };
        let first = |node: NodeId| if node.0 < 4 { 50.0 } else { 25.0 };
        let racks = |count: u32| (0..count).map(|node| (NodeId(node), RackId(node / 3))).collect();
        type Link = fn(NodeId) -> f64;
        let settings: [(BTreeMap<NodeId, RackId>, Link, f64, usize); 5] = [
            (nodes(17, 1), even, 1e9, 1),
            (nodes(17, 1), first, 1e9, 4),
            (racks(9), even, 100.0, 1),
            (nodes(17, 1), |_| 50.0, 1e9, 0),
            (racks(9), |_| 50.0, 100.0, 0),
        ];
        for (at, (nodes, link, core, most)) in settings.into_iter().enumerate() {
            let (results, mut more) = (play(&nodes, link, core), Vec::new());
            let mut round = unsure(&nodes, &results, &more);
            while !round.is_empty() && more.len() < MOST_MORE {
                more.push(play_one(&nodes, link, core, &round));
                round = unsure(&nodes, &results, &more);
            }
            assert!(more.len() <= most, "{at}: {}", more.len());
            let (links, _) = conclude(&nodes, &results, &more);
            for (node, measured) in links {
                let rate = NonZeroU64::new(link(node) as u64);
                assert_eq!(measured, Measured { up: rate, down: rate }, "{at}: {node}");
            }
        }
    }

    #[test]
    fn rates_near_each_other_become_one() {
        let alike = alike(vec![52.0, 48.0, 50.0, 24.0, 25.0]);
        assert_eq!([48.0, 50.0, 52.0, 24.0].map(alike), [50.0, 50.0, 50.0, 25.0]);
    }

    #[test]
    fn what_a_busy_processor_or_a_lost_report_hides_is_found_by_playing_the_rounds_again() {
        let all = nodes(9, 3);
        let (good, mut bad) = (play(&all, |_| 100.0, 120.0), play(&all, |_| 100.0, 120.0));
        let across = |(from, to, _): &&mut Result| all[from] != all[to];
        for round in &mut bad {
            round.iter_mut().filter(across).for_each(|result| result.2 = result.2.map(|rate| rate / 5.0));
        }
        let (less, whole) = (conclude(&all, &bad, &[]), conclude(&all, &good, &[]));
        assert_eq!(less.1[&RackId(0)].up, NonZeroU64::new(24));
        let both = conclude(&all, &[bad, good.clone()].concat(), &[]);
        assert_eq!(both, whole);
        assert!(!confirm(&less, &both) && confirm(&both, &whole));

        let mut deaf = good.clone();
        for round in &mut deaf {
            round.iter_mut().filter(across).take(1).for_each(|result| result.2 = None);
        }
        let unheard = conclude(&all, &deaf, &[]);
        assert!(!confirm(&unheard, &whole), "what was not told is no rate of a rack: {unheard:?}");
        assert!(
            unheard.1.values().flat_map(|rack| [rack.up, rack.down]).flatten().all(|rate| rate.get() == 120)
        );
        assert_eq!(conclude(&all, &[deaf, good].concat(), &[]), whole);
    }

    #[test]
    fn a_rack_that_holds_its_nodes_back_is_found() {
        let all = nodes(9, 3);
        let (links, racks) = conclude(&all, &play(&all, |_| 100.0, 120.0), &[]);
        let rate = NonZeroU64::new(100);
        assert!(links.values().all(|measured| *measured == Measured { up: rate, down: rate }));
        let core = NonZeroU64::new(120);
        assert_eq!(racks.len(), 3);
        assert!(racks.values().all(|measured| *measured == Measured { up: core, down: core }), "{racks:?}");
        assert!(conclude(&all, &play(&all, |_| 100.0, 1000.0), &[]).1.is_empty());
    }
}
