//! Packets: 4 bytes of length (of checksums and data, plus 4), 2 bytes of header length, header, checksums, data.

use std::io::Read;

use prost::Message;

use super::Link;
use crate::HdfsError;
use crate::proto::transfer::{Checksum, PacketHeader};

/// The number of the checksum CRC32C.
pub const CRC32C: i32 = 2;

/// Bytes under one checksum in files that Kintsu makes, as HDFS's own default. A block that is rebuilt has as many as the others of its group.
pub const UNIT_BYTES: usize = 512;

/// The longest packet that is taken: Hadoop's own limit.
const MOST_BYTES: usize = 16 << 20;

/// The CRC32C of a unit.
pub(crate) fn crc32c(unit: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, unit) as u32
}

/// The checksums of `data` as they stand in packets and `.meta` files.
pub(crate) fn checksums(data: &[u8], unit_bytes: usize) -> Vec<u8> {
    data.chunks(unit_bytes.max(1)).flat_map(|unit| crc32c(unit).to_be_bytes()).collect()
}

/// Compares each unit of `data` with its checksum. `at` is the offset of `data`.
///
/// # Errors
/// `Corrupt`, and `Unsupported` if there are not as many checksums as units.
pub(crate) fn check(
    what: &dyn Fn() -> String,
    at: u64,
    data: &[u8],
    sums: &[u8],
    unit_bytes: usize,
) -> Result<(), HdfsError> {
    let units = data.len().div_ceil(unit_bytes.max(1));
    if sums.len() != units * 4 {
        return Err(HdfsError::Unsupported {
            what: what(),
            expected: format!("{} bytes of checksums for {} bytes", units * 4, data.len()),
            got: sums.len().to_string(),
        });
    }
    for (i, (unit, sum)) in data.chunks(unit_bytes.max(1)).zip(sums.chunks_exact(4)).enumerate() {
        let expected = u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]]);
        let got = crc32c(unit);
        if got != expected {
            let at = at + (i * unit_bytes) as u64;
            return Err(HdfsError::Corrupt { what: what(), at, expected, got });
        }
    }
    Ok(())
}

/// What the checksums of a block must be.
///
/// # Errors
/// `Unsupported` for another kind than CRC32C, or units of no sensible size.
pub(crate) fn supported(what: &dyn Fn() -> String, sum: &Checksum) -> Result<usize, HdfsError> {
    let unit = sum.unit_bytes as usize;
    if sum.kind == CRC32C && (1..=MOST_BYTES / 2).contains(&unit) {
        return Ok(unit);
    }
    let kind = match sum.kind {
        0 => "none".to_owned(),
        1 => "CRC32".to_owned(),
        other => format!("kind {other}"),
    };
    Err(HdfsError::Unsupported {
        what: format!("checksums of {}", what()),
        expected: "CRC32C (dfs.checksum.type)".into(),
        got: format!("{kind}, units of {unit} bytes"),
    })
}

impl<I: Read, O> Link<I, O> {
    /// Takes a packet, and compares its data with its checksums.
    pub(super) fn packet(&mut self, unit_bytes: usize) -> Result<(PacketHeader, Vec<u8>), HdfsError> {
        let mut lens = [0; 6];
        self.receive(&mut lens)?;
        let payload = u32::from_be_bytes([lens[0], lens[1], lens[2], lens[3]]) as usize;
        let head = usize::from(u16::from_be_bytes([lens[4], lens[5]]));
        if !(4..=MOST_BYTES).contains(&payload) {
            return Err(self.error(format!("expected a packet of 4 bytes to 16 MiB, got {payload}")));
        }
        let mut bytes = vec![0; head + payload - 4];
        self.receive(&mut bytes)?;
        let header = PacketHeader::decode(&bytes[..head])
            .map_err(|e| self.error(format!("a packet whose header cannot be read: {e}")))?;
        let data = usize::try_from(header.data_bytes).ok().filter(|data| *data <= payload - 4);
        let Some(data) = data else {
            return Err(self.error(format!("a packet of {payload} bytes with {} of data", header.data_bytes)));
        };
        let Ok(offset) = u64::try_from(header.offset) else {
            return Err(self.error(format!("expected a packet of a byte from 0 on, got {}", header.offset)));
        };
        let at = bytes.len() - data;
        let what = || format!("{} from DataNode {}", self.name(), self.datanode);
        check(&what, offset, &bytes[at..], &bytes[head..at], unit_bytes)?;
        bytes.drain(..at);
        Ok((header, bytes))
    }
}

impl Link {
    /// Sends a packet.
    pub(super) fn send_packet(
        &mut self,
        header: &PacketHeader,
        data: &[u8],
        unit_bytes: usize,
    ) -> Result<(), HdfsError> {
        let sums = checksums(data, unit_bytes);
        let mut bytes = ((data.len() + sums.len() + 4) as u32).to_be_bytes().to_vec();
        bytes.reserve(32 + sums.len() + data.len());
        let head = header.encode_to_vec();
        bytes.extend((head.len() as u16).to_be_bytes());
        bytes.extend(head);
        bytes.extend(sums);
        bytes.extend(data);
        self.send(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_crc32c_big_endian_and_a_changed_byte_is_found_in_its_unit() {
        // The check value of CRC-32C.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut data = vec![7u8; 1100];
        let sums = checksums(&data, 512);
        assert_eq!(sums.len(), 12);
        let what = || "b".to_owned();
        check(&what, 0, &data, &sums, 512).unwrap();
        data[1050] ^= 1;
        let Err(HdfsError::Corrupt { at, .. }) = check(&what, 512, &data, &sums, 512) else { panic!() };
        assert_eq!(at, 512 + 1024);
        assert!(check(&what, 0, &data, &sums[..8], 512).is_err());
    }

    #[test]
    fn a_packet_of_a_negative_offset_is_refused_whatever_its_checksums() {
        let header =
            PacketHeader { offset: -512, data_bytes: 1024, ..PacketHeader::default() }.encode_to_vec();
        let mut sums = checksums(&[7; 1024], 512);
        sums[7] ^= 1;
        let mut bytes = (1024 + 8 + 4u32).to_be_bytes().to_vec();
        bytes.extend((header.len() as u16).to_be_bytes());
        let bytes = [&bytes[..], &header, &sums, &[7; 1024]].concat();
        let (datanode, block) = (([127, 0, 0, 1], 1).into(), crate::proto::names::ExtendedBlock::default());
        let mut link = Link { datanode, block, input: &bytes[..], output: () };
        let error = link.packet(512).unwrap_err().to_string();
        assert!(error.contains("got -512"), "{error}");
    }

    #[test]
    fn other_checksums_are_refused_in_words() {
        let refused = supported(&|| "b".into(), &Checksum { kind: 1, unit_bytes: 512 }).unwrap_err();
        assert!(refused.to_string().contains("got CRC32, units of 512 bytes"), "{refused}");
        assert!(supported(&|| "b".into(), &Checksum { kind: 2, unit_bytes: 0 }).is_err());
        assert_eq!(supported(&|| "b".into(), &Checksum { kind: 2, unit_bytes: 512 }).unwrap(), 512);
    }
}
