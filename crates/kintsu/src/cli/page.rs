//! The options of `kintsu page`, and of the page of `kintsu up` and `kintsu coordinator`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use kintsu_web::DEFAULT_PAGE;

/// What its help ends with.
pub const EXAMPLES: &str = "\
Examples:
  kintsu page                                      # http://127.0.0.1:7480, until Ctrl-C
  kintsu page --listen 127.0.0.1:8080 --coordinator 10.77.0.1:7400
  ssh -L 7480:127.0.0.1:7480 HOST                  # then look at HOST's page at home
  curl -s http://127.0.0.1:7480/metrics            # for Prometheus; docs/grafana.json is a dashboard";

/// `kintsu page`.
#[derive(Debug, Args)]
pub struct PageArgs {
    /// Where to listen (port 0: any free port). The page asks nobody who they are, so only addresses on loopback are
    /// allowed.
    #[arg(long, value_name = "ADDR", default_value_t = DEFAULT_PAGE)]
    pub listen: SocketAddr,
    /// Also show the results of experiments in this folder (`kintsu lab run NAME --out FOLDER`).
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
}

/// The page of a process that runs a coordinator.
#[derive(Debug, Clone, Copy, Args)]
pub struct OwnPage {
    /// Where the page is shown: an address on loopback (port 0: any free port). If the default is taken, there is no page
    /// (`kintsu page` shows one elsewhere) [default: 127.0.0.1:7480].
    #[arg(long, value_name = "ADDR")]
    pub page: Option<SocketAddr>,
    /// Show no page.
    #[arg(long, conflicts_with = "page")]
    pub no_page: bool,
}
