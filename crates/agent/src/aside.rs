//! The quarantine of a node: blocks that the metadata do not know, or that are damaged, kept for a time.

use std::sync::Arc;

use kintsu_store::{BlockStore, Generation, Reason, StoreError};
use kintsu_wire::message::{AsideBlock, BlockRef, Counted, HeldBlock};
use tonic::Status;

use crate::agent::Shared;
use crate::rot::now_unix;
use crate::service::held;

/// Sets blocks aside that the metadata do not know. A block that is gone or has another generation by now is
/// skipped.
///
/// # Errors
/// The disk fails; blocks set aside before that stay set aside.
pub async fn set_aside(store: Arc<dyn BlockStore>, blocks: Vec<BlockRef>) -> Result<Counted, Status> {
    off(move || {
        let mut count = 0;
        for BlockRef { id, generation } in blocks {
            match store.look(id) {
                Ok(found) if found.meta.generation == Generation(generation) => {}
                Ok(_) | Err(StoreError::NotFound { .. }) => continue,
                Err(error) if error.is_rot() => {}
                Err(error) => return Err(error),
            }
            let name = store.set_aside(id, Reason::Unknown, now_unix())?;
            tracing::warn!("{id} is unknown to the metadata: set aside as {name}");
            count += 1;
        }
        Ok(Counted { blocks: count })
    })
    .await
}

/// Lists all blocks that are set aside.
///
/// # Errors
/// The disk fails.
pub async fn list(shared: &Shared) -> Result<Vec<AsideBlock>, Status> {
    let store = shared.store.clone();
    off(move || {
        let now = now_unix();
        let told = |aside: kintsu_store::QuarantinedFile| AsideBlock {
            name: aside.name,
            id: aside.id,
            held: aside.meta.as_ref().map(held),
            reason: aside.reason.word().to_owned(),
            age_s: now.saturating_sub(aside.at_unix),
            bytes: aside.bytes,
        };
        Ok(store.aside()?.into_iter().map(told).collect())
    })
    .await
}

/// Moves a block back to its place and reads all of it; a damaged one is set aside again.
///
/// # Errors
/// There is no block of that name; a sound block is at its place; the block is damaged; the disk fails.
pub async fn take_back(store: Arc<dyn BlockStore>, name: String) -> Result<HeldBlock, Status> {
    off(move || {
        let meta = store.take_back(&name)?;
        match store.verify(meta.id) {
            Ok(meta) => Ok(held(&meta)),
            Err(error) => {
                if error.is_rot() {
                    store.set_aside(meta.id, Reason::Rotten, now_unix())?;
                }
                Err(error)
            }
        }
    })
    .await
}

/// Deletes blocks that have been set aside for longer than `age_s`.
///
/// # Errors
/// The disk fails.
pub async fn purge(store: Arc<dyn BlockStore>, age_s: u64) -> Result<Counted, Status> {
    off(move || {
        let blocks = store.purge(now_unix().saturating_sub(age_s))?;
        if blocks > 0 {
            tracing::warn!("deleted blocks that were set aside over {age_s} s ago: {blocks}");
        }
        Ok(Counted { blocks })
    })
    .await
}

/// Runs blocking calls on the store outside of the asynchronous threads.
///
/// # Errors
/// Errors of the store, as gRPC statuses.
pub async fn off<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Status> {
    match kintsu_wire::ambient::blocking(work).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error @ (StoreError::Invalid { .. } | StoreError::NotFound { .. }))) => {
            Err(Status::not_found(error.to_string()))
        }
        Ok(Err(error @ StoreError::Busy { .. })) => Err(Status::failed_precondition(error.to_string())),
        Ok(Err(error)) => Err(Status::internal(error.to_string())),
        Err(error) => Err(Status::internal(error.to_string())),
    }
}
