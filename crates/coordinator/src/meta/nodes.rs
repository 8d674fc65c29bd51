//! Nodes: their records, and what they hold against what they should hold.

use std::collections::{BTreeMap, HashMap, HashSet};

use kintsu_dag::{BlockId, NodeId, StripeId};
use kintsu_wire::message::{BlockRef, FaultKind, HeldBlock};
use redb::ReadableTable;

use super::blocks::{LostBlock, is_home};
use super::record::{self, NodeRecord};
use super::{Meta, Snapshot, tables};
use crate::error::Result;

/// Blocks of a node that one transaction of [`Meta::wipe`] flags at most.
const WIPE_BATCH: usize = 8192;

/// A node that was enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enrolled {
    /// Its id from now on.
    pub node: NodeId,
    /// It was not known before.
    pub new: bool,
    /// What is recorded of it now.
    pub record: NodeRecord,
}

/// How what a node holds differs from what the metadata place on it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Placed there, but missing, or there with another generation, length or digest.
    pub lost: Vec<LostBlock>,
    /// Flagged lost, but there as recorded.
    pub found: Vec<(BlockId, NodeId)>,
    /// There, but neither placed there nor part of a put.
    pub unknown: Vec<BlockRef>,
}

impl Meta {
    /// Records a node, giving it an id if it has none; a recorded drain outlasts restarts.
    ///
    /// # Errors
    /// The disk fails.
    pub fn enroll(&self, asked: Option<NodeId>, mut record: NodeRecord) -> Result<Enrolled> {
        self.write(|t| {
            let node = match asked {
                Some(node) => {
                    let next = t.counter(tables::COUNT_NODE)?;
                    t.set_counter(tables::COUNT_NODE, next.max(u64::from(node.0) + 1))?;
                    node
                }
                None => {
                    let next = t.counter(tables::COUNT_NODE)?;
                    t.set_counter(tables::COUNT_NODE, next + 1)?;
                    NodeId(next as u32)
                }
            };
            let old = t.node(node)?;
            record.draining = old.as_ref().is_some_and(|old| old.draining);
            record.epoch = old.as_ref().map_or(0, |old| old.epoch);
            t.set_node(node, &record)?;
            Ok(Enrolled { node, new: old.is_none(), record })
        })
    }

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

    /// Records the outcome of a [`Comparison`]: flags what is lost, takes flags from what is there,
    /// and throws away what is unknown, unless it became part of something meanwhile or is in
    /// `keep`. Garbage of the node that it does not hold is forgotten.
    ///
    /// # Errors
    /// The disk fails.
    pub fn reconcile(
        &self,
        node: NodeId,
        comparison: &Comparison,
        held: &[HeldBlock],
        keep: &HashSet<BlockId>,
    ) -> Result<Vec<BlockId>> {
        let lost = self.mark_lost(&comparison.lost)?;
        self.mark_found(&comparison.found)?;
        let held: HashSet<(BlockId, u32)> = held.iter().map(|b| (b.id, b.generation)).collect();
        self.write(|t| {
            for file in &comparison.unknown {
                let needed = keep.contains(&file.id) || t.is_pending(file.id.stripe)?;
                if !needed && !is_home(t, node, file)? {
                    t.trash(file.id.stripe, file.id.index, file.generation, node)?;
                }
            }
            let (from, to) = ((node.0, 0, 0, 0), (node.0, u64::MAX, u8::MAX, u32::MAX));
            t.garbage.retain_in(from..=to, |(_, stripe, index, generation), ()| {
                let id = BlockId { stripe: StripeId(stripe), index: kintsu_dag::BlockIndex(index) };
                held.contains(&(id, generation))
            })?;
            Ok(())
        })?;
        Ok(lost)
    }

    /// Records that a node lost all its blocks.
    ///
    /// # Errors
    /// The disk fails; what was flagged until then stays flagged.
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
        let table = self.txn.open_table(tables::NODES)?;
        let mut out = BTreeMap::new();
        for row in table.iter()? {
            let (id, row) = row?;
            out.insert(NodeId(id.value()), record::unpack("node", row.value())?);
        }
        Ok(out)
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

    /// Compares what a node holds with what it should hold, in one pass over the rows of the
    /// node.
    ///
    /// # Errors
    /// The disk fails.
    pub fn compare(&self, node: NodeId, held: &[HeldBlock]) -> Result<Comparison> {
        let mut rest: HashMap<BlockId, &HeldBlock> = held.iter().map(|b| (b.id, b)).collect();
        let by_node = self.txn.open_table(tables::BY_NODE)?;
        let mut out = Comparison::default();
        let mut codes: HashMap<u16, usize> = HashMap::new();
        for row in by_node.range((node.0, 0)..=(node.0, u64::MAX))? {
            let (key, index) = row?;
            let index = kintsu_dag::BlockIndex(index.value());
            let id = BlockId { stripe: StripeId(key.value().1), index };
            let Some(stripe) = self.stripe(id.stripe)? else { continue };
            let Some(block) = stripe.block(index) else { continue };
            let k = match codes.get(&stripe.code) {
                Some(&k) => k,
                None => *codes.entry(stripe.code).or_insert(usize::from(self.code(stripe.code)?.k)),
            };
            let why = match rest.get(&id) {
                None => Some(FaultKind::Missing),
                // A file of another generation stays in `rest`: it is garbage besides.
                Some(b) if b.generation != stripe.generation => Some(FaultKind::Stale),
                Some(b) => {
                    let same = Some(b.digest) == block.digest && b.len == stripe.layout.block_len(k, index);
                    rest.remove(&id);
                    (!same).then_some(FaultKind::Corrupt)
                }
            };
            match why {
                Some(why) if !block.lost => out.lost.push(LostBlock { id, node, why }),
                None if block.lost => out.found.push((id, node)),
                _ => {}
            }
        }
        out.unknown = rest.values().map(|b| BlockRef { id: b.id, generation: b.generation }).collect();
        out.unknown.sort_unstable_by_key(|b| (b.id, b.generation));
        Ok(out)
    }
}
