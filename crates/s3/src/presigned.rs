//! Presigned URLs: what their signer has not signed is refused, and they do not last for ever.
//!
//! The signature covers the headers that the URL names. Whoever has the URL may add others, and operations obey
//! `x-amz-...`: with `x-amz-copy-source` a put would copy any object that its signer may read.

use http::HeaderMap;
use s3s::{S3ErrorCode, S3Result};

use crate::access::parameter;
use crate::error::because;

/// The longest time that a presigned URL is good for, in seconds: a week.
const MOST_SECONDS: u64 = 7 * 24 * 3600;

/// Says no more than what the body is, which is compared. Clients send it without signing it.
const OF_BODY: &str = "x-amz-content-sha256";

/// Checks a request of which the signature is good, if a URL has it.
///
/// # Errors
/// `AccessDenied`: a header is not signed; `AuthorizationQueryParametersError`: the URL is good for too long.
pub(crate) fn check(parameters: &[(String, String)], headers: &HeaderMap) -> S3Result<()> {
    if parameter(parameters, "X-Amz-Signature").is_none() {
        return Ok(());
    }
    let signed = parameter(parameters, "X-Amz-SignedHeaders").unwrap_or_default();
    let is_signed = |name: &str| signed.split(';').any(|signed| signed.eq_ignore_ascii_case(name));
    let mut obeyed = headers.keys().map(|name| name.as_str()).filter(|name| name.starts_with("x-amz-"));
    if let Some(name) = obeyed.find(|name| *name != OF_BODY && !is_signed(name)) {
        let text = format!("expected each x-amz- header to be signed, got {name}, which is not");
        return Err(because(S3ErrorCode::AccessDenied, text));
    }
    let seconds = parameter(parameters, "X-Amz-Expires").and_then(|seconds| seconds.parse::<u64>().ok());
    if seconds.is_none_or(|seconds| seconds > MOST_SECONDS) {
        let text = format!("X-Amz-Expires: expected at most {MOST_SECONDS} seconds, got more");
        return Err(because(S3ErrorCode::AuthorizationQueryParametersError, text));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_signed_is_refused() {
        let code = |query: &str, names: &[&'static str]| {
            let headers: HeaderMap =
                names.iter().map(|name| (name.parse().unwrap(), "x".parse().unwrap())).collect();
            check(&crate::tags::parse(query).unwrap(), &headers).err().map(|error| error.code().clone())
        };
        let url = |signed: &str, seconds: u64| {
            format!("X-Amz-Expires={seconds}&X-Amz-SignedHeaders={signed}&X-Amz-Signature=00")
        };
        let week = MOST_SECONDS;
        assert_eq!(code("", &["x-amz-acl"]), None);
        assert_eq!(code(&url("host", week), &["host", "range", OF_BODY]), None);
        assert_eq!(code(&url("host%3Bx-amz-acl", week), &["host", "x-amz-acl"]), None);
        for names in [&["x-amz-copy-source"][..], &["x-amz-acl", "x-amz-meta-a"]] {
            assert_eq!(
                code(&url("host;x-amz-acl", week), names),
                Some(S3ErrorCode::AccessDenied),
                "{names:?}"
            );
        }
        let too_long = Some(S3ErrorCode::AuthorizationQueryParametersError);
        assert_eq!(code(&url("host", week + 1), &[]), too_long);
    }
}
