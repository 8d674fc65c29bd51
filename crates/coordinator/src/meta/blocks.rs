//! Blocks: flagged lost, repaired, moved, encoded, turned into garbage.

use std::collections::HashSet;

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_wire::ambient::{FixedFault, is_back};
use kintsu_wire::message::{BlockRef, DigestBytes, FaultKind};
use redb::{ReadableTable, ReadableTableMetadata};

use super::change::{Landing, LostBlock, Parity};
use super::objects::count_plain;
use super::record::Fence;
use super::volumes::{Relogged, land};
use super::write::Tables;
use super::{Meta, Snapshot, record, tables};
use crate::engine::census::Proof;
use crate::error::{CoordinatorError, Result};

/// A flag that a block gets or loses.
struct Flag {
    id: BlockId,
    node: NodeId,
    /// Why it is lost; `None`: it is not.
    why: Option<FaultKind>,
    /// The generation that was looked at, if another one is to keep its flag.
    generation: Option<u32>,
}

impl Meta {
    /// Flags those of these blocks lost that still have the given home; returns them.
    ///
    /// # Errors
    /// The disk fails.
    pub fn mark_lost(&self, blocks: &[LostBlock]) -> Result<Vec<BlockId>> {
        let flags =
            blocks.iter().map(|b| Flag { id: b.id, node: b.node, why: Some(b.why), generation: None });
        self.flag_all(flags, Proof::Read, None)
    }

    /// As [`Meta::mark_lost`]; with a generation only while the block has that one, since a later one was not looked at.
    ///
    /// # Errors
    /// The disk fails.
    pub fn mark_lost_of(&self, block: LostBlock, generation: Option<u32>) -> Result<bool> {
        let LostBlock { id, node, why } = block;
        let flag = Flag { id, node, why: Some(why), generation };
        Ok(!self.flag_all(std::iter::once(flag), Proof::Read, None)?.is_empty())
    }

    /// Removes the lost flag from blocks that are sound at their homes, if `proof` clears the reason of the flag;
    /// returns these blocks. `since`: the node's fence before it was asked. If that has changed, the node may have
    /// been wiped after it had read the block, and the proof is worth nothing.
    ///
    /// # Errors
    /// The disk fails.
    pub fn mark_found(
        &self,
        blocks: &[(BlockId, NodeId)],
        proof: Proof,
        since: Option<Fence>,
    ) -> Result<Vec<BlockId>> {
        if is_back(FixedFault::ReportsBelieved) {
            return Ok(Vec::new());
        }
        let flags = blocks.iter().map(|&(id, node)| Flag { id, node, why: None, generation: None });
        self.flag_all(flags, proof, since)
    }

    fn flag_all(
        &self,
        flags: impl Iterator<Item = Flag>,
        proof: Proof,
        since: Option<Fence>,
    ) -> Result<Vec<BlockId>> {
        let flags: Vec<_> = flags.collect();
        if flags.is_empty() {
            return Ok(Vec::new());
        }
        self.write(|t| {
            let mut changed = Vec::new();
            for Flag { id, node, why, generation } in flags {
                if let Some(since) = since
                    && t.node(node)?.is_none_or(|record| record.wiping || record.fence() != since)
                {
                    continue;
                }
                let Some(mut stripe) = t.stripe(id.stripe)? else { continue };
                let Some(block) = stripe.blocks.get_mut(usize::from(id.index.0)) else { continue };
                let Some(block) = block.as_mut().filter(|b| b.node == node && b.digest.is_some()) else {
                    continue;
                };
                if generation.is_some_and(|generation| generation != block.generation) {
                    continue;
                }
                if why.is_none() {
                    let was = t.lost.get((id.stripe.0, id.index.0))?.map(|row| row.value());
                    if !was.is_some_and(|why| proof.clears(kind_of(why))) {
                        continue;
                    }
                }
                t.flag(id.stripe, id.index, block, why.map(byte_of))?;
                t.set_stripe(id.stripe, &stripe)?;
                changed.push(id);
            }
            Ok(changed)
        })
    }

    /// Makes repaired or moved blocks visible at their new homes, in one transaction: their lost flags are
    /// removed, the rows of both nodes change, and a file that the old home may still have becomes garbage. If the
    /// stripe is gone or the home of the block changed meanwhile, the new file becomes garbage instead. Returns
    /// the blocks that became visible.
    ///
    /// # Errors
    /// A digest that is not the recorded one, or a home that holds another block of the stripe;
    /// nothing is changed then.
    pub fn rehome(&self, id: StripeId, generation: u32, landings: &[Landing]) -> Result<Vec<BlockIndex>> {
        self.rehome_if(id, generation, landings, || Ok(()))
    }

    /// As [`Meta::rehome`], if `check` succeeds. `check` is called within the transaction, so nobody else can
    /// commit between it and the change.
    ///
    /// # Errors
    /// Those of `check` and of [`Meta::rehome`]; nothing is changed then.
    pub fn rehome_if(
        &self,
        id: StripeId,
        generation: u32,
        landings: &[Landing],
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<BlockIndex>> {
        self.rehome_of(id, Some(generation), landings, None, check)
    }

    /// As [`Meta::rehome_if`], with the logs of these blocks, if they belong to a volume.
    ///
    /// # Errors
    /// Those of [`Meta::rehome_if`]; the logs were changed meanwhile.
    pub fn rehome_logged(
        &self,
        id: StripeId,
        generation: u32,
        landings: &[Landing],
        carried: Option<&Relogged>,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<BlockIndex>> {
        self.rehome_of(id, Some(generation), landings, carried, check)
    }

    /// As [`Meta::rehome_if`], for blocks that were found and compared with the record: whatever generation the stripe was
    /// first written with.
    ///
    /// # Errors
    /// Those of [`Meta::rehome_if`].
    pub fn rehome_any(
        &self,
        id: StripeId,
        landings: &[Landing],
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<BlockIndex>> {
        self.rehome_of(id, None, landings, None, check)
    }

    fn rehome_of(
        &self,
        id: StripeId,
        first: Option<u32>,
        landings: &[Landing],
        carried: Option<&Relogged>,
        check: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<BlockIndex>> {
        self.write(|t| {
            check()?;
            let fits = |s: &record::StripeRecord| first.is_none_or(|first| s.generation == first);
            let Some(mut stripe) = t.stripe(id)?.filter(fits) else {
                for l in landings {
                    if let Some(generation) = first {
                        t.trash(id, l.index, generation, l.to)?;
                    }
                }
                return Ok(Vec::new());
            };
            let mut visible = Vec::new();
            for l in landings {
                let slot = stripe.blocks.get_mut(usize::from(l.index.0)).and_then(Option::as_mut);
                let same = |b: &&mut record::BlockRecord| b.node == l.from && b.generation == l.generation;
                let Some(block) = slot.filter(same) else {
                    // The new file is garbage, unless a faster repair wrote to the same place: then it is the
                    // home.
                    let generation = l.generation;
                    let file = BlockRef { id: BlockId { stripe: id, index: l.index }, generation };
                    if !is_home(t, l.to, &file)? {
                        t.trash(id, l.index, generation, l.to)?;
                    }
                    continue;
                };
                if block.is_placeholder() {
                    block.digest = Some(l.digest);
                }
                if block.digest != Some(l.digest) {
                    return Err(CoordinatorError::Conflict {
                        what: format!("new home for {id}.{}", l.index),
                        expected: format!("digest {}", hex(block.digest.as_ref())),
                        got: hex(Some(&l.digest)),
                    });
                }
                t.flag(id, l.index, block, None)?;
                t.unsettle(id, l.index, block.generation, l.from)?;
                block.node = l.to;
                visible.push(l.index);
            }
            for l in landings.iter().filter(|l| visible.contains(&l.index)) {
                make_room(t, id, &mut stripe, l)?;
                t.settle(id, l.index, stripe.generation_of(l.index), l.to)?;
            }
            t.set_stripe(id, &stripe)?;
            let moves = |l: &&Landing| l.from != l.to && visible.contains(&l.index);
            let moved: Vec<BlockIndex> = landings.iter().filter(moves).map(|l| l.index).collect();
            land(t, stripe.owner, &moved, carried)?;
            Ok(visible)
        })
    }

    /// Makes the parity of an offline stripe visible. If the stripe is gone or encoded already, returns false, and
    /// the blocks become garbage.
    ///
    /// # Errors
    /// A home that holds another block of the stripe; nothing is changed then.
    pub fn set_encoded(&self, id: StripeId, generation: u32, parity: &[Parity]) -> Result<bool> {
        self.set_encoded_if(id, generation, parity, || Ok(()))
    }

    /// As [`Meta::set_encoded`], if `check` succeeds, which is called within the transaction.
    ///
    /// # Errors
    /// Those of `check` and of [`Meta::set_encoded`]; nothing is changed then.
    pub fn set_encoded_if(
        &self,
        id: StripeId,
        generation: u32,
        parity: &[Parity],
        check: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        self.write(|t| {
            check()?;
            let wanted = |s: &record::StripeRecord| s.generation == generation && !s.encoded;
            let Some(mut stripe) = t.stripe(id)?.filter(wanted) else {
                for p in parity {
                    if t.by_node.get((p.node.0, id.0))?.map(|row| row.value()) != Some(p.index.0) {
                        t.trash(id, p.index, generation, p.node)?;
                    }
                }
                return Ok(false);
            };
            for p in parity {
                let slot = stripe.blocks.get_mut(usize::from(p.index.0)).and_then(Option::as_mut);
                let block =
                    slot.filter(|b| b.digest.is_none()).ok_or_else(|| CoordinatorError::Conflict {
                        what: format!("encoding of {id}"),
                        expected: "parity blocks not made yet".into(),
                        got: p.index.to_string(),
                    })?;
                (block.node, block.digest) = (p.node, Some(p.digest));
                t.settle(id, p.index, generation, p.node)?;
            }
            stripe.encoded = true;
            t.set_stripe(id, &stripe)?;
            count_encoded(t, stripe.owner)?;
            Ok(true)
        })
    }

    /// Records block files as garbage, unless they are at the homes of their blocks by now.
    ///
    /// # Errors
    /// The disk fails.
    pub fn trash(&self, files: &[(NodeId, BlockRef)]) -> Result<()> {
        if files.is_empty() {
            return Ok(());
        }
        self.write(|t| {
            for (node, file) in files {
                let (id, index) = (file.id.stripe, file.id.index);
                if !is_home(t, *node, file)? {
                    t.trash(id, index, file.generation, *node)?;
                }
            }
            Ok(())
        })
    }

    /// Removes from the list of garbage the files that the node has deleted.
    ///
    /// # Errors
    /// The disk fails.
    pub fn swept(&self, node: NodeId, files: &[BlockRef]) -> Result<()> {
        self.write(|t| {
            for file in files {
                t.garbage.remove((node.0, file.id.stripe.0, file.id.index.0, file.generation))?;
            }
            Ok(())
        })
    }
}

impl Snapshot {
    /// At most `limit` blocks placed on a node, of stripes after `after`.
    ///
    /// # Errors
    /// The disk fails.
    pub fn placed(&self, node: NodeId, after: Option<StripeId>, limit: usize) -> Result<Vec<BlockId>> {
        let table = self.txn.open_table(tables::BY_NODE)?;
        let from = after.map_or(0, |s| s.0.saturating_add(1));
        let mut out = Vec::new();
        for row in table.range((node.0, from)..=(node.0, u64::MAX))?.take(limit) {
            let (key, index) = row?;
            out.push(BlockId { stripe: StripeId(key.value().1), index: BlockIndex(index.value()) });
        }
        Ok(out)
    }

    /// Whether this node is the home of a block.
    ///
    /// # Errors
    /// The disk fails.
    pub fn is_placed(&self, node: NodeId, id: BlockId) -> Result<bool> {
        let table = self.txn.open_table(tables::BY_NODE)?;
        Ok(table.get((node.0, id.stripe.0))?.is_some_and(|row| row.value() == id.index.0))
    }

    /// At most `limit` visible stripes after `after`.
    ///
    /// # Errors
    /// The disk fails.
    pub fn stripes_after(&self, after: Option<StripeId>, limit: usize) -> Result<Vec<StripeId>> {
        let from = after.map_or(0, |s| s.0.saturating_add(1));
        let mut out = Vec::new();
        for row in self.stripes.range(from..)?.take(limit) {
            out.push(StripeId(row?.0.value()));
        }
        Ok(out)
    }

    /// At most `limit` lost blocks, of stripes after `after`, with the reason. The blocks of a stripe are never
    /// split between two pages, unless one stripe fills the page alone.
    ///
    /// # Errors
    /// The disk fails.
    pub fn lost(&self, after: Option<StripeId>, limit: usize) -> Result<Vec<(BlockId, FaultKind)>> {
        let table = self.txn.open_table(tables::LOST)?;
        let from = after.map_or(0, |s| s.0.saturating_add(1));
        let mut out: Vec<(BlockId, FaultKind)> = Vec::new();
        for row in table.range((from, 0)..)? {
            let (key, why) = row?;
            let (stripe, index) = key.value();
            let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
            if out.len() >= limit && out.last().is_some_and(|(b, _)| b.stripe != id.stripe) {
                break;
            }
            out.push((id, kind_of(why.value())));
        }
        Ok(out)
    }

    /// At most `limit` block files to be deleted on a node.
    ///
    /// # Errors
    /// The disk fails.
    pub fn garbage(&self, node: NodeId, limit: usize) -> Result<Vec<BlockRef>> {
        self.garbage_but(node, limit, &HashSet::new())
    }

    /// The same without these blocks.
    ///
    /// # Errors
    /// The disk fails.
    pub fn garbage_but(
        &self,
        node: NodeId,
        limit: usize,
        without: &HashSet<BlockId>,
    ) -> Result<Vec<BlockRef>> {
        let table = self.txn.open_table(tables::GARBAGE)?;
        let (from, to) = ((node.0, 0, 0, 0), (node.0, u64::MAX, u8::MAX, u32::MAX));
        let mut out = Vec::new();
        for row in table.range(from..=to)? {
            let (_, stripe, index, generation) = row?.0.value();
            let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
            if out.len() == limit {
                break;
            }
            if !without.contains(&id) {
                out.push(BlockRef { id, generation });
            }
        }
        Ok(out)
    }

    /// Whether a node still has to delete a block of this stripe. Until it has done so, it must not get a block of
    /// the stripe: the deletion could hit the new block.
    ///
    /// # Errors
    /// The disk fails.
    pub fn must_sweep(&self, node: NodeId, stripe: StripeId) -> Result<bool> {
        let table = self.txn.open_table(tables::GARBAGE)?;
        let (from, to) = ((node.0, stripe.0, 0, 0), (node.0, stripe.0, u8::MAX, u32::MAX));
        Ok(table.range(from..=to)?.next().transpose()?.is_some())
    }

    /// Whether a node still has to delete a file of this block, of any generation.
    ///
    /// # Errors
    /// The disk fails.
    pub fn is_garbage(&self, node: NodeId, id: BlockId) -> Result<bool> {
        let table = self.txn.open_table(tables::GARBAGE)?;
        let (from, to) = ((node.0, id.stripe.0, id.index.0, 0), (node.0, id.stripe.0, id.index.0, u32::MAX));
        Ok(table.range(from..=to)?.next().transpose()?.is_some())
    }

    /// Those of these files that a node still has to delete.
    ///
    /// # Errors
    /// The disk fails.
    pub fn still_garbage(&self, node: NodeId, files: &[BlockRef]) -> Result<Vec<BlockRef>> {
        let table = self.txn.open_table(tables::GARBAGE)?;
        let mut out = Vec::with_capacity(files.len());
        for file in files {
            if table.get((node.0, file.id.stripe.0, file.id.index.0, file.generation))?.is_some() {
                out.push(*file);
            }
        }
        Ok(out)
    }

    /// Why a block is flagged lost, if it is.
    ///
    /// # Errors
    /// The disk fails.
    pub fn why_lost(&self, id: BlockId) -> Result<Option<FaultKind>> {
        let table = self.txn.open_table(tables::LOST)?;
        Ok(table.get((id.stripe.0, id.index.0))?.map(|row| kind_of(row.value())))
    }

    /// Whether there is any garbage.
    ///
    /// # Errors
    /// The disk fails.
    pub fn any_garbage(&self) -> Result<bool> {
        Ok(self.txn.open_table(tables::GARBAGE)?.len()? > 0)
    }
}

/// If a block lands on a node that was only guessed as the home of a placeholder of the same stripe, moves the
/// placeholder to the block's old home.
fn make_room(t: &mut Tables<'_>, id: StripeId, stripe: &mut record::StripeRecord, l: &Landing) -> Result<()> {
    let Some(taken) = t.by_node.get((l.to.0, id.0))?.map(|row| BlockIndex(row.value())) else {
        return Ok(());
    };
    let slot = stripe.blocks.get_mut(usize::from(taken.0)).and_then(Option::as_mut);
    let Some(other) = slot.filter(|b| taken != l.index && b.is_placeholder()) else { return Ok(()) };
    t.flag(id, taken, other, None)?;
    let generation = other.generation;
    t.unsettle(id, taken, generation, l.to)?;
    t.garbage.remove((l.to.0, id.0, taken.0, generation))?;
    other.node = l.from;
    t.settle(id, taken, generation, l.from)?;
    t.flag(id, taken, other, Some(byte_of(FaultKind::Missing)))
}

/// Whether the metadata place exactly this block on this node.
pub fn is_home(t: &Tables<'_>, node: NodeId, file: &BlockRef) -> Result<bool> {
    let at = t.by_node.get((node.0, file.id.stripe.0))?.map(|row| row.value());
    Ok(at == Some(file.id.index.0)
        && t.stripe(file.id.stripe)?
            .is_some_and(|stripe| stripe.generation_of(file.id.index) == file.generation))
}

fn count_encoded(t: &mut Tables<'_>, owner: u64) -> Result<()> {
    let Some(name) = t.names.get(owner)?.map(|row| row.value().to_owned()) else { return Ok(()) };
    let Some(mut object) = t.object(&name)? else { return Ok(()) };
    object.encoded += 1;
    count_plain(t, 0, 1)?;
    t.set_object(&name, &object)
}

/// Reasons as bytes on disk.
const REASONS: [FaultKind; 5] =
    [FaultKind::Missing, FaultKind::Corrupt, FaultKind::Stale, FaultKind::Mismatch, FaultKind::Io];

pub(super) fn byte_of(why: FaultKind) -> u8 {
    REASONS.iter().position(|&k| k == why).unwrap_or(REASONS.len() - 1) as u8
}

fn kind_of(byte: u8) -> FaultKind {
    REASONS.get(usize::from(byte)).copied().unwrap_or(FaultKind::Io)
}

fn hex(digest: Option<&DigestBytes>) -> String {
    digest.map_or("none".into(), |d| d.iter().map(|b| format!("{b:02x}")).collect())
}
