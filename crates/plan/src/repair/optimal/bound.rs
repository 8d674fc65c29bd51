//! How fast one block can be repaired where only the nodes' own links limit the rate.
//!
//! Model: node i sends at most U_i and receives at most D_i bytes a second, and nothing else is a limit. Every
//! slice is repaired along some tree over k helpers, rooted at the requestor R; a helper in a tree sends one
//! slice-sized combination. The best rate t (bytes of the repaired block a second) is the largest t with
//!
//! 1. t <= D_R: the requestor receives the block;
//! 2. sum_i min(U_i, t) >= k t: k combinations are sent for each slice, and each helper sends at most one;
//! 3. D_R + (k-1) sum_i min(U_i, t, D_i / (k-1)) >= k t: each of them is received. A helper receives at most k-1,
//!    and only for slices that it takes part in.
//!
//! These conditions suffice. Proof: give helper i the participation p_i <= min(U_i, t) with sum p_i = k t, and let
//! it be the hub (the parent of all others) for x_i <= min(p_i, D_i / (k-1)) of the time; a preemptive open shop
//! with the loads (x_i, p_i - x_i) is a schedule (Gonzalez and Sahni, JACM'76). A test compares the formula with
//! the linear program over all trees. The formula does not cover racks or rates of pairs of nodes: the linear
//! program in `lp` does.

use kintsu_dag::NodeId;

use super::lp::pack;
use super::network::Network;
use super::trees::guesses;
use crate::Topology;

/// What a node can send and receive, in bytes a second; infinite where nothing limits it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ends {
    /// U_i.
    pub up: f64,
    /// D_i.
    pub down: f64,
}

/// The largest rate, in bytes of the repaired block a second, at which `k` of these helpers can repair a
/// block for a requestor that can receive `down` bytes a second. Infinite where nothing limits it; zero for
/// fewer than k helpers or k of zero. O(n log n).
pub fn one_block(helpers: &[Ends], down: f64, k: usize) -> f64 {
    if k == 0 || helpers.len() < k {
        return 0.0;
    }
    let sent = helpers.iter().map(|helper| helper.up).collect();
    let rate = down.min(most(sent, k as f64, 1.0, 0.0));
    if k == 1 {
        return rate;
    }
    let received = helpers.iter().map(|helper| helper.up.min(helper.down / (k as f64 - 1.0))).collect();
    rate.min(most(received, k as f64, k as f64 - 1.0, down))
}

/// The rate, in bytes a second, that no repair of one block from `k` of these helpers can beat; infinite
/// where nothing limits it, zero for fewer than k helpers.
///
/// Where only the nodes' own links have rates this is [`one_block`]. With racks or rates of pairs it is the dual
/// of the linear program. That is exact within 0.2 % for up to some thousands of sets of k helpers; with more
/// sets, the bound may be higher than any repair can reach.
pub fn in_topology(topology: &Topology, helpers: &[NodeId], requestor: NodeId, k: usize) -> f64 {
    if k == 0 || helpers.len() < k {
        return 0.0;
    }
    let network = Network::of(topology, helpers, &[requestor], k);
    match &network.own {
        Some(_) => network.nodes_bound,
        None => pack(&network, guesses(&network)).map_or(0.0, |packing| packing.bound),
    }
}

/// The largest t with `free + factor * sum_i min(rate_i, t) >= need * t`. In that sum the largest rates are cut to
/// t. For each number of cut rates there is a largest t; the result is the least of these.
fn most(mut rates: Vec<f64>, need: f64, factor: f64, free: f64) -> f64 {
    rates.sort_by(f64::total_cmp);
    let mut rate = f64::INFINITY;
    let mut uncut = free;
    // The more rates are cut, the larger the factor of t on the left becomes, until it reaches `need`.
    for (uncut_count, next) in rates.iter().map(Some).chain([None]).enumerate() {
        let cut = (rates.len() - uncut_count) as f64;
        let missing = need - factor * cut;
        if missing > 0.0 {
            rate = rate.min(uncut / missing);
        }
        uncut += next.map_or(0.0, |next| factor * next);
    }
    rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn even(helpers: usize, rate: f64) -> Vec<Ends> {
        vec![Ends { up: rate, down: rate }; helpers]
    }

    #[test]
    fn on_equal_links_a_repair_is_as_fast_as_one_link() {
        for (helpers, k) in [(1, 1), (3, 2), (13, 10), (10, 10), (20, 12)] {
            assert_eq!(one_block(&even(helpers, 125.0), 125.0, k), 125.0, "{k} of {helpers}");
        }
    }

    #[test]
    fn slow_helpers_add_up_and_the_requestor_may_be_the_limit() {
        // Two fast ones are in every tree, three slow ones take turns as the third.
        let mut helpers = even(2, 100.0);
        helpers.extend(even(3, 20.0));
        assert_eq!(one_block(&helpers, 100.0, 3), 60.0);
        assert_eq!(one_block(&helpers, 50.0, 3), 50.0);
        // Without downlinks the helpers send straight to the requestor.
        let deaf = vec![Ends { up: 100.0, down: 0.0 }; 5];
        assert_eq!(one_block(&deaf, 90.0, 3), 30.0);
    }

    #[test]
    fn what_is_not_limited_and_what_cannot_be() {
        let free = Ends { up: f64::INFINITY, down: f64::INFINITY };
        assert_eq!(one_block(&[free; 4], f64::INFINITY, 3), f64::INFINITY);
        assert_eq!(one_block(&[free; 4], 7.0, 3), 7.0);
        assert_eq!(one_block(&[free; 2], 7.0, 3), 0.0);
        assert_eq!(one_block(&[free; 2], 7.0, 0), 0.0);
    }
}
