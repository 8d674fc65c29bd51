//! `kintsu lab up`: an emulated cluster that runs until it is ended.

use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use kintsu_lab::registry::{self, Listing};
use kintsu_lab::{Entry, Lab, Options, Place, Spec};
use serde_json::json;

use crate::cli::LabUp;
use crate::output;

/// Marks the background process, which has the same arguments as the one in the foreground.
const IN_BACKGROUND: &str = "KINTSU_LAB_DETACHED";

/// `kintsu lab up`.
pub async fn run(args: LabUp, json: bool) -> anyhow::Result<ExitCode> {
    // Errors in the description are reported before anything is started.
    let spec = describe(&args)?;
    if args.detach && std::env::var_os(IN_BACKGROUND).is_none() {
        return detach(json).await;
    }
    let entry = Entry { name: args.name.clone(), dir: args.dir.clone() };
    if let Place::Left(code) = kintsu_lab::enter(&entry).await? {
        return Ok(code);
    }
    // No probe finds the limits of pairs.
    let tell_rates = !spec.rates().pairs.is_empty();
    let options = Options { grace: args.grace, tell_rates, measure: true, ..Options::default() };
    let lab = tokio::select! {
        lab = Lab::up(&spec, options) => lab?,
        code = crate::command::interrupted() => return code,
    };
    announce(&lab, &spec, json)?;
    let changes = lab.start_changes().await;
    let interrupted = crate::command::interrupted().await;
    drop(changes);
    lab.down().await;
    interrupted.map(|_| ExitCode::SUCCESS)
}

fn describe(args: &LabUp) -> anyhow::Result<Spec> {
    let spec = match &args.topology {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            Spec::from_toml(&text).with_context(|| path.display().to_string())?
        }
        None => Spec::even(args.nodes, args.racks, args.rate).with_rack_links(args.rack_rate),
    };
    spec.check()?;
    Ok(spec)
}

fn announce(lab: &Lab, spec: &Spec, json: bool) -> anyhow::Result<()> {
    let (endpoint, data, hosts) = (lab.endpoint(), lab.data(), lab.hosts());
    let name = lab.name();
    if json {
        return output::json(&json!({
            "name": name,
            "listen": endpoint,
            "token": lab.token(),
            "data": data,
            "nodes": hosts,
        }));
    }
    let room = kintsu_lab::room(data)
        .map_or_else(String::new, |bytes| format!(", {} free", crate::units::human(bytes)));
    output::line(&format!(
        "{name}: {} nodes in {} racks; coordinator on {endpoint}; data in {}{room}",
        hosts.len(),
        spec.racks.len(),
        data.display()
    ))?;
    output::line(&format!("kintsu lab exec {name} -- kintsu nodes"))?;
    output::line(&format!("Ctrl-C or `kintsu lab down {name}` takes it down and removes its data."))
}

/// Starts the same command again in a new session, and waits until its cluster is up.
async fn detach(json: bool) -> anyhow::Result<ExitCode> {
    let log = tempfile::Builder::new().prefix("kintsu-lab-").suffix(".log").tempfile()?;
    let mut command = tokio::process::Command::new("setsid");
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).env(IN_BACKGROUND, "1");
    command.stdin(Stdio::null()).stdout(log.reopen()?).stderr(log.reopen()?);
    let mut child = command.spawn().context("cannot start setsid (util-linux)")?;
    let id = child.id().context("the process in the background")?;
    let lab = loop {
        if let Some(status) = child.try_wait()? {
            let said = std::fs::read_to_string(log.path()).unwrap_or_default();
            bail!("the emulated cluster did not come up ({status}): {}", said.trim());
        }
        let up = |lab: &Listing| lab.process == id && lab.cluster.is_some();
        if let Some(lab) = registry::list()?.into_iter().find(up) {
            break lab;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    if json {
        output::json(&lab)?;
    } else {
        output::line(&format!(
            "{} is up; `kintsu lab exec {0} -- kintsu nodes`, `kintsu lab down {0}`",
            lab.name
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
