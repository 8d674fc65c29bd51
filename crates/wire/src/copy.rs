//! The envelope of a copy of the metadata: a head that describes it, content that only the coordinator reads, and
//! a checksum over everything (the sum). `docs/format.md`, "Metadata copy".
//!
//! A copy is checked as a stream, without keeping it in memory: [`CopyCheck`] takes its bytes in pieces of any
//! size.

use std::fmt;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use crate::ClusterId;

/// The first bytes of every copy.
pub const COPY_MAGIC: [u8; 8] = *b"KINTSUMC";
/// The version of the envelope and of the frames in it.
pub const COPY_VERSION: u32 = 1;
/// Bytes of the sum at the end: XXH3-128 of all bytes before it, big-endian.
pub const COPY_SUM_BYTES: usize = 16;

/// Magic, version and length of the header.
const FIXED_BYTES: usize = 16;
/// Most bytes of a header.
const MOST_HEADER_BYTES: usize = 64 << 10;

/// What a copy says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyHeader {
    /// Grows from copy to copy: of two copies of one cluster the one with the larger number is newer.
    pub number: u64,
    /// When its snapshot was taken, in seconds since 1970.
    pub time: u64,
    /// Transactions committed until then, if the metadata count them.
    pub history: u64,
    /// The version of the metadata's layout.
    pub layout: u64,
    /// Objects in it.
    pub objects: u64,
    /// Stripes in it.
    pub stripes: u64,
    /// Its cluster, if known.
    #[serde(default)]
    pub cluster: Option<ClusterId>,
}

/// The bytes are not a complete, unchanged copy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a sound copy of metadata: {what}: expected {expected}, got {got}")]
pub struct CopyError {
    /// Which part.
    pub what: &'static str,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub got: String,
}

/// The sum at the end of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopySum(pub [u8; COPY_SUM_BYTES]);

impl fmt::Display for CopySum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CopySum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CopySum({self})")
    }
}

impl CopyHeader {
    /// The head of a copy: magic, version, length, and this header as MessagePack.
    pub fn pack(&self) -> Vec<u8> {
        let header = rmp_serde::to_vec_named(self).expect("a header is plain data");
        let mut out = Vec::with_capacity(FIXED_BYTES + header.len());
        out.extend(COPY_MAGIC);
        out.extend(COPY_VERSION.to_le_bytes());
        out.extend((header.len() as u32).to_le_bytes());
        out.extend(header);
        out
    }

    /// The header at the beginning of `bytes`, and the length of the head; `None` while there are too few bytes.
    ///
    /// # Errors
    /// Wrong magic, wrong version, or a bad header.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, CopyError> {
        let magic = bytes.len().min(COPY_MAGIC.len());
        if bytes[..magic] != COPY_MAGIC[..magic] {
            let (expected, got) =
                (format!("{:?}", text(&COPY_MAGIC)), format!("{:?}", text(&bytes[..magic])));
            return Err(CopyError { what: "its first bytes", expected, got });
        }
        let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else { return Ok(None) };
        let number = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        if number(8) != COPY_VERSION {
            let (expected, got) = (COPY_VERSION.to_string(), number(8).to_string());
            return Err(CopyError { what: "its version", expected, got });
        }
        let len = number(12) as usize;
        if len > MOST_HEADER_BYTES {
            let expected = format!("at most {MOST_HEADER_BYTES} bytes");
            return Err(CopyError { what: "its header", expected, got: format!("{len} bytes") });
        }
        let Some(header) = bytes.get(FIXED_BYTES..FIXED_BYTES + len) else { return Ok(None) };
        let header = rmp_serde::from_slice(header).map_err(|error| CopyError {
            what: "its header",
            expected: "a MessagePack map".into(),
            got: error.to_string(),
        })?;
        Ok(Some((header, FIXED_BYTES + len)))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A copy that passed its check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckedCopy {
    /// What it says about itself.
    pub header: CopyHeader,
    /// All its bytes.
    pub bytes: u64,
    /// Its sum.
    pub sum: CopySum,
}

/// Checks a copy while its bytes pass. Memory: a header, and the last 16 bytes.
#[derive(Default)]
pub struct CopyCheck {
    head: Vec<u8>,
    header: Option<CopyHeader>,
    hash: Box<Xxh3>,
    /// The last bytes so far, which may be the sum.
    tail: Vec<u8>,
    bytes: u64,
}

impl fmt::Debug for CopyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyCheck").field("header", &self.header).field("bytes", &self.bytes).finish()
    }
}

impl CopyCheck {
    /// The next bytes.
    ///
    /// # Errors
    /// The head is not that of a copy.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.bytes += bytes.len() as u64;
        if self.header.is_none() {
            let room = (FIXED_BYTES + MOST_HEADER_BYTES).saturating_sub(self.head.len());
            self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if let Some((header, _)) = CopyHeader::parse(&self.head)? {
                self.header = Some(header);
                self.head = Vec::new();
            }
        }
        if bytes.len() >= COPY_SUM_BYTES {
            let (sure, last) = bytes.split_at(bytes.len() - COPY_SUM_BYTES);
            self.hash.update(&self.tail);
            self.hash.update(sure);
            self.tail.clear();
            self.tail.extend_from_slice(last);
        } else {
            self.tail.extend_from_slice(bytes);
            let sure = self.tail.len().saturating_sub(COPY_SUM_BYTES);
            self.hash.update(&self.tail[..sure]);
            self.tail.drain(..sure);
        }
        Ok(())
    }

    /// The header, once all of it has passed.
    pub fn header(&self) -> Option<&CopyHeader> {
        self.header.as_ref()
    }

    /// The result, after all bytes have passed.
    ///
    /// # Errors
    /// It was cut short, or a byte of it was changed.
    pub fn finish(self) -> Result<CheckedCopy, CopyError> {
        let bytes = self.bytes;
        let short = || CopyError {
            what: "its length",
            expected: "a header and a sum".into(),
            got: format!("{bytes} bytes"),
        };
        let header = self.header.ok_or_else(short)?;
        let got = CopySum(self.tail.try_into().map_err(|_| short())?);
        let expected = CopySum(self.hash.digest128().to_be_bytes());
        if got != expected {
            let expected = format!("{expected} after {bytes} bytes");
            return Err(CopyError { what: "its sum (cut short or changed)", expected, got: got.to_string() });
        }
        Ok(CheckedCopy { header, bytes, sum: got })
    }
}

/// The sum of a copy that is being written.
#[derive(Default)]
pub struct CopySeal(Box<Xxh3>);

impl fmt::Debug for CopySeal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopySeal").finish_non_exhaustive()
    }
}

impl CopySeal {
    /// The next bytes that were written.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The sum to be written behind them.
    pub fn sum(&self) -> CopySum {
        CopySum(self.0.digest128().to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(content: &[u8]) -> Vec<u8> {
        let header =
            CopyHeader { number: 7, time: 1000, cluster: Some(ClusterId([3; 16])), ..Default::default() };
        let mut out = header.pack();
        out.extend(content);
        let mut seal = CopySeal::default();
        seal.push(&out);
        out.extend(seal.sum().0);
        out
    }

    fn check(bytes: &[u8], piece: usize) -> Result<CheckedCopy, CopyError> {
        let mut check = CopyCheck::default();
        bytes.chunks(piece).try_for_each(|piece| check.push(piece))?;
        check.finish()
    }

    #[test]
    fn a_copy_is_checked_in_pieces_of_any_size() {
        let whole = copy(&[5; 1000]);
        for piece in [1, 3, 15, 16, 17, 100, whole.len()] {
            let checked = check(&whole, piece).unwrap();
            assert_eq!((checked.header.number, checked.bytes), (7, whole.len() as u64), "{piece}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let whole = copy(b"rows");
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&flipped, 64).is_err(), "bit {bit}");
        }
        for len in 0..whole.len() {
            assert!(check(&whole[..len], 64).is_err(), "{len} bytes");
        }
        let mut longer = whole;
        longer.push(0);
        assert!(check(&longer, 64).is_err());
    }
}
