//! Max-min fair rates: how streams share links (progressive filling; Bertsekas and Gallager, "Data Networks",
//! section 6.5.2).
//!
//! All flows grow at the same speed until a link is full. The flows on that link stop growing, the others
//! continue. A flow may load a link by a multiple of its own rate: all streams of a pipelined repair move at one
//! rate, so they form one flow, and the flow loads each link once for each stream that passes the link. On every
//! link the flows therefore share in proportion to their streams, as TCP connections do. No flow can become faster
//! without slowing another that is no faster.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A link that a flow passes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Use {
    /// The number of the link.
    pub link: u32,
    /// Bytes on the link for each byte of the flow; positive.
    pub weight: f64,
}

/// Data that move at one rate.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// The links that it passes, each at most once.
    pub uses: &'a [Use],
    /// An upper limit on its rate besides the links.
    pub limit: f64,
}

/// Computes rates; keeps its memory between calls.
#[derive(Debug, Clone, Default)]
pub struct Filling {
    /// By link: the capacity that flows with a settled rate leave.
    left: Vec<f64>,
    /// By link: the weight of flows that still grow.
    weight: Vec<f64>,
    /// By link: the number of flows that still grow.
    growing: Vec<u32>,
    /// By link: where its flows are in `flows`.
    start: Vec<u32>,
    flows: Vec<u32>,
    /// The links that any flow uses.
    used: Vec<u32>,
    full_at: BinaryHeap<FullAt>,
}

impl Filling {
    /// Sets `rates` to the rate of each flow. `capacity` is by link, positive. A flow without links gets its limit,
    /// which may be infinite. O(u log l) for u uses of l links.
    ///
    /// # Panics
    /// For a link without a capacity.
    pub fn rates<'a, F>(&mut self, capacity: &[f64], flows: F, rates: &mut Vec<f64>)
    where
        F: ExactSizeIterator<Item = Flow<'a>> + Clone,
    {
        self.prepare(capacity, flows.clone().map(|flow| flow.uses));
        rates.clear();
        rates.resize(flows.len(), f64::INFINITY);
        let uses: Vec<&[Use]> = flows.clone().map(|flow| flow.uses).collect();
        // A limit acts like a link that only this flow uses.
        let limits = flows.enumerate().filter(|(_, flow)| flow.limit < f64::INFINITY);
        let links = capacity.len();
        let own = |i: usize| (links + i) as u32;
        self.full_at.extend(limits.map(|(i, flow)| FullAt { rate: flow.limit, link: own(i) }));
        while let Some(FullAt { rate, link }) = self.full_at.pop() {
            let l = link as usize;
            if l >= links {
                if rates[l - links] == f64::INFINITY {
                    rates[l - links] = rate;
                    self.settle(uses[l - links], rate);
                }
                continue;
            }
            if self.growing[l] == 0 {
                continue;
            }
            // Flows that have settled since can only raise this level.
            let now = self.level(l);
            if now > rate {
                self.full_at.push(FullAt { rate: now, link });
                continue;
            }
            for at in self.start[l]..self.start[l + 1] {
                let flow = self.flows[at as usize] as usize;
                if rates[flow] == f64::INFINITY {
                    rates[flow] = rate;
                    self.settle(uses[flow], rate);
                }
            }
        }
    }

    fn prepare<'a>(&mut self, capacity: &[f64], flows: impl Iterator<Item = &'a [Use]> + Clone) {
        let links = capacity.len();
        self.left.clear();
        self.left.extend_from_slice(capacity);
        self.weight.clear();
        self.weight.resize(links, 0.0);
        self.growing.clear();
        self.growing.resize(links, 0);
        for used in flows.clone().flatten() {
            self.weight[used.link as usize] += used.weight;
            self.growing[used.link as usize] += 1;
        }
        self.start.clear();
        self.start.resize(links + 1, 0);
        self.used.clear();
        self.full_at.clear();
        for l in 0..links {
            self.start[l + 1] = self.start[l] + self.growing[l];
            if self.growing[l] > 0 {
                self.used.push(l as u32);
                self.full_at.push(FullAt { rate: self.level(l), link: l as u32 });
            }
        }
        self.flows.clear();
        self.flows.resize(self.start[links] as usize, 0);
        // Each start advances to the end of its list while the list is filled, and is then set back.
        for (number, uses) in flows.enumerate() {
            for used in uses {
                let at = &mut self.start[used.link as usize];
                self.flows[*at as usize] = number as u32;
                *at += 1;
            }
        }
        for &l in &self.used {
            self.start[l as usize] -= self.growing[l as usize];
        }
    }

    /// The rate of the growing flows at which the link is full.
    fn level(&self, link: usize) -> f64 {
        self.left[link].max(0.0) / self.weight[link].max(f64::MIN_POSITIVE)
    }

    fn settle(&mut self, uses: &[Use], rate: f64) {
        for used in uses {
            let l = used.link as usize;
            self.left[l] -= used.weight * rate;
            self.weight[l] -= used.weight;
            self.growing[l] -= 1;
        }
    }
}

/// The rate at which a link is full, ordered so that the least comes first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct FullAt {
    rate: f64,
    link: u32,
}

impl Eq for FullAt {}

impl PartialOrd for FullAt {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for FullAt {
    fn cmp(&self, other: &Self) -> Ordering {
        other.rate.total_cmp(&self.rate).then(other.link.cmp(&self.link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn solved(capacity: &[f64], flows: &[Vec<Use>]) -> Vec<f64> {
        let mut rates = Vec::new();
        let free = flows.iter().map(|uses| Flow { uses, limit: f64::INFINITY });
        Filling::default().rates(capacity, free, &mut rates);
        rates
    }

    fn uses(of: &[(u32, f64)]) -> Vec<Use> {
        of.iter().map(|&(link, weight)| Use { link, weight }).collect()
    }

    #[test]
    fn the_textbook_and_what_has_no_limit() {
        // Two flows share the first link; the third has the rest of the second.
        let flows = [uses(&[(0, 1.0)]), uses(&[(0, 1.0), (1, 1.0)]), uses(&[(1, 1.0)]), uses(&[])];
        assert_eq!(solved(&[2.0, 10.0], &flows), [1.0, 1.0, 9.0, f64::INFINITY]);
        // A star of three streams into one node, and a single stream: each of the four gets a quarter.
        let both = [uses(&[(0, 3.0)]), uses(&[(0, 1.0)])];
        assert_eq!(solved(&[8.0], &both), [2.0, 2.0]);
        // Capacity that one flow does not use goes to the other.
        let mut rates = Vec::new();
        let flows = both.iter().zip([1.0, f64::INFINITY]).map(|(uses, limit)| Flow { uses, limit });
        Filling::default().rates(&[8.0], flows, &mut rates);
        assert_eq!(rates, [1.0, 5.0]);
    }

    proptest! {
        #[test]
        fn no_link_is_overfull_and_every_flow_has_a_full_one_where_none_is_faster(
            capacity in prop::collection::vec(1.0f64..100.0, 1..8),
            picks in prop::collection::vec(prop::collection::btree_map(0usize..8, 1u8..5, 1..5), 1..20),
        ) {
            let links = capacity.len();
            let flows: Vec<Vec<Use>> = picks.iter().map(|picks| {
                let picked = picks.iter().filter(|(l, _)| **l < links);
                picked.map(|(&l, &w)| Use { link: l as u32, weight: f64::from(w) }).collect()
            }).collect();
            let rates = solved(&capacity, &flows);
            let on = |l: usize| flows.iter().zip(&rates)
                .filter_map(move |(uses, rate)| Some((uses.iter().find(|u| u.link as usize == l)?.weight, *rate)));
            let load: Vec<f64> = (0..links).map(|l| on(l).map(|(w, r)| w * r).sum()).collect();
            for l in 0..links {
                prop_assert!(load[l] <= capacity[l] * (1.0 + 1e-9), "link {} carries {} of {}", l, load[l], capacity[l]);
            }
            for (uses, &rate) in flows.iter().zip(&rates) {
                let held = uses.iter().any(|u| {
                    let l = u.link as usize;
                    load[l] >= capacity[l] * (1.0 - 1e-9) && on(l).all(|(_, other)| other <= rate * (1.0 + 1e-9))
                });
                prop_assert!(held || uses.is_empty());
            }
        }
    }
}
