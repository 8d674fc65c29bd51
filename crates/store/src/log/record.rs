//! The bytes of records and files.

use std::path::{Path, PathBuf};

use kintsu_dag::{BlockId, BlockIndex, StripeId};

use super::{Break, Data, Role, Scope, Update};
use crate::Generation;

/// A file is closed when it is longer than this.
pub(super) const SEGMENT_BYTES: u64 = 64 << 20;

/// Records and the head of a file begin at multiples of this.
pub(super) const ALIGN: usize = 64;

const HEAD_BYTES: usize = 64;
/// Before the bytes of a delta.
const VERSION_BYTES: usize = 4;
const MAGIC: u32 = 0x3147_4c4b;
const FILE_MAGIC: &[u8; 8] = b"KINTLOG1";

/// What a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Bytes of a block.
    Bytes,
    /// Zeros in a block.
    Zeros,
    /// The records of a block up to `offset` are not needed any more.
    Release,
    /// Older epochs of a volume, or of one stripe of it, are refused.
    Fence,
    /// Bytes of a block that updates replace.
    Old,
    /// New bytes XOR those of a version of the block. The payload begins with that version.
    Delta(Generation),
    /// The log may lack something of what was logged before a record. Only at the begin of files.
    Break,
}

/// One record without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub kind: Kind,
    pub number: u64,
    /// The newest record that was durable when this one was written.
    pub durable: u64,
    pub volume: u64,
    pub epoch: u64,
    pub block: BlockId,
    pub role: Role,
    /// Where in the block; of a release, up to which number; of a fence 1 if it is for one stripe, else 0; of a
    /// break its record, with the last one at which the log began empty as `epoch`.
    pub offset: u64,
    /// Bytes or zeros.
    pub len: u32,
}

impl Record {
    pub fn of(update: &Update<'_>) -> Self {
        let Update { volume, epoch, block, role, offset, data } = *update;
        let kind = match data {
            Data::Bytes(_) => Kind::Bytes,
            Data::Zeros(_) => Kind::Zeros,
            Data::Old(_) => Kind::Old,
            Data::Delta(version, _) => Kind::Delta(version),
        };
        // Callers have checked how long it is.
        let len = data.len() as u32;
        Self { kind, number: 0, durable: 0, volume, epoch, block, role, offset, len }
    }

    pub fn release(block: BlockId, role: Role, upto: u64) -> Self {
        let kind = Kind::Release;
        Self { kind, number: 0, durable: 0, volume: 0, epoch: 0, block, role, offset: upto, len: 0 }
    }

    pub fn fence(Scope { volume, stripe }: Scope, epoch: u64) -> Self {
        let block = BlockId { stripe: stripe.unwrap_or(StripeId(0)), index: BlockIndex(0) };
        let (kind, role, offset) = (Kind::Fence, Role::Home, u64::from(stripe.is_some()));
        Self { kind, number: 0, durable: 0, volume, epoch, block, role, offset, len: 0 }
    }

    pub fn broken(Break { at, lost }: Break) -> Self {
        Self { kind: Kind::Break, offset: at, ..Self::fence(Scope { volume: 0, stripe: None }, lost) }
    }

    /// What a break says.
    pub fn breaks(&self) -> Break {
        Break { at: self.offset, lost: self.epoch }
    }

    /// What a fence is for.
    pub fn scope(&self) -> Scope {
        Scope { volume: self.volume, stripe: (self.offset != 0).then_some(self.block.stripe) }
    }

    /// Bytes of its payload.
    pub fn payload_len(&self) -> u32 {
        match self.kind {
            Kind::Bytes | Kind::Old => self.len,
            Kind::Delta(_) => self.len.saturating_add(VERSION_BYTES as u32),
            Kind::Zeros | Kind::Release | Kind::Fence | Kind::Break => 0,
        }
    }

    /// Bytes in a file.
    pub fn encoded_len(&self) -> usize {
        encoded_len(self.payload_len())
    }

    /// Appends the record to `out`, padded with zeros.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        let mut head = [0u8; HEAD_BYTES];
        head[..4].copy_from_slice(&MAGIC.to_le_bytes());
        let numbers = [self.number, self.durable, self.volume, self.epoch, self.block.stripe.0];
        for (number, field) in numbers.iter().zip(head[8..48].chunks_mut(8)) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        head[48] = self.block.index.0;
        head[49] = u8::from(self.role == Role::Replica);
        let (kind, version) = match self.kind {
            Kind::Bytes => (0, None),
            Kind::Zeros => (1, None),
            Kind::Release => (2, None),
            Kind::Fence => (3, None),
            Kind::Old => (4, None),
            Kind::Delta(version) => (5, Some(version.0.to_le_bytes())),
            Kind::Break => (6, None),
        };
        let version = version.as_ref().map_or(&[][..], |bytes| bytes);
        head[50] = kind;
        head[52..56].copy_from_slice(&self.len.to_le_bytes());
        head[56..].copy_from_slice(&self.offset.to_le_bytes());
        let crc = checksum(&[&head[8..], version, payload]);
        head[4..8].copy_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(version);
        out.extend_from_slice(payload);
        out.resize(out.len().next_multiple_of(ALIGN), 0);
    }
}

/// Bytes of a record with so much payload.
pub(super) fn encoded_len(payload: u32) -> usize {
    (HEAD_BYTES + payload as usize).next_multiple_of(ALIGN)
}

/// The record at the front of `bytes`, if it is there and whole, and its payload.
pub(super) fn decode(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let head = bytes.get(..HEAD_BYTES)?;
    let word = |at: usize| head[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let long = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    if word(0)? != MAGIC {
        return None;
    }
    let kind = match head[50] {
        0 => Kind::Bytes,
        1 => Kind::Zeros,
        2 => Kind::Release,
        3 => Kind::Fence,
        4 => Kind::Old,
        5 => Kind::Delta(Generation(u32::from_le_bytes(
            bytes.get(HEAD_BYTES..HEAD_BYTES + VERSION_BYTES)?.try_into().ok()?,
        ))),
        6 => Kind::Break,
        _ => return None,
    };
    let record = Record {
        kind,
        number: long(8)?,
        durable: long(16)?,
        volume: long(24)?,
        epoch: long(32)?,
        block: BlockId { stripe: StripeId(long(40)?), index: BlockIndex(head[48]) },
        role: if head[49] == 0 { Role::Home } else { Role::Replica },
        offset: long(56)?,
        len: word(52)?,
    };
    let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + record.payload_len() as usize)?;
    let prefix = if matches!(kind, Kind::Delta(_)) { VERSION_BYTES } else { 0 };
    (checksum(&[&head[8..], payload]) == word(4)?).then_some((record, &payload[prefix..]))
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize() as u32
}

/// The head of a file: its number, and the newest record of earlier files that counts.
pub(super) fn file_head(number: u64, counts: u64) -> Vec<u8> {
    let mut head = vec![0u8; ALIGN];
    head[..8].copy_from_slice(FILE_MAGIC);
    head[8..16].copy_from_slice(&number.to_le_bytes());
    head[16..24].copy_from_slice(&counts.to_le_bytes());
    let crc = checksum(&[&head[..24]]);
    head[24..28].copy_from_slice(&crc.to_le_bytes());
    head
}

/// What a head says, if it is whole.
pub(super) fn read_file_head(bytes: &[u8]) -> Option<(u64, u64)> {
    let head = bytes.get(..ALIGN)?;
    let long = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let crc = head[24..28].try_into().map(u32::from_le_bytes).ok()?;
    let whole = &head[..8] == FILE_MAGIC && checksum(&[&head[..24]]) == crc;
    if whole { Some((long(8)?, long(16)?)) } else { None }
}

/// The file of this number.
pub(super) fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.log"))
}

/// The number of a file of this name, if it is one of ours.
pub(super) fn parse(name: &str) -> Option<u64> {
    let number = u64::from_str_radix(name.strip_suffix(".log")?, 16).ok()?;
    (format!("{number:016x}.log") == name).then_some(number)
}
