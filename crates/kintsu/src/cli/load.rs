//! The options of `kintsu bench load`.

use std::time::Duration;

use clap::Args;

use crate::units::parse_duration;

/// `kintsu bench load`.
#[derive(Debug, Args)]
pub struct Load {
    /// Workloads, one after the other: ycsb-a to ycsb-f, ibm, twitter, etc, rados, or a file of lines
    /// `seconds,operation,key,bytes`.
    #[arg(required = true, value_name = "WORKLOAD|FILE.csv")]
    pub workloads: Vec<String>,
    /// How long each lasts [default: until its last operation].
    #[arg(long, value_parser = parse_duration)]
    pub span: Option<Duration>,
    /// Operations at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub tasks: u32,
    /// Lengths of values, divided by the published ones.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub sizes: f64,
    /// Operations and values, divided by the published numbers.
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    pub count: f64,
    /// How values are stored.
    #[arg(long, default_value = "replication:n=3")]
    pub code: String,
    /// Begin operations at their own times, this many times as fast as published or recorded [default: each when an
    /// earlier one has ended].
    #[arg(long, value_name = "FACTOR")]
    pub open: Option<f64>,
    /// The same seed gives the same operations.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Keep the values, below .kintsu-bench/; a later run finds them.
    #[arg(long)]
    pub keep: bool,
}
