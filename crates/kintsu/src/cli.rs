//! The command line: every command, its options and examples.

mod advice;
mod bench;
mod ca;
mod cluster_model;
mod code;
mod compare;
mod hdfs;
mod hdfs_store;
mod lab;
mod load;
mod nbd;
mod object;
mod operate;
mod page;
mod repair;
mod s3;
mod serve;
mod sim;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use kintsu_client::{Client, Options};
use kintsu_wire::Tls;

use crate::units::parse_duration;

pub use advice::{Advise, Reliability};
pub use bench::BenchCommand;
pub use ca::{CaCommand, CaInit, CaIssue};
pub use code::CodeCommand;
pub use compare::{Check, Compare};
pub use hdfs::{Hdfs, HdfsAgent, HdfsCommand, HdfsCoordinator};
pub use hdfs_store::{HdfsPut, HdfsStore};
pub use lab::{LabCodes, LabCommand, LabDown, LabExec, LabLrc, LabPage, LabReplay, LabRun, LabUp};
pub use load::Load;
pub use nbd::Nbd;
pub use object::{EncodeWhen, Get, Ls, Name, Put, Rm};
pub use operate::{ConfigCommand, Df, Health, JobsCommand, Repack};
pub use page::{OwnPage, PageArgs};
pub use repair::{Explain, RatesCommand, Repair};
pub use s3::{DEFAULT_METRICS, S3};
pub use serve::{AgentArgs, CoordinatorArgs, Rack, Up};
pub use sim::{Sim, SimCluster, SimCodes, SimCommand, SimFail, SimPlacement, SimRecovery, SimRepair};
pub use volume::{Survives, VolumeCommand, VolumeCreate, VolumeRead, VolumeWrite};

/// The code of a new object, unless another one is demanded.
pub const DEFAULT_CODE: &str = "rs:n=9,k=6";

/// The address that `kintsu up` listens on.
pub const DEFAULT_ENDPOINT: &str = "127.0.0.1:7400";

/// The version, and in release builds the commit (`build.rs`).
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("KINTSU_BUILD"));

/// The heading of options that every command has.
const EVERYWHERE: &str = "Options of every command";

/// Where the cluster is, and its secret.
#[derive(Debug, Clone)]
pub struct Endpoint {
    /// The coordinator, `host:port`.
    pub coordinator: String,
    /// The token, if there is one.
    pub token: Option<String>,
    /// TLS for all connections, if the cluster speaks it.
    pub tls: Option<Tls>,
}

impl Endpoint {
    /// A client of the cluster.
    ///
    /// # Errors
    /// A bad address.
    pub async fn client(&self) -> anyhow::Result<Client> {
        let options = Options { token: self.token.clone(), tls: self.tls.clone(), ..Options::default() };
        Ok(Client::connect(&self.coordinator, options).await?)
    }
}

/// Erasure-coded storage whose codes are programs and whose repairs are as fast as a read.
#[derive(Debug, Parser)]
#[command(
    name = "kintsu",
    version = VERSION,
    max_term_width = 110,
    after_help = "\
Examples:
  kintsu up --nodes 20 --racks 5 --dir /tmp/kintsu     # a whole cluster in one process
  kintsu put big.iso iso --code rs:n=14,k=10           # store a file
  kintsu node stop 3 && kintsu get iso copy.iso        # read it without node 3
  kintsu repair --node 3 --method pipeline             # rebuild what node 3 held
  kintsu explain iso --lost 2 --method ppr --svg g.svg # see how a repair would go

Environment:
  KINTSU_LOG=info             # what is logged to standard error: error, warn (default), info, debug, trace
  KINTSU_LOG=warn,kintsu_agent=debug   # or by crate
  KINTSU_LOG=warn,audit=info  # and who changed what (the default of `kintsu coordinator`, `agent` and `s3`)
  KINTSU_TLS=DIR              # speak TLS: see `kintsu ca`
  KINTSU_LOG_FORMAT=json      # as --log json: each line a JSON object"
)]
pub struct Cli {
    /// The coordinator.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "KINTSU_COORDINATOR", default_value = DEFAULT_ENDPOINT, value_name = "HOST:PORT")]
    pub coordinator: String,
    /// Shared secret (token) of the cluster, if it has one.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "KINTSU_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A file with the token; white space around it is ignored. `--token` counts more.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "KINTSU_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Speak TLS only, with the files `ca.pem`, `cert.pem` and `key.pem` of this folder (`kintsu ca issue` makes it).
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "KINTSU_TLS", value_name = "DIR")]
    pub tls: Option<PathBuf>,
    /// A file (TOML) with options of `kintsu up`, `coordinator`, `agent`, `s3`, `nbd` and `page`: see `kintsu config --help`. The
    /// command line and the environment count more.
    #[arg(long, global = true, help_heading = EVERYWHERE, env = "KINTSU_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON for programs instead of text for people.
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// How to write the log to standard error: for people, or each line a JSON object.
    #[arg(long, global = true, help_heading = EVERYWHERE, value_enum, default_value_t = LogFormat::Text, env = "KINTSU_LOG_FORMAT", value_name = "FORMAT")]
    pub log: LogFormat,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// Where the cluster is, and what is shown to it; reads files.
    ///
    /// # Errors
    /// A file that cannot be read, or does not fit.
    pub fn endpoint(&self) -> anyhow::Result<Endpoint> {
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.clone()),
            (None, Some(path)) => {
                let read = std::fs::read_to_string(path);
                let read = read.with_context(|| format!("cannot read the token in {}", path.display()))?;
                Some(read.trim().to_owned())
            }
            (None, None) => None,
        };
        let tls = self.tls.as_deref().map(Tls::open).transpose()?;
        Ok(Endpoint { coordinator: self.coordinator.clone(), token, tls })
    }
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people.
    Text,
    /// Lines of JSON for programs.
    Json,
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
    #[command(after_help = "\
Examples:
  kintsu coordinator --dir /data/coordinator --listen 127.0.0.1:7400
  kintsu coordinator --dir /data/new --restore metadata.kintsu   # from a file of `kintsu backup`
  kintsu coordinator --dir /data/new --restore auto              # from the newest copy that an agent keeps")]
    Coordinator(CoordinatorArgs),
    /// Run an agent alone, for one disk.
    #[command(after_help = "\
Examples:
  kintsu agent --dir /data/node7 --rack 2 --coordinator 127.0.0.1:7400
  kintsu agent --dir /data/disk1 --name host7-disk1 --rack dc1/r7
  kintsu agent --dir /data/disk1 --id 3 --replace      # a new disk in place of node 3's")]
    Agent(AgentArgs),
    /// Make the certificates of a cluster: who may be what.
    #[command(after_help = "\
Examples:
  kintsu ca init ./ca                                              # keep ./ca off the nodes
  kintsu ca issue ./ca --role coordinator --out ./coordinator      # copy each folder to its host
  kintsu ca issue ./ca --role agent/3 --out ./node3
  kintsu ca issue ./ca --role client/alice --days 30 --out ./alice
  kintsu coordinator --dir /data/coordinator --listen 10.0.0.1:7400 --tls ./coordinator
  kintsu agent --dir /data/disk1 --tls ./node3 --listen 10.0.0.3:7401 --listen-data 10.0.0.3:7402 --coordinator 10.0.0.1:7400
  kintsu put big.iso iso --tls ./alice --coordinator 10.0.0.1:7400")]
    Ca {
        /// What to do.
        #[command(subcommand)]
        command: CaCommand,
    },
    /// Store a file, a stream or all files of a folder.
    #[command(after_help = "\
Examples:
  kintsu put video.mp4 video --code azure-lrc:n=16,k=12,r=6 --content-type video/mp4
  tar c ./photos | kintsu put - photos.tar           # a stream; in a script, set -o pipefail
  kintsu put ./photos photos                         # a folder: photos/2026/1.jpg, photos/2026/2.jpg, ...
  kintsu put log.tar logs/today --code rs:n=9,k=6 --encode offline   # then: kintsu encode logs/today
  kintsu put log.tar logs/today --code rs:n=9,k=6 --replace")]
    Put(Put),
    /// Encode an object that was stored with `--encode offline`: compute its parity on the nodes.
    #[command(after_help = "Example:\n  kintsu encode logs/today")]
    Encode(Name),
    /// Read an object into a file (`-` for standard output), or all objects below a name into a folder; lost blocks are
    /// decoded during the read, and so are blocks on nodes that turn out to be slow or silent.
    #[command(after_help = "\
Examples:
  kintsu get video copy.mp4
  kintsu get photos ./photos                  # a folder: all objects whose names begin with photos/
  kintsu get photos.tar - | tar t
  kintsu get video head --range 0-1048575     # first MiB; both ends belong to the range
  kintsu get video - --range 1048576- | wc -c")]
    Get(Get),
    /// List objects.
    #[command(after_help = "\
Examples:
  kintsu ls
  kintsu ls photos/ --delimiter /       # what is directly below: objects, and prefixes such as photos/2026/
  kintsu ls logs/ --long
  kintsu ls logs/ --json")]
    Ls(Ls),
    /// Remove objects; for more than one it asks first, unless `--yes` is given.
    #[command(after_help = "Examples:\n  kintsu rm logs/today\n  kintsu rm logs/monday logs/tuesday --yes")]
    Rm(Rm),
    /// Show an object and where each of its blocks is.
    #[command(after_help = "Examples:\n  kintsu stat video\n  kintsu stat video --json")]
    Stat(Name),
    /// List the nodes.
    #[command(after_help = "Examples:\n  kintsu nodes\n  kintsu nodes --json")]
    Nodes,
    /// List, restore or release blocks in quarantine: blocks that the metadata do not know, and damaged ones.
    #[command(after_help = "\
Examples:
  kintsu quarantine ls
  kintsu quarantine restore 3 s300.b2.g1.unknown.1764345600.4
  kintsu quarantine confirm 3       # the blocks in node 3's quarantine may be deleted in time")]
    Quarantine {
        /// What to do.
        #[command(subcommand)]
        command: QuarantineCommand,
    },
    /// Virtual disks: fixed in size, overwritten in place, as safe as objects.
    #[command(after_help = "\
Examples:
  kintsu volume create disk --size 10GiB --code rs:n=9,k=6
  kintsu volume write disk < image
  kintsu volume read disk --offset 1MiB --length 4KiB | xxd")]
    Volume {
        /// What to do.
        #[command(subcommand)]
        command: VolumeCommand,
    },
    /// Show the progress of a rebuild of the metadata from blocks (`kintsu coordinator --rebuild`), and what is
    /// incomplete.
    #[command(after_help = "\
Examples:
  kintsu rebuild
  kintsu rebuild finish --yes")]
    Rebuild {
        /// What to do; by default show the progress.
        #[command(subcommand)]
        command: Option<RebuildCommand>,
    },
    /// Show the cluster in numbers; the first line is the verdict of `kintsu health`. The exit code says only whether
    /// the coordinator answered: to judge the cluster, use `kintsu health`.
    #[command(after_help = "Examples:\n  kintsu status\n  kintsu status --json")]
    Status,
    /// Judge the cluster: the exit code is 0 if it is healthy, 1 for a warning, 2 for an error (or no answer). Shows the
    /// causes, the stripes concerned, and what to do.
    #[command(after_help = "\
Examples:
  kintsu health && echo all is well
  kintsu health --stripes 1000            # name more of the damaged stripes
  kintsu health --json | jq -r .headline")]
    Health(Health),
    /// Show the space: raw, used, reserved, free, and how much data of each code still fits.
    #[command(after_help = "\
Examples:
  kintsu df
  kintsu df --code rs:n=9,k=6 --code replication:n=3
  kintsu df --json")]
    Df(Df),
    /// List the jobs (repairs, encodings, scrubs, drains, wipes); follow, pause, resume or cancel one.
    #[command(after_help = "\
Examples:
  kintsu jobs
  kintsu jobs follow 10003
  kintsu jobs pause 10003
  kintsu jobs resume 10003
  kintsu jobs cancel 10003")]
    Jobs {
        /// What to do; by default list the jobs.
        #[command(subcommand)]
        command: Option<JobsCommand>,
    },
    /// Write a consistent copy of the metadata to a file (`-` for standard output), while the cluster works.
    #[command(after_help = "\
Examples:
  kintsu backup metadata.kintsu
  kintsu backup - | ssh elsewhere 'cat > metadata.kintsu'
  kintsu coordinator --dir /data/new --restore metadata.kintsu")]
    Backup(Backup),
    /// Stop, start, pause, resume, drain, undrain, wipe or forget a node.
    #[command(after_help = "\
Examples:
  kintsu node stop 3
  kintsu node start 3          # where `kintsu up` runs the node
  kintsu node drain 3          # move its blocks elsewhere, then take it away
  kintsu node undrain 3        # it stays: it gets new blocks again
  kintsu node pause 3 --for 2h # maintenance: its blocks are not repaired meanwhile
  kintsu node resume 3         # it is back earlier, or will not come back
  kintsu node wipe 3           # delete its blocks; asks first
  kintsu node forget 3         # it is gone for good and holds no block")]
    Node(Node),
    /// Set or show the rates of links. Repairs are planned with them, and reports compare the repair with the
    /// bound.
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
    /// Show or change the settings of the cluster: how fast repairs may be. A change is in force with the agents' next
    /// heartbeats, and is kept with the metadata. Also: check a file of options for services, and show what is in force.
    #[command(after_help = "\
Examples:
  kintsu config show
  kintsu config get repair.max-rate
  kintsu config set repair.max-rate 20MB/s    # on each node; none: as fast as there is room
  kintsu config set repair.min-rate 2MB/s     # the floor that a target leaves to repairs
  kintsu config set repair.target 20%         # users' operations (99th percentile) may take 20% longer
  kintsu config set repair.target default
  kintsu config set repair.hold 40%           # more nodes gone at once, or a rack: repairs wait for you; none: never
  kintsu config check /etc/kintsu.toml        # keys and values
  kintsu config show agent --config /etc/kintsu.toml   # the options that `kintsu agent` would have, and where each is from

/etc/kintsu.toml, for --config or KINTSU_CONFIG; keys are the long names of options:
  [common]                                    # coordinator, tls, token-file, log
  coordinator = \"10.77.0.1:7400\"
  tls = \"/etc/kintsu/tls\"
  [agent]                                     # up, coordinator, agent, s3, nbd, page, repack, hdfs-coordinator, hdfs-agent
  dir = \"/data/disk1\"
  rack = \"dc1/r7\"")]
    Config {
        /// What to do.
        #[command(subcommand)]
        command: ConfigCommand,
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
    /// Verify every block on every node, and repair bad ones.
    #[command(after_help = "Examples:\n  kintsu scrub\n  kintsu scrub --node 3")]
    Scrub {
        /// Only this node.
        #[arg(long)]
        node: Option<u32>,
    },
    /// Move blocks from fuller to emptier nodes, for example after nodes came; users go first. Goes on after a restart of the
    /// coordinator; `kintsu jobs` pauses or cancels it.
    #[command(after_help = "Example:\n  kintsu rebalance")]
    Rebalance,
    /// Gather small objects that lie alone, or in packs that are mostly dead, into full packs, by copying: fewer files, and no bytes of
    /// objects that are gone. `kintsu up` and `kintsu s3` do so by themselves once in an hour.
    #[command(after_help = "\
Examples:
  kintsu repack
  kintsu repack --older-than 1s --least 2      # also what was just written, and few stripes
  kintsu repack --json | jq .objects")]
    Repack(Repack),
    /// Show how a repair would go: helpers, traffic, predicted time; with `--verbose` its graph and tasks.
    #[command(after_help = "\
Examples:
  kintsu explain video --lost 2
  kintsu explain video --lost 2 --verbose
  kintsu explain video --lost 2,5 --method conventional --svg plan.svg")]
    Explain(Explain),
    /// List, show, prove, compare and register codes.
    #[command(after_help = "\
Examples:
  kintsu code list
  kintsu code check azure-lrc:n=16,k=12,r=6
  kintsu code advise --nodes 20 --racks 4 --tolerate 3 --overhead 1.6")]
    Code {
        /// What to show.
        #[command(subcommand)]
        command: CodeCommand,
    },
    /// Measure this machine.
    #[command(after_help = "\
Examples:
  kintsu bench kernel --backend avx2
  kintsu bench io --size 512MiB --code rs:n=9,k=6 --dir /data/bench")]
    Bench {
        /// What to measure.
        #[command(subcommand)]
        command: BenchCommand,
    },
    /// Emulate a cluster with shaped links on this machine, or run experiments and compare measurements with
    /// theory.
    #[command(after_help = "\
Examples:
  kintsu lab up --nodes 6 --racks 2 --rate 500Mb/s --rack-rate 1Gb/s
  kintsu lab run smoke
  kintsu lab codes")]
    Lab {
        /// What to do.
        #[command(subcommand)]
        command: LabCommand,
    },
    /// How long repairs take on a modelled network: whole nodes and racks of large clusters, or one repair.
    #[command(after_help = "\
Examples:
  kintsu sim                                                    # one of 1,000 nodes is lost
  kintsu sim --nodes 10000 --racks 400 --stripes 1000000
  kintsu sim --fail rack --method conventional,pipeline --csv
  kintsu sim --requestors 16 --rack-rate unlimited
  kintsu sim repair --code rs:n=14,k=10 --rate 500Mb/s
  kintsu sim repair --topology docs/examples/lab-racks.toml --code rs:n=9,k=6 --json")]
    Sim(Sim),
    /// Serve a volume as a disk to programs that speak NBD: QEMU, libnbd's tools, fio, the Linux kernel.
    #[command(after_help = nbd::EXAMPLES)]
    Nbd(Nbd),
    /// Serve buckets and objects to programs that speak S3: SDKs, rclone, restic, s3cmd, analytics engines.
    #[command(after_help = s3::EXAMPLES)]
    S3(S3),
    /// Show the cluster in a browser: nodes, stripes at risk, repairs as they run, objects, codes. It only shows. `kintsu up`
    /// and `kintsu coordinator` show it too.
    #[command(after_help = page::EXAMPLES)]
    Page(PageArgs),
    /// Beside a stock HDFS 3: show, read, verify and repair its erasure-coded files. Nothing in Hadoop is changed.
    #[command(after_help = "\
Examples:
  kintsu hdfs --namenode nn1:8020,nn2:8020 status
  kintsu hdfs get /warehouse/part-0 part-0
  kintsu hdfs store put film.mp4 /warehouse/film.mp4")]
    Hdfs(Hdfs),
    /// Demonstrate everything on a real cluster: store, kill nodes, read degraded, recover, compare.
    #[command(after_help = "Example:\n  kintsu demo --file /path/to/a/large/file --dir ./demo-data")]
    Demo(Demo),
    /// Print the script that completes commands and options in a shell.
    #[command(after_help = "\
Examples:
  source <(kintsu completions bash)
  kintsu completions fish > ~/.config/fish/completions/kintsu.fish")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands.
    #[command(
        after_help = "Examples:\n  kintsu man ./man && man -l ./man/kintsu-put.1\n  kintsu man /usr/local/share/man/man1
  kintsu man ./reference --markdown         # one page, commands.md"
    )]
    Man {
        /// The folder to write into; it is created if it is missing.
        dir: PathBuf,
        /// Write one page of Markdown with the help of all commands in place of the manual pages.
        #[arg(long)]
        markdown: bool,
    },
}

/// `kintsu backup`.
#[derive(Debug, Args)]
pub struct Backup {
    /// The file to write; `-` for standard output.
    pub out: PathBuf,
}

/// `kintsu node`.
#[derive(Debug, Args)]
pub struct Node {
    /// What to do with it.
    #[arg(value_enum)]
    pub action: NodeAction,
    /// Its id or its name.
    pub node: String,
    /// How long it is paused.
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration, required_if_eq("action", "pause"))]
    pub time: Option<Duration>,
    /// Wipe or forget without asking.
    #[arg(long)]
    pub yes: bool,
    /// Wipe even if that makes objects unreadable.
    #[arg(long)]
    pub force: bool,
}

/// What to do with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum NodeAction {
    /// End its agent.
    Stop,
    /// Start its agent again (one of `kintsu up`; of another it says what to start where). A drain goes on.
    Start,
    /// Delete all its blocks.
    Wipe,
    /// Move its blocks elsewhere; it gets no new ones.
    Drain,
    /// End its drain: it gets new blocks again.
    Undrain,
    /// For a time (`--for`), begin no repair of its blocks by itself while it is away, for example for maintenance of its host.
    Pause,
    /// End its pause.
    Resume,
    /// Remove it from the list of nodes: only for a node that is gone for good, with no block placed on it and no log of a volume.
    Forget,
}

/// `kintsu rebuild`.
#[derive(Debug, Subcommand)]
pub enum RebuildCommand {
    /// End the rebuild: blocks that did not become part of an object count as unknown from now on, and are set
    /// aside.
    #[command(after_help = "Examples:\n  kintsu rebuild finish\n  kintsu rebuild finish --yes")]
    Finish {
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
}

/// `kintsu quarantine`.
#[derive(Debug, Subcommand)]
pub enum QuarantineCommand {
    /// List the blocks in quarantine, with the reason.
    #[command(after_help = "Examples:\n  kintsu quarantine ls\n  kintsu quarantine ls --node 3 --json")]
    Ls {
        /// Only this node (id or name).
        #[arg(long)]
        node: Option<String>,
    },
    /// Move a block back to its place.
    #[command(after_help = "Example:\n  kintsu quarantine restore 3 s300.b2.g1.unknown.1764345600.4")]
    Restore {
        /// The node that has it (id or name).
        node: String,
        /// Its name in the quarantine, as `ls` shows it.
        name: String,
    },
    /// Allow the deletion of blocks that looked unknown at once on a node. Check them first with `ls`.
    #[command(after_help = "Example:\n  kintsu quarantine confirm 3")]
    Confirm {
        /// The node (id or name).
        node: String,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// The calls of this program in a help, without comments and what else is for the shell.
    fn calls(help: &str) -> Vec<String> {
        let help = help.replace("\\\n", "");
        let lines = help.lines().map(|line| line.split(" #").next().unwrap_or_default());
        let parts = lines.flat_map(|line| line.split(['|', '&', ';', '<', '>', '(', ')'])).map(str::trim);
        // What follows a `$` is for the shell to fill in.
        parts.filter(|part| part.starts_with("kintsu ") && !part.ends_with('$')).map(str::to_owned).collect()
    }

    /// The command that a call is of, with those above it.
    fn called(call: &str) -> Vec<String> {
        let parsed = Cli::command().try_get_matches_from(call.split_whitespace());
        let parsed = parsed.unwrap_or_else(|error| panic!("{call}: {error}"));
        let names = std::iter::successors(parsed.subcommand(), |(_, below)| below.subcommand());
        names.map(|(name, _)| name.to_owned()).collect()
    }

    fn check(command: &clap::Command, path: &[String]) {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples: Vec<_> = calls(&help).iter().map(|call| called(call)).collect();
        assert!(examples.iter().any(|example| example.starts_with(path)), "no example of {path:?}");
        for below in command.get_subcommands() {
            check(below, &[path, &[below.get_name().to_owned()]].concat());
        }
    }

    #[test]
    fn every_command_has_an_example_and_all_examples_parse() {
        check(&Cli::command(), &[]);
    }
}
