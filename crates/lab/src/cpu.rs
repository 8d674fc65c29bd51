//! The processor time that a lab used, and how busy the machine was, from `/proc`.

use serde::{Deserialize, Serialize};

/// Ticks a second of `/proc/<pid>/stat` and `/proc/stat`: the kernel's `USER_HZ`, 100 on every architecture that
/// this runs on.
const TICKS: f64 = 100.0;

/// Processor seconds until a moment, or between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Cpu {
    /// Used by all agents, in user and kernel mode.
    pub agents: f64,
    /// Used by the coordinator.
    pub coordinator: f64,
    /// Used by the lab's own process and by the child processes that it waited for.
    pub own: f64,
    /// Used by the whole machine, other work included, or stolen from it.
    pub busy: f64,
    /// Stolen from this machine by other guests, if it is a virtual machine.
    #[serde(default)]
    pub stolen: f64,
    /// Available: wall-clock seconds times processors.
    pub available: f64,
}

impl Cpu {
    /// The time used since `before`. The time of an agent that was killed in between is lost.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            agents: (self.agents - before.agents).max(0.0),
            coordinator: (self.coordinator - before.coordinator).max(0.0),
            own: (self.own - before.own).max(0.0),
            busy: (self.busy - before.busy).max(0.0),
            stolen: (self.stolen - before.stolen).max(0.0),
            available: (self.available - before.available).max(0.0),
        }
    }

    /// The share of the machine's processor time that was used or stolen, 0 to 1.
    pub fn load(&self) -> f64 {
        self.share(self.busy)
    }

    /// The share of the machine's processor time that was stolen, 0 to 1.
    pub fn stolen(&self) -> f64 {
        self.share(self.stolen)
    }

    fn share(&self, seconds: f64) -> f64 {
        if self.available > 0.0 { (seconds / self.available).min(1.0) } else { 0.0 }
    }

    /// Used by all processes of the lab.
    pub fn lab(&self) -> f64 {
        self.agents + self.coordinator + self.own
    }
}

/// The time that these processes used until now; a process that is gone counts as zero.
pub fn read(agents: impl IntoIterator<Item = u32>, coordinator: Option<u32>) -> Cpu {
    let process = |pid: String| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok();
    let used = |pid: u32| process(pid.to_string()).map_or(0.0, |stat| of_process(&stat, 2));
    let [busy, stolen, available] = of_machine(&std::fs::read_to_string("/proc/stat").unwrap_or_default());
    Cpu {
        agents: agents.into_iter().map(used).sum(),
        coordinator: coordinator.map_or(0.0, used),
        own: process("self".into()).map_or(0.0, |stat| of_process(&stat, 4)),
        busy,
        stolen,
        available,
    }
}

/// Seconds in the first `kinds` of utime, stime, cutime, cstime, which are fields 14 to 17. Field 2, the program's
/// name in parentheses, may contain spaces.
fn of_process(stat: &str, kinds: usize) -> f64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after_name.split_whitespace().skip(11).take(kinds);
    ticks.filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// Busy, stolen and total seconds of all processors. Idle and iowait (fields 4 and 5) are not busy; stolen time
/// (8) is. Guest time (9, 10) is already counted in the first two fields.
fn of_machine(stat: &str) -> [f64; 3] {
    let first = stat.lines().next().unwrap_or_default();
    let fields: Vec<f64> = first.split_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
    let all: f64 = fields.iter().sum();
    let idle: f64 = fields.iter().skip(3).take(2).sum();
    let stolen = fields.get(7).copied().unwrap_or(0.0);
    [all - idle, stolen, all].map(|ticks| ticks / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_the_name() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 100 0 0 0 150 50 20 10 20 0 1 0 100";
        assert_eq!(of_process(stat, 2), 2.0);
        assert_eq!(of_process(stat, 4), 2.3);
        assert_eq!(of_process("", 2), 0.0);
        assert_eq!(of_machine("cpu  100 0 100 700 100"), [2.0, 0.0, 10.0]);
        assert_eq!(of_machine("cpu  100 0 50 700 100 0 0 50 5 5\ncpu0 1"), [2.0, 0.5, 10.0]);
    }

    #[test]
    fn work_is_counted_as_used() {
        let before = read([], None);
        let mut x = 1u64;
        while read([], None).since(&before).own < 0.02 {
            x = (0..100_000u64).fold(x, |x, i| std::hint::black_box(x.wrapping_mul(i | 1)));
        }
        let used = read([std::process::id()], None).since(&before);
        assert!(used.available > 0.0 && used.load() > 0.0 && used.load() <= 1.0, "{used:?}");
    }
}
