//! `kintsu ca`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kintsu_wire::ClusterId;
use kintsu_wire::tls::Role;

/// What to do with certificates.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Make a cluster's certificate authority.
    #[command(after_help = "\
Examples:
  kintsu ca init ./ca
  kintsu ca init ./ca --cluster $(kintsu status --json | jq -r .cluster)   # of a cluster that has run without TLS")]
    Init(CaInit),
    /// Issue a certificate: a folder for `--tls`.
    #[command(after_help = "\
Examples:
  kintsu ca issue ./ca --role coordinator --out ./coordinator
  kintsu ca issue ./ca --role agent/3 --role agent/4 --out ./host7      # two disks of one host
  kintsu ca issue ./ca --role operator/carol --days 7 --out ./carol
  kintsu ca issue ./ca --role agent/3 --out ./node3 --replace           # a running process takes it over in seconds")]
    Issue(CaIssue),
}

/// `kintsu ca init`.
#[derive(Debug, Args)]
pub struct CaInit {
    /// The folder of the authority; made if absent. Whoever has its key can be anybody in the cluster.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The id of a cluster that exists; by default a new one, which the coordinator takes over with its certificate.
    #[arg(long, value_name = "ID")]
    pub cluster: Option<ClusterId>,
}

/// `kintsu ca issue`.
#[derive(Debug, Args)]
pub struct CaIssue {
    /// The folder of the authority.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// What the owner of the certificate is: coordinator, agent/NODE, client, client/NAME, operator or operator/NAME (the name
    /// appears in audit lines). May be given several times.
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub roles: Vec<Role>,
    /// A name or an address of the host, for clients that compare it: those of `kintsu s3`. May be given several times.
    #[arg(long = "host", value_name = "HOST")]
    pub hosts: Vec<String>,
    /// The folder for the files; made if absent.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// How many days it is valid. It cannot be called back before.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: u32,
    /// Replace the files that are in the folder.
    #[arg(long)]
    pub replace: bool,
}
