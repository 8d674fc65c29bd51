//! The order in which repairs start, so that repairs that run together load all links evenly.
//!
//! When repairs share links fairly, a link is idle while all repairs that use it are limited by other links. If
//! each stretch of the order loads every link in proportion to its total load, no link is idle. Of the repairs
//! that are first in line, the next is always the one whose links are most behind (a greedy form of Steinitz'
//! rearrangement of vectors, with exponential weights).

use std::collections::BTreeMap;

use super::links::{LinkNumbers, Tree};

/// From how many repairs the next one is chosen.
const IN_LINE: usize = 512;

/// How steeply the weight of a link grows with each repair that the link is ahead.
const STEEPNESS: f64 = 1.0;

/// Exponents are cut here.
const MAX_EXPONENT: f64 = 50.0;

/// The numbers of the repairs in the order in which to start them.
pub(super) fn order(links: &LinkNumbers, trees: &[Vec<Tree>]) -> Vec<usize> {
    let loads: Vec<Vec<(usize, f64)>> =
        trees.iter().enumerate().map(|(number, trees)| loads(links, number, trees)).collect();
    let mut total = vec![0.0; links.capacity.len()];
    loads.iter().flatten().for_each(|(link, seconds)| total[*link] += seconds);
    let count = loads.iter().map(Vec::len).sum::<usize>().max(1);
    let unit = total.iter().sum::<f64>() / count as f64;
    if unit <= 0.0 {
        return (0..trees.len()).collect();
    }
    let (mut carried, mut weights) = (vec![0.0; total.len()], vec![0.0; total.len()]);
    let mut line: Vec<usize> = (0..trees.len().min(IN_LINE)).collect();
    let mut order = Vec::with_capacity(trees.len());
    while !line.is_empty() {
        let part = order.len() as f64 / trees.len() as f64;
        for ((weight, carried), total) in weights.iter_mut().zip(&carried).zip(&total) {
            let ahead = STEEPNESS * (carried - part * total) / unit;
            *weight = ahead.clamp(-MAX_EXPONENT, MAX_EXPONENT).exp();
        }
        let cost = |number: usize| {
            let (sum, seconds) = loads[number].iter().fold((0.0, 0.0), |(sum, all), (link, seconds)| {
                (sum + seconds * weights[*link], all + seconds)
            });
            if seconds > 0.0 { sum / seconds } else { 0.0 }
        };
        let costs = line.iter().map(|number| cost(*number)).enumerate();
        let Some((at, _)) = costs.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        let next = line.remove(at);
        loads[next].iter().for_each(|(link, seconds)| carried[*link] += seconds);
        order.push(next);
        line.extend(Some(order.len() + line.len()).filter(|later| *later < trees.len()));
    }
    order
}

/// Seconds for which a repair keeps each of its links busy.
fn loads(links: &LinkNumbers, number: usize, trees: &[Tree]) -> Vec<(usize, f64)> {
    let bytes = links.stripes[number].bytes / trees.len().max(1) as f64;
    let mut loads: BTreeMap<usize, f64> = BTreeMap::new();
    for tree in trees {
        links.each(tree, &mut |link| {
            if links.capacity[link].is_finite() {
                *loads.entry(link).or_default() += bytes / links.capacity[link];
            }
        });
    }
    loads.into_iter().collect()
}
