//! The parts of a run, and how they are tied together: writers for all lanes, and for each lane its
//! sources, its edges and its executor.

use std::collections::BTreeMap;
use std::sync::Arc;

use kintsu_dag::{BlockIndex, NodeId};
use kintsu_plan::{BlockBinding, Program};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::budget::Grant;
use crate::executor::{Lane, Loads, Outlet};
use crate::local::{BlockSink, Output};
use crate::plane::StreamKey;
use crate::receive::{Incoming, places};
use crate::run::Context;
use crate::script::{Edge, Persisted, Script, Source};
use crate::send::{Outgoing, Parcel};
use crate::sink::{Piece, Share, Writer};
use crate::slice::Slice;
use crate::source::Reader;
use crate::verdict::{Tracker, Verdict, Waiting};

/// The blocks that a run writes, by position in the stripe.
pub(crate) type Sinks = BTreeMap<BlockIndex, (BlockBinding, Output)>;

/// A run under way.
pub(crate) struct Running {
    pub node: NodeId,
    pub verdict: Arc<Verdict>,
    pub tracker: Arc<Tracker>,
    /// Lanes, sources and incoming edges.
    pub parts: JoinSet<()>,
    /// Outgoing edges: to whom, how many bytes.
    pub sends: JoinSet<(NodeId, u64)>,
    /// Each gives its sink back, unless that failed.
    pub writers: JoinSet<Option<(BlockBinding, Box<dyn BlockSink>)>>,
    /// Queues for its edges, until it ends.
    grant: Grant,
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
    let parts_of = |s: &Script| (s.window, s.sinks.len().max(1));
    let tracker = Arc::new(Tracker::new(scripts.iter().map(parts_of), context.progress.clone()));
    let mut running = Running {
        node,
        verdict: Arc::default(),
        tracker,
        parts: JoinSet::new(),
        sends: JoinSet::new(),
        writers: JoinSet::new(),
        grant,
    };
    let queues = running.start_writers(sinks, &scripts, context);
    for (position, (program, script)) in programs.iter().zip(scripts).enumerate() {
        if script.window.steps().next().is_some() {
            running.start_lane(position, program, script, &queues, context);
        }
    }
    running
}

/// The way to each sink, and each lane's room in its queue.
type Queues = BTreeMap<BlockIndex, (mpsc::UnboundedSender<Piece>, Vec<Option<Arc<Semaphore>>>)>;

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
            let writer = Writer { node: self.node, binding, disk, shares, verdict, tracker };
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
        let places = places(self.node, &peers(&script.fetches), &peers(&script.sends));
        let waiting = Arc::new(Waiting::new(places));
        let loads = std::mem::take(&mut script.sources)
            .into_iter()
            .map(|source| self.start_source(source, &script, context))
            .collect();
        let fetches = (0..script.fetches.len())
            .map(|edge| self.start_incoming(edge, program, &script, &waiting, context))
            .collect();
        let sends = (0..script.sends.len())
            .map(|edge| self.start_outgoing(edge, program, &script, &waiting, context))
            .collect();
        let outlet = |sink: &Persisted| {
            let (queue, rooms) = &queues[&sink.binding.index];
            let room = rooms[position].clone().expect("a lane has a share in each of its sinks");
            Outlet { queue: queue.clone(), room, items: sink.subs as u32 }
        };
        let sinks = script.sinks.iter().map(outlet).collect();
        let (verdict, tracker) = (self.verdict.clone(), self.tracker.clone());
        let node = self.node;
        let lane = Lane { node, position, script, loads, fetches, sends, sinks, verdict, waiting, tracker };
        self.parts.spawn(lane.run());
    }

    fn start_source(&mut self, source: Source, script: &Script, context: &Context) -> Loads {
        let (sender, queue) = mpsc::channel(1);
        let reader = Reader {
            node: self.node,
            local: context.local.clone(),
            source,
            window: script.window,
            disk: context.limits.disk,
            verdict: self.verdict.clone(),
            tracker: self.tracker.clone(),
        };
        self.parts.spawn(reader.run(sender));
        Loads { queue, chunk: Vec::new().into_iter() }
    }

    fn start_incoming(
        &mut self,
        edge: usize,
        program: &Program,
        script: &Script,
        waiting: &Arc<Waiting>,
        context: &Context,
    ) -> mpsc::Receiver<Slice> {
        let Edge { peer, vertices, connect } = &script.fetches[edge];
        let (sender, queue) = mpsc::channel(vertices.len() * self.grant.depth);
        let incoming = Incoming {
            plane: context.plane.clone(),
            key: StreamKey { job: program.job, lane: program.lane, from: *peer, to: self.node },
            connect: *connect,
            limits: context.limits,
            window: script.window,
            vertices: vertices.clone(),
            verdict: self.verdict.clone(),
            waiting: waiting.clone(),
            place: 1 + edge,
        };
        self.parts.spawn(incoming.run(sender));
        queue
    }

    fn start_outgoing(
        &mut self,
        edge: usize,
        program: &Program,
        script: &Script,
        waiting: &Arc<Waiting>,
        context: &Context,
    ) -> Outlet<Parcel> {
        let Edge { peer, vertices, connect } = &script.sends[edge];
        let (sender, queue) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(vertices.len() * self.grant.depth));
        let outgoing = Outgoing {
            plane: context.plane.clone(),
            key: StreamKey { job: program.job, lane: program.lane, from: self.node, to: *peer },
            connect: *connect,
            limits: context.limits,
            verdict: self.verdict.clone(),
            waiting: waiting.clone(),
            room: room.clone(),
        };
        let to = *peer;
        self.sends.spawn(async move { (to, outgoing.run(queue).await) });
        Outlet { queue: sender, room, items: vertices.len() as u32 }
    }
}
