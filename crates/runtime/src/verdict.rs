//! What the parts of a run share: how it ends, its progress, and what it waits for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use kintsu_dag::NodeId;
use kintsu_plan::Window;
use kintsu_wire::message::{Fault, LaneStanding, Standing, Wait};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carried::Carried;

/// How long a failed run tries to tell its peers.
pub(crate) const FAREWELL: Duration = Duration::from_secs(1);

/// Keep-alives name this instead of a node while their lane, or the one that it waits for, keeps the limit of repairs:
/// nobody is to blame for that wait.
pub(crate) const NOBODY: NodeId = NodeId(u32::MAX - 1);

/// How often the lanes are sampled for what they wait for.
pub const SAMPLED_EVERY: Duration = Duration::from_millis(50);

/// The first fault of a run, which ends it.
#[derive(Debug, Default)]
pub(crate) struct FirstFault {
    fault: Mutex<Option<Fault>>,
    ended: CancellationToken,
}

impl FirstFault {
    /// Ends the run with this fault, unless another fault has ended it already.
    pub fn fail(&self, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(fault);
        drop(first);
        self.ended.cancel();
    }

    /// The fault that ended it.
    pub fn fault(&self) -> Option<Fault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Completes when there is a fault.
    pub async fn failed(&self) -> Fault {
        loop {
            self.ended.cancelled().await;
            if let Some(fault) = self.fault() {
                return fault;
            }
        }
    }

    /// The connection. If the run fails meanwhile, connecting goes on for [`FAREWELL`], so that the peer can be
    /// told why instead of waiting. `None` if that is not enough.
    pub async fn while_connecting<T>(&self, connecting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            connected = connecting => Some(connected),
            () = async { drop(self.failed().await); tokio::time::sleep(FAREWELL).await } => None,
        }
    }
}

/// The progress of each lane, and what it waits for.
#[derive(Debug)]
pub(crate) struct Tracker {
    lanes: Vec<Progress>,
    report: Option<watch::Sender<Standing>>,
    /// Bytes read from local blocks.
    pub bytes_read: AtomicU64,
    /// Counts what is moved.
    pub carried: Arc<Carried>,
}

#[derive(Debug)]
struct Progress {
    lane: u16,
    window: Window,
    /// Steps done by each part that is tracked: the sinks, or the executor if there are none.
    parts: Vec<AtomicU64>,
    /// What the lane waits for now; set once the lane runs.
    waiting: OnceLock<Arc<WaitState>>,
    /// What the lane waited for when sampled, and how often.
    waits: Mutex<BTreeMap<Wait, u64>>,
}

impl Progress {
    /// The offset up to which the lane is done.
    fn upto(&self) -> u64 {
        let steps = self.parts.iter().map(|part| part.load(Ordering::Relaxed)).min();
        step_start(&self.window, steps.unwrap_or(0))
    }
}

impl Tracker {
    /// For lanes with these numbers, windows and counts of tracked parts.
    pub fn new(
        lanes: impl IntoIterator<Item = (u16, Window, usize)>,
        report: Option<watch::Sender<Standing>>,
        carried: Arc<Carried>,
    ) -> Self {
        let progress = |(lane, window, parts)| Progress {
            lane,
            window,
            parts: std::iter::repeat_with(AtomicU64::default).take(parts).collect(),
            waiting: OnceLock::new(),
            waits: Mutex::default(),
        };
        let lanes = lanes.into_iter().map(progress).collect();
        Self { lanes, report, bytes_read: AtomicU64::new(0), carried }
    }

    /// A lane has started; `waiting` says what it waits for.
    pub fn runs(&self, lane: usize, waiting: &Arc<WaitState>) {
        let _ = self.lanes[lane].waiting.set(waiting.clone());
    }

    /// A part of a lane has done `steps` steps in total.
    pub fn advance(&self, lane: usize, part: usize, steps: u64) {
        self.lanes[lane].parts[part].store(steps, Ordering::Relaxed);
        if let Some(report) = &self.report {
            let upto = self.upto();
            report.send_if_modified(|last| {
                let further = upto > last.upto;
                last.upto = upto.max(last.upto);
                further
            });
        }
    }

    /// The offset up to which all lanes are done.
    pub fn upto(&self) -> u64 {
        self.lanes.iter().map(Progress::upto).min().unwrap_or(0)
    }

    /// Samples what the lanes wait for, and reports their progress, again and again; never ends.
    pub async fn look(&self) {
        loop {
            tokio::time::sleep(SAMPLED_EVERY).await;
            for lane in &self.lanes {
                let Some(waiting) = lane.waiting.get() else { continue };
                let mut waits = lane.waits.lock().unwrap_or_else(PoisonError::into_inner);
                *waits.entry(waiting.now()).or_default() += 1;
            }
            if let Some(report) = &self.report {
                report.send_replace(self.standing());
            }
        }
    }

    /// The progress of the run.
    fn standing(&self) -> Standing {
        let lane = |lane: &Progress| LaneStanding {
            lane: lane.lane,
            upto: lane.upto(),
            waits: lane.waits.lock().unwrap_or_else(PoisonError::into_inner).clone().into_iter().collect(),
        };
        let running = self.lanes.iter().filter(|lane| lane.waiting.get().is_some());
        Standing {
            at_ms: 0,
            upto: self.upto(),
            bytes_read: self.bytes_read.load(Ordering::Relaxed),
            lanes: running.map(lane).collect(),
        }
    }
}

/// Where the `nth` step of a lane begins; the window's end if it has fewer steps.
fn step_start(window: &Window, nth: u64) -> u64 {
    let share = u64::from(window.share.max(1));
    let step = (nth / share)
        .saturating_mul(u64::from(window.period.max(1)))
        .saturating_add(u64::from(window.phase) + nth % share);
    let start = step.saturating_mul(u64::from(window.step_bytes)).saturating_add(window.start);
    if window.share == 0 { window.end } else { start.min(window.end) }
}

/// What a lane waits for now (a peer or its own node), and the node at the root of the wait, which its keep-alives
/// name.
#[derive(Debug)]
pub(crate) struct WaitState {
    now: AtomicUsize,
    places: Vec<Wait>,
    roots: Vec<AtomicU32>,
}

impl WaitState {
    /// The place of this node itself. The nodes that it receives from follow, then those that it sends to, then
    /// [`held`](Self::held).
    pub const SELF: usize = 0;

    /// For this node, the nodes that it receives from, and those that it sends to.
    pub fn new(node: NodeId, from: &[NodeId], to: &[NodeId]) -> Self {
        let froms = from.iter().map(|node| Wait::From(*node));
        let tos = to.iter().map(|node| Wait::To(*node));
        let roots = [&[node], from, to, &[NOBODY]].concat();
        let roots = roots.into_iter().map(|node| AtomicU32::new(node.0)).collect();
        let places = std::iter::once(Wait::Own).chain(froms).chain(tos).chain([Wait::Held]).collect();
        Self { now: AtomicUsize::new(Self::SELF), places, roots }
    }

    /// The place of waits for which no node is to blame: a background lane keeps the limit.
    pub fn held(&self) -> usize {
        self.places.len() - 1
    }

    /// The lane now waits for the node at `place`.
    pub fn on(&self, place: usize) {
        self.now.store(place, Ordering::Relaxed);
    }

    /// The node at `place` itself waits for `root`.
    pub fn because_of(&self, place: usize, root: NodeId) {
        self.roots[place].store(root.0, Ordering::Relaxed);
    }

    /// What it waits for now.
    pub fn now(&self) -> Wait {
        self.places[self.now.load(Ordering::Relaxed)]
    }

    /// The node at the root of the wait.
    pub fn root(&self) -> NodeId {
        NodeId(self.roots[self.now.load(Ordering::Relaxed)].load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_of_steps_agree_with_the_window() {
        for (period, phase, share) in [(1, 0, 1), (3, 0, 1), (3, 1, 2), (5, 4, 1), (7, 2, 3)] {
            let window = Window { start: 100, end: 1003, step_bytes: 40, w: 1, period, phase, share };
            let starts: Vec<_> = window.steps().map(|range| range.start).collect();
            for (nth, start) in starts.iter().enumerate() {
                assert_eq!(step_start(&window, nth as u64), *start);
            }
            assert_eq!(step_start(&window, starts.len() as u64 + 5), 1003);
        }
    }

    #[test]
    fn all_lanes_are_through_up_to_the_slowest() {
        let window = |phase| Window { start: 0, end: 100, step_bytes: 10, w: 1, period: 2, phase, share: 1 };
        let lane = |phase: u16| (phase, window(phase.into()), 1);
        let (report, seen) = watch::channel(Standing::default());
        let tracker = Tracker::new([lane(0), lane(1)], Some(report), Arc::default());
        assert_eq!(tracker.upto(), 0);
        tracker.advance(0, 0, 3);
        assert_eq!(tracker.upto(), 10);
        tracker.advance(1, 0, 5);
        assert_eq!((tracker.upto(), seen.borrow().upto), (60, 60));
        tracker.advance(0, 0, 5);
        assert_eq!(tracker.upto(), 100);
    }
}
