//! `kintsu quarantine`: the blocks that are set aside on the nodes.

use std::process::ExitCode;

use serde_json::json;

use super::Context;
use super::node::named;
use crate::cli::QuarantineCommand;
use crate::output;
use crate::units::{human, span};

/// `kintsu quarantine ls|restore|confirm`.
pub async fn run(command: QuarantineCommand, context: &Context) -> anyhow::Result<ExitCode> {
    match command {
        QuarantineCommand::Ls { node } => list(node, context).await,
        QuarantineCommand::Restore { node, name } => {
            let node = named(&node, context).await?;
            let held = context.client.restore_block(node, &name).await?;
            if context.json {
                output::json(&held)?;
            } else {
                output::line(&format!("{} is back in its place on node {}", held.id, node.0))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        QuarantineCommand::Confirm { node } => {
            let node = named(&node, context).await?;
            context.client.confirm_quarantine(node).await?;
            if context.json {
                output::json(&json!({ "node": node.0, "confirmed": true }))?;
            } else {
                output::line(&format!("node {}: blocks in its quarantine are deleted in time", node.0))?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn list(node: Option<String>, context: &Context) -> anyhow::Result<ExitCode> {
    let node = match node {
        Some(node) => Some(named(&node, context).await?),
        None => None,
    };
    let found = context.client.quarantine(node).await?;
    let unseen = found.nodes.iter().any(|node| node.error.is_some());
    let code = if unseen { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if context.json {
        output::json(&found)?;
        return Ok(code);
    }
    let mut table = output::table(["node", "block", "reason", "age", "size", "deleted", "name"]);
    let mut rows = 0;
    for node in &found.nodes {
        for block in &node.aside {
            let deleted = match node.held {
                0 => format!("in {}", span(found.keep_s.saturating_sub(block.age_s))),
                _ => "not before confirm".to_owned(),
            };
            table.add_row([
                node.node.0.to_string(),
                block.id.to_string(),
                block.reason.clone(),
                span(block.age_s),
                human(block.bytes),
                deleted,
                block.name.clone(),
            ]);
            rows += 1;
        }
    }
    if rows > 0 {
        output::line(&table.to_string())?;
    } else {
        output::line("nothing is set aside")?;
    }
    for node in &found.nodes {
        if let Some(error) = &node.error {
            eprintln!("kintsu: node {}: its quarantine could not be listed: {error}", node.node.0);
        }
        if node.held > 0 {
            let (id, held) = (node.node.0, node.held);
            eprintln!(
                "kintsu: node {id}: {held} blocks looked unknown at once: nothing in its quarantine is deleted before \
                 `kintsu quarantine confirm {id}`"
            );
        }
    }
    Ok(code)
}
