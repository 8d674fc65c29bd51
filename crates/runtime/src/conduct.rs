//! Conducting a plan: its programs run on all their nodes at once, and end together.
//!
//! When one node fails, the others learn it through the streams between them. After a short grace period the
//! conductor stops the runs that are left. `culprit.rs` chooses the fault to report. A node that is silent for too
//! long counts as lost: agents report several times a second, even when their disks are slow. While the other nodes
//! report, a silent one is found sooner (`reporting.rs`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::error::Error as _;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{Program, RunId};
use kintsu_wire::frame::FrameVersion;
use kintsu_wire::message::{
    EnclosedStream, Fault, FaultKind, JobRef, RunEvent, RunOutcome, RunPrograms, Standing,
};
use kintsu_wire::ticket::Ticket;
use kintsu_wire::version::{ENCLOSES, Speaks, Spoken};
use kintsu_wire::{AgentChannel, Credentials, WireError, connect_agent, connect_agent_of};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request, Status};

use crate::culprit::{Report, culprit};
use crate::enclosed::{Answers, Enclosed, Leaving, fits, fits_answers};
use crate::exchanged::Peer;
use crate::fault::{fault, invalid};
use crate::limits::patiently;
use crate::observed::{Observed, Reached, persists};
use crate::run::{Context, run};

/// Timeout for an agent's answer when it gets its programs.
const ANSWER: Duration = Duration::from_secs(5);

/// An agent without a report for this long counts as lost.
const SILENCE: Duration = Duration::from_secs(2);

/// How often silence is looked at. A node is cut off if it is so in two looks, one after the other: its report may
/// be here, and only not be read yet.
const LOOK: Duration = Duration::from_millis(10);

/// When one node has failed: how long the other nodes may take to end by themselves. If the conductor itself has lost
/// the node, there is nothing to learn from the others.
const GRACE: Duration = Duration::from_millis(500);

/// How long a stopped node may take to end. A node that persists (the second value) gets longer: it must release
/// its block before the next attempt can continue with it. From the others we would only miss the final report.
const ENDING: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(2)];

/// Most channels that are kept open.
const MOST_CHANNELS: usize = 4096;

/// Starts programs on agents; keeps its channels to them.
pub struct Conductor {
    credentials: Credentials,
    /// By address, and by the node that must be there, if one is known.
    channels: Mutex<HashMap<(SocketAddr, Option<NodeId>), AgentChannel>>,
}

/// How a plan ended.
#[derive(Debug, Clone)]
pub struct Conducted {
    /// What each node reported, in order of nodes. For a node that could not report its end, this is taken from
    /// its last progress report; a node that never reported is missing.
    pub outcomes: Vec<RunOutcome>,
    /// The root cause, if the plan failed.
    pub fault: Option<Fault>,
    /// The offset up to which every node that persists is done; the next attempt with the same resume key may
    /// continue there.
    pub upto: u64,
}

impl Conductor {
    /// Shows these credentials to the agents.
    pub fn new(credentials: Credentials) -> Self {
        Self { credentials, channels: Mutex::default() }
    }

    /// The channel to the agent whose control listener is at `addr`, of whatever node it is.
    ///
    /// # Errors
    /// None for a socket's address.
    pub fn agent(&self, addr: SocketAddr) -> Result<AgentChannel, WireError> {
        self.channel((addr, None), || connect_agent(addr, &self.credentials))
    }

    /// The channel to the agent of a node, whose control listener is at `addr`: in TLS nobody else is called. Whoever had
    /// the key of one agent could else register it at the address of another, which then got the orders.
    ///
    /// # Errors
    /// None for a socket's address.
    pub fn agent_of(&self, node: NodeId, addr: SocketAddr) -> Result<AgentChannel, WireError> {
        self.channel((addr, Some(node)), || connect_agent_of(node, addr, &self.credentials))
    }

    fn channel(
        &self,
        to: (SocketAddr, Option<NodeId>),
        connect: impl FnOnce() -> Result<AgentChannel, WireError>,
    ) -> Result<AgentChannel, WireError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(&to) {
            return Ok(channel.clone());
        }
        if channels.len() >= MOST_CHANNELS {
            channels.clear();
        }
        let channel = connect()?;
        channels.insert(to, channel.clone());
        Ok(channel)
    }

    /// Runs the programs of one job: those for the client `here`, the others on the agents whose control listeners
    /// `control` knows. Returns when every program has ended or its node was given up. `watcher` gets the
    /// progress. `cancel` ends the job early; the result still says what was done.
    ///
    /// If the client's programs wait for nobody and send little, they run first, and what they send is enclosed in
    /// the calls that start the others. If the others wait for nobody and send little, to the client alone, they run first, and what
    /// they send is enclosed in the answers.
    pub async fn conduct(
        &self,
        programs: Vec<Program>,
        control: &(dyn Fn(NodeId) -> Option<SocketAddr> + Sync),
        here: Option<Context>,
        watcher: Option<watch::Sender<Observed>>,
        cancel: &CancellationToken,
    ) -> Conducted {
        let mut by_node: BTreeMap<NodeId, Vec<Program>> = BTreeMap::new();
        for program in programs {
            by_node.entry(program.node).or_default().push(program);
        }
        // One version for the whole run: its nodes send slices to each other.
        let version = self.credentials.speaks().now();
        let frames = FrameVersion::of_protocol(version);
        let here = here.map(|here| Context { frames, ..here });
        let reached = Arc::new(Reached::new(&by_node, watcher));
        let stop = cancel.child_token();
        // What a client conducts, users wait for.
        let background = here.is_none();
        let mut ended = Results::new();
        let leaving = match ahead(&by_node, here.as_ref(), &reached, &stop).await {
            Some((outcome, leaving)) => {
                if has_failed(&outcome) {
                    by_node.retain(|node, _| node.is_client());
                }
                ended.insert(NodeId::CLIENT, outcome);
                leaving
            }
            None => Leaving::default(),
        };
        // An older agent waits for connections.
        let last = here.as_ref().filter(|_| version >= ENCLOSES && fits_answers(&by_node));
        let answers = Answers::default();
        let mut runs: JoinSet<(NodeId, Result<RunOutcome, Fault>)> = JoinSet::new();
        for (&node, programs) in by_node.iter().filter(|(node, _)| !ended.contains_key(node)) {
            let (programs, reached, stop) = (programs.clone(), reached.clone(), stop.clone());
            if node.is_client() {
                if last.is_none() {
                    let here = here.clone();
                    runs.spawn(async move { (node, run_here(programs, here, reached, stop).await) });
                }
                continue;
            }
            let awaited = last.map(|here| Awaited::new(answers.clone(), here.received.of(node)));
            let channel = match control(node) {
                Some(addr) => {
                    self.agent_of(node, addr).map_err(|error| invalid(node, "agent", "an address", error))
                }
                None => Err(fault(FaultKind::Lost, node, "its control address is not known")),
            };
            let tickets = tickets(&programs, here.as_ref());
            let enclosed = leaving.take(node, NodeId::CLIENT);
            let speaks = self.credentials.speaks().clone();
            let encloses = awaited.is_some();
            let request = RunPrograms { programs, background, enclosed, tickets, encloses };
            let request = Spoken::over(request, version);
            runs.spawn(async move {
                let outcome = match channel {
                    Ok(channel) => run_there((channel, speaks), node, request, awaited, reached, stop).await,
                    Err(fault) => Err(fault),
                };
                (node, outcome)
            });
        }
        ended.append(&mut gather(runs, &stop).await);
        if let Some(here) = last {
            if ended.values().any(has_failed) {
                // Without all that it waits for it need not begin.
                by_node.remove(&NodeId::CLIENT);
            } else if let Some(programs) = by_node.get(&NodeId::CLIENT) {
                let here = Context { enclosed: answers.take(), ..here.clone() };
                let outcome = run_here(programs.clone(), Some(here), reached.clone(), stop).await;
                ended.insert(NodeId::CLIENT, outcome);
            }
        }
        conclude(ended, &by_node, &reached, cancel.is_cancelled())
    }
}

/// What a node's programs send, which its answer is to enclose. The client waits for it as for a connection.
struct Awaited {
    answers: Answers,
    peer: Arc<Peer>,
}

impl Awaited {
    fn new(answers: Answers, peer: Arc<Peer>) -> Self {
        peer.begins();
        peer.waits();
        Self { answers, peer }
    }

    /// It has come.
    fn came(self, node: NodeId, streams: Vec<EnclosedStream>) -> Result<(), Fault> {
        let bytes = self.answers.add(node, streams)?;
        self.peer.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.peer.came(true);
        self.peer.ends();
        Ok(())
    }
}

/// The client's tickets for the blocks of these programs.
fn tickets(programs: &[Program], here: Option<&Context>) -> Vec<Ticket> {
    let Some(here) = here.filter(|here| !here.tickets.is_empty()) else { return Vec::new() };
    let blocks: BTreeSet<BlockId> = programs.iter().flat_map(|p| &p.blocks).map(|block| block.id).collect();
    here.tickets.iter().filter(|ticket| blocks.contains(&ticket.block)).copied().collect()
}

fn has_failed(ended: &Result<RunOutcome, Fault>) -> bool {
    !matches!(ended, Ok(RunOutcome { fault: None, .. }))
}

type Results = BTreeMap<NodeId, Result<RunOutcome, Fault>>;

/// Waits for all runs; stops those that still run [`GRACE`] after the first fault, or when a node is lost.
async fn gather(mut runs: JoinSet<(NodeId, Result<RunOutcome, Fault>)>, stop: &CancellationToken) -> Results {
    let mut results = Results::new();
    let mut patience = std::pin::pin!(tokio::time::sleep(Duration::MAX));
    let mut failed = false;
    loop {
        tokio::select! {
            joined = runs.join_next() => match joined {
                None => return results,
                Some(Ok((node, result))) => {
                    let fault = has_failed(&result);
                    if matches!(&result, Err(Fault { kind: FaultKind::Lost, .. })) {
                        failed = true;
                        stop.cancel();
                    } else if fault && !failed {
                        failed = true;
                        patience.as_mut().reset(Instant::now() + GRACE);
                    }
                    results.insert(node, result);
                }
                // Its node has no result, and `conclude` makes that a fault.
                Some(Err(error)) => tracing::error!(%error, "a run ended early"),
            },
            () = &mut patience, if failed && !stop.is_cancelled() => stop.cancel(),
        }
    }
}

fn conclude(
    results: Results,
    by_node: &BTreeMap<NodeId, Vec<Program>>,
    reached: &Reached,
    cancelled: bool,
) -> Conducted {
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
                reached.ended(node, outcome.upto);
                outcomes.push(outcome.clone());
            }
            Some(Err(fault)) => {
                report(fault.clone(), true);
                outcomes.extend(reached.presumed(node, programs, fault));
            }
            None => report(fault(FaultKind::Io, node, "its run ended without a result"), true),
        }
    }
    if cancelled {
        // When all runs are cancelled at once, some connections break; no node is to blame for that.
        let broken = |fault: &Fault| fault.kind.is_silence();
        for report in reports.iter_mut().filter(|report| broken(&report.fault)) {
            report.fault = fault(FaultKind::Aborted, report.node, "the run was cancelled");
        }
    }
    Conducted { outcomes, fault: culprit(reports), upto: reached.upto() }
}

/// Runs the client's programs before all others, if what they send can be enclosed in the calls to the others.
async fn ahead(
    by_node: &BTreeMap<NodeId, Vec<Program>>,
    here: Option<&Context>,
    reached: &Arc<Reached>,
    stop: &CancellationToken,
) -> Option<(Result<RunOutcome, Fault>, Leaving)> {
    let (programs, here) = by_node.get(&NodeId::CLIENT).filter(|programs| fits(programs)).zip(here)?;
    let leaving = Leaving::default();
    let here = Context { enclosed: Enclosed::collected_by(leaving.clone()), ..here.clone() };
    let outcome = run_here(programs.clone(), Some(here), reached.clone(), stop.clone()).await;
    Some((outcome, leaving))
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
    let (progress, mut seen) = watch::channel(Standing::default());
    let context = Context { progress: Some(progress), cancel: stop, ..context };
    let watching = async {
        while seen.changed().await.is_ok() {
            let standing = seen.borrow_and_update().clone();
            if let Some(own) = &own {
                own.send_replace(standing.clone());
            }
            reached.note(NodeId::CLIENT, standing);
        }
    };
    // The context, and with it the progress, is dropped when the run ends.
    let (outcome, ()) = tokio::join!(run(&programs, context), watching);
    Ok(outcome)
}

async fn run_there(
    (mut channel, speaks): (AgentChannel, Speaks),
    node: NodeId,
    request: Request<RunPrograms>,
    awaited: Option<Awaited>,
    reached: Arc<Reached>,
    stop: CancellationToken,
) -> Result<RunOutcome, Fault> {
    let programs = &request.get_ref().programs;
    let Some(job) = programs.first().map(|program| program.job) else {
        return Err(invalid(node, "programs", "one or more", "none"));
    };
    let patience = ENDING[usize::from(persists(programs))];
    let mut running = pin!(follow((channel.clone(), speaks), node, request, awaited, &reached));
    tokio::select! {
        ended = &mut running => return ended,
        () = stop.cancelled() => {}
    }
    let ending = async { tokio::join!(abort(&mut channel, job), running).1 };
    match timeout(patience, ending).await {
        Ok(ended) => ended,
        Err(_) => {
            Err(fault(FaultKind::Aborted, node, "the run was cancelled; its node did not confirm in time"))
        }
    }
}

/// Gives the agent its programs and follows its reports until the run ends.
async fn follow(
    (mut channel, speaks): (AgentChannel, Speaks),
    node: NodeId,
    request: Request<RunPrograms>,
    mut awaited: Option<Awaited>,
    reached: &Reached,
) -> Result<RunOutcome, Fault> {
    let silent = |limit| fault(FaultKind::Lost, node, format!("its agent said nothing for {limit:?}"));
    let refused = |status: Status| {
        // The next attempt is in a version that this agent speaks.
        speaks.adopt(&status);
        from_status(node, &status)
    };
    let answer = patiently(ANSWER, channel.run(request)).await;
    let mut events = answer.ok_or_else(|| silent(ANSWER))?.map_err(refused)?.into_inner();
    let ended = loop {
        let event = patiently(SILENCE, events.message());
        let cut = cut_off(node, reached);
        let event = tokio::select! {
            biased;
            event = event => event.ok_or_else(|| silent(SILENCE))?,
            silence = cut => return Err(silent(silence)),
        };
        match event.map_err(refused)? {
            Some(RunEvent::Progress { standing, .. }) => {
                reached.reporting().note(node, Instant::now());
                reached.note(node, standing);
            }
            Some(RunEvent::Enclosed(streams)) => match awaited.take() {
                Some(awaited) => awaited.came(node, streams)?,
                None => return Err(invalid(node, "enclosed streams", "none", streams.len())),
            },
            Some(RunEvent::Ended(outcome)) if outcome.fault.is_none() && awaited.is_some() => {
                return Err(invalid(node, "enclosed streams", "some before the end of the run", "none"));
            }
            Some(RunEvent::Ended(outcome)) => break outcome,
            None => return Err(refused(Status::unavailable("the call ended before the run did"))),
        }
    };
    reached.reporting().ended(node);
    Ok(ended)
}

/// Completes when a node is cut off; returns how long it has been silent.
async fn cut_off(node: NodeId, reached: &Reached) -> Duration {
    let mut looks = 0;
    loop {
        tokio::time::sleep(LOOK).await;
        match reached.cut_off(node) {
            Some(silence) if looks > 0 => return silence,
            Some(_) => looks += 1,
            None => looks = 0,
        }
    }
}

/// Tells an agent to end a job. A failure is only logged: the caller waits for the run's end with a timeout
/// anyway.
async fn abort(channel: &mut AgentChannel, job: RunId) {
    if let Err(status) = channel.abort(JobRef { job }).await {
        tracing::debug!("job {job} could not be told to end: {}", status.message());
    }
}

/// The fault for a refused or failed call to the agent of `node`.
fn from_status(node: NodeId, status: &Status) -> Fault {
    // Said by this end, of a connection that broke: what became of the run nobody knows.
    if let Some(mut cause) = status.source() {
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        return fault(FaultKind::Lost, node, format!("its agent: {}: {cause}", status.message()));
    }
    let kind = match status.code() {
        Code::FailedPrecondition
        | Code::Unauthenticated
        | Code::PermissionDenied
        | Code::InvalidArgument
        | Code::Unimplemented => FaultKind::Invalid,
        Code::Internal | Code::ResourceExhausted => FaultKind::Io,
        _ => FaultKind::Lost,
    };
    fault(kind, node, format!("its agent: {}", status.message()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_is_a_lost_node_and_an_answer_is_what_it_says() {
        let kind = |status: &Status| from_status(NodeId(1), status).kind;
        let answer = Status::internal("the disk is gone");
        assert_eq!(kind(&answer), FaultKind::Io);
        assert_eq!(kind(&Status::permission_denied("not for you")), FaultKind::Invalid);
        assert_eq!(kind(&Status::unavailable("ending")), FaultKind::Lost);
        // Tonic gives the same code to errors of a connection, with their cause.
        let mut broken = Status::internal("h2 protocol error");
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        broken.set_source(Arc::new(reset));
        assert_eq!(kind(&broken), FaultKind::Lost);
        assert!(from_status(NodeId(1), &broken).detail.ends_with("h2 protocol error: connection reset"));
    }
}
