//! Belonging to a cluster: registration, heartbeats, and what the coordinator wants deleted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kintsu_store::BlockStore;
use kintsu_wire::CoordinatorChannel;
use kintsu_wire::message::{BlockRef, DeleteBlocks, DiskUsage, Heartbeat, Register, Registered};
use tonic::Code;

use crate::agent::Shared;
use crate::service::held;

/// An old process of this node may still count as alive; it is given this many tries to end.
const TRIES_WHILE_TAKEN: u32 = 40;
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Registers, again and again while the coordinator cannot be reached.
///
/// # Errors
/// What the coordinator said when it refuses for good.
pub async fn register(shared: &Shared, mut coordinator: CoordinatorChannel) -> Result<Registered, String> {
    let mut pause = FIRST_PAUSE;
    let mut taken = 0;
    loop {
        let blocks = match list(shared.store.clone()).await {
            Ok(blocks) => blocks,
            Err(detail) => return Err(format!("its own blocks cannot be listed: {detail}")),
        };
        let message = Register {
            node: *shared.node.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
            rack: shared.rack,
            control: shared.control,
            data: shared.data,
            dir: shared.dir.display().to_string(),
            incarnation: shared.incarnation,
            blocks,
        };
        match coordinator.register(message).await {
            Ok(reply) => return Ok(reply.into_inner()),
            Err(status) => match status.code() {
                Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled => {
                    tracing::info!("the coordinator cannot be reached: {}", status.message());
                }
                Code::AlreadyExists if taken < TRIES_WHILE_TAKEN => taken += 1,
                _ => return Err(status.message().to_owned()),
            },
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if taken > 0 {
            pause = pause.min(Duration::from_millis(500));
        }
    }
}

async fn list(store: Arc<dyn BlockStore>) -> Result<Vec<kintsu_wire::message::HeldBlock>, String> {
    let listed = tokio::task::spawn_blocking(move || store.list()).await.map_err(|e| e.to_string())?;
    let listed = listed.map_err(|e| e.to_string())?;
    for (_, error) in &listed.damaged {
        tracing::warn!("a block is damaged: {error}");
    }
    Ok(listed.blocks.iter().map(held).collect())
}

/// Sends heartbeats until the agent ends; registers again when the coordinator asks for it.
pub async fn keep_alive(shared: Arc<Shared>, coordinator: CoordinatorChannel, mut registered: Registered) {
    loop {
        delete(shared.clone(), std::mem::take(&mut registered.delete)).await;
        expire(shared.clone()).await;
        tokio::time::sleep(Duration::from_millis(registered.heartbeat_ms.clamp(10, 60_000))).await;
        let message = Heartbeat {
            node: registered.node,
            incarnation: shared.incarnation,
            usage: usage(shared.store.clone()).await,
            running: shared.running.load(Ordering::Relaxed),
        };
        match coordinator.clone().heartbeat(message).await {
            Ok(reply) => {
                let reply = reply.into_inner();
                registered.delete = reply.delete;
                if reply.register_again {
                    match register(&shared, coordinator.clone()).await {
                        Ok(again) => registered = again,
                        Err(detail) => {
                            tracing::error!("the coordinator does not take this agent back: {detail}")
                        }
                    }
                }
            }
            Err(status) => tracing::info!("heartbeat: {}", status.message()),
        }
    }
}

/// Throws away unfinished blocks that nobody goes on with.
async fn expire(shared: Arc<Shared>) {
    let local = shared.local.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
    if let Some(local) = local
        && tokio::task::spawn_blocking(move || local.expire()).await.is_err()
    {
        tracing::error!("unfinished blocks could not be thrown away");
    }
}

async fn usage(store: Arc<dyn BlockStore>) -> DiskUsage {
    match tokio::task::spawn_blocking(move || store.usage()).await {
        Ok(Ok(usage)) => DiskUsage { blocks: usage.blocks, bytes: usage.bytes, free_bytes: usage.free_bytes },
        _ => DiskUsage::default(),
    }
}

/// Deletes blocks that nobody needs; what fails is asked for again.
async fn delete(shared: Arc<Shared>, blocks: Vec<BlockRef>) {
    if blocks.is_empty() {
        return;
    }
    let request = DeleteBlocks { blocks, ..DeleteBlocks::default() };
    let work = move || shared.deletes.run(&*shared.store, &shared.graves, request);
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(_)) => {}
        Ok(Err(refused)) => tracing::warn!("{refused}"),
        Err(_) => tracing::error!("deleting blocks ended early"),
    }
}
