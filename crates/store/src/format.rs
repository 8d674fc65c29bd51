//! The bytes of a block file (`docs/format.md`, "Block file"): header page, data, trailer.
//!
//! Pure: bytes in, values out. Every byte of a file is under a checksum: the header page under its
//! own, each unit of data under its entry in the trailer, the trailer under its own and, with the
//! length, under the digest in the header.

use kintsu_dag::{BlockId, BlockIndex, StripeId};

use crate::{BlockMeta, Digest, Generation, LEAST_UNIT_BYTES, StoreError, UNIT_BYTES};

/// Bytes of the header; data begins here, on a page boundary.
pub(crate) const HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"KINTSUB1";
/// Of a file in units of [`UNIT_BYTES`]: as it always was.
const VERSION: u32 = 1;
/// Of a file in smaller units.
const VERSION_SMALL_UNITS: u32 = 2;
const CRC_AT: usize = HEADER_BYTES - 4;
/// Data of this many bytes or more cannot be addressed in a file together with the rest.
const MAX_LEN: u64 = 1 << 62;

/// Where things are in the file of a block of a given length.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// How many units.
    pub(crate) units: usize,
    /// Where the trailer begins.
    pub(crate) trailer_at: u64,
    /// Bytes of the trailer.
    pub(crate) trailer_bytes: usize,
    /// Bytes of the whole file.
    pub(crate) file_bytes: u64,
}

impl Layout {
    /// The layout for `len` bytes of data in units of `unit_bytes`.
    pub(crate) fn new(len: u64, unit_bytes: u32) -> Result<Self, StoreError> {
        if !is_unit(unit_bytes) {
            return Err(StoreError::Invalid {
                what: "bytes of a unit",
                expected: format!("a power of two from {LEAST_UNIT_BYTES} to {UNIT_BYTES}"),
                got: unit_bytes.to_string(),
            });
        }
        let units = len.div_ceil(unit_bytes.into());
        let too_long = |_| StoreError::Invalid {
            what: "block length",
            expected: format!("less than {MAX_LEN} bytes"),
            got: len.to_string(),
        };
        if len >= MAX_LEN {
            return Err(too_long(()));
        }
        let trailer_bytes = usize::try_from(4 * units + 4).map_err(|_| too_long(()))?;
        let trailer_at = HEADER_BYTES as u64 + len;
        Ok(Self {
            units: trailer_bytes / 4 - 1,
            trailer_at,
            trailer_bytes,
            file_bytes: trailer_at + trailer_bytes as u64,
        })
    }
}

fn is_unit(bytes: u32) -> bool {
    bytes.is_power_of_two() && (LEAST_UNIT_BYTES..=UNIT_BYTES).contains(&(bytes as usize))
}

/// The version of a file in these units.
fn version(unit_bytes: u32) -> u32 {
    if unit_bytes as usize == UNIT_BYTES { VERSION } else { VERSION_SMALL_UNITS }
}

/// The header page of a block.
pub(crate) fn encode_header(meta: &BlockMeta) -> [u8; HEADER_BYTES] {
    let mut page = [0; HEADER_BYTES];
    page[0..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&version(meta.unit_bytes).to_le_bytes());
    page[12..16].copy_from_slice(&meta.generation.0.to_le_bytes());
    page[16..24].copy_from_slice(&meta.id.stripe.0.to_le_bytes());
    page[24..28].copy_from_slice(&u32::from(meta.id.index.0).to_le_bytes());
    page[28..32].copy_from_slice(&meta.unit_bytes.to_le_bytes());
    page[32..40].copy_from_slice(&meta.len.to_le_bytes());
    page[40..56].copy_from_slice(&meta.digest.0);
    let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
    page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    page
}

/// Reads the header page of what should be block `id`.
///
/// # Errors
/// `Corrupt`; `Invalid` for a sound page of a version this software does not know.
pub(crate) fn decode_header(id: BlockId, page: &[u8; HEADER_BYTES]) -> Result<BlockMeta, StoreError> {
    let corrupt =
        |what, expected: String, got: String| StoreError::Corrupt { id, what, unit: None, expected, got };
    let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
    if crc != u32_at(page, CRC_AT) {
        return Err(corrupt("header checksum", hex(u32_at(page, CRC_AT)), hex(crc)));
    }
    if page[..8] != MAGIC {
        return Err(corrupt("magic", format!("{MAGIC:?}"), format!("{:?}", &page[..8])));
    }
    if !(VERSION..=VERSION_SMALL_UNITS).contains(&u32_at(page, 8)) {
        return Err(StoreError::Invalid {
            what: "version of a block file",
            expected: format!("{VERSION} or {VERSION_SMALL_UNITS}"),
            got: u32_at(page, 8).to_string(),
        });
    }
    let index = u8::try_from(u32_at(page, 24))
        .map_err(|_| corrupt("block index", "0 to 255".into(), u32_at(page, 24).to_string()))?;
    let named = BlockId { stripe: StripeId(u64_at(page, 16)), index: BlockIndex(index) };
    if named != id {
        return Err(corrupt("block id", id.to_string(), named.to_string()));
    }
    let unit_bytes = u32_at(page, 28);
    if !is_unit(unit_bytes) || version(unit_bytes) != u32_at(page, 8) {
        let expected = format!("one of a file of version {}", u32_at(page, 8));
        return Err(corrupt("unit size", expected, unit_bytes.to_string()));
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&page[40..56]);
    Ok(BlockMeta {
        id,
        generation: Generation(u32_at(page, 12)),
        len: u64_at(page, 32),
        unit_bytes,
        digest: Digest(digest),
    })
}

/// The trailer for these unit checksums.
pub(crate) fn encode_trailer(units: &[u32]) -> Vec<u8> {
    let mut trailer: Vec<u8> = units.iter().flat_map(|crc| crc.to_le_bytes()).collect();
    let crc = crc_fast::crc32_iscsi(&trailer);
    trailer.extend(crc.to_le_bytes());
    trailer
}

/// Reads the trailer of the block that `meta` describes: its unit checksums.
///
/// # Errors
/// `Corrupt`, also when the trailer is sound but belongs to other data than the header.
pub(crate) fn decode_trailer(meta: &BlockMeta, trailer: &[u8]) -> Result<Vec<u32>, StoreError> {
    let corrupt = |what, expected, got| StoreError::Corrupt { id: meta.id, what, unit: None, expected, got };
    let (table, _) = trailer.split_at(trailer.len() - 4);
    let crc = crc_fast::crc32_iscsi(table);
    let recorded = u32_at(trailer, table.len());
    if crc != recorded {
        return Err(corrupt("trailer checksum", hex(recorded), hex(crc)));
    }
    let units: Vec<u32> = (0..table.len() / 4).map(|unit| u32_at(table, 4 * unit)).collect();
    let digest = Digest::of_units(meta.len, &units);
    if digest != meta.digest {
        return Err(corrupt("digest", meta.digest.to_string(), digest.to_string()));
    }
    Ok(units)
}

/// Compares a unit's data with its recorded checksum.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn check_unit(id: BlockId, unit: usize, data: &[u8], recorded: u32) -> Result<(), StoreError> {
    let crc = crc_fast::crc32_iscsi(data);
    if crc == recorded {
        return Ok(());
    }
    let (expected, got) = (hex(recorded), hex(crc));
    Err(StoreError::Corrupt { id, what: "checksum", unit: Some(unit as u64), expected, got })
}

fn hex(crc: u32) -> String {
    format!("{crc:08x}")
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were sliced"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were sliced"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> BlockMeta {
        BlockMeta {
            id: BlockId { stripe: StripeId(0x0102_0304_0506_0708), index: BlockIndex(13) },
            generation: Generation(7),
            len: 3,
            unit_bytes: UNIT_BYTES as u32,
            digest: Digest::of_units(3, &[0xdead_beef]),
        }
    }

    #[test]
    fn header_has_the_documented_bytes() {
        let page = encode_header(&meta());
        assert_eq!(&page[..8], b"KINTSUB1");
        assert_eq!(page[8..16], [1, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(page[16..28], [8, 7, 6, 5, 4, 3, 2, 1, 13, 0, 0, 0]);
        assert_eq!(page[28..40], [0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page[40..56], meta().digest.0);
        assert!(page[56..CRC_AT].iter().all(|&byte| byte == 0));
        assert_eq!(decode_header(meta().id, &page).unwrap(), meta());

        let small = BlockMeta { unit_bytes: 4096, ..meta() };
        let page = encode_header(&small);
        assert_eq!(page[8..12], [2, 0, 0, 0], "programs that know no small units refuse it");
        assert_eq!(page[28..32], [0, 16, 0, 0]);
        assert_eq!(decode_header(meta().id, &page).unwrap(), small);
    }

    #[test]
    fn a_header_of_another_block_or_version_is_refused() {
        let other = BlockId { index: BlockIndex(12), ..meta().id };
        let refused = decode_header(other, &encode_header(&meta())).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { what: "block id", .. }), "{refused}");

        let mut page = encode_header(&meta());
        page[8] = 3;
        let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
        page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        let refused = decode_header(meta().id, &page).unwrap_err();
        assert!(!refused.is_rot(), "a newer version is not rot: {refused}");
    }

    #[test]
    fn a_trailer_of_other_data_is_refused() {
        let refused = decode_trailer(&meta(), &encode_trailer(&[0xdead_bee0])).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { what: "digest", .. }), "{refused}");
        assert_eq!(decode_trailer(&meta(), &encode_trailer(&[0xdead_beef])).unwrap(), [0xdead_beef]);
    }

    #[test]
    fn layout_refuses_what_no_file_can_hold() {
        let empty = Layout::new(0, 65536).unwrap();
        assert_eq!((empty.units, empty.trailer_bytes, empty.file_bytes), (0, 4, 4100));
        assert_eq!(Layout::new(65537, 65536).unwrap().units, 2);
        assert_eq!(Layout::new(65537, 4096).unwrap().units, 17);
        for unit in [0, 1, 2048, 4095, 12288, 65537, 1 << 17] {
            assert!(matches!(Layout::new(10, unit), Err(StoreError::Invalid { .. })), "{unit}");
        }
        assert!(matches!(Layout::new(u64::MAX, 65536), Err(StoreError::Invalid { .. })));
    }
}
