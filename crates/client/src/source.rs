//! Where the bytes of a new object come from.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use bytes::Bytes;

/// Bytes that can be read at any offset, by several threads at once.
pub trait ReadAt: Send + Sync {
    /// Length in bytes; the object's length.
    fn len(&self) -> u64;

    /// Fills `buffer` with the bytes from `offset` on. May block.
    ///
    /// # Errors
    /// Any I/O error; `UnexpectedEof` when the source ends before the buffer is full.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;

    /// Whether all bytes are in memory, so that nothing here blocks.
    fn in_memory(&self) -> bool {
        false
    }

    /// The bytes from `offset` on without a copy, if they are in memory; `None` if they must be read.
    fn lend(&self, _offset: u64, _len: usize) -> Option<Bytes> {
        None
    }

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks after all bytes have been read that the source did not change meanwhile.
    ///
    /// # Errors
    /// It changed, as far as that can be detected.
    fn check_unchanged(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A file on the client's machine. A write to it after opening is detected by its length or its modification time.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    len: u64,
    modified: SystemTime,
}

impl FileSource {
    /// Opens a regular file.
    ///
    /// # Errors
    /// It cannot be opened or is not a regular file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let file = File::open(path).map_err(named)?;
        let metadata = file.metadata().map_err(named)?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: expected a regular file, got another kind", path.display()),
            ));
        }
        Ok(Self { file, len: metadata.len(), modified: metadata.modified()? })
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }

    fn check_unchanged(&self) -> io::Result<()> {
        let metadata = self.file.metadata()?;
        let now = (metadata.len(), metadata.modified()?);
        if now == (self.len, self.modified) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "the file changed while it was read: expected {} bytes of {:?}, got {} of {:?}",
            self.len, self.modified, now.0, now.1
        )))
    }
}

impl ReadAt for Bytes {
    fn len(&self) -> u64 {
        Bytes::len(self) as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        copy_at(self, offset, buffer)
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn lend(&self, offset: u64, len: usize) -> Option<Bytes> {
        part_of(self, offset, len)
    }
}

/// A part of bytes in memory, if they have it.
pub(crate) fn part_of(bytes: &Bytes, offset: u64, len: usize) -> Option<Bytes> {
    let from = usize::try_from(offset).ok()?;
    let to = from.checked_add(len).filter(|to| *to <= bytes.len())?;
    Some(bytes.slice(from..to))
}

/// Fills `buffer` with the bytes from `offset` on.
pub(crate) fn copy_at(bytes: &[u8], offset: u64, buffer: &mut [u8]) -> io::Result<()> {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    let piece = from.checked_add(buffer.len()).and_then(|to| bytes.get(from..to));
    let piece = piece.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("expected {} bytes from {offset}, got {} in all", buffer.len(), bytes.len()),
        )
    })?;
    buffer.copy_from_slice(piece);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_past_the_end_are_an_error() {
        let source = Bytes::from_static(b"abcdef");
        let mut two = [0; 2];
        source.read_at(4, &mut two).unwrap();
        assert_eq!(&two, b"ef");
        assert!(source.read_at(5, &mut two).is_err());
        assert!(source.read_at(u64::MAX, &mut two).is_err());
    }

    #[test]
    fn a_file_that_grows_or_shrinks_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"0123456789").unwrap();
        let source = FileSource::open(&path).unwrap();
        assert_eq!(source.len(), 10);
        source.check_unchanged().unwrap();
        std::fs::write(&path, b"01234").unwrap();
        assert!(source.check_unchanged().is_err());
        assert!(source.read_at(4, &mut [0; 4]).is_err());
        assert!(FileSource::open(dir.path()).is_err());
    }
}
