//! Conducting a plan: its programs run on all their nodes at once, and end together.
//!
//! When one node fails, the others learn it through the streams between them; a short time later
//! whoever still runs is cancelled. The fault that counts is chosen in `culprit.rs`.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::{NodeId, Task};
use kintsu_plan::Program;
use kintsu_wire::message::{Fault, FaultKind, RunEvent, RunOutcome, RunPrograms};
use kintsu_wire::{AgentChannel, Credentials, WireError, connect_agent};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::culprit::{Report, culprit};
use crate::fault::{fault, invalid};
use crate::run::{Context, run};

/// How long the other nodes may take to end by themselves when one has failed.
const GRACE: Duration = Duration::from_secs(2);

/// Channels that are kept.
const MOST_CHANNELS: usize = 4096;

/// Starts programs on agents; keeps its channels to them.
pub struct Conductor {
    credentials: Credentials,
    channels: Mutex<HashMap<SocketAddr, AgentChannel>>,
}

/// How a plan ended.
#[derive(Debug, Clone)]
pub struct Conducted {
    /// What each node reported, in order of nodes; those that could not report are missing.
    pub outcomes: Vec<RunOutcome>,
    /// The root of what went wrong, if anything did.
    pub fault: Option<Fault>,
    /// Up to where every node that persists is through: where an attempt with the same resume key
    /// may go on.
    pub upto: u64,
}

impl Conductor {
    /// Shows these credentials to the agents.
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, channels: Mutex::default() }
    }

    /// The channel to the agent whose control listener is at `addr`.
    ///
    /// # Errors
    /// None for a socket's address.
    pub fn agent(&self, addr: SocketAddr) -> Result<AgentChannel, WireError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&addr) {
            return Ok(channel.clone());
        }
        if channels.len() >= MOST_CHANNELS {
            channels.clear();
        }
        let channel = connect_agent(addr, &self.credentials)?;
        channels.insert(addr, channel.clone());
        Ok(channel)
    }

    /// Runs the programs of one job: those for the client `here`, the others on the agents whose
    /// control listeners `control` knows. Returns when all have ended or are given up; `progress`
    /// is told up to where all that persist are through.
    pub async fn conduct(
        &self,
        programs: Vec<Program>,
        control: &(dyn Fn(NodeId) -> Option<SocketAddr> + Sync),
        here: Option<Context>,
        progress: Option<watch::Sender<u64>>,
        cancel: &CancellationToken,
    ) -> Conducted {
        let mut by_node: BTreeMap<NodeId, Vec<Program>> = BTreeMap::new();
        for program in programs {
            by_node.entry(program.node).or_default().push(program);
        }
        let reached = Arc::new(Reached::new(&by_node, progress));
        let stop = cancel.child_token();
        let mut runs: JoinSet<(NodeId, Result<RunOutcome, Fault>)> = JoinSet::new();
        for (&node, programs) in &by_node {
            let (programs, reached, stop) = (programs.clone(), reached.clone(), stop.clone());
            if node.is_client() {
                let here = here.clone();
                runs.spawn(async move { (node, run_here(programs, here, reached, stop).await) });
                continue;
            }
            let channel = match control(node) {
                Some(addr) => self.agent(addr).map_err(|error| invalid(node, "agent", "an address", error)),
                None => Err(fault(FaultKind::Lost, node, "its control address is not known")),
            };
            runs.spawn(async move {
                let outcome = match channel {
                    Ok(channel) => run_there(channel, node, programs, reached, stop).await,
                    Err(fault) => Err(fault),
                };
                (node, outcome)
            });
        }
        let results = gather(runs, &stop).await;
        conclude(results, &by_node, &reached)
    }
}

type Results = BTreeMap<NodeId, Result<RunOutcome, Fault>>;

/// Waits for all runs; some time after the first fault, stops those that are left.
async fn gather(mut runs: JoinSet<(NodeId, Result<RunOutcome, Fault>)>, stop: &CancellationToken) -> Results {
    let mut results = Results::new();
    let mut patience = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    let mut failed = false;
    loop {
        tokio::select! {
            joined = runs.join_next() => match joined {
                None => return results,
                Some(Ok((node, result))) => {
                    let fault = matches!(&result, Err(_) | Ok(RunOutcome { fault: Some(_), .. }));
                    if fault && !failed {
                        failed = true;
                        patience.as_mut().reset(tokio::time::Instant::now() + GRACE);
                    }
                    results.insert(node, result);
                }
                // Its node is missing among the results, which makes the whole fail.
                Some(Err(error)) => tracing::error!(%error, "a run ended early"),
            },
            () = &mut patience, if failed && !stop.is_cancelled() => stop.cancel(),
        }
    }
}

fn conclude(results: Results, by_node: &BTreeMap<NodeId, Vec<Program>>, reached: &Reached) -> Conducted {
    let mut reports = Vec::new();
    let mut outcomes = Vec::new();
    for (&node, programs) in by_node {
        let downstream = programs.iter().flat_map(|p| &p.sends).map(|(_, to)| *to).collect();
        let report = |fault: Fault, direct| {
            reports.push(Report { node, fault, direct, persists: persists(programs), downstream })
        };
        match results.get(&node) {
            Some(Ok(outcome)) => {
                if let Some(fault) = &outcome.fault {
                    report(fault.clone(), false);
                }
                if persists(programs) {
                    reached.note(node, outcome.upto);
                }
                outcomes.push(outcome.clone());
            }
            Some(Err(fault)) => report(fault.clone(), true),
            None => report(fault(FaultKind::Io, node, "its run ended without an outcome"), true),
        }
    }
    Conducted { outcomes, fault: culprit(reports), upto: reached.upto() }
}

fn persists(programs: &[Program]) -> bool {
    programs.iter().flat_map(|program| &program.tasks).any(|task| matches!(task, Task::Persist { .. }))
}

/// Up to where each node that persists is through.
struct Reached {
    upto: Mutex<BTreeMap<NodeId, u64>>,
    progress: Option<watch::Sender<u64>>,
}

impl Reached {
    fn new(by_node: &BTreeMap<NodeId, Vec<Program>>, progress: Option<watch::Sender<u64>>) -> Self {
        let start = |programs: &[Program]| programs.iter().map(|p| p.window.start).min().unwrap_or(0);
        let persisting = by_node.iter().filter(|(_, programs)| persists(programs));
        let upto = persisting.map(|(node, programs)| (*node, start(programs))).collect();
        Self { upto: Mutex::new(upto), progress }
    }

    /// A node is through up to here; those that do not persist do not count.
    fn note(&self, node: NodeId, upto: u64) {
        if let Some(known) = self.upto.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&node) {
            *known = upto.max(*known);
        }
        if let Some(progress) = &self.progress {
            progress.send_replace(self.upto());
        }
    }

    fn upto(&self) -> u64 {
        self.upto.lock().unwrap_or_else(PoisonError::into_inner).values().copied().min().unwrap_or(0)
    }
}

async fn run_here(
    programs: Vec<Program>,
    here: Option<Context>,
    reached: Arc<Reached>,
    stop: CancellationToken,
) -> Result<RunOutcome, Fault> {
    let Some(context) = here else {
        return Err(invalid(NodeId::CLIENT, "programs", "none for the client", programs.len()));
    };
    let own = context.progress.clone();
    let (progress, mut seen) = watch::channel(0);
    let context = Context { progress: Some(progress), cancel: stop, ..context };
    let watching = async {
        while seen.changed().await.is_ok() {
            let upto = *seen.borrow_and_update();
            reached.note(NodeId::CLIENT, upto);
            if let Some(own) = &own {
                own.send_replace(upto);
            }
        }
    };
    // The context, and with it the progress, is dropped when the run ends.
    let (outcome, ()) = tokio::join!(run(&programs, context), watching);
    Ok(outcome)
}

async fn run_there(
    mut channel: AgentChannel,
    node: NodeId,
    programs: Vec<Program>,
    reached: Arc<Reached>,
    stop: CancellationToken,
) -> Result<RunOutcome, Fault> {
    let running = async {
        let mut events = channel.run(RunPrograms { programs }).await?.into_inner();
        while let Some(event) = events.message().await? {
            match event {
                RunEvent::Progress { upto, .. } => reached.note(node, upto),
                RunEvent::Ended(outcome) => return Ok(outcome),
            }
        }
        Err(Status::unavailable("the call ended before the run did"))
    };
    let ended = tokio::select! {
        ended = running => ended,
        () = stop.cancelled() => return Err(fault(FaultKind::Aborted, node, "the run was cancelled")),
    };
    ended.map_err(|status| from_status(node, &status))
}

/// What the refusal of a call to the agent `node`, or its failure, means.
fn from_status(node: NodeId, status: &Status) -> Fault {
    let kind = match status.code() {
        Code::FailedPrecondition | Code::Unauthenticated | Code::InvalidArgument | Code::Unimplemented => {
            FaultKind::Invalid
        }
        Code::Internal | Code::ResourceExhausted => FaultKind::Io,
        _ => FaultKind::Lost,
    };
    fault(kind, node, format!("its agent: {}", status.message()))
}
