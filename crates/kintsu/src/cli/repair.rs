//! The options of `kintsu repair`, `kintsu explain` and `kintsu rates`.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};
use kintsu_plan::Method;

use crate::units::Slice;

/// `kintsu rates ...`.
#[derive(Debug, Subcommand)]
pub enum RatesCommand {
    /// Set the rates of the cluster's links; this replaces all earlier rates.
    #[command(
        after_help = "Example:\n  kintsu rates set rates.toml   # what it may contain: kintsu rates --help"
    )]
    Set {
        /// A TOML file: `default`, `[nodes]`, `[racks]` and `[pairs]`, each entry a rate or `{ up = ..., down = ... }`.
        file: PathBuf,
    },
    /// Print what the cluster knows of its links and disks: capacity, where that is known from, and what users take.
    #[command(after_help = "Examples:\n  kintsu rates show\n  kintsu rates show --json")]
    Show,
    /// Measure the links of all nodes by short probes (a few seconds at full speed), then print them.
    #[command(after_help = "Examples:\n  kintsu rates measure\n  kintsu rates measure --json")]
    Measure,
}

/// `kintsu repair`.
#[derive(Debug, Args)]
pub struct Repair {
    /// Blocks that were on this node.
    #[arg(long, conflicts_with = "object")]
    pub node: Option<u32>,
    /// Blocks of this object.
    #[arg(long)]
    pub object: Option<String>,
    /// How slices move.
    #[arg(long, value_parser = method(), default_value_t)]
    pub method: Method,
    /// Slice: the unit of pipelining; `auto` for a size that fits the plan.
    #[arg(long, default_value = "auto", value_name = "BYTES")]
    pub slice: Slice,
    /// Requestors: only these nodes get repaired blocks, evenly (default: all that are alive).
    #[arg(long, value_delimiter = ',', value_name = "NODE,...", conflicts_with = "requestors")]
    pub to: Vec<u32>,
    /// Number of requestors, chosen by the coordinator; they get the repaired blocks evenly.
    #[arg(long, value_name = "COUNT")]
    pub requestors: Option<u32>,
    /// How helpers and requestors are chosen when many stripes are repaired.
    #[arg(long, value_enum, default_value_t = Schedule::Balanced)]
    pub schedule: Schedule,
    /// Most stripes in whose repair one node takes part at the same time, for experiments (0: as many as keep the links busy).
    #[arg(long, default_value_t = 0, value_name = "STRIPES")]
    pub per_node: u32,
}

/// Schedules of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Schedule {
    /// The nodes with the least work, by the rates of their links if known.
    Balanced,
    /// The least recently used helpers.
    Greedy,
    /// The helpers with the smallest index.
    ByIndex,
    /// PUSH-Rep: as by index, one requestor for all.
    PushRep,
    /// PUSH-Sur: as by index, all survivors are requestors in turn.
    PushSur,
    /// Helpers and requestors drawn for each stripe.
    Random,
}

impl From<Schedule> for kintsu_plan::Schedule {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Balanced => Self::Balanced,
            Schedule::Greedy => Self::Greedy,
            Schedule::ByIndex => Self::ByIndex,
            Schedule::PushRep => Self::PushRep,
            Schedule::PushSur => Self::PushSur,
            Schedule::Random => Self::Random,
        }
    }
}

/// Reads the name of a repair method; help and errors list those that there are.
pub fn method() -> impl TypedValueParser<Value = Method> {
    let known = Method::ALL.map(|method| PossibleValue::new(method.name()).help(method.row().about));
    PossibleValuesParser::new(known).try_map(|name| name.parse::<Method>())
}

/// `kintsu explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The object's name.
    pub name: String,
    /// Indices of the blocks that are assumed lost.
    #[arg(long, value_delimiter = ',', required = true, value_name = "I,J,...")]
    pub lost: Vec<u8>,
    /// How slices move.
    #[arg(long, value_parser = method(), default_value_t)]
    pub method: Method,
    /// Slice: the unit of pipelining; `auto` for a size that fits the plan.
    #[arg(long, default_value = "auto", value_name = "BYTES")]
    pub slice: Slice,
    /// Which stripe of the object.
    #[arg(long, default_value_t = 0)]
    pub stripe: u64,
    /// A file with rates of links, as for `kintsu rates set`, used instead of those that the cluster knows. If
    /// rates are known, the time of every method is shown, and the lower bound on any repair.
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
    /// Also print the graph and the tasks of every node.
    #[arg(long)]
    pub verbose: bool,
    /// Draw the graph into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
