//! What a program takes from its surroundings without being handed it: threads for work that blocks, and the time of day.
//!
//! In production these are tokio's blocking threads and the system's clock. Inside a simulation (feature `sim`) there is
//! one thread and a simulated clock, so that a run depends on its seed alone. Monotonic time is `tokio::time::Instant`,
//! which a simulation stops by itself.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::JoinHandle;

/// Whether the caller runs inside a simulation.
#[inline]
pub fn simulated() -> bool {
    #[cfg(feature = "sim")]
    return turmoil::in_simulation();
    #[cfg(not(feature = "sim"))]
    false
}

/// Runs work that blocks away from the asynchronous threads. In a simulation it is a task of its own, which runs
/// in one go.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if simulated() {
        return tokio::spawn(async move { work() });
    }
    tokio::task::spawn_blocking(work)
}

/// The time since 1970.
pub fn since_epoch() -> Duration {
    #[cfg(feature = "sim")]
    if let Some(time) = simulation::since_epoch() {
        return time;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The clock of a simulation, which can be set.
#[cfg(feature = "sim")]
pub mod simulation {
    use std::cell::Cell;
    use std::time::Duration;

    thread_local! {
        static WRONG_BY_S: Cell<i64> = const { Cell::new(0) };
    }

    /// Lets the time of day of this thread's simulation be wrong by so many seconds.
    pub fn set_clock_wrong_by(seconds: i64) {
        WRONG_BY_S.set(seconds);
    }

    pub(super) fn since_epoch() -> Option<Duration> {
        let right = turmoil::since_epoch()?;
        let wrong_by = WRONG_BY_S.get();
        let step = Duration::from_secs(wrong_by.unsigned_abs());
        Some(if wrong_by < 0 { right.saturating_sub(step) } else { right + step })
    }
}
