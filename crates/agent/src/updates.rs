//! The log of updates on an agent: appended to by writers of volumes, read and released by commits.
//!
//! An agent decides nothing here: whoever appends knows where the replica goes, and whoever promotes a next version knows
//! that it was decided (`docs/adr/0008-updates-in-place.md`).

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kintsu_dag::BlockId;
use kintsu_store::{
    AppendLog, BlockStore, Break, Data, FrozenDelta, Generation, Logged, MOST_RECORD_BYTES, Role, Scope,
    StoreError, Update,
};
use kintsu_wire::FolderId;
use kintsu_wire::message::{
    AppendUpdates, Appended, DigestBytes, Done, FenceVolume, FencedVolume, FreezeUpdates, FrozenUpdate,
    FrozenUpdates, LoggedUpdate, PendingUpdate, PendingUpdates, PromoteBlocks, PromotedBlocks, ReadUpdates,
    ReleaseUpdates, UpdatedBytes, VolumeEpochs,
};
use kintsu_wire::ticket::Ticket;
use kintsu_wire::version::{DELTAS, Spoken};
use tokio::sync::RwLock;
use tonic::{Request, Status};

use crate::agent::Shared;
use crate::aside::off;
use crate::service::held;

/// The longest part of a block that one call reads.
const MOST_READ_BYTES: u32 = 16 << 20;

/// More bytes that updates replace are not sent with them.
const MOST_OLD_BYTES: u64 = 4 << 20;

/// A delta that takes longer to read is not compared: who fixes what a commit takes does not wait for that.
const COMPARE_WITHIN: Duration = Duration::from_secs(1);

/// How long another node may take to make a replica durable.
const FORWARD_WITHIN: Duration = Duration::from_secs(5);

/// Appends to blocks, and the moments at which their logs are fixed on all nodes that keep them: an append of a block is
/// either in what is fixed everywhere, or nowhere.
pub struct Flights {
    slots: Vec<RwLock<()>>,
}

impl Default for Flights {
    fn default() -> Self {
        Self { slots: std::iter::repeat_with(RwLock::default).take(FLIGHT_SLOTS).collect() }
    }
}

/// Blocks share locks; more of them let more blocks be fixed at once.
const FLIGHT_SLOTS: usize = 64;

impl Flights {
    /// The locks of these blocks, each once, in one order for all callers.
    fn of(&self, blocks: impl Iterator<Item = BlockId>) -> impl Iterator<Item = &RwLock<()>> {
        let slot =
            |id: BlockId| (id.stripe.0 as usize).wrapping_mul(31).wrapping_add(usize::from(id.index.0));
        let slots: BTreeSet<usize> = blocks.map(|id| slot(id) % FLIGHT_SLOTS).collect();
        slots.into_iter().map(|slot| &self.slots[slot])
    }
}

/// Logs updates here, and at the same time as replicas on the nodes that they are forwarded to, which may get deltas instead, or the
/// bytes that are replaced too.
///
/// # Errors
/// `InvalidArgument` for updates that the log refuses; `DataLoss` for some that were damaged on their way; `FailedPrecondition` for
/// an older epoch; `ResourceExhausted` if this disk is full; `Unavailable` if they are not durable on another node: then they may be so here.
pub async fn append(shared: &Shared, request: Request<AppendUpdates>) -> Result<Appended, Status> {
    let version = Spoken::of(request.extensions()).now;
    let AppendUpdates {
        updates,
        replica,
        forward,
        fenced,
        send_old,
        deltas_from,
        old,
        tickets: _,
        forward_tickets,
    } = request.into_inner();
    if let Some(stranger) = old.iter().find(|old| !updates.iter().any(|update| update.block == old.block)) {
        let message =
            format!("replaced bytes: expected some of updated blocks, got some of {}", stranger.block);
        return Err(Status::invalid_argument(message));
    }
    if let Some(damaged) = updates.iter().chain(&old).find(|update| !update.is_sound()) {
        let message = format!("update of {}: it was damaged on its way here", damaged.block);
        return Err(Status::data_loss(message));
    }
    // What the coordinator copies is not fenced.
    let _busy = fenced.then(|| shared.foreground.busy());
    let log = log(shared).await?;
    for LoggedUpdate { volume, epoch, block, .. } in updates.iter().filter(|_| fenced) {
        let known = log.fenced(scope(*volume, *block));
        if known < *epoch {
            return Err(other_epoch(*volume, known, epoch.to_string()));
        }
    }
    let mut flights = Vec::new();
    // Only at home: a node that waits for another one's lock while it holds one would wait for ever.
    for lock in shared.flights.of(updates.iter().filter(|_| !replica).map(|update| update.block)) {
        flights.push(lock.read().await);
    }
    let replaced = match send_old && !replica && !forward.is_empty() {
        true => replaced(shared, &log, &updates).await,
        false => Vec::new(),
    };
    let replicas = match deltas_from.filter(|_| !replica && !forward.is_empty() && version >= DELTAS) {
        Some(from) => deltas(shared, &log, &updates, Generation(from)).await,
        None => updates.clone(),
    };
    let forwarding = forward.into_iter().zip(given(forward_tickets)).map(|(to, tickets)| {
        let (updates, old) = (replicas.clone(), replaced.clone());
        let replicas =
            AppendUpdates { updates, replica: true, fenced, old, tickets, ..AppendUpdates::default() };
        forward_to(shared, to, Spoken::over(replicas, version))
    });
    let forwarding = futures::future::join_all(forwarding);
    let role = role(replica);
    let (logged, appended_to) = (updates.clone(), log.clone());
    let appending = refused(move || {
        let old = old.iter().map(|old| Update { data: Data::Old(&old.data), ..of(old, role) });
        appended_to.append(&old.chain(logged.iter().map(|update| of(update, role))).collect::<Vec<_>>())
    });
    // All to their ends: what is under way when this returns could come behind a later append.
    let (appended, forwarded) = tokio::join!(appending, forwarding);
    let newest = appended?;
    forwarded.into_iter().collect::<Result<(), _>>()?;
    Ok(Appended { newest, log_bytes: log.bytes() })
}

/// The bytes of blocks that these updates are the first to replace since a commit; nothing if they cannot be read, or are too
/// many: replicas are as good without them, and a commit then sends the deltas.
async fn replaced(shared: &Shared, log: &Arc<AppendLog>, updates: &[LoggedUpdate]) -> Vec<LoggedUpdate> {
    let (store, log, updates) = (shared.store.clone(), log.clone(), updates.to_vec());
    let read = move || {
        let (mut old, mut total) = (Vec::new(), 0);
        for update in &updates {
            let LoggedUpdate { volume, epoch, block, offset, .. } = *update;
            let len = if update.data.is_empty() { u64::from(update.zeros) } else { update.data.len() as u64 };
            let range = offset..offset.saturating_add(len);
            for clean in gaps(&range, &log.ranges(block, Role::Home, range.clone())) {
                total += clean.end - clean.start;
                if total > MOST_OLD_BYTES {
                    return Ok(Vec::new());
                }
                let mut bytes = vec![0; (clean.end - clean.start) as usize];
                store.open(block, store.look(block)?.meta.generation)?.read_at(clean.start, &mut bytes)?;
                let bytes = Bytes::from(bytes);
                old.extend((0..bytes.len()).step_by(MOST_RECORD_BYTES).map(|from| {
                    let data = bytes.slice(from..bytes.len().min(from + MOST_RECORD_BYTES));
                    let offset = clean.start + from as u64;
                    LoggedUpdate { volume, epoch, block, offset, data, zeros: 0, delta_of: None, sum: None }
                        .summed()
                }));
            }
        }
        Ok(old)
    };
    refused(read).await.unwrap_or_else(|error| {
        tracing::debug!("what updates replace cannot be read: {}", error.message());
        Vec::new()
    })
}

/// These updates as replicas: deltas to the blocks here, where these have generation `from` or a later one and no commit of them
/// is under way. Zeros, and what cannot be read, stay as they are. The caller keeps commits from beginning until the replicas
/// are logged: so each later generation has what a delta says.
async fn deltas(
    shared: &Shared,
    log: &Arc<AppendLog>,
    updates: &[LoggedUpdate],
    from: Generation,
) -> Vec<LoggedUpdate> {
    let (store, log, given) = (shared.store.clone(), log.clone(), updates.to_vec());
    let delta = move |update: LoggedUpdate| {
        let LoggedUpdate { block, offset, ref data, .. } = update;
        if data.is_empty() || update.delta_of.is_some() || !log.is_settled(block, Role::Home) {
            return Ok(update);
        }
        let generation = store.look(block)?.meta.generation;
        if generation < from {
            return Ok(update);
        }
        let mut bytes = vec![0; data.len()];
        store.open(block, generation)?.read_at(offset, &mut bytes)?;
        bytes.iter_mut().zip(data).for_each(|(byte, new)| *byte ^= new);
        Ok(LoggedUpdate { data: Bytes::from(bytes), delta_of: Some(generation.0), ..update }.summed())
    };
    let all = refused(move || given.into_iter().map(delta).collect()).await;
    all.unwrap_or_else(|error| {
        tracing::debug!("what updates replace cannot be read: {}", error.message());
        updates.to_vec()
    })
}

/// The parts of a range that are in none of these ranges, which ascend within it.
fn gaps(range: &Range<u64>, covered: &[Range<u64>]) -> Vec<Range<u64>> {
    let ends = covered.iter().map(|part| part.start).chain(std::iter::once(range.end));
    let starts = std::iter::once(range.start).chain(covered.iter().map(|part| part.end));
    starts.zip(ends).map(|(start, end)| start..end).filter(|gap| gap.start < gap.end).collect()
}

/// The tickets for each of several nodes; none for those beyond.
fn given(tickets: Vec<Vec<Ticket>>) -> impl Iterator<Item = Vec<Ticket>> {
    tickets.into_iter().chain(std::iter::repeat_with(Vec::new))
}

async fn forward_to(shared: &Shared, to: SocketAddr, replicas: Request<AppendUpdates>) -> Result<(), Status> {
    let mut agent = shared.peers.agent(to).map_err(|error| no_replica(to, &error.to_string()))?;
    match tokio::time::timeout(FORWARD_WITHIN, agent.append_updates(replicas)).await {
        Err(_) => Err(no_replica(to, &format!("no answer within {FORWARD_WITHIN:?}"))),
        Ok(Ok(_)) => Ok(()),
        // The other node's refusals count as they are: the epoch is older, or the updates make no sense.
        Ok(Err(status)) if is_refusal(&status) => {
            Err(Status::new(status.code(), format!("replica at {to}: {}", status.message())))
        }
        Ok(Err(status)) => Err(no_replica(to, status.message())),
    }
}

fn no_replica(at: SocketAddr, why: &str) -> Status {
    Status::unavailable(format!("no replica at {at}: {why}"))
}

/// The caller and this log know different epochs.
fn other_epoch(volume: u64, fenced: u64, got: String) -> Status {
    let message = format!("epoch of volume {volume}: expected {fenced}, the newest fenced here, got {got}");
    Status::failed_precondition(message)
}

fn is_refusal(status: &Status) -> bool {
    matches!(
        status.code(),
        tonic::Code::FailedPrecondition | tonic::Code::InvalidArgument | tonic::Code::ResourceExhausted
    )
}

fn role(replica: bool) -> Role {
    if replica { Role::Replica } else { Role::Home }
}

fn of(update: &LoggedUpdate, role: Role) -> Update<'_> {
    let LoggedUpdate { volume, epoch, block, offset, ref data, zeros, delta_of, sum: _ } = *update;
    let data = match delta_of {
        Some(version) => Data::Delta(Generation(version), data),
        None if data.is_empty() => Data::Zeros(zeros),
        None => Data::Bytes(data),
    };
    Update { volume, epoch, block, role, offset, data }
}

fn scope(volume: u64, block: BlockId) -> Scope {
    Scope { volume, stripe: Some(block.stripe) }
}

/// Refuses older writers of a volume, or of one stripe of it, unless a newer one was fenced already.
///
/// # Errors
/// `FailedPrecondition` if a newer one is fenced at this moment; errors of the disk.
pub async fn fence(
    shared: &Shared,
    FenceVolume { volume, stripe, epoch, known }: FenceVolume,
) -> Result<FencedVolume, Status> {
    let log = log(shared).await?;
    let scope = Scope { volume, stripe };
    let (before, breaks) = (log.fenced(scope), log.breaks());
    // An older one changes nothing; the caller sees that there is a newer one. That one must be durable, though.
    refused(move || log.fence(scope, epoch.max(before))).await?;
    let (folder, Break { at, lost }) = (shared.identity().folder, breaks);
    let known_since = known.and_then(|known| folder.log_since(known));
    let continues = known_since.is_some_and(|since| (lost..at).contains(&since));
    Ok(FencedVolume { before, folder: folder.log(at), continues })
}

/// Whether the log is the one that the caller means.
fn check_log(shared: &Shared, log: &AppendLog, expected: Option<FolderId>) -> Result<(), Status> {
    let here = shared.identity().folder.log(log.breaks().at);
    match expected.filter(|expected| *expected != here) {
        None => Ok(()),
        Some(expected) => Err(Status::failed_precondition(format!("log: expected {expected}, got {here}"))),
    }
}

/// All that the log holds.
///
/// # Errors
/// The log cannot be opened.
pub async fn pending(shared: &Shared) -> Result<PendingUpdates, Status> {
    let log = log(shared).await?;
    let pending = log.pending().into_iter().map(|pending| PendingUpdate {
        volume: pending.volume,
        block: pending.block,
        replica: pending.role == Role::Replica,
        ranges: pending.ranges.into_iter().map(|range| (range.start, range.end)).collect(),
        newest: pending.newest,
    });
    Ok(PendingUpdates { pending: pending.collect(), log_bytes: log.bytes() })
}

/// Fixes what the next commit takes, of each block at the same moment here and on the nodes that keep its replicas.
///
/// # Errors
/// The log cannot be opened.
pub async fn freeze(shared: &Shared, request: Request<FreezeUpdates>) -> Result<FrozenUpdates, Status> {
    let version = Spoken::of(request.extensions()).now;
    let log = log(shared).await?;
    let FreezeUpdates { blocks, replica, replicas, folder, deltas, tickets: _, replica_tickets } =
        request.into_inner();
    check_log(shared, &log, folder)?;
    let mut frozen = Vec::with_capacity(blocks.len());
    let kept = replicas.into_iter().chain(std::iter::repeat_with(Vec::new)).zip(given(replica_tickets));
    let over = deltas.into_iter().map(Some).chain(std::iter::repeat(None));
    for ((block, (at, tickets)), over) in blocks.into_iter().zip(kept).zip(over) {
        let mut flights = Vec::new();
        for lock in shared.flights.of(std::iter::once(block).filter(|_| !replica)) {
            flights.push(lock.write().await);
        }
        let here = log.freeze(block, role(replica));
        let mut tickets = tickets.into_iter();
        let at = at.into_iter().map(|to| {
            let (tickets, deltas) = (tickets.next().into_iter().collect(), over.into_iter().collect());
            let blocks = vec![block];
            let freeze = FreezeUpdates { blocks, replica: true, deltas, tickets, ..FreezeUpdates::default() };
            freeze_at(shared, to, Spoken::over(freeze, version))
        });
        let asked = futures::future::join_all(at).await;
        // Nothing changes what is fixed.
        drop(flights);
        if here.is_none() && !asked.iter().flatten().any(|(upto, _)| *upto > 0) {
            frozen.push(None);
            continue;
        }
        let delta = match over.filter(|_| here.is_some()) {
            Some(over) => {
                let delta = delta(shared, &log, block, role(replica), Generation(over));
                tokio::time::timeout(COMPARE_WITHIN, delta).await.ok().flatten()
            }
            None => None,
        };
        let is_same = |asked: &Option<(u64, Option<DigestBytes>)>| {
            delta.is_some() && asked.as_ref().is_some_and(|(_, theirs)| *theirs == delta)
        };
        let (upto, ranges) = here.unwrap_or_default();
        frozen.push(Some(FrozenUpdate {
            upto,
            ranges: ranges.into_iter().map(|range| (range.start, range.end)).collect(),
            same: asked.iter().map(is_same).filter(|_| over.is_some()).collect(),
            replicas: asked.into_iter().map(|asked| asked.map(|(upto, _)| upto)).collect(),
            delta,
        }));
    }
    Ok(FrozenUpdates { blocks: frozen })
}

/// Fixes the replicas of a block on another node: up to which record, 0 if it has none, and the digest of the delta; `None` if
/// it does not answer, or refuses.
async fn freeze_at(
    shared: &Shared,
    to: SocketAddr,
    freeze: Request<FreezeUpdates>,
) -> Option<(u64, Option<DigestBytes>)> {
    let mut agent = shared.peers.agent(to).ok()?;
    let asked = tokio::time::timeout(FORWARD_WITHIN, agent.freeze_updates(freeze)).await.ok()?;
    let refused = |status: &Status| tracing::warn!("replicas at {to} are not fixed: {}", status.message());
    let frozen = asked.inspect_err(refused).ok()?.into_inner().blocks.into_iter().next()?;
    Some(frozen.map_or((0, None), |frozen| (frozen.upto, frozen.delta)))
}

/// The digest of what a commit adds to this generation of a block, if that is known here.
async fn delta(
    shared: &Shared,
    log: &Arc<AppendLog>,
    block: BlockId,
    role: Role,
    over: Generation,
) -> Option<DigestBytes> {
    let (store, log) = (shared.store.clone(), log.clone());
    let digest = move || {
        let delta = match role {
            Role::Home => FrozenDelta::at_home(log, block, store.open(block, over)?),
            Role::Replica => FrozenDelta::of_replica(log, block, over),
        };
        delta.map(|mut delta| delta.digest()).transpose()
    };
    let digest = refused(digest).await;
    let known = digest.inspect_err(|error| tracing::debug!("delta of {block}: {}", error.message()));
    known.ok().flatten().map(|digest| digest.0)
}

/// Forgets updates that are in their blocks.
///
/// # Errors
/// The disk fails; some may be forgotten then.
pub async fn release(shared: &Shared, request: ReleaseUpdates) -> Result<Done, Status> {
    let log = log(shared).await?;
    let all = request.updates.into_iter().map(|of| (of.block, role(of.replica), of.upto));
    refused(move || log.release(all)).await?;
    Ok(Done {})
}

/// Reads what the log holds of a part of a block, or the part with that laid over it.
///
/// # Errors
/// `InvalidArgument` for a part that is too long; `FailedPrecondition` for an epoch that is over, or a block of another
/// generation, or deltas for a caller that does not know of them; `NotFound` for a block that is not there; a damaged record
/// or block; the disk fails.
pub async fn read(shared: &Shared, request: Request<ReadUpdates>) -> Result<UpdatedBytes, Status> {
    let newest = Spoken::of(request.extensions()).newest;
    let ReadUpdates { of, offset, len, epochs, folder, over, plain, ticket: _ } = request.into_inner();
    if len > MOST_READ_BYTES {
        let message = format!("bytes to read: expected at most {MOST_READ_BYTES}, got {len}");
        return Err(Status::invalid_argument(message));
    }
    // The coordinator copies logs without an epoch, users read blocks with what is logged.
    let _busy = (epochs.is_some() || over.is_some()).then(|| shared.foreground.busy());
    let log = log(shared).await?;
    check_log(shared, &log, folder)?;
    if let Some(VolumeEpochs { volume, from, to }) = epochs {
        let known = log.fenced(scope(volume, of.block));
        if !(from..=to).contains(&known) {
            return Err(other_epoch(volume, known, format!("{from} to {to}")));
        }
    }
    let (store, role) = (shared.store.clone(), role(of.replica));
    let range = offset..offset.saturating_add(len.into());
    if let Some(over) = over.map(Generation) {
        let read = move || {
            // The log first: if a commit brings what it held into the block meanwhile, the block is read after that.
            let mut logged = if plain { Vec::new() } else { log.logged(of.block, role, range)? };
            if let [Logged { bytes, delta_of: None, .. }] = &mut logged[..]
                && bytes.len() == len as usize
            {
                return Ok(std::mem::take(bytes));
            }
            let mut bytes = vec![0; len as usize];
            store.open(of.block, over)?.read_at(offset, &mut bytes)?;
            logged.iter().try_for_each(|part| part.lay_over(over, offset, &mut bytes))?;
            Ok(bytes)
        };
        let bytes = refused(read).await?;
        let pieces = vec![(offset, bytes.into())];
        return Ok(UpdatedBytes { pieces, ..UpdatedBytes::default() }.summed(of.block));
    }
    let (mut pieces, mut deltas) = (Vec::new(), Vec::new());
    for Logged { offset, bytes, delta_of } in refused(move || log.logged(of.block, role, range)).await? {
        match delta_of {
            None => pieces.push((offset, bytes.into())),
            Some(version) => deltas.push((offset, bytes.into(), version.0)),
        }
    }
    if newest < DELTAS && !deltas.is_empty() {
        let message = format!("log of {}: expected a caller of version {DELTAS}, got {newest}", of.block);
        return Err(Status::failed_precondition(format!(
            "{message}: replace this program, or commit the volume"
        )));
    }
    Ok(UpdatedBytes { pieces, deltas, sum: None }.summed(of.block))
}

/// Puts next versions in their places.
///
/// # Errors
/// `NotFound` and `FailedPrecondition` for a block of which there is no such version; the disk fails. Blocks before it
/// are in their places then.
pub async fn promote(shared: &Shared, request: PromoteBlocks) -> Result<PromotedBlocks, Status> {
    let store = shared.store.clone();
    let promote = move || {
        let blocks = request.blocks.iter();
        blocks
            .map(|block| store.promote(block.id, Generation(block.generation)).map(|meta| held(&meta)))
            .collect()
    };
    Ok(PromotedBlocks { blocks: refused(promote).await? })
}

async fn log(shared: &Shared) -> Result<Arc<AppendLog>, Status> {
    let store: Arc<dyn BlockStore> = shared.store.clone();
    off(move || store.log()).await
}

/// Runs work off the async threads; refusals of the store get codes of their own.
async fn refused<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Status> {
    let done = kintsu_wire::ambient::blocking(work).await;
    done.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| {
        let message = error.to_string();
        match error {
            StoreError::Invalid { what: "epoch" | "delta of a block", .. } | StoreError::Stale { .. } => {
                Status::failed_precondition(message)
            }
            StoreError::Invalid { .. } => Status::invalid_argument(message),
            StoreError::NotFound { .. } => Status::not_found(message),
            StoreError::Full { .. } => Status::resource_exhausted(message),
            _ => Status::internal(message),
        }
    })
}
