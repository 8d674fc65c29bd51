//! Bodies that are kept whole in memory until their request is carried out: forms and documents.
//!
//! A form has its signature in itself, and lists of objects to delete are read before the rights to each are checked. So
//! anybody may send such a body. It is read before its request takes a turn, and these bodies together have a share of
//! the memory of their own: strangers who send much, or slowly, take nothing from requests that are signed.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures::Stream;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, header};
use hyper::body::Body as _;
use hyper::body::Incoming;
use memchr::memmem::find;
use s3s::stream::{ByteStream, DynByteStream, RemainingLength};
use s3s::{Body, S3Error, S3ErrorCode, S3Result, StdError};

use crate::chunks::{self, Chunks};
use crate::error::because;
use crate::form;
use crate::gateway::Gateway;
use crate::memory::Held;
use crate::metrics::Counted;
use crate::patience::Sent;
use crate::tags;

/// Most bytes of a body that is a document: a list of parts or of objects to delete, a policy.
pub(crate) const DOCUMENT_BYTES: usize = 4 << 20;

/// Most bytes of an object that is posted as a form.
pub(crate) const FORM_BYTES: usize = 16 << 20;

/// Most bytes of all other fields of a form. The library counts the first bytes of the object with them, up to [`PIECE_BYTES`].
pub(crate) const FIELD_BYTES: usize = 64 << 10;

/// Forms and answers are passed on in pieces of this size.
pub(crate) const PIECE_BYTES: usize = 16 << 10;

/// A body that a client sends.
pub(crate) type Coming = Sent<Counted<Incoming>>;

/// What the body of a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Form,
    Document,
    /// Bytes of an object, which pass, or nothing.
    Stream,
}

impl Kind {
    fn of(head: &Parts) -> Self {
        match head.method {
            Method::POST if is_form(&head.headers) => Self::Form,
            Method::POST => Self::Document,
            Method::PUT => {
                let is_bucket = head.uri.path().trim_matches('/').split_once('/').is_none();
                let about = ["acl", "legal-hold", "retention", "tagging"];
                let is_setting = query(head).iter().any(|(name, _)| about.contains(&name.as_str()));
                if is_bucket || is_setting { Self::Document } else { Self::Stream }
            }
            _ => Self::Stream,
        }
    }

    fn most(self) -> usize {
        match self {
            // Between its fields there is a little more.
            Self::Form => FORM_BYTES + 2 * FIELD_BYTES,
            Self::Document | Self::Stream => DOCUMENT_BYTES,
        }
    }
}

/// How many times its length a document takes in memory: a list of parts is compared with what is known of each.
fn times(head: &Parts) -> usize {
    let is_of_parts = head.method == Method::POST && query(head).iter().any(|(name, _)| name == "uploadId");
    if is_of_parts { ROW_BYTES / LEAST_PART_BYTES } else { 1 }
}

/// What is kept of a part while an upload is completed.
const ROW_BYTES: usize = 2 << 10;

/// The least that a document says of a part: its number and its tag.
const LEAST_PART_BYTES: usize = 100;

/// The parameters of a request; none, if they cannot be decoded.
fn query(head: &Parts) -> Vec<(String, String)> {
    tags::parse(head.uri.query().unwrap_or_default()).unwrap_or_default()
}

/// Whether the library may take a body for a form. It does so with any text behind this kind, such as `+x`, or parameters that are not
/// ASCII; and of several kinds it leaves out those that are no text.
fn is_form(headers: &HeaderMap) -> bool {
    const FORM: &[u8] = b"multipart/form-data";
    let is = |kind: &HeaderValue| {
        let kind = kind.as_bytes().trim_ascii_start();
        kind.get(..FORM.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(FORM))
    };
    headers.get_all(header::CONTENT_TYPE).iter().any(is)
}

/// Refuses a request that is signed for STS. The library serves these without a digest of their body: it reads the body before it
/// compares the signature, so that strangers could send it as slowly as they like.
fn check_service(headers: &HeaderMap) -> S3Result<()> {
    let is_sts = |value: &HeaderValue| find(value.as_bytes(), b"/sts/aws4_request").is_some();
    if headers.get_all(header::AUTHORIZATION).iter().any(is_sts) {
        let text = "Credential: expected a signature for the service s3, got one for sts";
        return Err(because(S3ErrorCode::AuthorizationHeaderMalformed, text));
    }
    Ok(())
}

/// Whether the library checks a signature before it reads the body of a document.
fn is_signed(head: &Parts) -> bool {
    let mut authorizations = head.headers.get_all(header::AUTHORIZATION).iter();
    let one =
        matches!((authorizations.next(), authorizations.next()), (Some(one), None) if one.to_str().is_ok());
    one || query(head).iter().any(|(name, _)| name == "X-Amz-Signature" || name == "Signature")
}

/// The body for the library, and the memory that it takes. A form, and a document that nobody has signed, is read here; the tags of a form go into
/// the extensions of its head.
///
/// # Errors
/// `AuthorizationHeaderMalformed`; `EntityTooLarge`; `KeyTooLongError`; `MalformedXML`, `InvalidTag`; `RequestTimeout`, `IncompleteBody`; `SlowDown` if there is no memory for a while.
pub(crate) async fn received(
    gateway: &Gateway,
    head: &mut Parts,
    body: Coming,
) -> S3Result<(Body, Option<Held>)> {
    check_service(&head.headers)?;
    let kind = Kind::of(head);
    if kind == Kind::Stream || body.is_end_stream() {
        return Ok((passing(head, body), None));
    }
    let most = kind.most();
    let len = body.size_hint().exact().map_or(most, |len| usize::try_from(len).unwrap_or(usize::MAX));
    if len > most {
        return Err(too_large(most));
    }
    if kind == Kind::Document && is_signed(head) {
        let memory = gateway.memory(len.saturating_mul(times(head))).await?;
        return Ok((passing(head, body), Some(memory)));
    }
    let memory = gateway.memory_of_strangers(len).await?;
    let bytes = whole(body, len).await?;
    let body = match kind {
        Kind::Form => {
            if let Some(tags) = form::tagging(&head.headers, &bytes)? {
                head.extensions.insert(tags);
            }
            Body::from(Box::pin(Pieces::of(form::named(&head.headers, bytes)?, None)) as DynByteStream)
        }
        _ => Body::from(bytes),
    };
    Ok((body, Some(memory)))
}

/// A body that the library reads as it comes.
fn passing(head: &Parts, body: Coming) -> Body {
    match chunks::has(&head.headers) {
        true => Body::http_body(Chunks::new(body)),
        false => Body::http_body(body),
    }
}

async fn whole(mut body: Coming, most: usize) -> S3Result<Bytes> {
    let mut out = BytesMut::with_capacity(most);
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => too_slow(&error),
            _ => because(S3ErrorCode::IncompleteBody, format!("the body ended early: {error}")),
        })?;
        let Some(bytes) = frame.data_ref() else { continue };
        if out.len() + bytes.len() > most {
            return Err(too_large(most));
        }
        out.extend_from_slice(bytes);
    }
    Ok(out.freeze())
}

fn too_large(most: usize) -> S3Error {
    because(S3ErrorCode::EntityTooLarge, format!("expected a body of at most {most} bytes, got more"))
}

/// The answer to a client that sends too slowly.
pub(crate) fn too_slow(why: &dyn std::fmt::Display) -> S3Error {
    because(S3ErrorCode::RequestTimeout, format!("the body did not come in time: {why}"))
}

/// Bytes that pass piece by piece: the library keeps whole pieces while it looks for the end of the fields of a form, and a
/// connection whole ones of an answer. Their memory is held until the last one has passed.
pub(crate) struct Pieces {
    bytes: Bytes,
    _memory: Option<Held>,
}

impl Pieces {
    pub(crate) fn of(bytes: Bytes, memory: Option<Held>) -> Self {
        Self { bytes, _memory: memory }
    }
}

impl Stream for Pieces {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let len = self.bytes.len().min(PIECE_BYTES);
        Poll::Ready((len > 0).then(|| Ok(self.bytes.split_to(len))))
    }
}

impl ByteStream for Pieces {
    fn remaining_length(&self) -> RemainingLength {
        RemainingLength::new_exact(self.bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
        let request = Request::builder().method(method).uri(target);
        let value = |value: &str| HeaderValue::from_bytes(value.as_bytes()).unwrap();
        let request =
            headers.iter().fold(request, |request, (name, text)| request.header(*name, value(text)));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn bodies_that_are_kept_whole_are_known_before_they_are_read() {
        let form = [("content-type", "Multipart/Form-Data; boundary=x")];
        let odd = [("content-type", "multipart/form-data; boundary=x; a=\"\u{e9}\"")];
        let suffix = [("content-type", "text/plain"), ("content-type", "multipart/form-data+x; boundary=x")];
        for (method, target, headers, kind) in [
            ("POST", "/b", &form[..], Kind::Form),
            ("POST", "/b?delete", &form, Kind::Form),
            ("POST", "/b", &odd, Kind::Form),
            ("POST", "/b", &suffix, Kind::Form),
            ("PUT", "/b/k", &form, Kind::Stream),
            ("POST", "/b?delete", &[], Kind::Document),
            ("POST", "/b/k?uploadId=1", &[], Kind::Document),
            ("PUT", "/b", &[], Kind::Document),
            ("PUT", "/b/?policy", &[], Kind::Document),
            ("PUT", "/b/k?tag%67ing", &[], Kind::Document),
            ("PUT", "/b/k?partNumber=1&uploadId=2", &[], Kind::Stream),
            ("GET", "/b?acl", &[], Kind::Stream),
        ] {
            assert_eq!(Kind::of(&head(method, target, headers)), kind, "{method} {target}");
        }
    }

    #[test]
    fn a_signature_counts_where_the_library_checks_it() {
        let (one, two) = (("authorization", "AWS4-HMAC-SHA256 x"), ("authorization", "AWS a:b"));
        for (target, headers, signed) in [
            ("/b?delete", &[][..], false),
            ("/b?delete", &[one], true),
            ("/b?delete", &[one, two], false),
            ("/b?delete&X-Amz-Signature=0", &[], true),
            ("/b?delete&Signature=0", &[], true),
            ("/b?delete&x=Signature", &[], false),
        ] {
            assert_eq!(is_signed(&head("POST", target, headers)), signed, "{target} {headers:?}");
        }
    }
}
