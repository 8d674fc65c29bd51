//! All that a client of NBD may say, from its first byte on: it is answered or refused, and memory stays bounded.
#![no_main]

use std::sync::Mutex;

use bytes::Bytes;
use kintsu_nbd::{Device, DeviceError, Extent};
use libfuzzer_sys::fuzz_target;

/// The size of the disk.
const BYTES: usize = 1 << 16;

/// A disk in memory.
struct Memory(Mutex<Vec<u8>>);

impl Memory {
    fn with<T>(&self, offset: u64, len: usize, work: impl FnOnce(&mut [u8]) -> T) -> T {
        let mut bytes = self.0.lock().unwrap();
        let at = usize::try_from(offset).expect("an offset within the device");
        work(&mut bytes[at..at + len])
    }
}

impl Device for Memory {
    fn size(&self) -> u64 {
        BYTES as u64
    }

    async fn read(&self, offset: u64, len: u32) -> Result<Bytes, DeviceError> {
        Ok(self.with(offset, len as usize, |bytes| Bytes::copy_from_slice(bytes)))
    }

    async fn write(&self, offset: u64, new: Bytes, _: bool) -> Result<(), DeviceError> {
        self.with(offset, new.len(), |bytes| bytes.copy_from_slice(&new));
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    async fn trim(&self, offset: u64, len: u32, _: bool) -> Result<(), DeviceError> {
        self.with(offset, len as usize, |_| ());
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, len: u32, _: bool, _: bool) -> Result<(), DeviceError> {
        self.with(offset, len as usize, |bytes| bytes.fill(0));
        Ok(())
    }

    async fn allocated(&self, _: u64, len: u32) -> Result<Vec<Extent>, DeviceError> {
        Ok(vec![Extent { len: u64::from(len), allocated: true, zero: false }])
    }
}

fuzz_target!(|data: &[u8]| {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(kintsu_nbd::fuzz::client(data.to_vec(), Memory(Mutex::new(vec![0; BYTES]))));
});
