//! Packs: stripes that several small objects share.
//!
//! A pack owns its stripe and has no name. Its members are objects whose ids follow its own, or older ones that moved into it
//! (`moves.rs`); each says where its bytes begin in the pack ([`Packed`]). A member that is removed or replaced, or moves on, leaves
//! its bytes there; the stripe goes with the last member. See `docs/adr/0016-packs.md`.

use std::cell::Cell;
use std::collections::BTreeMap;

use kintsu_dag::StripeId;
use kintsu_wire::message::{
    Attributes, Checksum, CodeLabel, Encoding, MemberEnd, MemberLabel, MemberReply, Moving, NewMember,
    ObjectLabel, WrittenStripe,
};
use redb::ReadableTable;
use tonic::Status;

use super::commit::{Commit, all_told, judge, settle};
use super::names::{self, Making};
use super::objects::{add_object, drop_object, info};
use super::puts::{invalid, taken, unknown};
use super::record::{ObjectRecord, PackRecord, Packed, ids_of};
use super::volumes::stripe_named;
use super::write::Tables;
use super::{Meta, Snapshot, loose, moves, record, tables, tombstones};
use crate::engine::commit::Evidence;
use crate::engine::damage::Whose;
use crate::error::{CoordinatorError, Result};

/// What the put of a pack is called, in messages and in the labels of its blocks.
pub fn name_of(pack: u64) -> String {
    format!(".pack/{pack}")
}

impl Meta {
    /// As [`Meta::end_put`], for a pack: makes its members visible in one transaction, each if its own checks hold. A member
    /// that cannot appear keeps no other from it. Repeating the call is harmless.
    ///
    /// # Errors
    /// No such put; a digest or a member too few or too many.
    pub fn end_pack(
        &self,
        id: u64,
        written: &[WrittenStripe],
        members: &[MemberEnd],
        evidence: &Evidence<'_>,
        making: Making<'_>,
    ) -> Result<Commit> {
        // A step that cannot be taken is found out half way: then all is undone, and done again without that member.
        let (mut refused, at) = (BTreeMap::new(), Cell::new(None));
        loop {
            let tried = self.together(|t| end(t, id, written, members, evidence, making, (&refused, &at)));
            match (tried, at.get()) {
                (Err(error), Some(member)) if is_of_one(&error) => refused.insert(member, refusal(error)),
                (other, _) => return other,
            };
        }
    }
}

impl Snapshot {
    /// A pack of which a member is there.
    ///
    /// # Errors
    /// The disk fails.
    pub fn pack(&self, id: u64) -> Result<Option<PackRecord>> {
        let table = self.txn.open_table(tables::PACKS)?;
        table.get(id)?.map(|row| record::unpack("pack", row.value())).transpose()
    }

    /// The members of a pack that are there, in the order of their bytes: name and object.
    ///
    /// # Errors
    /// The metadata contradict themselves.
    pub fn members(&self, id: u64, pack: &PackRecord) -> Result<Vec<(String, ObjectRecord)>> {
        let there = |member| self.member(id, member).transpose();
        pack.members(id).into_iter().filter_map(there).collect()
    }

    /// An object with this id, if it is in a pack.
    fn member(&self, pack: u64, id: u64) -> Result<Option<(String, ObjectRecord)>> {
        let Some(name) = self.name(id)? else { return Ok(None) };
        let object = self.object(&name)?;
        let is_in = object.packed.is_some_and(|packed| packed.pack == pack);
        Ok(is_in.then_some((name, object)))
    }

    /// Whose bytes are in the stripes of an owner. None while the owner is gone.
    ///
    /// # Errors
    /// The disk fails.
    pub fn whose(&self, owner: u64) -> Result<Option<Whose>> {
        if let Some(name) = self.name(owner)? {
            // After a rebuild from blocks the volume may be missing.
            let volume =
                stripe_named(&name).map(|(volume, _)| self.volume_name(volume)).transpose()?.flatten();
            return Ok(Some(volume.map_or(Whose::Objects(name, 1), Whose::Volume)));
        }
        let Some(pack) = self.pack(owner)? else { return Ok(None) };
        let there = |member| self.member(owner, member).transpose();
        let first = pack.members(owner).into_iter().find_map(there).transpose()?;
        Ok(first.map(|(name, _)| Whose::Objects(name, pack.left.into())))
    }

    /// The number of the last tombstone of an object whose bytes are still there, in a pack: no deletion of blocks brings it
    /// to agents.
    ///
    /// # Errors
    /// The disk fails.
    pub fn left_behind(&self) -> Result<u64> {
        let counters = self.txn.open_table(tables::COUNTERS)?;
        Ok(counters.get(tables::COUNT_LEFT_BEHIND)?.map_or(0, |row| row.value()))
    }
}

/// What the labels of a new pack's blocks say of its members.
pub fn labels(pack: u64, members: Vec<NewMember>) -> Vec<MemberLabel> {
    let mut at = 0;
    let label = |(i, member): (usize, NewMember)| {
        let (id, created) = (id_of(pack, i, &member), member.moves.map(|moved| moved.created));
        let NewMember { name, size, attributes, .. } = member;
        let first = at;
        at += size;
        MemberLabel { id, name, at: first, size, attributes: attributes.for_label(), created }
    };
    members.into_iter().enumerate().map(label).collect()
}

/// What the labels of a pack's blocks say, with the members that are there.
pub fn label(
    id: u64,
    pack: &PackRecord,
    members: Vec<(String, ObjectRecord)>,
    code: CodeLabel,
) -> ObjectLabel {
    let member = |(name, object): (String, ObjectRecord)| {
        let at = object.packed.map_or(0, |packed| packed.at);
        let created = Some(object.created).filter(|created| *created != pack.created);
        let (id, size, attributes) = (object.id, object.size, object.attributes.for_label());
        MemberLabel { id, name, at, size, attributes, created }
    };
    ObjectLabel {
        id,
        name: name_of(id),
        size: Some(pack.size),
        created: pack.created,
        encoding: Encoding::Online,
        code,
        attributes: Attributes::default(),
        members: members.into_iter().map(member).collect(),
    }
}

/// A member of a pack of so many bytes is gone; `tombstone` is the number of its own, unless it moved. Without the last one
/// the pack goes.
pub fn release(t: &mut Tables<'_>, id: u64, bytes: u64, tombstone: Option<u64>) -> Result<()> {
    let pack = t.pack(id)?.ok_or_else(|| no_row(id))?;
    let (left, live) = (pack.left.saturating_sub(1), pack.live.saturating_sub(bytes));
    if left > 0 {
        let pack = PackRecord { left, live, ..pack };
        t.set_pack(id, &pack)?;
        loose::note_pack(t, id, &pack)?;
        return tombstone.map_or(Ok(()), |number| t.set_counter(tables::COUNT_LEFT_BEHIND, number));
    }
    t.loose.remove(id)?;
    t.drop_stripe(pack.stripe)?;
    t.packs.remove(id)?;
    tombstones::add(t, id)?;
    Ok(())
}

/// See [`Meta::end_pack`]. Members in `refused` are left out; `at` tells which one is being made visible.
fn end(
    t: &mut Tables<'_>,
    id: u64,
    written: &[WrittenStripe],
    ends: &[MemberEnd],
    evidence: &Evidence<'_>,
    making: Making<'_>,
    (refused, at): (&BTreeMap<usize, MemberReply>, &Cell<Option<usize>>),
) -> Result<Commit> {
    at.set(None);
    let Some(put) = t.put(id)? else { return Ok(Commit::Pack(ended(t, id, ends.len())?)) };
    let code = t.code(put.code)?;
    let last = all_told(t, id, &put, &code, written)?;
    if put.members.is_empty() || put.members.len() != ends.len() {
        let expected = format!("{} members of a pack", put.members.len());
        return Err(invalid("commit", expected, ends.len().to_string()));
    }
    let judgement = judge(t, id, &put, &code, &last, evidence)?;
    if !judgement.doubts.is_empty() {
        return Ok(Commit::Unsure(judgement.doubts.into_values().collect()));
    }
    if !judgement.refusals.is_empty() {
        return Ok(Commit::Refused(judgement.refusals));
    }
    settle(t, id, &put, &last, &judgement.lost)?;
    let size = put.size.unwrap_or_default();
    let (stripe, count) = (only(id, &put.runs)?, put.members.len() as u32);
    let moved = put.members.iter().filter_map(|member| member.moves).map(|moved| moved.id).collect();
    // Counted as one more than its members until all are there: one of them may replace another.
    let (code, created, left, live) = (put.code, making.now, 1, 0);
    t.set_pack(id, &PackRecord { stripe, size, code, created, count, left, live, moved })?;
    let (mut first, mut replies) = (0, Vec::with_capacity(ends.len()));
    for (i, (new, end)) in put.members.iter().zip(ends).enumerate() {
        at.set(Some(i));
        let (member, packed) = (id_of(id, i, new), Packed { pack: id, at: first });
        let reply = match (refused.get(&i), new.moves) {
            (Some(reply), _) => reply.clone(),
            (None, _) if end.given_up => given_up(&new.name),
            (None, Some(moved)) => moves::move_in(t, packed, new, moved, end)?,
            (None, None) => appear(t, member, packed, new, end, making)?,
        };
        if new.moves.is_none() && !matches!(reply, MemberReply::Visible(_)) {
            // Blocks tell of it all the same. What did not move has its id, or a tombstone.
            let number = tombstones::add(t, member)?;
            t.set_counter(tables::COUNT_LEFT_BEHIND, number)?;
        }
        replies.push(reply);
        first += new.size;
    }
    at.set(None);
    release(t, id, 0, None)?;
    Ok(Commit::Pack(replies))
}

/// Makes a member visible if its own checks hold.
fn appear(
    t: &mut Tables<'_>,
    id: u64,
    packed: Packed,
    new: &NewMember,
    end: &MemberEnd,
    making: Making<'_>,
) -> Result<MemberReply> {
    let mut new = new.clone();
    if let Some(ending) = &end.ending {
        if let Some(check) = names::unmet(t, &ending.change.checks)? {
            return Ok(MemberReply::Unmet(check));
        }
        names::take(t, &ending.change.steps, making)?;
        names::add_facts(&mut new.attributes, &ending.facts)?;
    }
    if let Some(old) = t.object(&new.name)? {
        if !new.replace {
            return Err(taken(&new.name));
        }
        drop_object(t, &new.name, &old)?;
    }
    let object = add(t, id, packed, &new, (end.checksum, None))?;
    let code = t.code(object.code)?;
    Ok(MemberReply::Visible(info(&new.name, &object, &code.name)))
}

/// Adds a member to a pack, which appeared when the pack did unless its time is given. No other object may have its name.
pub(super) fn add(
    t: &mut Tables<'_>,
    id: u64,
    packed: Packed,
    new: &NewMember,
    (checksum, created): (Option<Checksum>, Option<u64>),
) -> Result<ObjectRecord> {
    let pack = t.pack(packed.pack)?.ok_or_else(|| no_row(packed.pack))?;
    let object = ObjectRecord {
        id,
        size: new.size,
        code: pack.code,
        encoding: Encoding::Online,
        encoded: 1,
        created: created.unwrap_or(pack.created),
        runs: vec![(pack.stripe.0, 1)],
        checksum,
        attributes: new.attributes.clone(),
        packed: Some(packed),
    };
    let live = pack.live.saturating_add(new.size);
    t.set_pack(packed.pack, &PackRecord { left: pack.left + 1, live, ..pack })?;
    add_object(t, &new.name, &object)?;
    Ok(object)
}

/// What became of the members of a pack that was committed before.
fn ended(t: &Tables<'_>, id: u64, count: usize) -> Result<Vec<MemberReply>> {
    let pack = t.pack(id)?.ok_or_else(|| unknown(id))?;
    let reply = |member: u64| {
        let Some(name) = t.names.get(member)?.map(|name| name.value().to_owned()) else {
            return Ok(refusal(unknown(member)));
        };
        let object = t.object(&name)?.ok_or_else(|| unknown(member))?;
        if !pack.moved.is_empty() && object.packed.is_none_or(|packed| packed.pack != id) {
            return Ok(refusal(unknown(id)));
        }
        let code = t.code(object.code)?;
        Ok(MemberReply::Visible(info(&name, &object, &code.name)))
    };
    pack.members(id).into_iter().take(count).map(reply).collect()
}

/// The id of a member that a pack is written with.
fn id_of(pack: u64, i: usize, member: &NewMember) -> u64 {
    member.moves.map_or(pack + 1 + i as u64, |moved: Moving| moved.id)
}

fn given_up(name: &str) -> MemberReply {
    let words = format!("the put of {name:?} was given up by its client");
    MemberReply::Refused { code: tonic::Code::Aborted.into(), words }
}

/// The one stripe of a pack.
pub(super) fn only(id: u64, runs: &[(u64, u64)]) -> Result<StripeId> {
    match ids_of(runs, 0, 2)[..] {
        [(_, stripe)] => Ok(stripe),
        ref other => Err(CoordinatorError::Corrupt {
            what: name_of(id),
            expected: "one stripe".into(),
            got: other.len().to_string(),
        }),
    }
}

/// Whether an error is about what one member asks for.
fn is_of_one(error: &CoordinatorError) -> bool {
    use CoordinatorError as E;
    matches!(error, E::Invalid { .. } | E::NotFound { .. } | E::Exists { .. } | E::Conflict { .. })
}

pub(super) fn refusal(error: CoordinatorError) -> MemberReply {
    let status = Status::from(error);
    MemberReply::Refused { code: status.code().into(), words: status.message().into() }
}

pub(super) fn no_row(pack: u64) -> CoordinatorError {
    CoordinatorError::Corrupt {
        what: name_of(pack),
        expected: "a row while one of its members is there".into(),
        got: "none".into(),
    }
}
