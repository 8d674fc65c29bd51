//! Jobs that the coordinator conducts: `encode`, `repair`, `scrub`, draining a node, and `kintsu jobs`.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use kintsu_client::Jobs;
use kintsu_dag::NodeId;
use kintsu_wire::message::{
    JobEvent, JobInfo, JobKind, JobList, JobReport, JobShown, JobState, JobUnit, Repair, RepairTarget,
    Requestors, WhyLimit,
};
use serde_json::{Value, json};

use super::Context;
use crate::units::{human, moment, span};
use crate::{cli, output, progress};

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
        method: args.method,
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

/// `kintsu rebalance`.
pub async fn rebalance(context: &Context) -> anyhow::Result<ExitCode> {
    follow(context.client.rebalance().await?, context, "rebalanced").await
}

/// A job that this process follows.
#[derive(Debug, Clone)]
pub struct Followed {
    job: JobInfo,
    done: u64,
    total: u64,
}

/// `kintsu jobs`.
pub async fn list(context: &Context) -> anyhow::Result<ExitCode> {
    let JobList { jobs, repair_limit } = context.client.job_list().await?;
    if context.json {
        let values: Vec<Value> = jobs.iter().map(info_json).collect();
        output::json(&values)?;
        return Ok(ExitCode::SUCCESS);
    }
    if jobs.is_empty() {
        output::line("no jobs since the coordinator's start")?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = output::table(["job", "kind", "what", "state", "progress", "for", "began", "note"]);
    for job in &jobs {
        let by = if job.automatic { " (automatic)" } else { "" };
        table.add_row([
            job.id.to_string(),
            format!("{}{by}", job.kind),
            job.what.clone(),
            word(job.state).to_owned(),
            progress_text(job.kind, job.done, job.total),
            span(job.seconds as u64),
            moment(job.began),
            job.note.clone(),
        ]);
    }
    output::line(&table.to_string())?;
    if let Some(limit) = repair_limit.filter(|limit| limit.why != WhyLimit::Free) {
        output::line(&format!("repairs: {limit}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `kintsu jobs follow ID`.
pub async fn follow_id(id: u64, context: &Context) -> anyhow::Result<ExitCode> {
    let events = context.client.follow_job(id).await?;
    follow(events, context, &format!("job {id} done")).await
}

/// `kintsu jobs cancel ID`.
pub async fn cancel(id: u64, context: &Context) -> anyhow::Result<ExitCode> {
    let job = context.client.cancel_job(id).await?;
    if context.json {
        output::json(&info_json(&job))?;
    } else {
        output::line(&format!(
            "job {id} ({} of {}) is cancelled; what it cannot leave half done is finished: `kintsu jobs follow {id}`",
            job.kind, job.what
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `kintsu jobs pause ID`.
pub async fn pause(id: u64, context: &Context) -> anyhow::Result<ExitCode> {
    let job = context.client.pause_job(id).await?;
    changed(&job, "pauses as soon as what it has begun is finished", &format!("resume {id}"), context)
}

/// `kintsu jobs resume ID`.
pub async fn resume(id: u64, context: &Context) -> anyhow::Result<ExitCode> {
    let job = context.client.resume_job(id).await?;
    changed(&job, "goes on", &format!("follow {id}"), context)
}

fn changed(job: &JobInfo, how: &str, next: &str, context: &Context) -> anyhow::Result<ExitCode> {
    if context.json {
        output::json(&info_json(job))?;
    } else {
        let JobInfo { id, kind, what, .. } = job;
        output::line(&format!("job {id} ({kind} of {what}) {how}: `kintsu jobs {next}`"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn word(state: JobState) -> &'static str {
    match state {
        JobState::Running => "running",
        JobState::Paused => "paused",
        JobState::Cancelling => "cancelling",
        JobState::Done => "done",
        JobState::Failed => "FAILED",
        JobState::Cancelled => "cancelled",
    }
}

fn progress_text(kind: JobKind, done: u64, total: u64) -> String {
    match kind.unit() {
        JobUnit::Bytes => format!("{} of {}", human(done), human(total)),
        JobUnit::Blocks => format!("{done} of {total} blocks"),
        JobUnit::Seconds => span(done),
    }
}

fn info_json(job: &JobInfo) -> Value {
    serde_json::to_value(JobShown::from(job.clone())).unwrap_or_default()
}

/// Shows the progress of a job until its end and prints its report. The exit code says whether everything was
/// done.
pub async fn follow(mut events: Jobs, context: &Context, what: &str) -> anyhow::Result<ExitCode> {
    let mut bar = None;
    while let Some(event) = events.next().await? {
        match event {
            JobEvent::Began(job) => {
                bar = Some(match job.kind.unit() {
                    JobUnit::Bytes => progress::bytes(what),
                    JobUnit::Blocks => progress::count(what),
                    JobUnit::Seconds => progress::steps(what),
                });
                let (done, total) = (job.done, job.total);
                context.following.set(Some(Followed { job, done, total }));
            }
            JobEvent::Progress { done, total, note } => {
                context.following.progress(done, total);
                if let Some(bar) = &bar {
                    bar.set_length(total);
                    bar.set_position(done);
                    bar.set_message(note);
                }
            }
            JobEvent::Ended(report) => {
                let followed = context.following.set(None);
                progress::clear();
                if context.json {
                    let mut value = as_json(&report);
                    value["job"] = json!(followed.map(|followed| followed.job.id));
                    output::json(&value)?;
                } else {
                    print(&report, what)?;
                }
                return Ok(if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
        }
    }
    anyhow::bail!("the coordinator ended the call without a report; expected one; try `kintsu jobs`")
}

/// The job that this process follows now, if any.
#[derive(Debug, Default)]
pub struct Following(Mutex<Option<Followed>>);

impl Following {
    fn set(&self, followed: Option<Followed>) -> Option<Followed> {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut now, followed)
    }

    fn progress(&self, done: u64, total: u64) {
        if let Some(now) = self.0.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            (now.done, now.total) = (done, total);
        }
    }

    /// The user has left: says that the job goes on, and prints how far it is if JSON was asked for.
    ///
    /// # Errors
    /// Standard output cannot be written to.
    pub fn left(&self, as_json: bool) -> anyhow::Result<()> {
        let Some(Followed { job, done, total }) = self.set(None) else { return Ok(()) };
        let JobInfo { id, kind, .. } = job;
        let goes_on = format!(
            "the {kind} of {} goes on as job {id} ({}): `kintsu jobs follow {id}` shows it, `kintsu jobs cancel {id}` ends it",
            job.what,
            progress_text(kind, done, total)
        );
        output::complain(as_json, "interrupted", &goes_on);
        if as_json {
            let mut value = info_json(&JobInfo { done, total, ..job });
            value["interrupted"] = json!(true);
            output::json(&value)?;
        }
        Ok(())
    }
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
    let what = &if report.failed.is_empty() { what.to_owned() } else { format!("NOT ALL DONE: {what}") };
    if report.bytes_read == 0 && report.blocks == 0 && report.method.is_none() && report.blocks_checked == 0 {
        output::line(what)?;
        return print_failures(report);
    }
    let method = report.method.map(|m| format!(" by {m}")).unwrap_or_default();
    if report.blocks_checked > 0 {
        output::line(&format!(
            "{what}: {} block(s) checked in {:.2} s, {} bad; {} read",
            report.blocks_checked,
            report.seconds,
            report.bad.len(),
            human(report.bytes_read)
        ))?;
        if report.blocks > 0 {
            output::line(&format!(
                "repaired{method}: {} block(s); {} moved, {} of it across racks",
                report.blocks,
                human(report.bytes_moved),
                human(report.bytes_across_racks)
            ))?;
        }
    } else {
        output::line(&format!(
            "{what}{method}: {} block(s) in {:.2} s; {} read, {} moved, {} of it across racks",
            report.blocks,
            report.seconds,
            human(report.bytes_read),
            human(report.bytes_moved),
            human(report.bytes_across_racks)
        ))?;
    }
    print_recovery(report)?;
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
