//! What signatures cover, and for how long.

#![allow(clippy::unwrap_used, reason = "what fails here is the test's failure")]

use std::time::{Duration, SystemTime};

use crate::limits::heard;
use crate::site::{ALICE, Answer, Site, Who, answer, presigned, presigned_v2, request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

#[tokio::test(flavor = "multi_thread")]
async fn wrong_signatures_are_refused() {
    let site = Site::start().await;
    site.call_as(Who::Key("ALICE", "alice-alice-alicf"), "GET", "/", &[], b"")
        .await
        .is_error(403, "SignatureDoesNotMatch");
    site.call_as(Who::Key("MALLORY", "x"), "GET", "/", &[], b"").await.is_error(403, "InvalidAccessKeyId");
    // Not even HTTP.
    let mut stream = tokio::net::TcpStream::connect(site.addr).await.unwrap();
    stream.write_all(b"\x16\x03\x01\x02\x00\x01\r\n\r\n").await.unwrap();
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    assert!(bytes.is_empty() || answer(&bytes).status == 400);
    site.get("/").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_presigned_url_is_good_for_what_it_says_and_until_then() {
    let site = Site::start().await;
    site.put("/links", b"").await.ok();
    site.put("/links/k", b"text").await.ok();
    site.put("/links/other", b"secret").await.ok();
    let minute_from = |age| {
        let from = SystemTime::now() - Duration::from_secs(age);
        presigned(("ALICE", "alice-alice-alice"), site.addr, "GET", "/links/k", (from, 60))
    };
    let call = async |method: &str, target: &str| site.call_as(Who::Nobody, method, target, &[], b"").await;
    call("GET", "/links/k").await.is_error(403, "AccessDenied");
    let now = minute_from(0);
    assert_eq!(call("GET", &now).await.ok().text(), "text");
    for (method, target) in [("GET", now.replace("/links/k", "/links/other")), ("DELETE", now.clone())] {
        call(method, &target).await.is_error(403, "SignatureDoesNotMatch");
    }
    // Who has a URL for a put may put bytes, and not copy what else its signer may read.
    let put =
        presigned(("ALICE", "alice-alice-alice"), site.addr, "PUT", "/links/new", (SystemTime::now(), 60));
    for header in [("x-amz-copy-source", "/links/other"), ("x-amz-acl", "public-read")] {
        let refused = site.call_as(Who::Nobody, "PUT", &put, &[header], b"").await;
        refused.is_error(403, "AccessDenied");
        assert_eq!(refused.elements("HeadersNotSigned"), [header.0]);
    }
    site.get("/links/new").await.is_error(404, "NoSuchKey");
    site.call_as(Who::Nobody, "PUT", &put, &[], b"new").await.ok();
    let for_ever = (SystemTime::now(), 7 * 24 * 3600 + 1);
    let for_ever = presigned(("ALICE", "alice-alice-alice"), site.addr, "GET", "/links/k", for_ever);
    call("GET", &for_ever).await.is_error(400, "AuthorizationQueryParametersError");
    let longer = minute_from(90).replace("X-Amz-Expires=60", "X-Amz-Expires=600");
    call("GET", &longer).await.is_error(403, "SignatureDoesNotMatch");
    let expired = call("GET", &minute_from(90)).await;
    expired.is_error(403, "AccessDenied");
    assert!(expired.text().contains("expired"), "{}", expired.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_of_version_2_is_good_for_no_other_operation_and_not_for_ever() {
    let site = Site::start().await;
    site.call_as(ALICE, "PUT", "/links", &[("x-amz-bucket-object-lock-enabled", "true")], b"").await.ok();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let alice = ("ALICE", "alice-alice-alice");
    let call = async |method: &str, target: &str, body: &[u8]| {
        site.call_as(Who::Nobody, method, target, &[], body).await
    };
    let put = presigned_v2(alice, "PUT", "/links/k", now + 60);
    call("PUT", &put, b"text").await.ok();
    let get = presigned_v2(alice, "GET", "/links", now + 60);
    assert_eq!(call("GET", &format!("{get}&prefix=k&list-type=2"), b"").await.ok().elements("Key"), ["k"]);
    let acl = b"<AccessControlPolicy><AccessControlList/></AccessControlPolicy>";
    let until = "<RetainUntilDate>2099-01-01T00:00:00Z</RetainUntilDate>";
    let retention = format!("<Retention><Mode>COMPLIANCE</Mode>{until}</Retention>");
    call("PUT", &format!("{put}&acl&acl"), acl).await.is_error(403, "AccessDenied");
    call("PUT", &format!("{put}&retention"), retention.as_bytes()).await.is_error(403, "AccessDenied");
    let as_v4 = "&X-Amz-Signature=0&X-Amz-SignedHeaders=host&X-Amz-Expires=60";
    call("PUT", &format!("{put}&retention{as_v4}"), retention.as_bytes()).await.is_error(403, "AccessDenied");
    call("GET", &format!("{get}&policy&policy"), b"").await.is_error(403, "AccessDenied");
    // It is signed, and so it is the other operation.
    let tagging = presigned_v2(alice, "GET", "/links/k?tagging", now + 60);
    call("GET", &tagging, b"").await.ok();
    site.get("/links/k?retention").await.is_error(404, "NoSuchObjectLockConfiguration");
    let for_ever = presigned_v2(alice, "GET", "/links/k", now + 8 * 24 * 3600);
    call("GET", &for_ever, b"").await.is_error(400, "AuthorizationQueryParametersError");
}

/// A request without a body, of which `change` changes the signed head.
async fn changed(
    site: &Site,
    (method, target): (&str, &str),
    headers: &[(&str, &str)],
    change: impl FnOnce(String) -> Vec<u8>,
) -> Answer {
    let mut stream = TcpStream::connect(site.addr).await.unwrap();
    let mut head = change(request(ALICE, site.addr, method, target, headers));
    head.extend_from_slice(b"content-length: 0\r\nconnection: close\r\n\r\n");
    stream.write_all(&head).await.unwrap();
    heard(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_request_has_no_header_that_its_signer_has_not_signed() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/other", b"secret").await.ok();
    let with = |lines: &str| {
        let lines = lines.to_owned();
        move |head: String| (head + &lines).into_bytes()
    };
    let put = ("PUT", "/bucket/k");
    let unsigned = "x-amz-meta-a: 1\r\nX-Amz-Copy-Source: /bucket/other\r\n";
    let refused = changed(&site, put, &[], with(unsigned)).await;
    refused.is_error(403, "AccessDenied");
    assert_eq!(refused.elements("HeadersNotSigned"), ["x-amz-copy-source, x-amz-meta-a"]);
    let text = "There were headers present in the request which were not signed";
    assert_eq!(refused.elements("Message"), [text]);
    assert_eq!(refused.elements("RequestId"), [refused.header("x-amz-request-id").unwrap()]);
    // It is not enough to name a header: in capital letters or with other bytes the signature does not cover it.
    let named = |name: &'static str, line: &'static [u8]| {
        move |head: String| {
            let list = format!("SignedHeaders={name};");
            [head.replace("SignedHeaders=", &list).as_bytes(), line].concat()
        }
    };
    for change in [
        named("X-Amz-Copy-Source", b"x-amz-copy-source: /bucket/other\r\n"),
        named("x-amz-meta-a", b"x-amz-meta-a: \xff\r\n"),
    ] {
        changed(&site, put, &[], change).await.is_error(403, "AccessDenied");
    }
    let twice = |head: String| {
        let head = head.replace("AWS4-HMAC-SHA256", "SignedHeaders=x-amz-copy-source,");
        (head + "x-amz-copy-source: /bucket/other\r\n").into_bytes()
    };
    changed(&site, put, &[], twice).await.is_error(400, "AuthorizationHeaderMalformed");
    site.get("/bucket/k").await.is_error(404, "NoSuchKey");
    // What is signed is obeyed, and what nobody obeys need not be signed.
    let copy = [("x-amz-copy-source", "/bucket/other")];
    let others = "amz-sdk-invocation-id: 1\r\nx-amzn-trace-id: Root=1\r\nrange: bytes=0-1\r\n";
    changed(&site, put, &copy, with(others)).await.ok();
    assert_eq!(site.get("/bucket/k").await.ok().text(), "secret");
}
