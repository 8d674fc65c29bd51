//! Options of the commands that run until stopped: `kintsu up`, `coordinator` and `agent`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kintsu_coordinator::{Config, Reserve};
use kintsu_wire::TrustedNetwork;

use super::{DEFAULT_ENDPOINT, OwnPage};
use crate::units::{Bytes, parse_duration};

/// `kintsu up`.
#[derive(Debug, Args)]
pub struct Up {
    /// Number of nodes [default: 20, or as many as the folder was made with].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub nodes: Option<u32>,
    /// Number of racks; nodes are assigned to them in turn [default: 5, or as many as the folder was made with].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub racks: Option<u32>,
    /// Add nodes to a cluster that was made with fewer; existing nodes stay in their racks.
    #[arg(long, requires = "nodes")]
    pub grow: bool,
    /// Nodes whose folders are gone for good; they start with new, empty folders.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub replace: Vec<u32>,
    /// Where all data is kept: one folder for each node.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where the coordinator listens.
    #[arg(long, default_value = DEFAULT_ENDPOINT)]
    pub listen: SocketAddr,
    /// How long a node may be dead before its blocks are rebuilt elsewhere.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Options that `up` and `coordinator` share.
    #[command(flatten)]
    pub metadata: MetadataArgs,
    /// Its page.
    #[command(flatten)]
    pub page: OwnPage,
}

/// How metadata that do not match the blocks are handled, how copies of the metadata are given to agents, and what is
/// kept free.
#[derive(Debug, Clone, Args)]
pub struct MetadataArgs {
    /// Continue with metadata that are older than what the agents remember (after an older copy was restored).
    /// What was written after that copy stays missing. Without this option nothing is deleted.
    #[arg(long)]
    pub accept_older: bool,
    /// Rebuild the metadata from the agents' blocks, or complete the metadata that are there. Nothing is deleted
    /// until `kintsu rebuild finish`.
    #[arg(long, conflicts_with = "accept_older")]
    pub rebuild: bool,
    /// Blocks that the metadata do not know are set aside (quarantine), and deleted after this time.
    #[arg(long, default_value = "7d", value_parser = parse_duration, value_name = "TIME")]
    pub quarantine_keep: Duration,
    /// Each block is verified once in this time, spread evenly; 0: only by `kintsu scrub`.
    #[arg(long, default_value = "30d", value_parser = parse_duration, value_name = "TIME")]
    pub scrub_every: Duration,
    /// What is kept free on each disk, as a size or a share of it (`10GiB`, `5%`): a node with less free space gets no
    /// new blocks [default: 5%, but at most 1 GiB].
    #[arg(long, value_parser = parse_reserve, value_name = "SPACE")]
    pub reserve: Option<Reserve>,
    /// Do not measure links by short probes. Without this option they are measured when nodes come whose links are not
    /// known (a few seconds at full speed); nodes on loopback are never measured.
    #[arg(long)]
    pub no_measure: bool,
    /// What waits to be repaired is planned again at most once in this time, if links have changed. It is also the length of
    /// ChameleonEC's phases, which end earlier if all their repairs have ended.
    #[arg(long, default_value = "20s", value_parser = parse_duration, value_name = "TIME")]
    pub phase: Duration,
    /// What volumes have logged is committed when as many stripes are dirty, of all volumes together.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub dirty_stripes: u32,
    /// Number of agents that get each copy of the metadata; 0 for none.
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub metadata_copies: u16,
    /// Time between two copies of the metadata, if something changed; a clean shutdown makes one too.
    #[arg(long, default_value = "10m", value_parser = parse_duration, value_name = "TIME")]
    pub copy_every: Duration,
}

impl MetadataArgs {
    /// A coordinator's configuration with these options.
    pub fn configure(&self, config: Config) -> Config {
        Config {
            accept_older: self.accept_older,
            measure: !self.no_measure,
            rebuild: self.rebuild,
            quarantine_keep: self.quarantine_keep,
            scrub_every: self.scrub_every,
            reserve: self.reserve.unwrap_or_default(),
            // A phase ends at a tick.
            phase: self.phase.max(Duration::from_millis(100)),
            most_dirty: self.dirty_stripes as usize,
            metadata_copies: self.metadata_copies.into(),
            // A shorter time would mean one copy after the other, without a pause.
            copy_every: self.copy_every.max(Duration::from_millis(100)),
            ..config
        }
    }
}

/// Where a coordinator listens, also one beside an HDFS.
#[derive(Debug, Clone, Args)]
pub struct CoordinatorListener {
    /// Where to listen.
    #[arg(long, default_value = DEFAULT_ENDPOINT)]
    pub listen: SocketAddr,
    /// Where it may listen besides loopback.
    #[command(flatten)]
    pub trusted: Trusted,
}

/// Where an agent listens, also one beside a DataNode.
#[derive(Debug, Clone, Args)]
pub struct AgentListeners {
    /// Where to listen for commands (port 0: any free port).
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,
    /// Where to listen for slices (port 0: any free port).
    #[arg(long, default_value = "127.0.0.1:0")]
    pub listen_data: SocketAddr,
    /// Where it may listen besides loopback.
    #[command(flatten)]
    pub trusted: Trusted,
}

/// Where plain text may be spoken besides loopback.
#[derive(Debug, Clone, Copy, Args)]
pub struct Trusted {
    /// A trusted network that is yours alone, such as 10.77.0.0/16, where it may listen in plain text. A token is
    /// required. Everybody on that network can read what is stored.
    #[arg(long, value_name = "CIDR")]
    pub trusted_network: Option<TrustedNetwork>,
}

/// `kintsu coordinator`.
#[derive(Debug, Args)]
pub struct CoordinatorArgs {
    /// Where the metadata are kept.
    #[arg(long)]
    pub dir: PathBuf,
    /// Where it listens.
    #[command(flatten)]
    pub listener: CoordinatorListener,
    /// How long a node may be dead before its blocks are rebuilt elsewhere.
    #[arg(long, default_value = "60s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Options that `up` and `coordinator` share.
    #[command(flatten)]
    pub metadata: MetadataArgs,
    /// Restore the metadata into an empty folder from this file of `kintsu backup`; `auto` for the newest copy
    /// that an agent keeps.
    #[arg(long, value_name = "FILE|auto")]
    pub restore: Option<PathBuf>,
    /// With `--restore auto`: wait this long for the next agent after each one.
    #[arg(long, default_value = "5s", value_parser = parse_duration, value_name = "TIME")]
    pub restore_wait: Duration,
    /// Its page.
    #[command(flatten)]
    pub page: OwnPage,
}

/// `kintsu agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Where the blocks are kept.
    #[arg(long)]
    pub dir: PathBuf,
    /// Its rack: a number, or a name such as dc1/r7.
    #[arg(long, default_value = "0", value_parser = parse_rack)]
    pub rack: Rack,
    /// Its id; by default the one in its folder, or a new one.
    #[arg(long)]
    pub id: Option<u32>,
    /// A name that commands accept instead of its id.
    #[arg(long, value_parser = parse_name)]
    pub name: Option<String>,
    /// This folder replaces the former folder of the node (--id or --name), which is gone for good: a new disk, or
    /// a folder whose node.json was lost.
    #[arg(long)]
    pub replace: bool,
    /// The node was moved to another rack together with its blocks.
    #[arg(long)]
    pub moved: bool,
    /// Where it listens.
    #[command(flatten)]
    pub listeners: AgentListeners,
}

/// A rack as users name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rack {
    /// By its number.
    Number(u32),
    /// By a name.
    Name(String),
}

fn parse_reserve(text: &str) -> Result<Reserve, String> {
    let expected = |_| format!("expected a size such as 10GiB, or a share such as 5%, got {text:?}");
    match text.strip_suffix('%') {
        None => Ok(Reserve::bytes(text.parse::<Bytes>().map_err(expected)?.0)),
        Some(share) => {
            let share: f64 = share.trim().parse().map_err(|_| expected(String::new()))?;
            if !(0.0..=100.0).contains(&share) {
                return Err(expected(String::new()));
            }
            // The smallest share is 0.1%: nothing is kept free only where that was asked for.
            let per_mille = ((share * 10.0).round() as u64).max(u64::from(share > 0.0));
            Ok(Reserve { per_mille, most_bytes: u64::MAX })
        }
    }
}

fn parse_rack(text: &str) -> Result<Rack, String> {
    match text.parse() {
        Ok(number) => Ok(Rack::Number(number)),
        Err(_) => parse_name(text).map(Rack::Name),
    }
}

/// A name of a node or a rack: not a number, short, printable, without spaces.
fn parse_name(text: &str) -> Result<String, String> {
    let fits = (1..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    if fits && text.parse::<u64>().is_err() {
        return Ok(text.to_owned());
    }
    Err("expected a name of 1 to 64 printable characters without spaces that is no number".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_share_that_is_kept_free_is_not_none() {
        let per_mille = |text: &str| parse_reserve(text).map(|reserve| reserve.per_mille);
        for (text, expected) in
            [("0%", 0), ("0.04%", 1), ("0.1%", 1), ("1.1 %", 11), ("5%", 50), ("100%", 1000)]
        {
            assert_eq!(per_mille(text), Ok(expected), "{text}");
        }
        assert_eq!(parse_reserve("10GiB"), Ok(Reserve::bytes(10 << 30)));
        for text in ["", "%", "-1%", "101%", "NaN%", "some"] {
            assert!(parse_reserve(text).unwrap_err().contains("expected"), "{text}");
        }
    }
}
