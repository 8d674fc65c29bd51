//! Many repairs as flows that share links fairly.
//!
//! Time advances from the end of one flow to the end of the next; between them all rates are constant
//! ([`crate::fair`]). Ends that are close together can be merged ([`Limits::tolerance`]): the flows that end first
//! then wait for the last, so merging never makes a repair faster. Memory is used only for the repairs under way.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use kintsu_dag::NodeId;

use crate::fair::{Filling, Flow};
use crate::job::{RepairModel, Step, StepFlow, Traffic};
use crate::{Network, SimError};

/// How many waiting repairs are searched for one whose nodes have room.
const WINDOW: usize = 256;

/// A flow counts as done when this fraction of its bytes is left.
const ROUNDING: f64 = 1e-9;

/// Limits on the repairs under way at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Repairs in the whole cluster.
    pub at_once: usize,
    /// Repairs in which one node takes part.
    pub per_node: Option<usize>,
    /// Flows that end within this fraction of a flow's time after its end count as ending together. Zero: each end
    /// is a step of its own.
    pub tolerance: f64,
}

/// The result for all repairs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Played {
    /// From the start to the end of the last.
    pub seconds: f64,
    /// The number of repairs.
    pub repairs: u64,
    /// The bytes that they moved.
    pub traffic: Traffic,
}

/// Plays the jobs in their order, as far as `limits` allow, and calls `progress` with the number done.
///
/// # Errors
/// `Invalid` for limits of zero; the first error of `jobs`.
pub fn play(
    network: &Network,
    jobs: impl Iterator<Item = Result<RepairModel, SimError>>,
    limits: &Limits,
    progress: &mut dyn FnMut(u64),
) -> Result<Played, SimError> {
    if limits.at_once == 0 || limits.per_node == Some(0) {
        return Err(SimError::invalid("repairs at once", "1 or more", 0));
    }
    let mut player = Player {
        capacity: network.capacity(),
        limits,
        waiting: VecDeque::new(),
        jobs: Vec::new(),
        free: Vec::new(),
        busy: HashMap::new(),
        flows: Vec::new(),
        pauses: BinaryHeap::new(),
        now: 0.0,
        played: Played::default(),
    };
    player.play(jobs, progress)?;
    player.played.seconds = player.now;
    Ok(player.played)
}

/// A job under way.
struct Running {
    steps: Vec<Waiting>,
    nodes: Vec<NodeId>,
    /// Steps that have not ended.
    open: usize,
}

/// A step of a job under way.
struct Waiting {
    /// Steps that must end before it.
    left: usize,
    delay: f64,
    /// Taken when it starts.
    flow: Option<StepFlow>,
    /// Steps that wait for it.
    followers: Vec<usize>,
}

impl Running {
    fn of(steps: Vec<Step>, nodes: Vec<NodeId>) -> Self {
        let mut followers = vec![Vec::new(); steps.len()];
        for (number, step) in steps.iter().enumerate() {
            step.waits.iter().for_each(|&before| followers[before].push(number));
        }
        let open = steps.len();
        let waiting = |(Step { waits, delay, flow }, followers): (Step, Vec<usize>)| Waiting {
            left: waits.len(),
            delay,
            flow: Some(flow),
            followers,
        };
        Self { steps: steps.into_iter().zip(followers).map(waiting).collect(), nodes, open }
    }
}

struct Moving {
    job: usize,
    step: usize,
    since: f64,
    left: f64,
    flow: StepFlow,
}

struct Player<'a> {
    capacity: &'a [f64],
    limits: &'a Limits,
    waiting: VecDeque<RepairModel>,
    jobs: Vec<Option<Running>>,
    free: Vec<usize>,
    busy: HashMap<NodeId, usize>,
    flows: Vec<Moving>,
    /// When pauses end, as the bits of a positive time; these have the same order as the time.
    pauses: BinaryHeap<Reverse<(u64, usize, usize)>>,
    now: f64,
    played: Played,
}

impl Player<'_> {
    fn play(
        &mut self,
        jobs: impl Iterator<Item = Result<RepairModel, SimError>>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SimError> {
        let mut jobs = jobs.fuse();
        let (mut filling, mut rates) = (Filling::default(), Vec::new());
        loop {
            self.start(&mut jobs)?;
            progress(self.played.repairs);
            if self.flows.is_empty() && self.pauses.is_empty() {
                return Ok(());
            }
            let flows = self.flows.iter().map(|at| Flow { uses: &at.flow.uses, limit: at.flow.limit });
            filling.rates(self.capacity, flows, &mut rates);
            let next = self.next(&rates);
            self.advance(next, &rates);
        }
    }

    /// Starts jobs while there is room for them.
    fn start(
        &mut self,
        jobs: &mut impl Iterator<Item = Result<RepairModel, SimError>>,
    ) -> Result<(), SimError> {
        let mut looked_at = 0;
        while self.jobs.len() - self.free.len() < self.limits.at_once {
            if looked_at == self.waiting.len() {
                match jobs.next().filter(|_| looked_at < WINDOW) {
                    Some(job) => self.waiting.push_back(job?),
                    None => return Ok(()),
                }
            }
            match self.has_room(&self.waiting[looked_at]) {
                true => {
                    let job = self.waiting.remove(looked_at);
                    self.begin(job.expect("it is among those that wait"));
                }
                false => looked_at += 1,
            }
        }
        Ok(())
    }

    fn has_room(&self, job: &RepairModel) -> bool {
        self.limits.per_node.is_none_or(|most| {
            job.nodes.iter().all(|node| self.busy.get(node).is_none_or(|&repairs| repairs < most))
        })
    }

    fn begin(&mut self, job: RepairModel) {
        for node in job.nodes.iter().filter(|_| self.limits.per_node.is_some()) {
            *self.busy.entry(*node).or_default() += 1;
        }
        self.played.traffic.moved += job.traffic.moved;
        self.played.traffic.across_racks += job.traffic.across_racks;
        let running = Running::of(job.steps, job.nodes);
        let first: Vec<usize> = (0..running.steps.len()).filter(|at| running.steps[*at].left == 0).collect();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(None);
            self.jobs.len() - 1
        });
        self.jobs[slot] = Some(running);
        first.into_iter().for_each(|step| self.launch(slot, step));
        self.finish(slot);
    }

    /// Starts a step that waits for no other any more: at once, or after its delay.
    fn launch(&mut self, slot: usize, step: usize) {
        let delay = self.jobs[slot].as_ref().map_or(0.0, |job| job.steps[step].delay);
        match delay > 0.0 {
            true => self.pauses.push(Reverse(((self.now + delay).to_bits(), slot, step))),
            false => self.resume(slot, step),
        }
    }

    fn resume(&mut self, slot: usize, step: usize) {
        let Some(flow) = self.jobs[slot].as_mut().and_then(|job| job.steps[step].flow.take()) else { return };
        self.flows.push(Moving { job: slot, step, since: self.now, left: flow.bytes, flow });
    }

    /// A step has ended: those that waited for it alone start.
    fn ended(&mut self, slot: usize, step: usize) {
        let Some(job) = &mut self.jobs[slot] else { return };
        job.open -= 1;
        let mut free = Vec::new();
        for follower in std::mem::take(&mut job.steps[step].followers) {
            job.steps[follower].left -= 1;
            if job.steps[follower].left == 0 {
                free.push(follower);
            }
        }
        free.into_iter().for_each(|step| self.launch(slot, step));
        self.finish(slot);
    }

    /// Ends a job whose steps have all ended.
    fn finish(&mut self, slot: usize) {
        let Some(job) = self.jobs[slot].take_if(|job| job.open == 0) else { return };
        for node in &job.nodes {
            if let Some(repairs) = self.busy.get_mut(node) {
                *repairs -= 1;
            }
        }
        self.free.push(slot);
        self.played.repairs += 1;
    }

    /// The moment until which rates stay constant.
    fn next(&self, rates: &[f64]) -> f64 {
        let ends = || self.flows.iter().zip(rates).map(|(at, rate)| (self.now + at.left / rate, at.since));
        let paused = self.pauses.peek().map_or(f64::INFINITY, |Reverse((at, ..))| f64::from_bits(*at));
        let (first, since) = ends().fold((paused, self.now), |a, b| if b.0 < a.0 { b } else { a });
        let horizon = first + self.limits.tolerance * (first - since).max(0.0);
        // The last flow that ends within the horizon; but no pause is made longer.
        let last = ends().map(|(end, _)| end).filter(|end| *end <= horizon).fold(first, f64::max);
        last.min(paused.max(first))
    }

    fn advance(&mut self, next: f64, rates: &[f64]) {
        let passed = next - self.now;
        self.now = next;
        let mut ended = Vec::new();
        let mut number = 0;
        self.flows.retain_mut(|at| {
            let rate = rates[number];
            number += 1;
            at.left = if rate == f64::INFINITY { 0.0 } else { at.left - rate * passed };
            let done = at.left <= at.flow.bytes * ROUNDING || next + at.left / rate <= next;
            if done {
                ended.push((at.job, at.step));
            }
            !done
        });
        ended.into_iter().for_each(|(slot, step)| self.ended(slot, step));
        while let Some(&Reverse((at, slot, step))) = self.pauses.peek() {
            if f64::from_bits(at) > self.now {
                break;
            }
            self.pauses.pop();
            self.resume(slot, step);
        }
    }
}
