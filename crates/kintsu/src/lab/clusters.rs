//! `kintsu lab list`, `exec` and `down`: commands on emulated clusters of other processes.

use std::process::ExitCode;

use anyhow::Context;
use kintsu_lab::registry::{self, Listing};
use serde_json::json;

use crate::cli::{LabDown, LabExec};
use crate::output;

/// `kintsu lab list`.
pub fn list(as_json: bool) -> anyhow::Result<ExitCode> {
    let labs = registry::list()?;
    if as_json {
        output::json(&labs)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["name", "nodes", "racks", "coordinator", "process", "data", "command"]);
    for lab in &labs {
        let cluster = lab.cluster.as_ref();
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        table.add_row([
            lab.name.clone(),
            shown(cluster.map(|c| c.nodes.to_string())),
            shown(cluster.map(|c| c.racks.to_string())),
            shown(cluster.map(|c| c.endpoint.clone())),
            lab.process.to_string(),
            lab.dir.as_ref().map_or_else(|| "memory".into(), |dir| dir.display().to_string()),
            lab.command.clone(),
        ]);
    }
    output::line(&if labs.is_empty() { "no emulated cluster is up".into() } else { table.to_string() })?;
    Ok(ExitCode::SUCCESS)
}

/// `kintsu lab exec`: ends with the code of the command.
pub async fn exec(args: LabExec) -> anyhow::Result<ExitCode> {
    let lab = registry::find(&args.name)?;
    let shell = || vec![std::env::var_os("SHELL").unwrap_or_else(|| "sh".into())];
    let program = if args.command.is_empty() { shell() } else { args.command };
    let mut command = tokio::process::Command::from(lab.command(args.node, &program)?);
    // An interrupt from the terminal is meant for the command.
    let mut interrupts = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())?;
    let mut child = command.kill_on_drop(true).spawn().context("cannot start nsenter (util-linux)")?;
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            _ = interrupts.recv() => {}
        }
    };
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// `kintsu lab down`.
pub async fn down(args: LabDown, as_json: bool) -> anyhow::Result<ExitCode> {
    let labs: Vec<Listing> = match args.all {
        true => registry::list()?,
        false => args.names.iter().map(|name| registry::find(name)).collect::<Result<_, _>>()?,
    };
    for lab in &labs {
        lab.end().await?;
        if !as_json {
            output::line(&format!("{} is down", lab.name))?;
        }
    }
    if as_json {
        output::json(&json!({"down": labs.iter().map(|lab| &lab.name).collect::<Vec<_>>()}))?;
    }
    Ok(ExitCode::SUCCESS)
}
