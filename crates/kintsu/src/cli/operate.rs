//! The options of `kintsu health`, `df`, `jobs` and `config`.

use std::path::PathBuf;

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

/// `kintsu config ...`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print all settings of the cluster; or the options that a command would have from the file, the environment and its
    /// defaults.
    Show {
        /// The command.
        #[arg(value_parser = crate::config_file::COMMANDS)]
        command: Option<String>,
    },
    /// Check a file of options: its keys and values. It does not look whether folders and addresses exist.
    Check {
        /// The file; by default that of `--config`.
        file: Option<PathBuf>,
    },
    /// Print one setting.
    Get {
        /// Its name, as `kintsu config show` prints it.
        name: String,
    },
    /// Change one setting.
    Set {
        /// Its name, as `kintsu config show` prints it.
        name: String,
        /// Its new value; `default` for the default, `none` for no limit.
        value: String,
    },
}

/// `kintsu jobs ...`.
#[derive(Debug, Subcommand)]
pub enum JobsCommand {
    /// Show the progress of a job until its end, and its report.
    Follow {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
    /// Have a job begin nothing more until it is resumed; what it has begun is finished. A wipe cannot be paused, and no
    /// job stays paused over a restart of the coordinator.
    Pause {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
    /// Have a paused job go on.
    Resume {
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
