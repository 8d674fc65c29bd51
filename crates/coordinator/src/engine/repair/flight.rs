//! The bytes that repairs have in flight on each link, and whether another repair may start.
//!
//! A repair loads the links that its trees pass, or that its method would load if the trees are not known yet. Another
//! one may start while each of its links has less in flight than it carries in [`BUSY_SECONDS`], or less than `share`
//! repairs of its size have in all. What a repair has done is no longer in flight. Disks hold up no repair; what they have
//! to read and write is counted for planners.
//!
//! So bytes decide where blocks are small, and a count where they are large: of blocks of more than 39 MB on links of 1 Gb/s,
//! 96 are more than 30 seconds of bytes. Bytes alone are not enough there. Repairs share links fairly, and the slices of a
//! repair are as slow as its slowest link, so a link is idle when all repairs on it are held up by other links. The more
//! repairs share it, the less often that is so, whatever their size: `docs/bounds.md` has the figures for 48 and 96.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::traffic::{Link, Loads, Way};
use kintsu_plan::{Assignment, Rates, Topology};

/// A link gets more work while what is in flight on it takes less than this. It is long compared with the time that
/// a repair takes to start and to end.
const BUSY_SECONDS: u64 = 30;
/// The same for a link whose rate is not known, in bytes: that of a node on loopback, where processors are the limit, and many
/// repairs at once would only hold up users and each other.
const BUSY_BYTES: u64 = 16 << 20;

/// The bytes that a repair puts on each link and disk.
pub type LinkLoads = Vec<(Link, u64)>;

/// The bytes in flight.
#[derive(Debug, Default)]
pub struct Flight {
    /// Repairs of one size that a link always takes.
    share: u64,
    rates: Rates,
    bytes: BTreeMap<Link, u64>,
}

impl Flight {
    /// Nothing is in flight. A link always takes as much as `share` repairs have in all.
    pub fn new(share: u64) -> Self {
        Self { share, ..Self::default() }
    }

    /// From now on the links have these rates.
    pub fn know(&mut self, rates: Rates) {
        self.rates = rates;
    }

    /// Whether a repair with these loads may start: none of its links has enough to carry.
    pub fn has_room(&self, loads: &LinkLoads) -> bool {
        self.full(loads).is_none()
    }

    /// The first of these links that has enough to carry.
    pub fn full(&self, loads: &LinkLoads) -> Option<Link> {
        let sent = loads.iter().filter(|(link, _)| matches!(link, Link::NodeUp(_)));
        let size = sent.map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let full = loads.iter().find(|(link, own)| {
            let carries = self.bytes.get(link).copied().unwrap_or(0);
            carries >= enough(&self.rates, *link).max(self.share.saturating_mul(size.max(*own)))
        });
        full.map(|(link, _)| *link)
    }

    /// The links that have something to carry: the bytes, and how many are enough.
    pub fn loads(&self) -> impl Iterator<Item = (Link, u64, u64)> + '_ {
        self.bytes.iter().map(|(link, bytes)| (*link, *bytes, enough(&self.rates, *link)))
    }

    /// What a link carries, in bytes a second, if that is known.
    pub fn rate(&self, link: Link) -> Option<NonZeroU64> {
        self.rates.of(link)
    }

    /// Adds what a repair has in flight.
    pub fn add(&mut self, loads: &LinkLoads) {
        let links = loads.iter().filter(|(link, _)| !matches!(link, Link::DiskRead(_) | Link::DiskWrite(_)));
        links.for_each(|(link, bytes)| *self.bytes.entry(*link).or_default() += bytes);
    }

    /// Subtracts what a repair has no longer in flight.
    pub fn remove(&mut self, loads: &LinkLoads) {
        for (link, bytes) in loads {
            if let Some(known) = self.bytes.get_mut(link) {
                *known = known.saturating_sub(*bytes);
            }
        }
        self.bytes.retain(|_, bytes| *bytes > 0);
    }

    /// Whether nothing is in flight.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Whether repairs with these loads may all be in flight together.
pub fn fit_together<'a>(rates: &Rates, share: u64, loads: impl IntoIterator<Item = &'a LinkLoads>) -> bool {
    let mut flight = Flight { share, rates: rates.clone(), ..Flight::default() };
    loads.into_iter().all(|loads| {
        let free = flight.has_room(loads);
        flight.add(loads);
        free
    })
}

/// What keeps a link busy, in bytes.
fn enough(rates: &Rates, link: Link) -> u64 {
    rates.of(link).map_or(BUSY_BYTES, |rate| rate.get().saturating_mul(BUSY_SECONDS))
}

/// The part of the loads that is left when a repair has done `done` of `whole` bytes.
pub fn left(loads: &LinkLoads, done: u64, whole: u64) -> LinkLoads {
    let left = u128::from(whole.saturating_sub(done));
    let part = |bytes: u64| (u128::from(bytes) * left).div_ceil(u128::from(whole.max(1))) as u64;
    loads.iter().map(|(link, bytes)| (*link, part(*bytes))).collect()
}

/// The bytes that a repair puts on each link: links and disks of nodes, and links of racks and pairs whose rates are known.
/// Without trees, each helper sends a block for each lost one: to the next helper if slices are `relayed`, else to the
/// requestors.
pub fn loads(
    topology: &Topology,
    relayed: bool,
    assignment: &Assignment,
    bytes_of: &dyn Fn(BlockIndex) -> u64,
) -> LinkLoads {
    let mut loads = Loads::default();
    let mut add = |way: Way, bytes: u64| loads.add(topology, way, bytes);
    let requestors: Vec<(BlockIndex, NodeId)> = assignment.requestors.iter().map(|(b, n)| (*b, *n)).collect();
    let bytes = requestors.iter().map(|(block, _)| bytes_of(*block)).max().unwrap_or(0);
    if let Some(((_, requestor), also)) = requestors.split_first() {
        let period: u64 = assignment.trees.iter().map(|tree| u64::from(tree.share)).sum();
        for tree in &assignment.trees {
            let part =
                (u128::from(bytes) * u128::from(tree.share)).div_ceil(u128::from(period.max(1))) as u64;
            tree.ways(*requestor, also).into_iter().for_each(|(way, blocks)| add(way, part * blocks as u64));
        }
    }
    for (block, requestor) in requestors {
        let bytes = bytes_of(block);
        if let Some(tree) = assignment.own_trees.get(&block) {
            tree.ways(requestor, &[]).into_iter().for_each(|(way, blocks)| add(way, bytes * blocks as u64));
        }
        if !assignment.has_trees() {
            add(Way::Write(requestor), bytes);
            let mut chain: Vec<NodeId> = assignment.helpers.iter().copied().collect();
            chain
                .sort_by_key(|node| (topology.rack(*node) == topology.rack(requestor), topology.rack(*node)));
            let next = chain.iter().skip(1).copied().chain([requestor]);
            for (from, next) in chain.iter().zip(next) {
                add(Way::Between(*from, if relayed { next } else { requestor }), bytes);
            }
        }
    }
    if !assignment.has_trees() {
        assignment.helpers.iter().for_each(|node| add(Way::Read(*node), bytes));
    }
    let counts = |link: &Link| match link {
        Link::NodeUp(_) | Link::NodeDown(_) | Link::DiskRead(_) | Link::DiskWrite(_) => true,
        other => topology.rates.of(*other).is_some(),
    };
    loads.iter().filter(|(link, _)| counts(link)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kintsu_dag::StripeId;
    use kintsu_plan::even_cluster;
    use kintsu_plan::optimal::SharedTree;

    use super::*;

    fn assignment(trees: Vec<SharedTree>) -> Assignment {
        Assignment {
            stripe: StripeId(1),
            requestors: [(BlockIndex(0), NodeId(9))].into(),
            helpers: [1, 2, 3].map(NodeId).into(),
            trees,
            method: None,
            own_trees: Default::default(),
            turn: 0,
            rate: None,
            is_later: false,
        }
    }

    fn sent(loads: &LinkLoads) -> Vec<(Link, u64)> {
        loads.iter().copied().filter(|(link, _)| matches!(link, Link::NodeDown(_))).collect()
    }

    #[test]
    fn a_repair_loads_the_links_of_its_trees_or_those_that_its_method_would_load() {
        let topology = even_cluster(10, 1);
        let of = |relayed, trees| loads(&topology, relayed, &assignment(trees), &|_| 1000);
        let down = |node: u32, bytes| (Link::NodeDown(NodeId(node)), bytes);
        assert_eq!(sent(&of(false, vec![])), [down(9, 3000)]);
        assert_eq!(sent(&of(true, vec![])), [down(2, 1000), down(3, 1000), down(9, 1000)]);
        let tree = |parents: &[(u32, Option<u32>)], share| SharedTree {
            parents: parents.iter().map(|(from, to)| (NodeId(*from), to.map(NodeId))).collect(),
            share,
        };
        let trees = vec![
            tree(&[(1, Some(2)), (2, None), (3, None)], 1),
            tree(&[(1, Some(2)), (2, Some(3)), (3, None)], 3),
        ];
        let along = of(true, trees);
        assert_eq!(sent(&along), [down(2, 1000), down(3, 750), down(9, 1250)]);
        // Disks are counted, and hold up nothing.
        let disks: Vec<_> = along
            .into_iter()
            .filter(|(link, _)| !matches!(link, Link::NodeUp(_) | Link::NodeDown(_)))
            .collect();
        let read = |node: u32| (Link::DiskRead(NodeId(node)), 1000);
        assert_eq!(disks, [read(1), read(2), read(3), (Link::DiskWrite(NodeId(9)), 1000)]);
        let mut flight = Flight::default();
        (0..2 * BUSY_BYTES / 1000).for_each(|_| flight.add(&disks));
        assert!(flight.is_empty() && flight.has_room(&disks));
    }

    #[test]
    fn a_link_gets_more_until_it_has_enough_and_again_when_some_of_it_is_done() {
        let (slow, fast, unknown) =
            (Link::NodeUp(NodeId(0)), Link::NodeUp(NodeId(1)), Link::NodeUp(NodeId(2)));
        let mut rates = Rates::default();
        let slower = Link::NodeUp(NodeId(3));
        rates.up.insert(NodeId(0), NonZeroU64::new(1000).unwrap());
        rates.up.insert(NodeId(3), NonZeroU64::new(10).unwrap());
        rates.up.insert(NodeId(1), NonZeroU64::new(1_000_000).unwrap());
        let mut flight = Flight::new(2);
        flight.know(rates.clone());
        let block = |link| vec![(link, 3000)];
        let mut started = |link: Link| {
            let count = (0..20).take_while(|_| {
                let free = flight.has_room(&block(link));
                if free {
                    flight.add(&block(link));
                }
                free
            });
            count.count()
        };
        // Thirty seconds, two blocks whatever the link, and more than there are.
        assert_eq!((started(slow), started(slower), started(fast), started(unknown)), (10, 2, 20, 20));
        // Of a repair that puts only a part on a link, as many as of others.
        let mut parts = Flight::new(2);
        parts.know(rates.clone());
        let part = vec![(slower, 100), (fast, 3000)];
        parts.add(&block(slower));
        assert!(parts.has_room(&part));
        parts.add(&block(slower));
        assert!(!parts.has_room(&part));
        let both = vec![(slow, 1), (fast, 1)];
        assert!(!flight.has_room(&both));
        flight.remove(&block(slow));
        flight.add(&left(&block(slow), 2500, 3000));
        assert!(flight.has_room(&both));
        let fit = |links: [Link; 3]| fit_together(&rates, 2, &links.map(|link| vec![(link, 20_000)]));
        assert_eq!([fit([slow, slow, slow]), fit([slow, slow, fast])], [false, true]);
        let rest: BTreeSet<u64> = (0..=3).map(|done| left(&block(slow), done, 3)[0].1).collect();
        assert_eq!(rest, [0, 1000, 2000, 3000].into());
    }
}
