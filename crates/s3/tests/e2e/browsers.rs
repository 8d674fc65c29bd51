//! What browsers do: requests from pages of other origins.

use crate::site::{ALICE, Site, Who};

const RULES: &[u8] = b"<CORSConfiguration><CORSRule><AllowedOrigin>http://*.example.com</AllowedOrigin>\
    <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>\
    <ExposeHeader>etag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule></CORSConfiguration>";

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_may_do_what_the_rules_say() {
    let site = Site::start().await;
    site.put("/pages", b"").await.ok();
    site.call_as(ALICE, "PUT", "/pages/k", &[("x-amz-acl", "public-read")], b"text").await.ok();
    let ask = |origin, method, headers| {
        let asked = [
            ("origin", origin),
            ("access-control-request-method", method),
            ("access-control-request-headers", headers),
        ];
        let site = &site;
        async move { site.call_as(Who::Nobody, "OPTIONS", "/pages/k", &asked, b"").await }
    };
    let (ours, theirs) = ("http://a.example.com", "http://example.org");
    ask(ours, "GET", "").await.is_error(403, "AccessForbidden");
    site.get("/pages?cors").await.is_error(404, "NoSuchCORSConfiguration");
    site.put("/pages?cors", RULES).await.ok();
    assert_eq!(site.get("/pages?cors").await.ok().elements("AllowedMethod"), ["GET", "PUT"]);
    let answer = ask(ours, "PUT", "x-amz-date").await.ok();
    assert_eq!(answer.header("access-control-allow-origin"), Some(ours));
    assert_eq!(answer.header("access-control-allow-methods"), Some("GET, PUT"));
    assert_eq!(answer.header("access-control-allow-headers"), Some("x-amz-date"));
    assert_eq!(answer.header("access-control-max-age"), Some("60"));
    for (origin, method, headers) in [(theirs, "GET", ""), (ours, "DELETE", ""), (ours, "PUT", "range")] {
        ask(origin, method, headers).await.is_error(403, "AccessForbidden");
    }
    site.call_as(Who::Nobody, "OPTIONS", "/pages/k", &[("origin", ours)], b"")
        .await
        .is_error(400, "InvalidRequest");
    for (origin, allowed) in [(ours, Some(ours)), (theirs, None)] {
        let read = site.call_as(Who::Nobody, "GET", "/pages/k", &[("origin", origin)], b"").await.ok();
        assert_eq!((read.header("access-control-allow-origin"), read.text().as_str()), (allowed, "text"));
    }
    site.put("/pages?cors", b"<CORSConfiguration></CORSConfiguration>").await.is_error(400, "MalformedXML");
    site.call("DELETE", "/pages?cors", b"").await.ok();
    ask(ours, "PUT", "").await.is_error(403, "AccessForbidden");
}

/// A form with these fields and a file.
pub fn form(fields: &[(&str, &str)], text: &str) -> String {
    let field = |(name, value): &(&str, &str)| {
        format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let fields: String = fields.iter().map(field).collect();
    format!(
        "{fields}--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
         Content-Type: text/plain\r\n\r\n{text}\r\n--x--\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_stores_what_its_caller_may_write() {
    let site = Site::start().await;
    site.put("/forms", b"").await.ok();
    let send = async |fields: &[(&str, &str)], text: &str| {
        let kind = [("content-type", "multipart/form-data; boundary=x")];
        site.call_as(Who::Nobody, "POST", "/forms", &kind, form(fields, text).as_bytes()).await
    };
    let a = [("key", "up/a.txt")];
    send(&a, "from a page").await.is_error(403, "AccessDenied");
    site.call_as(ALICE, "PUT", "/forms?acl", &[("x-amz-acl", "public-read-write")], b"").await.ok();
    assert_eq!(send(&a, "from a page").await.status, 204);
    assert_eq!(site.get("/forms/up/a.txt").await.ok().text(), "from a page");
    assert_eq!(send(&[("key", "named/${filename}")], "by its file").await.status, 204);
    assert_eq!(site.get("/forms/named/a.txt").await.ok().text(), "by its file");
    // The object may be long, its fields together may not.
    let (long, field) = ("l".repeat(300 << 10), "f".repeat(40 << 10));
    assert_eq!(send(&[a[0], ("x-ignore-a", &field)], &long).await.status, 204);
    assert!(site.get("/forms/up/a.txt").await.ok().text() == long);
    let fields = [a[0], ("x-ignore-a", &field), ("x-ignore-b", &field)];
    send(&fields, "short").await.is_error(400, "MalformedPOSTRequest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_gives_tags_that_the_policy_sees() {
    let site = Site::start().await;
    site.put("/forms", b"").await.ok();
    let policy =
        br#"{"Statement":{"Effect":"Allow","Principal":"*","Action":"s3:PutObject","Resource":"*"}}"#;
    site.put("/forms?policy", policy).await.ok();
    let kind = [("content-type", "multipart/form-data; boundary=x")];
    let send = async |tagging: &str| {
        let fields = [("key", "k"), ("tagging", tagging)];
        site.call_as(Who::Nobody, "POST", "/forms", &kind, form(&fields, "text").as_bytes()).await
    };
    let tagging = |value: &str| {
        format!("<Tagging><TagSet><Tag><Key>class</Key><Value>{value}</Value></Tag></TagSet></Tagging>")
    };
    send("class=open").await.is_error(400, "MalformedXML");
    site.get("/forms/k").await.is_error(404, "NoSuchKey");
    // Writing is for everybody, giving tags is not.
    send(&tagging("open")).await.is_error(403, "AccessDenied");
    site.get("/forms/k").await.is_error(404, "NoSuchKey");
    let policy = br#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":"*","Action":["s3:PutObject","s3:PutObjectTagging"],
        "Resource":"arn:aws:s3:::forms/*","Condition":{"StringEquals":{"s3:RequestObjectTag/class":"open"}}}]}"#;
    site.put("/forms?policy", policy).await.ok();
    send(&tagging("closed")).await.is_error(403, "AccessDenied");
    assert_eq!(send(&tagging("open")).await.status, 204);
    let tags = site.get("/forms/k?tagging").await.ok();
    assert_eq!((tags.elements("Key"), tags.elements("Value")), (vec!["class".into()], vec!["open".into()]));
}
