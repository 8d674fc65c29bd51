//! One run: the programs of one job on one node, one for each lane, from the first byte to the end.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::join_all;
use kintsu_dag::NodeId;
use kintsu_plan::{BlockBinding, Program};
use kintsu_wire::frame::FrameVersion;
use kintsu_wire::message::{Fault, FaultKind, HeldBlock, RunOutcome, Standing};
use kintsu_wire::ticket::Ticket;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::carried::Carried;
use crate::enclosed::Enclosed;
use crate::exchanged::Exchanged;
use crate::fault::{fault, invalid};
use crate::gathered::Gathered;
use crate::limits::Limits;
use crate::local::{BlockSink, Local, Output};
use crate::parts::{Running, Sinks, start};
use crate::plane::DataPlane;
use crate::script::{Persisted, Script, part_bytes};
use crate::sent_blocks::SentBlocks;
use crate::source::blocking;
use crate::verdict::FirstFault;

/// Where and how programs run.
#[derive(Clone)]
pub struct Context {
    /// The streams.
    pub plane: Arc<DataPlane>,
    /// The blocks.
    pub local: Arc<dyn Local>,
    /// The limits.
    pub limits: Limits,
    /// Gets the progress of the lanes, at every advance and at least several times a second.
    pub progress: Option<watch::Sender<Standing>>,
    /// Ends the run early.
    pub cancel: CancellationToken,
    /// Collects the digests of the blocks that are sent from here.
    pub sent: Option<Arc<SentBlocks>>,
    /// Counts what is moved.
    pub carried: Arc<Carried>,
    /// What has come from each peer.
    pub received: Arc<Exchanged>,
    /// The streams that need no connection.
    pub enclosed: Enclosed,
    /// What the client may do with blocks; nodes want to see it.
    pub tickets: Arc<[Ticket]>,
    /// How the frames of slices are written.
    pub frames: FrameVersion,
}

impl Context {
    /// A run over these streams and blocks that nobody watches, within the usual limits.
    pub fn new(plane: Arc<DataPlane>, local: Arc<dyn Local>) -> Self {
        Self {
            plane,
            local,
            limits: Limits::default(),
            progress: None,
            cancel: CancellationToken::new(),
            sent: None,
            carried: Arc::default(),
            received: Arc::default(),
            enclosed: Enclosed::default(),
            tickets: Arc::default(),
            frames: FrameVersion::default(),
        }
    }
}

/// Runs the programs of one job on one node until all have ended, or one has failed, or the run is
/// cancelled; it ends in a bounded time, whatever peers and disks do.
///
/// Blocks are made visible only when every lane is done and their digests are right. Unfinished blocks are
/// dropped, or kept for the next attempt if there is a resume key. Memory: the queues' slices, and a chunk or two
/// for each block that is read, whatever the size of the blocks.
pub async fn run(programs: &[Program], context: Context) -> RunOutcome {
    let node = programs.first().map_or(NodeId::CLIENT, |program| program.node);
    let start = programs.iter().map(|program| program.window.start).min().unwrap_or(0);
    match prepare(node, programs, &context).await {
        Ok(running) => running.outcome(context).await,
        Err(fault) => RunOutcome {
            node,
            fault: Some(fault),
            upto: start,
            bytes_read: 0,
            sent: Vec::new(),
            written: Vec::new(),
        },
    }
}

/// Checks all programs, then opens the blocks that they write; on failure none stays open.
async fn prepare(node: NodeId, programs: &[Program], context: &Context) -> Result<Running, Fault> {
    let mut scripts = Vec::with_capacity(programs.len());
    for program in programs {
        let first = &programs[0];
        let same =
            (program.node, program.job, program.resume_key) == (first.node, first.job, first.resume_key);
        let lanes = programs.iter().filter(|other| other.lane == program.lane).count();
        if !same || lanes != 1 || program.window.start != first.window.start {
            let got = format!("lane {} of job {} for {}", program.lane, program.job, program.node);
            return Err(invalid(node, "programs", "one a lane, of one job and node, from one start", got));
        }
        if program.tasks.is_empty() {
            return Err(invalid(node, "tasks of a program", "at least one", "none"));
        }
        scripts.push(Script::new(program)?);
    }
    if let Some((lane, from)) = context.enclosed.stray(programs) {
        let got = format!("one of lane {lane} from {from}");
        return Err(invalid(node, "enclosed streams", "one for an edge of the programs, once", got));
    }
    let sinks = open_sinks(node, programs, &scripts, context).await?;
    let edges = |s: &Script| s.fetches.len() + s.sends.len() + s.sinks.len();
    let step = scripts.iter().map(|s| part_bytes(&s.window, u64::from(s.window.step_bytes))).max();
    let items = scripts.iter().flat_map(|s| s.fetches.iter().chain(&s.sends)).map(|e| e.vertices.len()).max();
    let grant = context.plane.budget.grant(
        scripts.iter().map(edges).sum(),
        step.unwrap_or(0).saturating_mul(items.unwrap_or(1)),
        context.limits.depth,
    );
    Ok(start(node, programs, scripts, sinks, context, grant))
}

async fn open_sinks(
    node: NodeId,
    programs: &[Program],
    scripts: &[Script],
    context: &Context,
) -> Result<Sinks, Fault> {
    let mut sinks = Sinks::new();
    let mut wanted: Vec<(&Program, &Persisted)> = Vec::new();
    for (program, script) in programs.iter().zip(scripts) {
        wanted.extend(script.sinks.iter().map(|persisted| (program, persisted)));
    }
    for (program, persisted) in wanted {
        let binding = persisted.binding.clone();
        if let Some((other, _)) = sinks.get(&binding.index) {
            if *other != binding {
                return Err(invalid(
                    node,
                    "blocks",
                    format!("{other:?} in all lanes"),
                    format!("{binding:?}"),
                ));
            }
            continue;
        }
        if Gathered::is_for(program, persisted) {
            let gathered = Gathered::new(context.local.clone(), binding.clone());
            sinks.insert(binding.index, (binding, Output::Block(Box::new(gathered))));
            continue;
        }
        let (local, sink) = (context.local.clone(), persisted.sink);
        let (key, start, wanted) = (program.resume_key, program.window.start, binding.clone());
        let create = move || local.create(&wanted, sink, key, start);
        let output = blocking(node, context.limits.disk, "creating a block", create).await?;
        sinks.insert(binding.index, (binding, output));
    }
    Ok(sinks)
}

impl Running {
    /// Waits for all parts, then makes the blocks visible or releases them.
    async fn outcome(mut self, context: Context) -> RunOutcome {
        let (verdict, tracker) = (self.verdict.clone(), self.tracker.clone());
        let mut sent = BTreeMap::new();
        let mut sinks = Vec::new();
        let cancelled = async {
            context.cancel.cancelled().await;
            verdict.fail(fault(FaultKind::Aborted, self.node, "the run was cancelled"));
            std::future::pending::<()>().await
        };
        let ended = async {
            while let Some(part) = self.parts.join_next().await {
                let edges = note_panic(part, self.node, &self.verdict);
                for (to, bytes) in edges.into_iter().flatten().flatten() {
                    *sent.entry(to).or_insert(0) += bytes;
                }
            }
            while let Some(writer) = self.writers.join_next().await {
                sinks.extend(note_panic(writer, self.node, &self.verdict).flatten());
            }
        };
        tokio::select! {
            () = cancelled => {}
            () = tracker.look() => {}
            () = ended => {}
        }
        let mut written = Vec::new();
        let mut fault = verdict.fault();
        match fault {
            None => {
                let read = &self.tracker.bytes_read;
                fault = finish(self.node, sinks, context.limits, &mut written, read).await;
            }
            Some(_) => {
                let suspend = move || {
                    sinks.into_iter().for_each(|(_, sink)| sink.suspend());
                    Ok(())
                };
                // A fault of the suspension does not change how the run ended.
                let _ = blocking(self.node, context.limits.disk, "suspending", suspend).await;
            }
        }
        RunOutcome {
            node: self.node,
            fault,
            upto: self.tracker.upto(),
            bytes_read: self.tracker.bytes_read.load(Ordering::Relaxed),
            sent: sent.into_iter().collect(),
            written,
        }
    }
}

/// Makes all blocks durable and visible, and counts what was read for that; returns the first fault.
async fn finish(
    node: NodeId,
    sinks: Vec<(BlockBinding, Box<dyn BlockSink>)>,
    limits: Limits,
    written: &mut Vec<HeldBlock>,
    read: &AtomicU64,
) -> Option<Fault> {
    let finishing = sinks.into_iter().map(|(binding, mut sink)| async move {
        let complete = move || {
            sink.complete()?;
            let bytes = sink.bytes_read();
            Ok((sink.finish()?, bytes))
        };
        let finished = blocking(node, limits.finish, "making a block durable", complete).await;
        finished.map_err(|fault| Fault { block: fault.block.or(Some(binding.id)), ..fault })
    });
    let mut first = None;
    for finished in join_all(finishing).await {
        match finished {
            Ok((held, bytes)) => {
                written.extend(held);
                read.fetch_add(bytes, Ordering::Relaxed);
            }
            Err(fault) => first = first.or(Some(fault)),
        }
    }
    written.sort_by_key(|held| held.id);
    first
}

/// A part that panicked is our bug; it fails the run, not the process.
fn note_panic<T>(joined: Result<T, tokio::task::JoinError>, node: NodeId, verdict: &FirstFault) -> Option<T> {
    joined
        .map_err(|error| verdict.fail(fault(FaultKind::Io, node, format!("a part of the run: {error}"))))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use kintsu_dag::{BlockId, BlockIndex, Sink, StripeId, Task, Vertex};
    use kintsu_plan::{RunId, Window};
    use kintsu_wire::Credentials;

    use super::*;
    use crate::local::{BlockSource, Output};
    use crate::script::OpKind;

    const LEN: u64 = 300_000;

    /// Endless blocks, and whether one became visible.
    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Option<BlockId>>>);

    impl Local for Memory {
        fn open(&self, _: &BlockBinding) -> Result<Box<dyn BlockSource>, Fault> {
            Ok(Box::new(self.clone()))
        }

        fn create(&self, _: &BlockBinding, _: Sink, _: u64, _: u64) -> Result<Output, Fault> {
            Ok(Output::Block(Box::new(self.clone())))
        }
    }

    impl BlockSource for Memory {
        fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), Fault> {
            (offset..).zip(buf).for_each(|(at, byte)| *byte = (at % 251) as u8 + 1);
            Ok(())
        }
    }

    impl BlockSink for Memory {
        fn write_at(&mut self, _: u64, _: &[u8]) -> Result<(), Fault> {
            Ok(())
        }

        fn finish(self: Box<Self>) -> Result<Option<HeldBlock>, Fault> {
            *self.0.lock().unwrap() = Some(binding(2).id);
            Ok(None)
        }
    }

    fn binding(index: u8) -> BlockBinding {
        let index = BlockIndex(index);
        let id = BlockId { stripe: StripeId(1), index };
        BlockBinding {
            index,
            id,
            generation: 1,
            len: LEN,
            unit_bytes: 4096,
            expect: None,
            label: Vec::new(),
            next: None,
            replica: false,
        }
    }

    /// Parity of two blocks of one node, computed as it should be or by a kernel that is wrong.
    async fn encode(spoilt: bool) -> (RunOutcome, Option<BlockId>) {
        let [a, b, c] = [0, 1, 2].map(Vertex);
        let node = NodeId(4);
        let tasks = vec![
            Task::Load { vertex: a },
            Task::Load { vertex: b },
            Task::Compute { outputs: vec![c], inputs: vec![a, b], coefs: vec![1, 2] },
            Task::Persist { vertex: c, sink: Sink::Block },
        ];
        let program = Program {
            job: RunId(1),
            lane: 0,
            node,
            window: Window::whole(0, LEN, 65_536, 1),
            tasks,
            sends: Vec::new(),
            blocks: (0..3).map(binding).collect(),
            peers: Vec::new(),
            resume_key: 0,
            serial: false,
            rate: None,
        };
        let memory = Memory::default();
        let context = Context::new(DataPlane::client(Credentials::none()), Arc::new(memory.clone()));
        let mut script = Script::new(&program).unwrap();
        for op in script.ops.iter_mut().filter(|_| spoilt) {
            if let OpKind::Compute(combine) = &mut op.kind {
                combine.spoil();
            }
        }
        let programs = [program];
        let sinks = open_sinks(node, &programs, std::slice::from_ref(&script), &context).await.unwrap();
        let grant = context.plane.budget.grant(1, 65_536, 8);
        let running = start(node, &programs, vec![script], sinks, &context, grant);
        let outcome = running.outcome(context).await;
        let visible = *memory.0.lock().unwrap();
        (outcome, visible)
    }

    #[tokio::test]
    async fn nothing_that_a_wrong_kernel_made_becomes_visible() {
        let (right, visible) = encode(false).await;
        assert_eq!((right.fault, visible), (None, Some(binding(2).id)));
        let (wrong, visible) = encode(true).await;
        let fault = wrong.fault.unwrap();
        assert_eq!((fault.kind, fault.node), (FaultKind::Mismatch, NodeId(4)), "{fault}");
        assert_eq!(visible, None);
    }

    /// A program of 2^32 steps that wait for nothing.
    fn waits_for_nothing() -> Program {
        let tasks = vec![Task::Compute { outputs: vec![Vertex(0)], inputs: Vec::new(), coefs: Vec::new() }];
        Program {
            job: RunId(1),
            lane: 0,
            node: NodeId(4),
            window: Window::whole(0, 1 << 32, 1, 1),
            tasks,
            sends: Vec::new(),
            blocks: Vec::new(),
            peers: Vec::new(),
            resume_key: 0,
            serial: false,
            rate: None,
        }
    }

    #[tokio::test]
    async fn a_program_without_tasks_is_refused() {
        let context = Context::new(DataPlane::client(Credentials::none()), Arc::new(Memory::default()));
        let program = Program { tasks: Vec::new(), ..waits_for_nothing() };
        let fault = run(&[program], context).await.fault.unwrap();
        assert_eq!(fault.kind, FaultKind::Invalid, "{fault}");
    }

    #[tokio::test]
    async fn a_run_that_waits_for_nothing_can_be_ended() {
        let context = Context::new(DataPlane::client(Credentials::none()), Arc::new(Memory::default()));
        let cancel = context.cancel.clone();
        // One thread: if the lane kept it, this would not go on.
        let running = tokio::spawn(async move { run(&[waits_for_nothing()], context).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        cancel.cancel();
        let fault = running.await.unwrap().fault.unwrap();
        assert_eq!(fault.kind, FaultKind::Aborted, "{fault}");
    }
}
