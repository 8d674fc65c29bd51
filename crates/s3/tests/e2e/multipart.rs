//! Objects that come in parts.

use crate::site::{ALICE, Site, noise};

fn list(parts: &[(i32, &str)]) -> String {
    let part = |(number, tag): &(i32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>")
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_become_one_object_without_a_copy() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let begun = site.call_as(ALICE, "POST", "/bucket/big?uploads", &[("x-amz-meta-a", "1")], b"").await.ok();
    let id = begun.elements("UploadId").remove(0);
    let parts = [noise(6 << 20), noise(3000), noise(70)];
    let mut tags = Vec::new();
    for (number, bytes) in [(3, &parts[1]), (7, &parts[2]), (1, &parts[1]), (1, &parts[0])] {
        let put = site.put(&format!("/bucket/big?partNumber={number}&uploadId={id}"), bytes).await.ok();
        tags.push(put.header("etag").unwrap().to_owned());
    }
    let listed = site.get(&format!("/bucket/big?uploadId={id}")).await.ok();
    assert_eq!(listed.elements("PartNumber"), ["1", "3", "7"]);
    assert_eq!(listed.elements("Size"), ["6291456", "3000", "70"]);
    assert_eq!(site.get("/bucket?uploads").await.ok().elements("UploadId"), std::slice::from_ref(&id));
    site.get("/bucket/big").await.is_error(404, "NoSuchKey");
    let complete = |parts: String| {
        let (site, id) = (&site, &id);
        async move { site.call("POST", &format!("/bucket/big?uploadId={id}"), parts.as_bytes()).await }
    };
    complete(list(&[(3, &tags[0]), (1, &tags[3])])).await.is_error(400, "InvalidPartOrder");
    complete(list(&[(1, &tags[2]), (3, &tags[0])])).await.is_error(400, "InvalidPart");
    complete(list(&[(3, &tags[0]), (7, &tags[1])])).await.ok();
    // The first answer may have been lost.
    let again = complete(list(&[(3, &tags[0]), (7, &tags[1])])).await.ok();
    assert!(again.elements("ETag")[0].contains("-2"), "{}", again.text());
    let got = site.get("/bucket/big").await.ok();
    assert!(got.body == [&parts[1][..], &parts[2]].concat());
    assert_eq!(got.header("x-amz-meta-a"), Some("1"));
    let second = site.get("/bucket/big?partNumber=2").await.ok();
    assert!(second.body == parts[2] && second.header("x-amz-mp-parts-count") == Some("2"));
    // The part that was not wanted is gone with the upload.
    assert!(
        site.client
            .list(".s3/", None, 99)
            .await
            .unwrap()
            .objects
            .iter()
            .all(|o| o.name.starts_with(".s3/bucket/"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_range_of_an_object_of_parts_is_right() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/source", &noise(5000)).await.ok();
    let begun = site.call("POST", "/bucket/k?uploads", b"").await.ok();
    let id = begun.elements("UploadId").remove(0);
    let (first, source) = (noise(1_300_000), noise(5000));
    let mut tags = vec![];
    let put = site.put(&format!("/bucket/k?partNumber=1&uploadId={id}"), &first).await.ok();
    tags.push(put.header("etag").unwrap().to_owned());
    for number in 2..=20 {
        let range = format!("bytes={}-{}", number, number + 1999);
        let headers = [("x-amz-copy-source", "bucket/source"), ("x-amz-copy-source-range", range.as_str())];
        let target = format!("/bucket/k?partNumber={number}&uploadId={id}");
        let put = site.call_as(ALICE, "PUT", &target, &headers, b"").await.ok();
        tags.push(put.elements("ETag").remove(0));
    }
    let parts: Vec<_> = tags.iter().enumerate().map(|(i, tag)| (i as i32 + 1, tag.as_str())).collect();
    site.call("POST", &format!("/bucket/k?uploadId={id}"), list(&parts).as_bytes()).await.ok();
    let mut whole = first;
    for number in 2..=20usize {
        whole.extend_from_slice(&source[number..][..2000]);
    }
    assert!(site.get("/bucket/k").await.ok().body == whole);
    let size = whole.len();
    for (from, upto) in
        [(0, 1), (1_299_999, 1_300_001), (1_301_999, 1_308_001), (size - 1, size), (5, size - 5)]
    {
        let range = format!("bytes={from}-{}", upto - 1);
        let got = site.call_as(ALICE, "GET", "/bucket/k", &[("range", &range)], b"").await.ok();
        assert!(got.body == whole[from..upto], "{range}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_that_is_aborted_takes_no_parts() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let id = site.call("POST", "/bucket/k?uploads", b"").await.ok().elements("UploadId").remove(0);
    site.put(&format!("/bucket/k?partNumber=1&uploadId={id}"), b"part").await.ok();
    site.put(&format!("/bucket/k?partNumber=0&uploadId={id}"), b"part")
        .await
        .is_error(400, "InvalidArgument");
    site.call("DELETE", &format!("/bucket/k?uploadId={id}"), b"").await.ok();
    for answer in [
        site.put(&format!("/bucket/k?partNumber=2&uploadId={id}"), b"part").await,
        site.get(&format!("/bucket/k?uploadId={id}")).await,
        site.call("DELETE", &format!("/bucket/k?uploadId={id}"), b"").await,
        site.call("POST", &format!("/bucket/k?uploadId={id}"), list(&[(1, "x")]).as_bytes()).await,
        site.get("/bucket/k?uploadId=x").await,
    ] {
        answer.is_error(404, "NoSuchUpload");
    }
    // A bucket goes with the uploads to it.
    let id = site.call("POST", "/bucket/k?uploads", b"").await.ok().elements("UploadId").remove(0);
    site.put(&format!("/bucket/k?partNumber=1&uploadId={id}"), b"part").await.ok();
    site.call("DELETE", "/bucket", b"").await.ok();
    assert!(site.client.list(".s3/", None, 9).await.unwrap().objects.is_empty());
}
