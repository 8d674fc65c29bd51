//! Blocks that turn out to be bad: looked at once more, set aside, and reported.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kintsu_dag::{BlockId, NodeId};
use kintsu_runtime::from_store;
use kintsu_store::{BlockStore, Reason, StoreError};
use kintsu_wire::CoordinatorChannel;
use kintsu_wire::message::{BadBlock, Fault, FaultKind, HeldBlock};

use crate::service::held;

const REPORT_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Reads the whole block; one that is rotten twice in a row is set aside, so that a passing error of
/// the disk costs nothing. Blocking.
///
/// # Errors
/// What is wrong with it.
pub fn check(store: &dyn BlockStore, node: NodeId, id: BlockId) -> Result<HeldBlock, Fault> {
    let mut looked = store.verify(id);
    if looked.as_ref().is_err_and(StoreError::is_rot) {
        looked = store.verify(id);
    }
    looked.map(|meta| held(&meta)).map_err(|error| {
        if error.is_rot()
            && let Err(failed) = store.set_aside(id, Reason::Rotten, now_unix())
        {
            tracing::warn!("cannot set {id} aside: {failed}");
        }
        from_store(node, id, &error)
    })
}

/// The time, in seconds since 1970.
pub fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Looks at a block that a program found bad. When it is, it is set aside and the
/// coordinator is told; a passing error of the disk changes nothing.
pub async fn look_into(
    store: Arc<dyn BlockStore>,
    mut coordinator: CoordinatorChannel,
    node: NodeId,
    fault: Fault,
) {
    let Some(id) = fault.block.filter(|_| fault.node == node) else { return };
    if !matches!(fault.kind, FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale) {
        return;
    }
    let Ok(Some(bad)) = tokio::task::spawn_blocking(move || set_aside(&*store, node, id, fault)).await else {
        return;
    };
    tracing::warn!("{}: {}", bad.id, bad.detail);
    let mut pause = FIRST_PAUSE;
    for _ in 0..REPORT_TRIES {
        match coordinator.report_bad(bad.clone()).await {
            Ok(_) => return,
            // The next registration will tell, if nothing else does.
            Err(status) => tracing::warn!("cannot report a bad block: {}", status.message()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// The second look, and the third; blocking.
fn set_aside(store: &dyn BlockStore, node: NodeId, id: BlockId, fault: Fault) -> Option<BadBlock> {
    let found = match fault.kind {
        FaultKind::Corrupt | FaultKind::Missing => check(store, node, id).err()?,
        _ => fault,
    };
    Some(BadBlock { id, node, kind: found.kind, detail: found.detail })
}
