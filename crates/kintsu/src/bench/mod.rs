//! Measurements on one machine, with both sides of each ratio in the same run.
//!
//! Each has `Options`, `run(&Options, progress) -> Report` and `Report::table`; a report is also
//! serialisable. Only `io`, `meta`, `slices` and `small` start processes or nodes.

mod arena;
mod burst;
pub mod ecdag;
pub mod io;
mod isal;
pub mod kernel;
pub mod meta;
mod paths;
pub mod plan;
mod relay;
pub mod slices;
pub mod small;

/// The processor's name as Linux gives it.
fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name"));
    name.map_or("unknown", |name| name.trim_start_matches([' ', '\t', ':'])).to_string()
}
