//! Frames arrive unchanged or are refused: every flipped bit, every cut, any bytes at all.

use kintsu_dag::{BlockId, BlockIndex, NodeId, StripeId, Vertex};
use kintsu_plan::{MOST_STEP_BYTES, RunId};
use kintsu_wire::WireError;
use kintsu_wire::frame::{self, FrameVersion, HEADER_BYTES, Header, Hello, Kind, MAX_PAYLOAD_BYTES};
use kintsu_wire::message::{Fault, FaultKind};
use proptest::prelude::*;

/// Reads one frame from the beginning of `bytes`, as a receiver does.
fn read(bytes: &[u8]) -> Result<(Header, &[u8]), WireError> {
    let header = Header::decode(bytes)?;
    let rest = &bytes[HEADER_BYTES..];
    let payload = &rest[..header.payload_bytes().min(rest.len())];
    header.check_payload(payload)?;
    Ok((header, payload))
}

fn written(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header.encode(FrameVersion::NEWEST).to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

fn fault() -> Fault {
    Fault {
        kind: FaultKind::Corrupt,
        node: NodeId(7),
        block: Some(BlockId { stripe: StripeId(3), index: BlockIndex(2) }),
        detail: "unit 5".into(),
    }
}

fn samples() -> Vec<Vec<u8>> {
    let slice = Kind::Slice { vertex: Vertex(9), offset: 1 << 40, zero: false };
    let payload: Vec<u8> = (0..77).collect();
    let hello = Hello {
        job: RunId(5),
        lane: 2,
        from: NodeId(1),
        to: NodeId::CLIENT,
        token: Some("t".into()),
        cluster: None,
    };
    vec![
        written(Header::new(slice, 2, &payload), &payload),
        written(Header::zero(1, Vertex(3), 4096, 1 << 20), &[]),
        frame::hello(FrameVersion::NEWEST, &hello).expect("a hello is small"),
        frame::abort(FrameVersion::NEWEST, 2, &fault()).expect("a fault is small"),
        frame::bare(FrameVersion::NEWEST, Kind::KeepAlive { waiting_on: NodeId(4) }, 0).to_vec(),
        frame::bare(FrameVersion::NEWEST, Kind::End, 9).to_vec(),
    ]
}

#[test]
fn every_flipped_bit_is_noticed() {
    for sample in samples() {
        read(&sample).unwrap();
        for bit in 0..sample.len() * 8 {
            let mut bytes = sample.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&bytes).is_err(), "bit {bit} of {sample:02x?}");
        }
    }
}

#[test]
fn every_cut_is_noticed() {
    for sample in samples() {
        for len in 0..sample.len() {
            assert!(matches!(read(&sample[..len]), Err(WireError::Cut { .. })), "{len} of {sample:02x?}");
        }
    }
}

#[test]
fn hello_and_abort_come_out_as_they_went_in() {
    let hello = Hello {
        job: RunId(u64::MAX),
        lane: 65535,
        from: NodeId(0),
        to: NodeId::CLIENT,
        token: None,
        cluster: None,
    };
    let bytes = frame::hello(FrameVersion::NEWEST, &hello).unwrap();
    let (header, payload) = read(&bytes).unwrap();
    assert_eq!((header.kind, header.lane), (Kind::Hello, 65535));
    assert_eq!(frame::unpack::<Hello>(payload).unwrap(), hello);
    let bytes = frame::abort(FrameVersion::NEWEST, 0, &fault()).unwrap();
    assert_eq!(frame::unpack::<Fault>(read(&bytes).unwrap().1).unwrap(), fault());
    assert!(frame::unpack::<Hello>(b"nonsense").is_err());
}

/// A header with these bytes changed and its checksum corrected.
fn forged(change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = frame::bare(FrameVersion::NEWEST, Kind::End, 0).to_vec();
    change(&mut bytes);
    let crc = crc_fast::crc32_iscsi(&bytes[..HEADER_BYTES - 4]);
    bytes[HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

#[test]
fn every_version_of_this_layout_is_read_and_written() {
    let sent: Vec<u16> = (0..20).map(|protocol| FrameVersion::of_protocol(protocol).number()).collect();
    assert_eq!(sent[..9], [8; 9], "what a release of version 8 reads");
    assert_eq!(sent[9..], [9, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10]);
    for protocol in 8..=10 {
        let version = FrameVersion::of_protocol(protocol);
        let bytes = frame::bare(version, Kind::End, 3);
        assert_eq!(u32::from(bytes[4]), protocol);
        assert_eq!(FrameVersion::of_frame(&bytes), Some(version));
        assert_eq!(read(&bytes).unwrap().0, Header::new(Kind::End, 3, &[]));
    }
}

#[test]
fn wrong_versions_sizes_and_kinds_say_so() {
    let other = forged(|b| b[4] = 250);
    assert_eq!(read(&other).unwrap_err(), WireError::Version { expected: 10, got: 250 });
    let large = forged(|b| b[24..28].copy_from_slice(&(MAX_PAYLOAD_BYTES as u32 + 1).to_le_bytes()));
    let expected = WireError::Oversized { expected: MAX_PAYLOAD_BYTES, got: MAX_PAYLOAD_BYTES + 1 };
    assert_eq!(read(&large).unwrap_err(), expected);
    for bad in [forged(|b| b[6] = 6), forged(|b| b[7] = 1), forged(|b| b[10] = 1), forged(|b| b[0] = 0)] {
        assert!(matches!(read(&bad), Err(WireError::Garbled { .. })));
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_fields_under_a_right_checksum_are_read_or_refused(
        fields in proptest::collection::vec(any::<u8>(), HEADER_BYTES - 10),
    ) {
        let bytes = forged(|b| b[6..HEADER_BYTES - 4].copy_from_slice(&fields));
        if let Ok((header, _)) = read(&bytes) {
            prop_assert_eq!(&header.encode(FrameVersion::NEWEST)[..6], &bytes[..6]);
            prop_assert_eq!(Header::decode(&header.encode(FrameVersion::NEWEST)).unwrap(), header);
        }
    }

    #[test]
    fn slices_come_out_as_they_went_in(
        vertex in any::<u32>(), offset in any::<u64>(), lane in any::<u16>(),
        payload in proptest::collection::vec(any::<u8>(), 0..5000),
    ) {
        let kind = Kind::Slice { vertex: Vertex(vertex), offset, zero: false };
        let header = Header::new(kind, lane, &payload);
        let bytes = written(header, &payload);
        let (got, rest) = read(&bytes).unwrap();
        prop_assert_eq!(got, header);
        prop_assert_eq!(rest, &payload[..]);
    }
}

#[test]
fn the_longest_step_of_a_plan_fills_a_frame() {
    assert_eq!(MOST_STEP_BYTES as usize, MAX_PAYLOAD_BYTES);
}
