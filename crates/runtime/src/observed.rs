//! What a conductor knows about a running plan: the last progress report of each node.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kintsu_dag::{NodeId, Task};
use kintsu_plan::Program;
use kintsu_wire::message::{Fault, RunOutcome, Standing};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::reporting::Reporting;
use crate::script::part_bytes;

/// The progress of a running plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observed {
    /// The offset up to which every node that persists is done.
    pub upto: u64,
    /// The last progress report of each node.
    pub nodes: BTreeMap<NodeId, Standing>,
}

/// Whether any of these programs persists.
pub(crate) fn persists(programs: &[Program]) -> bool {
    programs.iter().flat_map(|program| &program.tasks).any(|task| matches!(task, Task::Persist { .. }))
}

/// Keeps the reports of nodes, and passes them to the watcher.
pub(crate) struct Reached {
    stands: Mutex<BTreeMap<NodeId, Standing>>,
    /// The nodes that persist, and where each one's programs start.
    persisting: BTreeMap<NodeId, u64>,
    watcher: Option<watch::Sender<Observed>>,
    reporting: Mutex<Reporting>,
}

impl Reached {
    /// For these programs; none of them runs yet.
    pub fn new(by_node: &BTreeMap<NodeId, Vec<Program>>, watcher: Option<watch::Sender<Observed>>) -> Self {
        let start = |programs: &[Program]| programs.iter().map(|p| p.window.start).min().unwrap_or(0);
        let persisting = by_node.iter().filter(|(_, programs)| persists(programs));
        let persisting = persisting.map(|(node, programs)| (*node, start(programs))).collect();
        Self { stands: Mutex::default(), persisting, watcher, reporting: Mutex::default() }
    }

    /// Takes a progress report.
    pub fn note(&self, node: NodeId, standing: Standing) {
        let observed = {
            let mut stands = self.stands();
            let known = stands.entry(node).or_default();
            *known = Standing { upto: standing.upto.max(known.upto), ..standing };
            self.watcher.as_ref().map(|_| Observed { upto: self.least(&stands), nodes: stands.clone() })
        };
        if let (Some(watcher), Some(observed)) = (&self.watcher, observed) {
            watcher.send_replace(observed);
        }
    }

    /// When its nodes were heard of.
    pub fn reporting(&self) -> MutexGuard<'_, Reporting> {
        self.reporting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a node has been silent, if it is cut off.
    pub fn cut_off(&self, node: NodeId) -> Option<std::time::Duration> {
        self.reporting().cut_off(node, Instant::now())
    }

    /// A node has ended, and was done up to `upto`.
    pub fn ended(&self, node: NodeId, upto: u64) {
        let mut standing = self.stands().get(&node).cloned().unwrap_or_default();
        standing.upto = upto;
        self.note(node, standing);
    }

    /// The offset up to which all nodes that persist are done.
    pub fn upto(&self) -> u64 {
        self.least(&self.stands())
    }

    /// The outcome of a node that can no longer report, from its last report: a lower bound.
    pub fn presumed(&self, node: NodeId, programs: &[Program], fault: &Fault) -> Option<RunOutcome> {
        let standing = self.stands().get(&node).cloned()?;
        let mut sent: BTreeMap<NodeId, u64> = BTreeMap::new();
        for program in programs {
            let Some(lane) = standing.lanes.iter().find(|lane| lane.lane == program.lane) else { continue };
            let through = program.window.steps().take_while(|step| step.end <= lane.upto);
            let bytes: u64 = through.map(|s| part_bytes(&program.window, s.end - s.start) as u64).sum();
            for (_, to) in &program.sends {
                *sent.entry(*to).or_default() += bytes;
            }
        }
        Some(RunOutcome {
            node,
            fault: Some(fault.clone()),
            upto: standing.upto,
            bytes_read: standing.bytes_read,
            sent: sent.into_iter().collect(),
            written: Vec::new(),
        })
    }

    fn least(&self, stands: &BTreeMap<NodeId, Standing>) -> u64 {
        let upto = |(node, start): (&NodeId, &u64)| stands.get(node).map_or(*start, |s| s.upto.max(*start));
        self.persisting.iter().map(upto).min().unwrap_or(0)
    }

    fn stands(&self) -> MutexGuard<'_, BTreeMap<NodeId, Standing>> {
        self.stands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kintsu_dag::{Sink, Vertex};
    use kintsu_plan::{RunId, Window};
    use kintsu_wire::message::{FaultKind, LaneStanding};

    use super::*;
    use crate::fault::fault;

    fn program(node: u32, persists: bool) -> Program {
        let persist = Task::Persist { vertex: Vertex(0), sink: Sink::Block };
        Program {
            job: RunId(1),
            lane: 0,
            node: NodeId(node),
            window: Window::whole(100, 1000, 90, 1),
            tasks: if persists { vec![persist] } else { Vec::new() },
            sends: vec![(Vertex(0), NodeId(9))],
            blocks: Vec::new(),
            peers: Vec::new(),
            resume_key: 0,
            serial: false,
            rate: None,
        }
    }

    #[test]
    fn only_nodes_that_persist_count_and_the_watcher_sees_all() {
        let programs = [(1, false), (2, true), (3, true)].map(|(n, p)| (NodeId(n), vec![program(n, p)]));
        let (sender, seen) = watch::channel(Observed::default());
        let reached = Reached::new(&programs.into(), Some(sender));
        let stands = |upto| Standing { upto, ..Standing::default() };
        reached.note(NodeId(2), stands(500));
        assert_eq!(reached.upto(), 100);
        reached.note(NodeId(3), stands(400));
        reached.note(NodeId(1), stands(200));
        reached.ended(NodeId(3), 300);
        assert_eq!((reached.upto(), seen.borrow().upto, seen.borrow().nodes.len()), (400, 400, 3));
    }

    #[test]
    fn what_a_node_sent_before_it_fell_silent_is_reckoned_from_its_steps() {
        let programs = vec![program(1, false)];
        let reached = Reached::new(&BTreeMap::from([(NodeId(1), programs.clone())]), None);
        let lost = fault(FaultKind::Lost, NodeId(1), "");
        assert_eq!(reached.presumed(NodeId(1), &programs, &lost), None);
        let lanes = vec![LaneStanding { lane: 0, upto: 370, waits: Vec::new() }];
        reached.note(NodeId(1), Standing { at_ms: 0, upto: 370, bytes_read: 333, lanes });
        let outcome = reached.presumed(NodeId(1), &programs, &lost).unwrap();
        assert_eq!((outcome.bytes_read, &outcome.sent[..]), (333, &[(NodeId(9), 270)][..]));
    }
}
