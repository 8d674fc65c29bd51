//! The arguments of `kintsu lab ...`.

mod replay;
mod run;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use kintsu_lab::Rate;
use kintsu_plan::Method;

pub use replay::LabReplay;
pub use run::{LabPage, LabRun};

use crate::units::{Bytes, parse_duration};

/// `kintsu lab ...`.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Emulate a cluster: hosts with shaped links in racks, an agent on each, a coordinator.
    #[command(after_help = "\
Examples:
  kintsu lab up --nodes 6 --racks 2 --rate 500Mb/s --rack-rate 1Gb/s   # Ctrl-C takes it down
  kintsu lab up docs/examples/lab-regions.toml --name geo --detach
  kintsu lab exec geo -- kintsu put big.iso iso --code rs:n=9,k=6      # then: kintsu lab down geo

Needs no privilege where the kernel lets users have namespaces, and the commands ip and tc \
(apt-get install iproute2). Data is kept in memory unless --dir names a folder.")]
    Up(LabUp),
    /// List the emulated clusters of this user.
    #[command(after_help = "Examples:\n  kintsu lab list\n  kintsu lab list --json")]
    List,
    /// Run a command inside an emulated cluster.
    #[command(after_help = "\
Examples:
  kintsu lab exec geo -- kintsu nodes        # coordinator and token are in its environment
  kintsu lab exec geo --node 3 -- ss -ti     # on the host of node 3
  kintsu lab exec geo -- tc -s qdisc show    # what the kernel counted
  kintsu lab exec geo                        # a shell")]
    Exec(LabExec),
    /// Take emulated clusters down, and remove everything in them.
    #[command(after_help = "Examples:\n  kintsu lab down geo\n  kintsu lab down --all")]
    Down(LabDown),
    /// Run experiments: repeat published figures on emulated hosts, and compare our times with the papers'.
    #[command(after_help = "\
Examples:
  kintsu lab run --list
  kintsu lab run smoke                       # minutes at most: does everything work?
  kintsu lab run ecpipe-8a --runs 9
  kintsu lab run ecpipe --out results        # a group; JSON and SVG of each in a folder
  kintsu lab run ecpipe --out results --resume   # what is missing there
  kintsu lab page results                    # write the results into the documentation")]
    Run(LabRun),
    /// Write results of experiments into a page of the documentation.
    #[command(
        after_help = "Examples:\n  kintsu lab page results\n  kintsu lab page results --page report.md --charts report"
    )]
    Page(LabPage),
    /// Store, lose, read degraded and repair with every code, and compare measured bytes with theory.
    #[command(after_help = "\
Examples:
  kintsu lab codes                               # the example of every family
  kintsu lab codes clay:n=6,k=4,d=5 rs:n=9,k=6   # these
  kintsu lab codes --json")]
    Codes(LabCodes),
    /// Fill a cluster, lose a node and recover, with the codes of the LRC study.
    #[command(after_help = "\
Examples:
  kintsu lab lrc
  kintsu lab lrc --victims 5 --method pipeline
  kintsu lab lrc rs:n=9,k=6 azure-lrc:n=9,k=6,r=3 --stripes 100 --json")]
    Lrc(LabLrc),
    /// Replay block-level traces of writes: what update schemes send across racks, computed and on emulated hosts.
    #[command(after_help = "\
Examples:
  kintsu lab replay msr_rsrch_1.csv.xz --scheme all --code rs:n=9,k=6 --racks 3 --analyse
  kintsu lab replay *.csv.xz --code rs:n=16,k=12 --racks 4 --us 20 --analyse     # and averages over the traces
  kintsu lab replay trace.csv --format tencent --scheme cau --analyse --json
  kintsu lab replay msr_wdev_3.csv.xz --writes 500                               # on hosts, the kernel counts
  kintsu lab replay msr_wdev_3.csv.xz --whole-blocks --scheme baseline,cau --at-once 1,4,16,64 --rack-rate 50Mb/s --block 128KiB

How it is computed, and what is assumed: docs/updates.md.")]
    Replay(LabReplay),
}

/// `kintsu lab codes`.
#[derive(Debug, Args)]
pub struct LabCodes {
    /// Codes; by default the example of every family.
    pub codes: Vec<String>,
    /// A file with the bytes to store; by default this program's own file.
    #[arg(long)]
    pub file: Option<PathBuf>,
    /// Racks of the cluster.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub racks: u32,
    /// Limit on the number of sets of lost blocks tried with a code, times the symbols of its stripe. If this is
    /// not enough for all sets, evenly spaced ones are tried.
    #[arg(long, default_value_t = 100_000)]
    pub budget: usize,
    /// Where to create the cluster's folder, which is removed at the end; by default in the system's folder for
    /// temporary files.
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// `kintsu lab lrc`.
#[derive(Debug, Args)]
pub struct LabLrc {
    /// Codes; by default those of the study.
    pub codes: Vec<String>,
    /// Nodes of the cluster.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: u32,
    /// Number of zones; each group of a code is kept in one zone if that is safe. Without this option, as in the
    /// study, the codes of its last configuration are also tried in three zones.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=100))]
    pub zones: Option<u32>,
    /// Stripes to fill it with.
    #[arg(long, default_value_t = 512)]
    pub stripes: u64,
    /// Size of a block.
    #[arg(long, default_value = "128KiB", value_name = "BYTES")]
    pub block: Bytes,
    /// Nodes lost and recovered, one after the other.
    #[arg(long, default_value_t = 1)]
    pub victims: u32,
    /// How slices move.
    #[arg(long, value_parser = super::repair::method(), default_value_t = Method::Conventional)]
    pub method: Method,
    /// Where to create the cluster's folder, which is removed at the end; by default in the system's folder for
    /// temporary files.
    #[arg(long)]
    pub dir: Option<PathBuf>,
}

/// `kintsu lab up`.
#[derive(Debug, Args)]
pub struct LabUp {
    /// The file that describes it; see docs/examples/lab-*.toml.
    #[arg(value_name = "TOPOLOGY.toml", conflicts_with_all = ["nodes", "racks", "rate", "rack_rate"])]
    pub topology: Option<PathBuf>,
    /// Number of nodes.
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: u32,
    /// Number of racks; nodes are assigned to them in turn.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub racks: u32,
    /// Rate of every node's link in each direction, such as 500Mb/s [default: unlimited].
    #[arg(long)]
    pub rate: Option<Rate>,
    /// Rate of every rack's link to the core in each direction [default: unlimited].
    #[arg(long)]
    pub rack_rate: Option<Rate>,
    /// Its name [default: lab, lab-2, ...].
    #[arg(long)]
    pub name: Option<String>,
    /// A folder in which a folder for the data is created, and removed at the end [default: in memory].
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// How long a node may be dead before its blocks are rebuilt elsewhere.
    #[arg(long, default_value = "1h", value_parser = parse_duration)]
    pub grace: Duration,
    /// Return when it is up, and let it run in the background.
    #[arg(long)]
    pub detach: bool,
}

/// `kintsu lab exec`.
#[derive(Debug, Args)]
pub struct LabExec {
    /// The name of the emulated cluster.
    pub name: String,
    /// Run it on the host of this node; by default in the lab's own namespace, whose link is not shaped.
    #[arg(long)]
    pub node: Option<u32>,
    /// The command [default: a shell].
    #[arg(last = true)]
    pub command: Vec<OsString>,
}

/// `kintsu lab down`.
#[derive(Debug, Args)]
pub struct LabDown {
    /// Names of emulated clusters.
    #[arg(required_unless_present = "all")]
    pub names: Vec<String>,
    /// All emulated clusters of this user.
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
}
