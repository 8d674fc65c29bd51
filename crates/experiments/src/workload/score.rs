//! What operations took.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::Verb;

/// Significant digits of a latency.
const DIGITS: u8 = 3;
/// The longest latency that is told apart: an hour.
const LONGEST_MICROS: u64 = 3_600_000_000;

/// Latencies of operations, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Latency {
    /// How many operations.
    pub operations: u64,
    /// The mean.
    pub mean_ms: f64,
    /// Half of them took at most this.
    pub p50_ms: f64,
    /// 99% of them took at most this.
    pub p99_ms: f64,
    /// 99.9% of them took at most this.
    pub p999_ms: f64,
    /// The longest.
    pub most_ms: f64,
}

/// A second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Window {
    /// Operations that ended in it.
    pub operations: u64,
    /// Bytes that they read and wrote.
    pub bytes: u64,
    /// 99% of them took at most this.
    pub p99_ms: f64,
}

/// One operation.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// When it began.
    pub began: Instant,
    /// How long it took.
    pub took: Duration,
    /// Bytes that it read and wrote.
    pub bytes: u64,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Played {
    /// How long it was measured.
    pub seconds: f64,
    /// Bytes that were read and written.
    pub bytes: u64,
    /// Operations that failed; they count nowhere else.
    pub failed: u64,
    /// Why the first one failed.
    pub first_failure: Option<String>,
    /// All operations.
    pub all: Latency,
    /// By what they did.
    pub verbs: BTreeMap<Verb, Latency>,
    /// Second by second.
    pub windows: Vec<Window>,
}

impl Played {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.all.operations as f64 / self.seconds.max(1e-9)
    }
}

/// Collects what a player measures; may be read and started again at any time.
#[derive(Debug)]
pub struct Score(Mutex<Board>);

#[derive(Debug)]
struct Board {
    since: Instant,
    verbs: BTreeMap<Verb, Histogram<u64>>,
    bytes: u64,
    failed: u64,
    first_failure: Option<String>,
    windows: Vec<Window>,
    /// The latencies of the last window.
    window: Histogram<u64>,
    /// All operations, if they are wanted one by one.
    log: Option<Vec<Ended>>,
}

impl Default for Score {
    fn default() -> Self {
        Self(Mutex::new(Board::new()))
    }
}

impl Score {
    /// One that also keeps all operations, for [`Self::take_log`].
    pub fn with_log() -> Self {
        Self(Mutex::new(Board { log: Some(Vec::new()), ..Board::new() }))
    }

    /// Forgets everything: measures from now on.
    pub fn restart(&self) {
        let mut board = self.board();
        let log = board.log.as_ref().map(|_| Vec::new());
        *board = Board { log, ..Board::new() };
    }

    /// The operations that ended since the start or the last call, one by one.
    pub fn take_log(&self) -> Vec<Ended> {
        self.board().log.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// An operation has ended.
    pub fn ended(&self, verb: Verb, took: Duration, bytes: u64) {
        self.board().ended(verb, took, bytes);
    }

    /// An operation has failed. Returns how many have, and how many have not.
    pub fn failed(&self, why: impl ToString) -> (u64, u64) {
        let mut board = self.board();
        board.failed += 1;
        board.first_failure.get_or_insert_with(|| why.to_string());
        (board.failed, board.verbs.values().map(Histogram::len).sum())
    }

    /// What was measured until now.
    pub fn read(&self) -> Played {
        self.board().read()
    }

    fn board(&self) -> std::sync::MutexGuard<'_, Board> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            verbs: BTreeMap::new(),
            bytes: 0,
            failed: 0,
            first_failure: None,
            windows: Vec::new(),
            window: histogram(),
            log: None,
        }
    }

    fn ended(&mut self, verb: Verb, took: Duration, bytes: u64) {
        let micros = micros(took);
        // A histogram grows as far as it must, and only lack of memory would hinder that.
        let _ = self.verbs.entry(verb).or_insert_with(histogram).record(micros);
        self.bytes += bytes;
        if let Some(log) = &mut self.log {
            let now = Instant::now();
            log.push(Ended { began: now.checked_sub(took).unwrap_or(now), took, bytes });
        }
        let second = self.since.elapsed().as_secs() as usize;
        while self.windows.len() <= second {
            self.window.reset();
            self.windows.push(Window::default());
        }
        let _ = self.window.record(micros);
        if let Some(window) = self.windows.last_mut() {
            window.operations += 1;
            window.bytes += bytes;
            window.p99_ms = quantile(&self.window, 0.99);
        }
    }

    fn read(&self) -> Played {
        let mut all = histogram();
        for histogram in self.verbs.values() {
            let _ = all.add(histogram);
        }
        Played {
            seconds: self.since.elapsed().as_secs_f64(),
            bytes: self.bytes,
            failed: self.failed,
            first_failure: self.first_failure.clone(),
            all: Latency::of(&all),
            verbs: self.verbs.iter().map(|(verb, histogram)| (*verb, Latency::of(histogram))).collect(),
            windows: self.windows.clone(),
        }
    }
}

impl Window {
    /// The operations of a window.
    pub fn of<'a>(operations: impl IntoIterator<Item = &'a Ended>) -> Self {
        let (mut times, mut bytes) = (histogram(), 0);
        for ended in operations {
            let _ = times.record(micros(ended.took));
            bytes += ended.bytes;
        }
        Self {
            operations: times.len(),
            bytes,
            p99_ms: if times.is_empty() { 0.0 } else { quantile(&times, 0.99) },
        }
    }
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            operations: histogram.len(),
            mean_ms: histogram.mean() / 1000.0,
            p50_ms: quantile(histogram, 0.5),
            p99_ms: quantile(histogram, 0.99),
            p999_ms: quantile(histogram, 0.999),
            most_ms: histogram.max() as f64 / 1000.0,
        }
    }
}

fn quantile(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1000.0
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1)
}

/// Microseconds; longer times count as the longest.
fn histogram() -> Histogram<u64> {
    // Without an upper bound, values that saturate would be cut to the least that fits.
    let made = Histogram::new_with_bounds(1, LONGEST_MICROS, DIGITS);
    made.unwrap_or_else(|_| unreachable!("{DIGITS} digits are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn latencies_are_kept_by_verb_and_by_second() {
        let score = Score::default();
        for ms in 1..=1000 {
            score.ended(Verb::Read, Duration::from_millis(ms), 10);
        }
        tokio::time::advance(Duration::from_millis(2500)).await;
        score.ended(Verb::Update, Duration::from_millis(5), 7);
        assert_eq!(score.failed("gone"), (1, 1001));
        score.failed("again");
        let played = score.read();
        assert_eq!((played.all.operations, played.bytes, played.failed), (1001, 10_007, 2));
        assert_eq!(played.first_failure.as_deref(), Some("gone"));
        let read = played.verbs[&Verb::Read];
        // Three digits.
        let near = |got: f64, expected: f64| (got / expected - 1.0).abs() < 2e-3;
        assert!(
            near(read.p50_ms, 500.0) && near(read.p99_ms, 990.0) && near(read.p999_ms, 999.0),
            "{read:?}"
        );
        assert!(near(read.mean_ms, 500.5) && near(read.most_ms, 1000.0), "{read:?}");
        assert_eq!(played.windows.iter().map(|w| w.operations).collect::<Vec<_>>(), [1000, 0, 1]);
        assert!(near(played.windows[0].p99_ms, 990.0) && near(played.windows[2].p99_ms, 5.0));
        assert!(near(played.seconds, 2.5) && near(played.rate(), 1001.0 / 2.5));
        score.restart();
        assert_eq!(score.read().all, Latency::default());
        assert!(score.take_log().is_empty());
        let text = serde_json::to_string(&played).unwrap();
        assert_eq!(serde_json::from_str::<Played>(&text).unwrap(), played);
    }

    #[tokio::test(start_paused = true)]
    async fn operations_are_kept_one_by_one_with_the_time_when_they_began() {
        let score = Score::with_log();
        score.ended(Verb::Read, Duration::from_millis(1), 1);
        score.restart();
        let start = Instant::now();
        tokio::time::advance(Duration::from_millis(2500)).await;
        score.ended(Verb::Read, Duration::from_millis(500), 10);
        score.ended(Verb::Update, Duration::from_millis(100), 7);
        let log = score.take_log();
        let began: Vec<_> = log.iter().map(|ended| (ended.began - start).as_millis()).collect();
        assert_eq!(began, [2000, 2400]);
        let window = Window::of(&log);
        assert_eq!((window.operations, window.bytes), (2, 17));
        assert!((window.p99_ms - 500.0).abs() < 1.0);
        assert!(score.take_log().is_empty());
    }
}
