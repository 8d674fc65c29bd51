//! The options of `kintsu hdfs store`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::units::{ByteRange, Bytes};

/// What to do with objects in HDFS.
#[derive(Debug, Subcommand)]
pub enum HdfsStore {
    /// Store a local file as an object: it is encoded here, and each block goes to a DataNode that Kintsu chooses by its rules for
    /// racks, as a block of replication 1. In HDFS the object is a folder, which can be renamed and removed like any. Needs a
    /// superuser of HDFS, who alone may list DataNodes.
    #[command(after_help = "\
Examples:
  kintsu hdfs store put film.mp4 /warehouse/film.mp4
  kintsu hdfs store put film.mp4 /warehouse/film.mp4 --code clay:n=9,k=6,d=8 --block 8MiB --replace")]
    Put(HdfsPut),
    /// Read an object, or a file that was encoded, into OUT (`-` for standard output), also where blocks are missing or rotten.
    #[command(after_help = "\
Examples:
  kintsu hdfs store get /warehouse/film.mp4 film.mp4
  kintsu hdfs store get /warehouse/film.mp4 - --range 1000000-1999999 | wc -c
  kintsu --coordinator 10.77.0.1:7400 hdfs store get /logs/2025.tar - --range 1000000-1999999 --agents | wc -c")]
    Get {
        /// The object: its folder, or the encoded file.
        path: String,
        /// The file to write, or the folder to write it into.
        out: PathBuf,
        /// Bytes A to B, both included; `A-` to the end.
        #[arg(long, value_name = "A-B")]
        range: Option<ByteRange>,
        /// Have the agents beside the DataNodes (those of --coordinator) decode what is lost where little is read of a stripe: as for
        /// `kintsu hdfs get`.
        #[arg(long)]
        agents: bool,
    },
    /// List objects and encoded files.
    #[command(
        after_help = "Examples:\n  kintsu hdfs store ls\n  kintsu hdfs store ls /warehouse --json | jq .objects"
    )]
    Ls {
        /// Only those below this path.
        #[arg(default_value = "/")]
        path: String,
    },
    /// Tell how an object is: its code, where its blocks are, which are missing, and how many more losses it survives. The exit code is 0
    /// if all is well, 1 if blocks are missing, or two of a stripe are on one DataNode, 2 if bytes are lost (or no answer).
    #[command(after_help = "Examples:\n  kintsu hdfs store stat /warehouse/film.mp4 --json | jq .missing")]
    Stat {
        /// The object.
        path: String,
    },
    /// Remove an object with its files, or an encoded file with its parity. What Kintsu did not store stays.
    #[command(after_help = "Examples:\n  kintsu hdfs store rm /warehouse/film.mp4")]
    Rm {
        /// The object.
        path: String,
    },
    /// Compare all blocks of objects with their checksums, with the digests that were recorded when they were written, and with each other.
    /// The exit code is 2 if something is wrong, and 1 if something could not be read.
    #[command(
        after_help = "Examples:\n  kintsu hdfs store verify /warehouse\n  kintsu hdfs store verify --json"
    )]
    Verify {
        /// Only objects at or below this path.
        #[arg(default_value = "/")]
        path: String,
    },
    /// Encode a replicated file where it is: write parity to DataNodes without a copy of it, read everything back and compare it, and only
    /// then lower the file's replication to 1. The file stays as it is for all readers. Called again after it was interrupted, it
    /// goes on. Needs a superuser of HDFS.
    #[command(after_help = "\
Examples:
  kintsu hdfs store encode /logs/2025.tar --code rs:n=14,k=10
  hdfs dfs -setrep -w 3 /logs/2025.tar   # replicated again; the parity stays until kintsu hdfs store rm removes the file")]
    Encode {
        /// The file in HDFS.
        path: String,
        /// Its code, as for `put`.
        #[arg(long, default_value = "rs:n=9,k=6")]
        code: String,
        /// Unit that is coded together, for codes with sub-blocks; must divide the file's block size [default: 128 KiB or more].
        #[arg(long, value_name = "BYTES")]
        cell: Option<Bytes>,
    },
    /// Rebuild blocks that the NameNode reports missing or bad, and hand them over to DataNodes under their old names; move blocks where two
    /// of a stripe are on one DataNode. This process decodes; with agents beside the DataNodes `kintsu hdfs coordinator` rebuilds along
    /// pipelines, and earlier. Needs a superuser of HDFS.
    #[command(after_help = "\
Examples:
  kintsu hdfs store repair
  kintsu hdfs store repair /warehouse --deep   # also wrong bytes that HDFS does not know of")]
    Repair {
        /// Only objects at or below this path.
        #[arg(default_value = "/")]
        path: String,
        /// Read everything first, and tell the NameNode of blocks that are wrong, as readers do.
        #[arg(long)]
        deep: bool,
        /// Also rebuild what is, or may be, on DataNodes in maintenance, of which HDFS lists no blocks. Without, it is left alone.
        #[arg(long)]
        despite_maintenance: bool,
    },
    /// List what writes left that were killed, and the parity of encoded files that are gone: files named like Kintsu's own that no record
    /// names.
    #[command(
        after_help = "Examples:\n  kintsu hdfs store leftovers\n  kintsu hdfs store leftovers /warehouse --remove"
    )]
    Leftovers {
        /// Only below this path.
        #[arg(default_value = "/")]
        path: String,
        /// Remove them. Only while nobody writes objects there: a write that is under way has no record yet.
        #[arg(long)]
        remove: bool,
    },
}

/// `kintsu hdfs store put`.
#[derive(Debug, Args)]
pub struct HdfsPut {
    /// The file to store.
    pub file: PathBuf,
    /// The folder in HDFS that is the object.
    pub path: String,
    /// Its code, `family:key=value,...` (see `kintsu code list`), or `user:NAME` for one that is registered with the cluster of
    /// --coordinator.
    #[arg(long, default_value = "rs:n=9,k=6")]
    pub code: String,
    /// Largest block [default: 64 MiB, or somewhat more if the code's sub-blocks need it].
    #[arg(long, value_name = "BYTES")]
    pub block: Option<Bytes>,
    /// Cell: the unit coded together [default: 128 KiB, or more if the code's sub-blocks need it].
    #[arg(long, value_name = "BYTES")]
    pub cell: Option<Bytes>,
    /// Replace an object of this name, in one step.
    #[arg(long)]
    pub replace: bool,
}
