//! Small objects move into packs: their bytes were copied there, and the commit of the pack points their rows to the copy.
//!
//! Nothing of an object changes but the place of its bytes: not its id, name, attributes, checksum or time. It moves only out of
//! the stripe that was read, and only out of a loose one (`loose.rs`), so of several who copy it one moves it. The stripe
//! that it leaves goes with its last object, in the same transaction. An object that moves gets no tombstone, because its id stays.

use kintsu_dag::StripeId;
use kintsu_wire::message::{MemberEnd, MemberReply, Moving, NewMember};
use redb::ReadableTable;

use super::loose::may_move;
use super::objects::info;
use super::packs::{no_row, refusal, release};
use super::puts::invalid;
use super::record::{ObjectRecord, PackRecord, Packed};
use super::write::Tables;
use super::{Snapshot, tables};
use crate::error::{CoordinatorError, Result};

/// What owns the stripe of an object.
fn owner(object: &ObjectRecord) -> u64 {
    object.packed.map_or(object.id, |packed| packed.pack)
}

/// Whether an object may leave this stripe: it has all of its bytes, and is loose.
fn may_leave(
    loose: &impl ReadableTable<u64, ()>,
    stripe: StripeId,
    name: &str,
    object: &ObjectRecord,
) -> Result<bool> {
    let is_there = object.runs == [(stripe.0, 1)] && may_move(name, object);
    Ok(is_there && loose.get(owner(object))?.is_some())
}

fn gone(id: u64) -> CoordinatorError {
    CoordinatorError::NotFound { what: "object", name: id.to_string() }
}

fn elsewhere(name: &str, stripe: StripeId) -> CoordinatorError {
    CoordinatorError::Conflict {
        what: format!("moving {name:?}"),
        expected: format!("a small object in {stripe}, which is loose"),
        got: "one that cannot move, or is elsewhere by now".into(),
    }
}

impl Snapshot {
    /// Objects that are to move, with what the labels of the pack say of them.
    ///
    /// # Errors
    /// One is not there, cannot move, or has another size or code.
    pub fn moving(&self, members: Vec<NewMember>, code: &str) -> Result<Vec<NewMember>> {
        let loose = self.txn.open_table(tables::LOOSE)?;
        let fill = |member: NewMember| {
            let Some(moved) = member.moves else {
                return Err(invalid("pack", "objects that all move".into(), "a new one among them".into()));
            };
            let name = self.name(moved.id)?.ok_or_else(|| gone(moved.id))?;
            let object = self.object(&name)?;
            if !may_leave(&loose, moved.stripe, &name, &object)? {
                return Err(elsewhere(&name, moved.stripe));
            }
            let has = self.code(object.code)?.name;
            if (object.size, has.as_str()) != (member.size, code) {
                let expected = format!("{} bytes of {has}", object.size);
                return Err(invalid("moved object", expected, format!("{} bytes of {code}", member.size)));
            }
            let moves = Some(Moving { created: object.created, ..moved });
            Ok(NewMember { name, attributes: object.attributes.for_label(), moves, ..member })
        };
        members.into_iter().map(fill).collect()
    }
}

/// Moves an object to its place in a new pack, if it is still where it was read.
pub(super) fn move_in(
    t: &mut Tables<'_>,
    packed: Packed,
    new: &NewMember,
    moved: Moving,
    end: &MemberEnd,
) -> Result<MemberReply> {
    let Some(name) = t.names.get(moved.id)?.map(|name| name.value().to_owned()) else {
        return Ok(refusal(gone(moved.id)));
    };
    let object = t.object(&name)?.ok_or_else(|| gone(moved.id))?;
    let code = t.pack(packed.pack)?.ok_or_else(|| no_row(packed.pack))?.code;
    let same = (object.id, object.size, object.code) == (moved.id, new.size, code);
    if !same || !may_leave(&t.loose, moved.stripe, &name, &object)? {
        return Ok(refusal(elsewhere(&name, moved.stripe)));
    }
    if let (Some(expected), Some(got)) = (object.checksum, end.checksum)
        && expected != got
    {
        let (what, expected, got) = (format!("copy of {name:?}"), expected.to_string(), got.to_string());
        return Ok(refusal(CoordinatorError::Corrupt { what, expected, got }));
    }
    let object = place(t, &name, object, packed)?;
    let code = t.code(object.code)?;
    Ok(MemberReply::Visible(info(&name, &object, &code.name)))
}

/// Points the row of an object to its copy in a pack; what it leaves goes with its last object.
pub(super) fn place(
    t: &mut Tables<'_>,
    name: &str,
    object: ObjectRecord,
    packed: Packed,
) -> Result<ObjectRecord> {
    match object.packed {
        Some(old) => release(t, old.pack, object.size, None)?,
        None => {
            t.loose.remove(object.id)?;
            object.ids(0, u64::MAX).into_iter().try_for_each(|(_, stripe)| t.drop_stripe(stripe))?;
        }
    }
    let pack = t.pack(packed.pack)?.ok_or_else(|| no_row(packed.pack))?;
    let object = ObjectRecord { runs: vec![(pack.stripe.0, 1)], packed: Some(packed), ..object };
    t.set_pack(
        packed.pack,
        &PackRecord { left: pack.left + 1, live: pack.live.saturating_add(object.size), ..pack },
    )?;
    t.set_object(name, &object)?;
    Ok(object)
}
