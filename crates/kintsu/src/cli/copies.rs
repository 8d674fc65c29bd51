//! Options about copies of the metadata, and `kintsu backup`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kintsu_coordinator::Config;

use crate::units::parse_duration;

/// How copies of the metadata are given to agents.
#[derive(Debug, Clone, Args)]
pub struct CopyArgs {
    /// How many agents get a copy of the metadata each time; 0 for none.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub metadata_copies: u16,
    /// How often they get one, if something changed; also at a clean end.
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "TIME")]
    pub copy_every: Duration,
}

impl CopyArgs {
    /// Puts them into the configuration of a coordinator.
    pub fn configure(&self, config: &mut Config) {
        config.metadata_copies = self.metadata_copies.into();
        // More often would be without end.
        config.copy_every = self.copy_every.max(Duration::from_millis(100));
    }
}

/// `kintsu backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file to write; `-` for standard output.
    pub out: PathBuf,
}
