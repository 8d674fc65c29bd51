//! `kintsu health`, `status`, `df`.

use std::process::ExitCode;

use kintsu_dag::NodeId;
use kintsu_wire::message::{Cause, ComparedStripes, DamagedStripe, Health, Level, Space};
use serde_json::json;

use super::Context;
use crate::units::{human, span};
use crate::{cli, output};

/// `kintsu health`: the exit code is the verdict. A cluster that does not answer, or cannot be asked, is an error.
pub async fn health(
    args: cli::Health,
    cli: anyhow::Result<cli::Endpoint>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let health = match ask(args.stripes, cli).await {
        Ok(health) => health,
        Err(error) => {
            let headline = format!("{}: {error:#}", Level::Error);
            let level = Level::Error;
            Health { verdict: level, headline, causes: Vec::new() }
        }
    };
    if json {
        output::json(&health)?;
    } else {
        output::line(&health.headline)?;
        for cause in &health.causes {
            print(cause)?;
        }
    }
    Ok(match health.verdict {
        Level::Healthy => ExitCode::SUCCESS,
        Level::Warning => ExitCode::from(1),
        Level::Error => ExitCode::from(2),
    })
}

async fn ask(stripes: u32, cli: anyhow::Result<cli::Endpoint>) -> anyhow::Result<Health> {
    Ok(cli?.client().await?.health(stripes).await?)
}

fn print(cause: &Cause) -> anyhow::Result<()> {
    let level = match cause.level {
        Level::Healthy => "note".to_owned(),
        level => level.to_string(),
    };
    output::line("")?;
    output::line(&format!("{level}: {}", cause.title))?;
    for detail in &cause.details {
        output::line(&format!("  {detail}"))?;
    }
    for stripe in &cause.stripes {
        output::line(&format!("  {}", described(stripe)))?;
    }
    let shown = cause.stripes.len() as u64;
    if shown > 0 && shown < cause.count {
        let count = cause.count;
        output::line(&format!(
            "  and {} more stripes: `kintsu health --stripes {}` names them",
            count - shown,
            count.min(10_000)
        ))?;
    }
    output::line(&format!("  to do: {}", cause.advice))
}

/// `stripe s7 of "iso" (rs:n=9,k=6) cannot be read: b0 on node 3 (down), b4 on node 5 (lost)`.
fn described(stripe: &DamagedStripe) -> String {
    let absent = stripe.absent.iter().map(|block| {
        let why = if block.lost { "lost" } else { "down" };
        format!("{} on node {} ({why})", block.index, block.node.0)
    });
    let absent: Vec<String> = absent.collect();
    let state = match (stripe.readable, stripe.bears) {
        (false, _) => "cannot be read".to_owned(),
        (true, 0) => "may not survive another loss".to_owned(),
        (true, more) => format!("survives {more} more"),
    };
    let others = match stripe.others {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    let volume = if stripe.volume { "volume " } else { "" };
    format!(
        "stripe {} of {volume}{:?}{others} ({}) {state}: {}",
        stripe.stripe,
        stripe.object,
        stripe.code,
        absent.join(", ")
    )
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
    let now = kintsu_wire::ambient::since_epoch().as_secs();
    for (what, value) in [
        ("health", status.health.headline),
        ("cluster", status.cluster.map_or_else(String::new, |id| id.to_string())),
        ("objects", status.objects.to_string()),
        ("object bytes", human(status.object_bytes)),
        ("stripes", status.stripes.to_string()),
        ("nodes alive", status.alive.to_string()),
        ("nodes dead or stopped", status.dead.to_string()),
        ("stripes degraded", status.degraded_stripes.to_string()),
        ("stripes unreadable", status.unreadable_stripes.to_string()),
        ("stripes compared", compared(status.compared, status.stripes, now)),
        ("repairs pending", status.repairs_pending.to_string()),
        ("puts under way", status.puts_pending.to_string()),
        ("blocks to be deleted", status.garbage.to_string()),
        ("copy of the metadata", copy),
        ("repairs", status.repair_limit.map_or_else(String::new, |limit| limit.to_string())),
    ] {
        output::line(&format!("{what:22} {value}"))?;
    }
    for reason in &status.held_back {
        output::line(&format!("held back: {reason}"))?;
    }
    if status.health.verdict > Level::Healthy {
        output::line("`kintsu health` says what to do")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// When a pass over all `stripes` last ended that compares them with their codes, how far the next one is, and what was left out.
fn compared(compared: Option<ComparedStripes>, stripes: u64, now: u64) -> String {
    let Some(ComparedStripes { pass, waiting, not_compared, not_compared_before }) = compared else {
        return "no: the scrub is switched off".to_owned();
    };
    let without = |count: u64| match count {
        0 => String::new(),
        count => format!(" ({count} not compared)"),
    };
    let last = match pass.and_then(|pass| pass.verified) {
        Some(at) => format!("{} ago{}", span(now.saturating_sub(at)), without(not_compared_before)),
        None => "not yet".to_owned(),
    };
    let under_way = pass.filter(|pass| !pass.ended && pass.done > 0);
    let next = under_way.map(|pass| {
        let done = pass.done.min(stripes);
        format!("{done} of {stripes} now{}", without(not_compared))
    });
    let wait = (waiting > 0).then(|| format!("{waiting} to be tried again"));
    [Some(last), next, wait].into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// How the sizes for codes are to be understood.
const APPROXIMATION: &str = "an estimate: blocks of one size, spread as well as the nodes and racks allow, one block of a \
                             stripe on a node, n-k in a rack";

/// `kintsu df`.
pub async fn df(args: cli::Df, context: &Context) -> anyhow::Result<ExitCode> {
    let codes = match args.code.is_empty() && context.client.status().await?.objects == 0 {
        true => vec![cli::DEFAULT_CODE.to_owned()],
        false => args.code,
    };
    let space = context.client.space(&codes).await?;
    if context.json {
        let mut value = serde_json::to_value(&space)?;
        value["approximation"] = json!(APPROXIMATION);
        output::json(&value)?;
        return Ok(ExitCode::SUCCESS);
    }
    print_space(&space)?;
    let mut table = output::table(["code", "usable", "overhead", ""]);
    for code in &space.codes {
        table.add_row([
            code.code.clone(),
            code.usable_bytes.map_or("nothing".to_owned(), human),
            format!("{:.2}", code.overhead),
            code.note.clone().unwrap_or_default(),
        ]);
    }
    if !space.codes.is_empty() {
        output::line("")?;
        output::line(&table.to_string())?;
        output::line(&format!("usable: bytes of objects that still fit; {APPROXIMATION}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_space(space: &Space) -> anyhow::Result<()> {
    let media =
        if space.media == 1 { "1 file system".into() } else { format!("{} file systems", space.media) };
    for (what, value) in [
        ("raw", format!("{} on {media} of {} nodes", human(space.raw_bytes), space.nodes)),
        ("used by blocks", human(space.used_bytes)),
        ("in quarantine", human(space.aside_bytes)),
        ("used by others", human(space.other_bytes)),
        ("reserved", human(space.reserved_bytes)),
        ("free for blocks", human(space.free_bytes)),
    ] {
        output::line(&format!("{what:22} {value}"))?;
    }
    let list = |nodes: &[NodeId]| nodes.iter().map(|n| n.0.to_string()).collect::<Vec<_>>().join(", ");
    if !space.unknown.is_empty() {
        output::line(&format!("not known yet: space of nodes {}", list(&space.unknown)))?;
    }
    if !space.closed.is_empty() {
        output::line(&format!("no new blocks (down, draining or full): nodes {}", list(&space.closed)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockIndex, StripeId};
    use kintsu_wire::message::{AbsentBlock, NodeScrub};

    #[test]
    fn what_was_compared_is_shown_with_what_was_left_out() {
        let day = 86_400;
        let text = |counts| compared(Some(counts), 300, 100 * day);
        let pass = NodeScrub { began: 96 * day, done: 120, upto: None, ended: false, verified: None };
        let none = ComparedStripes::default();
        assert_eq!(text(none), "not yet");
        assert_eq!(text(ComparedStripes { pass: Some(NodeScrub { done: 0, ..pass }), ..none }), "not yet");
        let first = ComparedStripes { pass: Some(pass), waiting: 7, ..none };
        assert_eq!(text(first), "not yet; 120 of 300 now; 7 to be tried again");
        let verified = Some(97 * day);
        let pass = Some(NodeScrub { verified, ..pass });
        let second = ComparedStripes { pass, waiting: 0, not_compared: 2, not_compared_before: 5 };
        assert_eq!(text(second), "3 days ago (5 not compared); 120 of 300 now (2 not compared)");
        let ended = pass.map(|pass| NodeScrub { done: 300, ended: true, ..pass });
        let ended = ComparedStripes { pass: ended, not_compared: 0, ..second };
        assert_eq!(text(ended), "3 days ago (5 not compared)");
        assert!(compared(None, 300, 0).contains("switched off"));
    }

    #[test]
    fn a_damaged_stripe_is_said_to_be_of_a_volume_or_of_objects() {
        let absent = vec![AbsentBlock { index: BlockIndex(0), node: NodeId(3), lost: false }];
        let (object, code) = ("disk".to_owned(), "rs:n=4,k=2".to_owned());
        let (stripe, readable) = (StripeId(7), true);
        let of = DamagedStripe { stripe, object, volume: true, others: 0, code, readable, bears: 1, absent };
        let text = "stripe s7 of volume \"disk\" (rs:n=4,k=2) survives 1 more: b0 on node 3 (down)";
        assert_eq!(described(&of), text);
        let shared = DamagedStripe { volume: false, others: 2, ..of };
        assert!(
            described(&shared).starts_with("stripe s7 of \"disk\" and 2 more ("),
            "{}",
            described(&shared)
        );
    }
}
