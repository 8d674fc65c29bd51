//! Bytes that a client sends: digested while they pass, and compared with what the client says of them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::{Stream, StreamExt};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, StreamingBlob};
use s3s::stream::ByteStream;
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::JoinHandle;

use crate::chunks::WRONG_CHUNK;
use crate::entry::{algorithms, values};
use crate::error::because;
use crate::gateway::EntityTags;

/// Bodies that are longer than this are digested on another thread while they are read, in batches of at least this size.
const BATCH: usize = 256 << 10;

/// If this many bytes wait for their digests, reading waits too.
const MOST_WAITING: usize = 1 << 20;

/// What a client says of the bytes before it sends them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    /// `Content-MD5`.
    pub md5: Option<String>,
    /// The checksums in headers.
    pub sums: Checksum,
    /// The algorithm of a checksum that comes behind the bytes, or that is only wanted.
    pub algorithm: Option<String>,
    /// Headers behind the bytes.
    pub trailers: Option<TrailingHeaders>,
}

/// What was found of the bytes.
#[derive(Debug, Clone)]
pub(crate) struct Digests {
    /// If it was needed.
    pub md5: Option<[u8; 16]>,
    pub sums: Checksum,
}

impl Digests {
    /// The entity tag that is their MD5; without one it follows from the object.
    pub(crate) fn etag(&self) -> Option<String> {
        self.md5.as_ref().map(|md5| hex(md5))
    }
}

/// The digests of the bytes until now, and why the body ended early.
struct Passing {
    md5: Option<Md5>,
    sums: ChecksumHasher,
    judged: bool,
    failed: Option<S3Error>,
}

impl Passing {
    fn new(claims: &Claims, tags: EntityTags) -> Self {
        let md5 = (tags == EntityTags::Md5 || claims.md5.is_some()).then(Md5::new);
        Self { md5, sums: hasher(claims), judged: false, failed: None }
    }

    /// Whether the bytes are looked at.
    fn computes(&self) -> bool {
        let ChecksumHasher { crc32, crc32c, sha1, sha256, crc64nvme } = &self.sums;
        self.md5.is_some()
            || crc32.is_some()
            || crc32c.is_some()
            || sha1.is_some()
            || sha256.is_some()
            || crc64nvme.is_some()
    }
}

/// Watches the bytes of one body.
#[derive(Clone)]
pub(crate) struct Watch(Arc<Mutex<Passing>>);

impl Watch {
    /// Digests the next bytes.
    fn pass(&self, pieces: &[Bytes]) {
        self.with(|passing| {
            for piece in pieces {
                if let Some(md5) = &mut passing.md5 {
                    md5.update(piece);
                }
                passing.sums.update(piece);
            }
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Passing) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why the body ended early, if it did. It is told once.
    pub(crate) fn failure(&self) -> Option<S3Error> {
        self.with(|passing| passing.failed.take())
    }

    /// The digests of all bytes, if they are those that the client claims. Once, after the last byte.
    ///
    /// # Errors
    /// `BadDigest`; `InvalidDigest` for a claim that is none.
    pub(crate) fn judge(&self, claims: &Claims) -> S3Result<Digests> {
        let (before, md5, sums) = self.with(|passing| {
            let before = std::mem::replace(&mut passing.judged, true);
            (before, passing.md5.take(), std::mem::take(&mut passing.sums))
        });
        if before {
            return Err(because(S3ErrorCode::InternalError, "the bytes were judged before"));
        }
        let (md5, sums) = (md5.map(Md5::finalize), sums.finalize());
        if let Some(claim) = &claims.md5 {
            let claim = claim.as_bytes();
            let claimed = base64(claim).filter(|bytes| bytes.len() == 16).ok_or_else(|| {
                because(S3ErrorCode::InvalidDigest, "Content-MD5: expected the base64 of 16 bytes")
            })?;
            let found = md5.map(|md5| hex(&md5)).unwrap_or_default();
            if hex(&claimed) != found {
                let text = format!("Content-MD5: expected the MD5 {}, got {found}", hex(&claimed));
                return Err(because(S3ErrorCode::BadDigest, text));
            }
        }
        let mut claimed = claims.sums.clone();
        add_trailers(&mut claimed, claims.trailers.as_ref());
        for ((claim, found), name) in values(&claimed).into_iter().zip(values(&sums)).zip(algorithms()) {
            if let Some(claim) = claim
                && found != Some(claim)
            {
                let found = found.map_or("none", String::as_str);
                let text =
                    format!("x-amz-checksum of {name}: the client says {claim}, the bytes have {found}");
                return Err(because(S3ErrorCode::BadDigest, text));
            }
        }
        Ok(Digests { md5, sums })
    }
}

/// The checksums that came behind the bytes.
fn add_trailers(sums: &mut Checksum, trailers: Option<&TrailingHeaders>) {
    let Some(trailers) = trailers else { return };
    trailers.read(|headers| {
        let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let fill = |place: &mut Option<String>, name: &str| *place = place.take().or_else(|| value(name));
        fill(&mut sums.checksum_crc32, "x-amz-checksum-crc32");
        fill(&mut sums.checksum_crc32c, "x-amz-checksum-crc32c");
        fill(&mut sums.checksum_crc64nvme, "x-amz-checksum-crc64nvme");
        fill(&mut sums.checksum_sha1, "x-amz-checksum-sha1");
        fill(&mut sums.checksum_sha256, "x-amz-checksum-sha256");
    });
}

/// What computes the checksums that the claims need.
fn hasher(claims: &Claims) -> ChecksumHasher {
    let wanted = |claim: Option<&String>, name: &str| {
        claim.is_some() || claims.algorithm.as_deref().is_some_and(|wanted| wanted.eq_ignore_ascii_case(name))
    };
    let [crc32, crc32c, crc64, sha1, sha256] = values(&claims.sums);
    let names = algorithms();
    ChecksumHasher {
        crc32: wanted(crc32, names[0]).then(Default::default),
        crc32c: wanted(crc32c, names[1]).then(Default::default),
        crc64nvme: wanted(crc64, names[2]).then(Default::default),
        sha1: wanted(sha1, names[3]).then(s3s::crypto::Checksum::new),
        sha256: wanted(sha256, names[4]).then(s3s::crypto::Checksum::new),
    }
}

/// Bytes of a body that are digested on another thread: one batch after the other, in order.
#[derive(Default)]
struct Aside {
    waiting: Vec<Bytes>,
    bytes: usize,
    running: Option<JoinHandle<()>>,
}

impl Aside {
    fn add(&mut self, piece: Bytes) {
        self.bytes += piece.len();
        self.waiting.push(piece);
    }

    /// Begins the next batch if the last one has ended. Ready when no more than `most` bytes wait; with 0, when all are digested.
    ///
    /// # Errors
    /// The thread has panicked.
    fn poll(&mut self, watch: &Watch, most: usize, cx: &mut Context<'_>) -> Poll<Result<(), S3Error>> {
        loop {
            if let Some(running) = &mut self.running {
                match Pin::new(running).poll(cx) {
                    Poll::Ready(Ok(())) => self.running = None,
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err(because(S3ErrorCode::InternalError, error.to_string())));
                    }
                    Poll::Pending if self.bytes > most || most == 0 => return Poll::Pending,
                    Poll::Pending => return Poll::Ready(Ok(())),
                }
            }
            let least = if most == 0 { 1 } else { BATCH };
            if self.bytes < least {
                return Poll::Ready(Ok(()));
            }
            let (watch, pieces) = (watch.clone(), std::mem::take(&mut self.waiting));
            self.bytes = 0;
            self.running = Some(tokio::task::spawn_blocking(move || watch.pass(&pieces)));
        }
    }
}

/// A body on its way in.
pub(crate) struct Intake {
    body: StreamingBlob,
    watch: Watch,
    /// Of a long body.
    aside: Option<Aside>,
    ended: bool,
    /// What came and was not taken yet.
    rest: Bytes,
    /// Bytes that are still to come, if that is known.
    left: Option<u64>,
}

impl Intake {
    /// Bytes that a client sends, or that another object has.
    pub(crate) fn new(body: StreamingBlob, len: Option<u64>, claims: &Claims, tags: EntityTags) -> Self {
        let passing = Passing::new(claims, tags);
        let left = len.or_else(|| body.remaining_length().exact().map(|len| len as u64));
        let long = left.is_none_or(|left| left > BATCH as u64);
        let aside = (long && passing.computes()).then(Aside::default);
        let watch = Watch(Arc::new(Mutex::new(passing)));
        Self { body, watch, aside, ended: false, rest: Bytes::new(), left }
    }

    pub(crate) fn watch(&self) -> Watch {
        self.watch.clone()
    }

    /// How many bytes there are, if that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.left
    }

    /// All bytes, if there are `len` of them. A single piece is not copied, but the end of the body is waited for all the same: checksums
    /// may stand behind the bytes, and a long piece is digested aside.
    pub(crate) async fn collect(mut self, len: usize) -> S3Result<Bytes> {
        let (mut whole, mut out) = (None, BytesMut::with_capacity(len));
        while let Some(piece) = futures::future::poll_fn(|cx| self.poll_piece(cx)).await {
            let piece =
                piece.map_err(|e| self.watch.failure().unwrap_or_else(|| incomplete(&e.to_string())))?;
            match piece.len() == len {
                true => whole = Some(piece),
                false => out.extend_from_slice(&piece),
            }
        }
        Ok(whole.unwrap_or_else(|| out.freeze()))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(aside) = &mut self.aside {
            let most = if self.ended { 0 } else { MOST_WAITING };
            if let Err(error) = ready!(aside.poll(&self.watch, most, cx)) {
                return self.fail(error);
            }
        }
        if self.ended {
            return Poll::Ready(None);
        }
        match ready!(self.body.poll_next_unpin(cx)) {
            Some(Ok(piece)) => {
                let len = piece.len() as u64;
                match &mut self.left {
                    Some(left) if *left < len => {
                        return self.fail(incomplete("more bytes came than the request says"));
                    }
                    Some(left) => *left -= len,
                    None => {}
                }
                match &mut self.aside {
                    Some(aside) => aside.add(piece.clone()),
                    None => self.watch.pass(std::slice::from_ref(&piece)),
                }
                Poll::Ready(Some(Ok(piece)))
            }
            Some(Err(error)) => self.fail(of_body(&error.to_string())),
            None if self.left.is_some_and(|left| left > 0) => {
                self.fail(incomplete("fewer bytes came than the request says"))
            }
            None => {
                self.ended = true;
                self.poll_piece(cx)
            }
        }
    }

    fn fail<T>(&self, error: S3Error) -> Poll<Option<io::Result<T>>> {
        let text = error.message().unwrap_or_default().to_owned();
        self.watch.with(|passing| passing.failed = Some(error));
        Poll::Ready(Some(Err(io::Error::other(text))))
    }
}

impl AsyncRead for Intake {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.rest.is_empty() {
            match self.poll_piece(cx) {
                Poll::Ready(Some(Ok(piece))) => self.rest = piece,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => return Poll::Pending,
            }
        }
        let len = self.rest.len().min(room.remaining());
        room.put_slice(&self.rest[..len]);
        self.rest.advance(len);
        Poll::Ready(Ok(()))
    }
}

/// A body of pieces from a queue whose sender says at the end whether all came.
pub(crate) fn from_queue<S>(pieces: S) -> StreamingBlob
where
    S: Stream<Item = io::Result<Bytes>> + Send + Sync + 'static,
{
    StreamingBlob::wrap(pieces)
}

fn incomplete(text: &str) -> S3Error {
    because(S3ErrorCode::IncompleteBody, text.to_owned())
}

/// Why the layer below has ended a body.
fn of_body(text: &str) -> S3Error {
    if text.contains("Sha256Mismatch") {
        let code = S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into());
        let mut error = because(code, "the bytes do not have the SHA-256 in x-amz-content-sha256");
        error.set_status_code(http::StatusCode::BAD_REQUEST);
        return error;
    }
    if text.contains("SignatureMismatch") {
        return because(S3ErrorCode::SignatureDoesNotMatch, "a chunk of the body has another signature");
    }
    if let Some((_, text)) = text.split_once(WRONG_CHUNK) {
        return because(S3ErrorCode::InvalidRequest, format!("{WRONG_CHUNK}{text}"));
    }
    incomplete(&format!("the body ended early: {text}"))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of 2n hex digits.
pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |c: u8| char::from(c).to_digit(16).map(|d| d as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? * 16 + digit(*pair.get(1)?)?)).collect()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The bytes of base64 text with its padding.
pub(crate) fn base64(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|c| **c == b'=').count();
    let (digits, mut out, mut bits, mut have) = (&text[..text.len() - padding.min(2)], Vec::new(), 0u32, 0);
    for c in digits {
        let value = DIGITS.iter().position(|digit| digit == c)? as u32;
        (bits, have) = (bits << 6 | value, have + 6);
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    Some(out)
}

/// Base64 with its padding.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let value =
            group.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let digit = DIGITS[(value >> (18 - 6 * i)) as usize & 63];
            out.push(if i <= group.len() { char::from(digit) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[test]
    fn base64_and_hex_go_both_ways() {
        for (bytes, text) in
            [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foob", "Zm9vYg==")]
        {
            assert_eq!(to_base64(bytes), text);
            assert_eq!(base64(text.as_bytes()).as_deref(), Some(bytes));
            assert_eq!(unhex(&hex(bytes)).as_deref(), Some(bytes));
        }
        for bad in ["Z", "Zg=", "Zg==Zg==", "Z*=="] {
            assert_eq!(base64(bad.as_bytes()), None, "{bad}");
        }
        assert!(unhex("0").is_none() && unhex("0g").is_none());
    }

    fn intake(pieces: Vec<io::Result<Bytes>>, len: Option<u64>, claims: &Claims) -> Intake {
        let body = from_queue(futures::stream::iter(pieces));
        Intake::new(body, len, claims, EntityTags::Md5)
    }

    #[tokio::test]
    async fn bytes_are_compared_with_what_the_client_says() {
        let hello = || vec![Ok(Bytes::from_static(b"hel")), Ok(Bytes::from_static(b"lo"))];
        let right = Claims {
            md5: Some("XUFAKrxLKna5cZ2REBfFkg==".into()),
            sums: Checksum { checksum_crc32: Some("NhCmhg==".into()), ..Default::default() },
            algorithm: Some("sha256".into()),
            trailers: None,
        };
        let wrong = [
            Claims { md5: Some("XUFAKrxLKna5cZ2REBfFkQ==".into()), ..right.clone() },
            Claims { md5: Some("XUFA".into()), ..right.clone() },
            Claims {
                sums: Checksum { checksum_crc32: Some("NhCmhQ==".into()), ..Default::default() },
                ..right.clone()
            },
        ];
        let judged = |claims: Claims| async move {
            let mut intake = intake(hello(), Some(5), &claims);
            let watch = intake.watch();
            let mut bytes = Vec::new();
            intake.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes, b"hello");
            watch.judge(&claims)
        };
        let digests = judged(right).await.unwrap();
        assert_eq!(digests.etag().unwrap(), "5d41402abc4b2a76b9719d911017c592");
        assert!(digests.sums.checksum_sha256.is_some() && digests.sums.checksum_sha1.is_none());
        for claims in wrong {
            judged(claims).await.unwrap_err();
        }
    }

    #[tokio::test]
    async fn long_bodies_have_the_digests_of_all_their_bytes() {
        let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let claims = Claims { algorithm: Some("crc64nvme".into()), ..Claims::default() };
        let digests = |pieces: Vec<io::Result<Bytes>>, len: Option<u64>| {
            let claims = claims.clone();
            async move {
                let mut intake = intake(pieces, len, &claims);
                let (watch, mut out) = (intake.watch(), Vec::new());
                intake.read_to_end(&mut out).await.unwrap();
                (watch.judge(&claims).unwrap(), out)
            }
        };
        let mut expected = Md5::new();
        expected.update(&bytes);
        let expected = hex(&expected.finalize());
        // Pieces longer than what may wait, and short ones; a length that is known, or not.
        for (piece, len) in [(3 << 20, None), (10_007, Some(bytes.len() as u64)), (70_000, None)] {
            let pieces = bytes.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
            let (found, out) = digests(pieces, len).await;
            assert_eq!(found.etag().as_ref(), Some(&expected), "pieces of {piece}");
            assert!(found.sums.checksum_crc64nvme.is_some() && out == bytes);
        }
    }

    #[tokio::test]
    async fn a_body_that_comes_in_one_piece_is_read_to_its_end() {
        let (bytes, claims) = (Bytes::from(vec![7; 300_000]), Claims::default());
        for len in [5, bytes.len()] {
            let (bytes, mut expected) = (bytes.slice(..len), Md5::new());
            expected.update(&bytes);
            let intake = intake(vec![Ok(bytes.clone())], Some(len as u64), &claims);
            let watch = intake.watch();
            assert_eq!(intake.collect(len).await.unwrap(), bytes);
            assert_eq!(watch.judge(&claims).unwrap().etag(), Some(hex(&expected.finalize())));
        }
        // What follows the bytes counts.
        let late = || vec![Ok(Bytes::from_static(b"hello")), Err(io::Error::other("SignatureMismatch"))];
        let error = intake(late(), Some(5), &claims).collect(5).await.unwrap_err();
        assert_eq!(error.code(), &S3ErrorCode::SignatureDoesNotMatch);
    }

    #[tokio::test]
    async fn a_body_that_is_short_or_long_is_an_error() {
        let one = || Ok(Bytes::from_static(b"abc"));
        let claims = Claims::default();
        for (pieces, len) in [(vec![one()], 4), (vec![one(), one()], 5)] {
            let error = intake(pieces, Some(len), &claims).collect(len as usize).await.unwrap_err();
            assert_eq!(error.code(), &S3ErrorCode::IncompleteBody);
        }
    }
}
