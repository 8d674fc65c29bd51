//! Contenders measured in turn, in short bursts, so that noise from outside strikes all of them.

use std::time::{Duration, Instant};

use serde::Serialize;

/// The least time of one burst: long against the clock's cost, short against a time slice.
const BURST: Duration = Duration::from_millis(1);

/// How fast a contender was, in 10^9 bytes a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Rate {
    /// In its fastest burst.
    pub best: f64,
    /// In the median burst.
    pub median: f64,
}

/// Runs `work(contender)` in turn for `contenders` contenders until each has had `seconds`, and
/// gives their rates; one call handles `bytes` bytes.
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

#[cfg(test)]
mod tests {
    use super::*;

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
