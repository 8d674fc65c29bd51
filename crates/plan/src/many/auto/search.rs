//! The cheapest tree of one block at the prices that the loads make.
//!
//! A helper pays for its uplink and its disk, and for a place below its parent. Where links of racks have rates, each
//! rack in use other than the requestor's is left once, by a node that collects what the rack sends, and the requestor's
//! at most once; the choice of helpers is then found by dynamic programming over the racks.

use super::super::desk::{Case, Desk, Places, Tree};

/// Extra cost of each further child of the same node, so that no star is made where loads do not ask for it.
const CROWDED: f64 = 0.05;

/// Beyond this many times the floor the norm grows no more than linearly: of infinite prices none is the least, and their
/// differences are no numbers.
const STEEP: f64 = 1000.0;

/// Of the links that are overlooked, one with endlessly much to carry counts as busier than one at the limit by this part.
const ENDLESS: f64 = 0.2;

/// A price has this part of the linear cost, so that idle links are told apart.
const LINEAR: f64 = 1e-9;

/// What makes prices out of loads.
#[derive(Clone, Copy)]
pub(super) struct Prices {
    /// One over the number of seconds that counts as 1.
    pub unit: f64,
    /// The exponent of the norm.
    pub power: i32,
    /// How many children a node gets at a time. With two, trees are about as deep as binary ones; with one, equal
    /// loads make chains. Zero where prices do not choose.
    pub children: usize,
    /// How busy links count at least that are overlooked: busier than all others, and yet not so much that the prices of others
    /// do not matter beside theirs.
    pub overlooked: f64,
    /// Whether the code leaves no choice of helpers, so that it does not matter whether these are overlooked.
    pub given: bool,
}

impl Prices {
    /// What `bytes` more on a link cost, on top of `before` bytes that are not on the desk yet.
    pub fn rise(&self, desk: &Desk<'_>, link: usize, before: f64, bytes: f64) -> f64 {
        let scale = desk.pace[link] * self.unit;
        if scale == 0.0 {
            return 0.0;
        }
        let now = match desk.is_overlooked(link) {
            true if self.given && desk.sends(link) => return 0.0,
            true => {
                let own = ((desk.load[link] - desk.fixed[link] + before) * scale).max(0.0);
                own + self.overlooked * (1.0 + ENDLESS * desk.beyond_limit(link))
            }
            false => ((desk.load[link] + before) * scale).max(0.0),
        };
        let more = bytes * scale;
        self.norm(now + more) - self.norm(now) + LINEAR * more
    }

    fn norm(&self, time: f64) -> f64 {
        if time <= STEEP {
            return time.powi(self.power);
        }
        STEEP.powi(self.power) * (1.0 + f64::from(self.power) * (time / STEEP - 1.0))
    }

    /// The helpers with what each pays for its uplink and its disk, ascending.
    pub fn of_helpers(&self, desk: &Desk<'_>, case: &Case, bytes: f64) -> Vec<(f64, usize)> {
        let own = |link| self.rise(desk, link, 0.0, bytes);
        let priced = |node: &usize| (own(desk.up(*node)) + own(desk.read(*node)), *node);
        let mut helpers: Vec<(f64, usize)> = case.helpers.iter().map(priced).collect();
        helpers.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        helpers
    }

    /// What a tree costs that carries `bytes` of each block; `also` as in [`Desk::links_of`].
    pub fn of(&self, desk: &Desk<'_>, tree: &Tree, also: &[usize], bytes: f64) -> f64 {
        let links = desk.links_of(tree, also, bytes).into_iter();
        links.map(|(link, bytes)| self.rise(desk, link, 0.0, bytes)).sum()
    }
}

/// Who may be the requestor.
#[derive(Clone, Copy)]
pub(super) enum Open<'a> {
    /// This node.
    Given(usize),
    /// One of these.
    Any(&'a Places),
}

impl Open<'_> {
    /// The node that would finish first with `bytes` more to receive.
    pub fn first(self, desk: &Desk<'_>, bytes: f64) -> Option<usize> {
        match self {
            Self::Given(node) => Some(node),
            Self::Any(places) => desk.idlest(places, bytes),
        }
    }

    /// The same for each rack.
    fn each(self, desk: &Desk<'_>, bytes: f64) -> Vec<usize> {
        let Self::Any(places) = self else { return self.first(desk, bytes).into_iter().collect() };
        let mut best: Vec<Option<(f64, usize)>> = vec![None; desk.racks];
        for node in desk.at(places) {
            let seconds = desk.receiving(node, bytes);
            let slot = &mut best[desk.rack[node]];
            if slot.is_none_or(|(least, _)| seconds < least) {
                *slot = Some((seconds, node));
            }
        }
        best.into_iter().flatten().map(|(_, node)| node).collect()
    }
}

/// The cheapest tree that carries `bytes` to one of the `open` nodes. `None` without one, or with too few helpers.
pub(super) fn search(
    desk: &Desk<'_>,
    case: &Case,
    bytes: f64,
    open: Open<'_>,
    prices: &Prices,
) -> Option<Tree> {
    if case.k == 0 || case.helpers.len() < case.k {
        return None;
    }
    let helpers = prices.of_helpers(desk, case, bytes);
    let place = |node: usize, children: usize| {
        let rise = prices.rise(desk, desk.down(node), children as f64 * bytes, bytes);
        rise * (1.0 + CROWDED * children as f64)
    };
    if desk.racked {
        let across = Across { desk, prices, bytes, helpers: &helpers, k: case.k, place: &place };
        return across.tree(open);
    }
    let requestor = open.first(desk, bytes)?;
    let set: Vec<usize> = helpers[..case.k].iter().map(|(_, node)| *node).collect();
    let children = spread(&set, case.k - 1, (requestor, 1), prices.children, &place);
    let edges = crate::optimal::network::Tree::with_children(children, requestor).0;
    Some(Tree { requestor, edges })
}

/// Gives out `places` below the nodes of the set or below the requestor, which has some already: `step` at a time,
/// where they are cheapest at that moment. Returns how many each node of the set has.
fn spread(
    set: &[usize],
    mut places: usize,
    (requestor, mut at_requestor): (usize, usize),
    step: usize,
    place: &dyn Fn(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    let cost = |node: usize, count: usize, more: usize| -> f64 {
        (count..count + more).map(|count| place(node, count)).sum()
    };
    let mut more = step.min(places);
    let mut children: Vec<(usize, usize)> = set.iter().map(|node| (*node, 0)).collect();
    let mut costs: Vec<f64> = set.iter().map(|node| cost(*node, 0, more)).collect();
    let mut own = cost(requestor, at_requestor, more);
    while places > 0 {
        let cheapest = costs.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
        match cheapest {
            Some((at, least)) if *least <= own => {
                let (node, count) = &mut children[at];
                *count += more;
                costs[at] = cost(*node, *count, more);
            }
            _ => {
                at_requestor += more;
                own = cost(requestor, at_requestor, more);
            }
        }
        places -= more;
        if places < more {
            more = places;
            children
                .iter()
                .zip(&mut costs)
                .for_each(|((node, count), known)| *known = cost(*node, *count, more));
            own = cost(requestor, at_requestor, more);
        }
    }
    children
}

/// The search where links of racks have rates.
struct Across<'a> {
    desk: &'a Desk<'a>,
    prices: &'a Prices,
    bytes: f64,
    /// With the prices of their uplinks, ascending.
    helpers: &'a [(f64, usize)],
    k: usize,
    place: &'a dyn Fn(usize, usize) -> f64,
}

impl Across<'_> {
    fn tree(&self, open: Open<'_>) -> Option<Tree> {
        let desk = self.desk;
        let mut by_rack: Vec<(usize, Vec<(f64, usize)>)> = Vec::new();
        for &(cost, node) in self.helpers {
            match by_rack.iter_mut().find(|(rack, _)| *rack == desk.rack[node]) {
                Some((_, nodes)) => nodes.push((cost, node)),
                None => by_rack.push((desk.rack[node], vec![(cost, node)])),
            }
        }
        // The best requestor of each rack with helpers, and the best of all other racks, where the same helpers are cheapest.
        let has_helpers = |node: &usize| by_rack.iter().any(|(rack, _)| *rack == desk.rack[*node]);
        let (near, far): (Vec<usize>, Vec<usize>) =
            open.each(desk, self.bytes).into_iter().partition(has_helpers);
        let own =
            |node: usize| (self.place)(node, 0) + self.prices.rise(desk, desk.write(node), 0.0, self.bytes);
        let far = far.into_iter().map(|node| {
            let cost = own(node) + self.arrival(desk.rack[node]);
            (cost, desk.receiving(node, self.bytes), node)
        });
        let far = far.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
        let choices = near.into_iter().chain(far.map(|(_, _, node)| node)).map(|node| {
            let (paid, set) = self.set(&by_rack, desk.rack[node]);
            (own(node) + paid, node, set)
        });
        let (_, requestor, set) = choices.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)))?;
        Some(self.over_racks(requestor, &set))
    }

    /// What it costs that one more sum comes into a rack.
    fn arrival(&self, rack: usize) -> f64 {
        self.prices.rise(self.desk, self.desk.rack_down(rack), 0.0, self.bytes)
    }

    /// The cheapest k helpers, where leaving each rack other than `near` costs once, and arriving where that is cheapest, but at least
    /// once in `near`.
    fn set(&self, by_rack: &[(usize, Vec<(f64, usize)>)], near: usize) -> (f64, Vec<usize>) {
        let used = by_rack.iter().map(|(rack, _)| *rack).chain([near]);
        let cheapest = used.map(|rack| self.arrival(rack)).fold(f64::INFINITY, f64::min);
        let wide = self.k + 1;
        let mut best = vec![f64::INFINITY; wide];
        best[0] = 0.0;
        let mut counts = vec![0; by_rack.len() * wide];
        for ((rack, helpers), counts) in by_rack.iter().zip(counts.chunks_mut(wide)) {
            let leave = self.prices.rise(self.desk, self.desk.rack_up(*rack), 0.0, self.bytes) + cheapest;
            let leave = if *rack == near { 0.0 } else { leave };
            // From many to few, so that each cost is read before this rack changes it.
            for taken in (1..wide).rev() {
                let mut sum = leave;
                for (more, (cost, _)) in (1..=taken).zip(helpers) {
                    sum += cost;
                    if best[taken - more] + sum < best[taken] {
                        (best[taken], counts[taken]) = (best[taken - more] + sum, more);
                    }
                }
            }
        }
        let (mut left, mut set) = (self.k, Vec::with_capacity(self.k));
        for ((_, helpers), counts) in by_rack.iter().zip(counts.chunks(wide)).rev() {
            set.extend(helpers[..counts[left]].iter().map(|(_, node)| *node));
            left -= counts[left];
        }
        let enters = set.iter().any(|node| self.desk.rack[*node] != near);
        let more = if enters { self.arrival(near) - cheapest } else { 0.0 };
        (best[self.k] + more, set)
    }

    /// A tree over the set: within each rack as loads demand, and from each rack once to a rack that is connected
    /// already, where that is cheapest. The helpers beside the requestor send to it or to each other; or one of them
    /// sends what they have out of the rack, where that is cheaper: its sum comes back with those of other racks, so
    /// fewer blocks arrive beside the requestor.
    fn over_racks(&self, requestor: usize, set: &[usize]) -> Tree {
        let (desk, near) = (self.desk, self.desk.rack[requestor]);
        let mut racks: Vec<usize> = set.iter().map(|node| desk.rack[*node]).collect();
        racks.sort_unstable();
        racks.dedup();
        let within = |rack: &usize| -> Vec<usize> {
            set.iter().copied().filter(|node| desk.rack[*node] == *rack).collect()
        };
        // A rack can receive from those that are connected after it, so the one where that is cheapest is first.
        racks.sort_by(|a, b| self.arrival(*a).total_cmp(&self.arrival(*b)));
        let (own, far): (Vec<_>, Vec<_>) = racks.iter().map(within).partition(|of| desk.rack[of[0]] == near);
        let Some(own) = own.first().filter(|_| !far.is_empty()) else {
            return self.joined(requestor, own.first().map_or(&[], |own| own), &far);
        };
        let last: Vec<Vec<usize>> = far.iter().chain([own]).cloned().collect();
        let (inside, out) = (self.joined(requestor, own, &far), self.joined(requestor, &[], &last));
        let [cost_inside, cost_out] = [&inside, &out].map(|tree| self.prices.of(desk, tree, &[], self.bytes));
        if cost_out < cost_inside { out } else { inside }
    }

    /// The tree in which `own` sends to the requestor, each of the `groups` through one of its nodes.
    fn joined(&self, requestor: usize, own: &[usize], groups: &[Vec<usize>]) -> Tree {
        let desk = self.desk;
        let mut edges = Vec::new();
        let mut children = vec![(requestor, 0)];
        if !own.is_empty() {
            let places = spread(own, own.len() - 1, (requestor, 1), self.prices.children, self.place);
            children.extend(&places);
            edges.extend(crate::optimal::network::Tree::with_children(places, requestor).0);
            children[0].1 = edges.iter().filter(|(_, to)| *to == requestor).count();
        }
        // Sums that have come into each rack.
        let mut entered = vec![0; desk.racks];
        for nodes in groups {
            // Who sends for the group is the one whose downlink is cheapest, because it receives.
            let down = |node: &usize| (self.place)(*node, 0);
            let Some(gate) = nodes.iter().copied().min_by(|a, b| down(a).total_cmp(&down(b))) else {
                continue;
            };
            let inside: Vec<usize> = nodes.iter().copied().filter(|node| *node != gate).collect();
            let first = usize::from(!inside.is_empty());
            let places =
                spread(&inside, inside.len() - first, (gate, first), self.prices.children, self.place);
            let below = crate::optimal::network::Tree::with_children(places.clone(), gate).0;
            let from = desk.rack[gate];
            let arrive = |(to, count): (usize, usize)| {
                let into = desk.rack[to];
                let rise =
                    |link, before| self.prices.rise(desk, link, before as f64 * self.bytes, self.bytes);
                let across = match into == from {
                    true => 0.0,
                    false => rise(desk.rack_up(from), 0) + rise(desk.rack_down(into), entered[into]),
                };
                (self.place)(to, count) + across
            };
            let best =
                (0..children.len()).min_by(|a, b| arrive(children[*a]).total_cmp(&arrive(children[*b])));
            let at = best.unwrap_or(0);
            let to = children[at].0;
            edges.push((gate, to));
            children[at].1 += 1;
            entered[desk.rack[to]] += usize::from(desk.rack[to] != from);
            children.push((gate, below.iter().filter(|(_, to)| *to == gate).count()));
            children.extend(places);
            edges.extend(below);
        }
        edges.sort_unstable();
        Tree { requestor, edges }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::many::Scene;
    use crate::{Rates, even_cluster};

    #[test]
    fn a_price_is_what_the_norm_rises_by_and_a_number_however_busy_the_link_is() {
        let mut topology = even_cluster(2, 1);
        topology.rates = Rates::even(topology.nodes.keys().copied(), NonZeroU64::new(1000).unwrap());
        let mut desk = Desk::new(&Scene::of(&topology), &[]);
        for power in [16, 24, 96] {
            let prices = Prices { unit: 1.0, power, children: 1, overlooked: 1.1, given: false };
            let mut rise = |load: f64, bytes: f64| {
                desk.load[0] = load;
                prices.rise(&desk, 0, 0.0, bytes)
            };
            for load in [0.0, 300.0, 1000.0, 4700.0, 900_000.0] {
                let (now, more): (f64, f64) = (load * (1.0 / 1000.0), 100.0 * (1.0 / 1000.0));
                let plain = (now + more).powi(power) - now.powi(power) + LINEAR * more;
                assert_eq!(rise(load, 100.0), plain, "{load}");
            }
            let steep = rise(900_000.0, 100.0);
            for load in [2e6, 1e9, 1e12] {
                let price = rise(load, 100.0);
                assert!(price.is_finite() && price > steep, "{load}: {price} {steep}");
            }
        }
    }
}
