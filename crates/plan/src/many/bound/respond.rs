//! The cheapest tree of one stripe at given link prices.
//!
//! A helper in the tree pays for its own uplink and for a place below its parent, that is for the parent's
//! downlink. Exactly one place below the requestor is used. Each rack in use other than the requestor's pays at
//! least once for its own uplink and for the downlink of some rack. If there is such a rack, what it sends reaches the requestor,
//! so one of these downlinks is that of the requestor's rack. The choice of helpers is exact, rack by rack
//! where racks have prices; places are assigned afterwards. With racks the result can be a little less than any
//! tree pays, which is enough for a bound.
//!
//! A stripe that lost f blocks pays for one of them as above, for each requestor's block depends on k helpers or more.
//! It also pays for f - 1 more transmissions: what is sent connects at least k helpers and f requestors, and each
//! requestor receives a block. Racks that several transmissions must leave ([`Stripe::left`]) pay for so many uplinks, and what
//! leaves a rack arrives in another.

use super::links::{LinkNumbers, Stripe};

/// The least that a stripe pays.
pub(super) struct Response {
    /// No tree of the stripe costs less.
    pub floor: f64,
    /// The links that it pays for; a link that is paid for several times appears several times.
    pub paid: Vec<usize>,
}

/// The choice of requestor and helpers.
struct Choice {
    requestor: usize,
    set: Vec<usize>,
    cost: f64,
}

/// What racks cost.
struct Racks<'a> {
    links: &'a LinkNumbers,
    stripe: &'a Stripe,
    price: &'a dyn Fn(usize) -> f64,
    /// The downlink of a rack that is the cheapest of all; `None` where racks do not count.
    arrival: Option<usize>,
}

impl Racks<'_> {
    /// What the cheapest arrival costs.
    fn cheapest(&self) -> f64 {
        self.arrival.map_or(0.0, self.price)
    }

    /// How often at least this rack is left if helpers of it are taken and the requestor is in the rack `near`.
    fn times(&self, rack: usize, near: usize) -> usize {
        let forced = self.stripe.left.iter().find(|(of, _)| *of == rack).map_or(0, |(_, times)| *times);
        forced.max(usize::from(rack != near))
    }

    /// What that costs with the cheapest arrivals.
    fn leave(&self, rack: usize, near: usize) -> f64 {
        self.times(rack, near) as f64 * ((self.price)(self.links.rack_up(rack)) + self.cheapest())
    }

    /// What it costs more that something arrives in the rack `near`.
    fn enter(&self, near: usize) -> f64 {
        match self.stripe.each {
            true => (self.price)(self.links.rack_down(near)) - self.cheapest(),
            false => 0.0,
        }
    }

    /// The links of racks that a requestor and helpers pay for.
    fn paid(&self, requestor: usize, set: &[usize]) -> Vec<usize> {
        let Some(arrival) = self.arrival else { return Vec::new() };
        let (links, near) = (self.links, self.links.rack[requestor]);
        let mut racks: Vec<usize> = set.iter().map(|node| links.rack[*node]).collect();
        racks.sort_unstable();
        racks.dedup();
        let left = racks.iter().flat_map(|rack| std::iter::repeat_n(*rack, self.times(*rack, near)));
        let mut paid: Vec<usize> = left.flat_map(|rack| [arrival, links.rack_up(rack)]).collect();
        if self.stripe.each && racks.iter().any(|rack| *rack != near) {
            paid[0] = links.rack_down(near);
        }
        paid
    }
}

/// The cheapest tree when a link costs `price(link)` and one more place below a node costs
/// `place(node, children)`. Where racks count, `arrival` is the downlink of a rack that is the cheapest of all.
/// `None` for too few helpers or no requestor.
pub(super) fn respond(
    links: &LinkNumbers,
    stripe: &Stripe,
    requestors: &[usize],
    price: &dyn Fn(usize) -> f64,
    place: &dyn Fn(usize, usize) -> f64,
    arrival: Option<usize>,
) -> Option<Response> {
    let racks = Racks { links, stripe, price, arrival };
    let best = choose(links, stripe, requestors, price, &racks)?;
    let mut paid: Vec<usize> = best.set.iter().map(|from| links.up(*from)).collect();
    match arrival {
        None => {
            let places = spread(&best.set, stripe.k, best.requestor, place);
            paid.extend(
                places.into_iter().flat_map(|(node, count)| std::iter::repeat_n(links.down(node), count)),
            );
            paid.extend(std::iter::repeat_n(links.down(best.requestor), 2 * stripe.k - paid.len()));
        }
        Some(_) => {
            // For the floor, places may be below any helper, chosen or not.
            let places = spread(&stripe.helpers, stripe.k, best.requestor, place);
            let below =
                places.into_iter().flat_map(|(node, count)| std::iter::repeat_n(links.down(node), count));
            paid.extend(below);
            paid.extend(std::iter::repeat_n(links.down(best.requestor), 2 * stripe.k - paid.len()));
            paid.extend(racks.paid(best.requestor, &best.set));
        }
    }
    let mut floor = best.cost;
    if stripe.blocks > 1 {
        let least =
            |links: &mut dyn Iterator<Item = usize>| links.min_by(|a, b| price(*a).total_cmp(&price(*b)));
        let up = least(&mut stripe.helpers.iter().chain(&links.common).map(|node| links.up(*node)))?;
        let down = least(&mut requestors.iter().map(|node| links.down(*node)))?;
        for _ in 1..stripe.blocks {
            floor += price(up) + price(down);
            paid.extend([up, down]);
        }
    }
    Some(Response { floor, paid })
}

/// Requestor and helpers with the least cost, if all places except the one below the requestor are where they are
/// cheapest: below a helper of the set, or, where racks count and the set is chosen rack by rack, below any
/// helper.
fn choose(
    links: &LinkNumbers,
    stripe: &Stripe,
    requestors: &[usize],
    price: &dyn Fn(usize) -> f64,
    racks: &Racks<'_>,
) -> Option<Choice> {
    if stripe.k == 0 || stripe.helpers.len() < stripe.k {
        return None;
    }
    let sorted = Sorted::new(links, stripe, price);
    let hub = sorted.hub(links, stripe.k, price);
    let choices = requestors.iter().map(|&requestor| {
        let own = price(links.down(requestor));
        let at_requestor = (stripe.k as f64 - 1.0) * own;
        let (paid, mut set) = sorted.set(links, stripe.k, links.rack[requestor], racks);
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
    fn new(links: &LinkNumbers, stripe: &Stripe, price: &dyn Fn(usize) -> f64) -> Self {
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

    /// The helper below which the k - 1 other places are cheapest, and what they cost there. If it is not among
    /// the cheapest k helpers, it replaces the most expensive of them.
    fn hub(&self, links: &LinkNumbers, k: usize, price: &dyn Fn(usize) -> f64) -> Option<(f64, usize)> {
        let last = self.all[k - 1].0;
        let cost = |(at, (up, helper)): (usize, &(f64, usize))| {
            let instead = if at < k || links.racked { 0.0 } else { up - last };
            (instead + (k as f64 - 1.0) * price(links.down(*helper)), *helper)
        };
        self.all.iter().enumerate().map(cost).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The cheapest k helpers for a requestor in the rack `near`. Where racks count, leaving and entering them costs, too; the
    /// choice is then found by dynamic programming over the racks and the number of helpers taken.
    fn set(&self, links: &LinkNumbers, k: usize, near: usize, racks: &Racks<'_>) -> (f64, Vec<usize>) {
        if !links.racked {
            let chosen = &self.all[..k];
            return (
                chosen.iter().map(|(cost, _)| cost).sum(),
                chosen.iter().map(|(_, helper)| *helper).collect(),
            );
        }
        // By number of helpers from the racks so far: the cost, and how many helpers are from each rack.
        let wide = k + 1;
        let mut best = vec![f64::INFINITY; wide];
        best[0] = 0.0;
        let mut counts = vec![0; self.by_rack.len() * wide];
        for ((rack, helpers), counts) in self.by_rack.iter().zip(counts.chunks_mut(wide)) {
            let leave = racks.leave(*rack, near);
            // From many to few, so that each cost is read before this rack changes it.
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
        // What comes from other racks enters this one. So helpers of this rack alone may be cheaper, which cost no less until now.
        if taken.iter().all(|node| links.rack[*node] == near) {
            return (best[k], taken);
        }
        let with_others = best[k] + racks.enter(near);
        let inside = self.by_rack.iter().find(|(rack, nodes)| *rack == near && nodes.len() >= k);
        let alone = inside.map(|(_, nodes)| {
            let cost: f64 = nodes[..k].iter().map(|(cost, _)| cost).sum();
            (cost + racks.leave(near, near), nodes[..k].iter().map(|(_, node)| *node).collect())
        });
        alone.filter(|(cost, _)| *cost < with_others).unwrap_or((with_others, taken))
    }
}

/// Assigns all places except the one below the requestor, each where it is cheapest at that moment; returns how
/// many each helper has.
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
