//! The options of `kintsu repair`, `kintsu explain` and `kintsu rates`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::units::Slice;

/// `kintsu rates ...`.
#[derive(Debug, Subcommand)]
pub enum RatesCommand {
    /// Tell the cluster what its links carry, in place of what it was told before.
    Set {
        /// A TOML file: `default`, `[nodes]`, `[racks]` and `[pairs]`, each entry a rate or `{ up = ..., down = ... }`.
        file: PathBuf,
    },
    /// Print what the cluster was told.
    Show,
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
    #[arg(long, value_enum, default_value_t = Method::Pipeline)]
    pub method: Method,
    /// Slice: the unit of pipelining; `auto` for what suits the plan.
    #[arg(long, default_value = "auto", value_name = "BYTES")]
    pub slice: Slice,
    /// Only these nodes get repaired blocks, evenly (default: all that are alive).
    #[arg(long, value_delimiter = ',', value_name = "NODE,...", conflicts_with = "requestors")]
    pub to: Vec<u32>,
    /// Only so many nodes get repaired blocks, evenly; the coordinator chooses them.
    #[arg(long, value_name = "COUNT")]
    pub requestors: Option<u32>,
    /// Whose links are used when many stripes are repaired.
    #[arg(long, value_enum, default_value_t = Schedule::Balanced)]
    pub schedule: Schedule,
    /// Stripes that one node may have a part in at once (0: the coordinator's default).
    #[arg(long, default_value_t = 0, value_name = "STRIPES")]
    pub per_node: u32,
}

/// Schedules of recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Schedule {
    /// Nodes that have least to do, by the rates of their links where they are known.
    Balanced,
    /// The least recently used helpers.
    Greedy,
    /// The helpers with the smallest index.
    ByIndex,
    /// PUSH-Rep: as by index, one requestor for all.
    PushRep,
    /// PUSH-Sur: as by index, all survivors are requestors in turn.
    PushSur,
}

impl From<Schedule> for kintsu_plan::Schedule {
    fn from(schedule: Schedule) -> Self {
        match schedule {
            Schedule::Balanced => Self::Balanced,
            Schedule::Greedy => Self::Greedy,
            Schedule::ByIndex => Self::ByIndex,
            Schedule::PushRep => Self::PushRep,
            Schedule::PushSur => Self::PushSur,
        }
    }
}

/// Repair methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Method {
    /// One requestor fetches everything (star).
    Conventional,
    /// Partial sums along a binary tree.
    Ppr,
    /// Partial sums along a chain (repair pipelining), through as few racks as possible.
    Pipeline,
    /// The same in the order of block numbers, whatever the racks.
    Flat,
    /// Several chains, each of which delivers from another helper: for a requestor behind slow links.
    Cyclic,
    /// The chain whose slowest link is as fast as can be, by the rates that the cluster knows.
    Weighted,
    /// The best trees that the rates of the links allow; a chain where no rates are known.
    Optimal,
    /// As flat, whole blocks sent on: to be compared with.
    PipeB,
    /// As flat, one thing after the other on each helper: to be compared with.
    PipeS,
}

impl From<Method> for kintsu_plan::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Conventional => Self::Conventional,
            Method::Ppr => Self::Ppr,
            Method::Pipeline => Self::Pipeline,
            Method::Flat => Self::Flat,
            Method::Cyclic => Self::Cyclic,
            Method::Weighted => Self::Weighted,
            Method::Optimal => Self::Optimal,
            Method::PipeB => Self::PipeB,
            Method::PipeS => Self::PipeS,
        }
    }
}

/// `kintsu explain`.
#[derive(Debug, Args)]
pub struct Explain {
    /// The object's name.
    pub name: String,
    /// Block indices taken as lost.
    #[arg(long, value_delimiter = ',', required = true, value_name = "I,J,...")]
    pub lost: Vec<u8>,
    /// How slices move.
    #[arg(long, value_enum, default_value_t = Method::Pipeline)]
    pub method: Method,
    /// Slice: the unit of pipelining; `auto` for what suits the plan.
    #[arg(long, default_value = "auto", value_name = "BYTES")]
    pub slice: Slice,
    /// Which stripe of the object.
    #[arg(long, default_value_t = 0)]
    pub stripe: u64,
    /// Rates of links in a file as for `kintsu rates set`, in place of those that the cluster knows. Where rates are
    /// known, every method's time is told beside what none can beat.
    #[arg(long, value_name = "FILE")]
    pub rates: Option<PathBuf>,
    /// Draw the graph into this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}
