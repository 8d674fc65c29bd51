//! The command line: every command, its options and examples.

mod advice;
mod cluster_model;
mod compare;
mod lab;
mod sim;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use kintsu_wire::TrustedNetwork;

pub use advice::{Advise, Reliability};
pub use compare::{Check, Compare};
pub use lab::{LabCodes, LabCommand, LabDown, LabExec, LabLrc, LabPage, LabRun, LabUp};

pub use sim::{Sim, SimCluster, SimCommand, SimFail, SimPlacement, SimRecovery, SimRepair};

use crate::units::{ByteRange, Bytes, Slice, parse_duration};

/// The address that `kintsu up` listens on.
pub const DEFAULT_ENDPOINT: &str = "127.0.0.1:7400";

/// Erasure-coded storage whose codes are programs and whose repairs are as fast as a read.
#[derive(Debug, Parser)]
#[command(
    name = "kintsu",
    version,
    max_term_width = 110,
    after_help = "\
Examples:
  kintsu up --nodes 20 --racks 5 --dir /tmp/kintsu     # a whole cluster in one process
  kintsu put big.iso iso --code rs:n=14,k=10           # store a file
  kintsu node stop 3 && kintsu get iso copy.iso        # read it without node 3
  kintsu repair --node 3 --method pipeline             # mend what node 3 held
  kintsu explain iso --lost 2 --method ppr --svg g.svg # see how a repair would go"
)]
pub struct Cli {
    /// The coordinator.
    #[arg(long, global = true, env = "KINTSU_COORDINATOR", default_value = DEFAULT_ENDPOINT, value_name = "HOST:PORT")]
    pub coordinator: String,
    /// Shared secret of the cluster, where it has one.
    #[arg(long, global = true, env = "KINTSU_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// All commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a coordinator and N agents in this process, on loopback.
    #[command(after_help = "\
Examples:
  kintsu up --nodes 9 --racks 3 --dir ./cluster
  kintsu up --nodes 20 --racks 5 --dir /data/kintsu --grace 10m")]
    Up(Up),
    /// Run a coordinator alone.
    #[command(after_help = "Example:\n  kintsu coordinator --dir /data/coordinator --listen 127.0.0.1:7400")]
    Coordinator(CoordinatorArgs),
    /// Run an agent alone, beside a disk.
    #[command(
        after_help = "Example:\n  kintsu agent --dir /data/node7 --rack 2 --coordinator 127.0.0.1:7400"
    )]
    Agent(AgentArgs),
    /// Store a file as an object.
    #[command(after_help = "\
Examples:
  kintsu put video.mp4 video --code azure-lrc:n=16,k=12,r=6
  kintsu put log.tar logs/today --code rs:n=9,k=6 --encode offline   # then: kintsu encode logs/today
  kintsu put log.tar logs/today --code rs:n=9,k=6 --replace")]
    Put(Put),
    /// Make the parity of an object that was stored with `--encode offline`.
    #[command(after_help = "Example:\n  kintsu encode logs/today")]
    Encode(Name),
    /// Read an object into a file (`-` for standard output), mending on the way what is lost.
    #[command(after_help = "\
Examples:
  kintsu get video copy.mp4
  kintsu get video head --range 0-1048575     # first MiB; both ends belong to the range
  kintsu get video - --range 1048576- | wc -c")]
    Get(Get),
    /// List objects.
    #[command(after_help = "Examples:\n  kintsu ls\n  kintsu ls logs/ --json")]
    Ls(Ls),
    /// Remove an object.
    #[command(after_help = "Example:\n  kintsu rm logs/today")]
    Rm(Name),
    /// Show an object and where each of its blocks is.
    #[command(after_help = "Examples:\n  kintsu stat video\n  kintsu stat video --json")]
    Stat(Name),
    /// List the nodes.
    #[command(after_help = "Examples:\n  kintsu nodes\n  kintsu nodes --json")]
    Nodes,
    /// Show the cluster in numbers.
    #[command(after_help = "Examples:\n  kintsu status\n  kintsu status --json")]
    Status,
    /// Stop, start, wipe or drain a node.
    #[command(after_help = "\
Examples:
  kintsu node stop 3
  kintsu node start 3          # where `kintsu up` runs the node
  kintsu node drain 3          # move its blocks elsewhere, then take it away")]
    Node {
        /// What to do with it.
        #[arg(value_enum)]
        action: NodeAction,
        /// Its id.
        id: u32,
    },
    /// What links carry: repairs are planned by it, and their reports tell how near they came.
    #[command(after_help = "\
Examples:
  kintsu rates set rates.toml
  kintsu rates show --json

rates.toml:
  default = \"1Gb/s\"                         # every node, up and down
  [nodes]
  3 = { up = \"100Mb/s\", down = \"500Mb/s\" }
  [racks]
  0 = \"10Gb/s\"
  [pairs]
  \"3-7\" = \"50Mb/s\"                         # from 3 to 7")]
    Rates {
        /// What to do.
        #[command(subcommand)]
        command: RatesCommand,
    },
    /// Rebuild blocks that cannot be read.
    #[command(after_help = "\
Examples:
  kintsu repair                                  # everything that is unavailable
  kintsu repair --node 3 --method ppr
  kintsu repair --node 3 --to 16                 # everything to one replacement
  kintsu repair --node 3 --requestors 8 --schedule greedy
  kintsu repair --object video --method conventional --slice 64KiB --json")]
    Repair(Repair),
    /// Verify every block on every node, and mend what is found.
    #[command(after_help = "Examples:\n  kintsu scrub\n  kintsu scrub --node 3")]
    Scrub {
        /// Only this node.
        #[arg(long)]
        node: Option<u32>,
    },
    /// Show how a repair would go: graph, tasks, traffic, predicted time.
    #[command(after_help = "\
Examples:
  kintsu explain video --lost 2
  kintsu explain video --lost 2,5 --method conventional --svg plan.svg")]
    Explain(Explain),
    /// Look at codes.
    Code {
        /// What to show.
        #[command(subcommand)]
        command: CodeCommand,
    },
    /// Measure this machine.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Emulate a cluster with shaped links on this machine, or run an experiment and see measured beside theory.
    Lab {
        /// What to do.
        #[command(subcommand)]
        command: LabCommand,
    },
    /// How long repairs take on a modelled network: whole nodes and racks of large clusters, or one repair.
    #[command(after_help = "\
Examples:
  kintsu sim                                                    # a node of 1,000 is lost
  kintsu sim --nodes 10000 --racks 400 --stripes 1000000
  kintsu sim --fail rack --method conventional,pipeline --csv
  kintsu sim --requestors 16 --rack-rate unlimited
  kintsu sim repair --code rs:n=14,k=10 --rate 500Mb/s
  kintsu sim repair --topology docs/examples/lab-racks.toml --code rs:n=9,k=6 --json")]
    Sim(Sim),
    /// Show the whole story on a real cluster: store, kill, read degraded, recover, compare.
    #[command(after_help = "Example:\n  kintsu demo --file /path/to/a/large/file --dir ./demo-data")]
    Demo(Demo),
}

/// `kintsu up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Number of nodes.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: u32,
    /// Number of racks; nodes are dealt to them in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub racks: u32,
    /// Where everything is kept: one folder a node.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where the coordinator listens.
    #[arg(long, default_value = DEFAULT_ENDPOINT)]
    pub listen: SocketAddr,
    /// How long a node may be dead before its blocks are rebuilt elsewhere.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub grace: std::time::Duration,
}

/// `kintsu coordinator`.
#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    /// Where the metadata is kept.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where to listen.
    #[arg(long, default_value = DEFAULT_ENDPOINT)]
    pub listen: SocketAddr,
    /// A network that is yours alone, such as 10.77.0.0/16, where it may listen in plain text. A token is required:
    /// whoever is on that network can read what is stored.
    #[arg(long, value_name = "CIDR")]
    pub trusted_network: Option<TrustedNetwork>,
    /// How long a node may be dead before its blocks are rebuilt elsewhere.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub grace: std::time::Duration,
}

/// `kintsu agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Where the blocks are kept.
    #[arg(long)]
    pub dir: PathBuf,
    /// Its rack.
    #[arg(long, default_value_t = 0)]
    pub rack: u32,
    /// Its id; by default the one in its folder, or a new one.
    #[arg(long)]
    pub id: Option<u32>,
    /// Where to listen for commands (port 0: any free port).
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Where to listen for slices (port 0: any free port).
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen_data: SocketAddr,
    /// A network that is yours alone, such as 10.77.0.0/16, where it may listen in plain text. A token is required:
    /// whoever is on that network can read what is stored.
    #[arg(long, value_name = "CIDR")]
    pub trusted_network: Option<TrustedNetwork>,
}

/// `kintsu put`.
#[derive(Debug, Args)]
pub struct Put {
    /// The file to store.
    pub file: PathBuf,
    /// The object's name.
    pub name: String,
    /// Its code, `family:key=value,...` (see `kintsu code list`), or `user:NAME` of one that is registered.
    #[arg(long, default_value = "rs:n=9,k=6")]
    pub code: String,
    /// Make the parity while writing, or later with `kintsu encode`.
    #[arg(long, value_enum, default_value_t = EncodeWhen::Online)]
    pub encode: EncodeWhen,
    /// Largest block [default: 64 MiB, or somewhat more where the code's sub-blocks need it].
    #[arg(long, value_name = "BYTES")]
    pub block: Option<Bytes>,
    /// Cell: the unit coded together [default: 128 KiB, or what the code's sub-blocks need].
    #[arg(long, value_name = "BYTES")]
    pub cell: Option<Bytes>,
    /// Replace an object of this name, in one step.
    #[arg(long)]
    pub replace: bool,
}

/// When parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EncodeWhen {
    /// While writing; data striped in cells.
    Online,
    /// Later, where the data is; data contiguous in blocks.
    Offline,
}

/// A command on one object.
#[derive(Debug, Args)]
pub struct Name {
    /// The object's name.
    pub name: String,
}

/// `kintsu get`.
#[derive(Debug, Args)]
pub struct Get {
    /// The object's name.
    pub name: String,
    /// The file to write; `-` for standard output.
    pub out: PathBuf,
    /// Bytes A to B, both included, as in HTTP; `A-` to the end.
    #[arg(long, value_name = "A-B")]
    pub range: Option<ByteRange>,
    /// Slice: the unit in which it is streamed; `auto` for what suits the plan.
    #[arg(long, default_value = "auto", value_name = "BYTES")]
    pub slice: Slice,
    /// How lost blocks are rebuilt on the way; without it, as is predicted to be fastest.
    #[arg(long, value_enum)]
    pub method: Option<Method>,
}

/// `kintsu ls`.
#[derive(Debug, Args)]
pub struct Ls {
    /// Only names that begin so.
    #[arg(default_value = "")]
    pub prefix: String,
    /// Only names after this one.
    #[arg(long)]
    pub after: Option<String>,
    /// At most so many.
    #[arg(long)]
    pub limit: Option<u64>,
}

/// What to do with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeAction {
    /// End its agent.
    Stop,
    /// Start its agent again.
    Start,
    /// Delete all its blocks.
    Wipe,
    /// Move its blocks elsewhere.
    Drain,
}

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

/// `kintsu code ...`.
#[derive(Debug, Subcommand)]
pub enum CodeCommand {
    /// List the families of codes, their parameters and what they are for.
    #[command(after_help = "Examples:\n  kintsu code list\n  kintsu code list --json")]
    List,
    /// Parameters, generator, groups and distance of a code.
    #[command(
        after_help = "Examples:\n  kintsu code show rs:n=9,k=6\n  kintsu code show azure-lrc:n=16,k=12,r=6 --json"
    )]
    Show {
        /// The code, `family:key=value,...`, or `user:NAME` of one that is registered.
        code: String,
        /// Show the generator of a large code too.
        #[arg(long)]
        generator: bool,
    },
    /// Prove all that a code claims: distance, losses it decodes, repair traffic, its graphs.
    #[command(after_help = "\
Examples:
  kintsu code check azure-lrc:n=16,k=12,r=6
  kintsu code check clay:n=14,k=10,d=13 --json
  kintsu code check azure-lrc:n=40,k=30,r=6 --max-patterns 2000000000")]
    Check(Check),
    /// Compare families over all their parameters: repair costs, overhead, distance.
    #[command(after_help = "\
Examples:
  kintsu code compare --n 9..19 --max-overhead 2                    # the range of the LRC study
  kintsu code compare --n 12..18 --max-overhead 1.6 --svg figs.svg  # its figures, over the range it prints
  kintsu code compare --n 14 --max-overhead 1.4 --families rs,hitchhiker-xor,clay
  kintsu code compare --n 9..19 --min-distance 4 --json")]
    Compare(Compare),
    /// Mean time to data loss of codes, by what they decode and how fast they repair.
    #[command(after_help = "\
Examples:
  kintsu code reliability rs:n=14,k=10 azure-lrc:n=16,k=12,r=6 --nodes 40 --racks 8
  kintsu code reliability rs:n=9,k=6 --afr 4 --bandwidth 50MB --capacity 20TB
  kintsu code reliability --papers                      # data loss probabilities of two papers, and ours")]
    Reliability(Reliability),
    /// Which code to take for a cluster, why, and what to beware of. Fails when nothing fits, and says what would.
    #[command(after_help = "\
Examples:
  kintsu code advise --nodes 20 --racks 4 --tolerate 3 --overhead 1.6
  kintsu code advise --nodes 20 --racks 5 --survive-rack --objective degraded
  kintsu code advise --nodes 12 --tolerate 2 --overhead 1.3 --objective recovery --json")]
    Advise(Advise),
    /// Register a code with the cluster, which proves it first: then `put --code user:NAME`.
    #[command(
        after_help = "Examples:\n  kintsu code register mine.json\n  kintsu code export rs:n=9,k=6 --as user:nine | kintsu code register -"
    )]
    Register {
        /// Its definition in JSON; `-` for standard input.
        file: PathBuf,
    },
    /// Print any code as data: its definition in JSON.
    #[command(
        after_help = "Examples:\n  kintsu code export azure-lrc:n=16,k=12,r=6 --as user:mine > mine.json\n  kintsu code export user:mine > mine.json"
    )]
    Export {
        /// The code.
        code: String,
        /// The name that it gets, `user:NAME`; by default one made of its own.
        #[arg(long = "as", value_name = "NAME")]
        name: Option<String>,
    },
    /// List the codes that are registered with the cluster.
    #[command(after_help = "Examples:\n  kintsu code registered\n  kintsu code registered --json")]
    Registered,
    /// Remove a code from the cluster, if no object uses it.
    #[command(after_help = "Example:\n  kintsu code unregister user:mine")]
    Unregister {
        /// `user:NAME`.
        code: String,
    },
}

/// `kintsu bench ...`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// The coding kernel against ISA-L, and encoding by graph against bare kernel calls.
    #[command(after_help = "Examples:\n  kintsu bench kernel\n  kintsu bench kernel --json")]
    Kernel {
        /// Seconds for each case and side.
        #[arg(long, default_value_t = 0.3)]
        seconds: f64,
    },
    /// Parse, prove, place and lower one (14,10) repair; search for paths by the rates of links.
    #[command(after_help = "Examples:\n  kintsu bench plan\n  kintsu bench plan --json")]
    Plan,
    /// A coordinator with many stripes: start time, memory, latencies.
    #[command(after_help = "Example:\n  kintsu bench meta --stripes 1000000 --json")]
    Meta {
        /// How many stripes.
        #[arg(long, default_value_t = 1_000_000)]
        stripes: u64,
        /// A folder on a disk; a temporary one is made and removed inside.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// What small slices cost: a chain of helpers and a direct copy on loopback, beside bare relays.
    #[command(after_help = "\
Examples:
  kintsu bench slices --dir /dev/shm
  kintsu bench slices --helpers 6 --slices 4KiB,32KiB --json")]
    Slices {
        /// Size of the block.
        #[arg(long, default_value = "64MiB")]
        block: Bytes,
        /// Helpers of the chain.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200))]
        helpers: u32,
        /// Slice sizes.
        #[arg(
            long,
            value_delimiter = ',',
            default_value = "4KiB,8KiB,16KiB,32KiB,64KiB,128KiB,256KiB,512KiB,1MiB"
        )]
        slices: Vec<Bytes>,
        /// Repetitions.
        #[arg(long, default_value_t = 3)]
        runs: u32,
        /// A folder; a temporary one is made and removed inside.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Put and get through a cluster in this process, beside the machine's own ceilings.
    #[command(after_help = "Example:\n  kintsu bench io --size 512MiB --code rs:n=9,k=6 --dir /data/bench")]
    Io {
        /// Size of the object.
        #[arg(long, default_value = "512MiB")]
        size: Bytes,
        /// Its code.
        #[arg(long, default_value = "rs:n=9,k=6")]
        code: String,
        /// A folder on the disk to be measured; a temporary one is made and removed inside.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Repetitions.
        #[arg(long, default_value_t = 3)]
        runs: u32,
    },
}

/// `kintsu demo`.
#[derive(Debug, Args)]
pub struct Demo {
    /// The file to store.
    #[arg(long)]
    pub file: PathBuf,
    /// Where the cluster keeps its data.
    #[arg(long, default_value = "demo-data")]
    pub dir: PathBuf,
    /// Number of nodes.
    #[arg(long, default_value_t = 20)]
    pub nodes: u32,
    /// Number of racks.
    #[arg(long, default_value_t = 5)]
    pub racks: u32,
}
