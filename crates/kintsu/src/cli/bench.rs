//! The commands of `kintsu bench`.

use std::path::PathBuf;

use clap::Subcommand;

use super::load::Load;
use crate::units::Bytes;

/// `kintsu bench ...`.
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Run all of these but load, one after the other, as they run by default; they also make the table of the documentation.
    #[command(after_help = "\
Examples:
  scripts/rivals.sh; kintsu bench all
  kintsu bench all --page README.md --page docs/measured.md     # as make bench PAGE=1")]
    All {
        /// Stripes of the measured coordinator.
        #[arg(long, default_value_t = 1_000_000)]
        stripes: u64,
        /// A folder on the disk to be measured; temporary folders in it are created and removed.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// A page whose place for the table is filled: the text from `<!-- results bench -->`, or `bench-short`, to
        /// `<!-- end -->`.
        #[arg(long, value_name = "FILE")]
        page: Vec<PathBuf>,
    },
    /// Compare the coding kernel with those of ISA-L and klauspost/reedsolomon, and encoding by graph with bare kernel
    /// calls.
    #[command(after_help = "\
Examples:
  scripts/rivals.sh; kintsu bench kernel       # the script builds what is compared with
  kintsu bench kernel --backend avx2 --json")]
    Kernel {
        /// Seconds for each case and side.
        #[arg(long, default_value_t = 0.3)]
        seconds: f64,
        /// Instruction set: avx512-gfni, avx2, neon or scalar, where this processor has it [default: the fastest]
        #[arg(long)]
        backend: Option<String>,
    },
    /// Time the planning of one (14,10) repair (parse, prove, place, lower), of 1,000 repairs over 500 nodes, and the
    /// search for paths by the rates of links.
    #[command(after_help = "Examples:\n  kintsu bench plan\n  kintsu bench plan --json")]
    Plan,
    /// Measure a coordinator with many stripes: start time, memory, latencies.
    #[command(after_help = "Example:\n  kintsu bench meta --stripes 1000000 --json")]
    Meta {
        /// How many stripes.
        #[arg(long, default_value_t = 1_000_000)]
        stripes: u64,
        /// A folder on a disk; a temporary folder in it is created and removed.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Measure the cost of small slices: a chain of helpers and a direct copy on loopback, compared with bare
    /// relays.
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
        /// A folder; a temporary folder in it is created and removed.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Measure puts and gets of small objects through a cluster in this process, compared with the disk's rate of
    /// synced files.
    #[command(after_help = "Example:\n  kintsu bench small --size 4KiB --clients 16 --dir /data/bench")]
    Small {
        /// Size of an object.
        #[arg(long, default_value = "4KiB")]
        size: Bytes,
        /// Its code.
        #[arg(long, default_value = "rs:n=9,k=6")]
        code: String,
        /// Clients at once.
        #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=512))]
        clients: u32,
        /// Objects of each client.
        #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
        objects: u32,
        /// A folder on the disk to be measured; a temporary folder in it is created and removed.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
    },
    /// Run users' workloads on a cluster and measure latencies: YCSB A to F, values and rates after published traces, or a
    /// recorded trace.
    #[command(after_help = "\
Examples:
  kintsu bench load ycsb-a --sizes 0.125 --count 0.2 --span 30s
  kintsu lab exec geo -- kintsu bench load ycsb-a --sizes 0.125 --count 0.2   # in an emulated cluster
  kintsu bench load ycsb-a ibm twitter --count 0.05 --span 15s --json         # 15 s of each in turn
  kintsu bench load requests.csv --open 2                                     # twice as fast as recorded")]
    Load(Load),
    /// Measure put and get through a cluster in this process, compared with the limits of the machine.
    #[command(after_help = "Example:\n  kintsu bench io --size 512MiB --code rs:n=9,k=6 --dir /data/bench")]
    Io {
        /// Size of the object.
        #[arg(long, default_value = "512MiB")]
        size: Bytes,
        /// Its code.
        #[arg(long, default_value = "rs:n=9,k=6")]
        code: String,
        /// A folder on the disk to be measured; a temporary folder in it is created and removed.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// Repetitions.
        #[arg(long, default_value_t = 3)]
        runs: u32,
    },
}
