//! Trees for many stripes: first one stripe after the other, then in further passes, until no link is much busier
//! than the bound allows.
//!
//! Each stripe takes its cheapest tree given the loads of all others. A link costs what one more block adds to a
//! steep sum over all links (exponential potentials: Aspnes et al., JACM'97). The first pass gives a good result
//! for any beginning of the list; later passes remove each stripe and assign it again. The best pass is kept.

use std::collections::BTreeMap;

use super::links::{LinkNumbers, Tree};
use super::requestors::Idle;
use super::respond::{best_path, respond};
use super::{Assigned, RecoverySchedule};
use crate::optimal::SharedTree;

/// Upper limit on tree searches in total, besides the first one for each stripe.
const MAX_TREES: usize = 3_000_000;

/// Upper limit on passes after the first.
const MAX_PASSES: usize = 24;

/// Numbers of trees for one stripe that are tried: one if that is good enough, otherwise more, where there are few
/// stripes.
const PARTS: [usize; 5] = [1, 2, 4, 8, 16];

/// Upper limit on the trees of all stripes together where stripes have several.
const SEVERAL: usize = 2048;

/// No more trees for each stripe are tried when the bound is at least this part of the time of the busiest link.
const GOOD: f64 = 0.95;

/// No further pass is made when the bound is at least this part of the time of the busiest link.
const ENOUGH: f64 = 0.99;

/// How steep the sum over the links is at first: at 40, a link that is one percent busier costs half as much
/// again.
const STEEPNESS: f64 = 40.0;

/// How steep the sum becomes at last.
const STEEPEST: f64 = 400.0;

/// Exponents are cut here, so that all sums are finite.
const MAX_EXPONENT: f64 = 600.0;

/// Extra cost of each further child of the same node: paths load links more evenly than stars.
const CROWDED: f64 = 0.05;

pub(super) fn schedule(links: &LinkNumbers) -> Option<RecoverySchedule> {
    let bound = super::price::bound(links);
    let mut best = balanced(links, 1, bound)?;
    let more = PARTS.into_iter().skip(1).take_while(|parts| parts * links.stripes.len() <= SEVERAL);
    for parts in more {
        if bound >= GOOD * best.0 {
            break;
        }
        let next = balanced(links, parts, bound)?;
        if next.0 < best.0 {
            best = next;
        }
    }
    let repairs = best.1.iter().map(|trees| assigned(links, trees)).collect::<Option<Vec<_>>>()?;
    let seconds = if links.known { best.0 } else { 0.0 };
    let order = super::order::order(links, &best.1);
    Some(RecoverySchedule { repairs, order, seconds, bound })
}

/// `parts` trees for each stripe, and the time that they take.
fn balanced(links: &LinkNumbers, parts: usize, bound: f64) -> Option<(f64, Vec<Vec<Tree>>)> {
    let mut desk = Desk::new(links, parts, bound);
    for stripe in 0..links.stripes.len() {
        desk.assign(stripe)?;
    }
    let mut best = (links.seconds(&desk.loads), desk.trees.clone());
    let passes = (MAX_TREES / (links.stripes.len() * parts).max(1)).min(MAX_PASSES);
    for _ in 0..passes {
        if bound >= ENOUGH * best.0 {
            break;
        }
        desk.sharpen();
        for stripe in 0..links.stripes.len() {
            desk.withdraw(stripe);
            desk.assign(stripe)?;
        }
        let seconds = links.seconds(&desk.loads);
        if seconds < best.0 {
            best = (seconds, desk.trees.clone());
        }
    }
    Some(best)
}

/// The trees so far and their loads on the links.
struct Desk<'a> {
    links: &'a LinkNumbers,
    /// Trees of each stripe.
    parts: usize,
    /// The number of seconds that counts as 1 in the potential.
    unit: f64,
    steepness: f64,
    loads: Vec<f64>,
    trees: Vec<Vec<Tree>>,
    idle: Idle,
}

impl<'a> Desk<'a> {
    fn new(links: &'a LinkNumbers, parts: usize, bound: f64) -> Self {
        Self {
            links,
            parts,
            unit: if bound > 0.0 { bound } else { 1.0 },
            steepness: STEEPNESS,
            loads: vec![0.0; links.capacity.len()],
            trees: vec![Vec::new(); links.stripes.len()],
            idle: Idle::new(links, &|_| 0.0),
        }
    }

    fn sharpen(&mut self) {
        self.steepness = (1.3 * self.steepness).min(STEEPEST);
    }

    /// What `bytes` more on a link add to the potential, on top of `more` bytes that are added there already.
    fn rise(&self, link: usize, more: f64, bytes: f64) -> f64 {
        let scale = self.steepness / (self.links.capacity[link] * self.unit);
        let potential = |load: f64| (load * scale).min(MAX_EXPONENT).exp();
        let load = self.loads[link] + more;
        // Where exponents are cut, this term still tells links with different loads apart.
        potential(load + bytes) - potential(load) + bytes * scale * 1e-9
    }

    fn assign(&mut self, number: usize) -> Option<()> {
        let stripe = &self.links.stripes[number];
        let bytes = stripe.bytes / self.parts as f64;
        let mut requestors = self.idle.shortlist(self.links, stripe);
        for _ in 0..self.parts {
            let price = |link: usize| self.rise(link, 0.0, bytes);
            let place = |node: usize, children: usize| {
                let rise = self.rise(self.links.down(node), children as f64 * bytes, bytes);
                rise * (1.0 + CROWDED * children as f64)
            };
            let tree = match self.links.racked {
                true => best_path(self.links, stripe, &requestors, &price)?,
                false => respond(self.links, stripe, &requestors, &price, &place, None)?.tree,
            };
            requestors = vec![tree.requestor];
            self.carry(&tree, bytes);
            self.trees[number].push(tree);
        }
        Some(())
    }

    fn withdraw(&mut self, number: usize) {
        let bytes = self.links.stripes[number].bytes / self.parts as f64;
        for tree in std::mem::take(&mut self.trees[number]) {
            self.carry(&tree, -bytes);
        }
    }

    fn carry(&mut self, tree: &Tree, bytes: f64) {
        let (links, idle, loads) = (self.links, &mut self.idle, &mut self.loads);
        let receivers = || tree.edges.iter().map(|(_, to)| *to);
        let busy =
            |loads: &[f64], node: usize| loads[links.down(node)].max(0.0) / links.capacity[links.down(node)];
        receivers().for_each(|node| idle.remove(links, node, busy(loads, node)));
        links.load(tree, bytes, loads);
        receivers().for_each(|node| idle.insert(links, node, busy(loads, node)));
    }
}

/// A stripe's trees; equal trees become one tree with their shares added.
fn assigned(links: &LinkNumbers, trees: &[Tree]) -> Option<Assigned> {
    let mut shares: BTreeMap<&Tree, u32> = BTreeMap::new();
    trees.iter().for_each(|tree| *shares.entry(tree).or_default() += 1);
    let requestor = trees.first()?.requestor;
    let shared = |(tree, share): (&Tree, u32)| {
        let parent = |to: usize| (to != requestor).then(|| links.nodes[to]);
        let parents = tree.edges.iter().map(|(from, to)| (links.nodes[*from], parent(*to))).collect();
        SharedTree { parents, share }
    };
    let trees: Vec<SharedTree> = shares.into_iter().map(shared).collect();
    let trees = match &trees[..] {
        [only] => vec![SharedTree { share: 1, ..only.clone() }],
        _ => trees,
    };
    Some(Assigned { requestor: links.nodes[requestor], trees })
}
