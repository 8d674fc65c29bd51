//! Popular keys, as YCSB draws them.
//!
//! Source: YCSB's `ZipfianGenerator`, `ScrambledZipfianGenerator` and `SkewedLatestGenerator`. The algorithm is that of
//! Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD'94). The two most popular items have
//! exactly the frequencies of Zipf's law; the others follow a power law that is close to it.

use rand::RngExt;

use super::Random;

/// YCSB's exponent.
pub const THETA: f64 = 0.99;

/// The items among which YCSB draws before it scrambles them, and the sum of their weights. (`ITEM_COUNT`, `ZETAN`)
const SCRAMBLED_ITEMS: u64 = 10_000_000_000;
const SCRAMBLED_ZETA: f64 = 26.469_028_201_783_02;

/// Draws items: numbers from 0, which is the most popular one.
#[derive(Debug, Clone)]
pub struct Zipf {
    items: u64,
    theta: f64,
    /// The sum of i^-theta over all items.
    zeta: f64,
}

impl Zipf {
    /// Among this many items, at least one.
    pub fn new(items: u64, theta: f64) -> Self {
        let mut zipf = Self { items: 0, theta, zeta: 0.0 };
        zipf.grow(items.max(1));
        zipf
    }

    /// Grows to this many items; the new ones are the least popular.
    pub fn grow(&mut self, items: u64) {
        self.zeta += (self.items + 1..=items).map(|i| (i as f64).powf(-self.theta)).sum::<f64>();
        self.items = self.items.max(items);
    }

    /// The next item.
    pub fn next(&self, random: &mut Random) -> u64 {
        let Self { items, theta, zeta } = *self;
        let first_two = 1.0 + 0.5f64.powf(theta);
        let eta = (1.0 - (2.0 / items as f64).powf(1.0 - theta)) / (1.0 - first_two / zeta);
        let u: f64 = random.random();
        if u * zeta < 1.0 || items == 1 {
            return 0;
        }
        if u * zeta < first_two || items == 2 {
            return 1;
        }
        let item = items as f64 * (eta * u - eta + 1.0).powf(1.0 / (1.0 - theta));
        (item as u64).min(items - 1)
    }
}

/// Draws keys; the popular ones are scattered among all. (`ScrambledZipfianGenerator`)
#[derive(Debug, Clone)]
pub struct Scrambled {
    keys: u64,
    zipf: Zipf,
}

impl Scrambled {
    /// Among this many keys, at least one.
    pub fn new(keys: u64) -> Self {
        let zipf = Zipf { items: SCRAMBLED_ITEMS, theta: THETA, zeta: SCRAMBLED_ZETA };
        Self { keys: keys.max(1), zipf }
    }

    /// The next key.
    pub fn next(&self, random: &mut Random) -> u64 {
        scramble(self.zipf.next(random)) % self.keys
    }
}

/// YCSB's hash of a number: FNV-1a over its bytes in little-endian order, as a signed number without its sign.
pub fn scramble(number: u64) -> u64 {
    let step = |hash: u64, octet: u8| (hash ^ u64::from(octet)).wrapping_mul(1_099_511_628_211);
    (number.to_le_bytes().into_iter().fold(0xcbf2_9ce4_8422_2325, step) as i64).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    const DRAWS: usize = 200_000;

    fn counts(items: u64, mut next: impl FnMut(&mut Random) -> u64) -> Vec<f64> {
        let mut random = Random::seed_from_u64(7);
        let mut counts = vec![0.0; items as usize];
        (0..DRAWS).for_each(|_| counts[next(&mut random) as usize] += 1.0);
        counts
    }

    /// Five standard deviations of the count of something with this probability.
    fn tolerance(probability: f64) -> f64 {
        5.0 * (DRAWS as f64 * probability * (1.0 - probability)).sqrt()
    }

    #[test]
    fn items_have_the_frequencies_of_zipf() {
        for (items, theta) in [(1000, THETA), (1000, 0.4251), (3, THETA), (1, THETA)] {
            let zipf = Zipf::new(items, theta);
            let counts = counts(items, |random| zipf.next(random));
            let zeta: f64 = (1..=items).map(|i| (i as f64).powf(-theta)).sum();
            for (item, count) in counts.iter().enumerate().take(2) {
                let expected = ((item + 1) as f64).powf(-theta) / zeta;
                assert!((count - DRAWS as f64 * expected).abs() <= tolerance(expected), "{items}: {item}");
            }
            // For the first ten items the power law differs from Zipf's law by up to 3% of all draws, for more of them by
            // less.
            for first in [10, 100, 500, 1000] {
                let first = first.min(items) as usize;
                let drawn: f64 = counts[..first].iter().sum();
                let expected: f64 = (1..=first).map(|i| (i as f64).powf(-theta) / zeta).sum();
                let off = (drawn / DRAWS as f64 - expected).abs();
                assert!(off <= 0.03 + tolerance(expected) / DRAWS as f64, "{items}, {theta}: {first}: {off}");
            }
        }
    }

    #[test]
    fn items_that_are_added_count_as_if_they_had_always_been_there() {
        let mut grown = Zipf::new(10, THETA);
        grown.grow(500);
        let fresh = Zipf::new(500, THETA);
        assert!((grown.zeta - fresh.zeta).abs() < 1e-9 && grown.items == fresh.items);
        grown.grow(20);
        assert_eq!(grown.items, 500);
    }

    #[test]
    fn the_most_popular_key_is_where_ycsb_has_it() {
        let scrambled = Scrambled::new(1000);
        let counts = counts(1000, |random| scrambled.next(random));
        let hottest = scramble(0) % 1000;
        let most = counts.iter().copied().fold(0.0, f64::max);
        assert_eq!(counts[hottest as usize], most);
        // Other items may share its key: 10^10 items share 1000 keys, which adds a thousandth of all the rest.
        let expected = 1.0 / SCRAMBLED_ZETA + 1e-3 * (1.0 - 1.0 / SCRAMBLED_ZETA);
        assert!(
            (most - DRAWS as f64 * expected).abs() <= tolerance(expected) + 0.002 * DRAWS as f64,
            "{most}"
        );
        assert!(counts.iter().filter(|count| **count > 0.0).count() > 990);
    }

    #[test]
    fn numbers_are_scrambled_as_ycsb_does() {
        // FNV-1a of eight zero octets.
        assert_eq!(scramble(0), (0xa8c7_f832_281a_39c5u64 as i64).unsigned_abs());
        assert_ne!(scramble(1), scramble(256));
    }
}
