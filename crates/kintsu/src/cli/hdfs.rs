//! The options of `kintsu hdfs`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use kintsu_lab::Rate;

use super::hdfs_store::HdfsStore;
use super::repair;
use super::serve::{AgentListeners, CoordinatorListener};
use crate::units::{ByteRange, parse_duration};

/// `kintsu hdfs ...`.
#[derive(Debug, Args)]
pub struct Hdfs {
    /// The NameNode, by its RPC port (that of fs.defaultFS); with high availability all NameNodes, separated by commas.
    #[arg(
        long,
        global = true,
        env = "KINTSU_NAMENODE",
        default_value = "127.0.0.1:8020",
        value_name = "HOST:PORT"
    )]
    pub namenode: String,
    /// The user to call as (SIMPLE authentication) [default: $HADOOP_USER_NAME, or the login name].
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// What to do.
    #[command(subcommand)]
    pub command: HdfsCommand,
}

/// What to do beside an HDFS.
#[derive(Debug, Subcommand)]
pub enum HdfsCommand {
    /// List the block groups at risk: missing internal blocks, and blocks on DataNodes that have gone silent. The exit code is
    /// 0 if all is well, 1 if groups are at risk, 2 if bytes are lost (or no answer).
    #[command(after_help = "\
Examples:
  kintsu hdfs --namenode nn1:8020,nn2:8020 status
  kintsu hdfs status /warehouse --json | jq .at_risk")]
    Status {
        /// Only files below this path.
        #[arg(default_value = "/")]
        path: String,
    },
    /// Read a file of an erasure-coding policy into OUT (`-` for standard output), also where internal blocks are missing
    /// or rotten.
    #[command(after_help = "\
Examples:
  kintsu hdfs get /warehouse/part-0 part-0
  kintsu hdfs get /warehouse/part-0 - --range 1000000-1999999 | wc -c
  kintsu --coordinator 10.77.0.1:7400 hdfs get /warehouse/part-0 - --range 1000000-1999999 --agents | wc -c
  kintsu hdfs get /warehouse/part-0 block --block blk_-9223372036854775790")]
    Get {
        /// The file in HDFS.
        path: String,
        /// The file to write, or the folder to write it into.
        out: PathBuf,
        /// Bytes A to B, both included; `A-` to the end.
        #[arg(long, value_name = "A-B")]
        range: Option<ByteRange>,
        /// One internal block of the file, by its id in HDFS, instead of the file.
        #[arg(
            long,
            value_name = "blk_ID",
            conflicts_with = "range",
            allow_hyphen_values = true,
            value_parser = block_id
        )]
        block: Option<i64>,
        /// Have the agents beside the DataNodes (those of --coordinator) decode what is lost where little is read of a group: one block
        /// comes along a chain instead of k to decode here.
        #[arg(long)]
        agents: bool,
    },
    /// Compare all internal blocks with their checksums and with each other: finds wrong bytes under valid checksums, which
    /// HDFS cannot see. The exit code is 2 if something is wrong, or lost, and 1 if something could not be read.
    #[command(after_help = "Examples:\n  kintsu hdfs verify /warehouse\n  kintsu hdfs verify / --json")]
    Verify {
        /// Only files below this path.
        #[arg(default_value = "/")]
        path: String,
    },
    /// Rebuild the internal blocks that the NameNode reports missing, and hand them over to DataNodes. Needs a superuser of
    /// HDFS.
    #[command(after_help = "Examples:\n  kintsu hdfs repair\n  kintsu hdfs repair /warehouse --user hdfs")]
    Repair {
        /// Only files below this path.
        #[arg(default_value = "/")]
        path: String,
        /// Also rebuild what is, or may be, on DataNodes in maintenance, of which HDFS lists no blocks. Without, it is left alone.
        #[arg(long)]
        despite_maintenance: bool,
    },
    /// Watch a cluster until Ctrl-C: which DataNodes are gone (seen after 10 s of silence or two refused connections), what is
    /// lost with them, and when each block is back, whoever rebuilt it. Changes nothing; a coordinator with agents repairs. Needs a
    /// superuser of HDFS.
    #[command(after_help = "\
Examples:
  kintsu hdfs watch
  kintsu hdfs watch /warehouse --json | jq -c
  kintsu --coordinator 10.77.0.1:7400 hdfs watch --agents")]
    Watch {
        /// Only files below this path.
        #[arg(default_value = "/")]
        path: String,
        /// Pause between two listings of the namespace; DataNodes and damaged groups are asked for every second.
        #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
        scan: Duration,
        /// Ask the coordinator beside HDFS (--coordinator) who brought each block back: its agents, or somebody else.
        #[arg(long)]
        agents: bool,
    },
    /// Watch a cluster and repair it, also objects of `kintsu hdfs store`, with the agents beside its DataNodes: a DataNode counts as gone after 10 s of silence or
    /// two refused connections, its blocks are rebuilt along pipelines and handed over when the NameNode reports them
    /// missing. Needs a superuser of HDFS. Prints what happens.
    #[command(after_help = "\
Examples:
  kintsu hdfs --namenode nn:8020 coordinator --listen 10.77.0.1:7400 --trusted-network 10.77.0.0/16
  kintsu hdfs coordinator --report-after 2m --repair-max-rate 20MB/s
  kintsu hdfs coordinator --method conventional --json")]
    Coordinator(HdfsCoordinator),
    /// Run an agent beside a DataNode, as the user of the DataNode: it reads the DataNode's directories, and keeps rebuilt blocks
    /// in its own folder until they are handed over.
    #[command(after_help = "\
Example:
  kintsu --coordinator 10.77.0.1:7400 hdfs agent --dir /data/kintsu --datanode 10.77.0.5:9866 \\
    --data-dir /data/hdfs --listen 10.77.0.5:7401 --listen-data 10.77.0.5:7402 --trusted-network 10.77.0.0/16")]
    Agent(HdfsAgent),
    /// Keep objects of any code in HDFS: each block on a DataNode that Kintsu chooses, with replication 1. No coordinator and no agents are
    /// needed; those that are there rebuild what is lost.
    #[command(
        subcommand,
        after_help = "\
Examples:
  kintsu hdfs store put film.mp4 /warehouse/film.mp4
  kintsu hdfs store stat /warehouse/film.mp4"
    )]
    Store(HdfsStore),
    /// Write what makes linear codes usable in a stock HDFS: the policies for `hdfs ec -addPolicies`, and the sources of a codec
    /// jar (`scripts/hdfs-codec.sh` builds it). Codes without sub-blocks, of 16 blocks at most. Says what HDFS's own readers
    /// survive. Asks no NameNode.
    #[command(after_help = "\
Examples:
  kintsu hdfs codec azure-lrc:n=16,k=12,r=6 --out codec
  kintsu hdfs codec azure-lrc:n=16,k=12,r=6 user:mine --out codec   # user:mine is registered with the cluster")]
    Codec {
        /// The codes.
        #[arg(required = true, value_name = "CODE")]
        codes: Vec<String>,
        /// The folder to write into.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
}

/// `kintsu hdfs coordinator`.
#[derive(Debug, Args)]
pub struct HdfsCoordinator {
    /// Only files below this path.
    #[arg(default_value = "/")]
    pub path: String,
    /// Where it listens for agents.
    #[command(flatten)]
    pub listener: CoordinatorListener,
    /// How blocks are rebuilt.
    #[arg(long, default_value = "auto", value_parser = repair::method())]
    pub method: kintsu_plan::Method,
    /// Pause between two scans of the namespace for new files.
    #[arg(long, default_value = "60s", value_parser = parse_duration, value_name = "TIME")]
    pub scan: Duration,
    /// Groups that are repaired at once.
    #[arg(long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub at_once: u16,
    /// Tell the NameNode that the blocks of a DataNode are lost when it has not heard it for this long (10s or more) and proved
    /// copies wait: it takes them at once, not after its own 10.5 minutes. What the DataNode has is deleted if it comes back. By
    /// default never.
    #[arg(long, value_parser = report_after, value_name = "TIME")]
    pub report_after: Option<Duration>,
    /// Most that repairs send, receive and read a second on each agent's host, such as 20MB/s [default: no limit].
    #[arg(long, value_name = "RATE")]
    pub repair_max_rate: Option<Rate>,
}

/// `kintsu hdfs agent`.
#[derive(Debug, Args)]
pub struct HdfsAgent {
    /// The folder for rebuilt blocks.
    #[arg(long)]
    pub dir: PathBuf,
    /// The DataNode's address for transfers, as the NameNode reports it (dfs.datanode.address).
    #[arg(long, value_name = "IP:PORT")]
    pub datanode: SocketAddr,
    /// A directory of the DataNode (dfs.datanode.data.dir); may be given several times.
    #[arg(long, required = true, value_name = "DIR")]
    pub data_dir: Vec<PathBuf>,
    /// Where it listens.
    #[command(flatten)]
    pub listeners: AgentListeners,
}

/// How long a DataNode may be silent before its blocks are reported lost.
fn report_after(text: &str) -> Result<Duration, String> {
    let least = Duration::from_millis(kintsu_hdfs::SILENT_MS);
    let after = parse_duration(text).map_err(|error| error.to_string())?;
    if after < least {
        return Err(format!("expected {} s or more, got {text}", least.as_secs()));
    }
    Ok(after)
}

/// The id of a block as HDFS lists it, with or without `blk_`.
fn block_id(text: &str) -> Result<i64, String> {
    let id = text.strip_prefix("blk_").unwrap_or(text);
    id.parse().map_err(|_| format!("expected a block like blk_-9223372036854775790, got {text:?}"))
}
