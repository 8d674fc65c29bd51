//! The options of `kintsu sim`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use kintsu_lab::Rate;
use kintsu_plan::Method;
use kintsu_sim::Scheme;

use crate::units::Bytes;

/// `kintsu sim`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Sim {
    /// What to simulate [default: the recovery of a node].
    #[command(subcommand)]
    pub command: Option<SimCommand>,
    /// The recovery of a node or rack.
    #[command(flatten)]
    pub recovery: SimRecovery,
}

/// `kintsu sim ...`.
#[derive(Debug, Subcommand)]
pub enum SimCommand {
    /// One repair, slice by slice, with every method.
    #[command(after_help = "\
Examples:
  kintsu sim repair --code rs:n=14,k=10 --rate 500Mb/s
  kintsu sim repair --code rs:n=9,k=6 --lost 0,4 --nodes 20 --racks 5 --rack-rate 300Mb/s
  kintsu sim repair --topology docs/examples/lab-racks.toml --code rs:n=9,k=6 --json")]
    Repair(SimRepair),
    /// What one repair reads and sends, and how long it takes, with each family of codes and each method.
    #[command(after_help = "\
Examples:
  kintsu sim codes
  kintsu sim codes --codes less:n=14,k=10,alpha=4 rs:n=14,k=10 --method conventional,pipeline --rate 500Mb/s")]
    Codes(SimCodes),
}

/// The cluster, its code and the overhead of slices.
#[derive(Debug, Args)]
pub struct SimCluster {
    /// A description of nodes, racks and links (see docs/examples/lab-*.toml), instead of the next four options.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "racks", "rate", "rack_rate"])]
    pub topology: Option<PathBuf>,
    /// Number of nodes.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    pub nodes: u32,
    /// Number of racks; nodes are assigned to them in turn.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub racks: u32,
    /// Rate of every node's link in each direction, or `unlimited`.
    #[arg(long, default_value = "1Gb/s", value_parser = parse_rate)]
    pub rate: LinkRate,
    /// Rate of every rack's link to the core in each direction, or `unlimited`.
    #[arg(long, default_value = "10Gb/s", value_parser = parse_rate)]
    pub rack_rate: LinkRate,
    /// The code, `family:key=value,...` (see `kintsu code list`).
    #[arg(long, default_value = "rs:n=14,k=10")]
    pub code: String,
    /// Size of a block.
    #[arg(long, default_value = "64MiB", value_name = "BYTES")]
    pub block: Bytes,
    /// Slice: the unit of pipelining.
    #[arg(long, default_value = "32KiB", value_name = "BYTES")]
    pub slice: Bytes,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Overhead of moving slices.
    #[command(flatten)]
    pub overheads: SimOverheads,
}

/// Overhead of moving slices, besides their bytes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Overheads")]
pub struct SimOverheads {
    /// Bytes on links for each byte of payload (TCP in Ethernet frames: 1.0456).
    #[arg(long, default_value_t = 1.0, value_name = "RATIO")]
    pub wire: f64,
    /// Microseconds for which a slice keeps the sending end of a stream busy.
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub slice_us: f64,
    /// Microseconds from a slice's arrival to its use by the receiver.
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub hop_us: f64,
    /// Bytes that each disk reads a second [default: unlimited].
    #[arg(long, value_name = "BYTES")]
    pub disk_read: Option<Bytes>,
    /// Bytes that each disk writes a second [default: unlimited].
    #[arg(long, value_name = "BYTES")]
    pub disk_write: Option<Bytes>,
}

/// The recovery of a node or rack.
#[derive(Debug, Args)]
pub struct SimRecovery {
    /// The modelled cluster.
    #[command(flatten)]
    pub cluster: SimCluster,
    /// Stripes that the cluster stores.
    #[arg(long, default_value_t = 100_000)]
    pub stripes: u64,
    /// How stripes are laid out.
    #[arg(long, value_enum, default_value_t = SimPlacement::Random)]
    pub placement: SimPlacement,
    /// What is lost.
    #[arg(long, value_enum, default_value_t = SimFail::Node)]
    pub fail: SimFail,
    /// Which node or rack is lost [default: one drawn with the seed].
    #[arg(long, value_name = "ID")]
    pub which: Option<u32>,
    /// Methods to compare; by default all that stream slices. pipe-s is not modelled.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", default_values_t = Scheme::ALL)]
    pub method: Vec<Scheme>,
    /// Number of requestors [default: all nodes that are left]. PUSH-Rep has one, PUSH-Sur all.
    #[arg(long, value_name = "N")]
    pub requestors: Option<usize>,
    /// Most repairs at the same time [default: of four numbers the one that suits the method best].
    #[arg(long, value_name = "N")]
    pub parallel: Option<usize>,
    /// Most repairs in which one node takes part at the same time [default: any number].
    #[arg(long, value_name = "N")]
    pub per_node: Option<usize>,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// `kintsu sim repair`.
#[derive(Debug, Args)]
pub struct SimRepair {
    /// The modelled cluster.
    #[command(flatten)]
    pub cluster: SimCluster,
    /// Block indices that are lost.
    #[arg(long, value_delimiter = ',', default_value = "0", value_name = "I,J,...")]
    pub lost: Vec<u8>,
    /// Methods to compare; by default all that stream slices.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = super::repair::method(), default_values_t = Method::streamed())]
    pub method: Vec<Method>,
    /// Draw into this file when each slice passes, for all methods on one time axis. Choose large slices.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// `kintsu sim codes`.
#[derive(Debug, Args)]
pub struct SimCodes {
    /// The modelled cluster; its --code is not used.
    #[command(flatten)]
    pub cluster: SimCluster,
    /// The codes [default: the example of each family].
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub codes: Vec<String>,
    /// Methods to compare.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...", value_parser = super::repair::method(), default_values_t = [Method::Conventional, Method::Ppr, Method::Pipeline, Method::Auto])]
    pub method: Vec<Method>,
    /// Leave out codes with more sub-blocks in a block, because to plan paths for them takes long.
    #[arg(long, value_name = "W", default_value_t = 64)]
    pub most_sub_blocks: usize,
    /// Print comma-separated values.
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
}

/// What is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimFail {
    /// One node.
    Node,
    /// All nodes of a rack.
    Rack,
}

/// How stripes are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SimPlacement {
    /// On random nodes, with no more blocks in a rack than may be lost.
    Random,
    /// Where a real cluster would place them; slow for many nodes.
    Placed,
}

/// The rate of a link, if it has a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkRate(pub Option<Rate>);

fn parse_rate(text: &str) -> Result<LinkRate, String> {
    match text {
        "unlimited" => Ok(LinkRate(None)),
        _ => text.parse().map(|rate| LinkRate(Some(rate))).map_err(|e: kintsu_lab::LabError| e.to_string()),
    }
}
