//! The cheapest tree of one stripe at given prices of links.
//!
//! A helper in the tree pays its uplink and a place below its parent, that is the parent's downlink; one place is the
//! requestor's. A rack that is not the requestor's pays its uplink at least once, and somewhere a rack's downlink.
//! Helpers are chosen exactly, rack by rack where racks have prices; places are shared out afterwards. With racks that
//! is a little less than any tree pays: good for a bound ([`respond`]), while [`best_path`] gives a real one.

use super::links::{Links, Stripe, Tree};

/// What a stripe pays at least.
pub(super) struct Response {
    /// No tree of the stripe costs less.
    pub floor: f64,
    /// The links that it pays for, each as often as it does.
    pub paid: Vec<usize>,
    /// The tree; where racks have prices only what nodes send and receive in it.
    pub tree: Tree,
}

/// The choice of requestor and helpers.
struct Choice {
    requestor: usize,
    set: Vec<usize>,
    cost: f64,
}

/// The cheapest tree when a link costs what `price` says and a further place below a node `place(node, children)`.
/// With racks, each that is left pays for its uplink and the downlink of the rack `arrival`, which must be the
/// cheapest of all. `None` for too few helpers or no requestor.
pub(super) fn respond(
    links: &Links,
    stripe: &Stripe,
    requestors: &[usize],
    price: &dyn Fn(usize) -> f64,
    place: &dyn Fn(usize, usize) -> f64,
    arrival: Option<usize>,
) -> Option<Response> {
    let cheapest = arrival.map_or(0.0, price);
    let leave = |rack: usize| price(links.rack_up(rack)) + cheapest;
    let best = choose(links, stripe, requestors, price, &leave)?;
    let children = spread(&best.set, stripe.k, best.requestor, place);
    let tree = Tree {
        requestor: best.requestor,
        edges: crate::optimal::network::Tree::with_children(children, best.requestor).0,
    };
    let mut paid: Vec<usize> = best.set.iter().map(|from| links.up(*from)).collect();
    match arrival {
        None => paid.extend(tree.edges.iter().map(|(_, to)| links.down(*to))),
        Some(arrival) => {
            // The floor has places below any helper, chosen or not.
            let places = spread(&stripe.helpers, stripe.k, best.requestor, place);
            let below =
                places.into_iter().flat_map(|(node, count)| std::iter::repeat_n(links.down(node), count));
            paid.extend(below);
            paid.extend(std::iter::repeat_n(links.down(best.requestor), 2 * stripe.k - paid.len()));
            let mut left: Vec<usize> = best.set.iter().map(|node| links.rack[*node]).collect();
            left.sort_unstable();
            left.dedup();
            let remote = left.into_iter().filter(|rack| *rack != links.rack[best.requestor]);
            paid.extend(remote.flat_map(|rack| [links.rack_up(rack), arrival]));
        }
    }
    Some(Response { floor: best.cost, paid, tree })
}

/// A cheap path that leaves each rack once, for links with racks that have prices.
pub(super) fn best_path(
    links: &Links,
    stripe: &Stripe,
    requestors: &[usize],
    price: &dyn Fn(usize) -> f64,
) -> Option<Tree> {
    let leave = |rack: usize| price(links.rack_up(rack)) + price(links.rack_down(rack));
    let best = choose(links, stripe, requestors, price, &leave)?;
    Some(Tree { requestor: best.requestor, edges: path(links, &best, price) })
}

/// Requestor and helpers with the least cost, if all places but the requestor's one are where that is cheapest: below a
/// helper of the set, or with racks, where the set is chosen rack by rack, below any. `leave` is what a rack other than
/// the requestor's pays to be left.
fn choose(
    links: &Links,
    stripe: &Stripe,
    requestors: &[usize],
    price: &dyn Fn(usize) -> f64,
    leave: &dyn Fn(usize) -> f64,
) -> Option<Choice> {
    if stripe.k == 0 || stripe.helpers.len() < stripe.k {
        return None;
    }
    let sorted = Sorted::new(links, stripe, price);
    let hub = sorted.hub(links, stripe.k, price);
    let choices = requestors.iter().map(|&requestor| {
        let own = price(links.down(requestor));
        let at_requestor = (stripe.k as f64 - 1.0) * own;
        let (paid, mut set) = sorted.set(links, stripe.k, links.rack[requestor], leave);
        if let Some((_, hub)) =
            hub.filter(|(extra, hub)| *extra < at_requestor && !links.racked && !set.contains(hub))
        {
            set[stripe.k - 1] = hub;
        }
        let places = hub.map_or(at_requestor, |(extra, _)| extra.min(at_requestor));
        Choice { requestor, set, cost: paid + own + places }
    });
    choices.min_by(|a, b| a.cost.total_cmp(&b.cost))
}

/// The helpers of a stripe by the price of their uplinks.
struct Sorted {
    all: Vec<(f64, usize)>,
    by_rack: Vec<(usize, Vec<(f64, usize)>)>,
}

impl Sorted {
    fn new(links: &Links, stripe: &Stripe, price: &dyn Fn(usize) -> f64) -> Self {
        let mut all: Vec<(f64, usize)> =
            stripe.helpers.iter().map(|helper| (price(links.up(*helper)), *helper)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let mut by_rack: Vec<(usize, Vec<(f64, usize)>)> = Vec::new();
        if links.racked {
            for &(cost, helper) in &all {
                let rack = links.rack[helper];
                match by_rack.iter_mut().find(|(other, _)| *other == rack) {
                    Some((_, helpers)) => helpers.push((cost, helper)),
                    None => by_rack.push((rack, vec![(cost, helper)])),
                }
            }
        }
        Self { all, by_rack }
    }

    /// The helper below which the k - 1 other places are cheapest, and what they cost there: if it is not among the
    /// cheapest k, it takes the place of the dearest of these.
    fn hub(&self, links: &Links, k: usize, price: &dyn Fn(usize) -> f64) -> Option<(f64, usize)> {
        let last = self.all[k - 1].0;
        let cost = |(at, (up, helper)): (usize, &(f64, usize))| {
            let instead = if at < k || links.racked { 0.0 } else { up - last };
            (instead + (k as f64 - 1.0) * price(links.down(*helper)), *helper)
        };
        self.all.iter().enumerate().map(cost).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The cheapest k helpers: where racks count, when each of those in use but the one `near` pays once to be left,
    /// found by number of helpers taken over the racks one after the other.
    fn set(&self, links: &Links, k: usize, near: usize, leave: &dyn Fn(usize) -> f64) -> (f64, Vec<usize>) {
        if !links.racked {
            let chosen = &self.all[..k];
            return (
                chosen.iter().map(|(cost, _)| cost).sum(),
                chosen.iter().map(|(_, helper)| *helper).collect(),
            );
        }
        // By number of helpers over the racks so far: the cost, and for each rack how many of them are in it.
        let wide = k + 1;
        let mut best = vec![f64::INFINITY; wide];
        best[0] = 0.0;
        let mut counts = vec![0; self.by_rack.len() * wide];
        for ((rack, helpers), counts) in self.by_rack.iter().zip(counts.chunks_mut(wide)) {
            let leave = if *rack == near { 0.0 } else { leave(*rack) };
            // From many to few, so that a cost is read before this rack has a part in it.
            for taken in (1..wide).rev() {
                let mut sum = leave;
                for (more, (cost, _)) in (1..=taken).zip(helpers) {
                    sum += cost;
                    let with = best[taken - more] + sum;
                    if with < best[taken] {
                        (best[taken], counts[taken]) = (with, more);
                    }
                }
            }
        }
        let (mut left, mut taken) = (k, Vec::with_capacity(k));
        for ((_, helpers), counts) in self.by_rack.iter().zip(counts.chunks(wide)).rev() {
            taken.extend(helpers[..counts[left]].iter().map(|(_, helper)| *helper));
            left -= counts[left];
        }
        (best[k], taken)
    }
}

/// A path rack by rack, the requestor's last, so that each other rack is left once; the rack and in it the node with the
/// dearest downlink first, where nothing is received.
fn path(links: &Links, choice: &Choice, price: &dyn Fn(usize) -> f64) -> Vec<(usize, usize)> {
    let near = links.rack[choice.requestor];
    let mut path = choice.set.clone();
    let down = |node: usize| price(links.down(node));
    path.sort_by(|&a, &b| {
        let (here, there) = (links.rack[a], links.rack[b]);
        let arrival = |rack: usize| price(links.rack_down(rack));
        let racks = (here == near).cmp(&(there == near)).then(arrival(there).total_cmp(&arrival(here)));
        racks.then(here.cmp(&there)).then(down(b).total_cmp(&down(a))).then(a.cmp(&b))
    });
    let next = path.iter().skip(1).copied().chain([choice.requestor]);
    path.iter().copied().zip(next).collect()
}

/// All places but the requestor's one, each below the node where it is cheapest now: how many each helper has.
fn spread(
    helpers: &[usize],
    k: usize,
    requestor: usize,
    place: &dyn Fn(usize, usize) -> f64,
) -> Vec<(usize, usize)> {
    let mut children: Vec<(usize, usize)> = helpers.iter().map(|node| (*node, 0)).collect();
    let mut at_requestor = 1;
    for _ in 1..k {
        let costs = children.iter().map(|(node, count)| place(*node, *count));
        let cheapest = costs.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        match cheapest {
            Some((at, cost)) if cost <= place(requestor, at_requestor) => children[at].1 += 1,
            _ => at_requestor += 1,
        }
    }
    children
}
