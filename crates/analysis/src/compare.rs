//! The comparison table of the LRC study: every (n, k, r) for which each family is defined.
//!
//! Each code is made, and so proved, once, and measured on its own graphs. One exception: a block in no local
//! group costs k, as in the study, even where the coefficients of a particular code allow fewer
//! ([`design_costs`]). Families without a parameter r usually read k blocks for a repair; they are listed at r =
//! k.

use std::ops::RangeInclusive;

use kintsu_code::{CodeError, Family, families, parse};
use serde::Serialize;

use crate::{AnalysisError, Ratio, binomial, design_costs};

/// The families of the study, and its baseline.
pub const STUDIED: [&str; 5] = ["azure-lrc", "azure-lrc-plus1", "xorbas", "optimal-lrc", "rs"];

/// What to compare.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Blocks in a stripe, both ends included.
    pub n: RangeInclusive<usize>,
    /// The largest n / k.
    pub max_overhead: f64,
    /// Families by name. Their parameters must be among n, k, r, d (helpers, taken as n - 1) and alpha (sub-blocks,
    /// taken as many as the family has).
    pub families: Vec<String>,
    /// Codes of a smaller distance are left out.
    pub min_distance: usize,
}

/// The exact measures of one code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its family.
    pub family: String,
    /// Blocks in a stripe.
    pub n: usize,
    /// Data blocks in a stripe.
    pub k: usize,
    /// The parameter r; k for a family without r.
    pub r: usize,
    /// As [`crate::Costs::arc`].
    pub arc: Ratio,
    /// As [`crate::Costs::nrc`].
    pub nrc: Ratio,
    /// As [`crate::Costs::degraded`].
    pub degraded: Ratio,
    /// n / k.
    pub overhead: Ratio,
    /// The proved distance.
    pub d: usize,
    /// `nrc / d`.
    pub rd_ratio: Ratio,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// In order of n, k, r, and then in the order of the requested families.
    pub rows: Vec<Row>,
    /// Codes that their family defines, but whose distance is false or would take too long to prove: names and
    /// reasons.
    pub left_out: Vec<(String, String)>,
}

/// Upper limits on the work of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Names to try; most names that no family defines cost nothing.
    pub codes: usize,
    /// Loss patterns to try in proofs of distance, all codes together.
    pub patterns: u64,
}

impl Work {
    /// The most that [`compare`] accepts. It takes about two minutes at worst; nearly all proofs are shorter.
    pub const LIMIT: Self = Self { codes: 20_000, patterns: 2_000_000_000 };
}

/// The parameters that a family may require. The number of helpers d is n - 1: all survivors. Of the numbers of
/// sub-blocks alpha the largest is taken for which the code is defined.
const KEYS: [&str; 5] = ["n", "k", "r", "d", "alpha"];

/// One candidate for the table.
struct Candidate {
    family: &'static Family,
    n: usize,
    k: usize,
    r: usize,
}

/// Makes the table; `progress(done, total)` is called before each code and at the end.
///
/// # Errors
/// `Invalid` for an empty range, an unknown family, or when nothing is left; `TooLarge` for more work than
/// [`Work::LIMIT`]; `Code` or `Graph` when a graph of a code does not hold.
pub fn compare(
    request: &Request,
    mut progress: impl FnMut(usize, usize),
) -> Result<Comparison, AnalysisError> {
    let candidates = candidates(request)?;
    let mut table = Comparison { rows: Vec::new(), left_out: Vec::new() };
    let mut largest = 0;
    for (done, candidate) in candidates.iter().enumerate() {
        progress(done, candidates.len());
        match candidate.measure() {
            Ok(Some(row)) => {
                largest = largest.max(row.d);
                table.rows.extend(Some(row).filter(|row| row.d >= request.min_distance));
            }
            Ok(None) => {}
            Err(AnalysisError::Code(
                error @ (CodeError::Unsupported { .. } | CodeError::Distance { .. }),
            )) => {
                let name = candidate.names().pop().unwrap_or_default();
                table.left_out.push((name, error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    progress(candidates.len(), candidates.len());
    if table.rows.is_empty() && table.left_out.is_empty() {
        return Err(nothing_left(request, largest));
    }
    Ok(table)
}

/// The work that [`compare`] would take.
///
/// # Errors
/// `Invalid` as [`compare`].
pub fn work(request: &Request) -> Result<Work, AnalysisError> {
    let families = chosen(request)?;
    let mut work = Work { codes: 0, patterns: 0 };
    for (n, k) in shapes(request)? {
        for family in &families {
            let rs = localities(family, k);
            work.codes = work.codes.saturating_add(rs.clone().count());
            let patterns = rs.map(|r| proof_patterns(n, k, r)).fold(0, u64::saturating_add);
            work.patterns = work.patterns.saturating_add(patterns);
        }
        if work.codes > Work::LIMIT.codes.saturating_mul(1000) {
            break; // Already hopeless; the figure is a lower bound.
        }
    }
    Ok(work)
}

/// The number of patterns in a proof of the largest distance that locality r allows, n - k - ceil(k/r) + 2. A
/// proof is given up after some millions.
fn proof_patterns(n: usize, k: usize, r: usize) -> u64 {
    const GIVEN_UP: u64 = 5_000_000;
    let losses = (n - k + 1).saturating_sub(k.div_ceil(r));
    binomial(n, losses).unwrap_or(u64::MAX).min(GIVEN_UP)
}

fn candidates(request: &Request) -> Result<Vec<Candidate>, AnalysisError> {
    let cost = work(request)?;
    let Work { codes, patterns } = Work::LIMIT;
    if cost.codes > codes || cost.patterns > patterns {
        return Err(AnalysisError::TooLarge {
            what: format!("comparing n = {} to {}", request.n.start(), request.n.end()),
            limit: format!("{codes} codes and {patterns} loss patterns in proofs of distance"),
            got: format!(
                "up to {} codes and {} patterns, some {} minutes; take fewer n, a smaller overhead or fewer families",
                cost.codes,
                cost.patterns,
                (cost.patterns / 1_000_000_000).max(cost.codes as u64 / 20_000).max(1)
            ),
        });
    }
    let families = chosen(request)?;
    let mut candidates = Vec::new();
    for (n, k) in shapes(request)? {
        for r in 1..=k {
            let fitting = families.iter().filter(|f| localities(f, k).contains(&r));
            candidates.extend(fitting.map(|family| Candidate { family, n, k, r }));
        }
    }
    Ok(candidates)
}

/// The requested families, each once.
fn chosen(request: &Request) -> Result<Vec<&'static Family>, AnalysisError> {
    let mut chosen: Vec<&'static Family> = Vec::new();
    for name in &request.families {
        let Some(family) = families().iter().find(|f| f.name == name) else {
            let known: Vec<_> = families().iter().map(|f| f.name).collect();
            return Err(AnalysisError::invalid(
                "family to compare",
                format!("one of {}", known.join(", ")),
                format!("{name:?}"),
            ));
        };
        let free = |key: &&kintsu_code::Key| key.default.is_none() && !KEYS.contains(&key.name);
        if let Some(key) = family.keys.iter().find(free) {
            let expected =
                "families whose parameters are of n, k, r, d, alpha, and others that may be left out";
            let got = format!("{name}, which needs {} ({})", key.name, key.about);
            return Err(AnalysisError::invalid("family to compare", expected, got));
        }
        if !chosen.iter().any(|f| f.name == family.name) {
            chosen.push(family);
        }
    }
    if chosen.is_empty() {
        return Err(AnalysisError::invalid("families to compare", "one or more", "none"));
    }
    Ok(chosen)
}

/// All (n, k) of the request, in order.
fn shapes(request: &Request) -> Result<Vec<(usize, usize)>, AnalysisError> {
    let (first, last) = (*request.n.start(), *request.n.end());
    if first < 2 || last > 255 || first > last {
        let got = format!("{first} to {last}");
        return Err(AnalysisError::invalid("range of n", "A..B with 2 <= A <= B <= 255", got));
    }
    // The slack is for decimal fractions: 16/10 is within 1.6.
    let within = |n: usize, k: usize| n as f64 <= request.max_overhead * k as f64 * (1.0 + 1e-12);
    let of_n = |n: usize| (1..n).filter(move |&k| within(n, k)).map(move |k| (n, k));
    let shapes: Vec<_> = (first..=last).flat_map(of_n).collect();
    if shapes.is_empty() {
        let smallest = Ratio::new(last, last - 1).decimal();
        let expected = format!("at least n / (n - 1), here {smallest}");
        return Err(AnalysisError::invalid("largest overhead", expected, request.max_overhead));
    }
    Ok(shapes)
}

/// The values of r that a family may be defined for at this k.
fn localities(family: &Family, k: usize) -> RangeInclusive<usize> {
    if family.keys.iter().any(|key| key.name == "r") { 1..=k } else { k..=k }
}

impl Candidate {
    /// The names by which the code may be defined, the preferred one first.
    fn names(&self) -> Vec<String> {
        let keys = &self.family.keys;
        let alphas = if keys.iter().any(|key| key.name == "alpha") { 2..=self.n - self.k } else { 1..=1 };
        let better: &[bool] =
            if keys.iter().any(|key| key.better.is_some()) { &[true, false] } else { &[false] };
        let name = |alpha: usize, better: bool| {
            let value = |key: &kintsu_code::Key| match key.name {
                "n" => Some(format!("n={}", self.n)),
                "k" => Some(format!("k={}", self.k)),
                "r" => Some(format!("r={}", self.r)),
                "d" if key.default.is_none() => Some(format!("d={}", self.n - 1)),
                "alpha" => Some(format!("alpha={alpha}")),
                name => key.better.filter(|_| better).map(|value| format!("{name}={value}")),
            };
            let keys: Vec<_> = keys.iter().filter_map(value).collect();
            format!("{}:{}", self.family.name, keys.join(","))
        };
        better.iter().flat_map(|&better| alphas.clone().rev().map(move |alpha| name(alpha, better))).collect()
    }

    /// The row; none when the family is not defined for these parameters.
    fn measure(&self) -> Result<Option<Row>, AnalysisError> {
        let made = self.names();
        let mut made = made.iter().map(|name| parse(name));
        let defined = made.find(|made| !matches!(made, Err(CodeError::Invalid { .. })));
        let Some(code) = defined.transpose()?.filter(|code| (code.n(), code.k()) == (self.n, self.k)) else {
            return Ok(None);
        };
        let costs = design_costs(&*code)?;
        Ok(Some(Row {
            family: self.family.name.to_owned(),
            n: self.n,
            k: self.k,
            r: self.r,
            arc: costs.arc,
            nrc: costs.nrc,
            degraded: costs.degraded,
            overhead: costs.overhead,
            d: costs.d,
            rd_ratio: costs.rd_ratio,
        }))
    }
}

fn nothing_left(request: &Request, largest: usize) -> AnalysisError {
    let families = request.families.join(", ");
    if largest == 0 {
        let got =
            format!("n = {} to {}, n/k <= {}", request.n.start(), request.n.end(), request.max_overhead);
        return AnalysisError::invalid("comparison", format!("a range in which {families} is defined"), got);
    }
    AnalysisError::invalid(
        "smallest distance",
        format!("at most {largest}, the largest of {families} in this range"),
        request.min_distance,
    )
}

/// The rows as comma-separated values, with a heading.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from("family,n,k,r,arc,nrc,degraded,overhead,d,rd_ratio\n");
    for row in rows {
        let Row { family, n, k, r, d, .. } = row;
        let [arc, nrc, degraded, overhead, rd_ratio] =
            [row.arc, row.nrc, row.degraded, row.overhead, row.rd_ratio].map(Ratio::as_f64);
        text += &format!("{family},{n},{k},{r},{arc},{nrc},{degraded},{overhead},{d},{rd_ratio}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(n: RangeInclusive<usize>, max_overhead: f64, families: &[&str]) -> Request {
        let families = families.iter().map(|&f| f.to_owned()).collect();
        Request { n, max_overhead, families, min_distance: 0 }
    }

    #[test]
    fn rows_come_in_order_with_the_promised_keys() {
        let mut steps = Vec::new();
        let asked = request(9..=10, 1.7, &["rs", "azure-lrc"]);
        let table = compare(&asked, |done, total| steps.push((done, total))).unwrap();
        let shapes: Vec<_> = table.rows.iter().map(|row| (row.n, row.k, row.r)).collect();
        assert!(shapes.is_sorted());
        assert!(shapes.contains(&(10, 6, 3)) && !shapes.contains(&(9, 5, 5)));
        assert_eq!(steps.first(), Some(&(0, steps.len() - 1)));
        assert_eq!(steps.last(), Some(&(steps.len() - 1, steps.len() - 1)));
        let row = table.rows.iter().find(|row| (row.n, row.k, row.r) == (10, 6, 3)).unwrap();
        assert_eq!(
            serde_json::to_string(row).unwrap(),
            r#"{"family":"azure-lrc","n":10,"k":6,"r":3,"arc":3.6,"nrc":6.0,"degraded":3.0,"overhead":1.6666666666666667,"d":4,"rd_ratio":1.5}"#
        );
        assert!(csv(&table.rows).contains("azure-lrc,10,6,3,3.6,6,3,1.6666666666666667,4,1.5\n"));
    }

    #[test]
    fn a_family_without_r_stands_at_r_equal_k() {
        let table = compare(&request(14..=14, 1.4, &["rs"]), |_, _| {}).unwrap();
        assert!(table.rows.iter().all(|row| row.r == row.k && row.arc == Ratio::new(row.k, 1)));
        // 14/10 meets the largest overhead exactly: limits are decimal fractions.
        assert_eq!(table.rows[0].k, 10);
    }

    #[test]
    fn the_smallest_distance_leaves_codes_out() {
        let mut asked = request(12..=14, 1.6, &["azure-lrc"]);
        let all = compare(&asked, |_, _| {}).unwrap().rows;
        asked.min_distance = 4;
        let some = compare(&asked, |_, _| {}).unwrap().rows;
        assert!(some.len() < all.len());
        assert!(all.iter().filter(|row| row.d >= 4).eq(&some));
    }

    #[test]
    fn what_is_empty_unknown_or_too_large_is_refused_with_the_reason() {
        let said = |request: &Request| compare(request, |_, _| {}).unwrap_err().to_string();
        let cases = [
            (
                Request { n: RangeInclusive::new(19, 9), ..request(9..=19, 2.0, &["rs"]) },
                "2 <= A <= B <= 255, got 19 to 9",
            ),
            (request(9..=300, 2.0, &["rs"]), "got 9 to 300"),
            (request(9..=19, 1.0, &["rs"]), "here 1.056, got 1"),
            (request(9..=19, f64::NAN, &["rs"]), "got NaN"),
            (request(9..=19, 2.0, &["raid"]), "one of "),
            (request(9..=19, 2.0, &[]), "one or more, got none"),
            (request(9..=60, 2.0, &["azure-lrc"]), "minutes; take fewer n"),
            (Request { min_distance: 12, ..request(9..=12, 2.0, &["rs"]) }, "at most 7"),
        ];
        for (request, expected) in cases {
            assert!(said(&request).contains(expected), "{}", said(&request));
        }
    }

    #[test]
    fn a_code_whose_claim_is_false_is_left_out_with_the_loss_that_shows_it() {
        let table = compare(&request(11..=11, 2.0, &["rotated-rs"]), |_, _| {}).unwrap();
        assert!(table.rows.iter().any(|row| row.k == 8));
        let (name, why) = &table.left_out[0];
        assert_eq!(name, "rotated-rs:n=11,k=6");
        assert!(why.contains("cannot decode the loss of"), "{why}");
    }

    #[test]
    fn the_whole_table_of_the_study_is_within_the_limit() {
        let asked = request(9..=19, 2.0, &["azure-lrc", "rs"]);
        let work = work(&asked).unwrap();
        assert!(work.codes < Work::LIMIT.codes / 10 && work.patterns < Work::LIMIT.patterns / 10, "{work:?}");
    }
}
