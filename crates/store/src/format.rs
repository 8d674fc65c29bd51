//! The bytes of a block file (`docs/format.md`, "Block file"): header page, data, trailer, rest of the label.
//!
//! Pure: bytes in, values out. Every byte of a file is under a checksum. The header page has its own. Each unit of
//! data has an entry in the trailer. The trailer has its own and, together with the length, is under the digest in
//! the header. The rest of a long label has its own.
//!
//! New files have version 3. Files of versions 1 and 2, which have no label, are read as before.

use kintsu_dag::{BlockId, BlockIndex, StripeId};

use crate::{BlockMeta, Digest, Generation, LEAST_UNIT_BYTES, MOST_LABEL_BYTES, StoreError, UNIT_BYTES};

/// Bytes of the header; data begins here, on a page boundary.
pub(crate) const HEADER_BYTES: usize = 4096;

const MAGIC: [u8; 8] = *b"KINTSUB1";
/// An old file in units of [`UNIT_BYTES`], without a label.
const VERSION_WHOLE_UNITS: u32 = 1;
/// An old file in smaller units, without a label.
const VERSION_SMALL_UNITS: u32 = 2;
/// A file as it is written now: units of any allowed size, and a label.
const VERSION: u32 = 3;
const LABEL_BYTES_AT: usize = 56;
const LABEL_AT: usize = 60;
const CRC_AT: usize = HEADER_BYTES - 4;
/// Bytes of the label that fit into the header page.
pub(crate) const LABEL_ROOM: usize = CRC_AT - LABEL_AT;
/// Limit on the data of a block: with this many bytes or more, offsets behind the data would overflow.
const MAX_LEN: u64 = 1 << 62;

/// Where things are in the file of a block with data and a label of given lengths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Layout {
    /// Where the trailer begins.
    pub(crate) trailer_at: u64,
    /// Bytes of the trailer.
    pub(crate) trailer_bytes: usize,
    /// Bytes behind the trailer: the part of the label that does not fit into the header page, and its checksum;
    /// or 0.
    pub(crate) label_rest_bytes: usize,
    /// Bytes of the whole file.
    pub(crate) file_bytes: u64,
}

impl Layout {
    /// The layout for `len` bytes of data in units of `unit_bytes`, and a label of `label_bytes`.
    pub(crate) fn new(len: u64, unit_bytes: u32, label_bytes: usize) -> Result<Self, StoreError> {
        if !is_unit(unit_bytes) {
            return Err(StoreError::Invalid {
                what: "bytes of a unit",
                expected: format!("a power of two from {LEAST_UNIT_BYTES} to {UNIT_BYTES}"),
                got: unit_bytes.to_string(),
            });
        }
        if label_bytes > MOST_LABEL_BYTES {
            return Err(StoreError::Invalid {
                what: "length of a label",
                expected: format!("at most {MOST_LABEL_BYTES} bytes"),
                got: label_bytes.to_string(),
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
        let label_rest_bytes = if label_bytes > LABEL_ROOM { label_bytes - LABEL_ROOM + 4 } else { 0 };
        Ok(Self {
            trailer_at,
            trailer_bytes,
            label_rest_bytes,
            file_bytes: trailer_at + trailer_bytes as u64 + label_rest_bytes as u64,
        })
    }

    /// The layout of the file with this header.
    pub(crate) fn of(header: &Header) -> Result<Self, StoreError> {
        Self::new(header.meta.len, header.meta.unit_bytes, header.label_bytes)
    }

    /// Where the rest of the label begins.
    pub(crate) fn label_rest_at(&self) -> u64 {
        self.trailer_at + self.trailer_bytes as u64
    }
}

/// Bytes of the file of a block with so much data and such a label: what [`Usage::bytes`](crate::Usage::bytes) counts for it.
///
/// # Errors
/// `Invalid` for lengths that no block has.
pub fn file_bytes(len: u64, unit_bytes: u32, label_bytes: usize) -> Result<u64, StoreError> {
    Ok(Layout::new(len, unit_bytes, label_bytes)?.file_bytes)
}

fn is_unit(bytes: u32) -> bool {
    bytes.is_power_of_two() && (LEAST_UNIT_BYTES..=UNIT_BYTES).contains(&(bytes as usize))
}

/// Whether a file of this version may have these units.
fn has_unit(version: u32, unit_bytes: u32) -> bool {
    let whole = unit_bytes as usize == UNIT_BYTES;
    is_unit(unit_bytes)
        && match version {
            VERSION_WHOLE_UNITS => whole,
            VERSION_SMALL_UNITS => !whole,
            _ => true,
        }
}

/// What a header page says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// The block.
    pub(crate) meta: BlockMeta,
    /// Bytes of its whole label, at most [`MOST_LABEL_BYTES`]; its beginning is in the page.
    pub(crate) label_bytes: usize,
}

/// The header page of a block, with as much of its label as fits.
pub(crate) fn encode_header(meta: &BlockMeta, label: &[u8]) -> [u8; HEADER_BYTES] {
    let mut page = [0; HEADER_BYTES];
    page[0..8].copy_from_slice(&MAGIC);
    page[8..12].copy_from_slice(&VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&meta.generation.0.to_le_bytes());
    page[16..24].copy_from_slice(&meta.id.stripe.0.to_le_bytes());
    page[24..28].copy_from_slice(&u32::from(meta.id.index.0).to_le_bytes());
    page[28..32].copy_from_slice(&meta.unit_bytes.to_le_bytes());
    page[32..40].copy_from_slice(&meta.len.to_le_bytes());
    page[40..56].copy_from_slice(&meta.digest.0);
    page[LABEL_BYTES_AT..LABEL_AT].copy_from_slice(&(label.len() as u32).to_le_bytes());
    let here = &label[..label.len().min(LABEL_ROOM)];
    page[LABEL_AT..LABEL_AT + here.len()].copy_from_slice(here);
    let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
    page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
    page
}

/// The bytes behind the trailer: the part of the label that does not fit into the header page, and its checksum;
/// empty if all of it fits.
pub(crate) fn encode_label_rest(label: &[u8]) -> Vec<u8> {
    let Some(rest) = label.get(LABEL_ROOM..).filter(|rest| !rest.is_empty()) else { return Vec::new() };
    let mut bytes = rest.to_vec();
    bytes.extend(crc_fast::crc32_iscsi(rest).to_le_bytes());
    bytes
}

/// The label of a block, from its header page and what lies behind its trailer
/// ([`Layout::label_rest_bytes`] bytes).
///
/// # Errors
/// `Corrupt`.
pub(crate) fn decode_label(
    header: &Header,
    page: &[u8; HEADER_BYTES],
    behind: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let mut label = page[LABEL_AT..LABEL_AT + header.label_bytes.min(LABEL_ROOM)].to_vec();
    if let Some((rest, recorded)) = behind.split_last_chunk::<4>() {
        let (crc, recorded) = (crc_fast::crc32_iscsi(rest), u32::from_le_bytes(*recorded));
        if crc != recorded {
            let (id, expected, got) = (header.meta.id, hex(recorded), hex(crc));
            return Err(StoreError::Corrupt { id, what: "label checksum", unit: None, expected, got });
        }
        label.extend_from_slice(rest);
    }
    Ok(label)
}

/// Reads the header page of what should be block `id`.
///
/// # Errors
/// `Corrupt`; `Invalid` for a sound page of a version this software does not know.
pub(crate) fn decode_header(id: BlockId, page: &[u8; HEADER_BYTES]) -> Result<Header, StoreError> {
    let corrupt =
        |what, expected: String, got: String| StoreError::Corrupt { id, what, unit: None, expected, got };
    let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
    if crc != u32_at(page, CRC_AT) {
        return Err(corrupt("header checksum", hex(u32_at(page, CRC_AT)), hex(crc)));
    }
    if page[..8] != MAGIC {
        return Err(corrupt("magic", format!("{MAGIC:?}"), format!("{:?}", &page[..8])));
    }
    let version = u32_at(page, 8);
    if !(VERSION_WHOLE_UNITS..=VERSION).contains(&version) {
        return Err(StoreError::Invalid {
            what: "version of a block file",
            expected: format!("{VERSION_WHOLE_UNITS} to {VERSION}"),
            got: version.to_string(),
        });
    }
    let index = u8::try_from(u32_at(page, 24))
        .map_err(|_| corrupt("block index", "0 to 255".into(), u32_at(page, 24).to_string()))?;
    let named = BlockId { stripe: StripeId(u64_at(page, 16)), index: BlockIndex(index) };
    if named != id {
        return Err(corrupt("block id", id.to_string(), named.to_string()));
    }
    let unit_bytes = u32_at(page, 28);
    if !has_unit(version, unit_bytes) {
        let expected = format!("one of a file of version {version}");
        return Err(corrupt("unit size", expected, unit_bytes.to_string()));
    }
    let label_bytes = if version < VERSION { 0 } else { u32_at(page, LABEL_BYTES_AT) as usize };
    if label_bytes > MOST_LABEL_BYTES {
        let expected = format!("at most {MOST_LABEL_BYTES} bytes");
        return Err(corrupt("length of the label", expected, label_bytes.to_string()));
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&page[40..56]);
    let meta = BlockMeta {
        id,
        generation: Generation(u32_at(page, 12)),
        len: u64_at(page, 32),
        unit_bytes,
        digest: Digest(digest),
    };
    Ok(Header { meta, label_bytes })
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
/// `Corrupt`, also for a sound trailer that does not belong to the data of this header.
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
    use proptest::prelude::*;

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
        let page = encode_header(&meta(), b"label");
        assert_eq!(&page[..8], b"KINTSUB1");
        assert_eq!(page[8..16], [3, 0, 0, 0, 7, 0, 0, 0]);
        assert_eq!(page[16..28], [8, 7, 6, 5, 4, 3, 2, 1, 13, 0, 0, 0]);
        assert_eq!(page[28..40], [0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page[40..56], meta().digest.0);
        assert_eq!(page[56..65], *b"\x05\0\0\0label");
        assert!(page[65..CRC_AT].iter().all(|&byte| byte == 0));
        let header = decode_header(meta().id, &page).unwrap();
        assert_eq!(header, Header { meta: meta(), label_bytes: 5 });
        assert_eq!(decode_label(&header, &page, &[]).unwrap(), b"label");

        let small = BlockMeta { unit_bytes: 4096, ..meta() };
        let page = encode_header(&small, &[]);
        assert_eq!(page[28..32], [0, 16, 0, 0]);
        assert_eq!(decode_header(meta().id, &page).unwrap(), Header { meta: small, label_bytes: 0 });
    }

    #[test]
    fn what_has_no_room_in_the_page_lies_behind_the_trailer() {
        for len in [0, LABEL_ROOM - 1, LABEL_ROOM, LABEL_ROOM + 1, 3 * LABEL_ROOM] {
            let label: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8 + 1).collect();
            let (page, rest) = (encode_header(&meta(), &label), encode_label_rest(&label));
            let layout = Layout::new(meta().len, meta().unit_bytes, len).unwrap();
            assert_eq!(rest.len(), layout.label_rest_bytes);
            assert_eq!(layout.file_bytes, layout.label_rest_at() + rest.len() as u64);
            assert_eq!(rest.is_empty(), len <= LABEL_ROOM);
            let header = decode_header(meta().id, &page).unwrap();
            assert_eq!(decode_label(&header, &page, &rest).unwrap(), label);
            for at in 0..rest.len() {
                let mut flipped = rest.clone();
                flipped[at] ^= 0x10;
                assert!(decode_label(&header, &page, &flipped).unwrap_err().is_rot(), "{len}, flip at {at}");
            }
        }
    }

    /// A page with this number at this place, and a correct checksum.
    fn changed(at: usize, to: u32) -> [u8; HEADER_BYTES] {
        let mut page = encode_header(&meta(), b"label");
        page[at..at + 4].copy_from_slice(&to.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
        page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
        page
    }

    #[test]
    fn old_versions_have_no_label_and_their_own_units() {
        let header = decode_header(meta().id, &changed(8, 1)).unwrap();
        assert_eq!(header, Header { meta: meta(), label_bytes: 0 });
        let refused = decode_header(meta().id, &changed(8, 2)).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { what: "unit size", .. }), "{refused}");
    }

    #[test]
    fn a_label_longer_than_any_is_refused_before_memory_is_taken() {
        let page = changed(LABEL_BYTES_AT, MOST_LABEL_BYTES as u32 + 1);
        let refused = decode_header(meta().id, &page).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { what: "length of the label", .. }), "{refused}");
        let refused = Layout::new(3, 65536, MOST_LABEL_BYTES + 1).unwrap_err();
        assert!(matches!(refused, StoreError::Invalid { what: "length of a label", .. }), "{refused}");
    }

    #[test]
    fn a_header_of_another_block_or_version_is_refused() {
        let other = BlockId { index: BlockIndex(12), ..meta().id };
        let refused = decode_header(other, &encode_header(&meta(), &[])).unwrap_err();
        assert!(matches!(refused, StoreError::Corrupt { what: "block id", .. }), "{refused}");

        let refused = decode_header(meta().id, &changed(8, 4)).unwrap_err();
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
        let empty = Layout::new(0, 65536, 0).unwrap();
        assert_eq!((empty.trailer_bytes, empty.file_bytes), (4, 4100));
        assert_eq!(Layout::new(65537, 65536, 0).unwrap().trailer_bytes, 4 * 2 + 4);
        assert_eq!(Layout::new(65537, 4096, 0).unwrap().trailer_bytes, 4 * 17 + 4);
        for unit in [0, 1, 2048, 4095, 12288, 65537, 1 << 17] {
            assert!(matches!(Layout::new(10, unit, 0), Err(StoreError::Invalid { .. })), "{unit}");
        }
        assert!(matches!(Layout::new(u64::MAX, 65536, 0), Err(StoreError::Invalid { .. })));
    }

    proptest! {
        #[test]
        fn no_page_of_any_content_is_a_panic(
            noise in prop::collection::vec(any::<u8>(), 0..300),
            at in 0..HEADER_BYTES,
            version in 0u32..6,
            label_bytes in prop_oneof![0u32..10_000, any::<u32>()],
            unit_bits in 0u32..32,
            len in prop_oneof![0u64..10_000, any::<u64>()],
            fix_crc in any::<bool>(),
            behind in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut page = encode_header(&meta(), &[3; LABEL_ROOM]);
            page[8..12].copy_from_slice(&version.to_le_bytes());
            page[28..32].copy_from_slice(&(1u32 << unit_bits).to_le_bytes());
            page[32..40].copy_from_slice(&len.to_le_bytes());
            page[LABEL_BYTES_AT..LABEL_AT].copy_from_slice(&label_bytes.to_le_bytes());
            let end = HEADER_BYTES.min(at + noise.len());
            page[at..end].copy_from_slice(&noise[..end - at]);
            if fix_crc {
                let crc = crc_fast::crc32_iscsi(&page[..CRC_AT]);
                page[CRC_AT..].copy_from_slice(&crc.to_le_bytes());
            }
            if let Ok(header) = decode_header(meta().id, &page) {
                prop_assert!(header.label_bytes <= MOST_LABEL_BYTES);
                if let Ok(layout) = Layout::of(&header) {
                    prop_assert_eq!(layout.label_rest_bytes > 0, header.label_bytes > LABEL_ROOM);
                    prop_assert!(layout.file_bytes >= HEADER_BYTES as u64 + header.meta.len + 4);
                }
                let _ = decode_label(&header, &page, &behind);
            }
        }
    }
}
