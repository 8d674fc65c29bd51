//! The parts of a run, and how they are connected: block writers for all lanes, and for each lane its sources, its
//! edges and its executor. A hop of a chain is one task, so that a batch of slices passes it without a task
//! switch; where several streams meet, each has its own task, unless all of them came with the call.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{BlockBinding, Program};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::budget::Grant;
use crate::exchanged::Exchanged;
use crate::executor::{Lane, Loads};
use crate::flow::{Flow, Inlet, Outlet};
use crate::local::{BlockSink, Local, Output};
use crate::plane::StreamKey;
use crate::pulse::Pulse;
use crate::receive::Incoming;
use crate::run::Context;
use crate::script::{Edge, Persisted, Script, Source};
use crate::send::{Outgoing, Parcel};
use crate::shared_block::{SharedBlock, shared};
use crate::sink::{BlockWriter, Piece, Share};
use crate::source::{CHUNK_BYTES, Reader};
use crate::verdict::{FirstFault, Tracker, WaitState};

/// The blocks that a run writes, by position in the stripe.
pub(crate) type Sinks = BTreeMap<BlockIndex, (BlockBinding, Output)>;

/// The receiver, and how many bytes were sent to it.
pub(crate) type Sent = Option<(NodeId, u64)>;

/// A part of a lane.
type Part = BoxFuture<'static, Sent>;

/// A running run.
pub(crate) struct Running {
    pub node: NodeId,
    pub verdict: Arc<FirstFault>,
    pub tracker: Arc<Tracker>,
    /// Lanes, sources and edges; an outgoing edge returns its receiver and the bytes sent.
    pub parts: JoinSet<Vec<Sent>>,
    /// Each returns its sink, unless the sink failed.
    pub writers: JoinSet<Option<(BlockBinding, Box<dyn BlockSink>)>>,
    /// Room for the queues of its edges, held until the run ends.
    grant: Grant,
    /// Bytes from peers, and to them.
    from: Arc<Exchanged>,
    to: Exchanged,
    /// Blocks that several lanes read.
    shared: Vec<Arc<SharedBlock>>,
}

/// Starts all parts of the run.
pub(crate) fn start(
    node: NodeId,
    programs: &[Program],
    scripts: Vec<Script>,
    sinks: Sinks,
    context: &Context,
    grant: Grant,
) -> Running {
    let parts_of = |(p, s): (&Program, &Script)| (p.lane, s.window, s.sinks.len().max(1));
    let lanes = programs.iter().zip(&scripts).map(parts_of);
    let tracker = Arc::new(Tracker::new(lanes, context.progress.clone(), context.carried.clone()));
    let mut running = Running {
        node,
        verdict: Arc::default(),
        tracker,
        parts: JoinSet::new(),
        writers: JoinSet::new(),
        grant,
        from: context.received.clone(),
        to: Exchanged::default(),
        shared: shared(&scripts, &context.local, &context.plane.kept),
    };
    let queues = running.start_writers(sinks, &scripts, context);
    for (position, (program, script)) in programs.iter().zip(scripts).enumerate() {
        if script.window.steps().next().is_some() {
            running.start_lane(position, program, script, &queues, context);
        }
    }
    running
}

/// For each sink its queue, and the room of each lane in that queue.
type Queues = BTreeMap<BlockIndex, (mpsc::UnboundedSender<Vec<Piece>>, Vec<Option<Arc<Semaphore>>>)>;

impl Running {
    fn start_writers(&mut self, sinks: Sinks, scripts: &[Script], context: &Context) -> Queues {
        let mut queues = Queues::new();
        for (index, (binding, output)) in sinks {
            let (sender, queue) = mpsc::unbounded_channel();
            let share = |script: &Script| {
                let part = script.sinks.iter().position(|s| s.binding.index == index)?;
                let pieces = script.sinks[part].subs;
                let room = Arc::new(Semaphore::new(pieces * self.grant.depth));
                Some(Share { room, pieces: pieces as u64, part, written: 0 })
            };
            let shares: Vec<_> = scripts.iter().map(share).collect();
            let room = |share: &Option<Share>| share.as_ref().map(|s| s.room.clone());
            queues.insert(index, (sender, shares.iter().map(room).collect()));
            let (verdict, tracker) = (self.verdict.clone(), self.tracker.clone());
            let disk = context.limits.disk;
            let writer = BlockWriter { node: self.node, binding, disk, shares, verdict, tracker };
            self.writers.spawn(writer.run(output, queue));
        }
        queues
    }

    fn start_lane(
        &mut self,
        position: usize,
        program: &Program,
        mut script: Script,
        queues: &Queues,
        context: &Context,
    ) {
        let peers = |edges: &[Edge]| edges.iter().map(|edge| edge.peer).collect::<Vec<_>>();
        let waiting = WaitState::new(self.node, &peers(&script.fetches), &peers(&script.sends));
        let waiting = Arc::new(waiting);
        self.tracker.runs(position, &waiting);
        let flow = if program.serial { Flow::Serial } else { Flow::Overlapped };
        let moves = script.moves();
        let mut parts = Vec::new();
        let loads = std::mem::take(&mut script.sources)
            .into_iter()
            .map(|source| self.source(source, &script, flow, context, &mut parts))
            .collect();
        let fetches = (0..script.fetches.len())
            .map(|edge| self.incoming(edge, program, &script, &waiting, context, &mut parts))
            .collect();
        let mut outgoing = Vec::new();
        let sends = (0..script.sends.len())
            .map(|edge| self.outgoing(edge, program, &script, &waiting, context, &mut outgoing))
            .collect();
        let outlet = |sink: &Persisted| {
            let (queue, rooms) = &queues[&sink.binding.index];
            let room = rooms[position].clone().expect("a lane has a share in each of its sinks");
            Outlet::new(queue.clone(), room, sink.subs, self.grant.depth)
        };
        let sinks = script.sinks.iter().map(outlet).collect();
        let hop = parts.len() <= 2 && script.fetches.len() <= 1 && script.sends.len() <= 1;
        let is_here = |edge: &Edge| context.enclosed.frames(program.lane, edge.peer).is_some();
        let together = hop || (!script.fetches.is_empty() && script.fetches.iter().all(is_here));
        let (verdict, tracker, node) = (self.verdict.clone(), self.tracker.clone(), self.node);
        let lane = Lane {
            node,
            position,
            script,
            flow,
            loads,
            fetches,
            sends,
            sinks,
            verdict,
            waiting,
            tracker,
            interval: interval(program),
            moves,
            done: 0,
        };
        parts.push(Box::pin(async move {
            lane.run().await;
            None
        }));
        // In the order in which a slice passes these parts.
        parts.append(&mut outgoing);
        if together {
            self.parts.spawn(join_all(parts));
        } else {
            for part in parts {
                self.parts.spawn(async move { vec![part.await] });
            }
        }
    }

    fn source(
        &self,
        source: Source,
        script: &Script,
        flow: Flow,
        context: &Context,
        parts: &mut Vec<Part>,
    ) -> Loads {
        let (sender, queue) = mpsc::channel(1);
        let demand = (flow == Flow::Serial).then(|| Arc::new(Semaphore::new(0)));
        let shared = self.shared.iter().find(|shared| shared.serves(&source.binding));
        let reader = Reader {
            node: self.node,
            local: shared.map_or_else(|| context.local.clone(), |shared| shared.clone() as Arc<dyn Local>),
            chunk_bytes: shared.map_or(CHUNK_BYTES, |shared| CHUNK_BYTES / shared.lanes()),
            source,
            window: script.window,
            disk: context.limits.disk,
            verdict: self.verdict.clone(),
            tracker: self.tracker.clone(),
            demand: demand.clone(),
        };
        parts.push(Box::pin(async move {
            reader.run(sender).await;
            None
        }));
        Loads { queue, chunk: Vec::new().into_iter(), demand }
    }

    fn incoming(
        &self,
        edge: usize,
        program: &Program,
        script: &Script,
        waiting: &Arc<WaitState>,
        context: &Context,
        parts: &mut Vec<Part>,
    ) -> Inlet {
        let Edge { peer, vertices, connect } = &script.fetches[edge];
        let (sender, queue) = mpsc::unbounded_channel();
        let flow = if program.serial { Flow::Serial } else { Flow::Overlapped };
        let slices = vertices.len() * self.grant.depth;
        let (inlet, room) = Inlet::new(queue, slices, flow);
        let incoming = Incoming {
            plane: context.plane.clone(),
            key: StreamKey { job: program.job, lane: program.lane, from: *peer, to: self.node },
            connect: *connect,
            frames: context.frames,
            enclosed: context.enclosed.frames(program.lane, *peer),
            limits: context.limits,
            window: script.window,
            vertices: vertices.clone(),
            flow,
            room,
            slices,
            verdict: self.verdict.clone(),
            waiting: waiting.clone(),
            place: 1 + edge,
            exchanged: self.from.clone(),
            carried: context.carried.clone(),
        };
        parts.push(Box::pin(async move {
            incoming.run(sender).await;
            None
        }));
        inlet
    }

    fn outgoing(
        &self,
        edge: usize,
        program: &Program,
        script: &Script,
        waiting: &Arc<WaitState>,
        context: &Context,
        parts: &mut Vec<Part>,
    ) -> Outlet<Parcel> {
        let Edge { peer, vertices, connect } = &script.sends[edge];
        let (sender, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(vertices.len() * self.grant.depth));
        let outgoing = Outgoing {
            plane: context.plane.clone(),
            key: StreamKey { job: program.job, lane: program.lane, from: self.node, to: *peer },
            connect: *connect,
            frames: context.frames,
            limits: context.limits,
            flow: if program.serial { Flow::Serial } else { Flow::Overlapped },
            verdict: self.verdict.clone(),
            waiting: waiting.clone(),
            room: room.clone(),
            blocks: context.sent.clone(),
            carried: context.carried.clone(),
            leaving: context.enclosed.leaving(),
            pulse: Mutex::new(Pulse::outgoing(&context.limits, &self.to, *peer)),
        };
        let to = *peer;
        parts.push(Box::pin(async move { Some((to, outgoing.run(queue).await)) }));
        Outlet::new(sender, room, vertices.len(), self.grant.depth)
    }
}

/// Least time between the starts of two steps of the program.
fn interval(program: &Program) -> Duration {
    let seconds = |rate: NonZeroU64| f64::from(program.window.step_bytes) / rate.get() as f64;
    Duration::from_secs_f64(program.rate.map_or(0.0, seconds))
}
