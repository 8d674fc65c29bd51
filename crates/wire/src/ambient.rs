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
    #[allow(clippy::disallowed_methods, reason = "this is what is used instead")]
    tokio::task::spawn_blocking(work)
}

/// The time since 1970.
pub fn since_epoch() -> Duration {
    #[cfg(feature = "sim")]
    if let Some(time) = simulation::since_epoch() {
        return time;
    }
    #[allow(clippy::disallowed_methods, reason = "this is what is used instead")]
    let now = SystemTime::now();
    now.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Faults that were mended. A simulation can put them back, to show that it finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mended {
    /// Blocks are deleted although somebody writes them anew.
    DeletesUnfenced,
    /// A wipe is recorded when it is done, not before.
    WipesUnrecorded,
    /// A report of a bad block is believed, and the flag stays.
    ReportsBelieved,
}

/// Whether a mended fault is back; never outside a simulation.
#[inline]
pub fn is_back(fault: Mended) -> bool {
    #[cfg(feature = "sim")]
    return simulation::is_back(fault);
    #[cfg(not(feature = "sim"))]
    {
        let _ = fault;
        false
    }
}

/// The clock of a simulation, which can be set, and the mended faults that are back in it.
#[cfg(feature = "sim")]
pub mod simulation {
    use std::cell::Cell;
    use std::time::Duration;

    use super::Mended;

    thread_local! {
        static WRONG_BY_S: Cell<i64> = const { Cell::new(0) };
        static BACK: Cell<Option<Mended>> = const { Cell::new(None) };
    }

    /// Puts a mended fault back, on this thread.
    pub fn put_back(fault: Option<Mended>) {
        BACK.set(fault);
    }

    pub(super) fn is_back(fault: Mended) -> bool {
        BACK.get() == Some(fault)
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
