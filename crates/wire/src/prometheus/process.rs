//! What this process takes, under the names that all programs use
//! (<https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>). Read from `/proc`; what cannot be read there is not
//! told.

use std::fs::{read_dir, read_to_string};

use rustix::process::{Resource, getrlimit};

use super::Text;

/// Ticks of a second in `/proc` (`USER_HZ`): the same on x86-64 and aarch64, whatever the kernel's own rate.
const TICKS_A_SECOND: f64 = 100.0;

/// Writes what can be read.
pub(super) fn tell(text: &mut Text) {
    let times = read_to_string("/proc/self/stat").ok().as_deref().and_then(Times::parse);
    if let Some(times) = &times {
        let help = "Processor time of the process, of user and system, in seconds.";
        text.counter("process_cpu_seconds_total", help, times.worked);
    }
    let began = read_to_string("/proc/stat").ok().as_deref().and_then(booted);
    if let (Some(times), Some(booted)) = (&times, began) {
        let help = "When the process began, in seconds since 1970.";
        text.gauge("process_start_time_seconds", help, booted + times.began);
    }
    if let Some(bytes) = read_to_string("/proc/self/status").ok().as_deref().and_then(resident) {
        text.gauge("process_resident_memory_bytes", "Memory of the process that is not swapped out.", bytes);
    }
    if let Ok(open) = read_dir("/proc/self/fd") {
        // One of them is for this folder.
        let open = open.count().saturating_sub(1);
        text.gauge("process_open_fds", "Open file descriptors.", open as f64);
    }
    let most = getrlimit(Resource::Nofile).current.map_or(f64::INFINITY, |most| most as f64);
    text.gauge("process_max_fds", "Most file descriptors that may be open.", most);
}

/// From `/proc/self/stat`, in seconds.
#[derive(Debug, PartialEq)]
struct Times {
    /// On processors, of user and system.
    worked: f64,
    /// From the boot of the machine to the begin of the process.
    began: f64,
}

impl Times {
    fn parse(stat: &str) -> Option<Self> {
        // The name of the program, in parentheses, may have spaces and parentheses. The third field follows it.
        let (_, rest) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let seconds = |field: usize| Some(fields.get(field - 3)?.parse::<f64>().ok()? / TICKS_A_SECOND);
        Some(Self { worked: seconds(14)? + seconds(15)?, began: seconds(22)? })
    }
}

/// When the machine booted, in seconds since 1970, from `/proc/stat`.
fn booted(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Resident bytes, from `/proc/self/status`.
fn resident(status: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * 1024.0)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use super::*;

    #[test]
    fn files_of_the_kernel_are_read_as_proc_5_says() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 4194560 1 2 3 4 250 50 9 9 20 0 5 0 123456 8 9";
        assert_eq!(Times::parse(stat), Some(Times { worked: 3.0, began: 1234.56 }));
        assert_eq!(Times::parse("7 (a) S 1 7"), None);
        assert_eq!(booted("cpu  1 2\nintr 5\nbtime 1700000000\nprocesses 3\n"), Some(1.7e9));
        assert_eq!(resident("VmPeak:\t 9 kB\nVmRSS:\t  1024 kB\n"), Some(1_048_576.0));
    }

    /// The value of a metric that is told.
    fn told(name: &str) -> f64 {
        let mut text = Text::default();
        tell(&mut text);
        let line = text.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("expected {name}, got {}", text.0)).parse().unwrap()
    }

    #[test]
    fn this_process_is_told() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
        let began = told("process_start_time_seconds");
        assert!(began < now + 1.0 && now - began < 3600.0, "it began at {began}, and now is {now}");
        let memory = told("process_resident_memory_bytes");
        assert!((1e5..1e11).contains(&memory), "{memory}");
        // Other tests of the process open files too.
        let files: Vec<_> = (0..100).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        assert!(told("process_open_fds") >= files.len() as f64);
        assert!(told("process_max_fds") > files.len() as f64);
        let worked = told("process_cpu_seconds_total");
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while told("process_cpu_seconds_total") < worked + 0.05 {
            assert!(std::time::Instant::now() < until, "it works, and its time stays {worked}");
        }
    }
}
