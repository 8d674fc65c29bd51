//! How many slices of each period go along each tree: whole shares in the place of weights.
//!
//! Shares that are rounded to the nearest number miss the rate of the weights where many trees fill narrow links: one
//! slice too many on a link that carries five is a fifth of its time, and the slowest link holds all trees. So where that is
//! not good enough, all shares are rounded down and then raised where links have room.

use super::network::{Network, Tree};

/// The shares reach at least this part of the rate of the weights, if a period up to [`MAX_PERIOD`] allows it.
const ROUNDED: f64 = 0.995;

/// The largest sum of the shares.
const MAX_PERIOD: u32 = 1000;

/// The longest of so many periods are tried with shares that are raised where links have room.
const RAISED_PERIODS: u32 = 200;

/// Whole shares in proportion to the weights, and the rate that they reach. Takes the first that reach [`ROUNDED`]:
/// of the nearest shares those of the smallest period, else raised ones.
pub(super) fn shares(network: &Network, trees: &[(Tree, f64)]) -> (Vec<u32>, f64) {
    let weights = Weights::new(network, trees);
    let nearest = (1..=MAX_PERIOD).map(|period| weights.nearest(period));
    let raised = (0..RAISED_PERIODS).map(|fewer| weights.raised(MAX_PERIOD - fewer));
    let mut best = (vec![1; trees.len()], 0.0);
    for shares in nearest.chain(raised) {
        let reached = weights.rate(&shares);
        if reached > best.1 {
            best = (shares, reached);
        }
        if best.1 >= ROUNDED * weights.whole {
            break;
        }
    }
    best
}

struct Weights<'a> {
    capacity: &'a [f64],
    /// What each tree loads of each of its links.
    loads: Vec<Vec<(usize, f64)>>,
    /// The weight of each tree as a part of all.
    parts: Vec<f64>,
    /// The sum of the weights.
    whole: f64,
}

impl<'a> Weights<'a> {
    fn new(network: &'a Network, trees: &[(Tree, f64)]) -> Self {
        let whole: f64 = trees.iter().map(|(_, weight)| weight).sum();
        Self {
            capacity: &network.capacity,
            loads: trees.iter().map(|(tree, _)| network.load(tree)).collect(),
            parts: trees.iter().map(|(_, weight)| weight / whole).collect(),
            whole,
        }
    }

    /// What each link carries in a period of these shares.
    fn carried(&self, shares: &[u32]) -> Vec<f64> {
        let mut carried = vec![0.0; self.capacity.len()];
        for (load, share) in self.loads.iter().zip(shares) {
            load.iter().for_each(|(link, part)| carried[*link] += part * f64::from(*share));
        }
        carried
    }

    fn rate(&self, shares: &[u32]) -> f64 {
        let (carried, period): (_, u32) = (self.carried(shares), shares.iter().sum());
        let loaded = carried.iter().zip(self.capacity).filter(|(load, _)| **load > 0.0);
        loaded.map(|(load, capacity)| capacity / load * f64::from(period)).fold(f64::INFINITY, f64::min)
    }

    /// Shares before they are whole.
    fn exact(&self, period: u32) -> Vec<f64> {
        self.parts.iter().map(|part| part * f64::from(period)).collect()
    }

    /// Shares of this period, by the largest remainders.
    fn nearest(&self, period: u32) -> Vec<u32> {
        let exact = self.exact(period);
        let mut shares = down(&exact);
        let mut by_rest: Vec<usize> = (0..exact.len()).collect();
        by_rest.sort_by(|a, b| exact[*b].fract().total_cmp(&exact[*a].fract()).then(a.cmp(b)));
        let missing = period.saturating_sub(shares.iter().sum());
        by_rest.into_iter().take(missing as usize).for_each(|tree| shares[tree] += 1);
        shares
    }

    /// Shares of at most this period: rounded down, then one by one raised where the link that needs longest needs the
    /// least longer, until the rate is the highest.
    fn raised(&self, period: u32) -> Vec<u32> {
        let exact = self.exact(period);
        let mut shares = down(&exact);
        let mut carried = self.carried(&shares);
        let seconds = |(load, capacity): (&f64, &f64)| load / capacity;
        let mut longest = carried.iter().zip(self.capacity).map(seconds).fold(0.0, f64::max);
        let (mut best, mut highest) = (shares.clone(), 0.0);
        let mut sum: u32 = shares.iter().sum();
        loop {
            let rate = f64::from(sum) / longest;
            if rate > highest {
                (best, highest) = (shares.clone(), rate);
            }
            if sum >= period {
                return best;
            }
            let with_one_more = |tree: usize| {
                let links = self.loads[tree].iter();
                links
                    .map(|(link, part)| (carried[*link] + part) / self.capacity[*link])
                    .fold(longest, f64::max)
            };
            let above = |tree: usize| f64::from(shares[tree]) - exact[tree];
            let trees = (0..shares.len()).map(|tree| (with_one_more(tree), above(tree), tree));
            let next = trees.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
            let Some((seconds, _, tree)) = next else { return best };
            self.loads[tree].iter().for_each(|(link, part)| carried[*link] += part);
            (longest, sum) = (seconds, sum + 1);
            shares[tree] += 1;
        }
    }
}

fn down(exact: &[f64]) -> Vec<u32> {
    exact.iter().map(|share| share.floor() as u32).collect()
}
