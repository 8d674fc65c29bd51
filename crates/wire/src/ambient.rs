//! What a program uses without receiving it as an argument: threads for work that blocks or gives way, and the time of
//! day.
//!
//! In production these are tokio's blocking threads, runtimes of low priority and the system's clock. Inside a simulation (feature
//! `sim`) there is one thread and a simulated clock, so that a run depends on its seed alone. Monotonic time
//! is `tokio::time::Instant`, which a simulation controls without help from here.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Whether the caller runs inside a simulation.
#[inline]
pub fn simulated() -> bool {
    #[cfg(feature = "sim")]
    return turmoil::in_simulation();
    #[cfg(not(feature = "sim"))]
    false
}

/// Runs blocking work outside the asynchronous threads. In a simulation the work becomes a task of its own,
/// which runs without a pause.
pub fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    if simulated() {
        return tokio::spawn(async move { work() });
    }
    #[allow(clippy::disallowed_methods, reason = "this is what is used instead")]
    tokio::task::spawn_blocking(work)
}

/// How much lower the priority of background work is ("nice"): where both want all of a processor, a thread of it gets a tenth.
const NICE: i32 = 10;
/// The same where users work, who are to have what they want: a thread gets 1.5%. Several agents on one machine have threads each.
/// Not always so low: beside other programs that take all processors for hours repairs would hardly go on.
const NICE_TO_USERS: i32 = 19;

static BACKGROUND: LazyLock<Option<Runtime>> = LazyLock::new(|| threads_of(NICE));
static BEHIND_USERS: LazyLock<Option<Runtime>> = LazyLock::new(|| threads_of(NICE_TO_USERS));

/// Threads that leave the processors to others, those for blocking work too.
fn threads_of(nice: i32) -> Option<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    // A thread begins with the priority of the one that starts it, so this is what all of them get, not what they lose.
    let priority = rustix::process::getpriority_process(None).unwrap_or_default().saturating_add(nice);
    let lower = move || {
        // On Linux this is of the calling thread. Where it is refused, background work is as urgent as others.
        let _ = rustix::process::setpriority_process(None, priority);
    };
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(threads).thread_name("background").on_thread_start(lower).enable_all();
    builder.build().inspect_err(|error| tracing::warn!("no threads for background work: {error}")).ok()
}

/// Where work runs that should not take processors from users, who may be at work here. What it starts runs there too.
///
/// # Panics
/// Outside of a runtime.
pub fn background(users_work: bool) -> Handle {
    let threads = if users_work { &BEHIND_USERS } else { &BACKGROUND };
    let own = || threads.as_ref().map(|runtime| runtime.handle().clone());
    if simulated() { None } else { own() }.unwrap_or_else(Handle::current)
}

/// Lets a thread for blocking work rest. In a simulation no time passes.
pub fn rest(time: Duration) {
    if !simulated() {
        #[allow(clippy::disallowed_methods, reason = "this is what is used instead")]
        std::thread::sleep(time);
    }
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

/// Faults that were fixed. A simulation can put them back, to show that it finds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FixedFault {
    /// Blocks are deleted even while somebody writes them again.
    DeletesUnfenced,
    /// A wipe is recorded only after it is done.
    WipesUnrecorded,
    /// A report of a bad block is believed without reading the block again, and the flag stays.
    ReportsBelieved,
    /// The log of a block gets other nodes under an epoch that readers know already.
    EpochsKnown,
    /// What a node that logs for a volume answers is believed without asking the others.
    ReadsUnconfirmed,
}

/// Whether a fixed fault is back; never outside a simulation.
#[inline]
pub fn is_back(fault: FixedFault) -> bool {
    #[cfg(feature = "sim")]
    return simulation::is_back(fault);
    #[cfg(not(feature = "sim"))]
    {
        let _ = fault;
        false
    }
}

/// The clock of a simulation, which can be set, and the fixed faults that are back in it.
#[cfg(feature = "sim")]
pub mod simulation {
    use std::cell::Cell;
    use std::time::Duration;

    use super::FixedFault;

    thread_local! {
        static WRONG_BY_S: Cell<i64> = const { Cell::new(0) };
        static BACK: Cell<Option<FixedFault>> = const { Cell::new(None) };
    }

    /// Puts a fixed fault back, on this thread.
    pub fn put_back(fault: Option<FixedFault>) {
        BACK.set(fault);
    }

    pub(super) fn is_back(fault: FixedFault) -> bool {
        BACK.get() == Some(fault)
    }

    /// Makes the time of day in this thread's simulation wrong by this many seconds.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn background_work_and_what_it_has_done_elsewhere_is_of_low_priority() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let own = priority();
        for (users_work, nice) in [(false, NICE), (true, NICE_TO_USERS)] {
            let work = async move { (priority(), blocking(priority).await.unwrap()) };
            let lower = (own + nice).min(19);
            assert_eq!(background(users_work).spawn(work).await.unwrap(), (lower, lower));
        }
        assert_eq!((priority(), blocking(priority).await.unwrap()), (own, own));
    }
}
