//! The machine that an experiment ran on.

use serde::{Deserialize, Serialize};

/// The machine, as its kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Whether this program was built with optimisation.
    pub optimised: bool,
}

impl Machine {
    /// This machine.
    pub fn this() -> Self {
        let text = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            processor: field(&text("/proc/cpuinfo"), "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: field(&text("/proc/meminfo"), "MemTotal").and_then(kilobytes).unwrap_or(0),
            kernel: text("/proc/sys/kernel/osrelease").trim().to_owned(),
            optimised: !cfg!(debug_assertions),
        }
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let gib = self.memory_bytes as f64 / (1u64 << 30) as f64;
        let build = if self.optimised { "" } else { ", NOT an optimised build" };
        write!(f, "{}, {} cores, {gib:.0} GiB, Linux {}{build}", self.processor, self.cores, self.kernel)
    }
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn kilobytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let text = "processor\t: 0\nmodel name\t: A: B\nmodel name\t: C\nMemTotal:   2048 kB\n";
        assert_eq!(field(text, "model name"), Some("A: B"));
        assert_eq!(field(text, "MemTotal").and_then(kilobytes), Some(2 << 20));
        assert_eq!(field(text, "MemFree"), None);
        assert!(Machine::this().memory_bytes > 0);
    }
}
