//! Loose stripes: those of small objects that waste most of what a stripe costs. They have rows in a table of their own, so that
//! nobody searches for them.
//!
//! A stripe is loose if it holds one small object or a pack, and if either most of its bytes are of objects that are gone, or few
//! objects are left that take little of what a pack may have. Several loose stripes can be copied into one pack: `moves.rs`.
//!
//! Invariants: a row names what exists, a put of one object or a pack; what may be joined with others later, and what was joined,
//! has no row. Older metadata do not tell what was joined, so small objects of one stripe in them have rows too.

use std::collections::HashMap;

use kintsu_dag::StripeId;
use kintsu_wire::message::{
    Encoding, FindLoose, LooseMember, LooseStripe, LooseStripes, SMALL_BYTES, pack_bytes,
};
use redb::ReadableTable;

use super::record::{self, ObjectRecord, PackRecord, StripeRecord};
use super::write::Tables;
use super::{Snapshot, tables, volumes};
use crate::engine::put::PARTS;
use crate::error::Result;

/// Fewer objects than this are few.
const FEW: u32 = 16;

/// Bytes are little if they are at most this part of what a pack may have.
const LITTLE: u64 = 4;

/// Most objects in one answer; the last stripe may bring more.
const MOST_MEMBERS: usize = 4096;

/// Whether a stripe with so many small objects of so many bytes is loose.
fn is_thin(count: u32, bytes: u64, block_bytes: u64) -> bool {
    count < FEW && bytes.saturating_mul(LITTLE) <= pack_bytes(block_bytes)
}

/// Whether an object may move into a pack, as far as its row tells: it has one stripe with its parity, and is small.
pub(super) fn may_move(name: &str, object: &ObjectRecord) -> bool {
    let whole = object.encoding == Encoding::Online && object.encoded == 1 && object.stripes() == 1;
    let of_users = !name.starts_with(volumes::RESERVED) && !name.starts_with(PARTS);
    whole && of_users && (1..=SMALL_BYTES).contains(&object.size)
}

/// An object has appeared in a stripe of its own: notes if that is loose.
pub(super) fn note(t: &mut Tables<'_>, name: &str, object: &ObjectRecord) -> Result<()> {
    let Some((_, stripe)) = object.ids(0, 1).first().copied().filter(|_| may_move(name, object)) else {
        return Ok(());
    };
    let Some(stripe) = t.stripe(stripe)? else { return Ok(()) };
    if is_thin(1, object.size, stripe.layout.block_bytes) {
        t.loose.insert(object.id, ())?;
    }
    Ok(())
}

/// Members of a pack have come or gone: notes whether its stripe is loose.
pub(super) fn note_pack(t: &mut Tables<'_>, id: u64, pack: &PackRecord) -> Result<()> {
    let gone = pack.size.saturating_sub(pack.live);
    let loose = gone > pack.live
        || pack.left < FEW
            && t.stripe(pack.stripe)?
                .is_some_and(|stripe| is_thin(pack.left, pack.live, stripe.layout.block_bytes));
    if loose {
        t.loose.insert(id, ())?;
    } else {
        t.loose.remove(id)?;
    }
    Ok(())
}

/// Notes the loose stripes of metadata that did not, and how many bytes of packs are there.
pub(super) fn take_over(t: &mut Tables<'_>) -> Result<()> {
    let mut live: HashMap<u64, u64> = HashMap::new();
    for row in t.objects.iter()? {
        let (name, row) = row?;
        let object: ObjectRecord = record::unpack("object", row.value())?;
        if let Some(packed) = object.packed {
            *live.entry(packed.pack).or_default() += object.size;
        } else if may_move(name.value(), &object)
            && let Some((_, id)) = object.ids(0, 1).first()
            && let Some(stripe) = t.stripes.get(id.0)?
            && is_thin(1, object.size, StripeRecord::unpack(stripe.value())?.layout.block_bytes)
        {
            t.loose.insert(object.id, ())?;
        }
    }
    for (id, live) in live {
        if let Some(pack) = t.pack(id)? {
            let pack = PackRecord { live, ..pack };
            t.set_pack(id, &pack)?;
            note_pack(t, id, &pack)?;
        }
    }
    Ok(())
}

impl Snapshot {
    /// A page of the loose stripes, `now` seconds after 1970. A few lookups for each object in it.
    ///
    /// # Errors
    /// The disk fails; the metadata contradict themselves.
    pub fn loose(&self, find: &FindLoose, now: u64) -> Result<LooseStripes> {
        let (table, packs) = (self.txn.open_table(tables::LOOSE)?, self.txn.open_table(tables::PACKS)?);
        let youngest = now.saturating_sub(find.older_than_s);
        let (mut page, mut members) = (LooseStripes { stripes: Vec::new(), next: None }, 0);
        for (i, row) in table.range(find.after.saturating_add(1)..)?.enumerate() {
            let id = row?.0.value();
            if i == find.limit as usize || members >= MOST_MEMBERS {
                return Ok(page);
            }
            page.next = Some(id);
            let pack = packs.get(id)?.map(|row| record::unpack::<PackRecord>("pack", row.value()));
            let (created, stripe, size, objects) = match pack.transpose()? {
                Some(pack) => (pack.created, pack.stripe, pack.size, self.members(id, &pack)?),
                None => {
                    let Some(name) = self.name(id)? else { continue };
                    let object = self.object(&name)?;
                    let Some((_, stripe)) = object.ids(0, 1).first().copied() else { continue };
                    (object.created, stripe, object.size, vec![(name, object)])
                }
            };
            if created <= youngest
                && let Some(stripe) = self.loose_stripe(stripe, size, &objects)?
            {
                members += stripe.members.len();
                page.stripes.push(stripe);
            }
        }
        page.next = None;
        Ok(page)
    }

    fn loose_stripe(
        &self,
        id: StripeId,
        size: u64,
        objects: &[(String, ObjectRecord)],
    ) -> Result<Option<LooseStripe>> {
        let Some(stripe) = self.stripe(id)? else { return Ok(None) };
        // One that cannot move keeps the stripe, so the others would move in vain.
        if !objects.iter().all(|(name, object)| may_move(name, object)) {
            return Ok(None);
        }
        let member = |(name, object): &(String, ObjectRecord)| {
            let said = object.attributes.clone().for_label();
            let user = said.user.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>();
            let said = name.len() + said.content_type.map_or(0, |kind| kind.len()) + user;
            LooseMember { id: object.id, size: object.size, said: said as u32 }
        };
        Ok(Some(LooseStripe {
            stripe: id,
            code: self.code(stripe.code)?.name,
            block_bytes: stripe.layout.block_bytes,
            cell_bytes: stripe.layout.cell_bytes,
            size,
            members: objects.iter().map(member).collect(),
        }))
    }
}
