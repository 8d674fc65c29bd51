//! Finds the nodes that delay a repair, from what each of its nodes was waiting for.
//!
//! The search starts at a requestor and goes from each node to the one that it waits for most. It ends at a
//! node that waits for itself (a slow disk or processor), at a node that waits for several others alike (a
//! node that is slow in both directions), or at two nodes that wait for each other: one for slices, the other
//! for room to send. In the last case the link between the two is the narrowest one, and either end may be
//! the cause; the end that also waits for others is suspected first. If it ends at a node that keeps the limit of
//! repairs, nobody is suspected.
//!
//! This file does not judge whether the repair is slow at all: in every repair some node is the slowest.

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;
use kintsu_runtime::Observed;
use kintsu_runtime::SAMPLED_EVERY;
use kintsu_wire::message::{LaneStanding, Wait};

/// A node counts as waiting for one thing if it did so in at least this percentage of its samples.
const MOSTLY: u64 = 60;
/// A node counts as kept back by the limit of repairs if it was so in at least this percentage of its samples.
const KEPT_BACK: u64 = 20;

/// The nodes that the repair waited for between two observations, the likeliest first. `requestors` are left
/// out, because a repair cannot avoid them.
pub fn suspects(before: &Observed, now: &Observed, requestors: &[NodeId]) -> Vec<NodeId> {
    let Some((lane, from)) = slowest_lane(now, requestors) else { return Vec::new() };
    let mut found = Waits::between(before, now, lane).root(from);
    found.retain(|node| !node.is_client() && !requestors.contains(node));
    found
}

/// Whether the nodes of a repair, without the `suspected` ones, went about their work as usual for `took_ms`: each of
/// them, and the machine that it runs on, had time to look what it waits for. Otherwise nobody is to blame.
pub fn others_are_fine(before: &Observed, now: &Observed, suspected: &[NodeId], took_ms: u64) -> bool {
    let samples = |observed: &Observed, node: &NodeId| -> u64 {
        let lanes = observed.nodes.get(node).into_iter().flat_map(|standing| &standing.lanes);
        lanes.map(|lane| lane.waits.iter().map(|(_, count)| count).sum()).max().unwrap_or(0)
    };
    let least = took_ms / SAMPLED_EVERY.as_millis() as u64 / 2;
    let others = now.nodes.keys().filter(|node| !suspected.contains(node));
    others.into_iter().all(|node| samples(now, node).saturating_sub(samples(before, node)) >= least)
}

/// The lane that has made the least progress at a requestor, and that requestor.
fn slowest_lane(now: &Observed, requestors: &[NodeId]) -> Option<(u16, NodeId)> {
    let of = |node: &NodeId| Some((*node, now.nodes.get(node)?));
    let standings = requestors.iter().filter_map(of);
    let lanes = standings.flat_map(|(node, s)| s.lanes.iter().map(move |lane| (lane.upto, lane.lane, node)));
    lanes.min().map(|(_, lane, node)| (lane, node))
}

/// For each node of a lane: what it was waiting for, and how often.
struct Waits(BTreeMap<NodeId, BTreeMap<Wait, u64>>);

impl Waits {
    fn between(before: &Observed, now: &Observed, lane: u16) -> Self {
        let of = |observed: &Observed, node: NodeId| -> BTreeMap<Wait, u64> {
            let lanes = observed.nodes.get(&node).map(|standing| &standing.lanes[..]);
            let ours = lanes.unwrap_or_default().iter().find(|l: &&LaneStanding| l.lane == lane);
            ours.map(|l| l.waits.iter().copied().collect()).unwrap_or_default()
        };
        let since = |node: NodeId| -> BTreeMap<Wait, u64> {
            let earlier = of(before, node);
            let newer = |(wait, count): (Wait, u64)| {
                (wait, count.saturating_sub(earlier.get(&wait).copied().unwrap_or(0)))
            };
            of(now, node).into_iter().map(newer).filter(|(_, count)| *count > 0).collect()
        };
        Self(now.nodes.keys().map(|node| (*node, since(*node))).collect())
    }

    /// What a node mostly waits for, if it is one thing, and in what percentage of its samples.
    fn most(&self, node: NodeId) -> Option<(Wait, u64)> {
        let waits = self.0.get(&node)?;
        let all: u64 = waits.values().sum();
        let (wait, count) = waits.iter().max_by_key(|(_, count)| **count)?;
        let part = count * 100 / all.max(1);
        (part >= MOSTLY).then_some((*wait, part))
    }

    /// Whether a node keeps the limit of repairs.
    fn is_kept_back(&self, node: NodeId) -> bool {
        let Some(waits) = self.0.get(&node) else { return false };
        let held = waits.get(&Wait::Held).copied().unwrap_or(0);
        held > 0 && held * 100 >= KEPT_BACK * waits.values().sum::<u64>()
    }

    /// The nodes at the end of the search that starts at `from`.
    fn root(&self, from: NodeId) -> Vec<NodeId> {
        let (mut at, mut part, mut visited) = (from, 100, BTreeSet::new());
        while visited.insert(at) {
            if self.is_kept_back(at) {
                return Vec::new();
            }
            let Some((wait, mostly)) = self.most(at) else { return vec![at] };
            let next = match wait {
                Wait::Own | Wait::Held => return vec![at],
                Wait::From(next) | Wait::To(next) => next,
            };
            if visited.contains(&next) {
                // They wait for each other: `next` waits for `at` in `part` percent of its samples.
                return if mostly < part { vec![at, next] } else { vec![next, at] };
            }
            (at, part) = (next, mostly);
        }
        vec![at]
    }
}

#[cfg(test)]
mod tests {
    use kintsu_wire::message::Standing;

    use super::*;
    use Wait::{From, Held, Own, To};

    const R: NodeId = NodeId(9);

    fn n(node: u32) -> NodeId {
        NodeId(node)
    }

    /// Nodes with what they waited for, in one lane.
    fn observed(waits: &[(u32, &[(Wait, u64)])]) -> Observed {
        let standing = |waits: &[(Wait, u64)]| Standing {
            lanes: vec![LaneStanding { lane: 0, upto: 0, waits: waits.to_vec() }],
            ..Standing::default()
        };
        let nodes = waits.iter().map(|(node, waits)| (n(*node), standing(waits))).collect();
        Observed { upto: 0, nodes }
    }

    fn found(waits: &[(u32, &[(Wait, u64)])]) -> Vec<NodeId> {
        suspects(&Observed::default(), &observed(waits), &[R])
    }

    #[test]
    fn in_a_chain_it_is_the_slow_disk() {
        let chain: &[(u32, &[(Wait, u64)])] = &[
            (1, &[(To(n(2)), 18), (Own, 2)]),
            (2, &[(Own, 20)]),
            (3, &[(From(n(2)), 20)]),
            (9, &[(From(n(3)), 19), (Own, 1)]),
        ];
        assert_eq!(found(chain), [n(2)]);
    }

    #[test]
    fn a_node_that_keeps_the_limit_of_repairs_is_not_to_blame() {
        let chain = |second: &[(Wait, u64)]| {
            found(&[(1, &[(To(n(2)), 20)]), (2, second), (3, &[(From(n(2)), 20)]), (9, &[(From(n(3)), 20)])])
        };
        assert_eq!(chain(&[(Held, 20)]), []);
        assert_eq!(chain(&[(From(n(1)), 15), (Held, 5)]), []);
        assert_eq!(chain(&[(Own, 19), (Held, 1)]), [n(2)]);
    }

    #[test]
    fn at_a_narrow_link_it_is_one_of_its_ends_and_first_the_one_that_waits_elsewhere_too() {
        let link = |second: &[(Wait, u64)]| {
            found(&[(1, &[(To(n(2)), 20)]), (2, second), (3, &[(From(n(2)), 20)]), (9, &[(From(n(3)), 20)])])
        };
        assert_eq!(link(&[(From(n(1)), 15), (To(n(3)), 5)]), [n(2), n(1)]);
        assert_eq!(link(&[(From(n(1)), 10), (To(n(3)), 10)]), [n(2)], "both ways");
        assert_eq!(link(&[(To(n(3)), 20)]), [n(3), n(2)]);
    }

    #[test]
    fn in_a_star_it_is_the_helper_that_is_waited_for_or_nobody() {
        let star = |counts: [u64; 3]| {
            let waits: Vec<_> = (1..).map(n).zip(counts).map(|(node, count)| (From(node), count)).collect();
            let to = [(To(R), 20)];
            found(&[(1, &to), (2, &to), (3, &to), (9, &waits)])
        };
        assert_eq!(star([1, 18, 1]), [n(2)]);
        assert_eq!(star([7, 7, 6]), [], "the requestor itself");
    }

    #[test]
    fn a_slow_requestor_is_not_gone_around() {
        let chain: &[(u32, &[(Wait, u64)])] =
            &[(1, &[(To(n(2)), 20)]), (2, &[(To(R), 20)]), (9, &[(Own, 20)])];
        assert_eq!(found(chain), []);
        // Its link is slow: then the last helper may be the cause too.
        let chain: &[(u32, &[(Wait, u64)])] =
            &[(1, &[(To(n(2)), 20)]), (2, &[(To(R), 20)]), (9, &[(From(n(2)), 20)])];
        assert_eq!(found(chain), [n(2)]);
    }

    #[test]
    fn only_what_was_waited_for_lately_counts() {
        let before = observed(&[(1, &[(Own, 5)]), (2, &[(Own, 900)]), (9, &[(From(n(2)), 900)])]);
        let now =
            observed(&[(1, &[(Own, 25)]), (2, &[(Own, 900), (From(n(1)), 20)]), (9, &[(From(n(2)), 920)])]);
        assert_eq!(suspects(&before, &now, &[R]), [n(1)]);
    }

    #[test]
    fn the_slowest_lane_is_looked_at() {
        let lane = |lane, upto, wait| LaneStanding { lane, upto, waits: vec![(wait, 20)] };
        let mut observed = observed(&[(1, &[]), (2, &[])]);
        let lanes = vec![lane(0, 500, From(n(1))), lane(1, 100, From(n(2)))];
        observed.nodes.insert(R, Standing { lanes, ..Standing::default() });
        for (node, number) in [(1, 0), (2, 1)] {
            observed
                .nodes
                .insert(n(node), Standing { lanes: vec![lane(number, 0, Own)], ..Standing::default() });
        }
        assert_eq!(suspects(&Observed::default(), &observed, &[R]), [n(2)]);
    }

    #[test]
    fn nobody_is_to_blame_while_others_have_no_time_to_look() {
        let chain = |one: u64, two: u64| {
            observed(&[(1, &[(To(n(2)), one)]), (2, &[(Own, two)]), (9, &[(From(n(2)), 20)])])
        };
        let fine = |one, two| others_are_fine(&chain(0, 0), &chain(one, two), &[n(2)], 400);
        assert!(!others_are_fine(&chain(0, 0), &chain(8, 0), &[n(2)], 2000), "node 9 is late");
        assert!(!fine(3, 0));
        assert_eq!(
            [others_are_fine(&Observed::default(), &chain(8, 0), &[n(2)], 400), fine(8, 8)],
            [true, false]
        );
    }

    #[test]
    fn of_nodes_that_say_nothing_nothing_is_known() {
        assert_eq!(suspects(&Observed::default(), &Observed::default(), &[R]), []);
    }
}
