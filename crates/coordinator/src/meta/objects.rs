//! Visible objects: find, list, remove.

use kintsu_code::{Definition, USER};
use kintsu_dag::{BlockId, BlockIndex, StripeId};
use kintsu_wire::message::{BlockPlace, List, ListPage, ObjectInfo, StripeInfo};

use redb::ReadableTable;

use super::record::{self, CodeRecord, ObjectRecord, Packed, StripeRecord};
use super::write::Tables;
use super::{Meta, Snapshot, packs, tables, tombstones, volumes};
use crate::engine::put::OF_S3;
use crate::error::{CoordinatorError, Result};

/// Names that begin like these are not listed among others: stripes of volumes, and what the S3 gateway keeps.
const HIDDEN: [&str; 2] = [volumes::RESERVED, OF_S3];

/// The position of the first of some stripes of an object, and these stripes.
pub type Page = (u64, Vec<StripeInfo>);

impl Snapshot {
    /// The object of this name.
    ///
    /// # Errors
    /// No object of this name.
    pub fn object(&self, name: &str) -> Result<ObjectRecord> {
        let table = self.txn.open_table(tables::OBJECTS)?;
        let row = table.get(name)?.ok_or_else(|| missing(name))?;
        record::unpack("object", row.value())
    }

    /// The object of this name, at most `limit` of its stripes from position `first` on (or from the one that holds the
    /// byte `at`), with that position, both in the form that clients get, and with stripes the definition of its code, if
    /// that was registered. Each row is read once; a byte is found by bisection.
    ///
    /// # Errors
    /// No object of this name; the metadata contradict themselves.
    pub fn view(
        &self,
        name: &str,
        (first, at): (u64, Option<u64>),
        limit: u64,
    ) -> Result<(ObjectInfo, Page, Option<Definition>)> {
        let object = self.object(name)?;
        let first = at.map_or(Ok(first), |at| self.position(&object, at))?;
        let code = self.code(object.code)?;
        let registered = limit > 0 && code.name.starts_with(USER);
        let definition = if registered { self.definition(object.code)? } else { None };
        let stripes = self.stripes_of(&object, &code, first, limit)?;
        Ok((info(name, &object, &code.name), (first, stripes), definition))
    }

    /// The position of the stripe that holds a byte of an object; of the last one for a byte behind the end.
    fn position(&self, object: &ObjectRecord, at: u64) -> Result<u64> {
        let (mut from, mut upto) = (0, object.stripes());
        // The stripe is in from..upto, because the first one begins at 0.
        while upto - from > 1 {
            let middle = from + (upto - from) / 2;
            let offset = match object.ids(middle, 1).first() {
                Some((_, id)) => self.stripe(*id)?.map_or(u64::MAX, |stripe| stripe.offset),
                None => u64::MAX,
            };
            if offset <= at { from = middle } else { upto = middle }
        }
        Ok(from)
    }

    /// The name of the object with this id, if it is visible.
    ///
    /// # Errors
    /// The disk fails.
    pub fn name(&self, object: u64) -> Result<Option<String>> {
        Ok(self.txn.open_table(tables::NAMES)?.get(object)?.map(|row| row.value().to_owned()))
    }

    /// The same, if the name begins like this.
    ///
    /// # Errors
    /// No such object.
    pub fn name_of(&self, object: u64, begins: &str) -> Result<String> {
        let name = self.name(object)?.filter(|name| name.starts_with(begins));
        name.ok_or_else(|| missing(&format!("{begins}... with the id {object}")))
    }

    /// One stripe, if it is visible.
    ///
    /// # Errors
    /// The disk fails.
    pub fn stripe(&self, id: StripeId) -> Result<Option<StripeRecord>> {
        self.stripes.get(id.0)?.map(|row| StripeRecord::unpack(row.value())).transpose()
    }

    fn stripes_of(
        &self,
        object: &ObjectRecord,
        code: &CodeRecord,
        first: u64,
        limit: u64,
    ) -> Result<Vec<StripeInfo>> {
        let mut out = Vec::new();
        for (_, id) in object.ids(first, limit) {
            let row = self.stripes.get(id.0)?.ok_or_else(|| CoordinatorError::Corrupt {
                what: format!("stripe {id}"),
                expected: "a row for every stripe of an object".into(),
                got: "none".into(),
            })?;
            let stripe = StripeRecord::unpack(row.value())?;
            let before = object.packed.map_or(0, |packed| packed.at);
            out.push(StripeInfo { before, ..stripe_info(id, &stripe, &code.name, usize::from(code.k)) });
        }
        Ok(out)
    }

    /// At most `limit` objects and prefixes in order of name, whose names begin with `prefix` and come after `after`.
    /// Names that have a `delimiter` after `prefix` are given by their common prefix, unless it is empty. One lookup
    /// for each object and each prefix.
    ///
    /// # Errors
    /// The disk fails.
    pub fn list(&self, list: &List) -> Result<ListPage> {
        let List { prefix, after, limit, delimiter } = list;
        let table = self.txn.open_table(tables::OBJECTS)?;
        let mut page = ListPage { objects: Vec::new(), prefixes: Vec::new(), more: false };
        let mut code = (None, String::new());
        // The last name or prefix that was listed, by this page or an earlier one.
        let mut last: Option<String> = after.clone();
        'from: loop {
            // Of the names with a listed prefix, those that sort behind nearly all others are met again: see below.
            let begin = match &last {
                Some(last) if common(last, prefix, delimiter) == Some(last.as_str()) => {
                    format!("{last}{}", char::MAX)
                }
                Some(last) => last.clone(),
                None => prefix.clone(),
            };
            for row in table.range(begin.as_str().max(prefix)..)? {
                let (name, row) = row?;
                let name = name.value();
                // These are shown to those who ask for them.
                let hidden = |start: &&&str| name.starts_with(**start) && !prefix.starts_with(**start);
                if let Some(start) = HIDDEN.iter().find(hidden) {
                    last = Some(format!("{start}{}", char::MAX));
                    continue 'from;
                }
                if !name.starts_with(prefix.as_str()) {
                    return Ok(page);
                }
                let shown = common(name, prefix, delimiter);
                if last.as_deref() == Some(shown.unwrap_or(name)) {
                    continue;
                }
                if page.objects.len() + page.prefixes.len() == *limit as usize {
                    page.more = true;
                    return Ok(page);
                }
                last = Some(shown.unwrap_or(name).to_owned());
                if let Some(shown) = shown {
                    page.prefixes.push(shown.to_owned());
                    continue 'from;
                }
                let object: ObjectRecord = record::unpack("object", row.value())?;
                if code.0 != Some(object.code) {
                    code = (Some(object.code), self.code(object.code)?.name);
                }
                let mut object = info(name, &object, &code.1);
                object.attributes.for_listing();
                page.objects.push(object);
            }
            return Ok(page);
        }
    }
}

impl Meta {
    /// Removes an object; its blocks become garbage.
    ///
    /// # Errors
    /// No object of this name.
    pub fn remove(&self, name: &str) -> Result<ObjectInfo> {
        self.write(|t| {
            let object = t.object(name)?.ok_or_else(|| missing(name))?;
            let code = t.code(object.code)?;
            drop_object(t, name, &object)?;
            Ok(info(name, &object, &code.name))
        })
    }
}

/// Makes an object visible whose stripes are recorded. No other object may have its name.
pub fn add_object(t: &mut Tables<'_>, name: &str, object: &ObjectRecord) -> Result<()> {
    t.set_object(name, object)?;
    t.names.insert(object.id, name)?;
    let bytes = t.counter(tables::COUNT_BYTES)?;
    t.set_counter(tables::COUNT_BYTES, bytes + object.size)?;
    count_plain(t, object.plain(), 0)
}

/// Forgets an object and its stripes; of a pack, its place there, and the pack with its last member.
pub fn drop_object(t: &mut Tables<'_>, name: &str, object: &ObjectRecord) -> Result<()> {
    t.objects.remove(name)?;
    volumes::forget_stripe(t, name)?;
    let number = tombstones::add(t, object.id)?;
    t.names.remove(object.id)?;
    match object.packed {
        Some(Packed { pack, .. }) => packs::release(t, pack, object.size, Some(number))?,
        None => {
            t.loose.remove(object.id)?;
            object.ids(0, u64::MAX).into_iter().try_for_each(|(_, id)| t.drop_stripe(id))?;
        }
    }
    let bytes = t.counter(tables::COUNT_BYTES)?;
    t.set_counter(tables::COUNT_BYTES, bytes.saturating_sub(object.size))?;
    count_plain(t, 0, object.plain())
}

/// Counts stripes without parity that appear or go.
pub fn count_plain(t: &mut Tables<'_>, more: u64, fewer: u64) -> Result<()> {
    if more == fewer {
        return Ok(());
    }
    let count = t.counter(tables::COUNT_PLAIN)? + more;
    t.set_counter(tables::COUNT_PLAIN, count.saturating_sub(fewer))
}

/// Counts the stripes without parity in metadata that have no such counter yet.
pub fn begin_to_count_plain(t: &mut Tables<'_>) -> Result<()> {
    if t.counters.get(tables::COUNT_PLAIN)?.is_some() {
        return Ok(());
    }
    let mut plain = 0;
    for row in t.objects.iter()? {
        plain += record::unpack::<ObjectRecord>("object", row?.1.value())?.plain();
    }
    t.set_counter(tables::COUNT_PLAIN, plain)
}

/// An object in the form that clients get.
pub fn info(name: &str, object: &ObjectRecord, code: &str) -> ObjectInfo {
    ObjectInfo {
        name: name.into(),
        size: object.size,
        code: code.into(),
        encoding: object.encoding,
        encoded: object.encoded == object.stripes(),
        stripes: object.stripes(),
        created: object.created,
        checksum: object.checksum,
        attributes: object.attributes.clone(),
        id: object.id,
    }
}

/// The beginning that a name has in common with others: up to the first delimiter after `prefix`, if there is one.
fn common<'n>(name: &'n str, prefix: &str, delimiter: &str) -> Option<&'n str> {
    let at = name.strip_prefix(prefix).filter(|_| !delimiter.is_empty())?.find(delimiter)?;
    name.get(..prefix.len() + at + delimiter.len())
}

fn stripe_info(id: StripeId, stripe: &StripeRecord, code: &str, k: usize) -> StripeInfo {
    let place = |(i, block): (usize, &Option<record::BlockRecord>)| {
        let block = block.as_ref()?;
        let index = BlockIndex(i as u8);
        Some(BlockPlace {
            id: BlockId { stripe: id, index },
            node: block.node,
            len: stripe.layout.block_len(k, index),
            digest: block.digest,
            lost: block.lost,
            generation: (block.generation != stripe.generation).then_some(block.generation),
        })
    };
    StripeInfo {
        id,
        generation: stripe.generation,
        code: code.into(),
        layout: stripe.layout,
        offset: stripe.offset,
        before: 0,
        encoded: stripe.encoded,
        blocks: stripe.blocks.iter().enumerate().map(place).collect(),
        tickets: Vec::new(),
    }
}

fn missing(name: &str) -> CoordinatorError {
    CoordinatorError::NotFound { what: "object", name: name.into() }
}
