//! Contents in which any mix-up of bytes shows.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that look random and depend on the seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut bytes: Vec<u8> = std::iter::repeat_with(|| next().to_le_bytes()).flatten().take(len).collect();
    bytes.truncate(len);
    bytes
}

/// Panics at the first difference instead of printing both.
#[track_caller]
pub fn assert_same(got: &[u8], expected: &[u8]) {
    assert_eq!(got.len(), expected.len(), "length");
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "first wrong byte");
}

/// A source that fails at an offset.
pub struct Treacherous {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Reads that touch this offset fail.
    pub fails_at: u64,
    /// Reads so far.
    pub reads: AtomicU64,
}

impl kintsu_client::ReadAt for Treacherous {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        if offset + buffer.len() as u64 > self.fails_at {
            return Err(std::io::Error::other("the source broke"));
        }
        let at = offset as usize;
        buffer.copy_from_slice(&self.bytes[at..at + buffer.len()]);
        Ok(())
    }
}

/// A slow source, so that a test can act during the put.
pub struct Slow {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Pause before each read.
    pub pause: std::time::Duration,
}

impl kintsu_client::ReadAt for Slow {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        std::thread::sleep(self.pause);
        let at = offset as usize;
        buffer.copy_from_slice(&self.bytes[at..at + buffer.len()]);
        Ok(())
    }
}

/// A source that waits after all of it was written, before the put is committed for the first time.
pub struct Waiting {
    /// All bytes.
    pub bytes: Vec<u8>,
    /// Signals that it waits, and what it waits for; `None` once it has waited.
    pub pause: std::sync::Mutex<Option<(tokio::sync::oneshot::Sender<()>, std::sync::mpsc::Receiver<()>)>>,
}

impl kintsu_client::ReadAt for Waiting {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> std::io::Result<()> {
        let at = offset as usize;
        buffer.copy_from_slice(&self.bytes[at..at + buffer.len()]);
        Ok(())
    }

    fn check_unchanged(&self) -> std::io::Result<()> {
        let pause = self.pause.lock().unwrap().take();
        if let Some((waits, go_on)) = pause {
            waits.send(()).unwrap();
            tokio::task::block_in_place(|| go_on.recv()).unwrap();
        }
        Ok(())
    }
}
