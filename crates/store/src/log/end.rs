//! The number of the newest durable record, in a file beside the log.
//!
//! It is written behind each sync of the log and never synced itself, so the log has that record after any crash. A log that ends
//! before it has lost files, or was cut between two records, which the log itself cannot tell. After a power failure the
//! number may be an older one; without the file nobody knows anything.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::disk::{Disk, DiskFile};

const BYTES: usize = 12;

/// Notes which record is the newest durable one.
pub(super) struct End {
    file: Option<Box<dyn DiskFile>>,
}

impl End {
    /// What was noted of the log in `dir`; 0 if nothing.
    pub fn noted(disk: &dyn Disk, dir: &Path) -> u64 {
        let mut bytes = [0; BYTES];
        match disk.open(&path(dir)).and_then(|file| file.read_at(&mut bytes, 0)) {
            Ok(BYTES) => decode(&bytes),
            _ => 0,
        }
    }

    /// Begins to note, from this number on. What was noted before stays until then, also if this fails.
    pub fn begin(disk: &dyn Disk, dir: &Path, newest: u64) -> Self {
        Self { file: begin(disk, dir, newest).ok() }
    }

    /// This record is durable.
    pub fn note(&mut self, newest: u64) {
        // What was half written is no note. The next start begins another one.
        self.file = self.file.take().filter(|file| file.write_at(&encode(newest), 0).is_ok());
    }
}

fn path(dir: &Path) -> PathBuf {
    dir.with_extension("end")
}

fn begin(disk: &dyn Disk, dir: &Path, newest: u64) -> io::Result<Box<dyn DiskFile>> {
    let new = dir.with_extension("end.new");
    match disk.remove(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = disk.create(&new)?;
    file.write_at(&encode(newest), 0)?;
    disk.rename(&new, &path(dir))?;
    Ok(file)
}

fn encode(newest: u64) -> [u8; BYTES] {
    let number = newest.to_le_bytes();
    let mut bytes = [0; BYTES];
    bytes[..8].copy_from_slice(&number);
    bytes[8..].copy_from_slice(&crc_fast::crc32_iscsi(&number).to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; BYTES]) -> u64 {
    let number = bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    if encode(number) == *bytes { number } else { 0 }
}
