//! The coordinator's metadata on a simulated disk.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use kintsu_coordinator::Medium;
use kintsu_store::simdisk::{SimDisk, SimFile};
use redb::{BackendError, StorageBackend};

/// Name of the metadata's file.
const FILE: &str = "/metadata";

/// The disk that a host has at present: after each crash it gets another one.
#[derive(Default)]
pub struct Slot(Mutex<SimDisk>);

impl Slot {
    pub fn disk(&self) -> SimDisk {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn replace(&self, disk: SimDisk) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = disk;
    }
}

impl Medium for Slot {
    fn open(&self) -> io::Result<Box<dyn StorageBackend>> {
        Ok(Box::new(Backend(Mutex::new(self.disk().file(Path::new(FILE))?))))
    }
}

struct Backend(Mutex<SimFile>);

impl Backend {
    fn on<T>(&self, call: impl FnOnce(&SimFile) -> io::Result<T>) -> io::Result<T> {
        call(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated disk")
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.on(SimFile::length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.on(|file| file.read(out, offset))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.on(|file| file.set_length(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.on(SimFile::make_durable)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.on(|file| file.write(data, offset))
    }

    // Each start of a coordinator has the disk for itself: the start before worked on another copy.

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(false)
    }
}
