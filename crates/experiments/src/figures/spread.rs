//! Median and spread of repetitions.

use serde::{Deserialize, Serialize};

/// Median, least and largest of some values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The middle value; the mean of the two middle values where their number is even.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// How many there were.
    pub runs: usize,
}

impl Spread {
    /// The spread of some values; none if there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let runs = values.len();
        let (min, max) = (*values.first()?, *values.last()?);
        let median = (values[(runs - 1) / 2] + values[runs / 2]) / 2.0;
        Some(Self { median, min, max, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_the_median() {
        let of =
            |values: &[f64]| Spread::of(values.iter().copied()).map(|s| (s.median, s.min, s.max, s.runs));
        assert_eq!(of(&[3.0, 1.0, 9.0]), Some((3.0, 1.0, 9.0, 3)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 9.0]), Some((3.0, 1.0, 9.0, 4)));
        assert_eq!(of(&[]), None);
    }
}
