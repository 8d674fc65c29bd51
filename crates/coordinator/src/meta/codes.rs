//! Codes: a key for each code in use, and the definitions of registered codes.
//!
//! Invariants: a registered code exists as long as an object, a put or a volume uses it; a key is never reused for another
//! code, so a remembered key can never mean another code.

use std::collections::BTreeSet;

use kintsu_code::{Definition, USER};
use redb::ReadableTable;

use super::record::{self, CodeRecord, ObjectRecord, PendingPut};
use super::volumes::VolumeRecord;
use super::write::Tables;
use super::{Meta, Snapshot, tables};
use crate::error::{CoordinatorError, Result};

impl Meta {
    /// Records a code under its name; false if the same code was recorded before.
    ///
    /// # Errors
    /// The name is taken by another definition; too many codes.
    pub fn register_code(&self, code: &CodeRecord, definition: &Definition) -> Result<bool> {
        self.write(|t| {
            if let Some(key) = t.code_keys.get(code.name.as_str())?.map(|key| key.value()) {
                let row = t.definitions.get(key)?.map(|row| row.value().to_vec()).unwrap_or_default();
                let other: Definition = record::unpack("definition", &row)?;
                return other
                    .difference(definition)
                    .map_or(Ok(false), |difference| Err(taken(&code.name, &difference)));
            }
            let key = t.add_code(code)?;
            t.definitions.insert(key, record::pack(definition).as_slice())?;
            Ok(true)
        })
    }

    /// Forgets a registered code.
    ///
    /// # Errors
    /// No such code; something uses it.
    pub fn remove_code(&self, name: &str) -> Result<()> {
        // The long scan reads a snapshot. The transaction checks only objects and puts that began after the
        // snapshot, so that other transactions need not wait for the scan.
        let snapshot = self.snapshot()?;
        let key = snapshot.registered(name)?.ok_or_else(|| missing(name))?;
        let seen = snapshot.next_put()?;
        let users = users_of(
            key,
            &snapshot.txn.open_table(tables::OBJECTS)?,
            &snapshot.txn.open_table(tables::PUTS)?,
        )?;
        refuse_users(name, users)?;
        self.write(|t| {
            if t.code_keys.get(name)?.map(|key| key.value()) != Some(key) {
                return Err(missing(name));
            }
            refuse_users(name, t.users_since(key, seen)?)?;
            refuse_users(name, volume_with(key, &t.volumes)?)?;
            t.code_keys.remove(name)?;
            t.codes.remove(key)?;
            t.definitions.remove(key)?;
            Ok(())
        })
    }
}

impl Snapshot {
    /// The key of a registered code.
    ///
    /// # Errors
    /// The disk fails.
    pub fn registered(&self, name: &str) -> Result<Option<u16>> {
        if !name.starts_with(USER) {
            return Ok(None);
        }
        Ok(self.txn.open_table(tables::CODE_KEYS)?.get(name)?.map(|key| key.value()))
    }

    /// The keys of all codes that were ever used or registered.
    ///
    /// # Errors
    /// The disk fails.
    pub fn code_keys(&self) -> Result<Vec<u16>> {
        let mut out = Vec::new();
        for row in self.txn.open_table(tables::CODES)?.iter()? {
            out.push(row?.0.value());
        }
        Ok(out)
    }

    /// The keys of the codes that an object, a put under way or a volume has, and how many objects were looked at: until no
    /// code is left that was not seen.
    ///
    /// # Errors
    /// The metadata cannot be read.
    pub fn codes_in_use(&self) -> Result<(BTreeSet<u16>, usize)> {
        let all = self.code_keys()?.len();
        let (mut used, mut looked) = (BTreeSet::new(), 0);
        for row in self.txn.open_table(tables::VOLUMES)?.iter()? {
            used.insert(record::unpack::<VolumeRecord>("volume", row?.1.value())?.code);
        }
        for row in self.txn.open_table(tables::PUTS)?.iter()? {
            used.insert(record::unpack::<PendingPut>("pending put", row?.1.value())?.code);
        }
        for row in self.txn.open_table(tables::OBJECTS)?.iter()? {
            if used.len() >= all {
                break;
            }
            looked += 1;
            used.insert(record::unpack::<ObjectRecord>("object", row?.1.value())?.code);
        }
        Ok((used, looked))
    }

    /// The definition of a registered code; `None` for a code of a family.
    ///
    /// # Errors
    /// The metadata contradict themselves.
    pub fn definition(&self, key: u16) -> Result<Option<Definition>> {
        let table = self.txn.open_table(tables::DEFINITIONS)?;
        table.get(key)?.map(|row| record::unpack("definition", row.value())).transpose()
    }

    /// All registered codes, in order of name.
    ///
    /// # Errors
    /// The metadata contradict themselves.
    pub fn definitions(&self) -> Result<Vec<Definition>> {
        let mut out = Vec::new();
        for row in self.txn.open_table(tables::DEFINITIONS)?.iter()? {
            out.push(record::unpack::<Definition>("definition", row?.1.value())?);
        }
        out.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(out)
    }

    fn next_put(&self) -> Result<u64> {
        Ok(self.txn.open_table(tables::COUNTERS)?.get(tables::COUNT_PUT)?.map_or(0, |v| v.value()))
    }
}

impl Tables<'_> {
    /// The key of a code. A new code of a family is recorded; a registered code must exist.
    pub fn code_key(&mut self, code: &CodeRecord) -> Result<u16> {
        let found = self.code_keys.get(code.name.as_str())?.map(|key| key.value());
        match found {
            // Since the code was looked up, it may have been removed, and another code registered under its name.
            Some(key) if code.name.starts_with(USER) && self.code(key)? != *code => Err(missing(&code.name)),
            Some(key) => Ok(key),
            None if code.name.starts_with(USER) => Err(missing(&code.name)),
            None => self.add_code(code),
        }
    }

    pub(super) fn add_code(&mut self, code: &CodeRecord) -> Result<u16> {
        let after_last = self.codes.last()?.map_or(0, |(key, _)| u64::from(key.value()) + 1);
        let next = self.counter(tables::COUNT_CODE)?.max(after_last);
        let key = u16::try_from(next).map_err(|_| CoordinatorError::Conflict {
            what: "new code".into(),
            expected: "at most 65536 codes in the life of a cluster".into(),
            got: code.name.clone(),
        })?;
        self.set_counter(tables::COUNT_CODE, next + 1)?;
        self.codes.insert(key, record::pack(code).as_slice())?;
        self.code_keys.insert(code.name.as_str(), key)?;
        Ok(key)
    }

    /// An object or put with an id of `first` or more that uses a code.
    fn users_since(&self, key: u16, first: u64) -> Result<Option<String>> {
        for row in self.names.range(first..)? {
            let name = row?.1.value().to_owned();
            let row = self.objects.get(name.as_str())?.map(|row| row.value().to_vec());
            if let Some(row) = row
                && record::unpack::<ObjectRecord>("object", &row)?.code == key
            {
                return Ok(Some(format!("object {name:?}")));
            }
        }
        put_with(key, self.puts.range(first..)?)
    }
}

/// An object or put under way that uses a code.
fn users_of(
    key: u16,
    objects: &impl ReadableTable<&'static str, &'static [u8]>,
    puts: &impl ReadableTable<u64, &'static [u8]>,
) -> Result<Option<String>> {
    for row in objects.iter()? {
        let (name, object) = row?;
        if record::unpack::<ObjectRecord>("object", object.value())?.code == key {
            return Ok(Some(format!("object {:?}", name.value())));
        }
    }
    put_with(key, puts.iter()?)
}

fn put_with(key: u16, puts: redb::Range<'_, u64, &'static [u8]>) -> Result<Option<String>> {
    for row in puts {
        let put: PendingPut = record::unpack("pending put", row?.1.value())?;
        if put.code == key {
            return Ok(Some(format!("the put of {:?}", put.name)));
        }
    }
    Ok(None)
}

/// A volume that uses a code, though it may have no stripe yet.
fn volume_with(
    key: u16,
    volumes: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<Option<String>> {
    for row in volumes.iter()? {
        let (name, volume) = row?;
        if record::unpack::<VolumeRecord>("volume", volume.value())?.code == key {
            return Ok(Some(format!("volume {:?}", name.value())));
        }
    }
    Ok(None)
}

fn refuse_users(name: &str, user: Option<String>) -> Result<()> {
    let conflict = |got| CoordinatorError::Conflict {
        what: format!("cannot remove code {name:?}"),
        expected: "a code that no object uses".into(),
        got,
    };
    user.map_or(Ok(()), |user| Err(conflict(format!("one that is used by {user}"))))
}

fn taken(name: &str, difference: &str) -> CoordinatorError {
    let hint = format!(" by another definition: it would be {difference}");
    CoordinatorError::Exists { what: "code", name: name.into(), hint }
}

/// The error for a code that is not registered.
pub fn missing(name: &str) -> CoordinatorError {
    CoordinatorError::NotFound { what: "code", name: name.into() }
}
