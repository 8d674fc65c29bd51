//! How long a test waits for something that should happen.

use std::time::{Duration, Instant};

/// On a machine with nothing else to do: Java takes seconds to start there.
const ENOUGH: Duration = Duration::from_secs(240);

/// While processes always wait for a processor, the clock runs so much slower.
const SLOWEST: f64 = 0.1;

/// The clock of a wait. It runs slower while processes of this machine have to wait for a processor (`/proc/pressure/cpu`), so
/// that compilers beside a test make it longer, and do not make it fail.
pub struct Patience {
    left: Duration,
    looked: Instant,
    stalled: Duration,
}

impl Patience {
    pub fn new() -> Self {
        Self { left: ENOUGH, looked: Instant::now(), stalled: stalled() }
    }

    /// Whether the time is over.
    pub fn is_over(&mut self) -> bool {
        let passed = self.looked.elapsed();
        // Looked at often, the clock would read a file all the time.
        if passed >= Duration::from_millis(100) {
            let now = stalled();
            let share = now.saturating_sub(self.stalled).as_secs_f64() / passed.as_secs_f64();
            let counted = passed.mul_f64((1.0 - share).clamp(SLOWEST, 1.0));
            self.left = self.left.saturating_sub(counted);
            (self.looked, self.stalled) = (Instant::now(), now);
        }
        self.left.is_zero()
    }
}

/// For how long some process had to wait for a processor since the machine was started; zero where the kernel does not tell.
fn stalled() -> Duration {
    let text = std::fs::read_to_string("/proc/pressure/cpu").unwrap_or_default();
    let some = text.lines().find(|line| line.starts_with("some")).unwrap_or_default();
    let total = some.rsplit_once("total=").and_then(|(_, total)| total.parse().ok());
    Duration::from_micros(total.unwrap_or(0))
}

/// Waits until something is so.
pub fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let mut patience = Patience::new();
    while !condition() {
        assert!(!patience.is_over(), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Whether a child has ended, without asking for its exit code.
pub fn has_ended(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    // The name, in brackets, may have any character.
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'))
}
