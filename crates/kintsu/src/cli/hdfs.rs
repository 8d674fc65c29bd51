//! The options of `kintsu hdfs`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::ByteRange;

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
  kintsu hdfs get /warehouse/part-0 - --range 1000000-1999999 | wc -c")]
    Get {
        /// The file in HDFS.
        path: String,
        /// The file to write, or the folder to write it into.
        out: PathBuf,
        /// Bytes A to B, both included; `A-` to the end.
        #[arg(long, value_name = "A-B")]
        range: Option<ByteRange>,
    },
    /// Compare all internal blocks with their checksums and with each other: finds wrong bytes under valid checksums, which
    /// HDFS cannot see. The exit code is 2 if something is wrong.
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
    },
}
