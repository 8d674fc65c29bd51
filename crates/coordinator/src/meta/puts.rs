//! Puts, from the first grant until the object is visible or the blocks are garbage.
//!
//! A put has one small row; each of its stripes has a row of its own from its grant to the end of the put. Stripes are
//! granted in batches, each in one transaction, with consecutive ids. Their digests are recorded when the client
//! reports them. A stream gets full stripes, twice as many in all with each batch, until its client tells its size;
//! then the last stripe is granted in its true length, and those beyond it are undone. The commit (`commit.rs`) turns all rows into an object in one transaction.

use std::collections::BTreeMap;

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::{Division, Layout};
use kintsu_wire::message::{Attributes, DigestBytes, Encoding, NewMember, StripeOfVolume, WrittenStripe};
use redb::{ReadableTable, ReadableTableMetadata};

use super::record::{self, CodeRecord, PendingPut, PendingStripe};
use super::write::Tables;
use super::{Meta, Snapshot, fence, packs, tables, volumes};
use crate::error::{CoordinatorError, Result};

/// Stripes of a stream that are granted first: a stream is longer than one stripe.
const FIRST_OF_STREAM: u64 = 2;

/// The most stripes of a small put.
pub(super) const SMALL: u64 = 64;

/// The generation that blocks are written with.
const FIRST_GENERATION: u32 = 1;

/// The parameters of a new put.
#[derive(Debug, Clone)]
pub struct NewPut {
    /// The name of the future object.
    pub name: String,
    /// Its length in bytes; `None` for a stream.
    pub size: Option<u64>,
    /// Its code.
    pub code: CodeRecord,
    /// Whether it is encoded online or offline.
    pub encoding: Encoding,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
    /// The stripe of a volume that it makes.
    pub volume: Option<StripeOfVolume>,
    /// What its user says about it.
    pub attributes: Attributes,
    /// If it is a pack, its members, in the order of their bytes.
    pub members: Vec<NewMember>,
    /// Its stripes.
    pub division: Division,
    /// How many of them are granted at once.
    pub batch: u64,
}

/// Stripes that were granted to a put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Granted {
    /// Whether its parity is made online or offline.
    pub encoding: Encoding,
    /// The stripes, in order.
    pub stripes: Vec<PendingStripe>,
}

/// The homes of a new stripe.
type Homes = Result<Vec<Option<NodeId>>>;

impl Meta {
    /// Records a new put and grants its first stripes; `place` returns the homes of a stripe. A small put need not be
    /// durable before its commit is, or before [`Meta::settle`] is called: if the coordinator crashes before that, the
    /// put never began. Its ids are not given again ([`Meta::begin`]), and what its client wrote is unknown.
    ///
    /// # Errors
    /// The name exists and may not be replaced; those of `place`.
    pub fn begin_put(
        &self,
        new: NewPut,
        place: impl FnMut(StripeId, &Layout) -> Homes + Clone,
    ) -> Result<(u64, Granted)> {
        let begin = |t: &mut Tables<'_>| {
            if !new.replace && t.objects.get(new.name.as_str())?.is_some() {
                return Err(taken(&new.name));
            }
            let code = t.code_key(&new.code)?;
            // What moves has its id.
            let fresh = new.members.iter().filter(|member| member.moves.is_none()).count() as u64;
            let id = t.next(tables::COUNT_PUT, 1 + fresh)?;
            let NewPut {
                name, size, encoding, replace, volume, attributes, members, division, batch, ..
            } = new.clone();
            let name = if members.is_empty() { name } else { packs::name_of(id) };
            let (streamed, division) = (size.is_none(), Some(division));
            let (runs, fences) = (Vec::new(), BTreeMap::new());
            let mut put = PendingPut {
                name,
                size,
                code,
                encoding,
                replace,
                streamed,
                volume,
                attributes,
                division,
                runs,
                members,
                fences,
            };
            volumes::check_writer(t, &put)?;
            let stripes = grant(t, id, &mut put, batch, place.clone())?;
            t.set_put(id, &put)?;
            Ok((id, Granted { encoding, stripes }))
        };
        self.shared(&begin, |(_, granted)| granted.stripes.len() as u64 > SMALL)
    }

    /// Grants at most `batch` more stripes of a put, from position `from` on, and records the digests of stripes
    /// that were written. If `size` is given, a stream ends there. Repeating the call gives the same stripes.
    ///
    /// # Errors
    /// No such put; stripes before `from` that are not granted yet; digests that do not fit; a size that the put
    /// cannot have; those of `place`.
    pub fn more_stripes(
        &self,
        id: u64,
        from: u64,
        batch: u64,
        (written, size): (&[WrittenStripe], Option<u64>),
        place: impl FnMut(StripeId, &PendingPut, &Layout) -> Homes + Clone,
    ) -> Result<Granted> {
        self.together(|t| {
            let mut place = place.clone();
            let mut put = t.put(id)?.ok_or_else(|| unknown(id))?;
            if let Some(size) = size {
                end(t, id, &mut put, size)?;
            }
            let granted = put.granted();
            if from > granted {
                let expected = format!("at most {granted}, the first that is not granted");
                return Err(invalid("first stripe wanted", expected, from.to_string()));
            }
            let code = t.code(put.code)?;
            for (mut row, digests) in told(t, id, &put, &code, written)? {
                row.digests = Some(digests.to_vec());
                t.set_pending(&row)?;
            }
            let encoding = put.encoding;
            let stripes = if from < granted {
                let ids = record::ids_of(&put.runs, from, batch);
                ids.into_iter().map(|(_, stripe)| pending(t, id, stripe)).collect::<Result<Vec<_>>>()?
            } else {
                let as_it_is = put.clone();
                let stripes =
                    grant(t, id, &mut put, batch, |stripe, layout| place(stripe, &as_it_is, layout))?;
                t.set_put(id, &put)?;
                stripes
            };
            Ok(Granted { encoding, stripes })
        })
    }

    /// Places one stripe of a put again, under a new id; the blocks written of the old stripe become garbage.
    ///
    /// # Errors
    /// No such put or stripe; those of `place`.
    pub fn move_stripe(
        &self,
        put: u64,
        stripe: StripeId,
        place: impl FnOnce(StripeId, &PendingPut, &Layout) -> Homes,
    ) -> Result<PendingStripe> {
        self.write(|t| {
            let mut row = t.put(put)?.ok_or_else(|| unknown(put))?;
            let old = t.pending(stripe)?.filter(|s| s.put == put);
            let old = old.ok_or_else(|| CoordinatorError::NotFound {
                what: "stripe of the put",
                name: stripe.to_string(),
            })?;
            let id = StripeId(t.next(tables::COUNT_STRIPE, 1)?);
            let homes = place(id, &row, &old.layout)?;
            trash_pending(t, &old)?;
            t.put_stripes.remove(stripe.0)?;
            fence::remember(t, &mut row, &homes)?;
            row.swap(stripe, id);
            t.set_put(put, &row)?;
            let new = PendingStripe { id, generation: FIRST_GENERATION, homes, digests: None, ..old };
            t.set_pending(&new)?;
            Ok(new)
        })
    }

    /// Gives up a put; its blocks become garbage. If there is no such put, this is no error.
    ///
    /// # Errors
    /// The put is visible already.
    pub fn abort_put(&self, put: u64) -> Result<bool> {
        self.write(|t| match t.put(put)? {
            Some(pending) => discard(t, put, &pending).map(|()| true),
            None if t.names.get(put)?.is_some() || t.packs.get(put)?.is_some() => {
                Err(CoordinatorError::Conflict {
                    what: format!("abort of put {put}"),
                    expected: "a put under way".into(),
                    got: "one that is visible".into(),
                })
            }
            None => Ok(false),
        })
    }
}

/// Forgets all puts under way. Their blocks do not become garbage; they are unknown from now on.
pub(super) fn forget_all(t: &mut Tables<'_>) -> Result<()> {
    t.puts.retain(|_, _| false)?;
    t.put_stripes.retain(|_, _| false)?;
    Ok(())
}

impl Snapshot {
    /// The ids of all puts under way.
    ///
    /// # Errors
    /// The disk fails.
    pub fn puts(&self) -> Result<Vec<u64>> {
        let table = self.txn.open_table(tables::PUTS)?;
        let mut out = Vec::with_capacity(table.len()? as usize);
        for row in table.iter()? {
            out.push(row?.0.value());
        }
        Ok(out)
    }

    /// A put, if it is under way.
    ///
    /// # Errors
    /// The disk fails.
    pub fn put(&self, id: u64) -> Result<Option<PendingPut>> {
        let table = self.txn.open_table(tables::PUTS)?;
        table.get(id)?.map(|row| record::unpack("pending put", row.value())).transpose()
    }

    /// Whether a stripe belongs to a put under way. One lookup.
    ///
    /// # Errors
    /// The disk fails.
    pub fn is_pending(&self, stripe: StripeId) -> Result<bool> {
        Ok(self.txn.open_table(tables::PUT_STRIPES)?.get(stripe.0)?.is_some())
    }

    /// How many puts under way may write to a node.
    ///
    /// # Errors
    /// The disk fails.
    pub fn puts_on(&self, node: NodeId) -> Result<u64> {
        let table = self.txn.open_table(tables::PUTS)?;
        let mut count = 0;
        for row in table.iter()? {
            let put: PendingPut = record::unpack("pending put", row?.1.value())?;
            count += u64::from(put.fences.contains_key(&node));
        }
        Ok(count)
    }
}

/// Grants the next stripes of a put, at most `batch`; the caller stores the put.
fn grant(
    t: &mut Tables<'_>,
    id: u64,
    put: &mut PendingPut,
    batch: u64,
    mut place: impl FnMut(StripeId, &Layout) -> Homes,
) -> Result<Vec<PendingStripe>> {
    let (Some(division), from) = (put.division, put.granted()) else { return Ok(Vec::new()) };
    let batch = if put.size.is_some() { batch } else { from.max(FIRST_OF_STREAM).min(batch) };
    let count = division.count().saturating_sub(from).min(batch);
    let first = t.next(tables::COUNT_STRIPE, count)?;
    let mut stripes = Vec::with_capacity(count as usize);
    for i in 0..count {
        let stripe = StripeId(first + i);
        let (offset, layout) = division.stripe(from + i);
        let homes = place(stripe, &layout)?;
        fence::remember(t, put, &homes)?;
        let generation = FIRST_GENERATION;
        let row = PendingStripe { id: stripe, generation, offset, layout, homes, put: id, digests: None };
        t.set_pending(&row)?;
        put.push(stripe);
        stripes.push(row);
    }
    Ok(stripes)
}

/// A stream ends after `size` bytes: forgets the stripes granted beyond, also the last one if it is not full.
fn end(t: &mut Tables<'_>, id: u64, put: &mut PendingPut, size: u64) -> Result<()> {
    if put.size == Some(size) {
        return Ok(());
    }
    let (None, Some(division)) = (put.size, put.division) else {
        let expected = put.size.map_or("none".into(), |size| format!("{size} bytes, as told before"));
        return Err(invalid("size of a put", expected, size.to_string()));
    };
    let full = size / division.full().max(1);
    for (_, stripe) in record::ids_of(&put.runs, full, u64::MAX) {
        let row = pending(t, id, stripe)?;
        if row.digests.is_some() {
            let expected = format!("at least {} bytes, which were written", row.offset.saturating_add(1));
            return Err(invalid("size of a put", expected, size.to_string()));
        }
        trash_pending(t, &row)?;
        t.put_stripes.remove(stripe.0)?;
    }
    put.truncate(full);
    (put.division, put.size) = (Some(division.ended(size)?), Some(size));
    t.set_put(id, put)
}

/// A stripe of a put.
pub(super) fn pending(t: &Tables<'_>, put: u64, stripe: StripeId) -> Result<PendingStripe> {
    t.pending(stripe)?.filter(|row| row.put == put).ok_or_else(|| CoordinatorError::Corrupt {
        what: format!("put {put}"),
        expected: format!("a row for its stripe {stripe}"),
        got: "none".into(),
    })
}

/// Rows of stripes, and the digests that a client reports for them.
pub(super) type Written<'w> = Vec<(PendingStripe, &'w [Option<DigestBytes>])>;

/// Checks the digests that a client reports, and returns them with the rows of their stripes.
pub(super) fn told<'w>(
    t: &Tables<'_>,
    id: u64,
    put: &PendingPut,
    code: &CodeRecord,
    written: &'w [WrittenStripe],
) -> Result<Written<'w>> {
    let mut out = Vec::with_capacity(written.len());
    for stripe in written {
        let row = t.pending(stripe.id)?.filter(|row| row.put == id);
        let row = row.ok_or_else(|| {
            invalid("written stripe", format!("one of put {id}"), format!("stripe {}", stripe.id))
        })?;
        check_digests(&row, put.encoding, code, &stripe.digests)?;
        out.push((row, stripe.digests.as_slice()));
    }
    Ok(out)
}

/// Every block that was written, and no other, must come with a digest: all blocks that have bytes, or with
/// offline encoding only the data blocks among them.
fn check_digests(
    stripe: &PendingStripe,
    encoding: Encoding,
    code: &CodeRecord,
    digests: &[Option<DigestBytes>],
) -> Result<()> {
    let (n, k) = (usize::from(code.n), usize::from(code.k));
    if digests.len() != n {
        let expected = format!("stripe {} with {n} digests", stripe.id);
        return Err(invalid("written stripe", expected, digests.len().to_string()));
    }
    for (i, digest) in digests.iter().enumerate() {
        let made = i < k || encoding == Encoding::Online;
        let want = made && stripe.layout.block_len(k, BlockIndex(i as u8)) > 0;
        if want != digest.is_some() {
            let text = |has: bool| if has { "a digest".to_owned() } else { "none".to_owned() };
            let expected = format!("{} for block {}.b{i}", text(want), stripe.id);
            return Err(invalid("written stripe", expected, text(digest.is_some())));
        }
    }
    Ok(())
}

pub(super) fn discard(t: &mut Tables<'_>, id: u64, put: &PendingPut) -> Result<()> {
    for (_, stripe) in record::ids_of(&put.runs, 0, u64::MAX) {
        let row = pending(t, id, stripe)?;
        trash_pending(t, &row)?;
        t.put_stripes.remove(stripe.0)?;
    }
    super::tombstones::add(t, id)?;
    t.puts.remove(id)?;
    Ok(())
}

pub(super) fn invalid(what: &'static str, expected: String, got: String) -> CoordinatorError {
    CoordinatorError::Invalid { what, expected, got }
}

fn trash_pending(t: &mut Tables<'_>, stripe: &PendingStripe) -> Result<()> {
    for (i, home) in stripe.homes.iter().enumerate() {
        if let Some(node) = home {
            t.trash(stripe.id, BlockIndex(i as u8), stripe.generation, *node)?;
        }
    }
    Ok(())
}

pub(super) fn taken(name: &str) -> CoordinatorError {
    let hint = "; --replace would replace the object".to_owned();
    CoordinatorError::Exists { what: "object", name: name.into(), hint }
}

pub(super) fn unknown(put: u64) -> CoordinatorError {
    CoordinatorError::NotFound {
        what: "put (it was aborted, its lease ran out, or its object is gone)",
        name: put.to_string(),
    }
}
