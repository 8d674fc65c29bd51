//! Writing a block to a temporary file, and putting it in place when it is whole.

use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use kintsu_dag::BlockId;

use super::names::{self, Kind};
use super::read;
use super::shared::Shared;
use crate::disk::DiskFile;
use crate::format::{self, HEADER_BYTES, Layout};
use crate::sums::UnitSums;
use crate::{BlockHead, BlockMeta, BlockWrite, Digest, Generation, StoreError};

/// Pieces from this size on are written as they come; smaller ones are gathered.
const SMALL_BYTES: usize = 32 * 1024;
/// How much is gathered at most.
const GATHER_BYTES: usize = 256 * 1024;
/// A file up to this long gets its space when it is written: most are written at once.
const UNALLOCATED_BYTES: u64 = 128 * 1024;
/// After this many bytes writing to the medium is started, so that the last sync is short.
const WRITEBACK_BYTES: u64 = 4 << 20;

/// A block being written. Fields are dropped in order: the file goes before its claim does.
pub(crate) struct FileWrite {
    temp: TempFile,
    claim: WriteRight,
    generation: Generation,
    len: u64,
    unit_bytes: u32,
    label: Vec<u8>,
    /// What it becomes: the block, or its next version.
    becomes: Kind,
    /// Whether the block was there when this began.
    follows: bool,
    layout: Layout,
    sums: UnitSums,
    /// Small pieces in a row, not yet in the file: where the first begins, and their bytes.
    gathered: (u64, Vec<u8>),
    /// How often the store had been wiped when this write began.
    wipes: u64,
}

impl FileWrite {
    /// Begins a block or its next version: claims its id, checks what is there, takes its space.
    pub(crate) fn create(
        shared: &Arc<Shared>,
        id: BlockId,
        generation: Generation,
        len: u64,
        unit_bytes: u32,
        label: &[u8],
        becomes: Kind,
    ) -> Result<Self, StoreError> {
        let layout = Layout::new(len, unit_bytes, label.len())?;
        shared.check_root()?;
        let (claim, wipes) = WriteRight::take(shared, id)?;
        let there = read::header(&*shared.disk, &shared.file(id, Kind::Block), id);
        let follows = becomes == Kind::Next && there.is_ok();
        if let Ok(there) = there
            && (there.generation > generation || becomes == Kind::Next && there.generation == generation)
        {
            return Err(StoreError::Stale { id, expected: there.generation, got: generation });
        }
        let free = shared.free()?;
        if layout.file_bytes > free {
            return Err(StoreError::Full { path: shared.root.clone(), needed: layout.file_bytes, free });
        }
        shared.make_shelf(names::shelf(id))?;
        let temp = TempFile::create(shared, id, layout.file_bytes)?;
        let sums = UnitSums::of_block(len, unit_bytes);
        let (label, gathered) = (label.to_vec(), (0, Vec::new()));
        Ok(Self {
            temp,
            claim,
            generation,
            len,
            unit_bytes,
            label,
            becomes,
            follows,
            layout,
            sums,
            gathered,
            wipes,
        })
    }

    fn check_range(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(StoreError::Invalid {
                what: "range to write",
                expected: format!("a range within {} bytes", self.len),
                got: format!("{len} bytes from {offset}"),
            });
        }
        if let Some(twice) = self.sums.covered(offset, len) {
            return Err(StoreError::Invalid {
                what: "range to write",
                expected: "each byte once".into(),
                got: format!("byte {twice} again"),
            });
        }
        Ok(())
    }

    /// Keeps a small piece in memory if it continues the pieces kept. Otherwise writes those, and starts
    /// again with this one.
    fn gather(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let (start, bytes) = &self.gathered;
        if start + bytes.len() as u64 != offset || bytes.len() + data.len() > GATHER_BYTES {
            self.flush()?;
        }
        if self.gathered.1.is_empty() {
            self.gathered.0 = offset;
        }
        self.gathered.1.extend_from_slice(data);
        Ok(())
    }

    /// Writes what was kept in memory. If that fails, it stays in memory and is tried again later.
    fn flush(&mut self) -> Result<(), StoreError> {
        let (start, bytes) = &mut self.gathered;
        if !bytes.is_empty() {
            self.temp.write(HEADER_BYTES as u64 + *start, bytes)?;
            bytes.clear();
        }
        Ok(())
    }
}

impl BlockWrite for FileWrite {
    fn write_at(&mut self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.check_range(offset, data.len() as u64)?;
        if data.len() < SMALL_BYTES {
            self.gather(offset, data)?;
        } else {
            self.temp.write(HEADER_BYTES as u64 + offset, data)?;
        }
        self.sums.add(offset, data);
        Ok(())
    }

    fn written(&self) -> u64 {
        self.sums.written()
    }

    fn finish(mut self: Box<Self>, expect: Option<Digest>) -> Result<BlockMeta, StoreError> {
        let id = self.claim.id;
        if self.written() != self.len {
            return Err(StoreError::WrongLength { id, expected: self.len, got: self.written() });
        }
        let got = Digest::of_units(self.len, self.sums.table());
        if let Some(expected) = expect.filter(|&expected| expected != got) {
            return Err(StoreError::DigestMismatch { id, expected, got });
        }
        let Self { generation, len, unit_bytes, .. } = *self;
        let meta = BlockMeta { id, generation, len, unit_bytes, digest: got };
        let mut tail = format::encode_trailer(self.sums.table());
        tail.extend(format::encode_label_rest(&self.label));
        let header = format::encode_header(&meta, &self.label);
        let (start, data) = &self.gathered;
        if *start == 0 && data.len() as u64 == len {
            // All of a short block is at hand: one write.
            self.temp.write(0, &[&header, &data[..], &tail].concat())?;
        } else {
            self.flush()?;
            self.temp.write(self.layout.trailer_at, &tail)?;
            self.temp.write(0, &header)?;
        }
        let held = BlockHead { meta, label: std::mem::take(&mut self.label) };
        self.temp.publish(&held, self.wipes, self.becomes, self.follows)?;
        self.claim.shared.sync_shelf(names::shelf(id))?;
        Ok(meta)
    }
}

/// The right to write a block, given back when dropped.
struct WriteRight {
    shared: Arc<Shared>,
    id: BlockId,
}

impl WriteRight {
    /// Takes the right to write; also returns how often the store has been wiped.
    fn take(shared: &Arc<Shared>, id: BlockId) -> Result<(Self, u64), StoreError> {
        let mut state = shared.state();
        if !state.writing.insert(id) {
            return Err(StoreError::Busy { id, reason: "it is being written already" });
        }
        Ok((Self { shared: Arc::clone(shared), id }, state.wipes))
    }
}

impl Drop for WriteRight {
    fn drop(&mut self) {
        self.shared.state().writing.remove(&self.id);
    }
}

/// A file that is removed when dropped, unless it was published.
struct TempFile {
    shared: Arc<Shared>,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    file_bytes: u64,
    /// Bytes written since writeback was last started, and the range they are in.
    waiting: u64,
    waiting_in: Range<u64>,
    published: bool,
}

impl TempFile {
    fn create(shared: &Arc<Shared>, id: BlockId, file_bytes: u64) -> Result<Self, StoreError> {
        let path = shared.file(id, Kind::Temp);
        let created = match shared.disk.create(&path) {
            // We hold the claim, so this file was left by a writer that could not remove it.
            Err(there) if there.kind() == ErrorKind::AlreadyExists => {
                shared.remove(&path)?;
                shared.disk.create(&path)
            }
            created => created,
        };
        let file = created.map_err(|source| {
            if source.kind() == ErrorKind::NotFound {
                // Somebody removed the directory; the next write creates it again.
                shared.state().shelves.remove(&names::shelf(id));
            }
            shared.io_error(&path, file_bytes, source)
        })?;
        let shared = Arc::clone(shared);
        let temp = Self { shared, path, file, file_bytes, waiting: 0, waiting_in: 0..0, published: false };
        if file_bytes > UNALLOCATED_BYTES {
            temp.file.allocate(file_bytes).map_err(|source| temp.error(source))?;
        }
        Ok(temp)
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), StoreError> {
        self.file.write_at(data, at).map_err(|source| self.error(source))?;
        let end = at + data.len() as u64;
        self.waiting_in = match self.waiting {
            0 => at..end,
            _ => self.waiting_in.start.min(at)..self.waiting_in.end.max(end),
        };
        self.waiting += data.len() as u64;
        if self.waiting >= WRITEBACK_BYTES {
            self.file.start_writeback(self.waiting_in.clone());
            self.waiting = 0;
        }
        Ok(())
    }

    /// Syncs the file and gives it the block's name; another block that had this name is set aside. Or gives it the
    /// name of the next version, instead of an earlier one; `follows`: only if the block is still there.
    fn publish(
        &mut self,
        held: &BlockHead,
        wipes: u64,
        becomes: Kind,
        follows: bool,
    ) -> Result<(), StoreError> {
        let id = held.meta.id;
        self.file.sync().map_err(|source| self.error(source))?;
        self.shared.check_root()?;
        let mut state = self.shared.state();
        if state.wipes != wipes {
            return Err(StoreError::Busy { id, reason: "the store was wiped while it was being written" });
        }
        match becomes {
            Kind::Block => self.shared.make_way(&mut state, held)?,
            // A block that was deleted meanwhile has no next version: nobody would ever delete that.
            _ if follows => drop(read::header(&*self.shared.disk, &self.shared.file(id, Kind::Block), id)?),
            _ => {}
        }
        let to = self.shared.file(id, becomes);
        self.shared.disk.rename(&self.path, &to).map_err(|source| self.error(source))?;
        self.published = true;
        if becomes == Kind::Block {
            self.shared.counts().inventory.insert(id, self.file_bytes);
        }
        Ok(())
    }

    fn error(&self, source: std::io::Error) -> StoreError {
        self.shared.io_error(&self.path, self.file_bytes, source)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.published {
            // If this removal fails, the next write of this block or the next start removes the file.
            let _ = self.shared.disk.remove(&self.path);
        }
    }
}
