//! Fences: they show whether the blocks of a put are still there when it is committed.
//!
//! This is only the record of them. What follows from a fence that has changed is decided in
//! [`crate::engine::commit`].

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;

use super::record::{self, Fence, NodeRecord, PendingPut};
use super::write::Tables;
use super::{Meta, Snapshot, tables};
use crate::error::{CoordinatorError, Result};

impl Meta {
    /// Records that a node's blocks may vanish, or have vanished: puts that were granted earlier are then checked
    /// at their commit. Must be called before blocks are deleted, and again afterwards, before the node gets new
    /// blocks.
    ///
    /// # Errors
    /// The disk fails.
    pub fn bump_epoch(&self, node: NodeId) -> Result<bool> {
        self.change_node(node, |record| record.epoch += 1)
    }
}

impl Snapshot {
    /// Fails if a node was wiped or replaced since it had this fence, or is being wiped: what it held then may be gone.
    ///
    /// # Errors
    /// `Conflict`, which names the node; the disk fails.
    pub fn still(&self, node: NodeId, since: Fence) -> Result<()> {
        let table = self.txn.open_table(tables::NODES)?;
        let record = table.get(node.0)?.map(|row| record::unpack::<NodeRecord>("node", row.value()));
        if record.transpose()?.is_some_and(|record| !record.wiping && record.fence() == since) {
            return Ok(());
        }
        Err(CoordinatorError::Conflict {
            what: format!("blocks that {node} holds"),
            expected: "a node that was not wiped or replaced since".into(),
            got: "one that was".into(),
        })
    }

    /// The fence of a node; [`Fence::UNKNOWN`] if the node is unknown.
    ///
    /// # Errors
    /// The disk fails.
    pub fn fence(&self, node: NodeId) -> Result<Fence> {
        let table = self.txn.open_table(tables::NODES)?;
        let record = table.get(node.0)?.map(|row| record::unpack::<NodeRecord>("node", row.value()));
        Ok(record.transpose()?.map_or(Fence::UNKNOWN, |record| record.fence()))
    }
}

/// The fence of a node now; `None` if the node is unknown.
pub(super) fn fence_of(t: &Tables<'_>, node: NodeId) -> Result<Option<Fence>> {
    Ok(t.node(node)?.as_ref().map(NodeRecord::fence))
}

/// Remembers the fences of new homes. The first fence of a node is kept: a later one would hide that blocks
/// written under the first one may be lost.
pub(super) fn remember(t: &Tables<'_>, put: &mut PendingPut, homes: &[Option<NodeId>]) -> Result<()> {
    for node in homes.iter().flatten() {
        if !put.fences.contains_key(node)
            && let Some(fence) = fence_of(t, *node)?
        {
            put.fences.insert(*node, fence);
        }
    }
    Ok(())
}

/// The homes of a put that may not have its blocks any more, with their fences now.
pub(super) fn doubtful(
    t: &Tables<'_>,
    put: &PendingPut,
    down: &BTreeSet<NodeId>,
) -> Result<BTreeMap<NodeId, Option<Fence>>> {
    let mut out = BTreeMap::new();
    for (node, before) in &put.fences {
        let now = fence_of(t, *node)?;
        if now != Some(*before) || down.contains(node) {
            out.insert(*node, now);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use kintsu_dag::{BlockId, BlockIndex, RackId};
    use kintsu_wire::FolderId;
    use kintsu_wire::message::{FaultKind, HeldBlock};

    use super::*;
    use crate::engine::census::Proof;
    use crate::engine::enroll::Range;
    use crate::engine::identity::Applicant;
    use crate::engine::wipe;
    use crate::meta::change::LostBlock;
    use crate::meta::tests::{digest, open, store};

    #[test]
    fn what_a_node_read_before_a_wipe_proves_nothing_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let node = NodeId(1);
        let any = "127.0.0.1:1".parse().unwrap();
        let (record, folder) = (NodeRecord::new(RackId(0), any, any, String::new(), 1), FolderId([3; 16]));
        meta.enroll(Applicant { node: Some(node), folder, replace: false, moved: false, record }).unwrap();
        let id = BlockId { stripe: store(&meta, "a", 16, 0).stripes[0].id, index: BlockIndex(1) };
        let lose = || meta.mark_lost(&[LostBlock { id, node, why: FaultKind::Missing }]).unwrap();
        let fence = || meta.snapshot().unwrap().fence(node).unwrap();
        let found = |since| meta.mark_found(&[(id, node)], Proof::Read, Some(since)).unwrap();

        let before = fence();
        lose();
        assert_eq!(found(before), [id], "no wipe: the block is sound");
        lose();
        assert!(meta.change_node(node, wipe::ordered).unwrap());
        assert_eq!(found(before), [], "a wipe was ordered");
        assert_eq!(found(fence()), [], "and is not over yet");
        meta.wipe(node).unwrap();
        assert_eq!(found(before), [], "the block may be gone");
        assert_eq!(found(fence()), [id], "it was read after the wipe");
        assert_eq!(meta.snapshot().unwrap().fence(NodeId(7)).unwrap(), Fence::UNKNOWN);
    }

    #[test]
    fn what_a_node_listed_before_a_wipe_gets_no_home_there_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        let (home, other, any) = (NodeId(1), NodeId(7), "127.0.0.1:1".parse().unwrap());
        let (record, folder) = (NodeRecord::new(RackId(0), any, any, String::new(), 1), FolderId([3; 16]));
        let applicant = Applicant { node: Some(other), folder, replace: false, moved: false, record };
        let before = meta.enroll(applicant).unwrap().record.fence();
        let id = BlockId { stripe: store(&meta, "a", 16, 0).stripes[0].id, index: BlockIndex(1) };
        meta.mark_lost(&[LostBlock { id, node: home, why: FaultKind::Missing }]).unwrap();
        let listed = [HeldBlock { id, generation: 1, len: 8, digest: digest(id.stripe, 1) }];
        let range = Range::default();
        let comparison = meta.snapshot().unwrap().compare(other, range, &listed, &BTreeSet::new()).unwrap();
        assert_eq!(comparison.strays.len(), 1);
        let home_after = |since| {
            meta.reconcile(other, range, &comparison, &listed, &Default::default(), Some(since)).unwrap();
            meta.snapshot().unwrap().stripe(id.stripe).unwrap().unwrap().block(id.index).unwrap().node
        };
        assert!(meta.change_node(other, wipe::ordered).unwrap());
        let ordered = meta.snapshot().unwrap().fence(other).unwrap();
        assert_eq!((home_after(before), home_after(ordered)), (home, home));
        meta.wipe(other).unwrap();
        assert_eq!(home_after(before), home, "the block may be gone");
        assert_eq!(home_after(meta.snapshot().unwrap().fence(other).unwrap()), other);
    }
}
