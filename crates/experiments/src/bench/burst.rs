//! Contenders measured in turn, in short bursts, so that outside noise affects all of them equally.

use std::time::{Duration, Instant};

use serde::Serialize;

/// The least time of one burst: long compared with the cost of reading the clock, short compared with a time
/// slice.
const BURST: Duration = Duration::from_millis(1);

/// The rate of a contender, in 10^9 bytes a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rate {
    /// In its fastest burst.
    pub best: f64,
    /// In the median burst.
    pub median: f64,
}

impl Rate {
    /// The rate without `seconds` of each call, in which it handles `bytes` bytes.
    pub(super) fn without(self, seconds: f64, bytes: usize) -> Self {
        let of = |rate: f64| 1.0 / (1.0 / rate - seconds * 1e9 / bytes as f64);
        Self { best: of(self.best), median: of(self.median) }
    }
}

/// Runs `work(contender)` in turn for `contenders` contenders until each has had `seconds`, and returns their
/// rates; one call handles `bytes` bytes.
pub(super) fn interleave(
    contenders: usize,
    seconds: f64,
    bytes: usize,
    mut work: impl FnMut(usize),
) -> Vec<Rate> {
    let mut burst = |contender, calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| work(contender));
        start.elapsed()
    };
    let calls: Vec<u32> = (0..contenders)
        .map(|contender| {
            let mut calls = 1;
            while burst(contender, calls) < BURST {
                calls *= 2;
            }
            calls
        })
        .collect();
    let mut seconds_per_call = vec![Vec::new(); contenders];
    let mut spent = Duration::ZERO;
    while spent.as_secs_f64() < seconds * contenders as f64 || seconds_per_call[0].len() < 3 {
        for contender in 0..contenders {
            let time = burst(contender, calls[contender]);
            spent += time;
            seconds_per_call[contender].push(time.as_secs_f64() / f64::from(calls[contender]));
        }
    }
    let rate = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        let per_second = |time: f64| bytes as f64 / time / 1e9;
        Rate { best: per_second(times[0]), median: per_second(times[times.len() / 2]) }
    };
    seconds_per_call.into_iter().map(rate).collect()
}

/// Two contenders side by side.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    /// Seconds of each one's fastest burst.
    pub best: [f64; 2],
    /// Seconds of each one's median burst.
    pub median: [f64; 2],
}

/// Runs `work(contender, chunk)` for two contenders, burst by burst, until each has had `seconds`.
///
/// The order changes from round to round; each contender processes all chunks, both as the first and as the
/// second. Within a round the two are half of all chunks apart, so that neither profits from what the other left
/// in a cache.
pub(super) fn pair(seconds: f64, chunks: usize, mut work: impl FnMut(usize, usize)) -> Pair {
    let mut times = [Vec::new(), Vec::new()];
    let mut spent = Duration::ZERO;
    let mut round = 0;
    while spent.as_secs_f64() < 2.0 * seconds || round < 2 * chunks {
        let first = (round + (1 - chunks % 2) * (round / chunks)) % 2;
        for (contender, ahead) in [(first, 0), (1 - first, chunks / 2)] {
            let start = Instant::now();
            work(contender, (round + ahead) % chunks);
            let time = start.elapsed();
            spent += time;
            times[contender].push(time.as_secs_f64());
        }
        round += 1;
    }
    times.iter_mut().for_each(|times| times.sort_by(f64::total_cmp));
    Pair { best: times.each_ref().map(|t| t[0]), median: times.each_ref().map(|t| t[t.len() / 2]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_of_a_pair_come_through_all_chunks_first_and_second() {
        for chunks in [1, 2, 5, 16] {
            let mut seen = std::collections::BTreeSet::new();
            let mut calls = 0;
            pair(0.0, chunks, |contender, chunk| {
                seen.insert((contender, chunk, calls % 2));
                calls += 1;
            });
            assert_eq!(seen.len(), 4 * chunks, "{chunks}");
        }
    }

    #[test]
    fn what_a_call_costs_is_taken_off() {
        // 4,000 bytes in 2 and in 4 microseconds, of which one is the call.
        let rate = Rate { best: 2.0, median: 1.0 }.without(1e-6, 4000);
        assert!((rate.best - 4.0).abs() < 1e-9 && (rate.median - 4.0 / 3.0).abs() < 1e-9);
    }

    #[test]
    fn every_contender_is_called_equally_often_in_bursts() {
        let mut calls = [0u32; 2];
        let rates = interleave(2, 0.01, 1000, |contender| {
            calls[contender] += 1;
            std::thread::sleep(Duration::from_millis(1 + contender as u64));
        });
        assert_eq!(calls[0], calls[1]);
        assert!(calls[0] > 3);
        assert!(rates.iter().all(|r| r.best >= r.median && r.median > 0.0));
    }
}
