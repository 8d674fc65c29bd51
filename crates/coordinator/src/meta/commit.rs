//! The commit of a put: all its stripes become an object in one transaction, or none of them does.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId};
use kintsu_wire::message::{
    Checksum, DigestBytes, Encoding, Ending, FaultKind, MemberReply, ObjectInfo, WrittenStripe,
};
use redb::ReadableTable;

use super::Meta;
use super::blocks::byte_of;
use super::names::Making;
use super::objects::{add_object, drop_object, info};
use super::puts::{discard, invalid, pending, taken, told, unknown};
use super::record::{self, BlockRecord, CodeRecord, ObjectRecord, PendingPut, PendingStripe, StripeRecord};
use super::write::Tables;
use super::{fence, loose, names, volumes};
use crate::engine::commit::{Doubt, Evidence, Judgement, Refusal};
use crate::error::{CoordinatorError, Result};

/// The outcome of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Commit {
    /// The object is visible.
    Visible(ObjectInfo),
    /// The pack has ended: what became of each of its members.
    Pack(Vec<MemberReply>),
    /// Nothing has changed: these blocks must be checked first.
    Unsure(Vec<Doubt>),
    /// Nothing has changed: blocks of these stripes are gone or changed since they were written.
    Refused(Vec<Refusal>),
    /// Nothing has changed: this check of the ending does not hold.
    Unmet(u32),
}

impl Meta {
    /// [`Meta::try_commit`] for callers that know that no node has lost anything.
    ///
    /// # Errors
    /// Those of [`Meta::try_commit`]; `Conflict` when a node may have lost blocks after all.
    pub fn commit_put(&self, put: u64, written: &[WrittenStripe], created: u64) -> Result<ObjectInfo> {
        let (down, told) = (BTreeSet::new(), BTreeMap::new());
        let evidence = Evidence { down: &down, told: &told, bearable: &|_| false };
        let unsure = |node: Option<NodeId>| CoordinatorError::Conflict {
            what: format!("commit of put {put}"),
            expected: "nodes that were not started again or wiped since they were written to".into(),
            got: node.map_or("another one".into(), |node| node.to_string()),
        };
        match self.try_commit(put, written, (created, None), &evidence)? {
            Commit::Visible(info) => Ok(info),
            Commit::Unsure(doubts) => Err(unsure(doubts.first().map(|doubt| doubt.node))),
            Commit::Refused(refusals) => Err(unsure(refusals.first().map(|refusal| refusal.node))),
            Commit::Unmet(_) | Commit::Pack(_) => Err(unsure(None)),
        }
    }

    /// [`Meta::end_put`] without an ending.
    ///
    /// # Errors
    /// Those of [`Meta::end_put`].
    pub fn try_commit(
        &self,
        id: u64,
        written: &[WrittenStripe],
        when_and_sum: (u64, Option<Checksum>),
        evidence: &Evidence<'_>,
    ) -> Result<Commit> {
        self.end_put(id, written, when_and_sum, evidence, None)
    }

    /// Makes a put visible. It replaces an object of the same name, if that was allowed. Repeating the call is
    /// harmless. Blocks on dead nodes become visible as lost, if their stripes can be read without them. With an ending, its
    /// checks must hold; its steps are taken before the object appears.
    ///
    /// # Errors
    /// No such put; a digest too few or too many; a step of the ending that cannot be taken; the name was taken
    /// meanwhile, and then the put's blocks become garbage.
    pub fn end_put(
        &self,
        id: u64,
        written: &[WrittenStripe],
        (created, checksum): (u64, Option<Checksum>),
        evidence: &Evidence<'_>,
        ending: Option<(&Ending, Making<'_>)>,
    ) -> Result<Commit> {
        self.together(|t| {
            let Some(mut put) = t.put(id)? else { return Ok(Ok(Commit::Visible(committed(t, id)?))) };
            let code = t.code(put.code)?;
            let last = all_told(t, id, &put, &code, written)?;
            if !put.members.is_empty() {
                return Err(invalid("commit", "the put of one object".into(), "that of a pack".into()));
            }
            volumes::check_writer(t, &put)?;
            if let Some((ending, _)) = ending
                && let Some(check) = names::unmet(t, &ending.change.checks)?
            {
                return Ok(Ok(Commit::Unmet(check)));
            }
            let moves = ending.is_some_and(|(ending, _)| !ending.change.steps.is_empty());
            if !moves && t.object(&put.name)?.is_some() && !put.replace {
                discard(t, id, &put)?;
                return Ok(Err(taken(&put.name)));
            }
            let judgement = judge(t, id, &put, &code, &last, evidence)?;
            if !judgement.doubts.is_empty() {
                return Ok(Ok(Commit::Unsure(judgement.doubts.into_values().collect())));
            }
            if !judgement.refusals.is_empty() {
                return Ok(Ok(Commit::Refused(judgement.refusals)));
            }
            if let Some((ending, making)) = ending {
                names::take(t, &ending.change.steps, making)?;
                names::add_facts(&mut put.attributes, &ending.facts)?;
            }
            if let Some(old) = t.object(&put.name)? {
                if !put.replace {
                    return Err(taken(&put.name));
                }
                drop_object(t, &put.name, &old)?;
            }
            // What is in a stripe of a volume changes later.
            let checksum = checksum.filter(|_| put.volume.is_none());
            show(t, id, put, &last, &judgement.lost, (created, checksum))?;
            Ok(Ok(Commit::Visible(committed(t, id)?)))
        })?
    }
}

/// The digests that came with the commit, by stripe.
pub(super) type Last<'w> = HashMap<StripeId, &'w [Option<DigestBytes>]>;

/// The digests that came with the commit of a put whose stripes are all granted.
pub(super) fn all_told<'w>(
    t: &Tables<'_>,
    id: u64,
    put: &PendingPut,
    code: &CodeRecord,
    written: &'w [WrittenStripe],
) -> Result<Last<'w>> {
    let last = told(t, id, put, code, written)?;
    if put.size.is_none() {
        return Err(invalid("commit", "a stream whose size was told".into(), "none".into()));
    }
    if put.granted() != put.stripes() {
        let expected = format!("all {} stripes", put.stripes());
        return Err(invalid("commit", expected, format!("the first {}", put.granted())));
    }
    Ok(last.into_iter().map(|(row, digests)| (row.id, digests)).collect())
}

/// All digests of a stripe: those that came with the commit, or else those recorded earlier.
fn digests_of<'a>(row: &'a PendingStripe, last: &Last<'a>) -> Result<&'a [Option<DigestBytes>]> {
    let earlier = || row.digests.as_deref();
    last.get(&row.id)
        .copied()
        .or_else(earlier)
        .ok_or_else(|| invalid("commit", format!("digests of stripe {}", row.id), "none".into()))
}

/// Judges whether the stripes of a put can be committed. Reads the stripes only if there is a doubtful node.
pub(super) fn judge(
    t: &Tables<'_>,
    id: u64,
    put: &PendingPut,
    code: &CodeRecord,
    last: &Last<'_>,
    evidence: &Evidence<'_>,
) -> Result<Judgement> {
    let doubtful = fence::doubtful(t, put, evidence.down)?;
    let mut judgement = Judgement::default();
    if doubtful.is_empty() {
        return Ok(judgement);
    }
    for (_, stripe) in record::ids_of(&put.runs, 0, u64::MAX) {
        let row = pending(t, id, stripe)?;
        let k = usize::from(code.k);
        judgement.add(&row, digests_of(&row, last)?, k, !put.streamed, &doubtful, evidence);
    }
    Ok(judgement)
}

/// The answer to a commit that was done now or earlier.
fn committed(t: &Tables<'_>, put: u64) -> Result<ObjectInfo> {
    let name = t.names.get(put)?.map(|row| row.value().to_owned()).ok_or_else(|| unknown(put))?;
    let object = t.object(&name)?.ok_or_else(|| unknown(put))?;
    let code = t.code(object.code)?;
    Ok(info(&name, &object, &code.name))
}

/// Turns a put into a visible object, and removes the rows of the put.
pub(super) fn show(
    t: &mut Tables<'_>,
    id: u64,
    put: PendingPut,
    last: &Last<'_>,
    lost: &BTreeSet<BlockId>,
    (created, checksum): (u64, Option<Checksum>),
) -> Result<()> {
    settle(t, id, &put, last, lost)?;
    volumes::add_stripe(t, &put)?;
    let count = put.granted();
    let PendingPut { name, size, code, encoding, runs, attributes, .. } = put;
    let size = size.unwrap_or_default();
    let encoded = if encoding == Encoding::Online { count } else { 0 };
    let packed = None;
    let object =
        ObjectRecord { id, size, code, encoding, encoded, created, runs, checksum, attributes, packed };
    add_object(t, &name, &object)?;
    loose::note(t, &name, &object)
}

/// Makes the stripes of a put visible, and removes the rows of the put.
pub(super) fn settle(
    t: &mut Tables<'_>,
    id: u64,
    put: &PendingPut,
    last: &Last<'_>,
    lost: &BTreeSet<BlockId>,
) -> Result<()> {
    let encoded = put.encoding == Encoding::Online;
    for (_, stripe) in record::ids_of(&put.runs, 0, u64::MAX) {
        let row = pending(t, id, stripe)?;
        let digests = digests_of(&row, last)?;
        let block = |(node, digest): (&Option<NodeId>, &Option<DigestBytes>)| {
            node.map(|node| BlockRecord { node, digest: *digest, lost: false, generation: row.generation })
        };
        let mut visible = StripeRecord {
            owner: id,
            offset: row.offset,
            code: put.code,
            generation: row.generation,
            layout: row.layout,
            encoded,
            blocks: row.homes.iter().zip(digests).map(block).collect(),
        };
        for (index, block) in visible.made() {
            t.settle(stripe, index, row.generation, block.node)?;
        }
        if !lost.is_empty() {
            for (i, block) in visible.blocks.iter_mut().enumerate() {
                let index = BlockIndex(i as u8);
                let gone = lost.contains(&BlockId { stripe, index });
                if let Some(block) = block.as_mut().filter(|_| gone) {
                    t.flag(stripe, index, block, Some(byte_of(FaultKind::Missing)))?;
                }
            }
        }
        t.set_stripe(stripe, &visible)?;
        t.put_stripes.remove(stripe.0)?;
    }
    t.puts.remove(id)?;
    Ok(())
}
