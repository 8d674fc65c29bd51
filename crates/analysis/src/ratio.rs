//! Exact ratios of whole numbers: costs are counted, and become floating point only when they are shown.

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, Div};

use serde::{Serialize, Serializer};

/// A non-negative ratio in lowest terms. Serialised as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    num: u64,
    den: u64,
}

impl Ratio {
    /// `num / den`.
    ///
    /// # Panics
    /// When `den` is zero.
    pub fn new(num: usize, den: usize) -> Self {
        Self::lowest(num as u128, den as u128)
    }

    fn lowest(num: u128, den: u128) -> Self {
        assert!(den != 0, "a ratio has a denominator other than zero");
        let (mut a, mut b) = (num, den);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let narrow = |x: u128| u64::try_from(x / a).expect("costs of one stripe have small terms");
        Self { num: narrow(num), den: narrow(den) }
    }

    /// The numerator, in lowest terms.
    pub fn num(self) -> u64 {
        self.num
    }

    /// The denominator, in lowest terms; at least 1.
    pub fn den(self) -> u64 {
        self.den
    }

    /// The nearest floating-point number.
    pub fn as_f64(self) -> f64 {
        self.num as f64 / self.den as f64
    }

    /// Up to three decimals, without zeros at the end: `6`, `6.5`, `2.333`.
    pub fn decimal(self) -> String {
        let text = format!("{:.3}", self.as_f64());
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        product(self.num, other.den).cmp(&product(other.num, self.den))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Add for Ratio {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let num = product(self.num, other.den) + product(other.num, self.den);
        Self::lowest(num, product(self.den, other.den))
    }
}

impl Sum for Ratio {
    fn sum<I: Iterator<Item = Self>>(ratios: I) -> Self {
        ratios.fold(Self::new(0, 1), Add::add)
    }
}

impl Div<usize> for Ratio {
    type Output = Self;

    fn div(self, by: usize) -> Self {
        Self::lowest(u128::from(self.num), product(self.den, by as u64))
    }
}

/// `13/2`, or `6` for a whole number.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.den {
            1 => write!(f, "{}", self.num),
            den => write!(f, "{}/{den}", self.num),
        }
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.as_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ratios_are_exact_and_in_lowest_terms() {
        let third = Ratio::new(2, 6);
        assert_eq!((third.num(), third.den()), (1, 3));
        assert_eq!([third; 3].into_iter().sum::<Ratio>(), Ratio::new(1, 1));
        assert_eq!(Ratio::new(13, 1) / 2, Ratio::new(13, 2));
        assert_eq!(Ratio::new(13, 2).to_string(), "13/2");
        assert_eq!(Ratio::new(12, 2).to_string(), "6");
        let decimals = [(6, 1), (13, 2), (7, 3), (120, 1)].map(|(a, b)| Ratio::new(a, b).decimal());
        assert_eq!(decimals, ["6", "6.5", "2.333", "120"]);
        assert_eq!(serde_json::to_string(&Ratio::new(13, 2)).unwrap(), "6.5");
    }

    proptest! {
        #[test]
        fn order_and_sum_agree_with_cross_multiplication(
            a in 0usize..10_000, b in 1usize..10_000, c in 0usize..10_000, d in 1usize..10_000,
        ) {
            let (x, y) = (Ratio::new(a, b), Ratio::new(c, d));
            prop_assert_eq!(x.cmp(&y), (a * d).cmp(&(c * b)));
            prop_assert_eq!(x + y, Ratio::new(a * d + c * b, b * d));
        }
    }
}
