//! The trees of one repair: a good first guess, the best trees by [`super::lp`], and their shares of the slices by
//! [`super::shares`].

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId};

use super::lp::{pack, thin};
use super::network::{Network, Tree};
use super::shares::shares;
use crate::Topology;
use crate::traffic::Way;

/// The trees that are kept reach at least this part of the rate of all trees.
pub(super) const KEPT: f64 = 0.997;

/// Repair trees with shares of the slices.
#[derive(Debug, Clone, PartialEq)]
pub struct Forest {
    /// Each tree with its share.
    pub trees: Vec<SharedTree>,
    /// Bytes of each repaired block a second; infinite where nothing is known to limit it.
    pub rate: f64,
    /// The rate that no trees can beat. Not known (infinite) where several blocks are repaired together.
    pub bound: f64,
}

/// A repair tree, and how many slices of each period go along it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedTree {
    /// Each helper and the node that it sends to; `None` for the requestor.
    pub parents: BTreeMap<NodeId, Option<NodeId>>,
    /// Slices of each period that go along this tree. A period is the sum of all shares.
    pub share: u32,
}

impl SharedTree {
    /// What is sent, read and written for each slice that goes along the tree, each with how many slices. The requestor gets
    /// one lost block; the others, if several blocks are repaired together, go to the nodes of `also`.
    pub fn ways(&self, requestor: NodeId, also: &[(BlockIndex, NodeId)]) -> Vec<(Way, usize)> {
        let edges = self.parents.iter().map(|(from, to)| (*from, to.unwrap_or(requestor)));
        let also: Vec<NodeId> = also.iter().map(|(_, node)| *node).collect();
        let mut all = Vec::with_capacity(2 * self.parents.len() + 2 * also.len() + 1);
        ways(edges, requestor, &also, |way, slices| all.push((way, slices)));
        all
    }
}

/// Tells `add` what is sent, read and written along a tree of these `edges`, each from a helper to the node that it sends to, as
/// [`SharedTree::ways`]. A helper reads its block once, and sends a sum for each lost block, or what it has, where that is less.
/// What one helper computes whole, it sends to whom it belongs.
pub(crate) fn ways<N: Copy + Ord>(
    edges: impl Iterator<Item = (N, N)> + Clone,
    requestor: N,
    also: &[N],
    mut add: impl FnMut(Way<N>, usize),
) {
    if also.is_empty() {
        edges.clone().for_each(|(from, to)| add(Way::Between(from, to), 1));
    } else {
        let parents: BTreeMap<N, N> = edges.clone().collect();
        let mut sizes: BTreeMap<N, usize> = BTreeMap::new();
        for from in parents.keys() {
            let up = std::iter::successors(Some(*from), |node| parents.get(node).copied());
            up.take(parents.len()).for_each(|node| *sizes.entry(node).or_default() += 1);
        }
        let (blocks, size) = (also.len() + 1, |node: &N| sizes.get(node).copied().unwrap_or(1));
        let tops: Vec<N> =
            parents.iter().filter(|(_, to)| **to == requestor).map(|(from, _)| *from).collect();
        let whole = match tops[..] {
            [top] if size(&top) >= blocks => Some(top),
            _ => None,
        };
        for (from, to) in edges.clone() {
            let sums = if whole == Some(from) { 1 } else { size(&from).min(blocks) };
            add(Way::Between(from, to), sums);
        }
        also.iter().for_each(|node| add(Way::Between(whole.unwrap_or(requestor), *node), 1));
    }
    edges.for_each(|(from, _)| add(Way::Read(from), 1));
    also.iter().copied().chain([requestor]).for_each(|node| add(Way::Write(node), 1));
}

/// The best trees over `k` of the helpers each, as few as come near the bound. Where rates do not decide, earlier
/// helpers are preferred; so where all links are equal the result is one chain over the first k. `None` for fewer
/// than k helpers, no requestor or k of zero.
///
/// Reaches 0.99 of the bound wherever only the nodes' own links have rates. With racks or rates of pairs the same
/// holds for up to some thousands of sets of k helpers; with more sets, the result is the best that a local search
/// finds.
pub fn forest(topology: &Topology, helpers: &[NodeId], requestors: &[NodeId], k: usize) -> Option<Forest> {
    if k == 0 || helpers.len() < k || requestors.is_empty() {
        return None;
    }
    let network = Network::of(topology, helpers, requestors, k);
    let packing = pack(&network, guesses(&network))?;
    let few = thin(&network, &packing, KEPT);
    let (shares, rate) = shares(&network, &few.trees);
    let node = |number: usize| network.helpers.get(number).copied();
    let trees = few.trees.iter().zip(shares).filter(|(_, share)| *share > 0).map(|((tree, _), share)| {
        let parents = tree.0.iter().filter_map(|(from, to)| Some((node(*from)?, node(*to)))).collect();
        SharedTree { parents, share }
    });
    Some(Forest { trees: trees.collect(), rate, bound: packing.bound.max(rate) })
}

/// Chains in which each helper takes part as long as it can at the best rate. Bars of these lengths are laid one
/// after the other around a circle, k times round; each section of the circle is then a set of k helpers
/// (McNaughton's rule). Where links are equal in both directions these are already the best trees. The list also
/// has the star, and each chain reversed.
pub(crate) fn guesses(network: &Network) -> Vec<Tree> {
    let (m, k) = (network.requestor(), network.k);
    let mut order: Vec<usize> = (0..m).collect();
    let worth = |i: &usize| network.ends[*i].up.min(network.ends[*i].down);
    order.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    let mut chains: Vec<Vec<usize>> = vec![order[..k].to_vec()];
    let rate = network.nodes_bound;
    if rate.is_finite() && rate > 0.0 {
        chains.extend(around_the_circle(network, &order, rate));
    }
    let mut trees: Vec<Tree> = Vec::new();
    for mut path in chains {
        path_order(network, &mut path);
        trees.push(Tree::chain(&path, m));
        if network.own.is_none() && network.blocks == 1 {
            trees.push(Tree::with_children(path.iter().map(|helper| (*helper, 0)).collect(), m));
        }
        path.reverse();
        trees.push(Tree::chain(&path, m));
    }
    let mut seen = std::collections::BTreeSet::new();
    trees.retain(|tree| seen.insert(tree.clone()));
    trees
}

fn around_the_circle(network: &Network, order: &[usize], rate: f64) -> Vec<Vec<usize>> {
    let mut at = 0.0;
    let mut bars = Vec::new();
    for &helper in order {
        let up = network.ends[helper].up / network.blocks as f64;
        let len = up.min(rate).min(network.k as f64 * rate - at);
        bars.push((helper, at, at + len));
        at += len;
    }
    let mut cuts: Vec<f64> = bars.iter().map(|(_, _, end)| end % rate).chain([0.0, rate]).collect();
    cuts.sort_by(f64::total_cmp);
    let parts = cuts.windows(2).filter(|cut| cut[1] - cut[0] > 1e-9 * rate);
    let sets = parts.map(|cut| {
        let middle = (cut[0] + cut[1]) / 2.0;
        let turns = (0..network.k).map(|turn| middle + turn as f64 * rate);
        turns
            .filter_map(|x| bars.iter().find(|(_, from, to)| (*from..*to).contains(&x)))
            .map(|bar| bar.0)
            .collect()
    });
    let whole =
        |set: &Vec<usize>| set.len() == network.k && (1..set.len()).all(|i| !set[..i].contains(&set[i]));
    sets.filter(whole).collect()
}

/// Orders the path rack by rack, the requestor's rack last; the helper that can receive least goes first.
fn path_order(network: &Network, path: &mut [usize]) {
    let near = network.racks[network.requestor()];
    let crowd = |i: usize| path.iter().filter(|other| network.racks[**other] == network.racks[i]).count();
    let crowds: Vec<usize> = (0..network.requestor()).map(crowd).collect();
    path.sort_by(|&a, &b| {
        let key = |i: usize| (network.racks[i] == near, crowds[i], network.racks[i]);
        key(a).cmp(&key(b)).then(network.ends[a].down.total_cmp(&network.ends[b].down)).then(a.cmp(&b))
    });
}
