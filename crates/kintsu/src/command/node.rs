//! `kintsu nodes`, `status`, `node`.

use std::process::ExitCode;

use kintsu_dag::NodeId;
use kintsu_wire::message::{NodeAction, NodeState};

use super::Context;
use super::confirm::confirm;
use crate::units::{human, span};
use crate::{cli, output};

/// `kintsu nodes`.
pub async fn list(context: &Context) -> anyhow::Result<ExitCode> {
    let nodes = context.client.nodes().await?.nodes;
    if context.json {
        output::json(&nodes)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["node", "rack", "state", "blocks", "lost", "stored", "free", "directory"]);
    for node in &nodes {
        table.add_row([
            node.name
                .as_ref()
                .map_or_else(|| node.id.0.to_string(), |name| format!("{} ({name})", node.id.0)),
            node.rack_name.clone().unwrap_or_else(|| node.rack.0.to_string()),
            state(node.state).to_owned(),
            node.placed_blocks.to_string(),
            node.lost_blocks.to_string(),
            human(node.usage.bytes),
            human(node.usage.free_bytes),
            node.dir.clone(),
        ]);
    }
    output::line(&table.to_string())?;
    for node in &nodes {
        if let Some(why) = &node.failed {
            eprintln!("kintsu: the disk of node {} failed: {why}", node.id.0);
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn state(state: NodeState) -> &'static str {
    match state {
        NodeState::Alive => "alive",
        NodeState::Draining => "draining",
        NodeState::Dead => "DEAD",
        NodeState::Stopped => "stopped",
        NodeState::Failed => "DISK FAILED",
    }
}

/// `kintsu status`.
pub async fn status(context: &Context) -> anyhow::Result<ExitCode> {
    let status = context.client.status().await?;
    if context.json {
        output::json(&status)?;
        return Ok(ExitCode::SUCCESS);
    }
    let copy = status.metadata_copy.as_ref();
    let copy = copy.map_or("none".to_owned(), |copy| format!("{} ago", span(copy.age_seconds)));
    for (what, value) in [
        ("cluster", status.cluster.map_or_else(String::new, |id| id.to_string())),
        ("objects", status.objects.to_string()),
        ("object bytes", human(status.object_bytes)),
        ("stripes", status.stripes.to_string()),
        ("nodes alive", status.alive.to_string()),
        ("nodes dead or stopped", status.dead.to_string()),
        ("stripes degraded", status.degraded_stripes.to_string()),
        ("stripes unreadable", status.unreadable_stripes.to_string()),
        ("repairs pending", status.repairs_pending.to_string()),
        ("puts under way", status.puts_pending.to_string()),
        ("blocks to be deleted", status.garbage.to_string()),
        ("copy of the metadata", copy),
    ] {
        output::line(&format!("{what:22} {value}"))?;
    }
    for reason in &status.held_back {
        output::line(&format!("held back: {reason}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The node of this id or name.
pub async fn named(text: &str, context: &Context) -> anyhow::Result<NodeId> {
    if let Ok(id) = text.parse() {
        return Ok(NodeId(id));
    }
    let nodes = context.client.nodes().await?.nodes;
    match nodes.iter().find(|node| node.name.as_deref() == Some(text)) {
        Some(node) => Ok(node.id),
        None => {
            anyhow::bail!("node {text:?}: expected an id or a name that `kintsu nodes` shows, got neither")
        }
    }
}

/// `kintsu node ACTION NODE`.
pub async fn act(args: cli::Node, context: &Context) -> anyhow::Result<ExitCode> {
    if args.force && args.action != cli::NodeAction::Wipe {
        anyhow::bail!("--force: expected with `node wipe`, got it with another command");
    }
    let node = named(&args.node, context).await?;
    let (action, word) = match args.action {
        cli::NodeAction::Stop => (NodeAction::Stop, "stopped"),
        cli::NodeAction::Start => (NodeAction::Start, "started"),
        cli::NodeAction::Wipe => (NodeAction::Wipe, "wiped"),
        cli::NodeAction::Drain => (NodeAction::Drain, "drained"),
        cli::NodeAction::Forget => return forget(node, args.yes, context).await,
    };
    if args.action == cli::NodeAction::Wipe {
        confirm(wipe_question(node, args.force, context).await?, args.yes).await?;
    }
    let events = match args.force {
        true => context.client.wipe_by_force(node).await?,
        false => context.client.command_node(node, action).await?,
    };
    super::job::follow(events, context, &format!("node {} {word}", node.0)).await
}

/// Forgets a node that is gone for good.
async fn forget(node: NodeId, yes: bool, context: &Context) -> anyhow::Result<ExitCode> {
    let question =
        format!("Forget node {}: blocks that it still holds will count as unknown if it comes back?", node.0);
    confirm(question, yes).await?;
    context.client.forget_node(node).await?;
    if context.json {
        output::json(&serde_json::json!({ "node": node.0, "forgotten": true }))?;
    } else {
        output::line(&format!("node {} is forgotten", node.0))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The question before a wipe: what it would delete, as the coordinator knows it.
async fn wipe_question(id: NodeId, force: bool, context: &Context) -> anyhow::Result<String> {
    let nodes = context.client.nodes().await?.nodes;
    let Some(node) = nodes.iter().find(|node| node.id == id) else {
        anyhow::bail!("node {}: expected an id that `kintsu nodes` shows, got another", id.0);
    };
    let forced = if force { ", including blocks without which objects become unreadable" } else { "" };
    Ok(format!(
        "Wipe node {}: delete {} blocks ({}) in {}{forced}?",
        id.0,
        node.placed_blocks,
        human(node.usage.bytes),
        node.dir
    ))
}
