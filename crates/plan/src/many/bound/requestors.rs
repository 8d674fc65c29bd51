//! The nodes that may get a stripe's block, the idlest first.

use std::collections::BTreeSet;

use super::links::{LinkNumbers, Stripe};

/// The common requestors by how expensive or busy their downlinks are; rack by rack where racks have rates.
pub(super) struct Idle {
    /// Keyed by the bits of the number: for numbers that are not negative, bits and values have the same order.
    by_rack: Vec<BTreeSet<(u64, usize)>>,
    common: Vec<bool>,
}

impl Idle {
    /// All common requestors, with the busyness of each node.
    pub fn new(links: &LinkNumbers, busy: &dyn Fn(usize) -> f64) -> Self {
        let racks = if links.racked { links.racks } else { 1 };
        let mut idle = Self { by_rack: vec![BTreeSet::new(); racks], common: vec![false; links.nodes.len()] };
        for &node in &links.common {
            idle.common[node] = true;
            idle.insert(links, node, busy(node));
        }
        idle
    }

    /// Puts a node back with its new busyness, if it is a common requestor.
    pub fn insert(&mut self, links: &LinkNumbers, node: usize, busy: f64) {
        if self.common[node] {
            self.by_rack[rack(links, node)].insert((busy.max(0.0).to_bits(), node));
        }
    }

    /// Takes a node out by its old busyness.
    pub fn remove(&mut self, links: &LinkNumbers, node: usize, busy: f64) {
        self.by_rack[rack(links, node)].remove(&(busy.max(0.0).to_bits(), node));
    }

    /// Candidates for the stripe's block, among which the best one is: the idlest node, and where racks count, the
    /// idlest node of each rack with helpers and of all other racks two: the idlest, and the one to which the way through the downlink
    /// of its rack is cheapest.
    pub fn shortlist(
        &self,
        links: &LinkNumbers,
        stripe: &Stripe,
        price: &dyn Fn(usize) -> f64,
    ) -> Vec<usize> {
        let may = |node: &usize| !stripe.helpers.contains(node) && stripe.barred.binary_search(node).is_err();
        let first = |nodes: &BTreeSet<(u64, usize)>| nodes.iter().find(|(_, node)| may(node)).copied();
        if !links.racked {
            return self.by_rack.iter().filter_map(first).map(|(_, node)| node).collect();
        }
        let near = |rack: usize| stripe.helpers.iter().any(|helper| links.rack[*helper] == rack);
        let (near, far): (Vec<_>, Vec<_>) = (0..self.by_rack.len()).partition(|rack| near(*rack));
        let firsts = |racks: Vec<usize>| racks.into_iter().filter_map(|rack| first(&self.by_rack[rack]));
        let far: Vec<(u64, usize)> = firsts(far).collect();
        let way =
            |(busy, node): &(u64, usize)| f64::from_bits(*busy) + price(links.rack_down(links.rack[*node]));
        let cheapest = far.iter().min_by(|a, b| way(a).total_cmp(&way(b)));
        let far = far.iter().min().into_iter().chain(cheapest).copied();
        firsts(near).chain(far).map(|(_, node)| node).collect()
    }
}

fn rack(links: &LinkNumbers, node: usize) -> usize {
    if links.racked { links.rack[node] } else { 0 }
}
