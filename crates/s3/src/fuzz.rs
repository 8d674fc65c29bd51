//! The way in for a fuzzer (`fuzz/`).

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::SystemTime;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Frame};

use crate::acl::Acl;
use crate::body::{base64, unhex};
use crate::chunks::Chunks;
use crate::keys::{matches, parse_text};
use crate::names::checked_key;
use crate::policy::Policy;
use crate::{copy, form, signed, skew, tags};

/// Reads bytes as that part of a request which `which` chooses.
pub fn read(which: u8, bytes: &[u8]) {
    if which % 11 == 6 {
        return in_chunks(bytes);
    }
    let Ok(text) = str::from_utf8(bytes) else { return };
    match which % 11 {
        0 => drop(Policy::parse(text, "bucket")),
        1 => drop(parse_text(Path::new("keys"), text)),
        2 => drop(Acl::of(Some(text), "owner")),
        3 => drop(checked_key(text)),
        4 => drop((base64(text.as_bytes()), unhex(text))),
        5 => {
            let (pattern, name) = text.split_once('\n').unwrap_or((text, ""));
            let _ = matches(pattern, name);
        }
        7 => in_tags(text),
        8 => {
            let (query, lines) = text.split_once('\n').unwrap_or((text, ""));
            let parameters = tags::parse(query).unwrap_or_default();
            drop(signed::check(&parameters, &headers(lines), SystemTime::now()));
        }
        9 => {
            let kind = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("boundary=x"))]);
            drop((skew::seconds(text), form::named(&kind, Bytes::copy_from_slice(bytes))));
        }
        _ => {
            let (size, range) = text.split_once('\n').unwrap_or(("1000", text));
            let size = size.parse().unwrap_or(1000);
            if let Ok(range) = copy::part_of(Some(range), size) {
                assert!(range.start < range.end && range.end <= size, "{range:?} of {size}");
            }
        }
    }
}

/// Headers as they stand in a request; what cannot be one is left out.
fn headers(lines: &str) -> HeaderMap {
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        let name = HeaderName::try_from(name.trim()).ok()?;
        Some((name, HeaderValue::try_from(value.trim()).ok()?))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in lines.lines().filter_map(header) {
        headers.append(name, value);
    }
    headers
}

/// What is read of a form and written again is the same.
fn in_tags(text: &str) {
    let Ok(pairs) = tags::parse(text) else { return };
    if let Ok(form) = tags::form(&pairs, tags::OF_BUCKET) {
        let mut sorted = pairs;
        sorted.sort();
        assert_eq!(tags::parse(&form).ok(), Some(sorted));
    }
}

/// A body in chunks passes the same however it comes in pieces, and once more.
fn in_chunks(bytes: &[u8]) {
    let (piece, body) =
        bytes.split_first().map_or((1, bytes), |(piece, body)| (usize::from(*piece) + 1, body));
    let Ok(passed) = passed(body, body.len()) else { return };
    assert_eq!(passed_again(&passed), passed);
    let (in_pieces, whole) = (self::passed(body, piece), unsigned(&passed));
    let in_pieces = in_pieces.unwrap_or_else(|error| panic!("in pieces: {error}"));
    assert_eq!(unsigned(&in_pieces), whole);
}

fn passed_again(bytes: &[u8]) -> Vec<u8> {
    passed(bytes, bytes.len()).unwrap_or_else(|error| panic!("what has passed is refused: {error}"))
}

/// What is passed on of a body that comes in pieces of this size.
pub(crate) fn passed(body: &[u8], piece: usize) -> io::Result<Vec<u8>> {
    let mut chunks = Chunks::new(Pieces(Bytes::copy_from_slice(body), piece.max(1)));
    let mut cx = Context::from_waker(Waker::noop());
    let mut out = Vec::new();
    while let Poll::Ready(Some(frame)) = Pin::new(&mut chunks).poll_frame(&mut cx) {
        let data = frame?.into_data().unwrap_or_else(|frame| panic!("expected bytes, got {frame:?}"));
        out.extend_from_slice(&data);
    }
    Ok(out)
}

/// The same with all neighbouring chunks without a signature as one: where they are cut depends on how they come.
fn unsigned(mut passed: &[u8]) -> Vec<Vec<u8>> {
    let mut parts: Vec<(bool, Vec<u8>)> = Vec::new();
    while let Some(end) = passed.iter().position(|byte| *byte == b'\n') {
        let (head, rest) = passed.split_at(end + 1);
        let size = head.split(|byte| [b';', b'\r', b'\n'].contains(byte)).next().unwrap_or_default();
        let size =
            str::from_utf8(size).ok().and_then(|size| usize::from_str_radix(size, 16).ok()).unwrap_or(0);
        let is_signed = head.contains(&b';') || size == 0;
        let len = if size == 0 { rest.len() } else { rest.len().min(size + 2) };
        let data =
            if is_signed { [head, &rest[..len]].concat() } else { rest[..len.saturating_sub(2)].to_vec() };
        match parts.last_mut() {
            Some((false, last)) if !is_signed => last.extend(data),
            _ => parts.push((is_signed, data)),
        }
        passed = &rest[len..];
    }
    parts.push((true, passed.to_vec()));
    parts.into_iter().map(|(_, part)| part).collect()
}

/// A body in pieces of some size.
struct Pieces(Bytes, usize);

impl Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let len = self.1.min(self.0.len());
        Poll::Ready((len > 0).then(|| Ok(Frame::data(self.0.split_to(len)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fuzzers_have_found_is_read() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/s3");
        let mut kinds = [0; 11];
        for file in std::fs::read_dir(corpus).unwrap() {
            let bytes = std::fs::read(file.unwrap().path()).unwrap();
            let (which, rest) = bytes.split_first().unwrap();
            kinds[usize::from(which % 11)] += 1;
            read(*which, rest);
        }
        assert!(!kinds.contains(&0), "{kinds:?}");
    }
}
