//! Blocks that turn out to be bad: looked at once more, set aside, and reported.

use std::sync::Arc;

use kintsu_dag::{BlockId, NodeId};
use kintsu_runtime::from_store;
use kintsu_store::BlockStore;
use kintsu_wire::CoordinatorChannel;
use kintsu_wire::message::{BadBlock, Fault, FaultKind};

/// Looks at a block that a program or a scrub found bad. When it is, it is set aside and the
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
    if let Err(status) = coordinator.report_bad(bad).await {
        // A scrub, a read or the next registration will find it again.
        tracing::warn!("cannot report a bad block: {status}");
    }
}

/// The second look; blocking.
fn set_aside(store: &dyn BlockStore, node: NodeId, id: BlockId, fault: Fault) -> Option<BadBlock> {
    let mut found = fault;
    if found.kind == FaultKind::Corrupt {
        found = from_store(node, id, &store.verify(id).err()?);
        if found.kind == FaultKind::Corrupt
            && let Err(error) = store.quarantine(id)
        {
            tracing::warn!("cannot set {id} aside: {error}");
        }
    }
    Some(BadBlock { id, node, kind: found.kind, detail: found.detail })
}
