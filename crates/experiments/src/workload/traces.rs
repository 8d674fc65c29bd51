//! Workloads with the published figures of three production traces (ChameleonEC, section V-B, Exp#1).
//!
//! What nobody published is assumed; each assumption is named where it is made.

use rand::RngExt;

use super::sizes::Law;
use super::ycsb::pick;
use super::zipf::{Scrambled, Zipf};
use super::{Made, Operation, Random, Record, Scale, Verb};

/// Which keys are popular.
enum Popular {
    Zipf(Zipf),
    Scrambled(Scrambled),
}

/// What is known of a trace.
struct Trace {
    requests: u64,
    keys: u64,
    /// The share of reads; all others are updates.
    reads: f64,
    popular: fn(keys: u64) -> Popular,
    /// Seconds between two requests.
    between: Law,
}

/// IBM's object store trace 000: values of 16 B to 2.4 GB, of which the first 300,000 requests are replayed.
///
/// Assumed: lengths are log-normal, such that 16 B and 2.4 GB are 4.5 standard deviations from the mean of the
/// logarithm, which is about as far as the extremes of 300,000 draws are; four reads for each write; YCSB's popular
/// keys, a tenth as many as requests; 27 requests a second, the average over all traces of the collection (1.6 billion
/// requests in 98 traces of a week).
pub fn ibm(scale: Scale, random: &mut Random) -> Made {
    const LIMITS: (f64, f64) = (16.0, 2.4e9);
    const DEVIATIONS: f64 = 4.5;
    let (least, most) = (LIMITS.0.ln(), LIMITS.1.ln());
    let (mu, sigma) = ((least + most) / 2.0, (most - least) / (2.0 * DEVIATIONS));
    let trace = Trace {
        requests: 300_000,
        keys: 30_000,
        reads: 0.8,
        popular: |keys| Popular::Scrambled(Scrambled::new(keys)),
        between: Law::Exponential { mean: 1.0 / 27.0 },
    };
    let law = Law::LogNormal { mu, sigma, limits: LIMITS };
    made(scale, random, &trace, |random| Record { key_bytes: 16, bytes: scale.size(law.next(random)) })
}

/// Twitter's cache cluster 37 (`stat/2020Mar.md` of twitter/cache-trace): keys of 72 B, values of 20,134 B on average,
/// 63% GET and 37% SET, 3.8 requests for each key, Zipf with exponent 0.4251, 4150 requests a second.
///
/// Assumed: lengths of values are exponential; 100,000 requests.
pub fn twitter(scale: Scale, random: &mut Random) -> Made {
    const REQUESTS: u64 = 100_000;
    let trace = Trace {
        requests: REQUESTS,
        keys: (REQUESTS as f64 / 3.8) as u64,
        reads: 0.63,
        popular: |keys| Popular::Zipf(Zipf::new(keys, 0.4251)),
        between: Law::Exponential { mean: 1.0 / 4150.0 },
    };
    let law = Law::Exponential { mean: 20_134.0 };
    made(scale, random, &trace, |random| Record { key_bytes: 72, bytes: scale.size(law.next(random)) })
}

/// Probabilities of values of 0 to 14 bytes in ETC, which no formula fits (Atikoglu et al., section 6.3).
const SHORT_VALUES: [f64; 15] = [
    0.00536, 0.00047, 0.17820, 0.09239, 0.00018, 0.02740, 0.00065, 0.00606, 0.00023, 0.00837, 0.00837,
    0.08989, 0.00092, 0.00326, 0.01980,
];

/// Facebook's ETC (Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value Store", SIGMETRICS'12, section 6):
/// key lengths by the generalized extreme value distribution (mu 30.7984, sigma 8.20449, k 0.078688), value lengths by a
/// table up to 14 B and by the generalized Pareto distribution from 15 B (sigma 214.476, k 0.348238), microseconds
/// between requests by the generalized Pareto distribution (sigma 16.0292, k 0.154971), 30 GETs for each SET.
///
/// Assumed: YCSB's popular keys, a tenth as many as requests; 100,000 requests. An empty value counts as one byte.
pub fn etc(scale: Scale, random: &mut Random) -> Made {
    let trace = Trace {
        requests: 100_000,
        keys: 10_000,
        reads: 30.0 / 31.0,
        popular: |keys| Popular::Scrambled(Scrambled::new(keys)),
        between: Law::Pareto { location: 0.0, scale: 16.0292e-6, shape: 0.154971 },
    };
    let keys = Law::ExtremeValue { location: 30.7984, scale: 8.20449, shape: 0.078688 };
    made(scale, random, &trace, |random| {
        let key_bytes = keys.next(random).round().clamp(1.0, 250.0) as u16;
        Record { key_bytes, bytes: scale.size(etc_value(random)) }
    })
}

/// The reads of Ceph's RADOS Bench: all objects of 4 MiB in the order in which they were written, again and again.
///
/// Assumed: 1000 objects, ten passes.
pub fn rados(scale: Scale, _: &mut Random) -> Made {
    let objects = scale.number(1000);
    let bytes = scale.size(f64::from(4 << 20));
    let read = move |number| Operation { at: 0.0, verb: Verb::Read, key: number % objects, bytes, values: 1 };
    let records = vec![Record { key_bytes: 20, bytes }; objects as usize];
    Made { records, key_bytes: 20, operations: Box::new((0..10 * objects).map(read)) }
}

fn etc_value(random: &mut Random) -> f64 {
    let mut left: f64 = random.random();
    for (bytes, probability) in SHORT_VALUES.iter().enumerate() {
        left -= probability;
        if left < 0.0 {
            return bytes as f64;
        }
    }
    Law::Pareto { location: 15.0, scale: 214.476, shape: 0.348238 }.next(random)
}

fn made(scale: Scale, random: &mut Random, trace: &Trace, record: impl Fn(&mut Random) -> Record) -> Made {
    let keys = scale.number(trace.keys);
    let records: Vec<Record> = (0..keys).map(|_| record(random)).collect();
    let (known, between, mut random, mut at) = (records.clone(), trace.between, random.clone(), 0.0);
    let shares = [(Verb::Read, trace.reads), (Verb::Update, 1.0 - trace.reads)];
    let popular = (trace.popular)(keys);
    let operations = (0..scale.number(trace.requests)).map(move |_| {
        at += between.next(&mut random);
        let key = match &popular {
            Popular::Zipf(zipf) => zipf.next(&mut random),
            Popular::Scrambled(scrambled) => scrambled.next(&mut random),
        };
        let bytes = known.get(key as usize).map_or(1, |record| record.bytes);
        Operation { at, verb: pick(&shares, &mut random), key, bytes, values: 1 }
    });
    Made { records, key_bytes: 0, operations: Box::new(operations) }
}

#[cfg(test)]
mod tests {
    use super::super::{Work, workload};
    use super::*;

    fn work(name: &str) -> Work {
        workload(name).unwrap().start(Scale::default(), 11)
    }

    fn share(records: &[Record], of: impl Fn(&Record) -> bool) -> f64 {
        records.iter().filter(|record| of(record)).count() as f64 / records.len() as f64
    }

    /// Five standard deviations of the share of something with this probability.
    fn near(got: f64, probability: f64, draws: usize) -> bool {
        (got - probability).abs() <= 5.0 * (probability * (1.0 - probability) / draws as f64).sqrt()
    }

    #[test]
    fn reads_have_their_share_and_requests_their_rate() {
        for (name, reads, each_second) in
            [("ibm", 0.8, 27.0), ("twitter", 0.63, 4150.0), ("etc", 30.0 / 31.0, 0.845029 / 16.0292e-6)]
        {
            let all: Vec<Operation> = work(name).operations.collect();
            let read = all.iter().filter(|operation| operation.verb == Verb::Read).count();
            assert!(near(read as f64 / all.len() as f64, reads, all.len()), "{name}");
            let rate = all.len() as f64 / all[all.len() - 1].at;
            // Times between requests deviate by their mean, or 1.2 times that for ETC.
            assert!((rate / each_second - 1.0).abs() <= 6.0 / (all.len() as f64).sqrt(), "{name}: {rate}");
        }
    }

    #[test]
    fn ibm_values_span_the_published_range() {
        let records = work("ibm").records;
        let of = |bytes: f64| share(&records, |record| record.bytes as f64 <= bytes);
        // The median is the geometric mean of the limits.
        assert!(near(of((16.0f64 * 2.4e9).sqrt()), 0.5, records.len()));
        assert!(records.iter().all(|record| (16..=2_400_000_000).contains(&record.bytes)));
        let least = records.iter().map(|record| record.bytes).min().unwrap();
        let most = records.iter().map(|record| record.bytes).max().unwrap();
        assert!(least < 400 && most > 100_000_000, "{least} to {most}");
    }

    #[test]
    fn twitter_values_have_the_published_mean() {
        let records = work("twitter").records;
        let mean = records.iter().map(|r| r.bytes as f64).sum::<f64>() / records.len() as f64;
        assert!((mean / 20_134.0 - 1.0).abs() <= 5.0 / (records.len() as f64).sqrt(), "{mean}");
        assert!(records.iter().all(|record| record.key_bytes == 72));
    }

    #[test]
    fn etc_has_the_published_short_values_and_tail() {
        let records = work("etc").records;
        for (bytes, probability) in SHORT_VALUES.iter().enumerate().skip(2) {
            assert!(
                near(share(&records, |r| r.bytes == bytes as u64), *probability, records.len()),
                "{bytes}"
            );
        }
        let long = 1.0 - SHORT_VALUES.iter().sum::<f64>();
        for bytes in [100.0, 500.0, 2000.0] {
            let above = (1.0f64 + 0.348238 * (bytes + 0.5 - 15.0) / 214.476).powf(-1.0 / 0.348238);
            let got = share(&records, |record| record.bytes as f64 > bytes);
            assert!(near(got, long * above, records.len()), "{bytes}: {got}");
        }
        // The mean of the extreme value distribution: mu + sigma (gamma(1 - k) - 1) / k with gamma(0.921312) = 1.0520.
        let keys = records.iter().map(|r| f64::from(r.key_bytes)).sum::<f64>() / records.len() as f64;
        assert!((keys - 36.22).abs() < 0.6, "{keys}");
    }
}
