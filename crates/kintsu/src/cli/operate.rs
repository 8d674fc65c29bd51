//! The options of `kintsu health`, `df` and `jobs`.

use clap::{Args, Subcommand};

/// `kintsu health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Name at most this many stripes for each cause, the most damaged first (10000 at most).
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    pub stripes: u32,
}

/// `kintsu df`.
#[derive(Debug, Args)]
pub struct Df {
    /// Show how much data of this code still fits (may be repeated) [default: all codes that the cluster has used].
    #[arg(long, value_name = "CODE")]
    pub code: Vec<String>,
}

/// `kintsu jobs ...`.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Show the progress of a job until its end, and its report.
    Follow {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
    /// Have a job end early: what it cannot leave half done is finished first. A cancelled drain gives its node new
    /// blocks again. A wipe cannot be cancelled.
    Cancel {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
}
