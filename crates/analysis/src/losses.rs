//! How many patterns of f lost blocks a code decodes, for each f: counted, never sampled.
//!
//! A set of lost blocks can be decoded exactly when their columns of the parity-check matrix are independent.
//! Every subset of a decodable set is decodable. So a search that adds blocks in order, and continues only from
//! decodable sets, visits every decodable pattern once.

use kintsu_algebra::{Matrix, inv, mul};
use kintsu_code::Code;
use kintsu_dag::BlockIndex;
use serde::Serialize;

use crate::AnalysisError;

/// The patterns of `losses` lost blocks of a code.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossCount {
    /// Lost blocks.
    pub losses: usize,
    /// Number of patterns, C(n, losses); `None` from 2^64 on.
    pub patterns: Option<u64>,
    /// How many of them can be decoded; `None` where it was not counted, and from 2^64 on.
    pub recoverable: Option<u64>,
    /// `recoverable / patterns`; `None` where it was not counted.
    pub fraction: Option<f64>,
}

/// The default limit on patterns to try: some seconds of work.
pub const MAX_PATTERNS: u64 = 20_000_000;

/// The decodable patterns of 0 to n - k losses (beyond that there are none). An MDS code needs no counting. For
/// other codes every f up to the largest that `max_patterns` allows is counted; above that, only f below the
/// proved distance are known.
///
/// # Errors
/// `Distance` when a loss of fewer blocks than the distance cannot be decoded.
pub fn loss_counts(code: &dyn Code, max_patterns: u64) -> Result<Vec<LossCount>, AnalysisError> {
    let (n, tolerated) = (code.n(), code.n() - code.k());
    let counted = if code.distance() > tolerated { 0 } else { countable(code, max_patterns) };
    let counts = count(code, counted)?;
    let row = |losses: usize| {
        let patterns = binomial(n, losses);
        let known = losses < code.distance();
        let recoverable = counts.get(losses).copied().or(patterns.filter(|_| known));
        let fraction = match (recoverable, patterns) {
            (Some(good), Some(all)) => Some(good as f64 / all as f64),
            _ => known.then_some(1.0),
        };
        LossCount { losses, patterns, recoverable, fraction }
    };
    Ok((0..=tolerated).map(row).collect())
}

/// The number of patterns to try for all f up to n - k; `None` from 2^64 on.
pub fn patterns_to_count(code: &dyn Code) -> Option<u64> {
    patterns_up_to(code.n(), code.n() - code.k())
}

/// The largest f for which the patterns of all sizes up to f are within the limit. A pattern of blocks with w
/// sub-blocks counts w^2 times.
pub(crate) fn countable(code: &dyn Code, max_patterns: u64) -> usize {
    let limit = max_patterns / (code.w() * code.w()) as u64;
    let fits = |f: &usize| patterns_up_to(code.n(), *f).is_some_and(|patterns| patterns <= limit);
    (0..=code.n() - code.k()).take_while(fits).last().unwrap_or(0)
}

fn patterns_up_to(n: usize, losses: usize) -> Option<u64> {
    (0..=losses).try_fold(0u64, |sum, f| sum.checked_add(binomial(n, f)?))
}

/// n over f; `None` from 2^64 on.
pub fn binomial(n: usize, f: usize) -> Option<u64> {
    if f > n {
        return Some(0);
    }
    let mut value = 1u128;
    for i in 0..f.min(n - f) {
        // Exact at every step: a product of i + 1 consecutive numbers. n <= 255, so this stays far below 2^128.
        value = value * (n - i) as u128 / (i + 1) as u128;
        if value > u128::from(u64::MAX) {
            return None;
        }
    }
    u64::try_from(value).ok()
}

/// Decodable patterns of 0 to `most` losses.
fn count(code: &dyn Code, most: usize) -> Result<Vec<u64>, AnalysisError> {
    let mut counts = vec![0; most + 1];
    visit_decodable(code, most, &mut |lost| counts[lost.len()] += 1)?;
    Ok(counts)
}

/// Calls `visit` once for each decodable pattern of 0 to `most` losses, blocks in order.
///
/// # Errors
/// As [`loss_counts`].
pub(crate) fn visit_decodable(
    code: &dyn Code,
    most: usize,
    visit: &mut dyn FnMut(&[usize]),
) -> Result<(), AnalysisError> {
    let height = code.generator().rows() - code.generator().cols();
    let columns = parity_check_columns(code.generator());
    let (w, claimed) = (code.w(), code.distance());
    visit(&[]);
    let mut walk = Walk { w, claimed, most, visit, lost: Vec::new(), levels: vec![Vec::new(); most + 1] };
    walk.extend(&columns, height, 0).map_err(|lost| AnalysisError::Distance {
        name: code.name().to_owned(),
        claimed: code.distance(),
        lost: lost.into_iter().map(|b| BlockIndex(b as u8)).collect(),
    })
}

/// The columns of `[P | 1]`, one after the other, where P are the parity rows of the generator.
fn parity_check_columns(generator: &Matrix) -> Vec<u8> {
    let (rows, cols) = (generator.rows(), generator.cols());
    let entry = |i: usize, j: usize| {
        if j < cols { generator.row(cols + i)[j] } else { u8::from(i + cols == j) }
    };
    (0..rows).flat_map(|j| (0..rows - cols).map(move |i| entry(i, j))).collect()
}

/// The search. A level holds the columns of the blocks that may still be added, reduced by the columns of the
/// added blocks, whose pivot rows are removed.
struct Walk<'a> {
    w: usize,
    claimed: usize,
    most: usize,
    visit: &'a mut dyn FnMut(&[usize]),
    lost: Vec<usize>,
    levels: Vec<Vec<u8>>,
}

impl Walk<'_> {
    /// Adds each of the blocks in `columns` (vectors of `height`), the first of which is block `first`.
    /// The error is a set smaller than the claimed distance that cannot be decoded.
    fn extend(&mut self, columns: &[u8], height: usize, first: usize) -> Result<(), Vec<usize>> {
        let size = self.lost.len() + 1;
        if size > self.most || height == 0 {
            return Ok(());
        }
        let last = size == self.most;
        let block_bytes = height * self.w;
        let mut level = std::mem::take(&mut self.levels[size]);
        for i in 0..columns.len() / block_bytes {
            self.lost.push(first + i);
            let end = if last { (i + 1) * block_bytes } else { columns.len() };
            level.clear();
            level.extend_from_slice(&columns[i * block_bytes..end]);
            match take_block(&mut level, height, self.w) {
                Some(height) => {
                    (self.visit)(&self.lost);
                    self.extend(&level, height, first + i + 1)?;
                }
                None if size < self.claimed => return Err(self.lost.clone()),
                None => {}
            }
            self.lost.pop();
        }
        self.levels[size] = level;
        Ok(())
    }
}

/// Removes the first `w` vectors by elimination, with their pivot rows; returns the new height, or none when they
/// are dependent.
fn take_block(columns: &mut Vec<u8>, mut height: usize, w: usize) -> Option<usize> {
    for _ in 0..w {
        let pivot = columns.iter().take(height).position(|&c| c != 0)?;
        let scale = inv(columns[pivot]).expect("a pivot is not zero");
        let (first, others) = columns.split_at_mut(height);
        first.iter_mut().for_each(|c| *c = mul(*c, scale));
        for vector in others.chunks_exact_mut(height) {
            let factor = vector[pivot];
            if factor != 0 {
                vector.iter_mut().zip(&*first).for_each(|(v, &f)| *v ^= mul(factor, f));
            }
        }
        remove_first_and_pivot(columns, height, pivot);
        height -= 1;
    }
    Some(height)
}

/// Drops the first vector, and component `pivot` of all others.
fn remove_first_and_pivot(columns: &mut Vec<u8>, height: usize, pivot: usize) {
    let mut to = 0;
    for from in (height..columns.len()).step_by(height) {
        columns.copy_within(from..from + pivot, to);
        columns.copy_within(from + pivot + 1..from + height, to + pivot);
        to += height - 1;
    }
    columns.truncate(to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_code::parse;

    /// By the code's own rank test, pattern by pattern.
    fn by_rank(code: &dyn Code) -> Vec<u64> {
        let mut counts = vec![0; code.n() - code.k() + 1];
        for pattern in 0u32..1 << code.n() {
            let lost: Vec<_> =
                (0..code.n()).filter(|b| pattern >> b & 1 == 1).map(|b| BlockIndex(b as u8)).collect();
            if lost.len() < counts.len() && code.recoverable(&lost) {
                counts[lost.len()] += 1;
            }
        }
        counts
    }

    fn counted(name: &str) -> Vec<u64> {
        let counts = loss_counts(&*parse(name).unwrap(), MAX_PATTERNS).unwrap();
        counts.iter().map(|c| c.recoverable.unwrap()).collect()
    }

    #[test]
    fn counts_agree_with_the_rank_of_every_pattern() {
        for name in
            ["azure-lrc:n=10,k=6,r=3", "azure-lrc:n=9,k=4,r=2", "azure-lrc:n=11,k=5,r=2", "rs:n=9,k=5"]
        {
            assert_eq!(counted(name), by_rank(&*parse(name).unwrap()), "{name}");
        }
    }

    #[test]
    fn an_mds_code_decodes_all_and_needs_no_counting() {
        assert_eq!(counted("rs:n=14,k=10"), [1, 14, 91, 364, 1001]);
        let large = loss_counts(&*parse("rs:n=255,k=200").unwrap(), 0).unwrap();
        assert_eq!(large.len(), 56);
        assert!(large.iter().all(|c| c.fraction == Some(1.0)));
        assert_eq!((large[55].patterns, large[55].recoverable), (None, None));
    }

    #[test]
    fn beyond_the_limit_only_what_is_proved_is_said() {
        let code = parse("azure-lrc:n=16,k=10,r=5").unwrap();
        let most = loss_counts(&*code, MAX_PATTERNS).unwrap();
        let few = loss_counts(&*code, 1 + 16 + 120).unwrap();
        assert_eq!(code.distance(), 6);
        assert_eq!(few[..6], most[..6]);
        assert!(most[6].fraction.is_some_and(|f| f > 0.0 && f < 1.0));
        assert_eq!((few[6].patterns, few[6].recoverable, few[6].fraction), (Some(8008), None, None));
    }

    #[test]
    fn binomials() {
        assert_eq!((binomial(19, 9), binomial(5, 6), binomial(255, 55)), (Some(92_378), Some(0), None));
        assert_eq!(binomial(67, 33), Some(14_226_520_737_620_288_370));
        let code = parse("azure-lrc:n=10,k=6,r=3").unwrap();
        assert_eq!(patterns_to_count(&*code), Some(1 + 10 + 45 + 120 + 210));
    }
}
