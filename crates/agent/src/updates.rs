//! The log of updates on an agent: appended to by writers of volumes, read and released by commits.
//!
//! An agent decides nothing here: whoever appends knows where the replica goes, and whoever promotes a next version knows
//! that it was decided (`docs/adr/0008-updates-in-place.md`).

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use kintsu_store::{AppendLog, BlockStore, Data, Generation, Role, StoreError, Update};
use kintsu_wire::connect_agent;
use kintsu_wire::message::{
    AppendUpdates, Appended, Done, FenceVolume, FreezeUpdates, FrozenUpdate, FrozenUpdates, LoggedUpdate,
    PendingUpdate, PendingUpdates, PromoteBlocks, PromotedBlocks, ReadUpdates, ReleaseUpdates, UpdatedBytes,
};
use tonic::Status;

use crate::agent::Shared;
use crate::aside::off;
use crate::service::held;

/// The longest part of a block that one call reads.
const MOST_READ_BYTES: u32 = 16 << 20;

/// Logs updates here, and at the same time as replicas on the node that they are forwarded to.
///
/// # Errors
/// `InvalidArgument` for updates that the log refuses; `FailedPrecondition` for an older epoch; `ResourceExhausted` if
/// this disk is full; `Unavailable` if they are not durable on the other node: then they may be so here.
pub async fn append(shared: &Shared, request: AppendUpdates) -> Result<Appended, Status> {
    let AppendUpdates { updates, replica, forward } = request;
    let log = log(shared).await?;
    let forwarding = async {
        match forward {
            Some(to) => forward_to(shared, to, updates.clone()).await,
            None => Ok(()),
        }
    };
    let role = if replica { Role::Replica } else { Role::Home };
    let logged = updates.clone();
    let appending =
        refused(move || log.append(&logged.iter().map(|update| of(update, role)).collect::<Vec<_>>()));
    let (appended, forwarded) = tokio::join!(appending, forwarding);
    let newest = appended?;
    forwarded?;
    Ok(Appended { newest })
}

async fn forward_to(shared: &Shared, to: SocketAddr, updates: Vec<LoggedUpdate>) -> Result<(), Status> {
    let failed = |why: String| Status::unavailable(format!("no replica at {to}: {why}"));
    let mut agent = connect_agent(to, &shared.credentials).map_err(|error| failed(error.to_string()))?;
    let replicas = AppendUpdates { updates, replica: true, forward: None };
    match agent.append_updates(replicas).await {
        Ok(_) => Ok(()),
        // The other node's refusals count as they are: the epoch is older, or the updates make no sense.
        Err(status)
            if matches!(status.code(), tonic::Code::FailedPrecondition | tonic::Code::InvalidArgument) =>
        {
            Err(Status::new(status.code(), format!("replica at {to}: {}", status.message())))
        }
        Err(status) => Err(failed(status.message().to_owned())),
    }
}

fn of(update: &LoggedUpdate, role: Role) -> Update<'_> {
    let LoggedUpdate { volume, epoch, block, offset, ref data, zeros } = *update;
    let data = if data.is_empty() { Data::Zeros(zeros) } else { Data::Bytes(data) };
    Update { volume, epoch, block, role, offset, data }
}

/// Refuses older writers of a volume.
///
/// # Errors
/// `FailedPrecondition` if a newer one was fenced already; errors of the disk.
pub async fn fence(shared: &Shared, FenceVolume { volume, epoch }: FenceVolume) -> Result<Done, Status> {
    let log = log(shared).await?;
    refused(move || log.fence(volume, epoch)).await?;
    Ok(Done {})
}

/// All that the log holds.
///
/// # Errors
/// The log cannot be opened.
pub async fn pending(shared: &Shared) -> Result<PendingUpdates, Status> {
    let pending = log(shared).await?.pending().into_iter().map(|pending| PendingUpdate {
        volume: pending.volume,
        block: pending.block,
        replica: pending.role == Role::Replica,
        ranges: pending.ranges.into_iter().map(|range| (range.start, range.end)).collect(),
        newest: pending.newest,
    });
    Ok(PendingUpdates { pending: pending.collect() })
}

/// Fixes what the next commit takes.
///
/// # Errors
/// The log cannot be opened.
pub async fn freeze(shared: &Shared, request: FreezeUpdates) -> Result<FrozenUpdates, Status> {
    let log = log(shared).await?;
    let frozen = request.blocks.into_iter().map(|block| {
        let (upto, ranges) = log.freeze(block, Role::Home)?;
        Some(FrozenUpdate {
            upto,
            ranges: ranges.into_iter().map(|range| (range.start, range.end)).collect(),
        })
    });
    Ok(FrozenUpdates { blocks: frozen.collect() })
}

/// Forgets updates that are in their blocks.
///
/// # Errors
/// The disk fails; some may be forgotten then.
pub async fn release(shared: &Shared, request: ReleaseUpdates) -> Result<Done, Status> {
    let log = log(shared).await?;
    let release = move || {
        let role = |replica| if replica { Role::Replica } else { Role::Home };
        request.updates.iter().try_for_each(|of| log.release(of.block, role(of.replica), of.upto))
    };
    refused(release).await?;
    Ok(Done {})
}

/// Reads what the log holds of a part of a block.
///
/// # Errors
/// `InvalidArgument` for a part that is too long; a damaged record; the disk fails.
pub async fn read(shared: &Shared, request: ReadUpdates) -> Result<UpdatedBytes, Status> {
    let ReadUpdates { of, offset, len } = request;
    if len > MOST_READ_BYTES {
        let message = format!("bytes to read: expected at most {MOST_READ_BYTES}, got {len}");
        return Err(Status::invalid_argument(message));
    }
    let log = log(shared).await?;
    let role = if of.replica { Role::Replica } else { Role::Home };
    let pieces = move || {
        let mut pieces = Vec::new();
        for range in log.ranges(of.block, role, offset..offset.saturating_add(len.into())) {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            log.lay_over(of.block, role, range.start, &mut bytes)?;
            pieces.push((range.start, Bytes::from(bytes)));
        }
        Ok(pieces)
    };
    Ok(UpdatedBytes { pieces: refused(pieces).await? })
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
            StoreError::Invalid { what: "epoch", .. } | StoreError::Stale { .. } => {
                Status::failed_precondition(message)
            }
            StoreError::Invalid { .. } => Status::invalid_argument(message),
            StoreError::NotFound { .. } => Status::not_found(message),
            StoreError::Full { .. } => Status::resource_exhausted(message),
            _ => Status::internal(message),
        }
    })
}
