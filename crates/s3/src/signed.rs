//! What the signature of a request covers: a header or a parameter that operations obey and that its signer has not signed is refused,
//! whether the signature comes in a header or in a URL. A URL does not last for ever, either.
//!
//! A signature covers the headers that the request names as signed. Whoever has a presigned URL, or sees a request on its way, may
//! add others, and operations obey `x-amz-...`: with `x-amz-copy-source` a put would copy any object that its signer may read.
//!
//! The library verifies a signature over those of the named headers that it finds: by their names as they are written, and only if
//! their values are UTF-8. So a name in capital letters, or a value of other bytes, is not signed though it is named.
//!
//! Version 4 signs all parameters. Version 2 signs those of a list, and the library leaves out one that comes twice. The others would
//! make another operation of a request: `retention` of a put, or `acl&acl`.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, header};
use s3s::xml::{SerResult, SerializeContent, Serializer};
use s3s::{Body, HttpResponse, S3ErrorCode, S3Result};

use crate::access::parameter;
use crate::error::{Asked, because};

/// The longest time that a presigned URL is good for, in seconds: a week.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

/// How far the clocks of client and server may be apart: a URL of Version 2 says when it ends, and not for how long it is good.
const SKEW_SECONDS: u64 = 15 * 60;

/// The parameters that the library signs in Version 2 (its `sig_v2::methods::INCLUDED_QUERY`).
const SIGNED_V2: [&str; 35] = [
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// Parameters that need no signature: those that are the signature, and those that say how much of a list is shown.
const FREE: [&str; 19] = [
    "AWSAccessKeyId",
    "Expires",
    "Signature",
    "continuation-token",
    "delimiter",
    "encoding-type",
    "fetch-owner",
    "key-marker",
    "list-type",
    "marker",
    "max-keys",
    "max-parts",
    "max-uploads",
    "part-number-marker",
    "prefix",
    "start-after",
    "upload-id-marker",
    "version-id-marker",
    "x-id",
];

/// Says no more than what the body is, and either is signed in another place or compared with the body. Clients send it without
/// signing it.
const OF_BODY: &str = "x-amz-content-sha256";

const REFUSAL: &str = "There were headers present in the request which were not signed";

/// Which headers are signed.
enum Signed<'r> {
    /// Those of this list.
    Named(&'r str),
    /// All that begin with `x-amz-` (Version 2).
    All,
}

impl Signed<'_> {
    fn covers(&self, name: &str, headers: &HeaderMap) -> bool {
        let named = match self {
            Self::Named(list) => list.split(';').any(|signed| signed == name),
            Self::All => true,
        };
        named && headers.get_all(name).iter().all(|value| str::from_utf8(value.as_bytes()).is_ok())
    }
}

/// Checks a request of which the signature is good, if it has one.
///
/// # Errors
/// `AccessDenied`: a header or a parameter is not signed, or a parameter comes twice; `AuthorizationHeaderMalformed`;
/// `AuthorizationQueryParametersError`: the URL is good for too long.
pub(crate) fn check(parameters: &[(String, String)], headers: &HeaderMap, now: SystemTime) -> S3Result<()> {
    let has = |name| parameter(parameters, name).is_some();
    // The library looks for Version 2 first.
    let (signed, in_url) = match in_header(headers)? {
        _ if has("Signature") => (Signed::All, true),
        Some(Signed::All) => (Signed::All, false),
        _ if has("X-Amz-Signature") => {
            (Signed::Named(parameter(parameters, "X-Amz-SignedHeaders").unwrap_or_default()), true)
        }
        Some(signed) => (signed, false),
        None => return Ok(()),
    };
    let mut names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if let Some(two) = names.windows(2).find(|two| two[0] == two[1]) {
        let text = format!("expected each parameter once in a signed request, got {:?} twice", two[0]);
        return Err(because(S3ErrorCode::AccessDenied, text));
    }
    let is_signed = |name: &&str| SIGNED_V2.contains(name) || FREE.contains(name);
    if matches!(signed, Signed::All)
        && let Some(other) = names.iter().find(|name| !is_signed(name))
    {
        let text = format!("expected parameters that Signature Version 2 signs, got {other:?}");
        return Err(because(S3ErrorCode::AccessDenied, text));
    }
    let obeyed = headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-amz-"));
    let mut unsigned: Vec<&str> =
        obeyed.filter(|name| *name != OF_BODY && !signed.covers(name, headers)).collect();
    if !unsigned.is_empty() {
        unsigned.sort_unstable();
        Asked::has_unsigned(unsigned.join(", "));
        return Err(because(S3ErrorCode::AccessDenied, REFUSAL));
    }
    if !in_url {
        return Ok(());
    }
    let number = |name| parameter(parameters, name).and_then(|seconds| seconds.parse::<u64>().ok());
    let (name, seconds) = match signed {
        Signed::Named(_) => ("X-Amz-Expires", number("X-Amz-Expires")),
        Signed::All => {
            let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
            ("Expires", number("Expires").map(|end| end.saturating_sub(now.saturating_add(SKEW_SECONDS))))
        }
    };
    if seconds.is_none_or(|seconds| seconds > MOST_SECONDS) {
        let text = format!("{name}: expected at most {MOST_SECONDS} seconds, got more");
        return Err(because(S3ErrorCode::AuthorizationQueryParametersError, text));
    }
    Ok(())
}

/// What the signature in the header `Authorization` covers; `None` if there is none.
///
/// # Errors
/// `AuthorizationHeaderMalformed`: it names the signed headers twice, so it is not clear which are.
fn in_header(headers: &HeaderMap) -> S3Result<Option<Signed<'_>>> {
    const LIST: &str = "SignedHeaders=";
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    // The library takes a request with two, or with one that is no text, for one of somebody without a key.
    let (Some(one), None) = (all.next(), all.next()) else { return Ok(None) };
    let Ok(text) = str::from_utf8(one.as_bytes()) else { return Ok(None) };
    if text.strip_prefix("AWS ").is_some_and(|rest| rest.contains(':')) {
        return Ok(Some(Signed::All));
    }
    match text.split(LIST).collect::<Vec<_>>()[..] {
        [_, list] => Ok(Some(Signed::Named(list.split(',').next().unwrap_or_default()))),
        // Of a form, which has its signature among its fields.
        [_] => Ok(None),
        _ => {
            let text = format!("Authorization: expected {LIST} once, got it several times");
            Err(because(S3ErrorCode::AuthorizationHeaderMalformed, text))
        }
    }
}

/// Names the headers that were not signed in the answer that refuses them, as S3 does.
pub(crate) fn tell(answer: &mut HttpResponse, unsigned: &str, request: &str) {
    let mut body = Vec::new();
    let mut xml = Serializer::new(&mut body);
    let refusal = Refusal { unsigned, request };
    if xml.decl().and_then(|()| xml.content("Error", &refusal)).is_ok() {
        *answer.body_mut() = Body::from(body);
    }
}

struct Refusal<'r> {
    unsigned: &'r str,
    request: &'r str,
}

impl SerializeContent for Refusal<'_> {
    fn serialize_content<W: std::io::Write>(&self, xml: &mut Serializer<W>) -> SerResult {
        xml.content("Code", S3ErrorCode::AccessDenied.as_str())?;
        xml.content("Message", REFUSAL)?;
        xml.content("HeadersNotSigned", self.unsigned)?;
        xml.content("RequestId", self.request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    const WEEK: u64 = MOST_SECONDS;

    fn url(signed: &str, seconds: u64) -> String {
        format!("X-Amz-Expires={seconds}&X-Amz-SignedHeaders={signed}&X-Amz-Signature=00")
    }

    type Headers<'h> = &'h [(&'static str, &'h [u8])];

    fn code(query: &str, headers: Headers<'_>) -> Option<S3ErrorCode> {
        let headers: HeaderMap = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap()))
            .collect();
        let checked = check(&crate::tags::parse(query).unwrap(), &headers, SystemTime::UNIX_EPOCH);
        checked.err().map(|error| error.code().clone())
    }

    #[test]
    fn what_a_url_does_not_sign_is_refused() {
        let with = |query: &str, names: &[&'static str]| {
            code(query, &names.iter().map(|name| (*name, &b"x"[..])).collect::<Vec<_>>())
        };
        assert_eq!(with("", &["x-amz-acl"]), None);
        assert_eq!(with(&url("host", WEEK), &["host", "range", OF_BODY]), None);
        assert_eq!(with(&url("host%3Bx-amz-acl", WEEK), &["host", "x-amz-acl"]), None);
        for names in [&["x-amz-copy-source"][..], &["x-amz-acl", "x-amz-meta-a"]] {
            assert_eq!(
                with(&url("host;x-amz-acl", WEEK), names),
                Some(S3ErrorCode::AccessDenied),
                "{names:?}"
            );
        }
        let too_long = Some(S3ErrorCode::AuthorizationQueryParametersError);
        assert_eq!(with(&url("host", WEEK + 1), &[]), too_long);
    }

    #[test]
    fn a_parameter_that_version_2_does_not_sign_is_refused() {
        let (denied, v2): (_, Headers<'_>) =
            (Some(S3ErrorCode::AccessDenied), &[("authorization", b"AWS A:0")]);
        let presigned = |rest: &str, end: u64| format!("{rest}AWSAccessKeyId=A&Expires={end}&Signature=0");
        for (query, expected) in [
            ("", None),
            ("prefix=a&list-type=2&max-keys=1", None),
            ("acl&versionId=1&response-expires=x", None),
            ("acl&acl", denied.clone()),
            ("acl&%61cl=x", denied.clone()),
            ("retention", denied.clone()),
            ("legal-hold&versionId=1", denied.clone()),
            // Nothing makes it a request of Version 4.
            ("retention&X-Amz-Signature=0&X-Amz-SignedHeaders=host&X-Amz-Expires=1", denied.clone()),
        ] {
            assert_eq!(code(query, v2), expected, "{query}");
            let query = if query.is_empty() { String::new() } else { format!("{query}&") };
            assert_eq!(code(&presigned(&query, WEEK), &[]), expected, "{query}");
        }
        assert_eq!(code(&presigned("", WEEK + SKEW_SECONDS), &[]), None);
        let too_long = Some(S3ErrorCode::AuthorizationQueryParametersError);
        assert_eq!(code(&presigned("", WEEK + SKEW_SECONDS + 1), &[]), too_long);
        // Version 4 signs all of them.
        assert_eq!(code(&(url("host", WEEK) + "&retention"), &[]), None);
        assert_eq!(code(&(url("host", WEEK) + "&acl&acl"), &[]), denied);
        assert_eq!(code("acl&acl", &[]), None);
    }

    #[test]
    fn what_a_header_does_not_sign_is_refused() {
        let v4 = |list: &str| {
            let key = "A/20261128/r/s3/aws4_request";
            format!("AWS4-HMAC-SHA256 Credential={key},SignedHeaders={list}, Signature=0")
        };
        let long = v4("host;x-amz-acl;x-amz-date");
        let (denied, both): (_, Headers<'_>) =
            (Some(S3ErrorCode::AccessDenied), &[("x-amz-date", b"1"), ("x-amz-acl", b"private")]);
        let twice = format!("SignedHeaders=x-amz-acl, {}", v4("host;x-amz-date"));
        let cases: [(String, Headers<'_>, Option<S3ErrorCode>); 12] = [
            (long.clone(), both, None),
            (long.clone(), &[("x-amz-content-sha256", b"UNSIGNED-PAYLOAD"), ("x-amzn-trace-id", b"1")], None),
            (v4("host;x-amz-date"), both, denied.clone()),
            (v4("host;X-Amz-Acl;x-amz-date"), both, denied.clone()),
            (v4("host;x-amz-acl-;x-amz-date"), both, denied.clone()),
            (long.clone(), &[("x-amz-acl", b"\xff")], denied.clone()),
            (long.clone(), &[("x-amz-acl", b"private"), ("x-amz-acl", b"\xff")], denied.clone()),
            (long.replace("AWS4-HMAC-SHA256", "AWS"), &[("x-amz-meta-a", b"1")], denied.clone()),
            (twice, both, Some(S3ErrorCode::AuthorizationHeaderMalformed)),
            ("AWS A:0".to_owned(), both, None),
            ("AWS A:0".to_owned(), &[("x-amz-acl", b"\xff")], denied),
            ("Basic YTpi".to_owned(), both, None),
        ];
        for (authorization, others, expected) in cases {
            let headers = [others, &[("authorization", authorization.as_bytes())]].concat();
            assert_eq!(code("", &headers), expected, "{authorization} {others:?}");
        }
        // The library takes it for a request without a signature.
        let two: Headers<'_> =
            &[("authorization", long.as_bytes()), ("authorization", b"AWS A:0"), ("x-amz-meta-a", b"1")];
        assert_eq!(code("", two), None);
    }

    #[test]
    fn the_answer_names_what_is_not_signed() {
        let mut answer = HttpResponse::default();
        tell(&mut answer, "x-amz-a, x-amz-b&c", "77");
        let text = format!("{:?}", answer.body());
        assert!(text.contains("<HeadersNotSigned>x-amz-a, x-amz-b&amp;c</HeadersNotSigned>"), "{text}");
    }
}
