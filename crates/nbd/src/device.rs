//! What the server serves: a fixed number of bytes that can be read and written.

use bytes::Bytes;

/// A disk. Calls come at the same time and in any order; what two overlapping writes under way leave is either of
/// both in each byte.
///
/// The server has checked the range of each call: it is not empty and lies within [`Device::size`] as it was when the client
/// connected.
pub trait Device: Send + Sync + 'static {
    /// The size in bytes. It may grow; clients that connect later see the new size.
    fn size(&self) -> u64;

    /// Whether each write will be refused.
    fn read_only(&self) -> bool {
        false
    }

    /// Which requests it serves, and which it likes.
    fn block_sizes(&self) -> BlockSizes {
        BlockSizes::default()
    }

    /// The `len` bytes from `offset` on, with all writes that have been answered.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn read(&self, offset: u64, len: u32) -> impl Future<Output = Result<Bytes, DeviceError>> + Send;

    /// Writes `bytes` at `offset`. With `fua` the bytes are durable when this returns; otherwise after the
    /// next [`Device::flush`].
    ///
    /// # Errors
    /// Why they cannot be written; each of the bytes is then the old or the new one.
    fn write(
        &self,
        offset: u64,
        bytes: Bytes,
        fua: bool,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Returns when everything that was written before this call is durable.
    ///
    /// # Errors
    /// Why it may not be durable.
    fn flush(&self) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// The `len` bytes from `offset` on are no longer needed; they may be zero or unchanged afterwards. `fua` as for
    /// [`Device::write`].
    ///
    /// # Errors
    /// Why it cannot be said.
    fn trim(&self, offset: u64, len: u32, fua: bool) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Makes the `len` bytes from `offset` on zero; their space may be given back only if `may_punch`. `fua` as for
    /// [`Device::write`].
    ///
    /// # Errors
    /// As for [`Device::write`].
    fn write_zeroes(
        &self,
        offset: u64,
        len: u32,
        may_punch: bool,
        fua: bool,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// What the `len` bytes from `offset` on are, as extents that follow each other from `offset` on. They may
    /// cover less than the range if finding out more takes long, and more than the range.
    ///
    /// # Errors
    /// Why it cannot be told.
    fn allocated(
        &self,
        offset: u64,
        len: u32,
    ) -> impl Future<Output = Result<Vec<Extent>, DeviceError>> + Send;
}

/// Bytes in a row of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub len: u64,
    /// Whether they take space. If not, a later write may fail because there is no space left.
    pub allocated: bool,
    /// Whether they are known to be zero.
    pub zero: bool,
}

/// Which requests a device serves, and which it likes; all in bytes, all powers of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSizes {
    /// Offset and length of each request are multiples of this; 1 to 64 KiB.
    pub minimum: u32,
    /// Multiples of this need no reading before writing; at least 512 and at least `minimum`.
    pub preferred: u32,
}

impl Default for BlockSizes {
    /// What a client assumes if it is told nothing.
    fn default() -> Self {
        Self { minimum: 1, preferred: 4096 }
    }
}

/// Why a device cannot do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The request itself is wrong.
    #[error("{0}")]
    Invalid(String),
    /// There is no space left.
    #[error("no space left: {0}")]
    Full(String),
    /// It may not be written, or not by us any more.
    #[error("{0}")]
    Forbidden(String),
    /// Everything else: bytes that cannot be read, nodes that do not answer.
    #[error("{0}")]
    Io(String),
}

impl From<std::io::Error> for DeviceError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                Self::Full(error.to_string())
            }
            _ => Self::Io(error.to_string()),
        }
    }
}
