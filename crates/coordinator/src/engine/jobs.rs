//! The table of jobs: which long work runs, how far it is, and how the last of it ended. Decides which jobs can be
//! cancelled or paused. The driver keeps who listens.
//!
//! Invariants: an id is given once by a coordinator, and hardly ever again by a later start; a job ends once; of the
//! jobs that have ended only the last few are kept.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_wire::message::{JobInfo, JobKind, JobState};

/// Jobs that have ended and are kept: of those that somebody asked for, and of those that began by themselves.
const KEPT: [usize; 2] = [32, 8];
/// Ids that one start of the coordinator gives before it reaches those of the next start.
const IDS_A_BOOT: u64 = 10_000;

/// What a job does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Repairs blocks.
    Repair,
    /// Encodes an object.
    Encode,
    /// Verifies blocks.
    Scrub,
    /// Empties a node.
    Drain(NodeId),
    /// Deletes the blocks of a node.
    Wipe(NodeId),
    /// Moves blocks from fuller to emptier nodes.
    Rebalance,
}

impl Work {
    fn kind(&self) -> JobKind {
        match self {
            Self::Repair => JobKind::Repair,
            Self::Encode => JobKind::Encode,
            Self::Scrub => JobKind::Scrub,
            Self::Drain(_) => JobKind::Drain,
            Self::Wipe(_) => JobKind::Wipe,
            Self::Rebalance => JobKind::Rebalance,
        }
    }
}

/// A job that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewJob {
    /// What it does.
    pub work: Work,
    /// On what, for people.
    pub what: String,
    /// Nobody asked for it.
    pub automatic: bool,
}

/// When something happens, by two clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the coordinator's start.
    pub ms: u64,
    /// Seconds since 1970.
    pub unix: u64,
}

#[derive(Debug, Clone)]
struct Job {
    new: NewJob,
    state: JobState,
    began: Now,
    ended_ms: Option<u64>,
    done: u64,
    total: u64,
    note: String,
}

/// Why a job is not cancelled, or not paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no job of this id.
    Unknown,
    /// It has ended.
    Ended,
    /// It deletes blocks: what is begun must be completed.
    Wipe,
}

/// The table.
#[derive(Debug, Default)]
pub struct Jobs {
    next: u64,
    jobs: BTreeMap<u64, Job>,
}

impl Jobs {
    /// An empty table of this start of the coordinator.
    pub fn new(boot: u64) -> Self {
        Self { next: boot.saturating_mul(IDS_A_BOOT) + 1, jobs: BTreeMap::new() }
    }

    /// A job begins; returns its id.
    pub fn begin(&mut self, new: NewJob, now: Now) -> u64 {
        let id = self.next;
        self.next += 1;
        let (state, note) = (JobState::Running, String::new());
        self.jobs.insert(id, Job { new, state, began: now, ended_ms: None, done: 0, total: 0, note });
        id
    }

    /// A job goes on.
    pub fn progress(&mut self, id: u64, done: u64, total: u64, note: &str) {
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.state.has_ended()) {
            (job.done, job.total, job.note) = (done, total, note.to_owned());
        }
    }

    /// Somebody wants a job to end. Returns what the job does; cancelling it twice is harmless.
    ///
    /// # Errors
    /// Why it is not cancelled.
    pub fn cancel(&mut self, id: u64) -> Result<Work, Refused> {
        let job = self.jobs.get_mut(&id).ok_or(Refused::Unknown)?;
        match job.new.work {
            _ if job.state.has_ended() => Err(Refused::Ended),
            Work::Wipe(_) => Err(Refused::Wipe),
            _ => {
                job.state = JobState::Cancelling;
                Ok(job.new.work.clone())
            }
        }
    }

    /// Somebody wants a job to pause, or to go on. Returns what the job does; doing it twice is harmless, and a job
    /// that was cancelled is not changed.
    ///
    /// # Errors
    /// Why not.
    pub fn pause(&mut self, id: u64, pause: bool) -> Result<Work, Refused> {
        let job = self.jobs.get_mut(&id).ok_or(Refused::Unknown)?;
        match (&job.new.work, job.state) {
            (_, state) if state.has_ended() => return Err(Refused::Ended),
            (Work::Wipe(_), _) => return Err(Refused::Wipe),
            (_, JobState::Cancelling) => {}
            _ => job.state = if pause { JobState::Paused } else { JobState::Running },
        }
        Ok(job.new.work.clone())
    }

    /// A job has ended. `failure`: what was not done. Returns the ids of jobs that are forgotten now.
    pub fn ended(&mut self, id: u64, failure: Option<&str>, now_ms: u64) -> Vec<u64> {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| !job.state.has_ended()) else {
            return Vec::new();
        };
        job.ended_ms = Some(now_ms);
        job.state = match (failure, job.state) {
            (None, _) => JobState::Done,
            (Some(_), JobState::Cancelling) => JobState::Cancelled,
            (Some(_), _) => JobState::Failed,
        };
        job.note = failure.unwrap_or_default().to_owned();
        let automatic = job.new.automatic;
        let ended = self.jobs.iter().filter(|(_, j)| j.new.automatic == automatic && j.state.has_ended());
        let mut ended: Vec<(Option<u64>, u64)> = ended.map(|(id, job)| (job.ended_ms, *id)).collect();
        ended.sort_unstable();
        let surplus = ended.len().saturating_sub(KEPT[usize::from(automatic)]);
        let forgotten: Vec<u64> = ended.into_iter().take(surplus).map(|(_, id)| id).collect();
        forgotten.iter().for_each(|id| drop(self.jobs.remove(id)));
        forgotten
    }

    /// A job, if it is known.
    pub fn info(&self, id: u64, now_ms: u64) -> Option<JobInfo> {
        let job = self.jobs.get(&id)?;
        let ms = job.ended_ms.unwrap_or(now_ms).saturating_sub(job.began.ms);
        Some(JobInfo {
            id,
            kind: job.new.work.kind(),
            what: job.new.what.clone(),
            automatic: job.new.automatic,
            state: job.state,
            began: job.began.unix,
            seconds: ms as f64 / 1000.0,
            done: job.done,
            total: job.total,
            note: job.note.clone(),
        })
    }

    /// All jobs that are known, by id.
    pub fn list(&self, now_ms: u64) -> Vec<JobInfo> {
        self.jobs.keys().filter_map(|id| self.info(*id, now_ms)).collect()
    }

    /// The job that does this now.
    pub fn running(&self, work: &Work) -> Option<u64> {
        let runs = |job: &Job| job.new.work == *work && !job.state.has_ended();
        self.jobs.iter().find(|(_, job)| runs(job)).map(|(id, _)| *id)
    }

    /// The nodes that are being emptied now.
    pub fn drained(&self) -> Vec<NodeId> {
        let node = |job: &Job| match job.new.work {
            Work::Drain(node) if !job.state.has_ended() => Some(node),
            _ => None,
        };
        self.jobs.values().filter_map(node).collect()
    }

    /// The failure of the repair that ended last, if it failed.
    pub fn failed_repair(&self) -> Option<(u64, &str)> {
        let ended = self.jobs.iter().filter(|(_, job)| job.new.work == Work::Repair && job.state.has_ended());
        let (id, last) = ended.max_by_key(|(id, job)| (job.ended_ms, **id))?;
        (last.state == JobState::Failed).then_some((*id, last.note.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { ms, unix: 1_000_000 + ms / 1000 }
    }

    fn new(work: Work, automatic: bool) -> NewJob {
        NewJob { work, what: "something".into(), automatic }
    }

    #[test]
    fn a_job_is_followed_from_its_begin_to_its_end() {
        let mut jobs = Jobs::new(3);
        let id = jobs.begin(new(Work::Encode, false), at(500));
        assert_eq!(id, 30_001);
        jobs.progress(id, 5, 10, "encoding");
        let info = jobs.info(id, 2500).unwrap();
        assert_eq!(
            (info.kind, info.state, info.done, info.total),
            (JobKind::Encode, JobState::Running, 5, 10)
        );
        assert_eq!((info.seconds, info.began, info.note.as_str()), (2.0, 1_000_000, "encoding"));
        assert_eq!(jobs.ended(id, None, 3500), [0u64; 0]);
        jobs.progress(id, 6, 10, "too late");
        jobs.ended(id, Some("twice"), 9999);
        let info = jobs.info(id, 9999).unwrap();
        assert_eq!((info.state, info.seconds, info.done), (JobState::Done, 3.0, 5));
    }

    #[test]
    fn what_can_be_cancelled_is_and_says_so_at_its_end() {
        let mut jobs = Jobs::new(1);
        let drain = jobs.begin(new(Work::Drain(NodeId(3)), false), at(0));
        let wipe = jobs.begin(new(Work::Wipe(NodeId(4)), false), at(0));
        assert_eq!(jobs.running(&Work::Drain(NodeId(3))), Some(drain));
        assert_eq!(jobs.pause(drain, true), Ok(Work::Drain(NodeId(3))));
        assert_eq!(jobs.info(drain, 0).unwrap().state, JobState::Paused);
        assert_eq!(jobs.drained(), [NodeId(3)]);
        jobs.pause(drain, false).unwrap();
        assert_eq!(jobs.info(drain, 0).unwrap().state, JobState::Running);
        jobs.pause(drain, true).unwrap();
        assert_eq!(jobs.cancel(drain), Ok(Work::Drain(NodeId(3))));
        jobs.pause(drain, true).unwrap();
        assert_eq!(jobs.cancel(drain), Ok(Work::Drain(NodeId(3))), "twice is once");
        assert_eq!(jobs.info(drain, 0).unwrap().state, JobState::Cancelling);
        assert_eq!(jobs.drained(), [NodeId(3)]);
        assert_eq!(jobs.cancel(wipe), Err(Refused::Wipe));
        assert_eq!(jobs.pause(wipe, true), Err(Refused::Wipe));
        assert_eq!(jobs.cancel(9), Err(Refused::Unknown));
        jobs.ended(drain, Some("cancelled: 4 blocks are left"), 1);
        assert_eq!(jobs.cancel(drain), Err(Refused::Ended));
        assert_eq!(jobs.pause(drain, false), Err(Refused::Ended));
        assert_eq!(jobs.info(drain, 2).unwrap().state, JobState::Cancelled);
        assert_eq!((jobs.running(&Work::Drain(NodeId(3))), jobs.drained()), (None, Vec::new()));
        // Everything was done before the order came.
        let scrub = jobs.begin(new(Work::Scrub, false), at(0));
        jobs.cancel(scrub).unwrap();
        jobs.ended(scrub, None, 1);
        assert_eq!(jobs.info(scrub, 1).unwrap().state, JobState::Done);
    }

    #[test]
    fn only_the_last_jobs_are_kept_and_many_small_ones_displace_no_others() {
        let mut jobs = Jobs::new(1);
        let running = jobs.begin(new(Work::Scrub, true), at(0));
        let asked = jobs.begin(new(Work::Repair, false), at(0));
        jobs.ended(asked, None, 1);
        let mut forgotten = Vec::new();
        for ms in 2..100 {
            let id = jobs.begin(new(Work::Repair, true), at(ms));
            forgotten.extend(jobs.ended(id, None, ms));
        }
        assert_eq!(forgotten.len(), 98 - KEPT[1]);
        let left: Vec<u64> = jobs.list(100).iter().map(|job| job.id).collect();
        assert_eq!((left.len(), &left[..2]), (KEPT[1] + 2, &[running, asked][..]));
    }

    #[test]
    fn a_failed_repair_is_known_until_another_one_succeeds() {
        let mut jobs = Jobs::new(1);
        assert_eq!(jobs.failed_repair(), None);
        let ids = [0, 1].map(|ms| jobs.begin(new(Work::Repair, true), at(ms)));
        jobs.ended(ids[0], Some("no node"), 10);
        assert_eq!(jobs.failed_repair(), Some((ids[0], "no node")));
        jobs.ended(ids[1], None, 11);
        assert_eq!(jobs.failed_repair(), None);
    }
}
