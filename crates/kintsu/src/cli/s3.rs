//! The options of `kintsu s3`.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kintsu_s3::EntityTags;
use kintsu_wire::TrustedNetwork;

use crate::units::{Bytes, parse_duration};

/// Where its metrics are, unless another address is given.
pub const DEFAULT_METRICS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7431);

/// What its help ends with.
pub const EXAMPLES: &str = "\
Examples:
  kintsu s3 --keys keys.toml                       # http://127.0.0.1:7430, until Ctrl-C
  kintsu s3 --keys keys.toml --code rs:n=9,k=6 --class STANDARD_IA=rs:n=14,k=10

The file of keys (it is read again when it changes; keep it readable by yourself only):
  [[key]]
  access = \"AKIDALICE0001\"
  secret = \"a-long-random-text\"
  user = \"alice\"
  create = true                  # may make buckets; whoever makes one owns it
  [key.buckets]                  # rights for buckets of others, by pattern
  \"logs-*\" = [\"read\", \"list\"]  # read, write, list, admin

What clients do with it:
  aws --endpoint-url http://127.0.0.1:7430 s3 mb s3://photos
  rclone sync ./photos :s3,provider=Other,endpoint=\"http://127.0.0.1:7430\",env_auth:photos
  restic -r s3:http://127.0.0.1:7430/backup init

For Prometheus (docs/grafana.json is a dashboard):
  curl -s http://127.0.0.1:7431/metrics

A bucket's code is its tag kintsu.code. What is served and what is not: docs/s3.md.";

/// `kintsu s3`.
#[derive(Debug, Args)]
pub struct S3 {
    /// The file of keys: who may call, with which secrets, and what each may do.
    #[arg(long, value_name = "FILE", env = "KINTSU_S3_KEYS")]
    pub keys: PathBuf,
    /// Where to listen (port 0: any free port). Requests are signed; with --tls they and the objects are also encrypted.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7430")]
    pub listen: SocketAddr,
    /// Speak plain HTTP although there is --tls, which is then for the cluster only: behind a proxy that speaks TLS.
    #[arg(long)]
    pub http: bool,
    /// A trusted network that is yours alone, such as 10.77.0.0/16, where it may listen in plain text.
    #[arg(long, value_name = "CIDR")]
    pub trusted_network: Option<TrustedNetwork>,
    /// Where Prometheus reads its metrics: an address on loopback (port 0: any free port). If the default is taken, there are
    /// none [default: 127.0.0.1:7431].
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<SocketAddr>,
    /// Tell no metrics.
    #[arg(long, conflicts_with = "metrics")]
    pub no_metrics: bool,
    /// The code of new objects for which neither their bucket nor their storage class chooses one.
    #[arg(long, value_name = "CODE", default_value = "rs:n=9,k=6")]
    pub code: String,
    /// The code of a storage class, such as STANDARD_IA=rs:n=14,k=10. May be given several times; classes without a
    /// code are refused.
    #[arg(long = "class", value_name = "CLASS=CODE", value_parser = parse_class)]
    pub classes: Vec<(String, String)>,
    /// What entity tags of objects are made of that come in one request: md5, which clients may compare, or crc64 (and the size),
    /// which costs no time. An MD5 that a client sends is compared either way, and is the tag then.
    #[arg(long, value_name = "KIND", value_enum, default_value = "md5")]
    pub etags: Etags,
    /// Bytes in memory; requests that need more wait. One user has half of them at most.
    #[arg(long, value_name = "BYTES", default_value = "1GiB")]
    pub memory: Bytes,
    /// Requests that are carried out at one time; further ones wait.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub requests: u16,
    /// Connections at one time. One more closes one without a request, or is refused.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub connections: u16,
    /// Requests wait this long for their turn or for memory; then they are refused with SlowDown. Whoever has memory meanwhile must
    /// send or take 256 KiB a second in a quarter of this time.
    #[arg(long, value_name = "TIME", default_value = "20s", value_parser = parse_duration)]
    pub patience: Duration,
    /// A client that sends or takes nothing for this long ends its request.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    pub idle: Duration,
    /// The length of a day in lifecycle rules: for tests of rules, which then need not wait for days.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = parse_duration, hide_short_help = true)]
    pub lifecycle_day: Duration,
    /// At the end, wait this long for requests under way.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    pub wait: Duration,
}

/// What entity tags are made of.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Etags {
    /// The MD5 of the bytes.
    Md5,
    /// Their CRC-64 and number, with -1 behind it.
    Crc64,
}

impl From<Etags> for EntityTags {
    fn from(etags: Etags) -> Self {
        match etags {
            Etags::Md5 => Self::Md5,
            Etags::Crc64 => Self::Crc64,
        }
    }
}

fn parse_class(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((class, code)) if !class.is_empty() && !code.is_empty() => Ok((class.into(), code.into())),
        _ => Err(format!("expected CLASS=CODE, such as STANDARD_IA=rs:n=14,k=10, got {text:?}")),
    }
}
