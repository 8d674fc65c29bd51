//! A consistent copy of all metadata as a stream of bytes: `docs/format.md`, "Metadata copy".
//!
//! The copy is read from one snapshot, table by table and page by page, while transactions go on. Memory: one
//! frame and its packed form, whatever the number of stripes. As long as the snapshot exists, the store keeps the
//! pages that were replaced since.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use kintsu_wire::ClusterId;
use kintsu_wire::copy::{CopyHeader, CopySeal, CopySum};
use redb::{Key, ReadableTable, TableDefinition, TableHandle, Value};

use super::tables::{self, Visit};
use super::{Meta, Snapshot};
use crate::error::{CoordinatorError, Result};

/// A frame is packed as soon as its rows take this many bytes; only a longer row makes a longer frame.
const FRAME_BYTES: usize = 1 << 20;
/// A higher level costs twice the time and saves a twentieth of the bytes, because most bytes are digests.
const LEVEL: Compression = Compression::new(1);

impl Snapshot {
    /// The header of a copy of this snapshot, taken at `time` (seconds since 1970).
    ///
    /// # Errors
    /// The disk fails.
    pub fn copy_header(&self, time: u64, cluster: Option<ClusterId>) -> Result<CopyHeader> {
        let counters = self.txn.open_table(tables::COUNTERS)?;
        let counter = |name: &str| Ok::<_, CoordinatorError>(counters.get(name)?.map_or(0, |v| v.value()));
        let totals = self.totals()?;
        Ok(CopyHeader {
            // Taken from the clock, so that after a restore of an older copy new numbers are above all earlier
            // ones; but always above the last number, whatever the clock says.
            number: time.max(counter(tables::COUNT_COPY)? + 1),
            time,
            history: counter(tables::COUNT_HISTORY)?,
            layout: counter(tables::COUNT_VERSION)?,
            objects: totals.objects,
            stripes: totals.stripes,
            cluster,
        })
    }

    /// Writes a copy; calls `progress` with the number of stripes written so far.
    ///
    /// # Errors
    /// The disk fails; `out` fails, with its error.
    pub fn dump(
        &self,
        header: &CopyHeader,
        out: &mut impl Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<CopySum> {
        let mut frames = Frames { out, seal: CopySeal::default(), rows: Vec::new(), packed: Vec::new() };
        frames.put(&header.pack())?;
        let mut dumping = Dumping { snapshot: self, frames, stripes: 0, progress };
        tables::copied(&mut dumping)?;
        let mut frames = dumping.frames;
        frames.put(&[0; 8])?;
        let sum = frames.seal.sum();
        frames.out.write_all(&sum.0).and_then(|()| frames.out.flush()).map_err(unwritable)?;
        Ok(sum)
    }

    /// The number of the last copy that an agent took, and when it was taken (seconds since 1970).
    ///
    /// # Errors
    /// The disk fails.
    pub fn last_copy(&self) -> Result<Option<(u64, u64)>> {
        let counters = self.txn.open_table(tables::COUNTERS)?;
        let Some(number) = counters.get(tables::COUNT_COPY)?.map(|v| v.value()) else { return Ok(None) };
        let time = counters.get(tables::COUNT_COPY_TIME)?.map_or(number, |v| v.value());
        Ok(Some((number, time)))
    }
}

impl Meta {
    /// Records that agents took a copy.
    ///
    /// # Errors
    /// The disk fails.
    pub fn copied(&self, header: &CopyHeader) -> Result<()> {
        // Not counted in the history, which agents remember: otherwise every restored copy would seem too old.
        self.note(|t| {
            t.set_counter(tables::COUNT_COPY, header.number)?;
            t.set_counter(tables::COUNT_COPY_TIME, header.time)
        })
    }
}

struct Dumping<'a, W: Write> {
    snapshot: &'a Snapshot,
    frames: Frames<'a, W>,
    stripes: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl<W: Write> Visit for Dumping<'_, W> {
    fn table<K, V>(&mut self, table: TableDefinition<'static, K, V>) -> Result<()>
    where
        K: Key + 'static,
        V: Value + 'static,
    {
        let counted = table.name() == tables::STRIPES.name();
        // A table that no transaction has opened yet does not exist.
        let rows = match self.snapshot.txn.open_table(table) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
            other => other?,
        };
        for row in rows.iter()? {
            let (key, value) = row?;
            if self.frames.rows.is_empty() {
                self.frames.begin(table.name());
            }
            let (key, value) = (key.value(), value.value());
            self.frames.row(K::as_bytes(&key).as_ref(), V::as_bytes(&value).as_ref());
            self.stripes += u64::from(counted);
            if self.frames.rows.len() >= FRAME_BYTES {
                self.frames.end()?;
                (self.progress)(self.stripes);
            }
        }
        self.frames.end()?;
        (self.progress)(self.stripes);
        Ok(())
    }
}

/// Collects rows into packed frames.
struct Frames<'a, W: Write> {
    out: &'a mut W,
    seal: CopySeal,
    rows: Vec<u8>,
    packed: Vec<u8>,
}

impl<W: Write> Frames<'_, W> {
    /// Begins a frame. A frame holds rows of one table and begins with the table's name.
    fn begin(&mut self, table: &str) {
        self.rows.push(table.len() as u8);
        self.rows.extend(table.as_bytes());
    }

    fn row(&mut self, key: &[u8], value: &[u8]) {
        for part in [key, value] {
            self.rows.extend((part.len() as u32).to_le_bytes());
            self.rows.extend(part);
        }
    }

    fn end(&mut self) -> Result<()> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.packed.clear();
        let mut encoder = DeflateEncoder::new(std::mem::take(&mut self.packed), LEVEL);
        self.packed = encoder.write_all(&self.rows).and_then(|()| encoder.finish()).map_err(unwritable)?;
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(self.packed.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&(self.rows.len() as u32).to_le_bytes());
        self.put(&head)?;
        let packed = std::mem::take(&mut self.packed);
        self.put(&packed)?;
        self.packed = packed;
        self.rows.clear();
        self.rows.shrink_to(2 * FRAME_BYTES);
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.seal.push(bytes);
        self.out.write_all(bytes).map_err(unwritable)
    }
}

fn unwritable(source: io::Error) -> CoordinatorError {
    CoordinatorError::Io { what: "writing a copy of the metadata".into(), source }
}
