//! `kintsu ca`: a cluster's certificates.

use std::process::ExitCode;
use std::time::Duration;

use kintsu_wire::ClusterId;
use kintsu_wire::tls::{Authority, Issue};
use serde_json::json;

use crate::cli::{CaCommand, CaInit, CaIssue};
use crate::output;

const DAY: Duration = Duration::from_secs(86_400);

/// Makes an authority, or has one issue a certificate.
pub fn run(command: CaCommand, as_json: bool) -> anyhow::Result<ExitCode> {
    match command {
        CaCommand::Init(args) => init(&args, as_json)?,
        CaCommand::Issue(args) => issue(args, as_json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn init(args: &CaInit, as_json: bool) -> anyhow::Result<()> {
    let cluster = args.cluster.map_or_else(ClusterId::random, Ok)?;
    let authority = Authority::init(&args.dir, cluster)?;
    if as_json {
        return output::json(&json!({"cluster": authority.cluster(), "dir": args.dir}));
    }
    output::line(&format!("the authority of cluster {} is in {}", authority.cluster(), args.dir.display()))
}

fn issue(args: CaIssue, as_json: bool) -> anyhow::Result<()> {
    let CaIssue { dir, roles, hosts, out, days, replace } = args;
    let authority = Authority::open(&dir)?;
    let badge = authority.issue(&Issue { roles, hosts, valid: DAY * days, out: out.clone(), replace })?;
    if as_json {
        return output::json(&json!({"uris": badge.uris(), "days": days, "dir": out}));
    }
    output::line(&format!("{badge}, valid for {days} days: {}", out.display()))
}
