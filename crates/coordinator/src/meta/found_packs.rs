//! Packs that were found in blocks: what `found.rs` is for objects.
//!
//! An object may be found at several places, since objects move into packs (`moves.rs`); the bytes are the same everywhere. An
//! object that is visible stays where it is, unless a block of it is lost there: then it moves to a newer place that was
//! found. So it does not matter whether metadata are older than a move, or blocks of the old place are still there.

use std::collections::BTreeMap;

use kintsu_dag::NodeId;
use kintsu_wire::message::{MOST_MEMBERS, MemberLabel, NewMember};
use redb::ReadableTable;

use super::Meta;
use super::found::{self, Shown};
use super::moves;
use super::objects::drop_object;
use super::packs::{add, name_of, only, release};
use super::record::{NodeRecord, ObjectRecord, PackRecord, Packed};
use super::write::Tables;
use crate::error::{CoordinatorError, Result};

/// A pack that was found in a rebuild, in the metadata as far as it is needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShownPack {
    /// Members that are visible now and were not before.
    pub shown: u64,
    /// Members that are whole, and the newer object that has the name of each.
    pub covered: Vec<(MemberLabel, u64)>,
    /// Unknown nodes that should hold its blocks.
    pub unheard: BTreeMap<NodeId, NodeRecord>,
    /// Members that are visible at another place, which is whole.
    pub elsewhere: u64,
}

/// What becomes of a member.
enum Member {
    /// It is there, or gone for good.
    Settled,
    /// A newer object has its name.
    Covered(u64),
    /// It is visible at another place, which is whole.
    Elsewhere,
    /// It is visible at an older place where a block is lost.
    Moves(String, Box<ObjectRecord>),
    /// It is not there.
    Missing,
}

impl Meta {
    /// Makes the members of a pack that was found visible, as [`Meta::show_found`] does with an object, but for those that
    /// are `removed`. What was found is kept as long as members may need it: newer objects have their names, or they are at
    /// other places.
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
            let (id, mut out) = (shown.object.id, ShownPack::default());
            let size = shown.stripes.iter().map(|(_, stripe)| stripe.layout.data_bytes).sum();
            let mut wanted = Vec::new();
            for member in checked(id, size, &shown.object.members)? {
                match judged(t, id, member, removed(member.id))? {
                    Member::Settled => {}
                    Member::Covered(by) => out.covered.push((member.clone(), by)),
                    Member::Elsewhere => out.elsewhere += 1,
                    Member::Moves(..) | Member::Missing => wanted.push(member),
                }
            }
            if !wanted.is_empty() {
                begin(t, shown, size, now, &mut out)?;
                for member in wanted {
                    bring(t, id, member, &mut out)?;
                }
                release(t, id, 0, None)?;
            }
            if out.covered.is_empty() && out.elsewhere == 0 {
                found::forget(t, id)?;
            }
            Ok(out)
        })
    }
}

/// The row of the pack, counted as one more than its members until all are there.
fn begin(t: &mut Tables<'_>, shown: &Shown, size: u64, now: u64, out: &mut ShownPack) -> Result<()> {
    let (object, id) = (&shown.object, shown.object.id);
    let ids = || object.members.iter().map(|member| member.id);
    let mut pack = match t.pack(id)? {
        Some(pack) => PackRecord { left: pack.left + 1, ..pack },
        None => {
            let code = found::found_code(t, &shown.code, object.code.definition.as_ref())?;
            let (runs, _, unheard) = found::place(t, &object.name, code, shown.stripes.clone())?;
            out.unheard = unheard;
            let (stripe, created, moved) = (only(id, &runs)?, object.created.min(now), Vec::new());
            PackRecord { stripe, size, code, created, count: 0, left: 1, live: 0, moved }
        }
    };
    // Blocks that were repaired may name fewer than others.
    if ids().any(|member| member < id) {
        let new: Vec<_> = ids().filter(|member| !pack.moved.contains(member)).collect();
        pack.moved.extend(new);
        pack.count = pack.moved.len() as u32;
    } else {
        pack.count = pack.count.max(ids().map(|member| member - id).max().unwrap_or(0) as u32);
    }
    t.set_pack(id, &pack)
}

/// What is to become of a member of pack `id`.
fn judged(t: &Tables<'_>, id: u64, member: &MemberLabel, removed: bool) -> Result<Member> {
    if removed || t.put(id)?.is_some() {
        return Ok(Member::Settled);
    }
    if let Some(name) = t.names.get(member.id)?.map(|name| name.value().to_owned()) {
        let Some(object) = t.object(&name)? else { return Ok(Member::Settled) };
        let place = object.packed.map_or(object.id, |packed| packed.pack);
        if place == id || member.id > id {
            return Ok(Member::Settled);
        }
        let same = object.size == member.size && object.stripes() == 1;
        let lost = match object.ids(0, 1).first() {
            Some((_, stripe)) => t.stripe(*stripe)?.is_some_and(|s| s.made().any(|(_, block)| block.lost)),
            None => false,
        };
        let moves = same && lost && place < id;
        return Ok(if moves { Member::Moves(name, Box::new(object)) } else { Member::Elsewhere });
    }
    Ok(match t.object(&member.name)? {
        Some(newer) if newer.id > member.id => Member::Covered(newer.id),
        _ => Member::Missing,
    })
}

/// Brings a member into its pack, which has a row. What was judged may have changed with the members before.
fn bring(t: &mut Tables<'_>, id: u64, member: &MemberLabel, out: &mut ShownPack) -> Result<()> {
    let packed = Packed { pack: id, at: member.at };
    match judged(t, id, member, false)? {
        Member::Settled => {}
        Member::Elsewhere => out.elsewhere += 1,
        // Of two members of this pack.
        Member::Covered(by) => out.covered.push((member.clone(), by)),
        Member::Moves(name, object) => _ = moves::place(t, &name, *object, packed)?,
        Member::Missing => {
            if let Some(old) = t.object(&member.name)? {
                drop_object(t, &member.name, &old)?;
            }
            let new = NewMember {
                name: member.name.clone(),
                size: member.size,
                replace: true,
                attributes: member.attributes.clone(),
                moves: None,
            };
            add(t, member.id, packed, &new, (None, member.created))?;
            out.shown += 1;
        }
    }
    Ok(())
}

/// The members that a label of pack `id` names, the newest first, if that can be true.
fn checked(id: u64, size: u64, members: &[MemberLabel]) -> Result<Vec<&MemberLabel>> {
    let most = id.saturating_add(MOST_MEMBERS as u64);
    let within = |m: &MemberLabel| m.at.checked_add(m.size).is_some_and(|end| end <= size);
    // Written with the pack, or moved into it.
    let moved = members.iter().any(|m| m.id < id);
    let known = |m: &MemberLabel| if moved { m.id > 0 && m.id < id } else { m.id > id && m.id <= most };
    let sane = |m: &&MemberLabel| m.size > 0 && known(m) && within(m);
    let bad = members.iter().find(|member| !sane(member));
    if let Some(bad) = bad.or_else(|| members.get(MOST_MEMBERS)) {
        return Err(CoordinatorError::Corrupt {
            what: format!("label of {}", name_of(id)),
            expected: format!("at most {MOST_MEMBERS} members within {size} bytes"),
            got: format!("{:?}, {} bytes from {}", bad.name, bad.size, bad.at),
        });
    }
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.id));
    Ok(members)
}
