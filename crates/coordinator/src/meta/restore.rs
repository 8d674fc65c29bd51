//! Metadata from a copy: `docs/format.md`, "Metadata copy".
//!
//! The store is written under a temporary name and gets its final name only after the checksum of the whole copy
//! was right: a copy that is cut short or changed replaces nothing. `by_node` and `tally` are derived from the
//! stripes. Memory: the cache, a frame, and a batch of rows that are sorted before they are inserted.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::DeflateDecoder;
use kintsu_dag::StripeId;
use kintsu_wire::copy::{COPY_SUM_BYTES, CopyCheck, CopyError, CopyHeader};
use redb::{Database, Key, TableDefinition, TableHandle, Value, WriteTransaction};

use super::record::StripeRecord;
use super::tables::{self, Visit};
use super::write::Tables;
use super::{FILE, Failure, database, in_use};
use crate::error::{CoordinatorError, Result};

/// Name of the store's file while it is being restored.
const ASIDE: &str = "metadata.redb.restoring";
/// Frames per transaction. More would take more memory for dirty pages; what a crash undoes does not matter.
const FRAMES: usize = 64;
/// Rows of `by_node` that are sorted and inserted at a time.
const BATCH: usize = 1 << 20;
/// Longest frame, packed or unpacked.
const MOST_FRAME_BYTES: u64 = 1 << 30;

/// Restores the metadata in `dir` from a copy; calls `progress` with the number of stripes restored so far.
///
/// # Errors
/// `Conflict` if the folder holds metadata already or another process restores there; `Copy` and `Corrupt` if the
/// copy is not sound or was made by a newer program; `Io`. On error nothing was changed.
pub fn restore(
    dir: &Path,
    cache_bytes: usize,
    copy: impl Read,
    progress: &mut dyn FnMut(u64),
) -> Result<CopyHeader> {
    let io = |source| CoordinatorError::Io { what: format!("cannot restore in {}", dir.display()), source };
    std::fs::create_dir_all(dir).map_err(io)?;
    refuse_present(dir)?;
    let aside = dir.join(ASIDE);
    let file = File::options().read(true).write(true).create(true).truncate(false).open(&aside);
    let file = file.map_err(io)?;
    match file.try_lock() {
        Err(std::fs::TryLockError::WouldBlock) => return Err(in_use(dir)),
        Err(std::fs::TryLockError::Error(error)) => return Err(io(error)),
        Ok(()) => {}
    }
    // Removes what an earlier attempt left.
    file.set_len(0).map_err(io)?;
    let failure = Failure::new(dir);
    let restored = || -> Result<CopyHeader> {
        let db = database(super::file_backend(file)?, cache_bytes, failure.clone())?;
        let header = Restoring::run(&db, copy, progress)?;
        drop(db);
        // An error of the last write is only noted by the file, not returned by the store.
        failure.check()?;
        refuse_present(dir)?;
        std::fs::rename(&aside, dir.join(FILE)).map_err(io)?;
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
        Ok(header)
    };
    restored().map_err(|error| {
        // If the file cannot be removed, the next attempt overwrites it.
        let _ = std::fs::remove_file(&aside);
        failure.explain(error)
    })
}

/// Whether a folder holds metadata.
///
/// # Errors
/// The folder cannot be read.
pub fn present(dir: &Path) -> Result<bool> {
    let path = dir.join(FILE);
    path.try_exists().map_err(|source| CoordinatorError::Io { what: path.display().to_string(), source })
}

/// Refuses to restore into a folder that holds metadata.
///
/// # Errors
/// `Conflict` if it holds metadata; the folder cannot be read.
pub fn refuse_present(dir: &Path) -> Result<()> {
    if !present(dir)? {
        return Ok(());
    }
    Err(CoordinatorError::Conflict {
        what: format!("cannot restore in {}", dir.display()),
        expected: "a folder without metadata".into(),
        got: format!("one that holds {FILE}: start without --restore to use it, or name another folder"),
    })
}

/// Reads a copy; all its bytes pass through the checksum.
struct Copy<R> {
    from: R,
    check: CopyCheck,
}

impl<R: Read> Copy<R> {
    /// Reads exactly `len` bytes into `out`; memory grows only as bytes arrive.
    fn take(&mut self, len: u64, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let got = (&mut self.from).take(len).read_to_end(out).map_err(|source| CoordinatorError::Io {
            what: "cannot read the copy of the metadata".into(),
            source,
        })?;
        self.check.push(out)?;
        if got as u64 == len { Ok(()) } else { Err(damaged("its length", "more bytes", "its end").into()) }
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Result<u64> {
        self.take(4, out)?;
        Ok(out.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)).into())
    }
}

fn damaged(what: &'static str, expected: &str, got: impl ToString) -> CopyError {
    CopyError { what, expected: expected.into(), got: got.to_string() }
}

/// A restore under way.
struct Restoring<'a> {
    db: &'a Database,
    /// Rows for `by_node`: (node, stripe, index).
    homes: Vec<(u32, u64, u8)>,
    /// Rows for `tally`.
    tally: HashMap<u32, (u64, u64)>,
    stripes: u64,
}

impl Restoring<'_> {
    fn run(db: &Database, from: impl Read, progress: &mut dyn FnMut(u64)) -> Result<CopyHeader> {
        let mut copy = Copy { from, check: CopyCheck::default() };
        let mut bytes = Vec::new();
        copy.take(16, &mut bytes)?;
        let header_len = bytes.last_chunk().map_or(0, |len| u32::from_le_bytes(*len));
        copy.take(header_len.into(), &mut bytes)?;
        let header = copy.check.header().cloned();
        let header = header.ok_or_else(|| damaged("its header", "a header", "none"))?;
        if header.layout > tables::VERSION {
            return Err(CoordinatorError::Corrupt {
                what: "copy of the metadata".into(),
                expected: format!("a layout of version {} at most", tables::VERSION),
                got: format!("version {}, of a newer program", header.layout),
            });
        }
        let mut work = Restoring { db, homes: Vec::new(), tally: HashMap::new(), stripes: 0 };
        while work.transaction(&mut copy, &mut bytes)? {
            progress(work.stripes);
        }
        copy.take(COPY_SUM_BYTES as u64, &mut bytes)?;
        let mut more = [0];
        if copy.from.read(&mut more).is_ok_and(|bytes| bytes > 0) {
            return Err(damaged("its length", "its end after the sum", "more bytes").into());
        }
        let header = copy.check.finish()?.header;
        work.finish(&header)?;
        Ok(header)
    }

    /// Restores some frames; returns false after the last one.
    fn transaction(&mut self, copy: &mut Copy<impl Read>, bytes: &mut Vec<u8>) -> Result<bool> {
        let txn = self.db.begin_write()?;
        let mut more = true;
        for _ in 0..FRAMES {
            let (packed, unpacked) = (copy.number(bytes)?, copy.number(bytes)?);
            if packed == 0 {
                more = false;
                break;
            }
            if packed.max(unpacked) > MOST_FRAME_BYTES {
                return Err(damaged("a frame", "at most 1 GiB", packed.max(unpacked)).into());
            }
            copy.take(packed, bytes)?;
            let mut rows = Vec::new();
            let decoder = DeflateDecoder::new(bytes.as_slice());
            let got = decoder.take(unpacked + 1).read_to_end(&mut rows);
            let got = got.map_err(|error: io::Error| damaged("a frame", "deflated rows", error))?;
            if got as u64 != unpacked {
                return Err(damaged("a frame", &format!("{unpacked} bytes of rows"), got).into());
            }
            self.frame(&txn, &rows)?;
            if self.homes.len() >= BATCH {
                self.settle(&txn)?;
            }
        }
        txn.commit()?;
        Ok(more)
    }

    fn frame(&mut self, txn: &WriteTransaction, frame: &[u8]) -> Result<()> {
        let (name, rows) = frame
            .split_first()
            .and_then(|(len, rest)| rest.split_at_checked((*len).into()))
            .ok_or_else(|| damaged("a frame", "the name of a table", "less"))?;
        let mut inserting = Inserting { txn, name, rows, found: false };
        tables::copied(&mut inserting)?;
        if !inserting.found {
            return Err(CoordinatorError::Corrupt {
                what: "copy of the metadata".into(),
                expected: "tables that this program knows".into(),
                got: format!("{:?}, of a newer program or damaged", String::from_utf8_lossy(name)),
            });
        }
        if name == tables::STRIPES.name().as_bytes() {
            self.gather(rows)?;
        }
        Ok(())
    }

    /// Collects the homes of blocks from rows of stripes.
    fn gather(&mut self, rows: &[u8]) -> Result<()> {
        each_row(rows, |key, value| {
            let id = key.first_chunk().map(|bytes| StripeId(u64::from_le_bytes(*bytes)));
            let id = id.ok_or_else(|| damaged("a row", "the id of a stripe", "less"))?;
            for (index, block) in StripeRecord::unpack(value)?.made() {
                self.homes.push((block.node.0, id.0, index.0));
                let count = self.tally.entry(block.node.0).or_default();
                count.0 += 1;
                count.1 += u64::from(block.lost);
            }
            self.stripes += 1;
            Ok(())
        })
    }

    /// Inserts the collected rows in order of node, so that rows of the same database page are inserted together.
    fn settle(&mut self, txn: &WriteTransaction) -> Result<()> {
        self.homes.sort_unstable();
        let mut table = txn.open_table(tables::BY_NODE)?;
        for &(node, stripe, index) in &self.homes {
            table.insert((node, stripe), index)?;
        }
        self.homes.clear();
        Ok(())
    }

    fn finish(&mut self, header: &CopyHeader) -> Result<()> {
        let mut txn = self.db.begin_write()?;
        txn.set_quick_repair(true);
        self.settle(&txn)?;
        let mut tables = Tables::open(&txn)?;
        for (node, counts) in &self.tally {
            tables.tally.insert(node, counts)?;
        }
        tables.set_counter(tables::COUNT_COPY, header.number)?;
        tables.set_counter(tables::COUNT_COPY_TIME, header.time)?;
        drop(tables);
        txn.commit()?;
        Ok(())
    }
}

/// Inserts the rows of a frame into the table of this name.
struct Inserting<'a> {
    txn: &'a WriteTransaction,
    name: &'a [u8],
    rows: &'a [u8],
    found: bool,
}

impl Visit for Inserting<'_> {
    fn table<K, V>(&mut self, table: TableDefinition<'static, K, V>) -> Result<()>
    where
        K: Key + 'static,
        V: Value + 'static,
    {
        if table.name().as_bytes() != self.name {
            return Ok(());
        }
        self.found = true;
        let mut opened = self.txn.open_table(table)?;
        each_row(self.rows, |key, value| {
            if !fits::<K>(key) || !fits::<V>(value) {
                return Err(damaged("a row", "a key and a value of its table", "others").into());
            }
            opened.insert(K::from_bytes(key), V::from_bytes(value))?;
            Ok(())
        })
    }
}

/// Whether these bytes are valid for the type, whose own reader does not check them.
fn fits<T: Value>(bytes: &[u8]) -> bool {
    match T::fixed_width() {
        Some(width) => bytes.len() == width,
        None => T::type_name() != <&str>::type_name() || std::str::from_utf8(bytes).is_ok(),
    }
}

fn each_row(mut rows: &[u8], mut row: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let part = |rows: &mut &[u8]| -> Option<usize> {
        let (len, rest) = rows.split_first_chunk()?;
        *rows = rest;
        Some(u32::from_le_bytes(*len) as usize)
    };
    while !rows.is_empty() {
        let mut next = || {
            let len = part(&mut rows)?;
            let (bytes, rest) = rows.split_at_checked(len)?;
            rows = rest;
            Some(bytes)
        };
        let (Some(key), Some(value)) = (next(), next()) else {
            return Err(damaged("a frame", "whole rows", "a part of one").into());
        };
        row(key, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
