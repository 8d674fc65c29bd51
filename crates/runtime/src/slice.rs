//! Slices in memory: views of pooled buffers or of received bytes, or zeros that take no memory.
//!
//! One pool serves the whole process, so that its agents and successive runs reuse the same buffers. It keeps at
//! most [`KEPT_BYTES`] of unused buffers; the users (queues of a fixed depth) bound what is in use.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::{Bytes, BytesMut};

/// Bytes of unused buffers that the pool keeps.
const KEPT_BYTES: usize = 8 << 20;

/// The smallest buffer; others are powers of two above it.
const LEAST_BYTES: usize = 4 << 10;

/// Buffers start at one of this many offsets, so that regions combined with each other do not compete for the same
/// lines of the first-level cache.
const PLACES: usize = 16;

/// Distance from one offset to the next: at least a cache line, and small compared with the buffer.
fn stagger(size: usize) -> usize {
    (size / 64).clamp(64, 256)
}

/// Capacity of the buffer that serves `len` bytes.
fn class(len: usize) -> usize {
    len.next_power_of_two().max(LEAST_BYTES)
}

/// A buffer from the pool, which takes it back when it is dropped. Its bytes are whatever they were.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// A buffer of `len` bytes of any value.
    pub fn take(len: usize) -> Self {
        pool().take(len)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        pool().give(class(self.len), std::mem::take(&mut self.bytes));
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// Bytes of one vertex in one step.
#[derive(Debug)]
pub(crate) enum View<'a> {
    /// This many zeros.
    Zero(usize),
    /// Bytes that are shared.
    Data(Bytes),
    /// Bytes that are not shared and may be overwritten.
    Own(BytesMut),
    /// Bytes that still belong to the lender.
    Lent(&'a [u8]),
}

/// A view that borrows nothing: the form that is sent between tasks.
pub(crate) type Slice = View<'static>;

impl View<'_> {
    /// All of a buffer.
    pub fn of(buffer: Buffer) -> Self {
        Self::Data(Bytes::from_owner(buffer))
    }

    /// Another view of the same bytes, without a copy.
    pub fn share(&mut self) -> Self {
        match self {
            Self::Zero(len) => Self::Zero(*len),
            Self::Data(bytes) => Self::Data(bytes.clone()),
            Self::Own(own) => {
                let bytes = std::mem::take(own).freeze();
                *self = Self::Data(bytes.clone());
                Self::Data(bytes)
            }
            Self::Lent(bytes) => Self::Lent(bytes),
        }
    }

    /// Bytes in it.
    pub fn len(&self) -> usize {
        match self {
            Self::Zero(len) => *len,
            Self::Data(bytes) => bytes.len(),
            Self::Own(bytes) => bytes.len(),
            Self::Lent(bytes) => bytes.len(),
        }
    }

    /// The bytes, unless they are all zero and not kept.
    pub fn data(&self) -> Option<&[u8]> {
        match self {
            Self::Zero(_) => None,
            Self::Data(bytes) => Some(bytes),
            Self::Own(bytes) => Some(bytes),
            Self::Lent(bytes) => Some(bytes),
        }
    }
}

impl AsRef<[u8]> for View<'_> {
    /// The bytes of a slice; empty for zeros that take no memory.
    fn as_ref(&self) -> &[u8] {
        self.data().unwrap_or_default()
    }
}

/// Whether all bytes are zero; stops at the first that is not.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(64);
    chunks.by_ref().all(|chunk| chunk.iter().fold(0, |any, byte| any | byte) == 0)
        && chunks.remainder().iter().all(|byte| *byte == 0)
}

struct Pool {
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    by_size: BTreeMap<usize, Vec<Vec<u8>>>,
    kept: usize,
    taken: usize,
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<Pool> = OnceLock::new();
    POOL.get_or_init(|| Pool { free: Mutex::default() })
}

impl Pool {
    fn take(&self, len: usize) -> Buffer {
        let size = class(len);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.taken = free.taken.wrapping_add(1);
        let start = free.taken % PLACES * stagger(size);
        let old = free.by_size.get_mut(&size).and_then(Vec::pop);
        free.kept -= old.as_ref().map_or(0, Vec::len);
        drop(free);
        let bytes = old.unwrap_or_else(|| vec![0; size + PLACES * stagger(size)]);
        Buffer { bytes, start, len }
    }

    fn give(&self, size: usize, bytes: Vec<u8>) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        // The size given back last is likely needed next, so other sizes are freed.
        while free.kept + bytes.len() > KEPT_BYTES {
            let other = free.by_size.iter_mut().find(|(other, kept)| **other != size && !kept.is_empty());
            let Some(dropped) = other.and_then(|(_, kept)| kept.pop()) else { return };
            free.kept -= dropped.len();
        }
        free.kept += bytes.len();
        free.by_size.entry(size).or_default().push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_recognised_at_every_length_and_place() {
        for len in [0, 1, 63, 64, 65, 200] {
            assert!(is_zero(&vec![0; len]));
            for at in 0..len {
                let mut bytes = vec![0; len];
                bytes[at] = 1;
                assert!(!is_zero(&bytes), "{at} of {len}");
            }
        }
    }

    #[test]
    fn buffers_have_the_length_asked_for_and_come_back() {
        for len in [0, 1, 4096, 4097, 100_000] {
            let mut buffer = Buffer::take(len);
            buffer.fill(7);
            assert_eq!(buffer.len(), len);
            let slice = Slice::of(buffer);
            assert_eq!(slice.data().map(<[u8]>::len), Some(len));
        }
        let free = pool().free.lock().unwrap();
        assert!(free.kept <= KEPT_BYTES);
    }
}
