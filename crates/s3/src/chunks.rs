//! Bodies in chunks with a size before each (`aws-chunked`), so that no chunk fills the memory.
//!
//! The library keeps a whole chunk until its last byte has come, and a chunk may have 4 GiB. Clients that sign each chunk send small
//! ones, and a larger one than [`MOST_BYTES`] is refused. Clients that sign none may send the whole object as one; such a chunk
//! is passed on as many. What is said in heads of chunks is otherwise the library's to judge.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use hyper::body::{Body, Frame};

/// Most bytes of a chunk that is signed.
const MOST_BYTES: u64 = 1 << 20;

/// Longest head of a chunk: its size, and perhaps a signature.
const HEAD_BYTES: usize = 1024;

/// What errors of this file begin with.
pub(crate) const WRONG_CHUNK: &str = "wrong chunk";

/// Whether a body comes in chunks.
pub(crate) fn has(headers: &HeaderMap) -> bool {
    let kinds = headers.get_all("x-amz-content-sha256").iter();
    kinds.into_iter().any(|kind| kind.as_bytes().starts_with(b"STREAMING-"))
}

/// Where in the body the next byte is.
#[derive(Debug)]
enum At {
    Head(BytesMut),
    /// In the bytes of a chunk, of which so many are left. `signed`: it is passed on as it is.
    Data {
        left: u64,
        signed: bool,
    },
    /// In the two bytes that end a chunk.
    End {
        left: usize,
        signed: bool,
    },
    /// Behind the last chunk.
    Rest,
}

/// A body in chunks, of which none is too large.
pub(crate) struct Chunks<B> {
    body: B,
    at: At,
    /// What is to be passed on.
    out: VecDeque<Bytes>,
}

impl<B> Chunks<B> {
    pub(crate) fn new(body: B) -> Self {
        Self { body, at: At::Head(BytesMut::new()), out: VecDeque::new() }
    }

    /// Takes bytes that have come.
    fn take(&mut self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            match &mut self.at {
                At::Head(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    line.extend_from_slice(&bytes.split_to(end.map_or(bytes.len(), |end| end + 1)));
                    if line.len() > HEAD_BYTES {
                        return Err(wrong(format!(
                            "expected a head of at most {HEAD_BYTES} bytes, got more"
                        )));
                    }
                    if end.is_some() {
                        let line = std::mem::take(line).freeze();
                        self.begin(line)?;
                    }
                }
                At::Data { left, signed } => {
                    let len = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                    let (piece, signed) = (bytes.split_to(len), *signed);
                    *left -= len as u64;
                    if *left == 0 {
                        self.at = At::End { left: END.len(), signed };
                    }
                    self.pass(piece, signed);
                }
                At::End { left, signed } => {
                    let byte = bytes.split_to(1);
                    if byte[..] != END[END.len() - *left..][..1] {
                        return Err(wrong("expected a line's end behind it, got another byte".to_owned()));
                    }
                    *left -= 1;
                    let (ended, signed) = (*left == 0, *signed);
                    if ended {
                        self.at = At::Head(BytesMut::new());
                    }
                    if signed {
                        self.out.push_back(byte);
                    }
                }
                At::Rest => self.out.push_back(std::mem::take(&mut bytes)),
            }
        }
        Ok(())
    }

    /// Begins the chunk with this head.
    fn begin(&mut self, line: Bytes) -> io::Result<()> {
        let head = line.strip_suffix(END).unwrap_or(&line);
        let size = head.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = str::from_utf8(size).ok().filter(|text| text.len() <= 8 && !text.starts_with('+'));
        let size = size.and_then(|text| u64::from_str_radix(text, 16).ok());
        let size = size
            .ok_or_else(|| wrong("expected its size as 1 to 8 hex digits, got something else".to_owned()))?;
        let signed = head.contains(&b';');
        if signed && size > MOST_BYTES {
            return Err(wrong(format!("expected at most {MOST_BYTES} bytes in a signed chunk, got {size}")));
        }
        if signed || size == 0 {
            self.out.push_back(line);
        }
        self.at = if size == 0 { At::Rest } else { At::Data { left: size, signed } };
        Ok(())
    }

    /// Passes on bytes of a chunk, which is not signed as one of its own.
    fn pass(&mut self, piece: Bytes, signed: bool) {
        if signed {
            self.out.push_back(piece);
        } else {
            let head = Bytes::from(format!("{:x}\r\n", piece.len()));
            self.out.extend([head, piece, Bytes::from_static(END)]);
        }
    }
}

/// What ends heads and chunks.
const END: &[u8] = b"\r\n";

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{WRONG_CHUNK}: {text}"))
}

impl<B> Body for Chunks<B>
where
    B: Body<Data = Bytes, Error = io::Error> + Unpin,
{
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            if let Some(bytes) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(bytes) => self.take(bytes)?,
                Err(frame) => return Poll::Ready(Some(Ok(frame))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz::passed;

    #[test]
    fn signed_chunks_pass_as_they_are_and_others_in_pieces() {
        let signed = b"3;chunk-signature=0\r\nabc\r\n0;chunk-signature=1\r\nx-amz-trailer: 5\r\n\r\n";
        let plain = b"A\r\n0123456789\r\n1\r\nx\r\n0\r\nx-amz-checksum-crc32:AA==\r\n\r\n";
        for piece in [1, 2, 4, 7, 1000] {
            assert_eq!(passed(signed, piece).unwrap(), signed, "pieces of {piece}");
        }
        assert_eq!(passed(plain, 1000).unwrap().to_ascii_uppercase(), plain.to_ascii_uppercase());
        let cut = passed(plain, 7).unwrap();
        let expected = "4\r\n0123\r\n6\r\n456789\r\n1\r\nx\r\n0\r\nx-amz-checksum-crc32:AA==\r\n\r\n";
        assert_eq!(String::from_utf8(cut).unwrap(), expected);
        let ended_early = passed(b"A\r\n01234", 1000).unwrap();
        assert_eq!(ended_early, b"5\r\n01234\r\n");
    }

    #[test]
    fn chunks_that_are_too_large_or_wrong_are_refused() {
        let most = MOST_BYTES as usize;
        let signed = |len: usize| {
            [format!("{len:x};chunk-signature=0\r\n").as_bytes(), &vec![b'x'; len], b"\r\n0\r\n\r\n"].concat()
        };
        assert_eq!(passed(&signed(most), 65_536).unwrap(), signed(most));
        for wrong in [
            &signed(most + 1)[..],
            b"\r\n",
            b"g\r\n",
            b"+1\r\nx\r\n",
            b"1 \r\nx\r\n",
            b"123456789\r\nx",
            b"1\r\nxy\r\n",
            b"1\r\nx\ry",
            b"\xff\r\n",
            &[b'0'; HEAD_BYTES + 1],
        ] {
            let error = passed(wrong, 1000).unwrap_err();
            assert!(error.to_string().starts_with(WRONG_CHUNK), "{error}");
        }
    }

    #[test]
    fn chunks_are_announced() {
        let has_chunks = |kind: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-amz-content-sha256", kind.parse().unwrap());
            has(&headers)
        };
        assert!(has_chunks("STREAMING-UNSIGNED-PAYLOAD-TRAILER"));
        assert!(!has_chunks("UNSIGNED-PAYLOAD") && !has(&HeaderMap::new()));
    }
}
