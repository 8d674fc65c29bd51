//! Buckets, and objects that come, go, are listed and copied.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use kintsu_client::PutOptions;
use kintsu_s3::{Config, EntityTags, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::limits::heard;
use crate::site::{ALICE, Answer, Site, answer, noise, request};

#[tokio::test(flavor = "multi_thread")]
async fn an_object_comes_back_as_it_was_also_without_a_node() {
    let site = Site::start().await;
    site.put("/photos", b"").await.ok();
    site.put("/photos", b"").await.ok();
    // Longer than what is collected before it is stored.
    let bytes = noise(9 << 20);
    let headers = [("content-type", "image/x"), ("x-amz-meta-place", "lake"), ("cache-control", "no-cache")];
    let put = site.call_as(ALICE, "PUT", "/photos/a/b%20c.raw", &headers, &bytes).await.ok();
    let tag = put.header("etag").unwrap().to_owned();
    for killed in [false, true] {
        if killed {
            site.cluster.kill_node(1).await;
        }
        let got = site.get("/photos/a/b%20c.raw").await.ok();
        assert!(got.body == bytes, "the bytes differ; a node killed: {killed}");
        assert_eq!(got.header("etag"), Some(tag.as_str()));
        assert_eq!(got.header("x-amz-meta-place"), Some("lake"));
        assert_eq!(
            (got.header("content-type"), got.header("cache-control")),
            (Some("image/x"), Some("no-cache"))
        );
    }
    let head = site.call("HEAD", "/photos/a/b%20c.raw", b"").await.ok();
    assert_eq!((head.header("content-length"), head.body.len()), (Some("9437184"), 0));
    // It is an object like others.
    let info = site.client.info("s3/photos/a/b c.raw").await.unwrap();
    assert_eq!((info.size, info.code.as_str()), (bytes.len() as u64, "rs:n=4,k=2"));
    assert!(
        site.client.list("", None, 99).await.unwrap().objects.iter().all(|o| !o.name.starts_with(".s3/"))
    );
    site.call("DELETE", "/photos", b"").await.is_error(409, "BucketNotEmpty");
    site.call("DELETE", "/photos/a/b%20c.raw", b"").await.ok();
    site.call("DELETE", "/photos/a/b%20c.raw", b"").await.ok();
    site.get("/photos/a/b%20c.raw").await.is_error(404, "NoSuchKey");
    site.call("DELETE", "/photos", b"").await.ok();
    site.put("/photos/x", b"x").await.is_error(404, "NoSuchBucket");
    assert!(site.server.shutdown(Duration::from_secs(60)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_waits_to_send_nothing_gets_its_answer_and_the_end_of_the_connection() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let begun = async |len: usize| {
        let mut stream = TcpStream::connect(site.addr).await.unwrap();
        let head = request(ALICE, site.addr, "PUT", "/bucket/k", &[]);
        let head = format!("{head}expect: 100-continue\r\ncontent-length: {len}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    };
    let empty = heard(&mut begun(0).await).await.ok();
    assert_eq!(empty.header("connection"), Some("close"));
    let mut waits = begun(5).await;
    let mut told = [0; 25];
    waits.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    waits.write_all(b"bytes").await.unwrap();
    let mut bytes = vec![0; 4096];
    let len = waits.read(&mut bytes).await.unwrap();
    assert_eq!(answer(&bytes[..len]).ok().header("connection"), None);
    assert_eq!(site.get("/bucket/k").await.ok().body, b"bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_replaced_all_the_time_can_be_read_all_the_time() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/k", &[0; 100]).await.ok();
    let replaced = AtomicBool::new(false);
    let replacing = async {
        for round in 1..=100 {
            site.put("/bucket/k", &[round; 100]).await.ok();
        }
        replaced.store(true, Relaxed);
    };
    let reading = async || {
        while !replaced.load(Relaxed) {
            let body = site.get("/bucket/k").await.ok().body;
            assert!(body.len() == 100 && body.iter().all(|byte| *byte == body[0]), "{body:?}");
        }
    };
    tokio::join!(replacing, reading(), reading(), reading(), reading());
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_and_conditions_are_kept() {
    let site = Site::start().await;
    site.put("/b", b"").await.is_error(400, "InvalidBucketName");
    site.put("/dot.-hyphen", b"").await.is_error(400, "InvalidBucketName");
    site.put("/bucket", b"").await.ok();
    let put = site.put("/bucket/k", b"0123456789").await.ok();
    let tag = put.header("etag").unwrap().to_owned();
    assert_eq!(tag, "\"781e5e245d69b566979b86e28d23f2c7\"");
    for (range, content, header) in [
        ("bytes=2-4", "234", "bytes 2-4/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=-1", "9", "bytes 9-9/10"),
        ("bytes=8-99", "89", "bytes 8-9/10"),
    ] {
        let got = site.call_as(ALICE, "GET", "/bucket/k", &[("range", range)], b"").await;
        assert_eq!(
            (got.status, got.text().as_str(), got.header("content-range")),
            (206, content, Some(header))
        );
    }
    site.call_as(ALICE, "GET", "/bucket/k", &[("range", "bytes=10-")], b"")
        .await
        .is_error(416, "InvalidRange");
    let future = "Tue, 19 Jan 2038 03:14:07 GMT";
    for (name, value, status) in [
        ("if-match", tag.as_str(), 200),
        ("if-match", "\"x\"", 412),
        ("if-none-match", tag.as_str(), 304),
        ("if-none-match", "\"x\"", 200),
        ("if-modified-since", future, 304),
        ("if-unmodified-since", future, 200),
        ("if-unmodified-since", "Thu, 01 Jan 1970 00:00:00 GMT", 412),
    ] {
        let got = site.call_as(ALICE, "GET", "/bucket/k", &[(name, value)], b"").await;
        assert_eq!(got.status, status, "{name}: {value}");
    }
    let put = |name, value| {
        let site = &site;
        async move { site.call_as(ALICE, "PUT", "/bucket/k", &[(name, value)], b"new").await }
    };
    put("if-none-match", "*").await.is_error(412, "PreconditionFailed");
    put("if-match", "\"x\"").await.is_error(412, "PreconditionFailed");
    put("if-match", &tag).await.ok();
    put("if-match", &tag).await.is_error(412, "PreconditionFailed");
    put("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==").await.is_error(400, "BadDigest");
    put("x-amz-checksum-crc32", "AAAAAA==").await.is_error(400, "BadDigest");
    assert_eq!(site.get("/bucket/k").await.text(), "new");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_make_the_same_object_one_wins() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let puts = (0..8u8).map(|i| {
        let site = &site;
        async move {
            site.call_as(ALICE, "PUT", "/bucket/lock", &[("if-none-match", "*")], &[i; 100]).await.status
        }
    });
    let mut statuses = futures::future::join_all(puts).await;
    statuses.sort();
    assert_eq!(statuses, [200, 412, 412, 412, 412, 412, 412, 412]);
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_are_in_order_and_come_in_pages() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let keys = ["a", "a%01", "a%20b", "dir/x", "dir/y", "dirt", "z/1/2", "%C3%A9"];
    for key in keys {
        site.put(&format!("/bucket/{key}"), b"12").await.ok();
    }
    // What was put there without S3 is an object too.
    site.client
        .put(
            std::sync::Arc::new(bytes::Bytes::from_static(b"123")),
            "s3/bucket/other",
            PutOptions::new("rs:n=4,k=2"),
            |_, _| {},
        )
        .await
        .unwrap();
    let all = site.get("/bucket?encoding-type=url").await.ok();
    let sorted = ["a", "a%01", "a%20b", "dir/x", "dir/y", "dirt", "other", "z/1/2", "%C3%A9"];
    assert_eq!(all.elements("Key"), sorted);
    assert_eq!(all.elements("Size")[6], "3");
    let tag = all.elements("ETag")[6].clone();
    assert!(tag.contains('-'), "{tag}");
    assert_eq!(site.get("/bucket/other").await.ok().text(), "123");
    let shallow = site.get("/bucket?delimiter=%2F&list-type=2").await.ok();
    assert_eq!(shallow.elements("KeyCount"), ["8"]);
    assert_eq!(shallow.text().matches("<CommonPrefixes>").count(), 2);
    let (mut seen, mut token) = (Vec::new(), "&continuation-token=".to_owned());
    loop {
        let page = site.get(&format!("/bucket?encoding-type=url&list-type=2&max-keys=2{token}")).await.ok();
        assert!(page.elements("Key").len() <= 2);
        seen.extend(page.elements("Key"));
        match page.elements("NextContinuationToken").first() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => break,
        }
    }
    assert_eq!(seen, sorted);
    let after = site.get("/bucket?marker=dir%2Fy&prefix=d").await.ok();
    assert_eq!(after.elements("Key"), ["dirt"]);
    let none = site.get("/bucket?max-keys=0").await.ok();
    assert_eq!((none.elements("Key").len(), none.elements("IsTruncated")), (0, vec!["false".to_owned()]));
    let delete = "<Delete><Object><Key>a</Key></Object><Object><Key>none</Key></Object></Delete>";
    let deleted = site.call("POST", "/bucket?delete", delete.as_bytes()).await.ok();
    assert_eq!(deleted.elements("Key"), ["a", "none"]);
    site.get("/bucket/a").await.is_error(404, "NoSuchKey");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_have_the_bytes_and_what_is_known_of_them() {
    let site = Site::start().await;
    site.put("/from-here", b"").await.ok();
    site.put("/to-there", b"").await.ok();
    let bytes = noise(5 << 20);
    let headers = [("x-amz-meta-a", "1"), ("x-amz-tagging", "k=v")];
    site.call_as(ALICE, "PUT", "/from-here/k", &headers, &bytes).await.ok();
    let copy = [("x-amz-copy-source", "/from-here/k")];
    let copied = site.call_as(ALICE, "PUT", "/to-there/c", &copy, b"").await.ok();
    assert_eq!(copied.elements("ETag").len(), 1);
    let got = site.get("/to-there/c").await.ok();
    assert!(got.body == bytes);
    assert_eq!((got.header("x-amz-meta-a"), got.header("x-amz-tagging-count")), (Some("1"), Some("1")));
    site.call_as(ALICE, "PUT", "/from-here/k", &copy, b"").await.is_error(400, "InvalidRequest");
    let replace = [copy[0], ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-a", "2")];
    site.call_as(ALICE, "PUT", "/from-here/k", &replace, b"").await.ok();
    let got = site.get("/from-here/k").await.ok();
    assert!(got.body == bytes && got.header("x-amz-meta-a") == Some("2"));
    let missing = [("x-amz-copy-source", "/from-here/none")];
    site.call_as(ALICE, "PUT", "/to-there/d", &missing, b"").await.is_error(404, "NoSuchKey");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_made_if_its_target_and_its_source_are_what_it_says() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/from", b"new").await.ok();
    let old = site.put("/bucket/to", b"old").await.ok().header("etag").unwrap().to_owned();
    let copy = async |target: &str, header: (&str, &str)| {
        let headers = [("x-amz-copy-source", "/bucket/from"), header];
        site.call_as(ALICE, "PUT", target, &headers, b"").await
    };
    for header in [("if-none-match", "*"), ("if-none-match", old.as_str()), ("if-match", "\"other\"")] {
        copy("/bucket/to", header).await.is_error(412, "PreconditionFailed");
    }
    copy("/bucket/none", ("if-match", "*")).await.is_error(404, "NoSuchKey");
    copy("/bucket/to", ("if-match", "\"")).await.is_error(400, "InvalidArgument");
    let owner = "x-amz-source-expected-bucket-owner";
    copy("/bucket/to", (owner, "bob")).await.is_error(403, "AccessDenied");
    let begun = site.call("POST", "/bucket/parts?uploads", b"").await.ok();
    let part = format!("/bucket/parts?partNumber=1&uploadId={}", begun.elements("UploadId")[0]);
    copy(&part, (owner, "bob")).await.is_error(403, "AccessDenied");
    assert_eq!(site.get("/bucket/to").await.ok().text(), "old");
    copy(&part, (owner, "alice")).await.ok();
    copy("/bucket/to", ("if-match", &old)).await.ok();
    copy("/bucket/other", ("if-none-match", "*")).await.ok();
    for target in ["/bucket/to", "/bucket/other"] {
        assert_eq!(site.get(target).await.ok().text(), "new");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storage_class_or_a_tag_of_the_bucket_chooses_the_code() {
    let classes = [("STANDARD_IA".to_owned(), "rs:n=5,k=3".to_owned())].into();
    let site = Site::with(|config| Config { classes, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let code = |key: &str| {
        let name = format!("s3/bucket/{key}");
        let client = site.client.clone();
        async move { client.info(&name).await.unwrap().code }
    };
    site.call_as(ALICE, "PUT", "/bucket/ia", &[("x-amz-storage-class", "STANDARD_IA")], b"x").await.ok();
    assert_eq!(code("ia").await, "rs:n=5,k=3");
    let glacier = site.call_as(ALICE, "PUT", "/bucket/g", &[("x-amz-storage-class", "GLACIER")], b"x").await;
    glacier.is_error(400, "InvalidStorageClass");
    let tags = |code: &str| {
        format!("<Tagging><TagSet><Tag><Key>kintsu.code</Key><Value>{code}</Value></Tag></TagSet></Tagging>")
    };
    site.put("/bucket?tagging", tags("rs:n=1,k=9").as_bytes()).await.is_error(400, "InvalidArgument");
    site.put("/bucket?tagging", tags("replication:n=3").as_bytes()).await.ok();
    site.put("/bucket/t", b"x").await.ok();
    assert_eq!(code("t").await, "replication:n=3");
    assert_eq!(site.get("/bucket?tagging").await.ok().elements("Value"), ["replication:n=3"]);
    site.call("DELETE", "/bucket?tagging", b"").await.ok();
    site.get("/bucket?tagging").await.is_error(404, "NoSuchTagSet");
}

#[tokio::test(flavor = "multi_thread")]
async fn entity_tags_without_md5_tell_contents_apart() {
    let site = Site::with(|config| Config { tags: EntityTags::Crc64, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let tag = |answer: &Answer| answer.header("etag").unwrap().to_owned();
    // In one piece, and as a stream.
    for len in [0, 1000, 5 << 20] {
        let (bytes, mut other) = (noise(len), noise(len));
        let put = tag(&site.put("/bucket/k", &bytes).await.ok());
        let (sums, parts) = put.trim_matches('"').split_once('-').unwrap();
        assert!(sums.len() == 32 && parts == "1", "{put}");
        assert_eq!(tag(&site.get("/bucket/k").await.ok()), put);
        assert_eq!(site.get("/bucket?list-type=2").await.ok().elements("ETag"), [put.as_str()]);
        assert_eq!(tag(&site.put("/bucket/k", &bytes).await.ok()), put, "the same bytes");
        if let Some(last) = other.last_mut() {
            *last ^= 1;
            assert_ne!(tag(&site.put("/bucket/k", &other).await.ok()), put, "one bit");
            let was = [("if-match", put.as_str())];
            site.call_as(ALICE, "PUT", "/bucket/k", &was, b"").await.is_error(412, "PreconditionFailed");
        }
    }
    // An MD5 that the client sends is compared, and is the tag.
    let with = |md5: &'static str| [("content-md5", md5)];
    let wrong = site.call_as(ALICE, "PUT", "/bucket/m", &with("XUFAKrxLKna5cZ2REBfFkg=="), b"hallo").await;
    wrong.is_error(400, "BadDigest");
    let right =
        site.call_as(ALICE, "PUT", "/bucket/m", &with("XUFAKrxLKna5cZ2REBfFkg=="), b"hello").await.ok();
    assert_eq!(tag(&right), "\"5d41402abc4b2a76b9719d911017c592\"");
    // Objects of parts have tags made of those of their parts.
    let mut wholes = Vec::new();
    for bytes in [b"one", b"two"] {
        let begun = site.call("POST", "/bucket/parts?uploads", b"").await.ok();
        let upload = format!("/bucket/parts?uploadId={}", begun.elements("UploadId")[0]);
        let part = tag(&site.put(&format!("{upload}&partNumber=1"), bytes).await.ok());
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part>");
        let whole = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        site.call("POST", &upload, whole.as_bytes()).await.ok();
        wholes.push(tag(&site.get("/bucket/parts").await.ok()));
    }
    assert_ne!(wholes[0], wholes[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_falls_silent_holds_nothing_for_long() {
    let limits = Limits { idle: Duration::from_millis(300), ..Limits::default() };
    let site = Site::with(|config| Config { limits, ..config }).await;
    site.put("/bucket", b"").await.ok();
    let mut stream = tokio::net::TcpStream::connect(site.addr).await.unwrap();
    let head = request(ALICE, site.addr, "PUT", "/bucket/k", &[]) + "content-length: 9000000\r\n\r\nabc";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    answer(&bytes).is_error(400, "RequestTimeout");
    site.get("/bucket/k").await.is_error(404, "NoSuchKey");
    // One that does not read its answer, of an object that was not put in the haste of this door.
    let bytes = noise(32 << 20);
    let source = std::sync::Arc::new(bytes::Bytes::from(bytes.clone()));
    site.client.put(source, "s3/bucket/big", PutOptions::new("rs:n=4,k=2"), |_, _| {}).await.unwrap();
    // On a loaded machine it takes longer until there is one.
    for pause_s in [5, 20, 80] {
        let mut stream = tokio::net::TcpStream::connect(site.addr).await.unwrap();
        let head = request(ALICE, site.addr, "GET", "/bucket/big", &[]) + "connection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(pause_s)).await;
        let mut got = Vec::new();
        let _ = stream.read_to_end(&mut got).await;
        if got.len() < bytes.len() {
            return;
        }
    }
    panic!("the read was not ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_objects_that_come_together_share_stripes_and_go_one_by_one() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let versioning = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    site.put("/versioned", b"").await.ok();
    site.put("/versioned?versioning", versioning).await.ok();
    let targets: Vec<_> =
        (0..32).map(|i| format!("/{}/k{i:02}", if i % 4 == 0 { "versioned" } else { "bucket" })).collect();
    let body = |i: usize, round: usize| noise(1 + (i * 577 + round * 1000) % 4000);
    for round in 0..2 {
        let puts = targets.iter().enumerate().map(|(i, target)| {
            let (site, body) = (&site, body(i, round));
            async move { site.put(target, &body).await.ok() }
        });
        for put in futures::future::join_all(puts).await {
            assert!(put.header("etag").is_some());
        }
    }
    let stripes = site.client.status().await.unwrap().stripes;
    assert!(stripes <= 24, "{stripes} stripes of 40 objects");
    for (i, target) in targets.iter().enumerate() {
        let (wanted, got) = (body(i, 1), site.get(target).await.ok());
        assert!(got.body == wanted, "{target}");
        let last = format!("bytes=-{}", wanted.len().div_ceil(2));
        let part = site.call_as(ALICE, "GET", target, &[("range", last.as_str())], b"").await.ok();
        assert!(part.body == wanted[wanted.len() / 2..], "{target}");
    }
    // A condition is decided for each object alone.
    let absent = [("if-none-match", "*")];
    let puts = ["/bucket/k01", "/bucket/new", "/bucket/k02", "/bucket/newer"].map(|target| {
        let site = &site;
        async move { (target, site.call_as(ALICE, "PUT", target, &absent, b"if it is new").await.status) }
    });
    for (target, status) in futures::future::join_all(puts).await {
        assert_eq!(status, if target.contains("new") { 200 } else { 412 }, "{target}");
    }
    let listed = site.get("/versioned?versions").await.ok();
    assert_eq!(listed.elements("VersionId").len(), 16);
    for target in targets.iter().chain(&["/bucket/new".to_owned(), "/bucket/newer".to_owned()]) {
        site.call("DELETE", target, b"").await.ok();
        site.get(target).await.is_error(404, "NoSuchKey");
    }
    // Older versions are there until they are deleted too, and then nothing is left.
    let listed = site.get("/versioned?versions").await.ok();
    let versions = listed.elements("Key").into_iter().zip(listed.elements("VersionId"));
    for (key, version) in versions {
        let target = format!("/versioned/{key}?versionId={version}");
        site.call("DELETE", &target, b"").await.ok();
    }
    assert_eq!(site.client.status().await.unwrap().stripes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn attributes_tell_the_entity_tag_without_quotes() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let put = site.put("/bucket/k", b"text").await.ok();
    let quoted = put.header("etag").unwrap();
    let ask = async |names: &str| {
        let asked = [("x-amz-object-attributes", names)];
        site.call_as(ALICE, "GET", "/bucket/k?attributes", &asked, b"").await.ok()
    };
    let told = ask("ETag,ObjectSize").await;
    assert_eq!(told.elements("ETag"), [quoted.trim_matches('"')]);
    assert_eq!((quoted.len(), told.elements("ObjectSize")), (34, vec!["4".to_owned()]));
    assert!(ask("ObjectSize").await.elements("ETag").is_empty());
    assert_eq!(site.get("/bucket?list-type=2").await.ok().elements("ETag").len(), 1);
}
