//! The path with the fastest slowest link (ECPipe, section 4.3).
//!
//! The paper searches depth first and cuts branches that cannot beat the best path so far (Algorithm 2). Here the
//! rate is found by bisection over the rates that occur: for each, a depth-first search tests whether some path
//! has all its links at that rate or above. Near the answer few links are that fast, so counting the helpers that
//! can still be reached cuts most branches. The result is exact unless the search needs more than [`WORK`] steps.
//! Then it is a path, but maybe not the best one, and [`Widest::exact`] is false.
//!
//! With random link rates the search for 10 of 13 or 12 of 15 helpers takes microseconds and is exact
//! (`kintsu bench plan` measures it). It is sometimes cut short where nearly all of thirty or more helpers are
//! needed.

use std::num::NonZeroU64;

/// Extensions of a path that one search tries before it gives up.
pub const WORK: usize = 20_000;

/// The most helpers that a search handles; of more, only the first ones are used.
pub const MOST_HELPERS: usize = 64;

/// A path of helpers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Widest {
    /// The helpers in the order of the path: the last one sends to the requestor.
    pub path: Vec<usize>,
    /// The least rate of its links; `None`: no link limits it.
    pub rate: Option<NonZeroU64>,
    /// Whether it is proved that no path is faster; `false` when a search was cut short or not all helpers were
    /// considered.
    pub exact: bool,
}

/// The path to the requestor over `k` of `helpers` helpers whose slowest link is fastest. `rate` gives the rate
/// from one helper to another, or to the requestor (`None`); it returns `None` for a link without limit. Of links
/// that are fast enough, those of helpers with small numbers are tried first.
///
/// `None` when there are fewer than k helpers, or k is 0.
pub fn widest(
    helpers: usize,
    k: usize,
    rate: &dyn Fn(usize, Option<usize>) -> Option<NonZeroU64>,
) -> Option<Widest> {
    let (helpers, all) = (helpers.min(MOST_HELPERS), helpers <= MOST_HELPERS);
    if k == 0 || k > helpers {
        return None;
    }
    let links = PairRates::new(helpers, rate);
    let mut levels: Vec<u64> = links.rates.iter().flatten().copied().collect();
    levels.sort_unstable();
    levels.dedup();
    // Every path reaches the least rate; the search for that rate finds the helpers in order of number.
    let mut best = Search::new(&links, 0, k).path()?;
    let mut low = links.level(&best, &levels);
    // It is proved that no path reaches the rate of level `refuted`. At `high` the search found none, but a path
    // that was found later may reach it.
    let (mut high, mut refuted) = (levels.len(), levels.len());
    while low + 1 < high {
        let middle = low + (high - low) / 2;
        let mut search = Search::new(&links, levels[middle], k);
        match search.path() {
            Some(path) => {
                low = links.level(&path, &levels);
                best = path;
            }
            None => {
                if search.left > 0 {
                    refuted = middle;
                }
                high = middle;
            }
        }
    }
    let exact = all && low + 1 >= refuted;
    let rate = NonZeroU64::new(links.slowest(&best)).filter(|rate| rate.get() < u64::MAX);
    Some(Widest { path: best, rate, exact })
}

/// The rates of all links; the last row is of those to the requestor.
struct PairRates {
    /// `rates[to][from]`.
    rates: Vec<Vec<u64>>,
}

impl PairRates {
    fn new(helpers: usize, rate: &dyn Fn(usize, Option<usize>) -> Option<NonZeroU64>) -> Self {
        let to = (0..helpers).map(Some).chain([None]);
        let of =
            |from, to| if Some(from) == to { 0 } else { rate(from, to).map_or(u64::MAX, NonZeroU64::get) };
        Self { rates: to.map(|to| (0..helpers).map(|from| of(from, to)).collect()).collect() }
    }

    fn slowest(&self, path: &[usize]) -> u64 {
        let requestor = self.rates.len() - 1;
        let to = path.iter().skip(1).copied().chain([requestor]);
        path.iter().zip(to).map(|(&from, to)| self.rates[to][from]).min().unwrap_or(u64::MAX)
    }

    fn level(&self, path: &[usize], levels: &[u64]) -> usize {
        let slowest = self.slowest(path);
        levels.partition_point(|level| *level < slowest)
    }
}

/// One search: is there a path of k helpers whose links all have at least a given rate?
struct Search {
    /// For each node (the requestor last), the helpers whose link to it is fast enough.
    into: Vec<u64>,
    k: usize,
    /// Extensions that may still be tried.
    left: usize,
}

impl Search {
    fn new(links: &PairRates, least: u64, k: usize) -> Self {
        let fast = |(to, row): (usize, &Vec<u64>)| {
            let mask =
                row.iter().enumerate().filter(|(_, rate)| **rate >= least).map(|(from, _)| 1u64 << from);
            mask.fold(0, |all, bit| all | bit) & !1u64.checked_shl(to as u32).unwrap_or(0)
        };
        Self { into: links.rates.iter().enumerate().map(fast).collect(), k, left: WORK }
    }

    fn path(&mut self) -> Option<Vec<usize>> {
        let helpers = self.into.len() - 1;
        let mut path = Vec::with_capacity(self.k);
        let all = u64::MAX >> (64 - helpers);
        self.extend(helpers, all, &mut path).then(|| path.into_iter().rev().collect())
    }

    /// Puts helpers of `free` before `begin` until there are k. Helpers with the fewest ways on are tried first,
    /// because they are the hardest to place later.
    fn extend(&mut self, begin: usize, free: u64, path: &mut Vec<usize>) -> bool {
        if path.len() == self.k {
            return true;
        }
        if !self.can_grow(begin, free, self.k - path.len()) {
            return false;
        }
        let mut next: Vec<usize> = ones(self.into[begin] & free).collect();
        next.sort_by_key(|&helper| (self.into[helper] & free).count_ones());
        for helper in next {
            if self.left == 0 {
                return false;
            }
            self.left -= 1;
            path.push(helper);
            if self.extend(helper, free & !(1 << helper), path) {
                return true;
            }
            path.pop();
        }
        false
    }

    /// Whether enough helpers can still be reached. At most one of them may have no way on: the one where the path
    /// begins.
    fn can_grow(&self, begin: usize, free: u64, wanted: usize) -> bool {
        let mut reached = self.into[begin] & free;
        let mut open = reached;
        while open != 0 {
            let at = open.trailing_zeros() as usize;
            let more = self.into[at] & free & !reached;
            reached |= more;
            open = (open & (open - 1)) | more;
        }
        let ends = ones(reached).filter(|&at| self.into[at] & reached == 0).count();
        reached.count_ones() as usize >= wanted + ends.saturating_sub(1)
    }
}

fn ones(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn brute(rates: &[Vec<u64>], free: &mut Vec<usize>, begin: usize, k: usize, so_far: u64) -> u64 {
        if k == 0 {
            return so_far;
        }
        let mut best = 0;
        for i in 0..free.len() {
            let helper = free.swap_remove(i);
            best = best.max(brute(rates, free, helper, k - 1, so_far.min(rates[begin][helper])));
            free.push(helper);
            let last = free.len() - 1;
            free.swap(i, last);
        }
        best
    }

    proptest! {
        #[test]
        fn no_path_is_faster(
            helpers in 1usize..7,
            k in 1usize..7,
            draws in prop::collection::vec(1u64..20, 49),
        ) {
            let rates: Vec<Vec<u64>> = draws.chunks(7).map(<[u64]>::to_vec).collect();
            let rows: Vec<Vec<u64>> = rates[..helpers].iter().chain([&rates[6]]).cloned().collect();
            let rate = |from: usize, to: Option<usize>| NonZeroU64::new(rows[to.unwrap_or(helpers)][from]);
            let found = widest(helpers, k, &rate);
            if k > helpers {
                prop_assert_eq!(found, None);
                return Ok(());
            }
            let found = found.unwrap();
            let mut seen = found.path.clone();
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len(), k);
            let best = brute(&rows, &mut (0..helpers).collect(), helpers, k, u64::MAX);
            prop_assert_eq!(found.rate.unwrap().get(), best);
            prop_assert!(found.exact);
        }
    }

    #[test]
    fn a_search_that_is_cut_short_says_so_and_finds_a_path() {
        let mut cut_short = 0;
        for seed in 0..60 {
            let helpers = 31;
            let rate = |from: usize, to: Option<usize>| {
                let link = to.unwrap_or(helpers) * helpers + from;
                NonZeroU64::new(1 + crate::draw(seed, 0, link as u64) % 1_000_000)
            };
            let found = widest(helpers, 28, &rate).unwrap();
            assert_eq!(found.path.iter().fold(0u64, |seen, at| seen | 1 << at).count_ones(), 28);
            let next = found.path[1..].iter().map(|at| Some(*at)).chain([None]);
            let slowest = found.path.iter().zip(next).map(|(from, to)| rate(*from, to)).min().unwrap();
            assert_eq!(found.rate, slowest);
            cut_short += usize::from(!found.exact);
        }
        assert!((1..60).contains(&cut_short), "{cut_short}");
    }

    #[test]
    fn of_more_helpers_than_can_be_told_apart_nothing_is_proved() {
        let found = widest(MOST_HELPERS + 1, 2, &|_, _| NonZeroU64::new(7)).unwrap();
        assert_eq!((found.exact, found.path.len()), (false, 2));
    }

    #[test]
    fn links_without_limit_leave_the_helpers_as_they_come() {
        let found = widest(13, 10, &|_, _| None).unwrap();
        assert_eq!((found.rate, found.exact, found.path.len()), (None, true, 10));
    }
}
