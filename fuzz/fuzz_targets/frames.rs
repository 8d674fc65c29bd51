//! A stream of frames: what is read as a header is written as the same header, and no payload is larger than it says.
#![no_main]

use kintsu_wire::frame::{FrameVersion, HEADER_BYTES, Header, Hello, Kind, unpack};
use kintsu_wire::message::Fault;
use libfuzzer_sys::fuzz_target;

/// Where the kind, the length of the payload, its checksum and that of the header begin (`docs/format.md`).
const KIND: usize = 6;
const LEN: usize = HEADER_BYTES - 12;
const PAYLOAD_CRC: usize = HEADER_BYTES - 8;
const CRC: usize = HEADER_BYTES - 4;

/// Reads all frames.
fn read(mut rest: &[u8]) {
    while let Some((head, tail)) = rest.split_at_checked(HEADER_BYTES) {
        let Ok(header) = Header::decode(head) else { return };
        assert_eq!(Header::decode(&header.encode(FrameVersion::NEWEST)).unwrap(), header);
        let Some((payload, next)) = tail.split_at_checked(header.payload_bytes()) else { return };
        let _ = header.check_payload(payload);
        match header.kind {
            Kind::Hello => drop(unpack::<Hello>(payload)),
            Kind::Abort => drop(unpack::<Fault>(payload)),
            _ => {}
        }
        rest = next;
    }
}

/// Puts the checksums right, which chance does not find.
fn seal(mut rest: &mut [u8]) {
    while let Some((head, tail)) = rest.split_at_mut_checked(HEADER_BYTES) {
        let field = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"));
        // Zeros are not sent.
        let len = if head[KIND..][..2] == [2, 1] { 0 } else { (field(LEN) as usize).min(tail.len()) };
        let (payload, next) = tail.split_at_mut(len);
        let crc = if payload.is_empty() { 0 } else { crc_fast::crc32_iscsi(payload) };
        head[PAYLOAD_CRC..CRC].copy_from_slice(&crc.to_le_bytes());
        let crc = crc_fast::crc32_iscsi(&head[..CRC]);
        head[CRC..].copy_from_slice(&crc.to_le_bytes());
        rest = next;
    }
}

fuzz_target!(|data: &[u8]| {
    read(data);
    let mut sealed = data.to_vec();
    seal(&mut sealed);
    read(&sealed);
});
