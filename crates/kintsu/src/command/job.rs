//! Jobs that the coordinator conducts: `encode`, `repair`, `scrub`, draining a node.

use std::process::ExitCode;

use kintsu_client::Jobs;
use kintsu_dag::NodeId;
use kintsu_wire::message::{JobEvent, JobReport, Repair, RepairTarget, Requestors};
use serde_json::{Value, json};

use super::Context;
use crate::{cli, output, progress, units::human};

/// `kintsu encode`.
pub async fn encode(args: cli::Name, context: &Context) -> anyhow::Result<ExitCode> {
    let events = context.client.encode(&args.name).await?;
    follow(events, context, &format!("{} encoded", args.name)).await
}

/// `kintsu repair`.
pub async fn repair(args: cli::Repair, context: &Context) -> anyhow::Result<ExitCode> {
    let target = match (args.node, args.object) {
        (Some(node), _) => RepairTarget::Node(NodeId(node)),
        (None, Some(object)) => RepairTarget::Object(object),
        (None, None) => RepairTarget::All,
    };
    let requestors = match (args.requestors, args.to) {
        (Some(count), _) => Requestors::Count(count),
        (None, to) if to.is_empty() => Requestors::Any,
        (None, to) => Requestors::Nodes(to.into_iter().map(NodeId).collect()),
    };
    let repair = Repair {
        target,
        method: args.method.into(),
        slice_bytes: args.slice.0.unwrap_or(0),
        schedule: args.schedule.into(),
        requestors,
        per_node: args.per_node,
    };
    let events = context.client.repair_by(repair).await?;
    follow(events, context, "repaired").await
}

/// `kintsu scrub`.
pub async fn scrub(node: Option<u32>, context: &Context) -> anyhow::Result<ExitCode> {
    let events = context.client.scrub(node.map(NodeId)).await?;
    follow(events, context, "scrubbed").await
}

/// Shows the progress of a job until its end and prints its report. The exit code says whether everything was
/// done.
pub async fn follow(mut events: Jobs, context: &Context, what: &str) -> anyhow::Result<ExitCode> {
    let bar = progress::bytes(what);
    while let Some(event) = events.next().await? {
        match event {
            JobEvent::Progress { done, total, note } => {
                bar.set_length(total);
                bar.set_position(done);
                bar.set_message(note);
            }
            JobEvent::Ended(report) => {
                progress::clear();
                if context.json {
                    output::json(&as_json(&report))?;
                } else {
                    print(&report, what)?;
                }
                return Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
    }
    anyhow::bail!("the coordinator ended the call without a report; expected one; try `kintsu status`")
}

/// The report as JSON, with the names that the command line promises.
pub fn as_json(report: &JobReport) -> Value {
    json!({
        "kind": report.kind,
        "method": report.method.map(|m| m.to_string()),
        "blocks_repaired": report.blocks,
        "blocks_read": report.blocks_read,
        "blocks_checked": report.blocks_checked,
        "bytes_read": report.bytes_read,
        "bytes_moved": report.bytes_moved,
        "bytes_across_racks": report.bytes_across_racks,
        "max_link_bytes": report.max_link_bytes,
        "seconds": report.seconds,
        "bytes_repaired": report.bytes,
        "bytes_per_second": report.rate(),
        "schedule": report.schedule.map(|s| s.to_string()),
        "max_up_bytes": report.nodes.iter().map(|n| n.up_bytes).max().unwrap_or(0),
        "max_down_bytes": report.nodes.iter().map(|n| n.down_bytes).max().unwrap_or(0),
        "helpers_spread": report.spread(|n| n.helped),
        "requestors_spread": report.spread(|n| n.requested),
        "bound_seconds": report.bound_seconds,
        "bound_over_time": report.bound_seconds.filter(|_| report.seconds > 0.0).map(|b| b / report.seconds),
        "nodes": report.nodes,
        "bad": report.bad,
        "around": report.around,
        "failed": report.failed,
    })
}

fn print(report: &JobReport, what: &str) -> anyhow::Result<()> {
    let what =
        &if report.failed.is_empty() { what.to_owned() } else { format!("NOT {what}, or only in part") };
    if report.bytes_read == 0 && report.blocks == 0 && report.method.is_none() && report.blocks_checked == 0 {
        output::line(what)?;
        return print_failures(report);
    }
    let method = report.method.map(|m| format!(" by {m}")).unwrap_or_default();
    output::line(&format!(
        "{what}{method}: {} block(s) in {:.2} s; {} read, {} moved, {} of it across racks",
        report.blocks,
        report.seconds,
        human(report.bytes_read),
        human(report.bytes_moved),
        human(report.bytes_across_racks)
    ))?;
    print_recovery(report)?;
    if report.blocks_checked > 0 {
        output::line(&format!("{} block(s) checked, {} bad", report.blocks_checked, report.bad.len()))?;
    }
    for bad in &report.bad {
        output::line(&format!("bad: {} on {}: {}", bad.id, bad.node, bad.detail))?;
    }
    for around in &report.around {
        output::line(&format!(
            "planned around {} from byte {} on: {}",
            around.node, around.upto, around.why
        ))?;
    }
    print_failures(report)
}

/// How a recovery used the nodes.
fn print_recovery(report: &JobReport) -> anyhow::Result<()> {
    let (Some(schedule), Some(helped), Some(requested)) =
        (report.schedule, report.spread(|n| n.helped), report.spread(|n| n.requested))
    else {
        return Ok(());
    };
    output::line(&format!(
        "{} a second, {schedule}: {} to {} block(s) read by each helper, {} to {} received by each requestor; \
         busiest link {}",
        human(report.rate() as u64),
        helped.0,
        helped.1,
        requested.0,
        requested.1,
        human(report.max_link_bytes)
    ))?;
    if let Some(bound) = report.bound_seconds.filter(|_| report.seconds > 0.0) {
        let share = 100.0 * bound / report.seconds;
        output::line(&format!(
            "lower bound by the rates of links: {bound:.2} s; this repair reached {share:.0}% of that speed"
        ))?;
    }
    Ok(())
}

fn print_failures(report: &JobReport) -> anyhow::Result<()> {
    for failure in &report.failed {
        eprintln!("kintsu: not done: {failure}");
    }
    Ok(())
}
