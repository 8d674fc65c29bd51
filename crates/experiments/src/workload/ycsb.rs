//! YCSB's core workloads A to F, with values of 512 KB as in the ChameleonEC paper (section V-A).
//!
//! Source: the files `workloads/workload[a-f]` and `CoreWorkload` of YCSB: the shares of the operations, which keys are
//! popular, 1000 values, scans of 1 to 100 values. Requests: 100,000 (ChameleonEC, V-A).

use rand::RngExt;

use super::zipf::{Scrambled, THETA, Zipf};
use super::{Made, Operation, Random, Record, Scale, Verb};

const VALUES: u64 = 1000;
const REQUESTS: u64 = 100_000;
const VALUE_BYTES: f64 = 512.0 * 1024.0;
const LONGEST_SCAN: u32 = 100;
/// `user` and a hash of up to 19 digits.
const KEY_BYTES: u16 = 23;

/// Half reads, half updates.
pub fn a(scale: Scale, random: &mut Random) -> Made {
    mix(scale, random, &[(Verb::Read, 0.5), (Verb::Update, 0.5)], false)
}

/// Mostly reads.
pub fn b(scale: Scale, random: &mut Random) -> Made {
    mix(scale, random, &[(Verb::Read, 0.95), (Verb::Update, 0.05)], false)
}

/// Reads alone.
pub fn c(scale: Scale, random: &mut Random) -> Made {
    mix(scale, random, &[(Verb::Read, 1.0)], false)
}

/// Reads of the latest values.
pub fn d(scale: Scale, random: &mut Random) -> Made {
    mix(scale, random, &[(Verb::Read, 0.95), (Verb::Insert, 0.05)], true)
}

/// Short scans.
pub fn e(scale: Scale, random: &mut Random) -> Made {
    mix(scale, random, &[(Verb::Scan, 0.95), (Verb::Insert, 0.05)], false)
}

/// Reads, and reads followed by an update.
pub fn f(scale: Scale, random: &mut Random) -> Made {
    mix(scale, random, &[(Verb::Read, 0.5), (Verb::ReadModifyWrite, 0.5)], false)
}

/// Which keys are popular.
enum Popular {
    /// Any, by [`Scrambled`]. Drawn again while the key is not there yet.
    Scrambled(Scrambled),
    /// The last ones that were inserted. (`SkewedLatestGenerator`)
    Latest(Zipf),
}

fn mix(scale: Scale, random: &mut Random, shares: &'static [(Verb, f64)], latest: bool) -> Made {
    let (values, requests, bytes) = (scale.number(VALUES), scale.number(REQUESTS), scale.size(VALUE_BYTES));
    let inserts: f64 = shares.iter().filter(|(verb, _)| *verb == Verb::Insert).map(|(_, share)| share).sum();
    let mut popular = match latest {
        true => Popular::Latest(Zipf::new(values, THETA)),
        // YCSB draws among twice as many new keys as it expects.
        false => Popular::Scrambled(Scrambled::new(values + (2.0 * inserts * requests as f64) as u64)),
    };
    let mut there = values;
    let mut random = random.clone();
    let operations = (0..requests).map(move |_| {
        let verb = pick(shares, &mut random);
        let key = if verb == Verb::Insert {
            there += 1;
            there - 1
        } else {
            popular.key(there, &mut random)
        };
        let values = if verb == Verb::Scan { random.random_range(1..=LONGEST_SCAN) } else { 1 };
        Operation { at: 0.0, verb, key, bytes, values }
    });
    let records = vec![Record { key_bytes: KEY_BYTES, bytes }; values as usize];
    Made { records, key_bytes: KEY_BYTES, operations: Box::new(operations) }
}

impl Popular {
    fn key(&mut self, there: u64, random: &mut Random) -> u64 {
        match self {
            Self::Scrambled(scrambled) => loop {
                let key = scrambled.next(random);
                if key < there {
                    return key;
                }
            },
            Self::Latest(zipf) => {
                zipf.grow(there);
                there - 1 - zipf.next(random)
            }
        }
    }
}

/// One of these, by its share of all.
pub fn pick(shares: &[(Verb, f64)], random: &mut Random) -> Verb {
    let mut left: f64 = random.random();
    for (verb, share) in shares {
        left -= share;
        if left < 0.0 {
            return *verb;
        }
    }
    shares.last().map_or(Verb::Read, |(verb, _)| *verb)
}

#[cfg(test)]
mod tests {
    use super::super::workload;
    use super::*;

    fn operations(name: &str, scale: Scale) -> Vec<Operation> {
        workload(name).unwrap().start(scale, 5).operations.collect()
    }

    #[test]
    fn operations_have_their_shares() {
        for (name, shares) in [
            ("ycsb-a", vec![(Verb::Read, 0.5), (Verb::Update, 0.5)]),
            ("ycsb-b", vec![(Verb::Read, 0.95), (Verb::Update, 0.05)]),
            ("ycsb-c", vec![(Verb::Read, 1.0)]),
            ("ycsb-d", vec![(Verb::Read, 0.95), (Verb::Insert, 0.05)]),
            ("ycsb-e", vec![(Verb::Scan, 0.95), (Verb::Insert, 0.05)]),
            ("ycsb-f", vec![(Verb::Read, 0.5), (Verb::ReadModifyWrite, 0.5)]),
        ] {
            let all = operations(name, Scale { sizes: 1.0, count: 0.3 });
            assert_eq!(all.len(), 30_000);
            for (verb, share) in shares {
                let got = all.iter().filter(|operation| operation.verb == verb).count() as f64;
                let tolerance = 5.0 * (all.len() as f64 * share * (1.0 - share)).sqrt();
                assert!((got - share * all.len() as f64).abs() <= tolerance, "{name} {verb:?}: {got}");
            }
            assert!(all.iter().all(|operation| operation.bytes == 512 << 10));
        }
    }

    #[test]
    fn d_reads_what_was_inserted_last() {
        let (mut there, mut newest, mut reads) = (1000, 0.0, 0.0);
        for operation in operations("ycsb-d", Scale::default()) {
            if operation.verb == Verb::Insert {
                there += 1;
            } else {
                reads += 1.0;
                newest += f64::from(u8::from(operation.key + 1 == there));
            }
        }
        // The newest key is drawn with probability 1 / zeta(items), which goes from 1/7.7 for 1000 values to 1/9.6 for
        // 6000.
        let share = newest / reads;
        assert!((1.0 / 9.7..1.0 / 7.6).contains(&share), "{share}");
    }

    #[test]
    fn scans_are_of_every_length_alike() {
        let all = operations("ycsb-e", Scale::default());
        let lengths: Vec<f64> =
            all.iter().filter(|o| o.verb == Verb::Scan).map(|o| f64::from(o.values)).collect();
        let mean = lengths.iter().sum::<f64>() / lengths.len() as f64;
        // The standard deviation of 1 to 100 is 28.9.
        assert!((mean - 50.5).abs() <= 5.0 * 28.9 / (lengths.len() as f64).sqrt(), "{mean}");
        assert!(lengths.iter().all(|length| (1.0..=100.0).contains(length)));
    }
}
