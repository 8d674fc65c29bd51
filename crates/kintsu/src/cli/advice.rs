//! The arguments of `kintsu code reliability` and `kintsu code advise`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use kintsu_analysis::Objective;

use super::cluster_model::Failures;
use crate::units::parse_duration;

/// `kintsu code reliability`.
#[derive(Debug, Args)]
pub struct Reliability {
    /// Codes to compare.
    #[arg(required_unless_present = "papers", value_name = "CODE")]
    pub codes: Vec<String>,
    /// Nodes of the cluster; by default the number of blocks of the widest code.
    #[arg(long)]
    pub nodes: Option<usize>,
    /// Racks, with the nodes spread evenly; by default each node has its own rack.
    #[arg(long)]
    pub racks: Option<usize>,
    /// Print the data loss probabilities of two papers, and ours for comparison.
    #[arg(long, conflicts_with_all = ["codes", "nodes", "racks"])]
    pub papers: bool,
    /// Print the probability that data is lost while parity has not followed updates yet (CAU, section 3.5).
    #[arg(long, conflicts_with = "papers")]
    pub updates: bool,
    /// How long parity takes to follow (tau), with --updates.
    #[arg(long, default_value = "18h", value_name = "DURATION", value_parser = parse_duration, requires = "updates")]
    pub window: Duration,
    /// How nodes and racks fail and are repaired.
    #[command(flatten)]
    pub failures: Failures,
}

/// `kintsu code advise`.
#[derive(Debug, Args)]
pub struct Advise {
    /// Nodes of the cluster; a stripe has at most this many blocks.
    #[arg(long)]
    pub nodes: usize,
    /// Racks, with the nodes spread evenly; by default each node has its own rack.
    #[arg(long)]
    pub racks: Option<usize>,
    /// Any set of this many nodes may be lost.
    #[arg(long, default_value_t = 3, value_name = "NODES")]
    pub tolerate: usize,
    /// Most stored bytes for each byte of data (n / k).
    #[arg(long, default_value_t = 1.6)]
    pub overhead: f64,
    /// What should be cheap.
    #[arg(long, value_enum, default_value_t = Aim::Balanced)]
    pub objective: Aim,
    /// Any single rack may be lost, too.
    #[arg(long)]
    pub survive_rack: bool,
    /// Most blocks in a stripe, up to 32.
    #[arg(long, default_value_t = 20, value_name = "BLOCKS")]
    pub widest: usize,
    /// How nodes and racks fail and are repaired.
    #[command(flatten)]
    pub failures: Failures,
}

/// What should be cheap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Aim {
    /// Reads of lost blocks.
    Degraded,
    /// Rebuilding a lost node.
    Recovery,
    /// Both, and storage: the smallest product of the three.
    Balanced,
}

impl From<Aim> for Objective {
    fn from(aim: Aim) -> Self {
        match aim {
            Aim::Degraded => Self::Degraded,
            Aim::Recovery => Self::Recovery,
            Aim::Balanced => Self::Balanced,
        }
    }
}
