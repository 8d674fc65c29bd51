//! Stripes of jobs whose method works in phases (ChameleonEC, section III-A). A page's stripes are held until a phase
//! takes them. At the beginning of a phase the driver plans what has not begun, for the bandwidth that is idle then; the
//! plan chooses the stripes of the phase, and only these may start.
//!
//! A phase ends when its span is over: what is late goes on beside the next one. Unlike in the paper it also ends when all
//! its stripes have, so that no link is idle until the span is over. And it is planned anew when a page comes while it has
//! room for more. Phases are a job's own; the plan of each counts what the others still have to carry.
//!
//! Invariants: a stripe that is held has no turn; a job with held stripes has stripes under repair, a plan under way, or a
//! phase whose end is awaited; what any job wants that does not work in phases is never held, nor what a plan refuses.

use std::collections::BTreeSet;

use kintsu_dag::{BlockIndex, StripeId};

use super::{Command, Entry, Queue, Rank, RepairJobId, Want};

/// The phase of a job.
#[derive(Debug, Default)]
pub(super) struct Phase {
    begun_ms: u64,
    /// Its stripes that have not ended.
    open: BTreeSet<StripeId>,
    /// It takes no more: its plan left stripes for later.
    full: bool,
    /// The driver was told to plan, and has not answered.
    planning: bool,
}

impl Queue {
    /// Whether the stripes of a job begin phase by phase.
    pub fn in_phases(&self, id: RepairJobId) -> bool {
        self.jobs.get(&id).is_some_and(|job| job.phase.is_some())
    }

    /// Time has passed: phases that have lasted for this span end.
    pub fn tick(&mut self, now_ms: u64, span_ms: u64) -> Vec<Command> {
        let mut over = Vec::new();
        for (id, job) in self.jobs.iter_mut().filter(|(_, job)| !job.paused) {
            let phase = job.phase.as_mut().filter(|phase| !phase.planning);
            if let Some(phase) = phase.filter(|phase| now_ms.saturating_sub(phase.begun_ms) >= span_ms) {
                phase.open.clear();
                over.push(*id);
            }
        }
        over.into_iter().filter_map(|id| self.next_phase(id)).collect()
    }

    /// What a job wants that has not begun: what is to be planned for the next phase. Stripes that bear fewer further losses
    /// come first.
    pub fn not_begun(&self, id: RepairJobId) -> Vec<(StripeId, Vec<BlockIndex>)> {
        let wanted = |(stripe, entry): (&StripeId, &Entry)| {
            let (blocks, _) = entry.watchers.get(&id).filter(|_| !entry.running)?;
            Some((entry.rank, (*stripe, blocks.iter().copied().collect())))
        };
        let mut ranked: Vec<(Rank, _)> = self.entries.iter().filter_map(wanted).collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, wanted)| wanted).collect()
    }

    /// A phase of a job begins: these stripes of it were planned, in the order in which they should begin, some of them for
    /// later. Of the stripes that were `asked` about, those without a plan begin too, and their repairs say why.
    pub fn phase(
        &mut self,
        id: RepairJobId,
        asked: &[StripeId],
        wants: Vec<Want>,
        now_ms: u64,
    ) -> Vec<Command> {
        let mut later: BTreeSet<StripeId> =
            wants.iter().filter(|want| want.is_later).map(|want| want.stripe).collect();
        let runs = |entry: &Entry| entry.running && entry.watchers.contains_key(&id);
        if later.len() == asked.len() && !self.entries.values().any(runs) {
            // Other jobs leave it no time. One stripe goes all the same, so that the job does not wait for their end.
            asked.iter().take(1).for_each(|first| {
                later.remove(first);
            });
        }
        if let Some(phase) = self.jobs.get_mut(&id).and_then(|job| job.phase.as_mut()) {
            (phase.begun_ms, phase.full, phase.planning) = (now_ms, !later.is_empty(), false);
        }
        for stripe in asked {
            self.hold(id, *stripe, later.contains(stripe));
        }
        let mut commands =
            self.planned_again(wants.into_iter().filter(|want| !later.contains(&want.stripe)).collect());
        commands.extend(self.new_page(id));
        commands
    }

    /// A page of a job has come: its phase takes more, if it has room.
    pub(super) fn new_page(&mut self, id: RepairJobId) -> Option<Command> {
        let phase = self.jobs.get(&id)?.phase.as_ref()?;
        (!phase.full).then(|| self.next_phase(id)).flatten()
    }

    /// A stripe of a job has ended. If it was the last of its phase, the next one begins.
    pub(super) fn end_in_phase(&mut self, id: RepairJobId, stripe: StripeId) -> Option<Command> {
        self.jobs.get_mut(&id)?.phase.as_mut()?.open.remove(&stripe);
        self.resume_phases(id)
    }

    /// The next phase of a job begins if all stripes of the last one have ended.
    pub(super) fn resume_phases(&mut self, id: RepairJobId) -> Option<Command> {
        let phase = self.jobs.get(&id)?.phase.as_ref()?;
        phase.open.is_empty().then(|| self.next_phase(id)).flatten()
    }

    /// Has the driver plan the next phase of a job, if anything is held for it.
    fn next_phase(&mut self, id: RepairJobId) -> Option<Command> {
        let is_held = |entry: &Entry| entry.held && entry.watchers.contains_key(&id);
        let job = self.jobs.get_mut(&id).filter(|job| !job.paused)?;
        let phase = job.phase.as_mut().filter(|phase| !phase.planning)?;
        phase.planning = self.entries.values().any(is_held);
        phase.planning.then_some(Command::Plan(id))
    }

    /// Holds a stripe for a later phase, or lets it begin in this phase of the job.
    fn hold(&mut self, id: RepairJobId, stripe: StripeId, later: bool) {
        let Some(entry) = self.entries.get(&stripe).filter(|entry| !entry.running) else { return };
        let held = later && entry.watchers.keys().all(|id| self.in_phases(*id));
        let due = self.due_after(entry.rank.0);
        let Some(entry) = self.entries.get_mut(&stripe) else { return };
        self.waiting.remove(&entry.rank);
        self.due.remove(&(entry.due, entry.rank.2));
        (entry.held, entry.due) = (held, due);
        let phase = self.jobs.get_mut(&id).and_then(|job| job.phase.as_mut());
        phase.filter(|_| !held).into_iter().for_each(|phase| {
            phase.open.insert(stripe);
        });
        self.wait(stripe);
    }
}
