//! A stream of frames: what is read as a header is written as the same header, and no payload is larger than it says.
#![no_main]

use kintsu_wire::frame::{FrameVersion, HEADER_BYTES, Header, Hello, Kind, unpack};
use kintsu_wire::message::Fault;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
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
});
