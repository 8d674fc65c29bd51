//! Fences: they show whether the blocks of a put are still there when it is committed.
//!
//! This is only the record of them. What follows from a fence that has changed is decided in
//! [`crate::engine::commit`].

use std::collections::{BTreeMap, BTreeSet};

use kintsu_dag::NodeId;

use super::Meta;
use super::record::{Fence, NodeRecord, PendingPut};
use super::write::Tables;
use crate::error::Result;

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
