//! Reading a block file, verifying every unit touched.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kintsu_dag::BlockId;

use crate::disk::{Disk, DiskFile};
use crate::format::{self, HEADER_BYTES, Header, Layout};
use crate::{BlockHead, BlockMeta, BlockRead, Generation, StoreError, UNIT_BYTES};

/// Whole units are read in runs of this many bytes, so that they are checked while still in cache.
const RUN_BYTES: usize = 8 * UNIT_BYTES;

/// An open block file whose header and trailer have been checked.
pub(crate) struct FileRead {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    meta: BlockMeta,
    label: Vec<u8>,
    units: Vec<u32>,
    /// The last unit read in part: its number and, verified, its bytes.
    cached: Option<(usize, Vec<u8>)>,
    /// Bytes of data read so far.
    bytes_read: u64,
}

impl FileRead {
    /// Opens the file at `path`, which should hold block `id`, of this generation if one is given.
    pub(crate) fn open(
        disk: &dyn Disk,
        path: PathBuf,
        id: BlockId,
        generation: Option<Generation>,
    ) -> Result<Self, StoreError> {
        let Opened { file, header, page } = open_header(disk, &path, id)?;
        let meta = header.meta;
        if let Some(expected) = generation.filter(|&wanted| wanted != meta.generation) {
            return Err(StoreError::Stale { id, expected, got: meta.generation });
        }
        let layout = Layout::of(&header)?;
        let got = file.len().map_err(|source| StoreError::io(&path, source))?;
        if got > layout.file_bytes {
            return Err(StoreError::WrongLength { id, expected: layout.file_bytes, got });
        }
        if got < layout.file_bytes {
            return Err(StoreError::Truncated { id, expected: layout.file_bytes, got });
        }
        let mut tail = vec![0; layout.trailer_bytes + layout.label_rest_bytes];
        fill(&*file, &path, id, layout.trailer_at, &mut tail)?;
        let (trailer, label_rest) = tail.split_at(layout.trailer_bytes);
        let units = format::decode_trailer(&meta, trailer)?;
        let label = format::decode_label(&header, &page, label_rest)?;
        if meta.unit_bytes as usize == UNIT_BYTES {
            // Not for smaller units: such a block may be read in parts, and read-ahead would fetch more than
            // those.
            file.advise_sequential();
        }
        Ok(Self { file, path, meta, label, units, cached: None, bytes_read: 0 })
    }

    /// Reads and checks everything.
    pub(crate) fn verify(&mut self) -> Result<BlockMeta, StoreError> {
        let mut run = vec![0; RUN_BYTES.min(self.meta.len as usize)];
        let mut at = 0;
        while at < self.meta.len {
            let len = run.len().min((self.meta.len - at) as usize);
            self.read_at(at, &mut run[..len])?;
            at += len as u64;
        }
        Ok(self.meta)
    }

    /// Bytes of a unit that is not the last.
    fn unit_bytes(&self) -> usize {
        self.meta.unit_bytes as usize
    }

    fn unit_len(&self, unit: usize) -> usize {
        (self.meta.len - (unit * self.unit_bytes()) as u64).min(self.meta.unit_bytes.into()) as usize
    }

    /// Reads whole units, starting with `unit`, into `buf`, which ends where a unit ends.
    fn read_units(&mut self, unit: usize, buf: &mut [u8]) -> Result<(), StoreError> {
        let at = (HEADER_BYTES + unit * self.unit_bytes()) as u64;
        fill(&*self.file, &self.path, self.meta.id, at, buf)?;
        self.bytes_read += buf.len() as u64;
        self.check_units(unit, buf)
    }

    /// Checks whole units, starting with `unit`.
    fn check_units(&self, unit: usize, buf: &[u8]) -> Result<(), StoreError> {
        buf.chunks(self.unit_bytes())
            .zip(unit..)
            .try_for_each(|(data, unit)| format::check_unit(self.meta.id, unit, data, self.units[unit]))
    }

    /// The verified bytes of a unit, read unless they are cached.
    fn unit(&mut self, unit: usize) -> Result<&[u8], StoreError> {
        let cached = match self.cached.take() {
            Some((at_hand, data)) if at_hand == unit => data,
            other => {
                let mut data = other.map_or_else(Vec::new, |(_, data)| data);
                data.resize(self.unit_len(unit), 0);
                self.read_units(unit, &mut data)?;
                data
            }
        };
        Ok(&self.cached.insert((unit, cached)).1)
    }

    /// How many bytes of whole units a buffer of `want` bytes can take from the start of `unit` on.
    fn whole_units(&self, unit: usize, want: usize) -> usize {
        let to_end = (self.meta.len - (unit * self.unit_bytes()) as u64) as usize;
        let bytes = if want >= to_end { to_end } else { want / self.unit_bytes() * self.unit_bytes() };
        bytes.min(RUN_BYTES)
    }
}

impl BlockRead for FileRead {
    fn meta(&self) -> &BlockMeta {
        &self.meta
    }

    fn label(&self) -> &[u8] {
        &self.label
    }

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<(), StoreError> {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.meta.len) {
            return Err(StoreError::Invalid {
                what: "range to read",
                expected: format!("a range within {} bytes", self.meta.len),
                got: format!("{} bytes from {offset}", buf.len()),
            });
        }
        let mut at = offset;
        let mut rest = buf;
        while !rest.is_empty() {
            let unit = (at / u64::from(self.meta.unit_bytes)) as usize;
            let skip = (at % u64::from(self.meta.unit_bytes)) as usize;
            let whole = if skip == 0 { self.whole_units(unit, rest.len()) } else { 0 };
            let take = if whole > 0 { whole } else { rest.len().min(self.unit_len(unit) - skip) };
            let (now, later) = rest.split_at_mut(take);
            if whole > 0 {
                self.read_units(unit, now)?;
            } else {
                now.copy_from_slice(&self.unit(unit)?[skip..skip + take]);
            }
            at += take as u64;
            rest = later;
        }
        Ok(())
    }

    fn read_now(&mut self, offset: u64, buf: &mut [u8]) -> Result<bool, StoreError> {
        let unit_bytes = u64::from(self.meta.unit_bytes);
        let Some(end) = offset.checked_add(buf.len() as u64) else { return Ok(false) };
        let whole = end == self.meta.len || end < self.meta.len && end.is_multiple_of(unit_bytes);
        if !whole || !offset.is_multiple_of(unit_bytes) {
            return Ok(false);
        }
        let mut unit = (offset / unit_bytes) as usize;
        for run in buf.chunks_mut(self.unit_bytes() * (RUN_BYTES / self.unit_bytes()).max(1)) {
            if !self.file.read_now(run, (HEADER_BYTES + unit * self.unit_bytes()) as u64) {
                return Ok(false);
            }
            self.check_units(unit, run)?;
            unit += run.len() / self.unit_bytes();
        }
        self.bytes_read += buf.len() as u64;
        Ok(true)
    }

    fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

/// Reads and checks the header of the file at `path`, which should hold block `id`.
pub(crate) fn header(disk: &dyn Disk, path: &Path, id: BlockId) -> Result<BlockMeta, StoreError> {
    open_header(disk, path, id).map(|opened| opened.header.meta)
}

/// Reads and checks header and label of the file at `path`, which should hold block `id`.
pub(crate) fn held(disk: &dyn Disk, path: &Path, id: BlockId) -> Result<BlockHead, StoreError> {
    let Opened { file, header, page } = open_header(disk, path, id)?;
    let layout = Layout::of(&header)?;
    let mut rest = vec![0; layout.label_rest_bytes];
    if !rest.is_empty() {
        fill(&*file, path, id, layout.label_rest_at(), &mut rest)?;
    }
    let label = format::decode_label(&header, &page, &rest)?;
    Ok(BlockHead { meta: header.meta, label })
}

/// A file whose header page has been read and checked.
struct Opened {
    file: Box<dyn DiskFile>,
    header: Header,
    page: [u8; HEADER_BYTES],
}

fn open_header(disk: &dyn Disk, path: &Path, id: BlockId) -> Result<Opened, StoreError> {
    let file = disk.open(path).map_err(|source| match source.kind() {
        ErrorKind::NotFound => StoreError::NotFound { id },
        _ => StoreError::io(path, source),
    })?;
    let mut page = [0; HEADER_BYTES];
    fill(&*file, path, id, 0, &mut page)?;
    let header = format::decode_header(id, &page)?;
    Ok(Opened { file, header, page })
}

/// Reads exactly `buf.len()` bytes of the file.
fn fill(file: &dyn DiskFile, path: &Path, id: BlockId, at: u64, buf: &mut [u8]) -> Result<(), StoreError> {
    let got = file.read_at(buf, at).map_err(|source| StoreError::io(path, source))?;
    if got == buf.len() {
        return Ok(());
    }
    Err(StoreError::Truncated { id, expected: at + buf.len() as u64, got: at + got as u64 })
}
