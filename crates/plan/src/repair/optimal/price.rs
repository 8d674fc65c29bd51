//! The cheapest tree where each link has a price: this is the next column of the linear program of [`super::lp`].
//!
//! Where only the nodes' own links have prices, a helper pays its uplink and one place below some parent, so the
//! cheapest tree is found by sorting. In general it is the least arborescence (Chu and Liu; Edmonds) over some set
//! of k helpers. A local search comes first. Then sets are searched depth first, up to [`MAX_SETS`] of them; a
//! branch is cut where the cheapest ways out of its helpers already cost too much.

use super::network::{Network, OwnLinks, Tree};

/// Sets of helpers whose least arborescence is computed before the search is given up.
const MAX_SETS: usize = 8000;

/// Prices that differ by less count as equal.
const EPSILON: f64 = 1e-9;

/// A cheap tree, and a lower bound on the cost of all trees.
#[derive(Debug, Clone)]
pub(crate) struct Priced {
    pub tree: Tree,
    pub cost: f64,
    /// No tree costs less.
    pub floor: f64,
}

/// A tree over k helpers that costs less than `enough` at these prices of the links, or else the cheapest. `None`
/// for fewer than k helpers.
pub(crate) fn cheap(network: &Network, prices: &[f64], enough: f64) -> Option<Priced> {
    if network.k == 0 || network.helpers.len() < network.k {
        return None;
    }
    match &network.own {
        Some(own) => by_sorting(network, own, prices),
        None => Search::new(network, prices).run(enough),
    }
}

/// Every helper in the tree pays for its uplink. The requestor must have one child. All other places go where they
/// are cheapest, and nodes with equally cheap places share them.
fn by_sorting(network: &Network, own: &OwnLinks, prices: &[f64]) -> Option<Priced> {
    let price = |link: &Option<usize>| link.map_or(0.0, |link| prices[link]);
    let (up, down): (Vec<f64>, Vec<f64>) =
        (own.up.iter().map(price).collect(), own.down.iter().map(price).collect());
    let (m, k) = (network.requestor(), network.k);
    let mut by_up: Vec<usize> = (0..m).collect();
    by_up.sort_by(|a, b| up[*a].total_cmp(&up[*b]).then(a.cmp(b)));
    // The hub is the node with the cheapest places; it may be the requestor itself.
    let with = |hub: usize| {
        let others = by_up.iter().copied().filter(|helper| *helper != hub);
        let mut set: Vec<usize> = (hub < m).then_some(hub).into_iter().chain(others).collect();
        set.truncate(k);
        let cost = set.iter().map(|helper| up[*helper]).sum::<f64>() + down[m] + (k as f64 - 1.0) * down[hub];
        (cost, set)
    };
    let (cost, set, hub) = (0..=m)
        .map(|hub| (with(hub), hub))
        .map(|((cost, set), hub)| (cost, set, hub))
        .min_by(|a, b| a.0.total_cmp(&b.0))?;
    let places = set.iter().copied().filter(|helper| down[*helper] <= down[hub] + EPSILON);
    let mut hubs: Vec<usize> = places.collect();
    hubs.sort_by(|a, b| network.ends[*b].down.total_cmp(&network.ends[*a].down));
    hubs.extend((down[m] <= down[hub] + EPSILON).then_some(m));
    let mut children = vec![0; m + 1];
    hubs.iter().cycle().take(k - 1).for_each(|hub| children[*hub] += 1);
    let tree = Tree::with_children(set.into_iter().map(|helper| (helper, children[helper])).collect(), m);
    Some(Priced { tree, cost, floor: cost })
}

/// A search over sets of helpers at given prices.
struct Search {
    m: usize,
    k: usize,
    /// Cost by sender and receiver, the requestor last.
    cost: Vec<Vec<f64>>,
    /// The helpers with the cost of their cheapest way out, the cheapest first.
    out: Vec<(f64, usize)>,
    best: Option<(f64, Tree)>,
    sets: usize,
}

impl Search {
    fn new(network: &Network, prices: &[f64]) -> Self {
        let m = network.requestor();
        let way = |from: usize, to: usize| match from == to {
            true => f64::INFINITY,
            false => network.way(from, to).iter().map(|(link, part)| prices[*link] * part).sum(),
        };
        let cost: Vec<Vec<f64>> = (0..m).map(|from| (0..=m).map(|to| way(from, to)).collect()).collect();
        let mut out: Vec<(f64, usize)> =
            (0..m).map(|from| (cost[from].iter().copied().fold(f64::INFINITY, f64::min), from)).collect();
        out.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        Self { m, k: network.k, cost, out, best: None, sets: 0 }
    }

    fn run(mut self, enough: f64) -> Option<Priced> {
        let mut set: Vec<usize> = self.out.iter().take(self.k).map(|(_, helper)| *helper).collect();
        let first = self.out.iter().take(self.k).map(|(cost, _)| cost).sum::<f64>();
        self.try_set(&set);
        self.exchange(&mut set);
        let mut grown = self.grown();
        self.try_set(&grown);
        self.exchange(&mut grown);
        let done = self.cost_of_best() < enough;
        let complete = !done && {
            let mut chosen = Vec::with_capacity(self.k);
            self.deeper(0, 0.0, &mut chosen)
        };
        let (cost, tree) = self.best?;
        Some(Priced { tree, cost, floor: if complete { cost } else { first.min(cost) } })
    }

    fn cost_of_best(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |(cost, _)| *cost)
    }

    /// A set of k helpers, grown by adding the helper that joins the tree most cheaply.
    fn grown(&self) -> Vec<usize> {
        let mut set = Vec::with_capacity(self.k);
        while set.len() < self.k {
            let near = |helper: usize| {
                set.iter().chain([&self.m]).map(|to| self.cost[helper][*to]).fold(f64::INFINITY, f64::min)
            };
            let outside = (0..self.m).filter(|helper| !set.contains(helper));
            match outside.min_by(|a, b| near(*a).total_cmp(&near(*b))) {
                Some(next) => set.push(next),
                None => break,
            }
        }
        set
    }

    /// Exchanges one helper for another as long as that is cheaper.
    fn exchange(&mut self, set: &mut [usize]) {
        let mut cost = self.least(set).0;
        let mut better = true;
        while better && self.sets < MAX_SETS {
            better = false;
            for at in 0..set.len() {
                for other in 0..self.m {
                    if set.contains(&other) {
                        continue;
                    }
                    let before = std::mem::replace(&mut set[at], other);
                    match self.floor_of(set) < cost - EPSILON {
                        true if self.try_set(set) < cost - EPSILON => {
                            cost = self.cost_of_best().min(self.least(set).0);
                            better = true;
                        }
                        _ => set[at] = before,
                    }
                }
            }
        }
    }

    /// Searches all sets of the `chosen` helpers and further ones from `at` on. True if no set was skipped because
    /// [`MAX_SETS`] was reached.
    fn deeper(&mut self, at: usize, paid: f64, chosen: &mut Vec<usize>) -> bool {
        let missing = self.k - chosen.len();
        if missing == 0 {
            if self.floor_of(chosen) < self.cost_of_best() - EPSILON {
                self.try_set(&chosen.clone());
            }
            return self.sets < MAX_SETS;
        }
        let Some(next) = self.out.get(at..at + missing) else { return true };
        if paid + next.iter().map(|(cost, _)| cost).sum::<f64>() >= self.cost_of_best() - EPSILON {
            return true;
        }
        let (cost, helper) = self.out[at];
        chosen.push(helper);
        let complete = self.deeper(at + 1, paid + cost, chosen);
        chosen.pop();
        complete && self.deeper(at + 1, paid, chosen)
    }

    /// A lower bound on the cost of a set: each helper takes its cheapest way within the set.
    fn floor_of(&self, set: &[usize]) -> f64 {
        let near = |from: usize| set.iter().chain([&self.m]).map(move |to| self.cost[from][*to]);
        set.iter().map(|from| near(*from).fold(f64::INFINITY, f64::min)).sum()
    }

    fn try_set(&mut self, set: &[usize]) -> f64 {
        self.sets += 1;
        let (cost, tree) = self.least(set);
        if cost < self.cost_of_best() {
            self.best = Some((cost, tree));
        }
        cost
    }

    /// The least arborescence over a set of helpers.
    fn least(&self, set: &[usize]) -> (f64, Tree) {
        let node = |i: usize| set.get(i).copied().unwrap_or(self.m);
        let row = |i: usize| (0..=set.len()).map(|j| self.cost[node(i)][node(j)]).collect();
        let parents = arborescence((0..set.len()).map(row).collect());
        let edges: Vec<(usize, usize)> =
            parents.iter().enumerate().map(|(i, p)| (node(i), node(*p))).collect();
        (edges.iter().map(|(from, to)| self.cost[*from][*to]).sum(), Tree::new(edges))
    }
}

/// The parent of each node in the cheapest tree towards the last node. `cost` has a row for each other node: what
/// it pays for each parent. Uses Chu and Liu's contraction of cycles.
fn arborescence(cost: Vec<Vec<f64>>) -> Vec<usize> {
    let m = cost.len();
    let cheapest = |row: &Vec<f64>, own: usize| {
        let others = (0..=m).filter(|to| *to != own);
        others.min_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap_or(m)
    };
    let parents: Vec<usize> = cost.iter().enumerate().map(|(i, row)| cheapest(row, i)).collect();
    let Some(circle) = circle(&parents) else { return parents };
    // The cycle becomes one node, the last before the root.
    let kept: Vec<usize> = (0..m).filter(|node| !circle.contains(node)).chain([m]).collect();
    let one = kept.len() - 1;
    let into = |from: usize| {
        let ends = circle.iter().copied().min_by(|a, b| cost[from][*a].total_cmp(&cost[from][*b]));
        ends.unwrap_or(m)
    };
    let extra = |from: usize, to: usize| cost[from][to] - cost[from][parents[from]];
    let out = |to: usize| {
        let ends = circle.iter().copied().min_by(|a, b| extra(*a, to).total_cmp(&extra(*b, to)));
        ends.unwrap_or(m)
    };
    let mut small: Vec<Vec<f64>> = Vec::with_capacity(kept.len());
    for &from in &kept[..one] {
        let mut row: Vec<f64> = kept[..one].iter().map(|to| cost[from][*to]).collect();
        row.extend([cost[from][into(from)], cost[from][m]]);
        small.push(row);
    }
    let mut row: Vec<f64> = kept[..one].iter().map(|to| extra(out(*to), *to)).collect();
    row.extend([f64::INFINITY, extra(out(m), m)]);
    small.push(row);
    let mut whole = parents.clone();
    for (from, to) in arborescence(small).into_iter().enumerate() {
        let target = |to: usize| if to > one { m } else { kept[to] };
        match (from == one, to == one) {
            (true, _) => whole[out(target(to))] = target(to),
            (false, true) => whole[kept[from]] = into(kept[from]),
            (false, false) => whole[kept[from]] = target(to),
        }
    }
    whole
}

/// The nodes of a cycle, if there is one.
fn circle(parents: &[usize]) -> Option<Vec<usize>> {
    (0..parents.len()).find_map(|start| {
        let mut path = vec![start];
        let mut at = start;
        for _ in 0..parents.len() {
            at = *parents.get(at)?;
            if at == start {
                return Some(path);
            }
            path.push(at);
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cheapest of all trees, by trying every choice of parents.
    fn by_force(cost: &[Vec<f64>]) -> f64 {
        let m = cost.len();
        let mut best = f64::INFINITY;
        for code in 0..(m + 1).pow(m as u32) {
            let parents: Vec<usize> = (0..m).map(|i| code / (m + 1).pow(i as u32) % (m + 1)).collect();
            if circle(&parents).is_none() {
                best = best.min(parents.iter().enumerate().map(|(i, p)| cost[i][*p]).sum());
            }
        }
        best
    }

    proptest::proptest! {
        #[test]
        fn a_least_arborescence_is_as_cheap_as_the_best_of_all_trees(
            costs in proptest::collection::vec(0..20u8, 20),
            m in 1..5usize,
        ) {
            let at = |i: usize, j: usize| if i == j { f64::INFINITY } else { costs[i * 5 + j].into() };
            let cost: Vec<Vec<f64>> = (0..m).map(|i| (0..=m).map(|j| at(i, j)).collect()).collect();
            let parents = arborescence(cost.clone());
            proptest::prop_assert!(circle(&parents).is_none());
            let sum: f64 = parents.iter().enumerate().map(|(i, p)| cost[i][*p]).sum();
            proptest::prop_assert!((sum - by_force(&cost)).abs() < 1e-9);
        }
    }
}
