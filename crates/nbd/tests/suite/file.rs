//! A device that is a sparse file, and switches to make it slow, fail or panic.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use bytes::Bytes;
use kintsu_nbd::{BlockSizes, Device, DeviceError, Extent};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use tokio::sync::Semaphore;

/// A sparse file of a fixed size.
pub struct FileDevice {
    file: Arc<File>,
    size: u64,
    pub read_only: bool,
    pub sizes: BlockSizes,
    /// Reads at this offset wait for a permit.
    pub slow_at: Option<u64>,
    pub slow: Arc<Semaphore>,
    /// Reads at this offset panic.
    pub panic_at: Option<u64>,
    /// Each write fails with this.
    pub write_fails: Option<DeviceError>,
    pub flushes: AtomicU32,
    /// Bytes of data in calls under way, and the most there have been.
    pub held: AtomicU64,
    pub most_held: AtomicU64,
}

impl FileDevice {
    pub fn create(path: &Path, size: u64) -> Self {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(size).unwrap();
        Self {
            file: Arc::new(file),
            size,
            read_only: false,
            sizes: BlockSizes::default(),
            slow_at: None,
            slow: Arc::new(Semaphore::new(0)),
            panic_at: None,
            write_fails: None,
            flushes: AtomicU32::new(0),
            held: AtomicU64::new(0),
            most_held: AtomicU64::new(0),
        }
    }

    async fn on_file<T: Send + 'static>(
        &self,
        work: impl FnOnce(&File) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T, DeviceError> {
        let file = self.file.clone();
        Ok(tokio::task::spawn_blocking(move || work(&file)).await.unwrap()?)
    }

    /// Counts data for as long as the answer lives.
    fn hold(&self, len: usize) -> Holding<'_> {
        let held = self.held.fetch_add(len as u64, SeqCst) + len as u64;
        self.most_held.fetch_max(held, SeqCst);
        Holding(self, len as u64)
    }
}

struct Holding<'a>(&'a FileDevice, u64);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(self.1, SeqCst);
    }
}

impl Device for FileDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn block_sizes(&self) -> BlockSizes {
        self.sizes
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
        let _held = self.hold(len as usize);
        if self.slow_at == Some(offset) {
            self.slow.acquire().await.unwrap().forget();
        }
        assert_ne!(self.panic_at, Some(offset), "told to panic");
        self.on_file(move |file| {
            let mut bytes = vec![0; len as usize];
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes.into())
        })
        .await
    }

    async fn write(&self, offset: u64, bytes: Bytes, fua: bool) -> Result<(), DeviceError> {
        let _held = self.hold(bytes.len());
        if let Some(error) = &self.write_fails {
            return Err(error.clone());
        }
        self.on_file(move |file| {
            file.write_all_at(&bytes, offset)?;
            if fua { file.sync_data() } else { Ok(()) }
        })
        .await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.fetch_add(1, SeqCst);
        self.on_file(File::sync_data).await
    }

    async fn trim(&self, offset: u64, len: u32, fua: bool) -> Result<(), DeviceError> {
        self.write_zeroes(offset, len, true, fua).await
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len: u32,
        may_punch: bool,
        fua: bool,
    ) -> Result<(), DeviceError> {
        self.on_file(move |file| {
            let kind = match may_punch {
                true => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                false => FallocateFlags::ZERO_RANGE,
            };
            match fallocate(file, kind, offset, len.into()) {
                // Not every file system knows it.
                Err(rustix::io::Errno::OPNOTSUPP) => {
                    file.write_all_at(&vec![0; len as usize], offset)?;
                }
                other => other?,
            }
            if fua { file.sync_data() } else { Ok(()) }
        })
        .await
    }

    async fn allocated(&self, offset: u64, len: u32) -> Result<Vec<Extent>, DeviceError> {
        let size = self.size;
        self.on_file(move |file| {
            let (mut extents, mut at) = (Vec::new(), offset);
            while at < offset + u64::from(len) {
                let data = match seek(file, SeekFrom::Data(at)) {
                    Ok(data) => data,
                    Err(rustix::io::Errno::NXIO) => size,
                    Err(error) => return Err(error.into()),
                };
                let (end, hole) = match data == at {
                    true => (seek(file, SeekFrom::Hole(at))?, false),
                    false => (data, true),
                };
                extents.push(Extent { len: end - at, allocated: !hole, zero: hole });
                at = end;
            }
            Ok(extents)
        })
        .await
    }
}
