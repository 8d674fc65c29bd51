//! The file-system calls that a store needs, behind a trait, so that tests can make each of them fail in turn.
//!
//! Nothing here decides anything; errors are the operating system's own.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, FallocateFlags, FlockOperation};
use rustix::io::ReadWriteFlags;

use crate::meta::DeviceCounters;

/// The unit in which the kernel counts what a device has carried.
const SECTOR: u64 = 512;

/// A file system.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Opens a file for reading.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Creates a file that must not exist yet, for reading and writing.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Renames a file, replacing atomically what had the new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name, which must be free.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory that must not exist yet.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// What is in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    /// The identity of the directory or file that is at this path now: device and inode.
    fn identity(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// The time in seconds since 1970.
    fn now_unix(&self) -> u64;
    /// Bytes (in all, free) of the medium under a path.
    fn space(&self, path: &Path) -> io::Result<(u64, u64)>;
    /// What the device under a path has done, if the system tells.
    fn device(&self, path: &Path) -> Option<DeviceCounters>;
    /// Takes an exclusive lock on a file (created if absent), held until the guard is dropped; `None` at once if
    /// another process holds it.
    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>>;
}

/// An open file.
pub(crate) trait DiskFile: Send {
    /// Its length.
    fn len(&self) -> io::Result<u64>;
    /// Fills `buf` from `offset`, or up to the end of the file; returns the number of bytes read.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Fills `buf` from `offset` if that needs no wait for the medium; `false` if it would, or if nobody knows.
    fn read_now(&self, _buf: &mut [u8], _offset: u64) -> bool {
        false
    }
    /// Writes all of `data` at `offset`.
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the file `len` bytes long and reserves the space now, if the file system can.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Makes content and length durable.
    fn sync(&self) -> io::Result<()>;
    /// Starts writing a range to the medium without waiting; it is synced later.
    fn start_writeback(&self, range: Range<u64>);
    /// Says that the file will be read from front to back.
    fn advise_sequential(&self);
}

/// A name in a directory.
pub(crate) struct Entry {
    /// The name; names that are not UTF-8 are not ours and are left out.
    pub(crate) name: String,
    /// Its length; 0 if the disk cannot tell.
    pub(crate) len: u64,
    /// Whether it is a directory.
    pub(crate) is_dir: bool,
}

/// The operating system's file system.
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(File::open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(true).create_new(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::hard_link(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        std::fs::create_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // The type comes from the directory, not from the file: one damaged file must not hide the others.
            let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match entry.metadata() {
                Err(gone) if gone.kind() == ErrorKind::NotFound => {}
                meta => entries.push(Entry { name, len: meta.map_or(0, |meta| meta.len()), is_dir }),
            }
        }
        Ok(entries)
    }

    fn identity(&self, path: &Path) -> io::Result<(u64, u64)> {
        let meta = std::fs::metadata(path)?;
        Ok((meta.dev(), meta.ino()))
    }

    fn now_unix(&self) -> u64 {
        #[allow(clippy::disallowed_methods, reason = "a simulation has another disk")]
        let now = SystemTime::now();
        now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn space(&self, path: &Path) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::statvfs(path)?;
        Ok((stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize))
    }

    fn device(&self, path: &Path) -> Option<DeviceCounters> {
        let device = rustix::fs::stat(path).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let row = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        counters(&row)
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Send + Sync>>> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// Of the kernel's row of a device, the third, seventh and tenth number: sectors read, sectors written, and milliseconds with
/// requests.
fn counters(row: &str) -> Option<DeviceCounters> {
    let mut numbers = row.split_whitespace().map(str::parse::<u64>);
    let (read, written) = (numbers.nth(2)?.ok()?, numbers.nth(3)?.ok()?);
    let busy_ms = numbers.nth(2)?.ok()?;
    Some(DeviceCounters {
        read: read.saturating_mul(SECTOR),
        written: written.saturating_mul(SECTOR),
        busy_ms,
    })
}

impl DiskFile for File {
    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buf.len() {
            match FileExt::read_at(self, &mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(got) => filled += got,
                Err(again) if again.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn read_now(&self, buf: &mut [u8], offset: u64) -> bool {
        let wanted = buf.len();
        // Any error: not in memory, or a file system that cannot tell. A read that may wait finds out.
        rustix::io::preadv2(self, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) == Ok(wanted)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(data, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(self, FallocateFlags::empty(), 0, len)) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.set_len(len),
            other => Ok(other?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn start_writeback(&self, range: Range<u64>) {
        // Linux starts writing dirty pages when told that they are not needed, and drops only clean
        // ones, so what was just written stays in memory. A hint only: the sync does not rely on it.
        let len = NonZeroU64::new(range.end - range.start);
        let _ = rustix::fs::fadvise(self, range.start, len, Advice::DontNeed);
    }

    fn advise_sequential(&self) {
        // A hint only: reads are correct without it.
        let _ = rustix::fs::fadvise(self, 0, None, Advice::Sequential);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_a_device_has_what_it_read_and_wrote_and_how_long_it_was_busy() {
        let row = "   1111    22     3000      44     555    66     7000       88        1     9999    10101";
        let read = counters(row).unwrap();
        assert_eq!((read.read, read.written, read.busy_ms), (3000 * SECTOR, 7000 * SECTOR, 9999));
        assert_eq!(counters("1 2 3 4 5 6 7"), None);
    }
}
