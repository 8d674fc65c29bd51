//! The windows in which users' latency is measured, turn by turn, and how many of them are over the target.

use std::ops::Range;

use kintsu_wire::message::RepairLimit;
use tokio::time::Instant;

use super::{PERCENT, Race, WINDOW};
use crate::figures::Spread;
use crate::workload::{Ended, Latency, Window};

/// The P99 of each window of a repair over the target, in busy and in quiet turns; `None` if the users' usual P99 is not known.
pub fn over_target(turns: &[Vec<Window>]) -> Option<[Vec<f64>; 2]> {
    let usual = [median(turns.first()?)?, median(turns.get(1)?)?];
    let mut over = [Vec::new(), Vec::new()];
    for (number, windows) in turns.iter().enumerate().skip(2) {
        let target = usual[number % 2] * (1.0 + f64::from(PERCENT) / 100.0);
        let worked = windows.iter().filter(|window| window.operations > 0);
        over[number % 2].extend(worked.map(|window| window.p99_ms / target));
    }
    Some(over)
}

/// From when until when the whole windows of each turn are. A turn ends when the next one begins, or when users were stopped.
pub fn spans(starts: &[Instant], stopped: Instant, race: Race) -> Vec<Vec<Range<Instant>>> {
    let of_turn = |(number, start): (usize, &Instant)| {
        let (next, turn) = (starts.get(number + 1).copied(), race.windows(number));
        let whole = (0..turn).filter(|window| *start + WINDOW * (*window as u32 + 1) <= stopped);
        let span = |at: usize| {
            let from = *start + WINDOW * at as u32;
            // The operations of the last window may begin a moment after its end, until the next turn.
            from..next.filter(|_| at + 1 == turn).unwrap_or(from + WINDOW)
        };
        whole.map(span).collect()
    };
    starts.iter().enumerate().map(of_turn).collect()
}

/// The windows, of operations by when they began.
pub fn windows(spans: &[Vec<Range<Instant>>], log: &[Ended]) -> Vec<Vec<Window>> {
    let window = |span: &Range<Instant>| Window::of(log.iter().filter(|ended| span.contains(&ended.began)));
    spans.iter().map(|turn| turn.iter().map(window).collect()).collect()
}

/// What was said last in each of them.
pub fn limits(spans: &[Vec<Range<Instant>>], said: &[(Instant, RepairLimit)]) -> Vec<Option<RepairLimit>> {
    let last =
        |span: &Range<Instant>| said.iter().rev().find(|(at, _)| span.contains(at)).map(|(_, limit)| *limit);
    spans.iter().flatten().map(last).collect()
}

/// The part of the windows that were over the target; `None` if the repair ended before its first whole one.
pub fn part_over(over: &[Vec<f64>; 2]) -> Option<f64> {
    let all = over.concat();
    let above = all.iter().filter(|window| **window > 1.0).count();
    (!all.is_empty()).then(|| above as f64 / all.len() as f64)
}

/// The P99 over the target: the median over the windows of a kind of turn, of the kind in which it is greater.
pub fn tail(over: &[Vec<f64>; 2]) -> Option<f64> {
    let medians = over.iter().filter_map(|windows| Some(Spread::of(windows.iter().copied())?.median));
    medians.max_by(f64::total_cmp)
}

fn median(windows: &[Window]) -> Option<f64> {
    Some(Spread::of(windows.iter().map(|window| window.p99_ms))?.median)
}

/// The P99 is the median over the windows.
pub fn summary(windows: &[Window]) -> Latency {
    let operations = windows.iter().map(|window| window.operations).sum();
    Latency { operations, p99_ms: median(windows).unwrap_or(0.0), ..Latency::default() }
}
#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kintsu_wire::message::WhyLimit;

    use super::super::Policy;
    use super::*;

    #[test]
    fn windows_are_compared_with_the_usual_ones_of_their_turn() {
        let window = |p99_ms| Window { operations: 100, bytes: 0, p99_ms };
        let turns = |all: &[&[f64]]| -> Vec<Vec<Window>> {
            all.iter().map(|turn| turn.iter().copied().map(window).collect()).collect()
        };
        // Turns of three windows: busy, quiet, then both with a repair.
        let all: [&[f64]; 4] =
            [&[40.0, 30.0, 30.0], &[9.0, 10.0, 10.0], &[99.0, 35.0, 36.0], &[12.0, 11.0, 13.0]];
        let over = |turns: &[Vec<Window>]| over_target(turns).unwrap();
        assert_eq!(part_over(&over(&turns(&all))), Some(2.0 / 6.0));
        assert_eq!(part_over(&over(&turns(&all[..3]))), Some(1.0 / 3.0));
        assert_eq!(part_over(&over(&turns(&all[..2]))), None);
        assert!(over_target(&turns(&all[..1])).is_none());
        // Both turns have their usual P99 as median, 36 and 12 being the target; in quiet ones it is further up.
        let near = |tail: Option<f64>, wanted: f64| (tail.unwrap() - wanted).abs() < 1e-9;
        assert!(near(tail(&over(&turns(&all))), 1.0));
        let mut worse = turns(&all);
        worse[3][1].p99_ms = 14.0;
        assert!(near(tail(&over(&worse)), 13.0 / 12.0));
        assert_eq!(tail(&over(&turns(&all[..2]))), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_operation_belongs_to_the_window_in_which_it_began() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let ended =
            |began_ms, took_ms| Ended { began: at(began_ms), took: Duration::from_millis(took_ms), bytes: 1 };
        // Two windows in a turn without a repair, three in later ones; the first turn ends late, with its last operation.
        let race = Race { policy: Policy::Free, stripes: 1, alone: 2, turn: 3 };
        let windows =
            |starts: &[Instant], stopped, log: &[Ended]| windows(&spans(starts, stopped, race), log);
        let log = [
            ended(0, 10),
            ended(4999, 3000),
            ended(5000, 20),
            ended(10_001, 30),
            ended(10_500, 40),
            ended(21_000, 50),
        ];
        let all = windows(&[at(0), at(10_400)], at(20_400), &log);
        let counts: Vec<Vec<u64>> =
            all.iter().map(|turn| turn.iter().map(|window| window.operations).collect()).collect();
        assert_eq!(counts, [vec![2, 2], vec![1, 0]]);
        assert!((all[0][0].p99_ms - 3000.0).abs() < 5.0);
        // What is not a whole window does not count.
        assert_eq!(windows(&[at(0), at(10_400)], at(20_399), &log)[1].len(), 1);
        let lengths = spans(&[at(0), at(10_000), at(20_000)], at(99_000), race);
        assert_eq!(lengths.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_of_a_window_is_what_was_said_last_in_it() {
        let start = Instant::now();
        let said = |seconds: u64, sent| {
            let limit = RepairLimit {
                rate: None,
                why: WhyLimit::Free,
                sent,
                p99_us: None,
                usual_us: None,
                target_us: None,
            };
            (start + Duration::from_secs(seconds), limit)
        };
        let race = Race { policy: Policy::Free, stripes: 1, alone: 3, turn: 3 };
        let spans = spans(&[start], start + 3 * WINDOW, race);
        let limits = limits(&spans, &[said(1, 1), said(4, 2), said(12, 3)]);
        assert_eq!(
            limits.iter().map(|limit| limit.map(|limit| limit.sent)).collect::<Vec<_>>(),
            [Some(2), None, Some(3)]
        );
    }
}
