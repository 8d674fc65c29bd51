//! The table of jobs with those who listen: [`crate::engine::jobs`] decides, this file tells listeners and stops
//! the work. A job goes on when its listeners go away; others may follow it later.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use futures::future::join_all;
use kintsu_dag::NodeId;
use kintsu_wire::message::{JobEvent, JobInfo, JobReport};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Listener, repair_jobs};
use crate::cluster::{Cluster, lock};
use crate::engine::jobs::{Jobs, NewJob, Now, Refused, Work};
use crate::error::{CoordinatorError, Result};

/// All jobs of one start of the coordinator.
pub struct JobTable {
    inner: Mutex<Inner>,
    started: Instant,
}

struct Inner {
    jobs: Jobs,
    running: HashMap<u64, Side>,
    ended: HashMap<u64, Result<JobReport, Status>>,
}

impl Inner {
    fn follow(&mut self, job: JobInfo, listener: Listener) {
        let (id, done, total, note) = (job.id, job.done, job.total, job.note.clone());
        let mut events = vec![Ok(JobEvent::Began(job))];
        match self.ended.get(&id) {
            Some(end) => events.push(end.clone().map(JobEvent::Ended)),
            None => events.push(Ok(JobEvent::Progress { done, total, note })),
        }
        for event in events {
            // The channel is new, so there is room; the caller may be gone.
            let _ = listener.try_send(event);
        }
        if let Some(side) = self.running.get_mut(&id) {
            side.listeners.push(listener);
        }
    }
}

/// The part of a running job that the engine need not know.
#[derive(Default)]
struct Side {
    listeners: Vec<Listener>,
    cancelled: CancellationToken,
    paused: watch::Sender<bool>,
}

impl JobTable {
    /// An empty table of this start of the coordinator.
    pub fn new(boot: u64) -> Self {
        let inner = Inner { jobs: Jobs::new(boot), running: HashMap::new(), ended: HashMap::new() };
        Self { inner: Mutex::new(inner), started: Instant::now() }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        lock(&self.inner)
    }

    fn now_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Tells nobody any more; who listens asks again.
    pub fn let_go(&self) {
        self.inner().running.values_mut().for_each(|side| side.listeners.clear());
    }

    /// Reads the table.
    pub fn look<T>(&self, look: impl FnOnce(&Jobs) -> T) -> T {
        look(&self.inner().jobs)
    }
}

/// A running job, as its work sees it.
#[derive(Clone)]
pub struct Job {
    table: Arc<JobTable>,
    id: u64,
    cancelled: CancellationToken,
    paused: watch::Receiver<bool>,
}

impl Job {
    /// A job begins. `listener` gets its progress and its end.
    pub fn begin(cluster: &Arc<Cluster>, work: Work, what: String, listener: Option<Listener>) -> Self {
        Self::begin_in(&mut cluster.jobs.inner(), cluster, work, what, listener)
    }

    /// A job begins, unless one does the same already: then `listener` follows that one.
    pub fn only(
        cluster: &Arc<Cluster>,
        work: Work,
        what: String,
        listener: Option<Listener>,
    ) -> Option<Self> {
        let mut inner = cluster.jobs.inner();
        if let Some(id) = inner.jobs.running(&work) {
            if let Some((info, listener)) = inner.jobs.info(id, cluster.jobs.now_ms()).zip(listener) {
                inner.follow(info, listener);
            }
            return None;
        }
        Some(Self::begin_in(&mut inner, cluster, work, what, listener))
    }

    fn begin_in(
        inner: &mut Inner,
        cluster: &Cluster,
        work: Work,
        what: String,
        listener: Option<Listener>,
    ) -> Self {
        let new = NewJob { work, what, automatic: listener.is_none() };
        let table = cluster.jobs.clone();
        let now = Now { ms: table.now_ms(), unix: cluster.unix_seconds() };
        let id = inner.jobs.begin(new, now);
        let (began, side) = (inner.jobs.info(id, now.ms), Side::default());
        let (cancelled, paused) = (side.cancelled.clone(), side.paused.subscribe());
        let side = inner.running.entry(id).or_insert(side);
        if let (Some(listener), Some(began)) = (listener, began) {
            // A listener that is gone or full by now is none.
            if listener.try_send(Ok(JobEvent::Began(began))).is_ok() {
                side.listeners.push(listener);
            }
        }
        Self { table, id, cancelled, paused }
    }

    /// Its id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether somebody listens now.
    pub fn has_listeners(&self) -> bool {
        self.table.inner().running.get(&self.id).is_some_and(|side| !side.listeners.is_empty())
    }

    /// The job goes on.
    pub fn progress(&self, done: u64, total: u64, note: &str) {
        let mut inner = self.table.inner();
        inner.jobs.progress(self.id, done, total, note);
        let Some(side) = inner.running.get_mut(&self.id) else { return };
        side.listeners.retain(|listener| !listener.is_closed());
        for listener in &side.listeners {
            // A slow listener may miss progress, but never the end.
            let _ = listener.try_send(Ok(JobEvent::Progress { done, total, note: note.into() }));
        }
    }

    /// The job has ended.
    pub async fn end(&self, end: Result<JobReport>) {
        let end = end.map_err(Status::from);
        let failure = match &end {
            Ok(report) => report.failed.first().cloned(),
            Err(status) => Some(status.message().to_owned()),
        };
        let listeners = {
            let mut inner = self.table.inner();
            let forgotten = inner.jobs.ended(self.id, failure.as_deref(), self.table.now_ms());
            forgotten.iter().for_each(|id| drop(inner.ended.remove(id)));
            inner.ended.insert(self.id, end.clone());
            inner.running.remove(&self.id).map(|side| side.listeners).unwrap_or_default()
        };
        let event = end.map(JobEvent::Ended);
        // Listeners may be gone.
        join_all(listeners.iter().map(|listener| listener.send(event.clone()))).await;
    }

    /// Whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Waits as long as it is paused.
    pub async fn unpaused(&self) {
        let mut paused = self.paused.clone();
        tokio::select! {
            // The sender lives as long as the job.
            _ = paused.wait_for(|paused| !paused) => {}
            () = self.cancelled() => {}
        }
    }

    /// Waits until it is cancelled.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

/// All jobs that are known.
pub fn list(cluster: &Cluster) -> Vec<JobInfo> {
    cluster.jobs.look(|jobs| jobs.list(cluster.jobs.now_ms()))
}

/// One more listener follows a job to its end; of a job that has ended it gets the end.
///
/// # Errors
/// `NotFound`.
pub fn follow(cluster: &Cluster, id: u64, listener: Listener) -> Result<()> {
    let mut inner = cluster.jobs.inner();
    let info = inner.jobs.info(id, cluster.jobs.now_ms()).ok_or_else(|| unknown(id))?;
    inner.follow(info, listener);
    Ok(())
}

/// Has a job end early. What it cannot leave half done is finished first.
///
/// # Errors
/// `NotFound`; `Conflict` for a job that has ended or cannot be cancelled; the disk fails.
pub async fn cancel(cluster: &Arc<Cluster>, id: u64) -> Result<JobInfo> {
    let work = {
        let mut inner = cluster.jobs.inner();
        let work = inner.jobs.cancel(id).map_err(|why| refused(id, "cancelling", why))?;
        if let Some(side) = inner.running.get(&id) {
            side.cancelled.cancel();
        }
        work
    };
    match work {
        Work::Repair => repair_jobs::cancel(cluster, id),
        Work::Drain(node) => undrain(cluster, node).await?,
        Work::Encode | Work::Scrub | Work::Wipe(_) | Work::Rebalance => {}
    }
    tracing::info!("job {id} is cancelled");
    cluster.jobs.look(|jobs| jobs.info(id, cluster.jobs.now_ms())).ok_or_else(|| unknown(id))
}

/// Has a job pause, or go on. What it has begun is finished first.
///
/// # Errors
/// `NotFound`; `Conflict` for a job that has ended or cannot be paused.
pub fn pause(cluster: &Arc<Cluster>, id: u64, pause: bool) -> Result<JobInfo> {
    let doing = if pause { "pausing" } else { "resuming" };
    let work = {
        let mut inner = cluster.jobs.inner();
        let work = inner.jobs.pause(id, pause).map_err(|why| refused(id, doing, why))?;
        if let Some(side) = inner.running.get(&id) {
            side.paused.send_replace(pause);
        }
        work
    };
    if work == Work::Repair {
        repair_jobs::pause(cluster, id, pause);
    }
    tracing::info!("{doing} job {id}");
    cluster.jobs.look(|jobs| jobs.info(id, cluster.jobs.now_ms())).ok_or_else(|| unknown(id))
}

/// A node gets new blocks again.
///
/// # Errors
/// The disk fails.
pub async fn undrain(cluster: &Arc<Cluster>, node: NodeId) -> Result<()> {
    cluster.meta.off(move |meta| meta.change_node(node, |record| record.draining = false)).await?;
    cluster.members().set_draining(node, false);
    let running = cluster.jobs.look(|jobs| jobs.running(&Work::Drain(node)));
    let mut inner = cluster.jobs.inner();
    if let Some(id) = running.filter(|id| inner.jobs.cancel(*id).is_ok())
        && let Some(side) = inner.running.get(&id)
    {
        side.cancelled.cancel();
    }
    Ok(())
}

fn unknown(id: u64) -> CoordinatorError {
    CoordinatorError::NotFound { what: "job", name: id.to_string() }
}

fn refused(id: u64, doing: &str, why: Refused) -> CoordinatorError {
    let got = match why {
        Refused::Unknown => return unknown(id),
        Refused::Ended => "one that has ended: `kintsu jobs` lists those that run",
        Refused::Wipe => "a wipe: it has begun to delete blocks, and must come to its end",
    };
    CoordinatorError::Conflict {
        what: format!("{doing} job {id}"),
        expected: "a job that runs and can be left".into(),
        got: got.into(),
    }
}
