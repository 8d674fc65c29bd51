//! Blocks that turn out to be bad: they are read once more, set aside, and reported.
//!
//! A block is bad when its bytes do not match their checksums, and also when the disk says that it cannot read
//! them. Other errors of the system (no file handles left, no memory) say nothing about the block.

use std::sync::Arc;
use std::time::Duration;

use kintsu_dag::{BlockId, NodeId};
use kintsu_runtime::from_store;
use kintsu_store::{Bad, BlockStore, StoreError};
use kintsu_wire::MembershipChannel;
use kintsu_wire::message::{BadBlock, Fault, FaultKind, HeldBlock};

use crate::service::held;

const REPORT_TRIES: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Reads the whole block. If it is bad twice in a row, it is set aside; so a temporary disk error does no harm.
/// Blocking.
///
/// # Errors
/// What is wrong with it.
pub fn check(store: &dyn BlockStore, node: NodeId, id: BlockId) -> Result<HeldBlock, Fault> {
    look(store, id).map_err(|error| from_store(node, id, &error))
}

/// As [`check`], with the store's own error.
///
/// # Errors
/// Errors of the store. One that is neither damage nor `NotFound` says nothing about the block.
pub fn look(store: &dyn BlockStore, id: BlockId) -> Result<HeldBlock, StoreError> {
    store.check(id, now_unix()).map(|meta| held(&meta)).map_err(|Bad { error, stays }| {
        if let Some(failed) = stays {
            tracing::warn!("cannot set {id} aside: {failed}");
        }
        error
    })
}

/// The time, in seconds since 1970.
pub fn now_unix() -> u64 {
    kintsu_wire::ambient::since_epoch().as_secs()
}

/// Checks a block that a program found bad. If it is bad, it is set aside and reported to the coordinator; a
/// temporary disk error changes nothing.
pub async fn look_into(
    store: Arc<dyn BlockStore>,
    mut coordinator: MembershipChannel,
    node: NodeId,
    fault: Fault,
) {
    let Some(id) = fault.block.filter(|_| fault.node == node) else { return };
    if !matches!(fault.kind, FaultKind::Corrupt | FaultKind::Missing | FaultKind::Stale | FaultKind::Io) {
        return;
    }
    let Ok(Some(bad)) = kintsu_wire::ambient::blocking(move || set_aside(&*store, node, id, fault)).await
    else {
        return;
    };
    tracing::warn!("{}: {}", bad.id, bad.detail);
    let mut pause = FIRST_PAUSE;
    for _ in 0..REPORT_TRIES {
        match coordinator.report_bad(bad.clone()).await {
            Ok(_) => return,
            // The next registration reports it at the latest.
            Err(status) => tracing::warn!("cannot report a bad block: {}", status.message()),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Reads the block again, twice if the first time finds it bad. Blocking.
fn set_aside(store: &dyn BlockStore, node: NodeId, id: BlockId, fault: Fault) -> Option<BadBlock> {
    let found = match fault.kind {
        FaultKind::Corrupt | FaultKind::Missing => check(store, node, id).err()?,
        FaultKind::Io => match store.verify(id) {
            // This error says nothing about the block.
            Err(error) if !error.is_damage() => return None,
            _ => check(store, node, id).err()?,
        },
        _ => fault,
    };
    Some(BadBlock { id, node, kind: found.kind, detail: found.detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_dag::{BlockIndex, StripeId};
    use kintsu_store::{FileStore, Generation, UNIT_BYTES, block_path};

    fn stored(dir: &std::path::Path) -> (FileStore, BlockId) {
        let store = FileStore::open(dir).unwrap();
        let id = BlockId { stripe: StripeId(1), index: BlockIndex(2) };
        let mut write = store.create(id, Generation(1), 4, UNIT_BYTES as u32, &[]).unwrap();
        write.write_at(0, b"data").unwrap();
        write.finish(None).unwrap();
        (store, id)
    }

    fn fault(id: BlockId) -> Fault {
        Fault { kind: FaultKind::Io, node: NodeId(3), block: Some(id), detail: "found by a program".into() }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_block_that_its_disk_cannot_read_is_set_aside_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (store, id) = stored(dir.path());
        // Nothing is mapped at address 0 of a process, so the kernel answers every read there with
        // EIO.
        let path = block_path(dir.path(), id);
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/proc/self/mem", &path).unwrap();
        let bad = set_aside(&store, NodeId(3), id, fault(id)).expect("it is reported");
        assert_eq!((bad.id, bad.node, bad.kind), (id, NodeId(3), FaultKind::Io));
        assert!(bad.detail.contains("os error 5"), "{}", bad.detail);
        assert!(path.symlink_metadata().is_err(), "it is set aside");
    }

    #[test]
    fn a_block_that_can_be_read_again_is_not_reported() {
        let dir = tempfile::tempdir().unwrap();
        let (store, id) = stored(dir.path());
        assert_eq!(set_aside(&store, NodeId(3), id, fault(id)), None);
        // A folder in its place: an error of the system, not of the medium.
        let path = block_path(dir.path(), id);
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert_eq!(set_aside(&store, NodeId(3), id, fault(id)), None);
        assert!(path.exists());
    }
}
