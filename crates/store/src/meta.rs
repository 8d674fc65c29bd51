//! What is known about a block without its data.

use kintsu_dag::BlockId;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;

use crate::StoreError;

/// Bytes under one checksum, where whole blocks are read; the last unit of a block may be shorter.
pub const UNIT_BYTES: usize = 64 * 1024;

/// The least bytes under one checksum. Every power of two from here to [`UNIT_BYTES`] can be a block's unit.
pub const LEAST_UNIT_BYTES: usize = 4096;

/// The longest label that a block can carry.
pub const MOST_LABEL_BYTES: usize = 16 << 20;

/// The generation of a block's content; a rewrite of the same [`BlockId`] gets a higher one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub u32);

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "g{}", self.0)
    }
}

/// The checksum of a whole block: XXH3-128 over its length (u64, little endian) and the CRC32C of
/// each of its units (u32, little endian).
///
/// It depends on the bytes and the unit alone, not on the order in which they were written. It is computed from
/// the unit checksums, without a second pass over the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of a block of `len` bytes whose units have these CRC32Cs, in order.
    pub fn of_units(len: u64, units: &[u32]) -> Self {
        let mut hash = Xxh3Default::new();
        hash.update(&len.to_le_bytes());
        for unit in units {
            hash.update(&unit.to_le_bytes());
        }
        Self(hash.digest128().to_be_bytes())
    }

    /// The digest of a block that holds `data` in units of [`UNIT_BYTES`]; reads it once.
    pub fn of_bytes(data: &[u8]) -> Self {
        Self::in_units(data, UNIT_BYTES)
    }

    /// The digest of a block that holds `data` in units of `unit_bytes`; reads it once.
    ///
    /// # Panics
    /// For a unit of zero bytes.
    pub fn in_units(data: &[u8], unit_bytes: usize) -> Self {
        let units: Vec<u32> = data.chunks(unit_bytes).map(crc_fast::crc32_iscsi).collect();
        Self::of_units(data.len() as u64, &units)
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a finished block's file says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockMeta {
    /// Which block.
    pub id: BlockId,
    /// Which writing of it.
    pub generation: Generation,
    /// Bytes of data, 0 allowed.
    pub len: u64,
    /// Bytes under one checksum.
    pub unit_bytes: u32,
    /// The checksum of all data.
    pub digest: Digest,
}

/// What a block's file says without its data: the header, and the label that came with the block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockHead {
    /// The header.
    pub meta: BlockMeta,
    /// The label, which means nothing to the store; empty for a block that was written without one.
    pub label: Vec<u8>,
}

/// What a store holds.
#[derive(Debug, Default)]
pub struct Listing {
    /// Blocks whose headers are sound, in order of their ids.
    pub blocks: Vec<BlockMeta>,
    /// Blocks whose headers could not be read or made no sense, in order, and why.
    pub damaged: Vec<(BlockId, StoreError)>,
}

/// How full a store is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Blocks in their places, rotten or not; without those set aside.
    pub blocks: u64,
    /// Bytes of their files.
    pub bytes: u64,
    /// Blocks that are set aside.
    pub aside_blocks: u64,
    /// Bytes of their files.
    pub aside_bytes: u64,
    /// Size of the medium, which other things may share.
    pub capacity_bytes: u64,
    /// Bytes that can still be written to it.
    pub free_bytes: u64,
    /// What its device has done, for whatever program; `None` if the system does not tell.
    pub device: Option<DeviceCounters>,
}

/// What a device has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceCounters {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// Milliseconds in which it had requests.
    pub busy_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_is_xxh3_over_length_and_unit_checksums() {
        let data: Vec<u8> = (0..UNIT_BYTES + 5).map(|i| (i * 7 % 251) as u8).collect();
        let mut table = (data.len() as u64).to_le_bytes().to_vec();
        table.extend(crc_fast::crc32_iscsi(&data[..UNIT_BYTES]).to_le_bytes());
        table.extend(crc_fast::crc32_iscsi(&data[UNIT_BYTES..]).to_le_bytes());
        let expected = xxhash_rust::xxh3::xxh3_128(&table);
        let digest = Digest::of_bytes(&data);
        assert_eq!(digest.0, expected.to_be_bytes());
        assert_eq!(digest.to_string(), format!("{expected:032x}"));
        assert_ne!(Digest::of_bytes(b""), Digest::of_bytes(b"\0"));
    }
}
