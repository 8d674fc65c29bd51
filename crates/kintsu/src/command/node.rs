//! `kintsu nodes`, `node`.

use std::process::ExitCode;
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Fullness, JobEvent, NodeAction, NodeInfo};

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
    let mut table =
        output::table(["node", "rack", "state", "blocks", "lost", "stored", "free", "verified", "directory"]);
    for node in &nodes {
        table.add_row([
            node.name
                .as_ref()
                .map_or_else(|| node.id.0.to_string(), |name| format!("{} ({name})", node.id.0)),
            node.rack_name.clone().unwrap_or_else(|| node.rack.0.to_string()),
            described(node),
            node.placed_blocks.to_string(),
            node.lost_blocks.to_string(),
            node.usage.map_or(UNKNOWN.to_owned(), |usage| human(usage.bytes)),
            node.usage.map_or(UNKNOWN.to_owned(), |usage| human(usage.free_bytes)),
            verified(node),
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

/// When all blocks of a node were last verified, and how far the next pass is.
fn verified(node: &NodeInfo) -> String {
    let Some(scrub) = node.scrub else { return "not yet".to_owned() };
    let now = kintsu_wire::ambient::since_epoch().as_secs();
    let last =
        scrub.verified.map_or("not yet".to_owned(), |at| format!("{} ago", span(now.saturating_sub(at))));
    let share = (100 * scrub.done).checked_div(node.placed_blocks).unwrap_or(100).min(100);
    if scrub.ended { last } else { format!("{last}, {share}% now") }
}

/// What is shown of a disk whose agent has not told its space.
const UNKNOWN: &str = "not known yet";

/// A node's state, and how full it is if that matters.
fn described(node: &NodeInfo) -> String {
    let full = match node.fullness {
        Fullness::Full => ", full",
        Fullness::NearlyFull => ", nearly full",
        Fullness::Roomy | Fullness::Unknown => "",
    };
    let paused = if node.paused_until.is_some() { ", paused" } else { "" };
    format!("{}{paused}{full}", node.state.word())
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
    if args.time.is_some() && args.action != cli::NodeAction::Pause {
        anyhow::bail!("--for: expected with `node pause`, got it with another command");
    }
    anyhow::ensure!(args.time.is_none_or(|time| !time.is_zero()), "--for: expected a time above 0, got 0");
    let node = named(&args.node, context).await?;
    let (action, word) = match args.action {
        cli::NodeAction::Stop => (NodeAction::Stop, "stopped"),
        cli::NodeAction::Start => (NodeAction::Start, "started"),
        cli::NodeAction::Wipe => (NodeAction::Wipe, "wiped"),
        cli::NodeAction::Drain => (NodeAction::Drain, "drained"),
        cli::NodeAction::Undrain => (NodeAction::Undrain, "undrained"),
        cli::NodeAction::Pause => (NodeAction::Pause, "paused"),
        cli::NodeAction::Resume => (NodeAction::Resume, "resumed"),
        cli::NodeAction::Forget => return forget(node, args.yes, context).await,
    };
    if args.action == cli::NodeAction::Wipe {
        confirm(wipe_question(node, args.force, context).await?, args.yes).await?;
    }
    let events = match (args.time, args.force) {
        (Some(time), _) => context.client.pause_node(node, whole_seconds(time)).await?,
        (None, true) => context.client.wipe_by_force(node).await?,
        (None, false) => context.client.command_node(node, action).await?,
    };
    if matches!(action, NodeAction::Drain | NodeAction::Wipe) {
        return super::job::follow(events, context, &format!("node {} {word}", node.0)).await;
    }
    at_once(events, node, action, word, context).await
}

/// A time in seconds, rounded up: a pause is no shorter than it was asked for.
fn whole_seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

/// Waits for the end of a command that is no job.
async fn at_once(
    mut events: kintsu_client::Jobs,
    node: NodeId,
    action: NodeAction,
    word: &str,
    context: &Context,
) -> anyhow::Result<ExitCode> {
    while let Some(event) = events.next().await? {
        if !matches!(event, JobEvent::Ended(_)) {
            continue;
        }
        if context.json {
            output::json(&serde_json::json!({ "node": node.0, "action": action, "done": true }))?;
        } else {
            output::line(&format!("node {} {word}", node.0))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::bail!("the coordinator ended the call without an answer; expected one; try `kintsu nodes`")
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
        node.usage.map_or(format!("size {UNKNOWN}"), |usage| human(usage.bytes)),
        node.dir
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_no_shorter_than_it_was_asked_for() {
        for (ms, seconds) in [(1, 1), (500, 1), (1000, 1), (1001, 2), (7_200_000, 7200)] {
            assert_eq!(whole_seconds(Duration::from_millis(ms)), seconds);
        }
    }
}
