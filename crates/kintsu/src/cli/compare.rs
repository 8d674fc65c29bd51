//! The options of `kintsu code check` and `kintsu code compare`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::Args;

/// `kintsu code check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The code, `family:key=value,...`, or `user:NAME` for a registered code.
    pub code: String,
    /// Most loss patterns to try; if more would be needed, the report says how many.
    #[arg(long, default_value_t = kintsu_analysis::MAX_PATTERNS, value_name = "COUNT")]
    pub max_patterns: u64,
}

/// `kintsu code compare`.
#[derive(Debug, Args)]
pub struct Compare {
    /// Blocks in a stripe: A..B with both ends, or one number.
    #[arg(long, value_parser = parse_range, value_name = "A..B")]
    pub n: RangeInclusive<usize>,
    /// Largest stored bytes per data byte, n/k.
    #[arg(long, default_value_t = 2.0, value_name = "RATIO")]
    pub max_overhead: f64,
    /// Families; see `kintsu code list`.
    #[arg(long, value_delimiter = ',', default_values = kintsu_analysis::STUDIED, value_name = "NAME,...")]
    pub families: Vec<String>,
    /// Leave out codes of a smaller distance.
    #[arg(long, default_value_t = 0, value_name = "D")]
    pub min_distance: usize,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Draw the figures of the LRC study into this file (7, 8, 9, 11, 12).
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// `9..19`, both ends included, or `14`.
fn parse_range(text: &str) -> Result<RangeInclusive<usize>, String> {
    let expected = || format!("expected A..B with A <= B, both included, or one number, got {text:?}");
    let number = |s: &str| s.parse::<usize>().map_err(|_| expected());
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.strip_prefix('=').unwrap_or(last))?),
        None => (number(text)?, number(text)?),
    };
    if first > last { Err(expected()) } else { Ok(first..=last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_n_include_both_ends() {
        assert_eq!(parse_range("9..19"), Ok(9..=19));
        assert_eq!(parse_range("9..=19"), Ok(9..=19));
        assert_eq!(parse_range("14"), Ok(14..=14));
        for text in ["", "..", "9..", "..9", "19..9", "9-19", "a..b"] {
            assert!(parse_range(text).unwrap_err().contains("expected A..B"), "{text}");
        }
    }
}
