//! How background runs of a node give way to users.
//!
//! Before each step a lane of a background run does two things. While slices of users wait for a socket or the disk, it
//! waits, but not longer than [`YIELD`] after the last of them began to wait, so that a client that takes its slices
//! slowly does not hold up repairs. Then it keeps the node's limit: background runs together send, receive and read at most
//! this many bytes a second each. Without a limit and without users a step costs two loads of a number.
//!
//! Why runs do not block each other: a lane waits here only between steps, holds nothing but its place in the queue of
//! one limit, and the limit lets it go after a bounded time.

use std::pin::pin;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, timeout_at};

/// For this long a step waits for slices of users. What waits longer waits for something else than background runs.
const YIELD: Duration = Duration::from_millis(10);

/// Users who began something in this time are at work.
const LATELY: Duration = Duration::from_secs(1);

/// What was not used for this long may be used later, at once.
const BURST_S: f64 = 0.02;

/// The limit of the background runs of one node, and whether users wait.
#[derive(Debug, Default)]
pub struct GiveWay {
    /// Bytes a second, each for sending, receiving and reading; 0: no limit.
    limit: AtomicU64,
    changed: Notify,
    /// Reads and writes of users under way.
    users: AtomicUsize,
    /// When the last of them began.
    last: std::sync::Mutex<Option<Instant>>,
    free: Notify,
    budgets: [Mutex<Budget>; 3],
}

/// What may pass now.
#[derive(Debug, Default)]
struct Budget {
    /// In bytes; negative after a step that was larger.
    left: f64,
    at: Option<Instant>,
}

impl Budget {
    fn fill(&mut self, now: Instant, limit: f64) {
        let passed = self.at.replace(now).map_or(0.0, |at| (now - at).as_secs_f64());
        self.left = (self.left + passed * limit).min(BURST_S * limit);
    }
}

impl GiveWay {
    /// From now on background runs send, receive and read at most this many bytes a second; 0: no limit.
    pub fn limit(&self, bytes_per_second: u64) {
        if self.limit.swap(bytes_per_second, Ordering::Relaxed) != bytes_per_second {
            self.changed.notify_waiters();
        }
    }

    /// Marks that a user waits for a read or a write, as long as the result lives.
    pub(crate) fn busy(&self) -> Busy<'_> {
        self.users.fetch_add(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Busy(self)
    }

    /// Whether users' slices wait.
    pub(crate) fn users_wait(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
    }

    /// Whether users read or write here, or did so just now.
    pub fn users_work(&self) -> bool {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.users_wait() || last.is_some_and(|last| last.elapsed() < LATELY)
    }

    /// Whether there is a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// Lets users' slices go first.
    pub(crate) async fn let_users_go(&self) {
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let until = last.map_or_else(Instant::now, |last| last + YIELD);
        let _ = timeout_at(until, self.until_free()).await;
    }

    /// Waits until the limit allows a step that sends, receives and reads this many bytes.
    pub(crate) async fn keep_limit(&self, bytes: [u64; 3]) {
        for (budget, bytes) in self.budgets.iter().zip(bytes) {
            if bytes > 0 && self.is_limited() {
                self.take(budget, bytes).await;
            }
        }
    }

    /// Waits until no user waits.
    async fn until_free(&self) {
        loop {
            let mut free = pin!(self.free.notified());
            // From here on no call is missed.
            free.as_mut().enable();
            if self.users.load(Ordering::Relaxed) == 0 {
                return;
            }
            free.await;
        }
    }

    /// Steps pass in the order in which they came. The first one heeds a change of the limit at once.
    async fn take(&self, budget: &Mutex<Budget>, bytes: u64) {
        let mut budget = budget.lock().await;
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            let limit = self.limit.load(Ordering::Relaxed) as f64;
            if limit == 0.0 {
                *budget = Budget::default();
                return;
            }
            budget.fill(Instant::now(), limit);
            if budget.left >= 0.0 {
                budget.left -= bytes as f64;
                return;
            }
            let wait = Duration::from_secs_f64(-budget.left / limit);
            tokio::select! {
                () = sleep(wait) => {}
                () = changed => {}
            }
        }
    }
}

/// A user waits, as long as this lives.
#[derive(Debug)]
pub struct Busy<'a>(&'a GiveWay);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if self.0.users.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.free.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn all_runs_together_keep_the_limit_and_in_each_direction() {
        let way = Arc::new(GiveWay::default());
        way.limit(1_000_000);
        let begun = Instant::now();
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let way = way.clone();
            runs.spawn(async move {
                for _ in 0..20 {
                    way.keep_limit([50_000, 0, 0]).await;
                }
            });
        }
        // What only reads is not held up by what sends.
        for _ in 0..10 {
            way.keep_limit([0, 0, 50_000]).await;
        }
        assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
        while runs.join_next().await.is_some() {}
        let took = begun.elapsed();
        assert!((9 * SECOND..10 * SECOND).contains(&took), "10 MB at 1 MB/s took {took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_limit_is_in_force_at_once_and_without_one_nothing_waits() {
        let way = Arc::new(GiveWay::default());
        assert!(!way.is_limited());
        let begun = Instant::now();
        way.keep_limit([1 << 40; 3]).await;
        assert!(begun.elapsed().is_zero());
        way.limit(1);
        way.keep_limit([1_000_000, 0, 0]).await;
        let held = tokio::spawn({
            let way = way.clone();
            async move { way.keep_limit([1_000_000, 0, 0]).await }
        });
        sleep(SECOND).await;
        assert!(!held.is_finished());
        way.limit(1_000_000);
        held.await.unwrap();
        assert!(begun.elapsed() < 3 * SECOND, "{:?}", begun.elapsed());
        way.limit(0);
        assert!(!way.is_limited());
    }

    #[tokio::test(start_paused = true)]
    async fn users_go_first_but_not_for_ever() {
        let way = Arc::new(GiveWay::default());
        let begun = Instant::now();
        assert!(!way.users_work(), "nobody was here yet");
        let slow = way.busy();
        assert!(way.users_wait() && way.users_work());
        way.let_users_go().await;
        assert!(begun.elapsed() >= YIELD, "{:?}", begun.elapsed());
        let begun = Instant::now();
        way.let_users_go().await;
        assert!(begun.elapsed().is_zero(), "a user is slow to take its slices");
        drop(slow);
        let (user, other) = (way.busy(), way.busy());
        let waiting = tokio::spawn({
            let way = way.clone();
            async move { way.let_users_go().await }
        });
        sleep(YIELD / 10).await;
        drop(user);
        sleep(YIELD / 10).await;
        assert!(!waiting.is_finished());
        drop(other);
        waiting.await.unwrap();
        assert!(begun.elapsed() < YIELD);
        assert!(way.users_work() && !way.users_wait(), "they have just ended");
        sleep(LATELY).await;
        assert!(!way.users_work());
    }
}
