//! Versions and delete markers.

use std::time::Duration;

use crate::limits::{begun, heard};
use crate::site::Site;
use kintsu_wire::message::{Change, Step};
use tokio::io::AsyncWriteExt;

async fn versioning(site: &Site, status: &str) {
    let body = format!("<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>");
    site.put("/bucket?versioning", body.as_bytes()).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn older_versions_stay_and_come_back() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/k", b"null").await.ok();
    versioning(&site, "Enabled").await;
    let mut versions = Vec::new();
    for bytes in [b"one", b"two"] {
        let put = site.put("/bucket/k", bytes).await.ok();
        versions.push(put.header("x-amz-version-id").unwrap().to_owned());
    }
    let deleted = site.call("DELETE", "/bucket/k", b"").await.ok();
    assert_eq!(deleted.header("x-amz-delete-marker"), Some("true"));
    let marker = deleted.header("x-amz-version-id").unwrap().to_owned();
    let gone = site.get("/bucket/k").await;
    gone.is_error(404, "NoSuchKey");
    assert_eq!(gone.header("x-amz-delete-marker"), Some("true"));
    assert!(site.get("/bucket").await.ok().elements("Key").is_empty());
    let listed = site.get("/bucket?versions").await.ok();
    let mut all = listed.elements("VersionId");
    all.sort();
    let mut expected = vec![versions[0].clone(), versions[1].clone(), marker.clone(), "null".to_owned()];
    expected.sort();
    assert_eq!(all, expected);
    assert_eq!(listed.elements("IsLatest").iter().filter(|latest| *latest == "true").count(), 1);
    site.call("DELETE", "/bucket", b"").await.is_error(409, "BucketNotEmpty");
    for (version, bytes) in [(versions[0].as_str(), "one"), (&versions[1], "two"), ("null", "null")] {
        assert_eq!(site.get(&format!("/bucket/k?versionId={version}")).await.ok().text(), bytes);
    }
    site.get("/bucket/k?versionId=77").await.is_error(404, "NoSuchVersion");
    site.get(&format!("/bucket/k?versionId={marker}")).await.is_error(405, "MethodNotAllowed");
    // Without the marker, and then without the newest version, the one before is shown.
    let remove = |version: String| {
        let site = &site;
        async move { site.call("DELETE", &format!("/bucket/k?versionId={version}"), b"").await.ok() }
    };
    assert_eq!(remove(marker).await.header("x-amz-delete-marker"), Some("true"));
    assert_eq!(site.get("/bucket/k").await.ok().text(), "two");
    remove(versions[1].clone()).await;
    assert_eq!(site.get("/bucket/k").await.ok().text(), "one");
    remove("null".to_owned()).await;
    remove(versions[0].clone()).await;
    site.get("/bucket/k").await.is_error(404, "NoSuchKey");
    site.call("DELETE", "/bucket", b"").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn while_suspended_there_is_one_null_version() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    versioning(&site, "Enabled").await;
    let kept = site.put("/bucket/k", b"kept").await.ok().header("x-amz-version-id").unwrap().to_owned();
    versioning(&site, "Suspended").await;
    for bytes in [b"a", b"b"] {
        assert_eq!(site.put("/bucket/k", bytes).await.ok().header("x-amz-version-id"), None);
    }
    let ids = || async { site.get("/bucket?versions").await.ok().elements("VersionId") };
    assert_eq!(ids().await, ["null", kept.as_str()]);
    // The marker is the null version now.
    site.call("DELETE", "/bucket/k", b"").await.ok();
    let mut all = ids().await;
    all.sort();
    assert_eq!(all, [kept.as_str(), "null"]);
    site.get("/bucket/k").await.is_error(404, "NoSuchKey");
    site.put("/bucket/k", b"c").await.ok();
    assert_eq!(ids().await, ["null", kept.as_str()]);
    assert_eq!(site.get("/bucket/k").await.ok().text(), "c");
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_listed_in_pages() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    versioning(&site, "Enabled").await;
    for key in ["a", "a", "b", "dir/x", "b", "a"] {
        site.put(&format!("/bucket/{key}"), b"x").await.ok();
    }
    let (mut seen, mut from) = (Vec::new(), String::new());
    loop {
        let page = site.get(&format!("/bucket?versions&max-keys=2{from}")).await.ok();
        let latest = page.elements("IsLatest");
        seen.extend(page.elements("Key").into_iter().zip(latest));
        let (key, version) = (page.elements("NextKeyMarker"), page.elements("NextVersionIdMarker"));
        match (key.first(), version.first()) {
            (Some(key), Some(version)) => {
                from = format!("&key-marker={}&version-id-marker={version}", key.replace('/', "%2F"))
            }
            _ => break,
        }
    }
    let seen: Vec<_> = seen.iter().map(|(key, latest)| (key.as_str(), latest.as_str())).collect();
    let expected =
        [("a", "true"), ("a", "false"), ("a", "false"), ("b", "true"), ("b", "false"), ("dir/x", "true")];
    assert_eq!(seen, expected);
    let shallow = site.get("/bucket?delimiter=%2F&versions").await.ok();
    assert_eq!((shallow.elements("Key").len(), shallow.text().matches("<CommonPrefixes>").count()), (5, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn puts_and_deletes_at_once_leave_every_version() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    versioning(&site, "Enabled").await;
    let calls = (0..12).map(|i| {
        let site = &site;
        async move {
            let method = if i % 3 == 0 { "DELETE" } else { "PUT" };
            site.call(method, "/bucket/k", b"").await.ok().header("x-amz-version-id").unwrap().to_owned()
        }
    });
    let mut made = futures::future::join_all(calls).await;
    let listed = site.get("/bucket?versions").await.ok();
    assert_eq!(listed.elements("IsLatest").iter().filter(|latest| *latest == "true").count(), 1);
    let mut all = listed.elements("VersionId");
    made.sort();
    all.sort();
    assert_eq!(made, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_is_deleted_or_read_while_those_before_it_are_deleted_is_found() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    versioning(&site, "Enabled").await;
    for _ in 0..20 {
        let mut versions = Vec::new();
        for _ in 0..6 {
            let made = site.put("/bucket/k", b"bytes").await.ok();
            versions.push(made.header("x-amz-version-id").unwrap().to_owned());
        }
        // The first one becomes the newest one at some moment.
        let target = |version: &str| format!("/bucket/k?versionId={version}");
        let kept = versions.remove(0);
        let read = target(&kept);
        let deletes = versions.iter().map(|version| {
            let (site, target) = (&site, target(version));
            async move { site.call("DELETE", &target, b"").await.ok() }
        });
        let reads = async {
            for _ in 0..8 {
                assert_eq!(site.get(&read).await.ok().text(), "bytes");
                let listed = site.get("/bucket?versions").await.ok();
                assert!(listed.elements("VersionId").contains(&kept), "{listed:?}");
            }
        };
        futures::future::join(futures::future::join_all(deletes), reads).await;
        let listed = site.get("/bucket?versions").await.ok();
        assert_eq!(listed.elements("VersionId").len(), 1, "{listed:?}");
        site.call("DELETE", &read, b"").await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_began_before_versions_were_kept_removes_none() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let mut slow = begun(&site, "/bucket/k", 4).await;
    // Until the gateway has seen the bucket as it is now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    versioning(&site, "Enabled").await;
    let kept = site.put("/bucket/k", b"kept").await.ok().header("x-amz-version-id").unwrap().to_owned();
    slow.write_all(b"slow").await.unwrap();
    let slow = heard(&mut slow).await.ok();
    assert!(slow.header("x-amz-version-id").is_some_and(|version| version != kept), "{slow:?}");
    assert_eq!(site.get("/bucket/k").await.ok().text(), "slow");
    assert_eq!(site.get(&format!("/bucket/k?versionId={kept}")).await.ok().text(), "kept");
}

/// What a key is expected to have: its versions and delete markers, the newest first.
#[derive(Default)]
struct Expected(Vec<(String, Option<String>)>);

impl Expected {
    /// A version, or a delete marker, has come.
    fn came(&mut self, version: Option<&str>, bytes: Option<String>) {
        let version = version.unwrap_or("null").to_owned();
        if version == "null" {
            self.went("null");
        }
        self.0.insert(0, (version, bytes));
    }

    fn went(&mut self, version: &str) {
        self.0.retain(|(known, _)| known != version);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_a_key_its_null_version_is_found() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let (mut expected, mut state) = (Expected::default(), 0x2545_f491_4f6c_dd1du64);
    let mut dice = |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % sides
    };
    site.put("/bucket/k", b"first").await.ok();
    expected.came(None, Some("first".to_owned()));
    for turn in 0..120 {
        match dice(9) {
            0 => versioning(&site, "Enabled").await,
            1 => versioning(&site, "Suspended").await,
            2..=4 => {
                let bytes = format!("bytes {turn}");
                let put = site.put("/bucket/k", bytes.as_bytes()).await.ok();
                expected.came(put.header("x-amz-version-id"), Some(bytes));
            }
            5 | 6 if turn > 9 => {
                let deleted = site.call("DELETE", "/bucket/k", b"").await.ok();
                if deleted.header("x-amz-delete-marker").is_some() {
                    expected.came(deleted.header("x-amz-version-id"), None);
                } else {
                    // Versions have not been switched on yet.
                    expected.went("null");
                }
            }
            _ if !expected.0.is_empty() => {
                let version = expected.0[dice(expected.0.len() as u64) as usize].0.clone();
                site.call("DELETE", &format!("/bucket/k?versionId={version}"), b"").await.ok();
                expected.went(&version);
            }
            _ => {}
        }
        let listed = site.get("/bucket?versions").await.ok().elements("VersionId");
        let (mut listed, mut known): (Vec<_>, Vec<_>) =
            (listed, expected.0.iter().map(|(version, _)| version.clone()).collect());
        listed.sort();
        known.sort();
        assert_eq!(listed, known, "turn {turn}");
        let null = site.get("/bucket/k?versionId=null").await;
        match expected.0.iter().find(|(version, _)| version == "null") {
            Some((_, Some(bytes))) => assert_eq!(&null.ok().text(), bytes, "turn {turn}"),
            Some((_, None)) => null.is_error(405, "MethodNotAllowed"),
            None => null.is_error(404, "NoSuchVersion"),
        }
        let shown = site.get("/bucket/k").await;
        match expected.0.first() {
            Some((_, Some(bytes))) => assert_eq!(&shown.ok().text(), bytes, "turn {turn}"),
            _ => shown.is_error(404, "NoSuchKey"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_null_version_is_looked_up_where_the_newest_says_it_and_else_searched() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    site.put("/bucket/k", b"null").await.ok();
    versioning(&site, "Enabled").await;
    for bytes in [b"1", b"2"] {
        site.put("/bucket/k", bytes).await.ok();
    }
    let says = async |value: Option<&str>| {
        let facts = [("null".to_owned(), value.map(str::to_owned))].into();
        let steps = vec![Step::Describe { name: "s3/bucket/k".to_owned(), facts }];
        site.client.change(&Change { checks: Vec::new(), steps }).await.unwrap();
        site.get("/bucket/k?versionId=null").await
    };
    assert_eq!(site.get("/bucket/k?versionId=null").await.ok().text(), "null");
    for nothing in ["", "00000000000000ff", "x"] {
        says(Some(nothing)).await.is_error(404, "NoSuchVersion");
    }
    // As an earlier Kintsu has written it.
    assert_eq!(says(None).await.ok().text(), "null");
    versioning(&site, "Suspended").await;
    site.put("/bucket/k", b"new").await.ok();
    assert_eq!(site.get("/bucket/k?versionId=null").await.ok().text(), "new");
    assert_eq!(site.get("/bucket?versions").await.ok().elements("VersionId").len(), 3);
}
