//! The controller under users who are busy and quiet in turns, operation by operation. Its windows do not begin with the turns,
//! so that some have operations of both kinds.

use kintsu_wire::message::Moved;

use super::tests::{CAPACITY, NODE, Noise, TARGET, controller};
use super::*;

/// The P99 of busy and of quiet users without repairs, in microseconds.
const USUAL: [f64; 2] = [45_000.0, 20_000.0];
/// Their operations in a second.
const OPERATIONS: [usize; 2] = [300, 150];
/// How much the logarithms of their times vary: the P99 of a window then varies by some 4%.
const DEVIATION: f64 = 0.34;
/// The standard deviations from the mean to the P99.
const TO_P99: f64 = 2.326;
/// The part of a link that repairs may have in turns of both kinds.
const BORNE: f64 = 0.1;
/// The turns from which windows count: in those before the limit is found.
const SETTLED: usize = 6;

/// The part of windows above the target, and the mean rate of repairs over what users bear, where nothing is repaired in the first
/// `idle` turns.
fn played(seed: u64, idle: usize, turns: usize, windows: usize) -> (f64, f64) {
    let (mut it, mut noise, mut counters) = (controller(), Noise(seed * 7919 + 1), Counters::default());
    // The rate at which repairs are infinitely slow to users: then `BORNE` is what they bear.
    let cliff = BORNE * CAPACITY * (1.0 + 100.0 / f64::from(TARGET));
    let (mut above, mut rates) = (Vec::new(), Vec::new());
    let mut limit = 0.0;
    for turn in 0..turns {
        for _ in 0..windows {
            let mut all = Vec::new();
            for _ in 0..WINDOW_MS / 1000 {
                let repair = if turn < idle { 0.0 } else { limit };
                // What the controller says is heard a second later.
                limit = it.rate().map_or(f64::MAX, |limit| limit.get() as f64).min(CAPACITY);
                let p99 = USUAL[turn % 2] / (1.0 - repair / cliff).max(0.05);
                let mut micros = || (p99 * (DEVIATION * (noise.next() - TO_P99)).exp()) as u32;
                let took: Vec<u32> = (0..OPERATIONS[turn % 2]).map(|_| micros()).collect();
                it.felt(&took);
                all.extend(took);
                counters.at_ms += 1000;
                counters.background =
                    Moved { sent: counters.background.sent + repair as u64, ..Moved::default() };
                it.heard(NODE, counters);
                if turn >= SETTLED {
                    rates.push(repair / (BORNE * CAPACITY));
                }
                it.tick(counters.at_ms + 1000 * (seed % 5));
            }
            let target = USUAL[turn % 2] * (1.0 + f64::from(TARGET) / 100.0);
            if turn >= SETTLED {
                above.push(f64::from(u8::from(percentile(&mut all).unwrap() > target)));
            }
        }
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    (mean(&above), mean(&rates))
}

/// The mean over some runs.
fn mean(idle: usize, turns: usize, windows: usize) -> (f64, f64) {
    let runs = 30;
    let all = (0..runs).map(|seed| played(seed, idle, turns, windows));
    let (above, rate) = all.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (above / runs as f64, rate / runs as f64)
}

#[test]
fn users_who_are_busy_and_quiet_in_turns_are_not_disturbed() {
    let (long, short) = (mean(2, 20, 12), mean(2, 30, 5));
    assert!(long.0 < 0.01 && long.1 > 0.4, "turns of 12 windows: {long:?}");
    assert!(short.0 < 0.03 && short.1 > 0.4, "turns of 5 windows: {short:?}");
    // A repair has begun before anything is known of users.
    let (long, short) = (mean(0, 20, 12), mean(0, 30, 5));
    assert!(long.0 < 0.03 && long.1 > 0.35, "turns of 12 windows, none alone: {long:?}");
    assert!(short.0 < 0.03 && short.1 > 0.4, "turns of 5 windows, none alone: {short:?}");
}
