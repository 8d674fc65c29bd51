//! `kintsu rebuild`: the rebuild of the metadata from blocks.

use std::process::ExitCode;

use kintsu_wire::message::RebuildStatus;

use super::Context;
use super::confirm::confirm;
use crate::cli::RebuildCommand;
use crate::{output, units::human};

/// Shows its progress, or ends it.
pub async fn run(command: Option<RebuildCommand>, context: &Context) -> anyhow::Result<ExitCode> {
    let status = match command {
        None => context.client.rebuild().await?,
        Some(RebuildCommand::Finish { yes }) => {
            let now = context.client.rebuild().await?;
            let question = format!(
                "{} agents have reported all blocks, {} objects are back, {} are incomplete. Blocks without an object will be \
                 set aside. Finish the rebuild?",
                now.agents, now.shown, now.incomplete
            );
            confirm(question, yes).await?;
            context.client.finish_rebuild().await?
        }
    };
    if context.json {
        output::json(&status)?;
        return Ok(ExitCode::SUCCESS);
    }
    show(&status)?;
    Ok(ExitCode::SUCCESS)
}

fn show(status: &RebuildStatus) -> anyhow::Result<()> {
    if !status.active && status.agents == 0 {
        return output::line("no rebuild of the metadata is active");
    }
    for (what, value) in [
        ("agents that told all", status.agents),
        ("blocks found", status.blocks),
        ("blocks of old formats", status.without_label),
        ("objects back", status.shown),
        ("objects removed", status.removed),
        ("objects incomplete", status.incomplete),
        ("older versions", status.covered),
    ] {
        output::line(&format!("{what:22} {value}"))?;
    }
    if let Some(why) = &status.waiting {
        output::line(&format!("waiting: {why}"))?;
    }
    for object in &status.first_incomplete {
        let (name, version, size) = (&object.name, object.version, human(object.size));
        output::line(&format!("incomplete: {name:?} (version {version}, {size}): {}", object.missing))?;
    }
    for object in &status.first_covered {
        let (name, version, size) = (&object.name, object.version, human(object.size));
        output::line(&format!(
            "older: {name:?} (version {version}, {size}) is covered by version {}",
            object.by
        ))?;
    }
    if status.active && status.covered > 0 {
        output::line(
            "Older versions were replaced, or the newer one is of a put that failed; the metadata that knew are lost. \
             `kintsu rm NAME` now brings back the older version.",
        )?;
    }
    if status.active {
        output::line("`kintsu rebuild finish` ends the rebuild; until then nothing is deleted.")?;
    }
    Ok(())
}
