//! Measurements on one machine, with both sides of each ratio in the same run.
//!
//! Each has `Options`, `run(&Options, progress) -> Report` and `Report::table`; a report is also
//! serialisable. Only `io`, `meta`, `slices` and `small` start processes or nodes. `all` runs every one of them.

use crate::error::{Context, Result};

pub mod all;
mod arena;
mod burst;
pub mod ecdag;
pub mod io;
mod isal;
pub mod kernel;
mod klauspost;
pub mod meta;
mod paths;
pub mod plan;
mod relay;
mod rivals;
mod schedulers;
pub mod slices;
pub mod small;

/// Whether an aim is met, in a word.
fn verdict(met: bool) -> &'static str {
    if met { "met" } else { "missed" }
}

/// A temporary folder in `dir`, removed when dropped.
///
/// # Errors
/// When `dir` does not exist or cannot be written.
pub fn folder(dir: &std::path::Path) -> Result<tempfile::TempDir> {
    let made = tempfile::Builder::new().prefix("kintsu-bench-").tempdir_in(dir);
    // Its own words name the folder that it tried to make.
    let made = made.map_err(|error| std::io::Error::from(error.kind()));
    made.with_context(|| format!("--dir: expected a folder that can be written, got {}", dir.display()))
}
