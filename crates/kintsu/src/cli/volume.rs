//! The commands of `kintsu volume`.

use clap::{Args, Subcommand, ValueEnum};

use super::DEFAULT_CODE;
use crate::units::Bytes;

/// `kintsu volume ...`.
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume. It reads as zeros, and takes room when it is written to.
    #[command(after_help = "\
Examples:
  kintsu volume create disk --size 10GiB
  kintsu volume create disk --size 1TiB --code rs:n=16,k=12 --durability parity")]
    Create(VolumeCreate),
    /// List the volumes.
    #[command(after_help = "Examples:\n  kintsu volume ls\n  kintsu volume ls --json")]
    Ls,
    /// Tell about a volume.
    #[command(after_help = "Example:\n  kintsu volume stat disk")]
    Stat {
        /// Its name.
        name: String,
    },
    /// Take a snapshot of a volume: another volume, to read only, with all that was acknowledged until now.
    ///
    /// The writer goes on. The two share what is stored until it is written to: the first write to a stripe copies it on its nodes.
    /// `volume read`, `nbd`, `stat` and `rm` work on a snapshot as on a volume.
    #[command(after_help = "\
Examples:
  kintsu volume snapshot disk disk-monday
  kintsu volume read disk-monday > image
  kintsu nbd disk-monday
  kintsu volume rm disk-monday")]
    Snapshot {
        /// The volume.
        name: String,
        /// The name of the snapshot.
        snapshot: String,
    },
    /// Remove a volume with all that is in it, or a snapshot. Other snapshots keep what they share with it.
    #[command(after_help = "Example:\n  kintsu volume rm disk")]
    Rm {
        /// Its name.
        name: String,
    },
    /// Change the size of a volume. It shrinks only where no stripe is stored: none behind the new end, and none that the end cuts.
    #[command(after_help = "Example:\n  kintsu volume resize disk --size 20GiB")]
    Resize {
        /// Its name.
        name: String,
        /// Its new size.
        #[arg(long, value_name = "BYTES")]
        size: Bytes,
    },
    /// Bring what is logged for a volume into its blocks and parities now. That happens by itself in time.
    #[command(
        after_help = "Examples:\n  kintsu volume commit disk\n  kintsu volume commit disk --scheme cau --json"
    )]
    Commit {
        /// Its name.
        name: String,
        /// How parities follow: data-delta, parity-delta, cau-nogroup, cau or optimal (see docs/updates.md; nodes move no blocks, so
        /// cau is cau-nogroup here) [default: as the volume was made].
        #[arg(long, value_name = "SCHEME")]
        scheme: Option<String>,
    },
    /// Go on without updates that only nodes have which are gone for good. Their blocks are then as the last commit left them.
    ///
    /// Without --yes it asks, and says which parts of the volume are affected. Nothing is given up that a node has which answers, nor what
    /// nodes have that go away after the question; better start one of the nodes again with its folder, if that can be.
    #[command(
        after_help = "Examples:\n  kintsu volume abandon-logs disk\n  kintsu volume abandon-logs disk --yes --json"
    )]
    AbandonLogs {
        /// Its name.
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
    },
    /// Read bytes of a volume to standard output.
    #[command(after_help = "\
Examples:
  kintsu volume read disk > image
  kintsu volume read disk --offset 1MiB --length 4KiB | xxd")]
    Read(VolumeRead),
    /// Write standard input to a volume. It is durable when the command ends.
    #[command(after_help = "\
Examples:
  kintsu volume write disk < image
  echo hello | kintsu volume write disk --offset 1MiB")]
    Write(VolumeWrite),
}

/// `kintsu volume create`.
#[derive(Debug, Args)]
pub struct VolumeCreate {
    /// Its name.
    pub name: String,
    /// Its size, a multiple of 512 bytes.
    #[arg(long, value_name = "BYTES")]
    pub size: Bytes,
    /// The code.
    #[arg(long, default_value = DEFAULT_CODE)]
    pub code: String,
    /// Bytes of a block.
    #[arg(long, default_value = "1MiB", value_name = "BYTES")]
    pub block: Bytes,
    /// What a write survives from its acknowledgement until its parity has followed.
    #[arg(long, value_enum, default_value_t = Survives::Rack)]
    pub durability: Survives,
    /// How parities follow: parix, data-delta, parity-delta, cau-nogroup, cau or optimal, after the acknowledgement; or baseline,
    /// with each write (see docs/updates.md; nodes move no blocks, so cau is cau-nogroup here) [default: optimal].
    #[arg(long, value_name = "SCHEME")]
    pub scheme: Option<String>,
}

/// What a write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Survives {
    /// The loss of a node or a rack.
    Rack,
    /// The loss of a node.
    Node,
    /// As many losses as the code bears.
    Parity,
}

/// `kintsu volume read`.
#[derive(Debug, Args)]
pub struct VolumeRead {
    /// The volume.
    pub name: String,
    /// First byte.
    #[arg(long, default_value = "0", value_name = "BYTES")]
    pub offset: Bytes,
    /// How many bytes; all to the end if not given.
    #[arg(long, value_name = "BYTES")]
    pub length: Option<Bytes>,
}

/// `kintsu volume write`.
#[derive(Debug, Args)]
pub struct VolumeWrite {
    /// The volume.
    pub name: String,
    /// First byte.
    #[arg(long, default_value = "0", value_name = "BYTES")]
    pub offset: Bytes,
    /// How many bytes; all of standard input if not given.
    #[arg(long, value_name = "BYTES")]
    pub length: Option<Bytes>,
    /// Take the volume from another writer.
    #[arg(long)]
    pub take: bool,
}
