//! The options of `kintsu health`, `df`, `jobs` and `config`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::units::parse_duration;

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

/// `kintsu repack`.
#[derive(Debug, Args)]
pub struct Repack {
    /// Leave alone what was written less than this long ago.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub older_than: Duration,
    /// Write a pack that is not full only if it takes the place of this many stripes, or frees many bytes.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u16).range(2..=256))]
    pub least: u16,
}

/// `kintsu config ...`.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print all settings of the cluster; or the options that a command would have from the file, the environment and its
    /// defaults.
    #[command(
        after_help = "Examples:\n  kintsu config show\n  kintsu config show agent --config /etc/kintsu.toml"
    )]
    Show {
        /// The command.
        #[arg(value_parser = crate::config_file::COMMANDS)]
        command: Option<String>,
    },
    /// Check a file of options: its keys and values. It does not look whether folders and addresses exist.
    #[command(
        after_help = "Examples:\n  kintsu config check /etc/kintsu.toml\n  kintsu config check --config /etc/kintsu.toml --json"
    )]
    Check {
        /// The file; by default that of `--config`.
        file: Option<PathBuf>,
    },
    /// Print one setting.
    #[command(after_help = "Example:\n  kintsu config get repair.max-rate")]
    Get {
        /// Its name, as `kintsu config show` prints it.
        name: String,
    },
    /// Change one setting.
    #[command(
        after_help = "Examples:\n  kintsu config set repair.max-rate 20MB/s\n  kintsu config set repair.target default"
    )]
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
    #[command(after_help = "Examples:\n  kintsu jobs follow 10003\n  kintsu jobs follow 10003 --json")]
    Follow {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
    /// Have a job begin nothing more until it is resumed; what it has begun is finished. A wipe cannot be paused, and no
    /// job stays paused over a restart of the coordinator.
    #[command(after_help = "Example:\n  kintsu jobs pause 10003")]
    Pause {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
    /// Have a paused job go on.
    #[command(after_help = "Example:\n  kintsu jobs resume 10003")]
    Resume {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
    /// Have a job end early: what it cannot leave half done is finished first. A cancelled drain gives its node new
    /// blocks again. A wipe cannot be cancelled.
    #[command(after_help = "Example:\n  kintsu jobs cancel 10003")]
    Cancel {
        /// The job's id, as `kintsu jobs` shows it.
        id: u64,
    },
}
