//! Fences: they show whether the blocks of a put are still there when it is committed.
//!
//! A put remembers for each of its homes the [`Fence`] that the node had when the put got the home. If the fence
//! has changed, the node was restarted or wiped and may have lost what the put wrote there. A dead node cannot be
//! asked. All other blocks are there: a node acknowledges a block only when it is durable. This module decides
//! which blocks must be checked, and what follows from the results; it does not call the nodes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kintsu_dag::{BlockId, BlockIndex, NodeId};
use kintsu_wire::message::{DigestBytes, HeldBlock};

use super::Meta;
use super::record::{Fence, NodeRecord, PendingPut, PendingStripe};
use super::write::Tables;
use crate::error::Result;

/// Blocks that a node may have lost after they were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doubt {
    /// The node.
    pub node: NodeId,
    /// Its fence now: its answer is valid as long as the fence does not change.
    pub fence: Option<Fence>,
    /// The blocks as they were written.
    pub blocks: Vec<HeldBlock>,
}

/// The answer of a node that was asked about its [`Doubt`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// [`Doubt::fence`].
    pub fence: Option<Fence>,
    /// The blocks that are there as they were written.
    pub there: HashSet<BlockId>,
    /// The blocks that are not there, or about which the node could not be asked, with the reason.
    pub missing: HashMap<BlockId, String>,
}

/// What is known about the nodes when a put is committed.
pub struct Evidence<'a> {
    /// The nodes that are dead or stopped.
    pub down: &'a BTreeSet<NodeId>,
    /// The answers of the other nodes.
    pub told: &'a BTreeMap<NodeId, Told>,
    /// Whether a stripe can be read without these blocks.
    pub bearable: &'a dyn Fn(&[BlockIndex]) -> bool,
}

/// A stripe of a put that cannot be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stripe as it was granted.
    pub stripe: PendingStripe,
    /// The node that does not have its block.
    pub node: NodeId,
    /// What happened, as text for people.
    pub detail: String,
}

/// Whether a put can be committed.
#[derive(Debug, Default)]
pub(super) struct Judgement {
    pub doubts: BTreeMap<NodeId, Doubt>,
    pub refusals: Vec<Refusal>,
    /// Blocks on dead nodes, without which their stripes can be read.
    pub lost: HashSet<BlockId>,
}

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

impl Judgement {
    /// Judges one more stripe; `digests` come from its client, `doubtful` are the nodes that may have lost blocks.
    pub fn add(
        &mut self,
        stripe: &PendingStripe,
        digests: &[Option<DigestBytes>],
        k: usize,
        doubtful: &BTreeMap<NodeId, Option<Fence>>,
        evidence: &Evidence<'_>,
    ) {
        let (mut gone, mut refusal) = (Vec::new(), None);
        for (i, (home, digest)) in stripe.homes.iter().zip(digests).enumerate() {
            let (Some(node), Some(digest)) = (*home, *digest) else { continue };
            let Some(&fence) = doubtful.get(&node) else { continue };
            let index = BlockIndex(i as u8);
            let id = BlockId { stripe: stripe.id, index };
            if evidence.down.contains(&node) {
                gone.push((index, node));
                continue;
            }
            let told = evidence.told.get(&node).filter(|told| told.fence == fence);
            if told.is_some_and(|told| told.there.contains(&id)) {
                continue;
            }
            match told.and_then(|told| told.missing.get(&id)) {
                Some(detail) => {
                    refusal.get_or_insert((node, detail.clone()));
                }
                None => {
                    let doubt = || Doubt { node, fence, blocks: Vec::new() };
                    let len = stripe.layout.block_len(k, index);
                    let block = HeldBlock { id, generation: stripe.generation, len, digest };
                    self.doubts.entry(node).or_insert_with(doubt).blocks.push(block);
                }
            }
        }
        if let (None, Some(&(index, node))) = (&refusal, gone.first())
            && !(evidence.bearable)(&absent(stripe, digests, &gone))
        {
            let blocks = gone.len();
            let what = format!("{blocks} of its nodes are dead, and it cannot be read without their blocks");
            refusal = Some((node, format!("{}.{index} is lost: {what}", stripe.id)));
        }
        match refusal {
            Some((node, detail)) => self.refusals.push(Refusal { stripe: stripe.clone(), node, detail }),
            None => self.lost.extend(gone.iter().map(|&(index, _)| BlockId { stripe: stripe.id, index })),
        }
    }
}

/// The blocks that cannot be read: those in `gone`, and parity that is not made yet.
fn absent(
    stripe: &PendingStripe,
    digests: &[Option<DigestBytes>],
    gone: &[(BlockIndex, NodeId)],
) -> Vec<BlockIndex> {
    let made = |i: usize| digests[i].is_some() || stripe.homes[i].is_none();
    let absent = |i: &usize| !made(*i) || gone.iter().any(|(index, _)| usize::from(index.0) == *i);
    (0..digests.len()).filter(absent).map(|i| BlockIndex(i as u8)).collect()
}
