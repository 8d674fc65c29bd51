//! Counts what happens, for monitoring. Nothing is decided by it.

use kintsu_wire::message::{Counts, Histogram};

use super::repair::Outcome;

/// Upper ends of the ranges, in milliseconds: a repair takes from a few of them to an hour, an operation of a user from a
/// part of one to a minute.
const REPAIRS_MS: [u64; 14] =
    [10, 30, 100, 300, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000];
const OPERATIONS_US: [u64; 15] = [
    250, 500, 1000, 2500, 5000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000,
    20_000_000, 60_000_000,
];

/// What has happened since the start.
#[derive(Debug)]
pub struct Tallies {
    counts: Counts,
}

impl Default for Tallies {
    fn default() -> Self {
        let repairs = Histogram::new(REPAIRS_MS.map(|ms| ms as f64 / 1e3).to_vec());
        let operations = Histogram::new(OPERATIONS_US.map(|us| us as f64 / 1e6).to_vec());
        Self { counts: Counts { repairs, operations, ..Counts::default() } }
    }
}

impl Tallies {
    /// The repair of a stripe has ended.
    pub fn repaired(&mut self, outcome: &Outcome, ms: u64) {
        let counts = &mut self.counts;
        match outcome.failed {
            Some(_) => counts.failed_stripes += 1,
            None => counts.repaired_stripes += 1,
        }
        counts.repaired_blocks += outcome.repaired.len() as u64;
        counts.repaired_bytes += outcome.tally.bytes;
        counts.read_bytes += outcome.tally.bytes_read;
        counts.moved_bytes += outcome.tally.moved.total();
        counts.went_around += outcome.around.len() as u64;
        counts.repairs.add(ms as f64 / 1e3);
    }

    /// Users' operations took this long, each in microseconds.
    pub fn felt(&mut self, micros: &[u32]) {
        micros.iter().for_each(|micros| self.counts.operations.add(f64::from(*micros) / 1e6));
    }

    /// All counts; `up_ms` is the time since the start.
    pub fn told(&self, up_ms: u64) -> Counts {
        Counts { up_seconds: up_ms as f64 / 1e3, ..self.counts.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_the_first_range_whose_end_it_does_not_pass() {
        let mut tallies = Tallies::default();
        tallies.felt(&[250, 251, u32::MAX]);
        let failed = Outcome { failed: Some("no".into()), ..Outcome::default() };
        tallies.repaired(&Outcome::default(), 0);
        tallies.repaired(&failed, 10_000_000);
        let told = tallies.told(1500);
        let filled = |histogram: &Histogram| -> Vec<usize> {
            let counts = histogram.counts.iter().enumerate();
            counts.filter(|(_, count)| **count > 0).map(|(range, _)| range).collect()
        };
        assert_eq!(filled(&told.operations), [0, 1, OPERATIONS_US.len()]);
        assert_eq!(filled(&told.repairs), [0, REPAIRS_MS.len()]);
        assert_eq!((told.repaired_stripes, told.failed_stripes, told.up_seconds), (1, 1, 1.5));
        assert!((told.repairs.sum - 10_000.0).abs() < 1e-9);
    }
}
