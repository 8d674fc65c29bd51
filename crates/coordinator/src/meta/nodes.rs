//! Nodes: their records, and comparing the blocks that they hold with those that they should hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_wire::message::{BlockRef, FaultKind, HeldBlock};
use redb::ReadableTable;

use super::change::{Landing, LostBlock};
use super::record::{self, Fence, NodeRecord};
use super::{Meta, Snapshot, tables};
use crate::engine::census::{self, Census, Comparison, Proof};
use crate::engine::enroll::Range;
use crate::engine::wipe;
use crate::error::{CoordinatorError, Result};

/// Most blocks of a node that one transaction of [`Meta::wipe`] flags.
const WIPE_BATCH: usize = 8192;

impl Meta {
    /// Changes what is recorded of a node, if it is known.
    ///
    /// # Errors
    /// The disk fails.
    pub fn change_node(&self, node: NodeId, change: impl FnOnce(&mut NodeRecord)) -> Result<bool> {
        self.write(|t| {
            let Some(mut record) = t.node(node)? else { return Ok(false) };
            change(&mut record);
            t.set_node(node, &record)?;
            Ok(true)
        })
    }

    /// Records the outcome of a `Comparison` of a page: flags lost blocks, removes the flags of blocks that are
    /// there, and gives strays their new home. Garbage that the node does not hold any more is forgotten. Nothing
    /// becomes garbage. `since`: the node's fence before it listed what it holds. If that has changed, the list clears
    /// no flag and gives nothing a home.
    ///
    /// Returns the lost blocks, and the unknown blocks: those that are not at their home, not part of a put, not
    /// garbage, and not in `keep`.
    ///
    /// # Errors
    /// The disk fails.
    pub fn reconcile(
        &self,
        node: NodeId,
        range: Range,
        comparison: &Comparison,
        held: &[HeldBlock],
        keep: &HashSet<BlockId>,
        since: Option<Fence>,
    ) -> Result<(Vec<BlockId>, Vec<BlockRef>)> {
        let lost = self.mark_lost(&comparison.lost)?;
        self.mark_found(&comparison.found, Proof::Header, since)?;
        let still = || since.map_or(Ok(()), |since| self.snapshot()?.still(node, since));
        for stray in &comparison.strays {
            let id = stray.file.id;
            let landing = Landing {
                index: id.index,
                from: stray.home,
                to: node,
                generation: stray.file.generation,
                digest: stray.digest,
            };
            match self.rehome_any(id.stripe, &[landing], still) {
                Ok(_) if stray.home == node => {}
                Ok(taken) if !taken.is_empty() => {
                    tracing::info!("{id} was found on {node}, not on {}", stray.home)
                }
                Ok(_) => {}
                // The node is the home of another block of the stripe, or it was wiped: all blocks stay as they are.
                Err(CoordinatorError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let Some((first, last)) = range.ids() else { return Ok((lost, Vec::new())) };
        let held: HashSet<(BlockId, u32)> = held.iter().map(|b| (b.id, b.generation)).collect();
        self.write(|t| {
            let (from, to) = ((node.0, first, 0, 0), (node.0, last, u8::MAX, u32::MAX));
            t.garbage.retain_in(from..=to, |(_, stripe, index, generation), ()| {
                let id = BlockId { stripe: StripeId(stripe), index: kintsu_dag::BlockIndex(index) };
                held.contains(&(id, generation))
            })?;
            Ok(())
        })?;
        let others = comparison.unknown.iter().filter(|file| !keep.contains(&file.id));
        let unknown = self.snapshot()?.unknown(node, &others.copied().collect::<Vec<_>>())?;
        Ok((lost, unknown))
    }

    /// Records that a node lost all its blocks and that its wipe has ended. Returns the number of blocks flagged.
    ///
    /// # Errors
    /// The disk fails; blocks that were flagged until then stay flagged.
    pub fn wipe(&self, node: NodeId) -> Result<u64> {
        let (mut after, mut count) = (None, 0);
        loop {
            let page = self.snapshot()?.placed(node, after, WIPE_BATCH)?;
            let Some(last) = page.last() else { break };
            after = Some(last.stripe);
            let why = FaultKind::Missing;
            let lost: Vec<_> = page.iter().map(|&id| LostBlock { id, node, why }).collect();
            count += self.mark_lost(&lost)?.len() as u64;
        }
        self.write(|t| {
            let (from, to) = ((node.0, 0, 0, 0), (node.0, u64::MAX, u8::MAX, u32::MAX));
            t.garbage.retain_in(from..=to, |_, ()| false)?;
            if let Some(mut record) = t.node(node)? {
                wipe::ended(&mut record);
                t.set_node(node, &record)?;
            }
            Ok(())
        })?;
        Ok(count)
    }
}

impl Snapshot {
    /// All nodes.
    ///
    /// # Errors
    /// The disk fails.
    pub fn nodes(&self) -> Result<BTreeMap<NodeId, NodeRecord>> {
        all(&self.txn.open_table(tables::NODES)?)
    }

    /// Blocks placed on each node, and those of them that are lost.
    ///
    /// # Errors
    /// The disk fails.
    pub fn tallies(&self) -> Result<BTreeMap<NodeId, (u64, u64)>> {
        let table = self.txn.open_table(tables::TALLY)?;
        let mut out = BTreeMap::new();
        for row in table.iter()? {
            let (id, row) = row?;
            out.insert(NodeId(id.value()), row.value());
        }
        Ok(out)
    }

    /// Compares the blocks of a range of stripes that a node holds with those that it should hold, in one pass
    /// over the rows of the node. `damaged` are blocks that are there but whose headers cannot be read.
    ///
    /// # Errors
    /// The disk fails.
    pub fn compare(
        &self,
        node: NodeId,
        range: Range,
        held: &[HeldBlock],
        damaged: &BTreeSet<BlockId>,
    ) -> Result<Comparison> {
        let Some((first, last)) = range.ids() else { return Ok(Comparison::default()) };
        let by_node = self.txn.open_table(tables::BY_NODE)?;
        let mut census = Census::new(node, held, damaged);
        let mut codes: HashMap<u16, usize> = HashMap::new();
        for row in by_node.range((node.0, first)..=(node.0, last))? {
            let (key, index) = row?;
            let index = kintsu_dag::BlockIndex(index.value());
            let id = BlockId { stripe: StripeId(key.value().1), index };
            let Some(stripe) = self.stripe(id.stripe)? else { continue };
            let Some(block) = stripe.block(index) else { continue };
            census.placed(id, &stripe, block, self.data_blocks(stripe.code, &mut codes)?);
        }
        for held in census.rest() {
            if let Some(stripe) = self.stripe(held.id.stripe)? {
                let k = self.data_blocks(stripe.code, &mut codes)?;
                census.elsewhere(census::stray(&stripe, k, held));
            }
        }
        Ok(census.end())
    }

    /// The home at which this block is lost, if `node` holds it as recorded and may become its home.
    ///
    /// # Errors
    /// The disk fails.
    pub fn misses(&self, node: NodeId, held: &HeldBlock) -> Result<Option<NodeId>> {
        let Some(stripe) = self.stripe(held.id.stripe)? else { return Ok(None) };
        let k = self.data_blocks(stripe.code, &mut HashMap::new())?;
        Ok(census::missed_at(node, &stripe, k, held))
    }

    /// Those of these files that are unknown: not at their home, not part of a put, not garbage.
    ///
    /// # Errors
    /// The disk fails.
    pub fn unknown(&self, node: NodeId, files: &[BlockRef]) -> Result<Vec<BlockRef>> {
        let by_node = self.txn.open_table(tables::BY_NODE)?;
        let garbage = self.txn.open_table(tables::GARBAGE)?;
        let mut out = Vec::new();
        for file in files {
            let BlockRef { id, generation } = *file;
            let at = by_node.get((node.0, id.stripe.0))?.map(|row| row.value());
            let home = at == Some(id.index.0)
                && self.stripe(id.stripe)?.is_some_and(|s| s.generation_of(id.index) == generation);
            let deleted = garbage.get((node.0, id.stripe.0, id.index.0, generation))?.is_some();
            if !home && !deleted && !self.is_pending(id.stripe)? {
                out.push(*file);
            }
        }
        Ok(out)
    }

    /// Number of data blocks of a stripe of this code; each code is looked up once.
    fn data_blocks(&self, code: u16, known: &mut HashMap<u16, usize>) -> Result<usize> {
        if let Some(&k) = known.get(&code) {
            return Ok(k);
        }
        Ok(*known.entry(code).or_insert(usize::from(self.code(code)?.k)))
    }
}

/// All rows of the table of nodes.
pub(super) fn all(table: &impl ReadableTable<u32, &'static [u8]>) -> Result<BTreeMap<NodeId, NodeRecord>> {
    let mut out = BTreeMap::new();
    for row in table.iter()? {
        let (id, row) = row?;
        out.insert(NodeId(id.value()), record::unpack("node", row.value())?);
    }
    Ok(out)
}
