//! The answer to one request, as bytes.

use bytes::{BufMut, Bytes, BytesMut};

use crate::numbers::*;
use crate::request::Refusal;

/// Data up to this length are copied behind their header, so that many answers leave in one call.
const COPIED_BYTES: usize = 16 << 10;

/// What a request ended with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is done, and there is nothing more to tell.
    Done,
    /// The bytes from `offset` on.
    Data { offset: u64, bytes: Bytes },
    /// Length and status flags of extents in a row; never empty.
    Status(Vec<(u32, u32)>),
    /// It was not done.
    Refused(Refusal),
}

impl Answer {
    /// Appends the answer to `out`, except for long data, which are returned and go next.
    pub fn encode(self, cookie: u64, structured: bool, out: &mut BytesMut) -> Option<Bytes> {
        if !structured {
            return self.encode_simple(cookie, out);
        }
        match self {
            Self::Done => chunk(out, CHUNK_NONE, cookie, 0),
            Self::Data { offset, bytes } if is_zero(&bytes) => {
                chunk(out, CHUNK_HOLE, cookie, 12);
                out.put_u64(offset);
                out.put_u32(bytes.len() as u32);
            }
            Self::Data { offset, bytes } => {
                chunk(out, CHUNK_DATA, cookie, 8 + bytes.len() as u32);
                out.put_u64(offset);
                return behind(bytes, out);
            }
            Self::Status(extents) => {
                chunk(out, CHUNK_STATUS, cookie, 4 + 8 * extents.len() as u32);
                out.put_u32(BASE_ALLOCATION_ID);
                for (len, flags) in extents {
                    out.put_u32(len);
                    out.put_u32(flags);
                }
            }
            Self::Refused(refusal) => {
                let why = cut(&refusal.why, MAX_STRING_BYTES);
                chunk(out, CHUNK_ERROR, cookie, 6 + why.len() as u32);
                out.put_u32(refusal.error);
                out.put_u16(why.len() as u16);
                out.put_slice(why.as_bytes());
            }
        }
        None
    }

    fn encode_simple(self, cookie: u64, out: &mut BytesMut) -> Option<Bytes> {
        let (error, bytes) = match self {
            Self::Done => (0, Bytes::new()),
            Self::Data { bytes, .. } => (0, bytes),
            // Without structured replies it is not asked for.
            Self::Status(_) => (EINVAL, Bytes::new()),
            Self::Refused(refusal) => (refusal.error, Bytes::new()),
        };
        out.put_u32(SIMPLE_REPLY);
        out.put_u32(error);
        out.put_u64(cookie);
        behind(bytes, out)
    }
}

/// Appends the header of a chunk that is the only one of its answer.
fn chunk(out: &mut BytesMut, kind: u16, cookie: u64, len: u32) {
    out.put_u32(STRUCTURED_REPLY);
    out.put_u16(REPLY_DONE);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(len);
}

/// Copies short data behind their header, returns long ones.
fn behind(bytes: Bytes, out: &mut BytesMut) -> Option<Bytes> {
    if bytes.len() > COPIED_BYTES {
        return Some(bytes);
    }
    out.put_slice(&bytes);
    None
}

/// Whether there are only zeroes; ends at the first other byte.
fn is_zero(bytes: &[u8]) -> bool {
    // Compared with itself, one byte further: the library compares long runs in one go.
    bytes.first() == Some(&0) && bytes[1..] == bytes[..bytes.len() - 1]
}

/// The start of a text, at most `most` bytes, cut between two characters.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(answer: Answer, structured: bool) -> (Vec<u8>, Option<Bytes>) {
        let mut out = BytesMut::new();
        let more = answer.encode(7, structured, &mut out);
        (out.to_vec(), more)
    }

    #[test]
    fn zeroes_are_sent_as_a_hole() {
        let zeroes = |len| Answer::Data { offset: 512, bytes: Bytes::from(vec![0; len]) };
        let (bytes, more) = encoded(zeroes(1 << 20), true);
        assert_eq!((bytes.len(), more), (32, None));
        assert_eq!(bytes[6..8], CHUNK_HOLE.to_be_bytes());
        assert_eq!(bytes[20..], [&512u64.to_be_bytes()[..], &(1u32 << 20).to_be_bytes()].concat());
        // A client that does not know holes gets the bytes.
        let (bytes, more) = encoded(zeroes(1 << 20), false);
        assert_eq!((bytes.len(), more.map(|b| b.len())), (16, Some(1 << 20)));
        for at in [0, 1, 500, 1023] {
            let mut data = vec![0; 1024];
            data[at] = 1;
            let (bytes, _) = encoded(Answer::Data { offset: 0, bytes: Bytes::from(data.clone()) }, true);
            assert_eq!(bytes[28..], data);
        }
    }

    #[test]
    fn a_refusal_says_why_if_the_client_can_hear_it() {
        let refused = || Answer::Refused(Refusal::new(EIO, "node 3 is silent"));
        let (bytes, _) = encoded(refused(), true);
        assert_eq!(bytes[16..20], 22u32.to_be_bytes());
        assert!(bytes.ends_with(b"node 3 is silent"));
        let (bytes, _) = encoded(refused(), false);
        assert_eq!(bytes[4..8], EIO.to_be_bytes());
        assert_eq!(bytes.len(), 16);
        let long = Answer::Refused(Refusal::new(EIO, "\u{e9}".repeat(3000)));
        assert_eq!(encoded(long, true).0.len(), 20 + 6 + MAX_STRING_BYTES);
    }
}
