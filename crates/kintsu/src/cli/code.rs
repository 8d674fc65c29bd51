//! The commands of `kintsu code`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{Advise, Check, Compare, Reliability};

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
        /// The code, `family:key=value,...`, or `user:NAME` for a registered code.
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
    /// Mean time to data loss of codes, from the losses that they decode and the speed of their repairs.
    #[command(after_help = "\
Examples:
  kintsu code reliability rs:n=14,k=10 azure-lrc:n=16,k=12,r=6 --nodes 40 --racks 8
  kintsu code reliability rs:n=9,k=6 --afr 4 --bandwidth 50MB --capacity 20TB
  kintsu code reliability rs:n=9,k=6 --racks 3 --updates --window 18h   # parity follows updates within 18 hours
  kintsu code reliability --papers                      # data loss probabilities of two papers, and ours")]
    Reliability(Reliability),
    /// Recommend codes for a cluster, with reasons and caveats. If no code fits, it fails and says what change
    /// would help.
    #[command(after_help = "\
Examples:
  kintsu code advise --nodes 20 --racks 4 --tolerate 3 --overhead 1.6
  kintsu code advise --nodes 20 --racks 5 --survive-rack --objective degraded
  kintsu code advise --nodes 12 --tolerate 2 --overhead 1.3 --objective recovery --json")]
    Advise(Advise),
    /// Register a code with the cluster, which proves it first. Then use it with `put --code user:NAME`.
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
        /// Its new name, `user:NAME`; by default derived from the code's own name.
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
