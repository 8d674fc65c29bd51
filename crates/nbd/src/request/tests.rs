use proptest::prelude::*;

use super::*;
use crate::device::BlockSizes;

const SIZE: u64 = 10 << 30;

fn session() -> Session {
    Session {
        size: SIZE,
        read_only: false,
        sizes: BlockSizes { minimum: 512, preferred: 4096 },
        max_data_bytes: 32 << 20,
        structured: true,
        allocation: true,
    }
}

fn header(kind: u16, offset: u64, len: u32) -> Header {
    Header { flags: 0, kind, cookie: 0, offset, len }
}

fn error(header: Header, session: &Session) -> u32 {
    check(header, session).unwrap_err().error
}

fn bytes(header: Header) -> [u8; HEADER_BYTES] {
    let mut bytes = REQUEST.to_be_bytes().to_vec();
    bytes.extend(header.flags.to_be_bytes());
    bytes.extend(header.kind.to_be_bytes());
    bytes.extend(header.cookie.to_be_bytes());
    bytes.extend(header.offset.to_be_bytes());
    bytes.extend(header.len.to_be_bytes());
    bytes.try_into().unwrap()
}

#[test]
fn ranges_beyond_the_end_are_refused_as_the_protocol_says() {
    let session = session();
    for kind in [CMD_READ, CMD_TRIM, CMD_BLOCK_STATUS, CMD_WRITE, CMD_WRITE_ZEROES] {
        let expected = if matches!(kind, CMD_WRITE | CMD_WRITE_ZEROES) { ENOSPC } else { EINVAL };
        assert_eq!(error(header(kind, SIZE - 512, 1024), &session), expected);
        assert_eq!(error(header(kind, u64::MAX - 511, 512), &session), expected);
        assert_eq!(error(header(kind, 512, 0), &session), EINVAL);
        assert_eq!(error(header(kind, 100, 512), &session), EINVAL);
        assert_eq!(error(header(kind, 512, 100), &session), EINVAL);
        assert!(check(header(kind, SIZE - 512, 512), &session).is_ok());
    }
    // What has no data may be long.
    assert!(check(header(CMD_TRIM, 0, 0xffff_fe00), &session).is_ok());
    for kind in [CMD_READ, CMD_WRITE] {
        assert!(check(header(kind, 0, 32 << 20), &session).is_ok());
        assert_eq!(error(header(kind, 0, (32 << 20) + 512), &session), EINVAL);
    }
}

#[test]
fn flags_and_modes_are_held_against_the_session() {
    let session = session();
    let flagged = |kind, flags| Header { flags, ..header(kind, 0, 4096) };
    assert!(check(flagged(CMD_READ, FLAG_FUA | FLAG_DF), &session).is_ok());
    assert_eq!(error(flagged(CMD_WRITE, FLAG_DF), &session), EINVAL);
    assert_eq!(error(flagged(CMD_WRITE_ZEROES, 1 << 4), &session), EINVAL);
    let zeroes = check(flagged(CMD_WRITE_ZEROES, FLAG_NO_HOLE | FLAG_FUA), &session);
    assert_eq!(zeroes, Ok(Command::WriteZeroes { offset: 0, len: 4096, may_punch: false, fua: true }));
    assert_eq!(error(header(CMD_FLUSH, 0, 1), &session), EINVAL);
    assert_eq!(check(header(CMD_FLUSH, 0, 0), &session), Ok(Command::Flush));
    assert_eq!(error(header(5, 0, 4096), &session), EINVAL);

    let simple = Session { structured: false, allocation: false, ..session.clone() };
    assert_eq!(error(flagged(CMD_READ, FLAG_DF), &simple), EINVAL);
    assert_eq!(error(flagged(CMD_BLOCK_STATUS, FLAG_REQ_ONE), &simple), EINVAL);

    let read_only = Session { read_only: true, ..session };
    for kind in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
        assert_eq!(error(header(kind, 0, 4096), &read_only), EPERM);
    }
    assert!(check(header(CMD_READ, 0, 4096), &read_only).is_ok());
}

proptest! {
    #[test]
    fn a_header_is_read_as_it_was_written(
        flags: u16, kind: u16, cookie: u64, offset: u64, len: u32,
    ) {
        let header = Header { flags, kind, cookie, offset, len };
        prop_assert_eq!(Header::parse(&bytes(header)).unwrap(), header);
        let mut other = bytes(header);
        other[3] ^= 1;
        prop_assert!(Header::parse(&other).is_err());
    }

    /// Whatever comes: what is granted lies within the export, and needs no more memory than was allowed.
    #[test]
    fn what_is_granted_is_within_the_limits(
        flags in 0u16..64, kind in 0u16..9,
        offset in prop_oneof![any::<u64>(), 0..SIZE, (SIZE - 9000)..(SIZE + 9000), (0..SIZE / 512).prop_map(|b| b * 512)],
        len in prop_oneof![any::<u32>(), 0u32..9000, (0u32..100_000).prop_map(|b| b * 512)],
        read_only: bool, structured: bool, allocation: bool,
    ) {
        let session = Session { read_only, structured, allocation, ..session() };
        let Ok(command) = check(Header { flags, kind, cookie: 1, offset, len }, &session) else { return Ok(()) };
        prop_assert!(command.held_bytes() <= session.max_data_bytes);
        match command {
            Command::Read { offset, len } | Command::Status { offset, len, .. } => {
                prop_assert!(offset + u64::from(len) <= SIZE && len > 0);
            }
            Command::Write { offset, len, .. } | Command::Trim { offset, len, .. }
            | Command::WriteZeroes { offset, len, .. } => {
                prop_assert!(!read_only && offset + u64::from(len) <= SIZE && len > 0);
            }
            Command::Flush | Command::Disconnect => {}
        }
    }
}
