//! Puts: from the first grant to a visible object, or to garbage.

use kintsu_dag::{BlockIndex, NodeId, StripeId};
use kintsu_plan::Layout;
use kintsu_wire::message::{Encoding, ObjectInfo, WrittenStripe};
use redb::{ReadableTable, ReadableTableMetadata};

use super::objects::info;
use super::record::{self, BlockRecord, CodeRecord, ObjectRecord, PendingPut, PendingStripe, StripeRecord};
use super::write::Tables;
use super::{Meta, Snapshot, tables};
use crate::error::{CoordinatorError, Result};

/// The generation that blocks are written with.
const FIRST_GENERATION: u32 = 1;

/// What is asked of a new put.
#[derive(Debug, Clone)]
pub struct NewPut {
    /// The name to be.
    pub name: String,
    /// Its length in bytes.
    pub size: u64,
    /// Its code.
    pub code: CodeRecord,
    /// When it is encoded.
    pub encoding: Encoding,
    /// Whether an object of this name may be replaced.
    pub replace: bool,
    /// The first byte and the layout of each stripe, in order.
    pub layouts: Vec<(u64, Layout)>,
}

impl Meta {
    /// Records a put under way; `place` gives the homes of a stripe.
    ///
    /// # Errors
    /// The name exists and may not be replaced; those of `place`.
    pub fn begin_put(
        &self,
        new: NewPut,
        mut place: impl FnMut(StripeId, &Layout) -> Result<Vec<Option<NodeId>>>,
    ) -> Result<(u64, PendingPut)> {
        self.write(|t| {
            if !new.replace && t.objects.get(new.name.as_str())?.is_some() {
                return Err(taken(&new.name));
            }
            let code = t.code_key(&new.code)?;
            let id = t.next(tables::COUNT_PUT, 1)?;
            let first = t.next(tables::COUNT_STRIPE, new.layouts.len() as u64)?;
            let grant = |(i, (offset, layout)): (usize, &(u64, Layout))| {
                let id = StripeId(first + i as u64);
                let homes = place(id, layout)?;
                Ok(PendingStripe {
                    id,
                    generation: FIRST_GENERATION,
                    offset: *offset,
                    layout: *layout,
                    homes,
                })
            };
            let stripes = new.layouts.iter().enumerate().map(grant).collect::<Result<Vec<_>>>()?;
            let NewPut { name, size, encoding, replace, .. } = new;
            let put = PendingPut { name, size, code, encoding, replace, stripes };
            t.set_put(id, &put)?;
            Ok((id, put))
        })
    }

    /// Places one stripe of a put anew, under a new id; what was written of it becomes garbage.
    ///
    /// # Errors
    /// No such put or stripe; those of `place`.
    pub fn move_stripe(
        &self,
        put: u64,
        stripe: StripeId,
        place: impl FnOnce(StripeId, &PendingPut, &Layout) -> Result<Vec<Option<NodeId>>>,
    ) -> Result<PendingStripe> {
        self.write(|t| {
            let mut pending = t.put(put)?.ok_or_else(|| unknown(put))?;
            let at = pending.stripes.iter().position(|s| s.id == stripe);
            let at = at.ok_or_else(|| CoordinatorError::NotFound {
                what: "stripe of the put",
                name: stripe.to_string(),
            })?;
            let id = StripeId(t.next(tables::COUNT_STRIPE, 1)?);
            let old = pending.stripes[at].clone();
            let homes = place(id, &pending, &old.layout)?;
            trash_pending(t, &old)?;
            let new = PendingStripe {
                id,
                generation: FIRST_GENERATION,
                offset: old.offset,
                layout: old.layout,
                homes,
            };
            pending.stripes[at] = new.clone();
            t.set_put(put, &pending)?;
            Ok(new)
        })
    }

    /// Makes a put visible, in place of an object of the same name if that was allowed. Repeating
    /// it is harmless.
    ///
    /// # Errors
    /// No such put; a digest too few or too many; the name was taken meanwhile, and then the put's
    /// blocks become garbage.
    pub fn commit_put(&self, put: u64, written: &[WrittenStripe], created: u64) -> Result<ObjectInfo> {
        self.write(|t| {
            let Some(pending) = t.put(put)? else { return committed(t, put).map(Ok) };
            let code = t.code(pending.code)?;
            check_written(&pending, &code, written)?;
            let old = t.objects.get(pending.name.as_str())?.map(|row| row.value().to_vec());
            if old.is_some() && !pending.replace {
                discard(t, put, &pending)?;
                return Ok(Err(taken(&pending.name)));
            }
            if let Some(old) = old {
                super::objects::drop_object(t, &pending.name, &record::unpack("object", &old)?)?;
            }
            show(t, put, &pending, written, created)?;
            t.puts.remove(put)?;
            committed(t, put).map(Ok)
        })?
    }

    /// Gives a put up; what was written of it becomes garbage. A put that is not there is no error.
    ///
    /// # Errors
    /// The put is visible already.
    pub fn abort_put(&self, put: u64) -> Result<bool> {
        self.write(|t| match t.put(put)? {
            Some(pending) => discard(t, put, &pending).map(|()| true),
            None if t.names.get(put)?.is_some() => Err(CoordinatorError::Conflict {
                what: format!("abort of put {put}"),
                expected: "a put under way".into(),
                got: "an object that is visible".into(),
            }),
            None => Ok(false),
        })
    }
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
}

impl Snapshot {
    /// How many puts under way may write to a node.
    ///
    /// # Errors
    /// The disk fails.
    pub fn puts_on(&self, node: NodeId) -> Result<u64> {
        let table = self.txn.open_table(tables::PUTS)?;
        let mut count = 0;
        for row in table.iter()? {
            let put: PendingPut = record::unpack("pending put", row?.1.value())?;
            count += u64::from(put.stripes.iter().any(|stripe| stripe.homes.contains(&Some(node))));
        }
        Ok(count)
    }
}

/// The answer to a commit that is done, now or earlier.
fn committed(t: &Tables<'_>, put: u64) -> Result<ObjectInfo> {
    let name = t.names.get(put)?.map(|row| row.value().to_owned()).ok_or_else(|| unknown(put))?;
    let row = t.objects.get(name.as_str())?.map(|row| row.value().to_vec()).ok_or_else(|| unknown(put))?;
    let object: ObjectRecord = record::unpack("object", &row)?;
    let code = t.code(object.code)?;
    Ok(info(&name, &object, &code.name))
}

/// Every block that has bytes, and only those, must come with a digest; offline, data blocks only.
fn check_written(put: &PendingPut, code: &CodeRecord, written: &[WrittenStripe]) -> Result<()> {
    let invalid = |what, expected: String, got: String| CoordinatorError::Invalid { what, expected, got };
    if written.len() != put.stripes.len() {
        let expected = format!("{} stripes", put.stripes.len());
        return Err(invalid("commit", expected, format!("{}", written.len())));
    }
    let (n, k) = (usize::from(code.n), usize::from(code.k));
    for (granted, got) in put.stripes.iter().zip(written) {
        if granted.id != got.id || got.digests.len() != n {
            let expected = format!("stripe {} with {n} digests", granted.id);
            return Err(invalid("commit", expected, format!("{} with {}", got.id, got.digests.len())));
        }
        for (i, digest) in got.digests.iter().enumerate() {
            let made = i < k || put.encoding == Encoding::Online;
            let want = made && granted.layout.block_len(k, BlockIndex(i as u8)) > 0;
            if want != digest.is_some() {
                let text = |has: bool| if has { "a digest".to_owned() } else { "none".to_owned() };
                let expected = format!("{} for block {}.b{i}", text(want), granted.id);
                return Err(invalid("commit", expected, text(digest.is_some())));
            }
        }
    }
    Ok(())
}

fn show(
    t: &mut Tables<'_>,
    put: u64,
    pending: &PendingPut,
    written: &[WrittenStripe],
    created: u64,
) -> Result<()> {
    let encoded = pending.encoding == Encoding::Online;
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (granted, got) in pending.stripes.iter().zip(written) {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == granted.id.0 => *count += 1,
            _ => runs.push((granted.id.0, 1)),
        }
        let block =
            |(node, digest): (&Option<NodeId>, _)| node.map(|node| BlockRecord { node, digest, lost: false });
        let stripe = StripeRecord {
            owner: put,
            offset: granted.offset,
            code: pending.code,
            generation: granted.generation,
            layout: granted.layout,
            encoded,
            blocks: granted.homes.iter().zip(got.digests.iter().copied()).map(block).collect(),
        };
        for (index, block) in stripe.made() {
            t.settle(granted.id, index, granted.generation, block.node)?;
        }
        t.set_stripe(granted.id, &stripe)?;
    }
    let count = pending.stripes.len() as u64;
    let object = ObjectRecord {
        id: put,
        size: pending.size,
        code: pending.code,
        encoding: pending.encoding,
        encoded: if encoded { count } else { 0 },
        created,
        runs,
    };
    t.objects.insert(pending.name.as_str(), record::pack(&object).as_slice())?;
    t.names.insert(put, pending.name.as_str())?;
    let bytes = t.counter(tables::COUNT_BYTES)?;
    t.set_counter(tables::COUNT_BYTES, bytes + pending.size)
}

fn discard(t: &mut Tables<'_>, put: u64, pending: &PendingPut) -> Result<()> {
    for stripe in &pending.stripes {
        trash_pending(t, stripe)?;
    }
    super::graves::bury(t, put)?;
    t.puts.remove(put)?;
    Ok(())
}

fn trash_pending(t: &mut Tables<'_>, stripe: &PendingStripe) -> Result<()> {
    for (i, home) in stripe.homes.iter().enumerate() {
        if let Some(node) = home {
            t.trash(stripe.id, BlockIndex(i as u8), stripe.generation, *node)?;
        }
    }
    Ok(())
}

fn taken(name: &str) -> CoordinatorError {
    let hint = "; --replace would replace the object".to_owned();
    CoordinatorError::Exists { what: "object", name: name.into(), hint }
}

fn unknown(put: u64) -> CoordinatorError {
    CoordinatorError::NotFound {
        what: "put (it was aborted, its lease ran out, or its object is gone)",
        name: put.to_string(),
    }
}
