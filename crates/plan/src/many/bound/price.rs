//! Prices of links that give a high bound: links that many cheapest trees would load become more expensive.
//!
//! Each stripe in turn, in many rounds, gets its cheapest tree, and the loads of these trees add up. The price of
//! a link is exponential in its load (multiplicative weights: Plotkin, Shmoys and Tardos, MOR'95; Young, SODA'95).
//! The mean of these prices tends to the best prices as more trees are found. Any prices give a valid bound.

use super::links::{LinkNumbers, Stripe};
use super::requestors::Idle;
use super::respond::{Response, respond};

/// How many cheapest trees are searched in total, but at least one for each stripe.
const TREES: usize = 80_000;

/// How many samples of the prices go into their mean.
const SAMPLES: usize = 400;

/// By how much one tree raises the price of a link, relatively. The minimum ensures progress.
const STEPS: std::ops::RangeInclusive<f64> = 0.01..=0.5;

/// When the price of the most expensive link has grown by this exponent, all prices are recomputed.
const FAR: f64 = 30.0;

/// A lower bound in seconds on any schedule.
pub(super) fn bound(links: &LinkNumbers) -> f64 {
    if !links.known || links.stripes.is_empty() {
        return 0.0;
    }
    let even: Vec<f64> = links.capacity.iter().map(|rate| 1.0 / rate).collect();
    let Some(first) = value(links, &even) else { return 0.0 };
    if first <= 0.0 {
        return first;
    }
    let mut market = Market::new(links, first);
    let visits = TREES.max(links.stripes.len());
    let every = (visits / SAMPLES).max(1);
    let mut mean = vec![0.0; even.len()];
    for visit in 0..visits {
        if market.visit(links, &links.stripes[visit % links.stripes.len()]).is_none() {
            return first;
        }
        if 2 * visit >= visits && visit % every == 0 {
            let spent = spent(links, &market.price);
            mean.iter_mut().zip(&market.price).for_each(|(mean, price)| *mean += price / spent);
        }
    }
    let found = [mean, market.price].into_iter().filter_map(|prices| value(links, &prices));
    found.fold(first, f64::max)
}

/// What all links together earn in a second at these prices.
fn spent(links: &LinkNumbers, price: &[f64]) -> f64 {
    let earned = price.iter().zip(&links.capacity).filter(|(_, rate)| rate.is_finite());
    earned.map(|(price, rate)| price * rate).sum()
}

/// The bound that these prices give: the cost of the cheapest trees divided by what the links earn in a second.
fn value(links: &LinkNumbers, price: &[f64]) -> Option<f64> {
    let idle = Idle::new(links, &|node| price[links.down(node)]);
    let mut cost = 0.0;
    for stripe in &links.stripes {
        cost += stripe.bytes * answer(links, stripe, &idle, price, &|node, _| price[links.down(node)])?.floor;
    }
    let spent = spent(links, price);
    Some(if spent > 0.0 { cost / spent } else { 0.0 })
}

fn answer(
    links: &LinkNumbers,
    stripe: &Stripe,
    idle: &Idle,
    price: &[f64],
    place: &dyn Fn(usize, usize) -> f64,
) -> Option<Response> {
    let racks = (0..if links.racked { links.racks } else { 0 }).map(|rack| links.rack_down(rack));
    let arrival = racks.min_by(|a, b| price[*a].total_cmp(&price[*b]));
    let price = |link: usize| price[link];
    respond(links, stripe, &idle.shortlist(links, stripe, &price), &price, place, arrival)
}

/// The loads so far, and the prices that follow from them.
struct Market {
    /// Seconds that each link has been busy.
    busy: Vec<f64>,
    price: Vec<f64>,
    /// The load at which the price of a link is 1 / rate.
    level: f64,
    /// By how much one more busy second raises the logarithm of a price.
    slope: f64,
    idle: Idle,
}

impl Market {
    /// `seconds` is a rough estimate of the time of all stripes together.
    fn new(links: &LinkNumbers, seconds: f64) -> Self {
        let rounds = (TREES as f64 / links.stripes.len() as f64).max(1.0);
        let used = links.capacity.iter().filter(|rate| rate.is_finite()).count() as f64;
        // At the end the exponent of the busiest link should be much larger than the logarithm of the number of
        // links m, and each step should be small. With step e the exponent is e times the trees on a link, and the
        // error is about e + ln(m) / exponent.
        let bytes = links.stripes.iter().map(|stripe| stripe.bytes).sum::<f64>() / links.stripes.len() as f64;
        let rates: Vec<f64> = links.capacity.iter().copied().filter(|rate| rate.is_finite()).collect();
        let one = bytes * rates.len() as f64 / rates.iter().sum::<f64>();
        let trees = (rounds * seconds / one).max(1.0);
        let step = (used.ln().max(1.0) / trees).sqrt().clamp(*STEPS.start(), *STEPS.end());
        Self {
            busy: vec![0.0; links.capacity.len()],
            price: links.capacity.iter().map(|rate| 1.0 / rate).collect(),
            level: 0.0,
            slope: step / one,
            idle: Idle::new(links, &|node| 1.0 / links.capacity[links.down(node)]),
        }
    }

    fn visit(&mut self, links: &LinkNumbers, stripe: &Stripe) -> Option<()> {
        let place = |node: usize, children: usize| {
            let link = links.down(node);
            let seconds = children as f64 * stripe.bytes / links.capacity[link];
            self.price[link] * (self.slope * seconds).exp()
        };
        let Response { paid, .. } = answer(links, stripe, &self.idle, &self.price, &place)?;
        let mut receivers: Vec<usize> = paid.iter().filter_map(|link| links.below(*link)).collect();
        receivers.sort_unstable();
        receivers.dedup();
        receivers.iter().for_each(|node| self.idle.remove(links, *node, self.price[links.down(*node)]));
        let mut most: f64 = 0.0;
        for link in paid {
            self.busy[link] += stripe.bytes / links.capacity[link];
            self.price[link] = self.priced(links, link);
            most = most.max(self.busy[link]);
        }
        receivers.iter().for_each(|node| self.idle.insert(links, *node, self.price[links.down(*node)]));
        if (most - self.level) * self.slope > FAR {
            self.level = most;
            self.price = (0..self.price.len()).map(|link| self.priced(links, link)).collect();
            self.idle = Idle::new(links, &|node| self.price[links.down(node)]);
        }
        Some(())
    }

    fn priced(&self, links: &LinkNumbers, link: usize) -> f64 {
        (self.slope * (self.busy[link] - self.level)).exp() / links.capacity[link]
    }
}
