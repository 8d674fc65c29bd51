//! Carries out the commands of the repair queue. Keeps what each repair job is about and who listens to it.

use std::collections::HashMap;
use std::sync::Arc;

use kintsu_dag::StripeId;
use kintsu_plan::Topology;
use tokio::task::JoinHandle;

use super::guard::guarded;
use super::jobs::Job;
use super::pages::{PageStart, Source, page};
use super::volume_logs::move_logs;
use super::{Listener, pages, repair};
use crate::cluster::Cluster;
use crate::engine::assign::Dealt;
use crate::engine::jobs::Work;
use crate::engine::repair::{Command, Order, Outcome, RepairJobId, RepairResult};

/// The repair jobs under way.
pub type RepairJobs = HashMap<RepairJobId, FollowedJob>;

/// The part of a repair job that the queue need not know.
pub struct FollowedJob {
    order: Order,
    source: Source,
    place: PageStart,
    job: Job,
    started_ms: u64,
    automatic: bool,
    errors: Vec<String>,
    /// What its pages have assigned to nodes so far.
    dealt: Dealt,
    /// The least time in which the links allow it, which is computed while it runs.
    bound: Option<JoinHandle<Option<f64>>>,
}

/// Starts a repair job. `listener` gets its progress and its end. The job goes on if the listener goes away.
pub fn start_repairs(
    cluster: &Arc<Cluster>,
    source: Source,
    order: Order,
    listener: Option<Listener>,
) -> RepairJobId {
    let automatic = matches!(source, Source::Overdue(_));
    let urgent = matches!(source, Source::Blocks(_));
    let job = FollowedJob {
        order: order.clone(),
        job: Job::begin(cluster, Work::Repair, source.describe(), listener),
        source,
        place: PageStart::default(),
        started_ms: cluster.now_ms(),
        automatic,
        errors: Vec::new(),
        dealt: Dealt::default(),
        bound: None,
    };
    let (id, commands) = {
        let (mut queue, mut repair_jobs) = (cluster.queue(), cluster.repair_jobs());
        let (id, commands) = queue.add(order, urgent);
        repair_jobs.insert(id, job);
        (id, commands)
    };
    act(cluster, commands);
    id
}

/// Carries out commands of the queue.
pub fn act(cluster: &Arc<Cluster>, commands: Vec<Command>) {
    for command in commands {
        match command {
            Command::Fetch(id) => {
                let worker = cluster.clone();
                cluster.spawn(async move { fetch(&worker, id).await });
            }
            Command::Plan(id) => {
                let worker = cluster.clone();
                cluster.spawn(async move { plan_phase(&worker, id).await });
            }
            Command::Start(stripe, blocks, order) => {
                tracing::debug!("{stripe}: repair of {blocks:?} starts");
                let worker = cluster.clone();
                cluster.spawn(async move {
                    let repaired =
                        guarded(async { Ok(repair::repair_stripe(&worker, stripe, blocks, order).await) });
                    let outcome = repaired.await.unwrap_or_else(|panic| {
                        tracing::error!("the repair of {stripe}: {panic}");
                        Outcome { failed: Some(format!("stripe {stripe}: {panic}")), ..Outcome::default() }
                    });
                    end(&worker, stripe, &outcome);
                });
            }
            Command::Progress(id, done, total) => {
                if let Some(job) = cluster.repair_jobs().get(&id) {
                    job.job.progress(done, total, "repairing");
                }
            }
            Command::Finish(id, result) => finish(cluster, id, result),
        }
    }
}

fn end(cluster: &Arc<Cluster>, stripe: StripeId, outcome: &Outcome) {
    if let Some(reason) = &outcome.failed {
        tracing::warn!("not repaired: {reason}");
    }
    tracing::debug!("{stripe}: {:?} repaired, {:?}", outcome.repaired, outcome.failed);
    cluster.recovery().release(stripe);
    let commands = cluster.queue().ended(stripe, outcome);
    act(cluster, commands);
}

async fn fetch(cluster: &Arc<Cluster>, id: RepairJobId) {
    let found = cluster.repair_jobs().get_mut(&id).map(|a| {
        let dealt = std::mem::take(&mut a.dealt);
        (a.source.clone(), a.place.clone(), a.order.clone(), dealt)
    });
    let Some((source, place, order, dealt)) = found else { return };
    let in_phases = cluster.queue().in_phases(id);
    let next = guarded(page(cluster, source, place, order.clone(), in_phases, dealt)).await;
    let is_last = matches!(&next, Ok((page, _)) if page.next.is_none());
    // What users leave now says nothing of the time that follows: a bound is by all that the links carry.
    let links = is_last.then(|| order.narrow(Topology { rates: cluster.capacities(), ..cluster.nodes().0 }));
    let (wants, last) = {
        let mut repair_jobs = cluster.repair_jobs();
        let Some(job) = repair_jobs.get_mut(&id) else { return };
        match next {
            Ok((page, dealt)) => {
                job.dealt = dealt;
                if let Some(links) = links.filter(|_| job.job.has_listeners()) {
                    let losses = std::mem::take(&mut job.dealt.losses);
                    job.bound = Some(kintsu_wire::ambient::blocking(move || losses.bound(&links)));
                }
                job.place = page.next.unwrap_or_default();
                (page.wants, is_last)
            }
            Err(error) => {
                job.errors.push(error.to_string());
                (Vec::new(), true)
            }
        }
    };
    let rates = cluster.rates();
    let (commands, known) = {
        let mut queue = cluster.queue();
        queue.know(rates);
        (queue.page(id, wants, last), queue.progress(id))
    };
    if let (Some((done, total)), Some(job)) = (known, cluster.repair_jobs().get(&id)) {
        job.job.progress(done, total, "repairing");
    }
    act(cluster, commands);
}

/// Plans the next phase of a job.
async fn plan_phase(cluster: &Arc<Cluster>, id: RepairJobId) {
    let Some(order) = cluster.repair_jobs().get(&id).map(|job| job.order.clone()) else { return };
    let _turn = cluster.planning_phase.acquire().await;
    let wanted = cluster.queue().not_begun(id);
    let asked: Vec<StripeId> = wanted.iter().map(|(stripe, _)| *stripe).collect();
    let wants = guarded(pages::plan_again(cluster, order, wanted, true)).await.unwrap_or_else(|error| {
        tracing::warn!("no phase was planned, so repairs that wait begin as they come: {error}");
        Vec::new()
    });
    let (rates, now_ms) = (cluster.rates(), cluster.now_ms());
    let commands = {
        let mut queue = cluster.queue();
        queue.know(rates);
        queue.phase(id, &asked, wants, now_ms)
    };
    act(cluster, commands);
}

/// Time has passed: phases may be over.
pub fn begin_phases(cluster: &Arc<Cluster>) {
    let span_ms = cluster.config.phase.as_millis() as u64;
    let commands = cluster.queue().tick(cluster.now_ms(), span_ms);
    act(cluster, commands);
}

fn finish(cluster: &Arc<Cluster>, id: RepairJobId, mut result: RepairResult) {
    let Some(job) = cluster.repair_jobs().remove(&id) else { return };
    result.failed.extend(job.errors);
    let now_ms = cluster.now_ms();
    if job.automatic {
        if result.cancelled && cluster.auto().held().is_none() {
            cluster.auto().cancelled();
        } else {
            cluster.auto().ended(now_ms, !result.failed.is_empty());
        }
        if result.tally.blocks > 0 {
            tracing::info!("blocks repaired automatically: {}", result.tally.blocks);
        }
    }
    let FollowedJob { job, bound, started_ms, source, .. } = job;
    let seconds = now_ms.saturating_sub(started_ms) as f64 / 1000.0;
    let (topology, _) = cluster.nodes();
    let mut report = result.tally.report("repair", Some(result.order.method), &topology, seconds);
    (report.failed, report.bad, report.around) = (result.failed, result.bad, result.around);
    report.schedule = Some(result.order.schedule);
    let moves_logs = source.is_of_nodes() && !result.cancelled;
    let worker = cluster.clone();
    cluster.spawn(async move {
        if moves_logs {
            // Who hears that a node is repaired may lose another one.
            match guarded(move_logs(&worker)).await {
                Ok(left) => report.failed.extend(left),
                Err(error) => report.failed.push(error.to_string()),
            }
        }
        if let Some(bound) = bound.filter(|_| report.failed.is_empty()) {
            report.bound_seconds = bound.await.ok().flatten();
        }
        job.end(Ok(report)).await;
    });
}

fn by_number(cluster: &Cluster, number: u64) -> Option<RepairJobId> {
    let repair_jobs = cluster.repair_jobs();
    repair_jobs.iter().find(|(_, job)| job.job.id() == number).map(|(id, _)| *id)
}

/// Has the repair job with this number in the table of jobs begin no stripe until it is resumed, or resumes it.
pub fn pause(cluster: &Arc<Cluster>, number: u64, pause: bool) {
    if let Some(id) = by_number(cluster, number) {
        let commands = cluster.queue().pause(id, pause);
        act(cluster, commands);
    }
}

/// Time has passed: plans again what waits, if links or disks have changed. Phases plan what they begin with themselves.
pub fn plan_again(cluster: &Arc<Cluster>) {
    let jobs: Vec<(RepairJobId, Order)> = {
        let repair_jobs = cluster.repair_jobs();
        let together = repair_jobs.iter().filter(|(_, job)| job.order.together());
        together.map(|(id, job)| (*id, job.order.clone())).collect()
    };
    let jobs: Vec<(RepairJobId, Order)> =
        jobs.into_iter().filter(|(id, _)| !cluster.queue().in_phases(*id)).collect();
    let waiting = |queue: &crate::engine::repair::Queue, id: RepairJobId| !queue.waiting(id).is_empty();
    let waits = jobs.iter().any(|(id, _)| waiting(&cluster.queue(), *id));
    let rates = cluster.spare_rates();
    let idle = rates.known().chain(cluster.disks(&rates).known()).collect();
    if !cluster.phases().tick(cluster.now_ms(), idle, waits) {
        return;
    }
    for (id, order) in jobs {
        let worker = cluster.clone();
        cluster.spawn(async move {
            let wanted = worker.queue().waiting(id);
            match guarded(pages::plan_again(&worker, order, wanted, false)).await {
                Ok(wants) => {
                    let commands = worker.queue().planned_again(wants);
                    act(&worker, commands);
                }
                Err(error) => tracing::warn!("repairs that wait were not planned again: {error}"),
            }
        });
    }
}

/// Has the repair job with this number in the table of jobs end early: stripes under repair are finished.
pub fn cancel(cluster: &Arc<Cluster>, number: u64) {
    if let Some(id) = by_number(cluster, number) {
        end_early(cluster, id);
    }
}

/// Repairs of nodes are held: those that began automatically end early. Blocks that are flagged lost are repaired by the next job.
pub fn hold(cluster: &Arc<Cluster>) {
    let of_nodes = |job: &FollowedJob| matches!(&job.source, Source::Overdue(nodes) if !nodes.is_empty());
    let held: Vec<RepairJobId> = {
        let repair_jobs = cluster.repair_jobs();
        repair_jobs.iter().filter(|(_, job)| of_nodes(job)).map(|(id, _)| *id).collect()
    };
    held.into_iter().for_each(|id| end_early(cluster, id));
}

fn end_early(cluster: &Arc<Cluster>, id: RepairJobId) {
    let (unwanted, commands) = cluster.queue().cancel(id);
    unwanted.into_iter().for_each(|stripe| cluster.recovery().release(stripe));
    act(cluster, commands);
}

/// Tells the listeners of all jobs that wait for this stripe what its repair is doing.
pub fn note(cluster: &Cluster, stripe: StripeId, note: &str) {
    let standing = cluster.queue().standing(stripe);
    let repair_jobs = cluster.repair_jobs();
    for (id, done, total) in standing {
        if let Some(job) = repair_jobs.get(&id) {
            job.job.progress(done, total, note);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::handlers::tests::{cluster, put, silence};
    use kintsu_dag::NodeId;
    use kintsu_wire::message::JobEvent;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_job_whose_repairs_panic_ends_with_their_words() {
        let (_dir, cluster) = cluster(5, 5).await;
        put(&cluster, "a", 48).await;
        silence(&cluster, &[0]);
        cluster.panics.store(true, Ordering::SeqCst);
        let placed = cluster.meta.snapshot().unwrap().placed(NodeId(0), None, 9).unwrap().len();
        assert!(placed > 0);
        let (listener, mut events) = mpsc::channel(64);
        start_repairs(&cluster, Source::Node(NodeId(0)), Order::default(), Some(listener));
        let mut last = None;
        while let Some(event) = events.recv().await {
            last = Some(event.unwrap());
        }
        let Some(JobEvent::Ended(report)) = last else { panic!("no report: {last:?}") };
        assert_eq!((report.blocks, report.failed.len()), (0, placed));
        assert!(report.failed[0].contains("internal error: a poisoned repair"), "{:?}", report.failed);
        assert_eq!(cluster.queue().jobs(), 0);
        assert_eq!(cluster.queue().pending(), 0);
    }
}
