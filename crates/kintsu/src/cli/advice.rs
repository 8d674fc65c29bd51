//! The arguments of `kintsu code reliability` and `kintsu code advise`.

use clap::{Args, ValueEnum};
use kintsu_analysis::Objective;

use super::cluster_model::Failures;

/// `kintsu code reliability`.
#[derive(Debug, Args)]
pub struct Reliability {
    /// Codes to compare.
    #[arg(required_unless_present = "papers", value_name = "CODE")]
    pub codes: Vec<String>,
    /// Nodes of the cluster; by default as many as the widest code has blocks.
    #[arg(long)]
    pub nodes: Option<usize>,
    /// Racks, with the nodes spread evenly; by default each node is in one of its own.
    #[arg(long)]
    pub racks: Option<usize>,
    /// Print the data loss probabilities of two papers beside ours.
    #[arg(long, conflicts_with_all = ["codes", "nodes", "racks"])]
    pub papers: bool,
    /// How nodes and racks fail and mend.
    #[command(flatten)]
    pub failures: Failures,
}

/// `kintsu code advise`.
#[derive(Debug, Args)]
pub struct Advise {
    /// Nodes of the cluster: stripes have at most so many blocks.
    #[arg(long)]
    pub nodes: usize,
    /// Racks, with the nodes spread evenly; by default each node is in one of its own.
    #[arg(long)]
    pub racks: Option<usize>,
    /// Any so many nodes may be lost.
    #[arg(long, default_value_t = 3, value_name = "NODES")]
    pub tolerate: usize,
    /// The most bytes stored for each byte of data (n / k).
    #[arg(long, default_value_t = 1.6)]
    pub overhead: f64,
    /// What should be cheap.
    #[arg(long, value_enum, default_value_t = Aim::Balanced)]
    pub objective: Aim,
    /// Any one rack may be lost, too.
    #[arg(long)]
    pub survive_rack: bool,
    /// The most blocks in a stripe, up to 32.
    #[arg(long, default_value_t = 20, value_name = "BLOCKS")]
    pub widest: usize,
    /// How nodes and racks fail and mend.
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
