//! Rebuilding metadata from blocks: records what agents found, and turns it into objects.
//!
//! The blocks that were found are kept in a table of their own, by object, so that only one object at a time is in
//! memory. The table is cleared at each start of the coordinator, because every agent then reports its blocks
//! again. A durable mark says that a rebuild is under way, until somebody ends the rebuild.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use kintsu_code::{Definition, USER};
use kintsu_dag::{NodeId, RackId, StripeId};
use kintsu_wire::message::{FaultKind, HeldBlock, Label, ObjectLabel};
use redb::{ReadableTable, ReadableTableMetadata};
use serde::{Deserialize, Serialize};

use super::blocks::byte_of;
use super::history::{LEAP, MOST_ID, NODE_LEAP};
use super::objects::{add_object, drop_object};
use super::record::{self, CodeRecord, NodeRecord, ObjectRecord, StripeRecord};
use super::write::Tables;
use super::{Meta, Snapshot, loose, tables};
use crate::engine::rebuild::{FoundBlock, FoundStripe};
use crate::error::{CoordinatorError, Result};

/// Key, in the table of settings, of the mark that the metadata are being rebuilt.
const REBUILDING: &str = "rebuilding";

/// The row of a stripe of which blocks were found.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct FoundRow {
    label: Bytes,
    blocks: Vec<FoundBlock>,
}

/// The result of noting a page of blocks that the metadata do not know.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Noted {
    /// Blocks that were noted.
    pub blocks: u64,
    /// Blocks without a label that can be believed.
    pub without_label: u64,
    /// Blocks of stripes that are visible by now: they must be compared again.
    pub late: u64,
}

/// An object that is to become visible.
#[derive(Debug, Clone)]
pub struct Shown {
    /// Its description in the labels of its blocks.
    pub object: ObjectLabel,
    /// Its code.
    pub code: CodeRecord,
    /// Its stripes, in order.
    pub stripes: Vec<(StripeId, StripeRecord)>,
}

impl Meta {
    /// Begins to rebuild the metadata from blocks, until [`Meta::end_rebuild`]. If there is no object yet, the
    /// counters of ids are moved beyond all ids that existing blocks may have. Puts under way are forgotten: in an older
    /// copy they may have been committed since, and then their blocks tell of them.
    ///
    /// # Errors
    /// The disk fails.
    pub fn begin_rebuild(&self) -> Result<()> {
        self.write(|t| {
            let begins = t.settings.get(REBUILDING)?.is_none();
            if begins {
                super::puts::forget_all(t)?;
            }
            if begins && t.objects.is_empty()? {
                for (name, leap) in
                    [(tables::COUNT_STRIPE, LEAP), (tables::COUNT_PUT, LEAP), (tables::COUNT_NODE, NODE_LEAP)]
                {
                    let next = t.counter(name)?;
                    t.set_counter(name, next.saturating_add(leap))?;
                }
            }
            t.settings.insert(REBUILDING, [1].as_slice())?;
            Ok(())
        })
    }

    /// Forgets all blocks found until now.
    ///
    /// # Errors
    /// The disk fails.
    pub fn forget_found(&self) -> Result<()> {
        self.note(|t| Ok(t.found.retain(|_, _| false)?))
    }

    /// Forgets the blocks found on one node, which reports them again.
    ///
    /// # Errors
    /// The disk fails.
    pub fn forget_found_on(&self, node: NodeId) -> Result<()> {
        self.note(|t| {
            let mut changed = Vec::new();
            for row in t.found.iter()? {
                let (key, row) = row?;
                let mut row: FoundRow = record::unpack("found stripe", row.value())?;
                let before = row.blocks.len();
                row.blocks.retain(|b| b.node != node);
                if row.blocks.len() < before {
                    changed.push((key.value(), record::pack(&row)));
                }
            }
            for (key, row) in changed {
                t.found.insert(key, row.as_slice())?;
            }
            Ok(())
        })
    }

    /// Ends the rebuild. From now on, blocks that the metadata do not know count as unknown. History that agents
    /// remember and these metadata lack no longer counts as missing. Returns whether there was a rebuild.
    ///
    /// # Errors
    /// The disk fails.
    pub fn end_rebuild(&self) -> Result<bool> {
        self.write(|t| {
            let was = t.settings.remove(REBUILDING)?.is_some();
            if was {
                t.found.retain(|_, _| false)?;
                super::history::accept_upto(t)?;
            }
            Ok(was)
        })
    }

    /// Notes blocks of a node that the metadata do not know, with their labels by stripe. This need not be
    /// durable, because agents report again after every start of the coordinator.
    ///
    /// # Errors
    /// The disk fails.
    pub fn note_found(
        &self,
        node: NodeId,
        blocks: &[HeldBlock],
        labels: &HashMap<StripeId, Bytes>,
    ) -> Result<Noted> {
        self.soon(0, |t| {
            let mut noted = Noted::default();
            let (mut object, mut stripe, mut highest_node) = (0, 0, 0);
            for of_stripe in blocks.chunk_by(|a, b| a.id.stripe == b.id.stripe) {
                let (id, count) = (of_stripe[0].id.stripe, of_stripe.len() as u64);
                if t.stripe(id)?.is_some() {
                    noted.late += count;
                    continue;
                }
                let label = labels.get(&id).and_then(|bytes| Some((bytes, Label::unpack(bytes).ok()?)));
                let last = |label: &Label| label.object.id.saturating_add(label.object.members.len() as u64);
                // Ids beyond that were never given.
                let label = label.filter(|(_, label)| id.0.max(last(label)) <= MOST_ID);
                let Some((bytes, label)) = label else {
                    noted.without_label += count;
                    continue;
                };
                object = object.max(last(&label));
                stripe = stripe.max(id.0);
                let named = label.homes.iter().flatten().filter(|node| !node.is_client());
                highest_node = named.map(|node| u64::from(node.0)).max().unwrap_or(0).max(highest_node);
                let key = (label.object.id, id.0);
                let known = t.found.get(key)?.map(|row| record::unpack("found stripe", row.value()));
                let mut row: FoundRow = known
                    .transpose()?
                    .unwrap_or_else(|| FoundRow { label: bytes.clone(), blocks: Vec::new() });
                row.blocks.retain(|b| b.node != node);
                row.blocks.extend(of_stripe.iter().map(|held| FoundBlock {
                    index: held.id.index,
                    node,
                    generation: held.generation,
                    len: held.len,
                    digest: held.digest,
                }));
                t.found.insert(key, record::pack(&row).as_slice())?;
                noted.blocks += count;
            }
            beyond(t, tables::COUNT_PUT, object, LEAP)?;
            beyond(t, tables::COUNT_STRIPE, stripe, LEAP)?;
            beyond(t, tables::COUNT_NODE, highest_node, 0)?;
            Ok(noted)
        })
    }

    /// Forgets the found blocks of objects that were settled in another way.
    ///
    /// # Errors
    /// The disk fails.
    pub fn drop_found(&self, objects: &[u64]) -> Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        self.note(|t| objects.iter().try_for_each(|id| forget(t, *id)))
    }

    /// Removes the visible objects whose ids are in these ranges, because an agent remembers that they are gone.
    /// Returns their names.
    ///
    /// # Errors
    /// The disk fails.
    pub fn drop_buried(&self, ranges: &[(u64, u64)]) -> Result<Vec<String>> {
        let snapshot = self.snapshot()?;
        let names = snapshot.txn.open_table(tables::NAMES)?;
        let mut buried = Vec::new();
        for &(first, last) in ranges {
            for row in names.range(first..=last)? {
                let (id, name) = row?;
                buried.push((id.value(), name.value().to_owned()));
            }
        }
        for (id, name) in &buried {
            self.write(|t| match t.object(name)? {
                Some(object) if object.id == *id => drop_object(t, name, &object),
                _ => Ok(()),
            })?;
        }
        Ok(buried.into_iter().map(|(_, name)| name).collect())
    }

    /// Makes an object that was found visible. It replaces an older object of the same name, whose blocks become
    /// garbage. Unknown nodes that should hold blocks of it are recorded and returned. Returns `None` if the
    /// object is known already (its found blocks are then forgotten), or if a newer object has its name. Durable
    /// after [`Meta::settle`].
    ///
    /// # Errors
    /// The disk fails; another code has the name of the object's code; another object has one of its stripes.
    pub fn show_found(&self, shown: Shown, now: u64) -> Result<Option<BTreeMap<NodeId, NodeRecord>>> {
        self.soon(1, |t| {
            let Shown { object, code, stripes } = shown;
            if t.names.get(object.id)?.is_some() || t.put(object.id)?.is_some() {
                forget(t, object.id)?;
                return Ok(None);
            }
            if let Some(old) = t.object(&object.name)? {
                if old.id >= object.id {
                    return Ok(None);
                }
                drop_object(t, &object.name, &old)?;
            }
            let key = found_code(t, &code, object.code.definition.as_ref())?;
            let size = stripes.iter().map(|(_, stripe)| stripe.layout.data_bytes).sum();
            let (runs, encoded, ghosts) = place(t, &object.name, key, stripes)?;
            forget(t, object.id)?;
            let ObjectLabel { id, name, created, encoding, attributes, .. } = object;
            let created = created.min(now);
            // Labels are written with the first blocks, before the checksum is known.
            let checksum = None;
            let (code, packed) = (key, None);
            let row = ObjectRecord {
                id,
                size,
                code,
                encoding,
                encoded,
                created,
                runs,
                checksum,
                attributes,
                packed,
            };
            add_object(t, &name, &row)?;
            loose::note(t, &name, &row)?;
            Ok(Some(ghosts))
        })
    }
}

impl Snapshot {
    /// Whether the metadata are being rebuilt.
    ///
    /// # Errors
    /// The disk fails.
    pub fn rebuilding(&self) -> Result<bool> {
        Ok(self.txn.open_table(tables::SETTINGS)?.get(REBUILDING)?.is_some())
    }

    /// The objects of which blocks were found, newest first.
    ///
    /// # Errors
    /// The disk fails.
    pub fn found_objects(&self) -> Result<Vec<u64>> {
        let table = self.txn.open_table(tables::FOUND)?;
        let (mut out, mut before) = (Vec::new(), u64::MAX);
        while let Some(row) = table.range(..(before, 0))?.next_back().transpose()? {
            before = row.0.value().0;
            out.push(before);
        }
        Ok(out)
    }

    /// What was found of an object: its description in the labels, and its stripes. Stripes whose labels
    /// contradict the first label are left out.
    ///
    /// # Errors
    /// The disk fails.
    pub fn found(&self, object: u64) -> Result<Option<(ObjectLabel, Vec<FoundStripe>)>> {
        let table = self.txn.open_table(tables::FOUND)?;
        let (mut first, mut stripes): (Option<ObjectLabel>, Vec<FoundStripe>) = (None, Vec::new());
        for row in table.range((object, 0)..=(object, u64::MAX))? {
            let (key, row) = row?;
            let row: FoundRow = record::unpack("found stripe", row.value())?;
            let Ok(label) = Label::unpack(&row.label) else { continue };
            let Label { object: told, offset, layout, homes, .. } = label;
            let same = first.get_or_insert_with(|| told.clone());
            let agrees = (&same.name, same.encoding) == (&told.name, told.encoding)
                && (&same.code.name, same.code.generator) == (&told.code.name, told.code.generator)
                && (same.size.is_none() || told.size.is_none() || same.size == told.size);
            if agrees {
                // Of the stripes of a stream, only the last one tells its size.
                same.size = same.size.or(told.size);
            }
            if agrees && !row.blocks.is_empty() {
                let id = StripeId(key.value().1);
                stripes.push(FoundStripe { id, offset, layout, homes, blocks: row.blocks });
            }
        }
        Ok(first.map(|first| (first, stripes)))
    }

    /// The id of the visible object of this name.
    ///
    /// # Errors
    /// The disk fails.
    pub fn object_id(&self, name: &str) -> Result<Option<u64>> {
        let table = self.txn.open_table(tables::OBJECTS)?;
        let row = table.get(name)?;
        row.map(|row| record::unpack::<ObjectRecord>("object", row.value()).map(|o| o.id)).transpose()
    }
}

/// What became of stripes that were found: their ids as runs, how many have their parity, and unknown nodes that should hold
/// blocks of them.
pub(super) type PlacedStripes = (Vec<(u64, u64)>, u64, BTreeMap<NodeId, NodeRecord>);

/// Makes stripes that were found visible.
pub(super) fn place(
    t: &mut Tables<'_>,
    what: &str,
    code: u16,
    stripes: Vec<(StripeId, StripeRecord)>,
) -> Result<PlacedStripes> {
    let (mut runs, mut encoded, mut ghosts) = (Vec::new(), 0, BTreeMap::new());
    for (id, mut stripe) in stripes {
        if t.stripe(id)?.is_some() || t.is_pending(id)? {
            return Err(CoordinatorError::Conflict {
                what: format!("showing {what:?}"),
                expected: "stripes that no other object has".into(),
                got: id.to_string(),
            });
        }
        stripe.code = code;
        encoded += u64::from(stripe.encoded);
        settle_all(t, id, &mut stripe)?;
        for (_, block) in stripe.made() {
            if t.node(block.node)?.is_none() {
                let ghost = NodeRecord::unheard();
                t.set_node(block.node, &ghost)?;
                ghosts.insert(block.node, ghost);
            }
        }
        t.set_stripe(id, &stripe)?;
        record::push_id(&mut runs, id);
    }
    Ok((runs, encoded, ghosts))
}

/// Gives the blocks of a stripe their homes, and flags those that were not found.
fn settle_all(t: &mut Tables<'_>, id: StripeId, stripe: &mut StripeRecord) -> Result<()> {
    for (i, block) in stripe.blocks.iter_mut().enumerate() {
        let index = kintsu_dag::BlockIndex(i as u8);
        let Some(block) = block.as_mut().filter(|b| b.digest.is_some()) else { continue };
        t.settle(id, index, block.generation, block.node)?;
        if std::mem::replace(&mut block.lost, false) {
            t.flag(id, index, block, Some(byte_of(FaultKind::Missing)))?;
        }
    }
    Ok(())
}

/// The key of a code that a label names; a registered code is recorded again with its definition.
pub(super) fn found_code(
    t: &mut Tables<'_>,
    code: &CodeRecord,
    definition: Option<&Definition>,
) -> Result<u16> {
    let known = t.code_keys.get(code.name.as_str())?.map(|key| key.value());
    match (known, definition) {
        (None, Some(definition)) if code.name.starts_with(USER) => {
            let key = t.add_code(code)?;
            t.definitions.insert(key, record::pack(definition).as_slice())?;
            Ok(key)
        }
        _ => t.code_key(code),
    }
}

pub(super) fn forget(t: &mut Tables<'_>, object: u64) -> Result<()> {
    Ok(t.found.retain_in((object, 0)..=(object, u64::MAX), |_, _| false)?)
}

/// Moves a counter beyond an id that was found.
fn beyond(t: &mut Tables<'_>, name: &str, found: u64, leap: u64) -> Result<()> {
    if found > 0 && t.counter(name)? <= found {
        t.set_counter(name, found.saturating_add(leap).saturating_add(1))?;
    }
    Ok(())
}

impl NodeRecord {
    /// The record of a node that is known only from labels.
    pub fn unheard() -> Self {
        let nowhere = std::net::SocketAddr::from(([0, 0, 0, 0], 0));
        Self::new(RackId(0), nowhere, nowhere, String::new(), 0)
    }

    /// Whether the node is known only from labels.
    pub fn is_unheard(&self) -> bool {
        self.folder.is_none() && self.dir.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::enroll::Range;
    use crate::meta::tests::open;
    use kintsu_dag::{BlockId, BlockIndex};
    use kintsu_plan::{DIGEST_UNKNOWN, Layout, LayoutKind};
    use kintsu_wire::ClusterId;
    use kintsu_wire::message::{CodeLabel, Encoding};

    const LAYOUT: Layout =
        Layout { kind: LayoutKind::Striped, block_bytes: 8, cell_bytes: 8, w: 1, data_bytes: 16 };

    fn held(stripe: u64, index: u8) -> HeldBlock {
        let id = BlockId { stripe: StripeId(stripe), index: BlockIndex(index) };
        HeldBlock { id, generation: 1, len: 8, digest: [index + 1; 16] }
    }

    /// The label of the blocks of an object with one stripe of rs:n=4,k=2.
    fn labels(object: u64, stripe: u64, name: &str) -> HashMap<StripeId, Bytes> {
        let code = kintsu_code::parse("rs:n=4,k=2").unwrap();
        let object = ObjectLabel {
            id: object,
            name: name.into(),
            size: Some(16),
            created: 5,
            encoding: Encoding::Online,
            code: CodeLabel::of(code.as_ref(), None),
            attributes: Default::default(),
            members: Vec::new(),
        };
        let homes = (0..4).map(|i| Some(NodeId(i))).collect();
        let label = Label { cluster: ClusterId([1; 16]), object, offset: 0, layout: LAYOUT, homes };
        HashMap::from([(StripeId(stripe), Bytes::from(label.pack()))])
    }

    /// Notes blocks 0 and 1 of such an object; blocks 2 and 3 are not found.
    fn find(meta: &Meta, id: u64, stripe: u64, name: &str) -> Shown {
        let code = kintsu_code::parse("rs:n=4,k=2").unwrap();
        let labels = labels(id, stripe, name);
        for index in [0, 1] {
            let noted = meta.note_found(NodeId(index.into()), &[held(stripe, index)], &labels).unwrap();
            assert_eq!(noted, Noted { blocks: 1, ..Noted::default() });
        }
        let (object, stripes) = meta.snapshot().unwrap().found(id).unwrap().unwrap();
        assert_eq!((object.id, &*object.name, stripes[0].blocks.len()), (id, name, 2));
        let nodes = Default::default();
        let wanted = crate::engine::rebuild::Wanted {
            id: object.id,
            size: 16,
            encoding: Encoding::Online,
            code: code.as_ref(),
            key: 0,
            nodes: &nodes,
        };
        let stripes = crate::engine::rebuild::assemble(wanted, &stripes).unwrap();
        Shown { object, code: CodeRecord::of(code.as_ref()), stripes }
    }

    #[test]
    fn of_two_objects_of_a_name_the_newer_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        meta.begin_rebuild().unwrap();
        let (old, new) = (find(&meta, 10, 100, "a"), find(&meta, 11, 101, "a"));
        assert_eq!(meta.snapshot().unwrap().found_objects().unwrap(), [11, 10]);
        assert!(meta.show_found(old.clone(), 9).unwrap().is_some());
        let ghosts = meta.show_found(new, 9).unwrap().unwrap();
        assert!(ghosts.is_empty(), "the first object has recorded these nodes");
        assert_eq!(meta.show_found(old, 9).unwrap(), None);
        let snapshot = meta.snapshot().unwrap();
        let object = snapshot.object("a").unwrap();
        assert_eq!((object.id, object.created, object.ids(0, 9)[0].1), (11, 5, StripeId(101)));
        let totals = snapshot.totals().unwrap();
        assert_eq!(
            (totals.objects, totals.object_bytes, totals.stripes, totals.lost, totals.garbage),
            (1, 16, 1, 2, 4)
        );
        assert_eq!(snapshot.nodes().unwrap().len(), 4);
        assert!(snapshot.nodes().unwrap()[&NodeId(3)].is_unheard());
        assert!(snapshot.next_stripe().unwrap() >= LEAP);
        assert_eq!(meta.drop_buried(&[(0, 10)]).unwrap(), Vec::<String>::new());
        assert_eq!(meta.drop_buried(&[(11, 11)]).unwrap(), ["a"]);
        assert!(meta.snapshot().unwrap().object("a").is_err());
    }

    #[test]
    fn a_block_that_comes_later_takes_its_place_whatever_its_digest() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        meta.begin_rebuild().unwrap();
        let shown = find(&meta, 10, 100, "a");
        meta.show_found(shown, 9).unwrap();
        let come = |node: u32, blocks: &[HeldBlock]| {
            let (range, none) = (Range::default(), Default::default());
            let comparison = meta.snapshot().unwrap().compare(NodeId(node), range, blocks, &none).unwrap();
            meta.reconcile(NodeId(node), range, &comparison, blocks, &Default::default(), None).unwrap()
        };
        let block = |index: u8| {
            meta.snapshot().unwrap().stripe(StripeId(100)).unwrap().unwrap().blocks[usize::from(index)]
                .unwrap()
        };
        assert_eq!((block(2).lost, block(2).digest), (true, Some(DIGEST_UNKNOWN)));
        // A block of the wrong length is not accepted.
        come(2, &[HeldBlock { len: 7, ..held(100, 2) }]);
        assert!(block(2).lost);
        // Node 2 holds block 3 now: block 2, whose place is unknown, gets another guessed home.
        assert_eq!(come(2, &[held(100, 3)]), (Vec::new(), Vec::new()));
        assert_eq!((block(3).node, block(3).lost, block(3).digest), (NodeId(2), false, Some([4; 16])));
        assert_eq!((block(2).node, block(2).lost), (NodeId(3), true));
        assert_eq!(come(3, &[held(100, 2)]), (Vec::new(), Vec::new()));
        assert_eq!((block(2).node, block(2).lost, block(2).digest), (NodeId(3), false, Some([3; 16])));
        let snapshot = meta.snapshot().unwrap();
        assert_eq!(snapshot.totals().unwrap().lost, 0);
        let tallies = snapshot.tallies().unwrap();
        assert!((0..4).all(|node| tallies[&NodeId(node)] == (1, 0)), "{tallies:?}");
        assert!(meta.end_rebuild().unwrap() && !meta.end_rebuild().unwrap());
    }

    #[test]
    fn what_a_node_tells_anew_replaces_what_it_told() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        meta.begin_rebuild().unwrap();
        find(&meta, 10, 100, "a");
        meta.forget_found_on(NodeId(1)).unwrap();
        let found = || meta.snapshot().unwrap().found(10).unwrap().unwrap().1;
        assert_eq!(found()[0].blocks.iter().map(|b| b.node).collect::<Vec<_>>(), [NodeId(0)]);
        let none = meta.note_found(NodeId(2), &[held(300, 0)], &HashMap::new()).unwrap();
        assert_eq!(none, Noted { without_label: 1, ..Noted::default() });
        meta.forget_found().unwrap();
        assert!(meta.snapshot().unwrap().found_objects().unwrap().is_empty());
    }

    #[test]
    fn labels_with_ids_that_are_never_given_move_no_counter() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        meta.begin_rebuild().unwrap();
        let next = || meta.snapshot().unwrap().next_stripe().unwrap();
        let before = next();
        for (object, stripe) in [(10, u64::MAX), (u64::MAX, 100)] {
            let noted = meta.note_found(NodeId(0), &[held(stripe, 0)], &labels(object, stripe, "a")).unwrap();
            assert_eq!((noted, next()), (Noted { without_label: 1, ..Noted::default() }, before));
        }
        meta.write(|t| t.next(tables::COUNT_PUT, 1)).unwrap();
    }

    #[test]
    fn what_is_shown_but_not_durable_yet_is_no_history_for_anybody() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        meta.begin_rebuild().unwrap();
        let shown = find(&meta, 10, 100, "a");
        let told = meta.history();
        meta.show_found(shown, 9).unwrap().unwrap();
        assert_eq!(meta.history(), told, "a crash now must not leave agents ahead of the metadata");
        meta.settle().unwrap();
        assert_eq!(meta.history(), told + 1);
        for stripe in 200..200 + crate::meta::MOST_UNSETTLED {
            find(&meta, stripe, stripe, "b");
        }
        assert!(meta.unsettled.load(std::sync::atomic::Ordering::Relaxed) < crate::meta::MOST_UNSETTLED);
    }
}
