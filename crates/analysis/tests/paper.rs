//! The worked values and the statements of "On Fault Tolerance, Locality, and Optimality in Locally Repairable
//! Codes" (ATC'18), over its whole range, 9 <= n <= 19 and n/k <= 2. Where a statement does not always hold, the
//! test names every exception; `docs/lrc-study.md` describes them.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::LazyLock;

use kintsu_analysis::{Ratio, Request, Row, STUDIED, binomial, check, compare};

const AZURE: &str = "azure-lrc";
const PLUS1: &str = "azure-lrc-plus1";
const XORBAS: &str = "xorbas";
const OPTIMAL: &str = "optimal-lrc";
const FULL: [&str; 3] = [PLUS1, XORBAS, OPTIMAL];
const LRCS: [&str; 4] = [AZURE, PLUS1, XORBAS, OPTIMAL];

type Shape = (usize, usize, usize);

/// The (n, k) that the figures of the study name.
const PRINTED: [(usize, usize); 9] =
    [(12, 8), (14, 9), (14, 10), (15, 10), (16, 10), (16, 11), (16, 12), (17, 12), (18, 12)];

static TABLE: LazyLock<BTreeMap<(String, Shape), Row>> = LazyLock::new(|| {
    let families = STUDIED.map(str::to_owned).to_vec();
    let request = Request { n: 9..=19, max_overhead: 2.0, families, min_distance: 0 };
    let table = compare(&request, |_, _| {}).unwrap();
    assert!(table.left_out.is_empty());
    table.rows.into_iter().map(|row| ((row.family.clone(), (row.n, row.k, row.r)), row)).collect()
});

fn row(family: &str, shape: Shape) -> Option<&'static Row> {
    TABLE.get(&(family.to_owned(), shape))
}

fn nrc(family: &str, shape: Shape) -> Ratio {
    row(family, shape).unwrap().nrc
}

fn rd_ratio(family: &str, shape: Shape) -> Ratio {
    row(family, shape).unwrap().rd_ratio
}

fn shapes(family: &str) -> Vec<Shape> {
    TABLE.keys().filter(|(name, _)| name == family).map(|&(_, shape)| shape).collect()
}

/// All (n, k) of the range, with the LRCs of each.
fn by_size() -> BTreeMap<(usize, usize), Vec<&'static Row>> {
    let mut sizes: BTreeMap<_, Vec<&Row>> = BTreeMap::new();
    for row in TABLE.values() {
        let lrcs = sizes.entry((row.n, row.k)).or_default();
        lrcs.extend(Some(row).filter(|row| LRCS.contains(&row.family.as_str())));
    }
    sizes
}

/// The smallest rd-ratio of a family among these rows.
fn best_ratio(rows: &[&Row], family: &str) -> Option<Ratio> {
    rows.iter().filter(|row| row.family == family).map(|row| row.rd_ratio).min()
}

/// Says aloud what was compared with the study: the harness hides the output of tests that pass.
fn compared(what: &str) {
    let _ = writeln!(std::io::stderr(), "COMPARED: {what}");
}

#[test]
fn each_family_is_defined_where_it_should_be() {
    let counts = STUDIED.map(|family| shapes(family).len());
    assert_eq!(counts, [405, 306, 18, 339, 74]);
    for (n, _, r) in shapes(OPTIMAL) {
        assert_ne!(n % (r + 1), 1);
    }
    let sizes = by_size();
    let all_shapes = sizes.keys().flat_map(|&(n, k)| (1..=k).map(move |r| (n, k, r)));
    for (n, k, r) in all_shapes {
        let locals = k.div_ceil(r);
        assert_eq!(row(AZURE, (n, k, r)).is_some(), n > k + locals, "{n} {k} {r}");
        assert_eq!(row(PLUS1, (n, k, r)).is_some(), n > k + locals + 1, "{n} {k} {r}");
    }
}

#[test]
fn worked_values() {
    let values = |family, shape| {
        let row = row(family, shape).unwrap();
        (row.nrc.to_string(), row.degraded.to_string(), row.d)
    };
    let expect = |nrc: &str, degraded: &str, d| (nrc.to_owned(), degraded.to_owned(), d);
    assert_eq!(values(AZURE, (10, 6, 3)), expect("6", "3", 4));
    assert_eq!(values(AZURE, (11, 6, 2)), expect("5", "2", 4));
    assert_eq!(values(OPTIMAL, (12, 6, 3)), expect("6", "3", 6));
    // Section 2: the (11,6,3) Azure-LRC repairs any four lost blocks, not any five.
    assert_eq!(row(AZURE, (11, 6, 3)).unwrap().d, 5);
    // Section 6: the ARC of Reed-Solomon is k, whatever n.
    assert_eq!([14, 15].map(|n| row("rs", (n, 10, 10)).unwrap().arc), [Ratio::new(10, 1); 2]);
    compared("costs and distances with the values that the LRC study works out");
}

#[test]
fn every_distance_is_exact() {
    for row in TABLE.values().filter(|row| row.family != "rs") {
        let Row { family, n, k, r, d, .. } = row;
        let code = kintsu_code::parse(&format!("{family}:n={n},k={k},r={r}")).unwrap();
        let patterns = (0..=*d).map(|f| binomial(*n, f).unwrap()).sum();
        assert_eq!(check(&*code, patterns).unwrap().exact, Some(true), "{}", code.name());
    }
}

/// Section 4: where r divides k, the degraded cost is the same for all codes of one (n, k, r).
#[test]
fn degraded_costs_differ_only_where_r_does_not_divide_k() {
    let mut differ = 0;
    for ((_, (n, k, r)), one) in TABLE.iter().filter(|((family, _), _)| family != "rs") {
        for other in LRCS.iter().filter_map(|family| row(family, (*n, *k, *r))) {
            assert!(k % r != 0 || one.degraded == other.degraded);
            differ += usize::from(one.degraded != other.degraded);
        }
    }
    assert!(differ > 0);
}

/// Section 4: a larger r raises the costs of each code.
#[test]
fn a_larger_r_costs_more_for_the_same_n_and_k() {
    for family in [AZURE, PLUS1, OPTIMAL] {
        let shapes = shapes(family);
        for pair in shapes.windows(2).filter(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)) {
            let [near, far] = [pair[0], pair[1]].map(|shape| row(family, shape).unwrap());
            assert!(near.nrc <= far.nrc && near.degraded <= far.degraded, "{family} {pair:?}");
        }
    }
}

/// Section 4: at the same (n, k, r) some full LRC has a lower NRC than Azure's code. Where a full LRC is defined,
/// this fails only for n = k + 3 with two groups of nearly the same size.
#[test]
fn some_full_lrc_beats_azure() {
    let mut none_defined = Vec::new();
    let mut fails = Vec::new();
    let mut paid_in_distance = 0;
    for shape in shapes(AZURE) {
        let full: Vec<_> = FULL.iter().filter_map(|family| row(family, shape)).collect();
        if full.is_empty() {
            none_defined.push(shape);
        } else if full.iter().all(|row| row.nrc >= nrc(AZURE, shape)) {
            fails.push(shape);
        }
        // A lower NRC never comes with a larger distance.
        let azure = row(AZURE, shape).unwrap();
        let mut cheaper = full.iter().filter(|row| row.nrc < azure.nrc).peekable();
        let any = cheaper.peek().is_some();
        assert!(cheaper.clone().all(|row| row.d <= azure.d));
        paid_in_distance += usize::from(any && cheaper.all(|row| row.d < azure.d));
    }
    assert_eq!((shapes(AZURE).len() - none_defined.len() - fails.len(), paid_in_distance), (375, 194));
    assert_eq!(none_defined.len(), 19);
    assert!(none_defined.iter().all(|&(n, k, r)| n == k + k.div_ceil(r) + 1 && n % (r + 1) == 1));
    assert_eq!(
        fails,
        [
            (9, 6, 4),
            (10, 7, 4),
            (11, 8, 5),
            (12, 9, 5),
            (13, 10, 6),
            (14, 11, 6),
            (15, 12, 7),
            (16, 13, 7),
            (17, 14, 8),
            (18, 15, 8),
            (19, 16, 9),
        ]
    );
    assert!(fails.iter().all(|&(n, k, r)| n == k + 3 && r == k / 2 + 1));
}

/// Section 4: Xorbas has the d of Azure-LRC+1 and Optimal-LRC and a higher NRC. The NRC is equal at two shapes, and
/// lower at two.
#[test]
fn xorbas_has_the_same_distance_and_mostly_a_higher_cost() {
    let mut compared = 0;
    let (mut equal, mut lower) = (Vec::new(), Vec::new());
    for shape in shapes(XORBAS) {
        let xorbas = row(XORBAS, shape).unwrap();
        let others: Vec<_> = [PLUS1, OPTIMAL].iter().filter_map(|family| row(family, shape)).collect();
        // Those with a single global parity have no other full LRC of their shape.
        assert_eq!(others.is_empty(), shape.0 == shape.1 + 3);
        compared += usize::from(!others.is_empty());
        assert!(others.iter().all(|other| other.d == xorbas.d));
        equal.extend(Some(shape).filter(|_| others.iter().any(|other| other.nrc == xorbas.nrc)));
        lower.extend(Some(shape).filter(|_| others.iter().any(|other| other.nrc > xorbas.nrc)));
    }
    assert_eq!(compared, 12);
    assert_eq!(equal, [(14, 10, 5), (19, 14, 7)]);
    assert_eq!(lower, [(16, 12, 6), (18, 14, 7)]);
}

/// Section 4: where Azure-LRC+1 has a lower NRC than Optimal-LRC, its d is lower too, except in corner cases,
/// where d is the same.
#[test]
fn azure_plus1_below_optimal_pays_in_distance_but_for_corner_cases() {
    let both: Vec<_> = shapes(PLUS1).into_iter().filter(|&shape| row(OPTIMAL, shape).is_some()).collect();
    let d = |family, shape| row(family, shape).unwrap().d;
    let alike = |s: &&Shape| nrc(PLUS1, **s) == nrc(OPTIMAL, **s) && d(PLUS1, **s) == d(OPTIMAL, **s);
    assert_eq!((both.len(), both.iter().filter(alike).count()), (265, 98));
    let below: Vec<_> = both.iter().filter(|&&s| nrc(PLUS1, s) < nrc(OPTIMAL, s)).collect();
    let corner: Vec<_> = below.iter().filter(|&&&s| d(PLUS1, s) >= d(OPTIMAL, s)).collect();
    assert_eq!((below.len(), corner.len()), (160, 34));
    assert!(corner.iter().all(|&&&s| d(PLUS1, s) == d(OPTIMAL, s)));
    let printed = corner.iter().filter(|s| PRINTED.contains(&(s.0, s.1))).map(|s| ***s);
    assert!(printed.eq([(14, 9, 5), (16, 10, 6), (16, 11, 6), (18, 12, 7)]));
}

/// The largest distance that a code of n blocks and k data blocks can have if these disjoint sets are local groups: any of
/// which one block follows from the others. Blocks of rank below k are lost data; as many as possible are chosen so that
/// most come free, with the smallest groups first.
fn most_that_groups_allow(n: usize, k: usize, mut groups: Vec<usize>) -> usize {
    groups.sort_unstable();
    let (mut rank, mut free) = (0, 0);
    for size in groups {
        if rank + size - 1 < k {
            (rank, free) = (rank + size - 1, free + 1);
        }
    }
    n - (k - 1 + free)
}

/// The distances were proved by trying every loss (`compare` measures nothing else); the search for coefficients ends where
/// the groups do.
#[test]
fn every_azure_plus1_has_the_largest_distance_that_its_groups_allow() {
    let mut searched = 0;
    for (n, k, r) in shapes(PLUS1) {
        let locals = k.div_ceil(r);
        let data = (0..locals).map(|group| (k - group * r).min(r) + 1);
        let most = most_that_groups_allow(n, k, data.chain([n - k - locals]).collect());
        assert_eq!(row(PLUS1, (n, k, r)).unwrap().d, most, "({n}, {k}, {r})");
        let azure = kintsu_code::parse(&format!("{PLUS1}:n={n},k={k},r={r}")).unwrap();
        searched += usize::from(azure.distance() < most);
    }
    assert_eq!(searched, 15, "shapes that need other coefficients than Azure's");
    assert_eq!(row(PLUS1, (12, 6, 2)).unwrap().d, 5);
}

/// Section 4 and Fig. 9: a full LRC of (n + 1, k, r) with the same d has a lower NRC than Azure's (n, k, r).
/// One pair is equal.
#[test]
fn one_block_more_for_the_globals_always_pays() {
    let mut pairs = 0;
    let mut fails = Vec::new();
    for shape in shapes(AZURE) {
        let azure = row(AZURE, shape).unwrap();
        let more = (shape.0 + 1, shape.1, shape.2);
        for full in FULL.iter().filter_map(|family| row(family, more)).filter(|full| full.d == azure.d) {
            pairs += 1;
            if full.nrc >= azure.nrc {
                assert_eq!(full.nrc, azure.nrc);
                fails.push((full.family.as_str(), shape));
            }
        }
    }
    assert_eq!((pairs, fails), (391, vec![(XORBAS, (9, 6, 3))]));
}

/// Sections 4 and Fig. 10: single comparisons that the text names.
#[test]
fn named_comparisons() {
    assert!(nrc(PLUS1, (14, 10, 6)) < nrc(AZURE, (14, 10, 5)));
    assert!(row(PLUS1, (14, 10, 6)).unwrap().degraded > row(AZURE, (14, 10, 5)).unwrap().degraded);
    assert!(nrc(AZURE, (12, 8, 5)) < nrc(OPTIMAL, (12, 8, 5)));
    assert!(nrc(PLUS1, (16, 10, 6)) < nrc(OPTIMAL, (16, 10, 6)));
    for (shape, other) in [((12, 8, 5), AZURE), ((16, 10, 6), PLUS1)] {
        let (n, k, r) = shape;
        assert!((1..r).filter_map(|r| row(OPTIMAL, (n, k, r))).any(|row| row.nrc < nrc(other, shape)));
    }
    assert!(FULL.iter().all(|family| rd_ratio(AZURE, (14, 10, 5)) < rd_ratio(family, (14, 10, 5))));
    assert!(rd_ratio(OPTIMAL, (17, 12, 5)) < rd_ratio(OPTIMAL, (17, 12, 4)));
    compared("the order of codes with the comparisons that the LRC study names");
}

/// Section 4: with the best r of each code for an (n, k), Optimal-LRC has the lowest rd-ratio. This holds at all
/// printed sizes, and at 33 of the 52 in the whole range.
#[test]
fn with_the_best_r_optimal_mostly_has_the_lowest_ratio() {
    let mut defined = 0;
    let mut fails = BTreeSet::new();
    for (size, rows) in by_size() {
        let Some(optimal) = best_ratio(&rows, OPTIMAL) else { continue };
        defined += 1;
        let better =
            LRCS.iter().filter(|family| best_ratio(&rows, family).is_some_and(|best| best < optimal));
        fails.extend(better.map(|&family| (size, family)));
    }
    let sizes: BTreeSet<_> = fails.iter().map(|&(size, _)| size).collect();
    assert_eq!((defined, sizes.len()), (52, 19));
    assert!(PRINTED.iter().all(|size| !sizes.contains(size)));
    // Eleven of them have three parities, where Azure's code is the best.
    assert!((9..=19).all(|n| fails.contains(&((n, n - 3), AZURE))));
    let others: Vec<_> = fails.iter().filter(|((n, k), _)| n - k != 3).copied().collect();
    assert!(others.iter().all(|((n, _), _)| (2..=5).any(|r| n % (r + 1) == 1)));
    assert_eq!(
        others,
        [
            ((10, 5), AZURE),
            ((10, 5), PLUS1),
            ((10, 6), AZURE),
            ((13, 7), AZURE),
            ((13, 7), PLUS1),
            ((13, 8), AZURE),
            ((13, 8), PLUS1),
            ((13, 9), AZURE),
            ((16, 8), PLUS1),
            ((17, 11), PLUS1),
            ((19, 10), PLUS1),
        ]
    );
}

/// Section 4 and Fig. 12: Azure-LRC and Optimal-LRC of d >= 4 are defined for every (n, k) printed. Over the whole
/// range they are defined wherever there are enough parities: n - k >= d - 1 for Azure's code, n - k >= d for
/// Optimal-LRC.
#[test]
fn a_target_distance_is_met_wherever_there_are_parities_enough() {
    for target in [3, 4, 5] {
        for ((n, k), rows) in by_size() {
            let met = |family| rows.iter().any(|row| row.family == family && row.d >= target);
            assert_eq!(met(AZURE), n - k >= target - 1, "d >= {target}: ({n}, {k})");
            assert_eq!(met(OPTIMAL), n - k >= target, "d >= {target}: ({n}, {k})");
        }
    }
    assert!(PRINTED.iter().all(|(n, k)| n - k >= 4));
}

/// Section 4: different codes have the lowest NRC of those with d >= 4 for different (n, k).
#[test]
fn no_code_is_the_cheapest_everywhere() {
    let mut cheapest: BTreeMap<&str, usize> = BTreeMap::new();
    for rows in by_size().into_values() {
        let safe: Vec<_> = rows.into_iter().filter(|row| row.d >= 4).collect();
        let lowest = safe.iter().map(|row| row.nrc).min();
        let best: BTreeSet<_> =
            safe.iter().filter(|row| Some(row.nrc) == lowest).map(|row| row.family.as_str()).collect();
        best.into_iter().for_each(|family| *cheapest.entry(family).or_default() += 1);
    }
    assert_eq!(cheapest, BTreeMap::from([(AZURE, 27), (PLUS1, 19), (OPTIMAL, 21)]));
}
