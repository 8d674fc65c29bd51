//! The arguments of `kintsu lab replay`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use kintsu_experiments::trace::Format;
use kintsu_lab::Rate;
use kintsu_plan::update::Scheme;

use crate::units::Bytes;

/// `kintsu lab replay`.
#[derive(Debug, Args)]
pub struct LabReplay {
    /// Files with traces; .xz, .gz and .zst are unpacked.
    #[arg(required = true, value_name = "TRACE")]
    pub traces: Vec<PathBuf>,
    /// msr, cloudphysics, ssdsim, tencent or cachelib [default: by the first line].
    #[arg(long)]
    pub format: Option<Format>,
    /// Some of baseline, parix, data-delta, parity-delta, cau-nogroup, cau and optimal, or all.
    #[arg(long, default_value = "all")]
    pub scheme: Schemes,
    /// The code.
    #[arg(long, default_value = "rs:n=9,k=6")]
    pub code: String,
    /// Racks; n nodes are spread evenly over them.
    #[arg(long, default_value_t = 3)]
    pub racks: usize,
    /// Size of a block.
    #[arg(long, default_value = "1MiB", value_name = "BYTES")]
    pub block: Bytes,
    /// Commit when more stripes than this are dirty (u_s); with several numbers, each trace is replayed with each of them.
    #[arg(long, default_value = "100", value_name = "STRIPES", value_delimiter = ',')]
    pub us: Vec<usize>,
    /// Print a table in Markdown, for docs/updates.md.
    #[arg(long)]
    pub markdown: bool,
    /// Compute the traffic only; nothing is stored or sent. Without it, writes are replayed on emulated hosts.
    #[arg(long)]
    pub analyse: bool,
    /// Put block i of a stripe into rack i modulo their number, so that parities are in several racks [default: as clusters do].
    #[arg(long, requires = "analyse")]
    pub by_turns: bool,
    /// Replay this many writes of each trace, from its beginning.
    #[arg(long, default_value_t = 500, value_name = "N", conflicts_with = "analyse")]
    pub writes: usize,
    /// Each update writes its whole block, as in the paper.
    #[arg(long, conflicts_with = "analyse")]
    pub whole_blocks: bool,
    /// Updates at the same time; with several numbers, each scheme is replayed with each of them, and compared at its best.
    #[arg(long, default_value = "1", value_name = "N", value_delimiter = ',', conflicts_with = "analyse", value_parser = at_once)]
    pub at_once: Vec<usize>,
    /// The rate of each rack's link to the others; with several, each trace is replayed with each of them [default: no limit].
    #[arg(long, value_name = "RATE", value_delimiter = ',', conflicts_with = "analyse")]
    pub rack_rate: Vec<Rate>,
    /// The rate of each node's link [default: no limit].
    #[arg(long, value_name = "RATE", conflicts_with = "analyse")]
    pub node_rate: Option<Rate>,
    /// The rate from each node to each one of another rack, as between regions [default: no limit].
    #[arg(long, value_name = "RATE", conflicts_with = "analyse")]
    pub pair_rate: Option<Rate>,
    /// Where the hosts keep their data [default: in memory].
    #[arg(long, conflicts_with = "analyse")]
    pub dir: Option<PathBuf>,
}

fn at_once(text: &str) -> Result<usize, String> {
    let most = 256;
    text.parse().ok().filter(|n| (1..=most).contains(n)).ok_or(format!("expected 1 to {most}, got {text:?}"))
}

/// Schemes.
#[derive(Debug, Clone)]
pub struct Schemes(pub Vec<Scheme>);

impl FromStr for Schemes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self(Scheme::all().map(|row| row.scheme).collect()));
        }
        let scheme = |name: &str| name.parse::<Scheme>().map_err(|wrong| format!("{wrong}; or all"));
        text.split(',').map(scheme).collect::<Result<_, _>>().map(Self)
    }
}
