//! The agent's gRPC service.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures::Stream;
use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::{Program, RunId};
use kintsu_runtime::{Context, Enclosed, StoreLocal, run};
use kintsu_store::{BlockStore, Generation, StoreError};
use kintsu_wire::agent::agent_server::Agent;
use kintsu_wire::frame::FrameVersion;
use kintsu_wire::message::{
    AppendUpdates, Appended, AsideList, BlockRef, CopyChunk, CopyList, Counted, DeleteBlocks, Deleted, Done,
    Fault, FaultKind, FenceVolume, FencedVolume, FoundBlocks, FreezeUpdates, FrozenUpdates, HeldBlock,
    JobRef, KeepCopy, KeptCopy, LookBlocks, Nothing, PendingUpdates, PromoteBlocks, PromotedBlocks, Purge,
    ReadCopy, ReadUpdates, ReleaseUpdates, RemovedObjects, RunEvent, RunPrograms, ScrubBlocks, ScrubEvent,
    SetAside, Standing, TakeBack, UpdatedBytes, Verified,
};
use kintsu_wire::tls::{Badge, Wanted};
use kintsu_wire::version::Spoken;
use kintsu_wire::{MembershipChannel, Peer, audit};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::agent::Shared;
use crate::room::Held;
use crate::{aside, copies, rot, tickets, updates};

type Events<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How often a run reports if it is the only one, even without progress: its conductor takes silence as the loss of this
/// node. With r runs on this node each reports every r intervals, but at least every [`MOST_INTERVALS`].
const REPORT_EVERY: Duration = Duration::from_millis(25);
/// Most intervals between two reports of a run.
const MOST_INTERVALS: u32 = 8;

/// Who may call what, if certificates say who calls.
const COORDINATOR: &[Wanted] = &[Wanted::Coordinator];
const PEERS: &[Wanted] = &[Wanted::Coordinator, Wanted::AnyAgent];
const USERS: &[Wanted] = &[Wanted::Coordinator, Wanted::User];
const WRITERS: &[Wanted] = &[Wanted::Coordinator, Wanted::User, Wanted::AnyAgent];

/// Serves one agent.
pub struct Service {
    shared: Arc<Shared>,
    coordinator: MembershipChannel,
}

impl Service {
    /// The service of an agent.
    pub fn new(shared: Arc<Shared>, coordinator: MembershipChannel) -> Self {
        Self { shared, coordinator }
    }

    fn node(&self) -> Result<NodeId, Status> {
        self.shared.identity().node.ok_or_else(outside)
    }

    fn local(&self) -> Result<Arc<StoreLocal>, Status> {
        self.shared.local.lock().unwrap_or_else(PoisonError::into_inner).clone().ok_or_else(outside)
    }

    /// Ends a job that `peer` runs, or that anybody runs if it is the coordinator. A job that is not there has ended.
    fn end_job(&self, peer: &Peer, job: RunId) -> Result<(), Status> {
        let any = peer.demand(COORDINATOR).is_ok();
        let (mut ended, mut of_others) = (false, false);
        for ((_, by), cancel) in self.shared.jobs().iter().filter(|((run, _), _)| *run == job) {
            if any || *by == peer.badge {
                cancel.cancel();
                ended = true;
            } else {
                of_others = true;
            }
        }
        if of_others && !ended {
            return Err(Status::permission_denied(format!(
                "job {job}: expected an abort by whoever runs it, or by the coordinator, got {peer}"
            )));
        }
        Ok(())
    }
}

fn outside() -> Status {
    Status::unavailable(
        "this agent belongs to no cluster now: no coordinator has accepted it yet, or it is ending",
    )
}

#[tonic::async_trait]
impl Agent for Service {
    type ReadCopyStream = Events<CopyChunk>;
    type RunStream = Events<RunEvent>;
    type ScrubStream = Events<ScrubEvent>;

    async fn run(&self, request: Request<RunPrograms>) -> Result<Response<Self::RunStream>, Status> {
        let peer = caller(&request, USERS, "run")?;
        let node = self.node()?;
        let frames = FrameVersion::of_protocol(Spoken::of(request.extensions()).now);
        let request = request.into_inner();
        check(&request.programs, node)?;
        let permitted = tickets::check_programs(&peer, self.shared.inspector().as_ref(), &request);
        audit::checked(&peer, "run", permitted)?;
        let needs = tickets::room(&peer, &request);
        let RunPrograms { programs, background, enclosed, encloses, .. } = request;
        let enclosed = match (encloses, enclosed.len()) {
            (false, _) => Enclosed::with(enclosed),
            (true, 0) => Enclosed::answering(&programs).map_err(|expected| {
                Status::invalid_argument(format!("enclosed answer: expected {expected}, got others"))
            })?,
            (true, streams) => {
                return Err(Status::invalid_argument(format!(
                    "enclosed answer: expected a run that is sent no streams with its request, got {streams}"
                )));
            }
        };
        let held = match needs {
            Some(bytes) => Some(self.shared.room.take(bytes).await?),
            None => None,
        };
        let (events, mut stream) = mpsc::channel(16);
        let by = peer.badge;
        let work = Work { node, programs, by, background, enclosed, frames, local: self.local()?, held };
        let conducted = conduct(self.shared.clone(), self.coordinator.clone(), work, events);
        let threads = match background {
            true => kintsu_wire::ambient::background(self.shared.give_way.users_work()),
            false => Handle::current(),
        };
        self.shared.work().spawn_on(conducted, &threads);
        // The answer waits for the first report, so the answer of a short run leaves together with all its reports.
        let first = stream.recv().await.into_iter();
        let reports = tokio_stream::iter(first).chain(ReceiverStream::new(stream));
        Ok(Response::new(Box::pin(reports)))
    }

    async fn abort(&self, request: Request<JobRef>) -> Result<Response<Done>, Status> {
        let peer = caller(&request, USERS, "abort")?;
        audit::checked(&peer, "abort", self.end_job(&peer, request.into_inner().job))?;
        Ok(Response::new(Done {}))
    }

    async fn delete(&self, request: Request<DeleteBlocks>) -> Result<Response<Deleted>, Status> {
        let peer = caller(&request, COORDINATOR, "delete")?;
        self.node()?;
        let (shared, request) = (self.shared.clone(), request.into_inner());
        let asked = request.blocks.len();
        let work = move || shared.deletes.run(&*shared.store, &shared.tombstones, request);
        let done = match kintsu_wire::ambient::blocking(work).await {
            Ok(Ok(deleted)) => Ok(deleted),
            Ok(Err(refused)) => Err(Status::failed_precondition(refused.to_string())),
            Err(error) => Err(Status::internal(error.to_string())),
        };
        let gone = done.as_ref().map_or(0, |deleted| deleted.gone.len());
        let about = audit::about(|| format!("blocks: {gone} of {asked}"));
        audit::noted(&peer, "delete", about, done).map(Response::new)
    }

    async fn verify(&self, request: Request<BlockRef>) -> Result<Response<Verified>, Status> {
        caller(&request, COORDINATOR, "verify")?;
        let (node, store) = (self.node()?, self.shared.store.clone());
        let BlockRef { id, generation } = request.into_inner();
        let look = move || {
            // If the whole disk is gone, do not report single blocks as missing.
            store.check_root()?;
            place_decided(&*store, id, generation);
            rot::look(&*store, id)
        };
        match kintsu_wire::ambient::blocking(look).await {
            Ok(Ok(held)) => Ok(Response::new(Verified { result: Ok(held) })),
            Ok(Err(error @ (StoreError::Io { .. } | StoreError::Vanished { .. }))) if !error.is_damage() => {
                Err(Status::unavailable(format!("{id} cannot be read now: {error}")))
            }
            Ok(Err(error)) => {
                Ok(Response::new(Verified { result: Err(kintsu_runtime::from_store(node, id, &error)) }))
            }
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    async fn removed(&self, request: Request<Nothing>) -> Result<Response<RemovedObjects>, Status> {
        caller(&request, COORDINATOR, "removed")?;
        Ok(Response::new(RemovedObjects { ranges: self.shared.tombstones.ranges() }))
    }

    async fn look(&self, request: Request<LookBlocks>) -> Result<Response<FoundBlocks>, Status> {
        caller(&request, COORDINATOR, "look")?;
        self.node()?;
        let (store, blocks) = (self.shared.store.clone(), request.into_inner().blocks);
        let look = move || blocks.iter().map(|block| found(&*store, block)).collect();
        Ok(Response::new(FoundBlocks { blocks: aside::off(look).await? }))
    }

    async fn scrub(&self, request: Request<ScrubBlocks>) -> Result<Response<Self::ScrubStream>, Status> {
        caller(&request, COORDINATOR, "scrub")?;
        let node = self.node()?;
        let (events, stream) = mpsc::channel(16);
        let (shared, range) = (self.shared.clone(), request.into_inner());
        self.shared.work().spawn(async move { scrub(&shared, node, range, &events).await });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn set_aside(&self, request: Request<SetAside>) -> Result<Response<Counted>, Status> {
        let peer = caller(&request, COORDINATOR, "set_aside")?;
        let blocks = request.into_inner().blocks;
        let about = audit::about(|| listed(blocks.iter().map(|block| block.id)));
        let done = aside::set_aside(self.shared.store.clone(), blocks).await;
        audit::noted(&peer, "set_aside", about, done).map(Response::new)
    }

    async fn aside(&self, request: Request<Nothing>) -> Result<Response<AsideList>, Status> {
        caller(&request, COORDINATOR, "aside")?;
        Ok(Response::new(AsideList { aside: aside::list(&self.shared).await? }))
    }

    async fn take_back(&self, request: Request<TakeBack>) -> Result<Response<HeldBlock>, Status> {
        let peer = caller(&request, COORDINATOR, "take_back")?;
        let name = request.into_inner().name;
        let about = audit::about(|| format!("{name:?}"));
        let done = aside::take_back(self.shared.store.clone(), name).await;
        audit::noted(&peer, "take_back", about, done).map(Response::new)
    }

    async fn purge(&self, request: Request<Purge>) -> Result<Response<Counted>, Status> {
        let peer = caller(&request, COORDINATOR, "purge")?;
        let age_s = request.into_inner().older_than_s;
        let about = audit::about(|| format!("set aside over {age_s} s ago"));
        let done = aside::purge(self.shared.store.clone(), age_s).await;
        audit::noted(&peer, "purge", about, done).map(Response::new)
    }

    async fn wipe(&self, request: Request<Nothing>) -> Result<Response<Done>, Status> {
        let peer = caller(&request, COORDINATOR, "wipe")?;
        let (store, local) = (self.shared.store.clone(), self.local()?);
        let wipe = move || {
            local.discard_unfinished();
            store.wipe()
        };
        let done = aside::off(wipe).await.inspect(|blocks| tracing::warn!("wiped; blocks deleted: {blocks}"));
        let blocks = done.as_ref().map_or(0, |blocks| *blocks);
        let about = audit::about(|| format!("blocks: {blocks}"));
        audit::noted(&peer, "wipe", about, done).map(|_| Response::new(Done {}))
    }

    async fn keep_copy(&self, request: Request<KeepCopy>) -> Result<Response<KeptCopy>, Status> {
        let peer = caller(&request, COORDINATOR, "keep_copy")?;
        let number = request.into_inner().number;
        let Shared { store, config, .. } = &*self.shared;
        let keeping = copies::keep(store.clone(), &config.dir, self.coordinator.clone(), number);
        let kept = self.shared.end.run_until_cancelled(keeping).await.unwrap_or_else(|| Err(outside()));
        let about = audit::about(|| format!("copy {number} of the metadata"));
        audit::noted(&peer, "keep_copy", about, kept).map(Response::new)
    }

    async fn copies(&self, request: Request<Nothing>) -> Result<Response<CopyList>, Status> {
        caller(&request, COORDINATOR, "copies")?;
        let dir = self.shared.config.dir.clone();
        let listed = kintsu_wire::ambient::blocking(move || copies::list(&dir)).await;
        let copies = listed.map_err(|e| Status::internal(e.to_string()))?;
        Ok(Response::new(CopyList { copies }))
    }

    async fn read_copy(&self, request: Request<ReadCopy>) -> Result<Response<Self::ReadCopyStream>, Status> {
        caller(&request, COORDINATOR, "read_copy")?;
        let (dir, number) = (self.shared.config.dir.clone(), request.into_inner().number);
        let opened = kintsu_wire::ambient::blocking(move || copies::open(&dir, number)).await;
        let file = opened.map_err(|e| Status::internal(e.to_string()))??;
        let (pieces, stream) = mpsc::channel(4);
        self.shared.work().spawn(copies::send(file, pieces));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn append_updates(&self, request: Request<AppendUpdates>) -> Result<Response<Appended>, Status> {
        let (peer, append) = (caller(&request, WRITERS, "append_updates")?, request.get_ref());
        self.node()?;
        let permitted = tickets::check_append(&peer, self.shared.inspector().as_ref(), append);
        audit::checked(&peer, "append_updates", permitted)?;
        updates::append(&self.shared, request).await.map(Response::new)
    }

    async fn fence_volume(&self, request: Request<FenceVolume>) -> Result<Response<FencedVolume>, Status> {
        let peer = caller(&request, COORDINATOR, "fence_volume")?;
        self.node()?;
        let FenceVolume { volume, epoch, .. } = *request.get_ref();
        let about = audit::about(|| format!("volume {volume}, epoch {epoch}"));
        let done = updates::fence(&self.shared, request.into_inner()).await;
        audit::noted(&peer, "fence_volume", about, done).map(Response::new)
    }

    async fn pending_updates(&self, request: Request<Nothing>) -> Result<Response<PendingUpdates>, Status> {
        caller(&request, COORDINATOR, "pending_updates")?;
        self.node()?;
        updates::pending(&self.shared).await.map(Response::new)
    }

    async fn freeze_updates(
        &self,
        request: Request<FreezeUpdates>,
    ) -> Result<Response<FrozenUpdates>, Status> {
        let peer = caller(&request, PEERS, "freeze_updates")?;
        self.node()?;
        let permitted = tickets::check_freeze(&peer, self.shared.inspector().as_ref(), request.get_ref());
        audit::checked(&peer, "freeze_updates", permitted)?;
        let about = audit::about(|| listed(request.get_ref().blocks.iter().copied()));
        let done = updates::freeze(&self.shared, request).await;
        audit::noted(&peer, "freeze_updates", about, done).map(Response::new)
    }

    async fn release_updates(&self, request: Request<ReleaseUpdates>) -> Result<Response<Done>, Status> {
        let peer = caller(&request, COORDINATOR, "release_updates")?;
        self.node()?;
        let request = request.into_inner();
        let about = audit::about(|| listed(request.updates.iter().map(|of| of.block)));
        let done = updates::release(&self.shared, request).await;
        audit::noted(&peer, "release_updates", about, done).map(Response::new)
    }

    async fn read_updates(&self, request: Request<ReadUpdates>) -> Result<Response<UpdatedBytes>, Status> {
        let (peer, read) = (caller(&request, USERS, "read_updates")?, request.get_ref());
        self.node()?;
        let permitted = tickets::check_read(&peer, self.shared.inspector().as_ref(), read);
        audit::checked(&peer, "read_updates", permitted)?;
        updates::read(&self.shared, request).await.map(Response::new)
    }

    async fn promote_blocks(
        &self,
        request: Request<PromoteBlocks>,
    ) -> Result<Response<PromotedBlocks>, Status> {
        let peer = caller(&request, COORDINATOR, "promote_blocks")?;
        self.node()?;
        let request = request.into_inner();
        let about = audit::about(|| listed(request.blocks.iter().map(|block| block.id)));
        let done = updates::promote(&self.shared, request).await;
        audit::noted(&peer, "promote_blocks", about, done).map(Response::new)
    }

    async fn shutdown(&self, request: Request<Nothing>) -> Result<Response<Done>, Status> {
        let peer = caller(&request, COORDINATOR, "shutdown")?;
        audit::note(&peer, "shutdown", None, None);
        let end = self.shared.end.clone();
        tokio::spawn(async move {
            // Let the reply go out first.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            end.cancel();
        });
        Ok(Response::new(Done {}))
    }
}

/// Who calls; refuses whoever may not call this.
fn caller<T>(request: &Request<T>, wanted: &[Wanted], what: &str) -> Result<Peer, Status> {
    let peer = Peer::of(request.extensions());
    peer.admit(wanted, what)?;
    Ok(peer)
}

/// Blocks that a line of the audit log shows.
const SHOWN_BLOCKS: usize = 4;

/// Some blocks for people: the first few, and how many there are.
fn listed(blocks: impl ExactSizeIterator<Item = BlockId>) -> String {
    let count = blocks.len();
    let mut shown: Vec<_> = blocks.take(SHOWN_BLOCKS).map(|id| id.to_string()).collect();
    if count > SHOWN_BLOCKS {
        shown.push(format!("{count} blocks in all"));
    }
    shown.join(", ")
}

fn check(programs: &[Program], node: NodeId) -> Result<(), Status> {
    let Some(first) = programs.first() else {
        return Err(Status::invalid_argument("expected one or more programs, got none"));
    };
    for program in programs {
        if program.node != node || program.job != first.job {
            return Err(Status::invalid_argument(format!(
                "expected programs of job {} for {node}, got one of job {} for {}",
                first.job, program.job, program.node
            )));
        }
    }
    Ok(())
}

/// The programs of one job, and where they run.
struct Work {
    node: NodeId,
    programs: Vec<Program>,
    /// Who runs them, if that is known.
    by: Option<Arc<Badge>>,
    background: bool,
    enclosed: Enclosed,
    /// How slices are written, so that all nodes of the run understand them.
    frames: FrameVersion,
    local: Arc<StoreLocal>,
    /// Its part of the room for runs of users.
    held: Option<Held>,
}

/// Runs the programs of one job to their end, and reports. When the caller is gone, they are aborted.
async fn conduct(
    shared: Arc<Shared>,
    coordinator: MembershipChannel,
    work: Work,
    events: mpsc::Sender<Result<RunEvent, Status>>,
) {
    shared.running.fetch_add(1, Ordering::Relaxed);
    let cancel: CancellationToken = shared.end.child_token();
    let (progress, standing) = watch::channel(Standing::default());
    let context = Context {
        limits: shared.config.limits,
        progress: Some(progress),
        cancel: cancel.clone(),
        carried: if work.background { shared.background.clone() } else { shared.foreground.clone() },
        enclosed: work.enclosed.clone(),
        frames: work.frames,
        ..Context::new(shared.plane.clone(), work.local.clone())
    };
    let job = work.programs[0].job;
    let running = (job, work.by.clone());
    shared.jobs().insert(running.clone(), cancel.clone());
    let mut run = std::pin::pin!(run(&work.programs, context));
    let began = Instant::now();
    let pause = || REPORT_EVERY * shared.running.load(Ordering::Relaxed).clamp(1, MOST_INTERVALS);
    let mut tick = std::pin::pin!(tokio::time::sleep(pause()));
    let outcome = loop {
        tokio::select! {
            outcome = &mut run => break outcome,
            () = events.closed(), if !cancel.is_cancelled() => cancel.cancel(),
            () = &mut tick => {
                tick.as_mut().reset(Instant::now() + pause());
                let standing = Standing { at_ms: began.elapsed().as_millis() as u64, ..standing.borrow().clone() };
                // A slow caller may miss progress, never the end.
                let _ = events.try_send(Ok(RunEvent::Progress { job, standing }));
            }
        }
    };
    drop(work.held);
    shared.running.fetch_sub(1, Ordering::Relaxed);
    shared.jobs().remove(&running);
    let fault = outcome.fault.clone();
    let answer = work.enclosed.answer(work.node);
    // The caller may be gone.
    if fault.is_none() && !answer.is_empty() {
        let _ = events.send(Ok(RunEvent::Enclosed(answer))).await;
    }
    let _ = events.send(Ok(RunEvent::Ended(outcome))).await;
    if let Some(fault) = fault {
        let looking = rot::look_into(shared.store.clone(), coordinator, work.node, fault);
        let _ = shared.end.run_until_cancelled(looking).await;
    }
}

/// Verifies the blocks of a range one after the other, as fast as users' work and the limit of background work allow.
/// Rotten blocks are set aside here and reported to the caller, who has them repaired. The stream ends without an error
/// only if all were read.
async fn scrub(
    shared: &Shared,
    node: NodeId,
    range: ScrubBlocks,
    events: &mpsc::Sender<Result<ScrubEvent, Status>>,
) {
    let store = shared.store.clone();
    let mut ids = match aside::off(move || store.ids()).await {
        Ok(ids) => ids,
        Err(error) => {
            let _ = events.send(Err(error)).await;
            return;
        }
    };
    ids.retain(|id| range.contains(id.stripe));
    let mut bytes = 0;
    for (i, &id) in ids.iter().enumerate() {
        let store = shared.store.clone();
        let checking = kintsu_wire::ambient::blocking(move || rot::check(&*store, node, id));
        let result = match shared.end.run_until_cancelled(checking).await {
            // Deleted during the scrub; not an error.
            Some(Ok(Err(Fault { kind: FaultKind::Missing, .. }))) => continue,
            Some(Ok(checked)) => checked,
            Some(Err(error)) => {
                let _ = events.send(Err(Status::internal(error.to_string()))).await;
                return;
            }
            None => {
                let _ = events.send(Err(Status::unavailable("the agent has ended"))).await;
                return;
            }
        };
        let read = result.as_ref().map_or(0, |held| held.len);
        bytes += read;
        let event = ScrubEvent { total: ids.len() as u64, checked: i as u64 + 1, bytes, result };
        if events.send(Ok(event)).await.is_err() {
            return;
        }
        let _ = shared.end.run_until_cancelled(shared.background.has_read(read)).await;
    }
}

/// Makes the next version of a block, which the caller knows to be decided, the block, if it still lies beside it.
fn place_decided(store: &dyn BlockStore, id: BlockId, generation: u32) {
    let older = store.look(id).is_ok_and(|there| there.meta.generation.0 < generation);
    if older && let Err(error) = store.promote(id, Generation(generation)) {
        tracing::debug!("{id} has no version {generation}: {error}");
    }
}

/// What the store has of a block, from its header. A block that cannot be read counts as missing; if the store
/// itself is gone, that is an error.
fn found(store: &dyn BlockStore, block: &BlockRef) -> Result<Option<HeldBlock>, StoreError> {
    place_decided(store, block.id, block.generation);
    match store.look(block.id) {
        Ok(there) => Ok(Some(held(&there.meta)).filter(|held| held.generation == block.generation)),
        Err(gone @ StoreError::Vanished { .. }) => Err(gone),
        Err(_) => Ok(None),
    }
}

/// A stored block as messages carry it.
pub fn held(meta: &kintsu_store::BlockMeta) -> HeldBlock {
    HeldBlock { id: meta.id, generation: meta.generation.0, len: meta.len, digest: meta.digest.0 }
}
