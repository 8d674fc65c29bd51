//! Packs: stripes that several small objects share.
//!
//! A pack owns its stripe and has no name. Its members are objects whose ids follow its own; each says where its bytes begin
//! in the pack ([`Packed`]). A member that is removed or replaced leaves its bytes there; the stripe goes with the last
//! member. See `docs/adr/0016-packs.md`.

use std::cell::Cell;
use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_wire::message::{
    Attributes, CodeLabel, Encoding, MOST_MEMBERS, MemberEnd, MemberLabel, MemberReply, NewMember,
    ObjectLabel, WrittenStripe,
};
use redb::ReadableTable;
use tonic::Status;

use super::commit::{Commit, all_told, judge, settle};
use super::found::{self, Shown};
use super::names::{self, Making};
use super::objects::{add_object, drop_object, info};
use super::puts::{invalid, taken, unknown};
use super::record::{NodeRecord, ObjectRecord, PackRecord, Packed, ids_of};
use super::volumes::stripe_named;
use super::write::Tables;
use super::{Meta, Snapshot, record, tables, tombstones};
use crate::engine::commit::Evidence;
use crate::engine::damage::Whose;
use crate::error::{CoordinatorError, Result};

/// What the put of a pack is called, in messages and in the labels of its blocks.
pub fn name_of(pack: u64) -> String {
    format!(".pack/{pack}")
}

/// A pack that was found in a rebuild, in the metadata as far as it is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownPack {
    /// Members that are visible now and were not before.
    pub shown: u64,
    /// Members that are whole, and the newer object that has the name of each.
    pub covered: Vec<(MemberLabel, u64)>,
    /// Unknown nodes that should hold its blocks.
    pub unheard: BTreeMap<NodeId, NodeRecord>,
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

    /// Makes the members of a pack that was found visible, as [`Meta::show_found`] does with an object, but for those that
    /// are `removed`. What was found is kept as long as newer objects have the names of some members.
    ///
    /// # Errors
    /// Those of [`Meta::show_found`]; a label that contradicts itself.
    pub fn show_found_pack(
        &self,
        shown: &Shown,
        removed: impl Fn(u64) -> bool,
        now: u64,
    ) -> Result<ShownPack> {
        self.soon(1, |t| {
            let (object, mut out) = (&shown.object, ShownPack::default());
            let id = object.id;
            let size = shown.stripes.iter().map(|(_, stripe)| stripe.layout.data_bytes).sum();
            let mut wanted = Vec::new();
            for member in checked(id, size, &object.members)? {
                if removed(member.id) || t.names.get(member.id)?.is_some() || t.put(id)?.is_some() {
                    continue;
                }
                match t.object(&member.name)? {
                    Some(newer) if newer.id > member.id => out.covered.push((member.clone(), newer.id)),
                    _ => wanted.push(member),
                }
            }
            if wanted.is_empty() {
                if out.covered.is_empty() {
                    found::forget(t, id)?;
                }
                return Ok(out);
            }
            let count = object.members.iter().map(|member| member.id - id).max().unwrap_or(0) as u32;
            let pack = match t.pack(id)? {
                Some(pack) => PackRecord { left: pack.left + 1, ..pack },
                None => {
                    let code = found::found_code(t, &shown.code, object.code.definition.as_ref())?;
                    let (runs, _, unheard) = found::place(t, &object.name, code, shown.stripes.clone())?;
                    out.unheard = unheard;
                    let stripe = only(id, &runs)?;
                    PackRecord { stripe, size, code, created: object.created.min(now), count, left: 1 }
                }
            };
            t.set_pack(id, &pack)?;
            for member in wanted {
                match t.object(&member.name)? {
                    // Of two members of this pack.
                    Some(newer) if newer.id > member.id => {
                        out.covered.push((member.clone(), newer.id));
                        continue;
                    }
                    Some(old) => drop_object(t, &member.name, &old)?,
                    None => {}
                }
                let new = NewMember {
                    name: member.name.clone(),
                    size: member.size,
                    replace: true,
                    attributes: member.attributes.clone(),
                };
                add(t, member.id, Packed { pack: id, at: member.at }, &new, None)?;
                out.shown += 1;
            }
            if out.covered.is_empty() {
                found::forget(t, id)?;
            }
            release(t, id, None)?;
            Ok(out)
        })
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
        let names = self.txn.open_table(tables::NAMES)?;
        let mut out = Vec::with_capacity(pack.left as usize);
        for row in names.range(pack.members(id))? {
            let name = row?.1.value().to_owned();
            let object = self.object(&name)?;
            if object.packed.is_some_and(|packed| packed.pack == id) {
                out.push((name, object));
            }
        }
        Ok(out)
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
        let names = self.txn.open_table(tables::NAMES)?;
        let first = names.range(pack.members(owner))?.next().transpose()?;
        Ok(first.map(|(_, name)| Whose::Objects(name.value().to_owned(), pack.left.into())))
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
        let NewMember { name, size, attributes, .. } = member;
        let (id, first) = (pack + 1 + i as u64, at);
        at += size;
        MemberLabel { id, name, at: first, size, attributes: attributes.for_label() }
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
        let (id, size, attributes) = (object.id, object.size, object.attributes.for_label());
        MemberLabel { id, name, at, size, attributes }
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

/// A member of a pack is gone; `tombstone` is the number of its own. Without the last one the pack goes.
pub fn release(t: &mut Tables<'_>, id: u64, tombstone: Option<u64>) -> Result<()> {
    let pack = t.pack(id)?.ok_or_else(|| no_row(id))?;
    let left = pack.left.saturating_sub(1);
    if left > 0 {
        t.set_pack(id, &PackRecord { left, ..pack })?;
        return tombstone.map_or(Ok(()), |number| t.set_counter(tables::COUNT_LEFT_BEHIND, number));
    }
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
    // Counted as one more than its members until all are there: one of them may replace another.
    t.set_pack(id, &PackRecord { stripe, size, code: put.code, created: making.now, count, left: 1 })?;
    let (mut first, mut replies) = (0, Vec::with_capacity(ends.len()));
    for (i, (new, end)) in put.members.iter().zip(ends).enumerate() {
        at.set(Some(i));
        let (member, packed) = (id + 1 + i as u64, Packed { pack: id, at: first });
        let reply = match refused.get(&i) {
            Some(reply) => reply.clone(),
            None => appear(t, member, packed, new, end, making)?,
        };
        if !matches!(reply, MemberReply::Visible(_)) {
            // Blocks tell of it all the same.
            let number = tombstones::add(t, member)?;
            t.set_counter(tables::COUNT_LEFT_BEHIND, number)?;
        }
        replies.push(reply);
        first += new.size;
    }
    at.set(None);
    release(t, id, None)?;
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
    if end.given_up {
        let gone = format!("the put of {:?} was given up by its client", new.name);
        return Ok(MemberReply::Refused { code: tonic::Code::Aborted.into(), words: gone });
    }
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
    let object = add(t, id, packed, &new, Some(end))?;
    let code = t.code(object.code)?;
    Ok(MemberReply::Visible(info(&new.name, &object, &code.name)))
}

/// Adds a member to a pack. No other object may have its name.
fn add(
    t: &mut Tables<'_>,
    id: u64,
    packed: Packed,
    new: &NewMember,
    end: Option<&MemberEnd>,
) -> Result<ObjectRecord> {
    let pack = t.pack(packed.pack)?.ok_or_else(|| no_row(packed.pack))?;
    let object = ObjectRecord {
        id,
        size: new.size,
        code: pack.code,
        encoding: Encoding::Online,
        encoded: 1,
        created: pack.created,
        runs: vec![(pack.stripe.0, 1)],
        checksum: end.and_then(|end| end.checksum),
        attributes: new.attributes.clone(),
        packed: Some(packed),
    };
    t.set_pack(packed.pack, &PackRecord { left: pack.left + 1, ..pack })?;
    add_object(t, &new.name, &object)?;
    Ok(object)
}

/// What became of the members of a pack that was committed before.
fn ended(t: &Tables<'_>, id: u64, count: usize) -> Result<Vec<MemberReply>> {
    t.pack(id)?.ok_or_else(|| unknown(id))?;
    let reply = |member: u64| {
        let Some(name) = t.names.get(member)?.map(|name| name.value().to_owned()) else {
            return Ok(refusal(unknown(member)));
        };
        let object = t.object(&name)?.ok_or_else(|| unknown(member))?;
        let code = t.code(object.code)?;
        Ok(MemberReply::Visible(info(&name, &object, &code.name)))
    };
    (0..count as u64).map(|i| reply(id + 1 + i)).collect()
}

/// The members that a label of pack `id` names, the newest first, if that can be true.
fn checked(id: u64, size: u64, members: &[MemberLabel]) -> Result<Vec<&MemberLabel>> {
    let most = id.saturating_add(MOST_MEMBERS as u64);
    let sane = |m: &&MemberLabel| {
        m.size > 0 && m.id > id && m.id <= most && m.at.checked_add(m.size).is_some_and(|end| end <= size)
    };
    if let Some(bad) = members.iter().find(|member| !sane(member)) {
        return Err(CoordinatorError::Corrupt {
            what: format!("label of {}", name_of(id)),
            expected: format!("members within {size} bytes"),
            got: format!("{:?}, {} bytes from {}", bad.name, bad.size, bad.at),
        });
    }
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.id));
    Ok(members)
}

/// The one stripe of a pack.
fn only(id: u64, runs: &[(u64, u64)]) -> Result<kintsu_dag::StripeId> {
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

fn refusal(error: CoordinatorError) -> MemberReply {
    let status = Status::from(error);
    MemberReply::Refused { code: status.code().into(), words: status.message().into() }
}

fn no_row(pack: u64) -> CoordinatorError {
    CoordinatorError::Corrupt {
        what: name_of(pack),
        expected: "a row while one of its members is there".into(),
        got: "none".into(),
    }
}
