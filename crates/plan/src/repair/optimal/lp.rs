//! The best weights of repair trees: a linear program with one constraint for each link. Its columns (trees) are
//! generated as needed.
//!
//! Primal: weights x_T >= 0 of trees, sum_T x_T the largest, for each link l sum_T load_T(l) x_T <= C_l. Dual:
//! prices y_l >= 0, sum_l C_l y_l the least, each tree's cost sum_l load_T(l) y_l at least 1. The dual is solved
//! over the trees found so far; a tree that costs less than 1 at these prices ([`super::price`]) is the next
//! column. Any prices give a bound: sum_l C_l y_l over the cost of the cheapest tree. The search ends when the
//! bound and the rate of the weights are within [`GAP`] of each other, or after [`MAX_ROUNDS`] with the best
//! result so far.

use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, Variable};

use super::network::{Network, Tree};
use super::price::cheap;

/// The bound may be this much above the rate, relatively, when the search ends.
const GAP: f64 = 0.002;

/// How often prices are computed at most.
const MAX_ROUNDS: usize = 300;

/// Trees with their rates in bytes a second, the sum of them, and the rate that no trees can beat.
#[derive(Debug, Clone)]
pub(crate) struct Packing {
    pub trees: Vec<(Tree, f64)>,
    pub rate: f64,
    pub bound: f64,
}

impl Packing {
    /// A packing of this one tree; no better one is known.
    fn of_one(network: &Network, tree: Tree) -> Self {
        let rate = network.rate(&[(tree.clone(), 1.0)]);
        Self {
            trees: vec![(tree, if rate.is_finite() { rate } else { 1.0 })],
            rate,
            bound: network.nodes_bound,
        }
    }
}

/// The best packing found, starting from these trees (at least one). Where several blocks are repaired together no
/// further trees are searched, and the bound is infinite.
pub(crate) fn pack(network: &Network, mut first: Vec<Tree>) -> Option<Packing> {
    if network.nodes_bound.is_infinite() && network.blocks == 1 {
        // A tree without any limit, if there is one, is the cheapest when each link costs the same.
        first.extend(cheap(network, &vec![1.0; network.capacity.len()], 0.5).map(|found| found.tree));
    }
    let best = first.iter().map(|tree| Packing::of_one(network, tree.clone()));
    let single = best.max_by(|a, b| a.rate.total_cmp(&b.rate))?;
    if network.blocks == 1 && single.rate >= network.nodes_bound * (1.0 - GAP) || single.rate.is_infinite() {
        return Some(single);
    }
    let unit = single.rate;
    let (trees, bound) = columns(network, first, unit);
    let weights = weigh(network, &trees, unit)?;
    let rate: f64 = weights.iter().sum();
    let mut trees: Vec<_> =
        trees.into_iter().zip(weights).filter(|(_, weight)| *weight > rate * 1e-7).collect();
    trees.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Some(Packing { trees, rate, bound })
}

/// The fewest trees of the packing that reach `part` of its rate, with new weights.
pub(crate) fn thin(network: &Network, packing: &Packing, part: f64) -> Packing {
    let counts = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32];
    let fewer = counts.into_iter().take_while(|count| *count < packing.trees.len());
    let weighed = fewer.filter_map(|count| {
        let few: Vec<Tree> = packing.trees[..count].iter().map(|(tree, _)| tree.clone()).collect();
        let weights = weigh(network, &few, packing.rate)?;
        let rate: f64 = weights.iter().sum();
        let trees = few.into_iter().zip(weights).filter(|(_, weight)| *weight > rate * 1e-7).collect();
        Some(Packing { trees, rate, bound: packing.bound })
    });
    let mut enough = weighed.filter(|fewer| fewer.rate >= part * packing.rate);
    enough.next().unwrap_or_else(|| packing.clone())
}

/// Adds trees until the solution of the program over them is within [`GAP`] of the bound, for at most
/// [`MAX_ROUNDS`] rounds; returns the trees and the bound.
fn columns(network: &Network, mut trees: Vec<Tree>, unit: f64) -> (Vec<Tree>, f64) {
    let nodes_bound = if network.blocks == 1 { network.nodes_bound } else { f64::INFINITY };
    let mut prices = Prices::new(network, unit);
    let Some(mut solution) = prices.solve(network, &trees) else { return (trees, nodes_bound) };
    let mut bound = nodes_bound;
    for _ in 0..MAX_ROUNDS {
        let rate = solution.objective() * unit;
        if network.blocks > 1 || rate >= (1.0 - GAP) * bound {
            break;
        }
        let y: Vec<f64> = prices.of_links.iter().map(|price| solution.var_value(*price).max(0.0)).collect();
        let Some(found) = cheap(network, &y, 1.0 - GAP) else { break };
        bound = bound.min(rate / found.floor.max(1e-12));
        if found.cost >= 1.0 - 1e-7 || trees.contains(&found.tree) {
            break;
        }
        match prices.add(network, solution, &found.tree) {
            Some(next) => solution = next,
            None => break,
        }
        trees.push(found.tree);
    }
    (trees, bound)
}

/// The dual program.
struct Prices {
    problem: Problem,
    of_links: Vec<Variable>,
}

impl Prices {
    fn new(network: &Network, unit: f64) -> Self {
        let mut problem = Problem::new(OptimizationDirection::Minimize);
        let price = |capacity: &f64| problem.add_var(capacity / unit, (0.0, f64::INFINITY));
        let of_links = network.capacity.iter().map(price).collect();
        Self { problem, of_links }
    }

    fn row(&self, network: &Network, tree: &Tree) -> Vec<(Variable, f64)> {
        network.load(tree).into_iter().map(|(link, part)| (self.of_links[link], part)).collect()
    }

    fn solve(&mut self, network: &Network, trees: &[Tree]) -> Option<Solution> {
        for tree in trees {
            let row = self.row(network, tree);
            self.problem.add_constraint(row, ComparisonOp::Ge, 1.0);
        }
        self.problem.solve().ok()?.into_solution().ok()
    }

    fn add(&self, network: &Network, solution: Solution, tree: &Tree) -> Option<Solution> {
        let row = self.row(network, tree);
        solution.add_constraint(row, ComparisonOp::Ge, 1.0).ok()?.into_solution().ok()
    }
}

/// The primal program over these trees: the weight of each, in bytes a second.
pub(crate) fn weigh(network: &Network, trees: &[Tree], unit: f64) -> Option<Vec<f64>> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut rows: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); network.capacity.len()];
    let mut weights = Vec::with_capacity(trees.len());
    for tree in trees {
        let weight = problem.add_var(1.0, (0.0, f64::INFINITY));
        network.load(tree).into_iter().for_each(|(link, part)| rows[link].push((weight, part)));
        weights.push(weight);
    }
    for (row, capacity) in rows.into_iter().zip(&network.capacity).filter(|(row, _)| !row.is_empty()) {
        problem.add_constraint(row, ComparisonOp::Le, capacity / unit);
    }
    let solution = problem.solve().ok()?.into_solution().ok()?;
    Some(weights.into_iter().map(|weight| solution.var_value(weight).max(0.0) * unit).collect())
}
