//! All tables, open for one transaction, and the few functions that keep their rows consistent.

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use redb::{ReadableTable, Table, WriteTransaction};

use super::record::{
    self, BlockRecord, CodeRecord, NodeRecord, ObjectRecord, PackRecord, PendingPut, PendingStripe,
    StripeRecord,
};
use super::tables::*;
use crate::error::{CoordinatorError, Result};

/// The tables within a transaction.
pub struct Tables<'t> {
    pub objects: Table<'t, &'static str, &'static [u8]>,
    pub names: Table<'t, u64, &'static str>,
    pub packs: Table<'t, u64, &'static [u8]>,
    pub loose: Table<'t, u64, ()>,
    pub stripes: Table<'t, u64, &'static [u8]>,
    pub by_node: Table<'t, (u32, u64), u8>,
    pub lost: Table<'t, (u64, u8), u8>,
    pub puts: Table<'t, u64, &'static [u8]>,
    pub put_stripes: Table<'t, u64, &'static [u8]>,
    pub garbage: Table<'t, (u32, u64, u8, u32), ()>,
    pub tombstones: Table<'t, u64, u64>,
    pub nodes: Table<'t, u32, &'static [u8]>,
    pub tally: Table<'t, u32, (u64, u64)>,
    pub codes: Table<'t, u16, &'static [u8]>,
    pub code_keys: Table<'t, &'static str, u16>,
    pub definitions: Table<'t, u16, &'static [u8]>,
    pub settings: Table<'t, &'static str, &'static [u8]>,
    pub boots: Table<'t, u64, (u64, u64)>,
    pub found: Table<'t, (u64, u64), &'static [u8]>,
    pub volumes: Table<'t, &'static str, &'static [u8]>,
    pub volume_names: Table<'t, u64, &'static str>,
    pub volume_stripes: Table<'t, (u64, u64), &'static [u8]>,
    pub dropped: Table<'t, u64, ()>,
    pub counters: Table<'t, &'static str, u64>,
}

impl<'t> Tables<'t> {
    pub fn open(txn: &'t WriteTransaction) -> Result<Self> {
        Ok(Self {
            objects: txn.open_table(OBJECTS)?,
            names: txn.open_table(NAMES)?,
            packs: txn.open_table(PACKS)?,
            loose: txn.open_table(LOOSE)?,
            stripes: txn.open_table(STRIPES)?,
            by_node: txn.open_table(BY_NODE)?,
            lost: txn.open_table(LOST)?,
            puts: txn.open_table(PUTS)?,
            put_stripes: txn.open_table(PUT_STRIPES)?,
            garbage: txn.open_table(GARBAGE)?,
            tombstones: txn.open_table(TOMBSTONES)?,
            nodes: txn.open_table(NODES)?,
            tally: txn.open_table(TALLY)?,
            codes: txn.open_table(CODES)?,
            code_keys: txn.open_table(CODE_KEYS)?,
            definitions: txn.open_table(DEFINITIONS)?,
            settings: txn.open_table(SETTINGS)?,
            boots: txn.open_table(BOOTS)?,
            found: txn.open_table(FOUND)?,
            volumes: txn.open_table(VOLUMES)?,
            volume_names: txn.open_table(VOLUME_NAMES)?,
            volume_stripes: txn.open_table(VOLUME_STRIPES)?,
            dropped: txn.open_table(DROPPED)?,
            counters: txn.open_table(COUNTERS)?,
        })
    }

    pub fn counter(&self, name: &str) -> Result<u64> {
        Ok(self.counters.get(name)?.map_or(0, |v| v.value()))
    }

    pub fn set_counter(&mut self, name: &str, value: u64) -> Result<()> {
        self.counters.insert(name, value)?;
        Ok(())
    }

    /// Takes `count` numbers from a counter and returns the first; they begin at 1.
    ///
    /// # Errors
    /// There are no more numbers; the disk fails.
    pub fn next(&mut self, name: &str, count: u64) -> Result<u64> {
        let first = self.counter(name)?.max(1);
        let next = first.checked_add(count).ok_or_else(|| CoordinatorError::Corrupt {
            what: format!("counter {name:?}"),
            expected: format!("{count} more numbers"),
            got: format!("{first}, and none beyond {}", u64::MAX),
        })?;
        self.set_counter(name, next)?;
        Ok(first)
    }

    pub fn object(&self, name: &str) -> Result<Option<ObjectRecord>> {
        self.objects.get(name)?.map(|row| record::unpack("object", row.value())).transpose()
    }

    pub fn set_object(&mut self, name: &str, object: &ObjectRecord) -> Result<()> {
        self.objects.insert(name, record::pack(object).as_slice())?;
        Ok(())
    }

    pub fn pack(&self, id: u64) -> Result<Option<PackRecord>> {
        self.packs.get(id)?.map(|row| record::unpack("pack", row.value())).transpose()
    }

    pub fn set_pack(&mut self, id: u64, pack: &PackRecord) -> Result<()> {
        self.packs.insert(id, record::pack(pack).as_slice())?;
        Ok(())
    }

    pub fn stripe(&self, id: StripeId) -> Result<Option<StripeRecord>> {
        self.stripes.get(id.0)?.map(|row| StripeRecord::unpack(row.value())).transpose()
    }

    pub fn set_stripe(&mut self, id: StripeId, stripe: &StripeRecord) -> Result<()> {
        self.stripes.insert(id.0, stripe.pack().as_slice())?;
        Ok(())
    }

    pub fn put(&self, id: u64) -> Result<Option<PendingPut>> {
        self.puts.get(id)?.map(|row| record::unpack("pending put", row.value())).transpose()
    }

    pub fn set_put(&mut self, id: u64, put: &PendingPut) -> Result<()> {
        self.puts.insert(id, record::pack(put).as_slice())?;
        Ok(())
    }

    pub fn pending(&self, id: StripeId) -> Result<Option<PendingStripe>> {
        self.put_stripes.get(id.0)?.map(|row| record::unpack("stripe of a put", row.value())).transpose()
    }

    pub fn set_pending(&mut self, stripe: &PendingStripe) -> Result<()> {
        self.put_stripes.insert(stripe.id.0, record::pack(stripe).as_slice())?;
        Ok(())
    }

    /// Whether a stripe belongs to a put under way.
    pub fn is_pending(&self, id: StripeId) -> Result<bool> {
        Ok(self.put_stripes.get(id.0)?.is_some())
    }

    pub fn node(&self, id: NodeId) -> Result<Option<NodeRecord>> {
        self.nodes.get(id.0)?.map(|row| record::unpack("node", row.value())).transpose()
    }

    pub fn set_node(&mut self, id: NodeId, node: &NodeRecord) -> Result<()> {
        self.nodes.insert(id.0, record::pack(node).as_slice())?;
        Ok(())
    }

    pub fn code(&self, key: u16) -> Result<CodeRecord> {
        code_of(self.codes.get(key)?.as_ref().map(|r| r.value()), key)
    }

    /// Records the home of a block that exists.
    pub fn settle(&mut self, id: StripeId, index: BlockIndex, generation: u32, node: NodeId) -> Result<()> {
        let taken = self.by_node.insert((node.0, id.0), index.0)?.map(|old| old.value());
        if let Some(other) = taken {
            return Err(CoordinatorError::Conflict {
                what: format!("{id}.{index} on {node}"),
                expected: "a node without a block of the same stripe".into(),
                got: format!("one that holds {}", BlockIndex(other)),
            });
        }
        self.garbage.remove((node.0, id.0, index.0, generation))?;
        self.count(node, 1, 0)
    }

    /// Removes the home of a block: the file there becomes garbage.
    pub fn unsettle(&mut self, id: StripeId, index: BlockIndex, generation: u32, node: NodeId) -> Result<()> {
        if self.by_node.remove((node.0, id.0))?.is_some() {
            self.count(node, -1, 0)?;
        }
        self.trash(id, index, generation, node)
    }

    pub fn trash(&mut self, id: StripeId, index: BlockIndex, generation: u32, node: NodeId) -> Result<()> {
        self.garbage.insert((node.0, id.0, index.0, generation), ())?;
        Ok(())
    }

    /// Flags a block lost, or found again; the caller stores the stripe.
    pub fn flag(
        &mut self,
        id: StripeId,
        index: BlockIndex,
        block: &mut BlockRecord,
        lost: Option<u8>,
    ) -> Result<()> {
        if block.lost != lost.is_some() {
            self.count(block.node, 0, if lost.is_some() { 1 } else { -1 })?;
            block.lost = lost.is_some();
        }
        match lost {
            Some(why) => self.lost.insert((id.0, index.0), why)?,
            None => self.lost.remove((id.0, index.0))?,
        };
        Ok(())
    }

    /// Forgets a stripe; its blocks become garbage.
    pub fn drop_stripe(&mut self, id: StripeId) -> Result<()> {
        let Some(mut stripe) = self.stripe(id)? else { return Ok(()) };
        for (i, block) in stripe.blocks.iter_mut().enumerate() {
            let index = BlockIndex(i as u8);
            if let Some(block) = block.as_mut().filter(|b| b.digest.is_some()) {
                self.flag(id, index, block, None)?;
                self.unsettle(id, index, block.generation, block.node)?;
            }
        }
        self.stripes.remove(id.0)?;
        Ok(())
    }

    fn count(&mut self, node: NodeId, placed: i64, lost: i64) -> Result<()> {
        let (p, l) = self.tally.get(node.0)?.map_or((0, 0), |v| v.value());
        self.tally.insert(node.0, (p.saturating_add_signed(placed), l.saturating_add_signed(lost)))?;
        Ok(())
    }
}

/// A row of the table of codes.
pub fn code_of(row: Option<&[u8]>, key: u16) -> Result<CodeRecord> {
    let row = row.ok_or_else(|| CoordinatorError::Corrupt {
        what: format!("code {key}"),
        expected: "a row for every code in use".into(),
        got: "none".into(),
    })?;
    record::unpack("code", row)
}
