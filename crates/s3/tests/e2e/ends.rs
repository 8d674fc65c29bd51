//! What ends by itself, and what may not end yet: lifecycle rules and object lock.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kintsu_client::PutOptions;
use kintsu_wire::message::{Change, Step};

use crate::site::{ALICE, BOB, Site};

/// Waits until a listing shows these keys.
async fn until(site: &Site, target: &str, keys: &[&str]) {
    let begun = tokio::time::Instant::now();
    loop {
        let shown = site.get(target).await.ok().elements("Key");
        if shown == keys {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{target}: expected {keys:?}, got {shown:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn rules(rules: &str) -> Vec<u8> {
    format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>").into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_versions_and_uploads_end_by_rules() {
    // A day has a second.
    let site = Site::with(|mut config| {
        config.day = Duration::from_secs(1);
        config
    })
    .await;
    for bucket in ["/plain", "/kept"] {
        site.put(bucket, b"").await.ok();
        site.put(&format!("{bucket}/logs/1"), b"1").await.ok();
        site.put(&format!("{bucket}/data"), b"2").await.ok();
    }
    site.call_as(ALICE, "PUT", "/plain/tagged", &[("x-amz-tagging", "a=1")], b"3").await.ok();
    site.call("POST", "/plain/logs/upload?uploads", b"").await.ok();
    site.put("/plain?lifecycle", &rules("<Rule><Status>Enabled</Status></Rule>"))
        .await
        .is_error(400, "InvalidRequest");
    let moves = "<Rule><Status>Enabled</Status><Prefix/><Transition><Days>1</Days><StorageClass>COLD</StorageClass></Transition></Rule>";
    site.put("/plain?lifecycle", &rules(moves)).await.is_error(501, "NotImplemented");
    let body = rules(
        "<Rule><ID>logs</ID><Status>Enabled</Status><Filter><Prefix>logs/</Prefix></Filter>\
         <Expiration><Days>1</Days></Expiration>\
         <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>\
         <Rule><Status>Enabled</Status><Filter><Tag><Key>a</Key><Value>1</Value></Tag></Filter>\
         <Expiration><Days>1</Days></Expiration></Rule>\
         <Rule><Status>Disabled</Status><Prefix/><Expiration><Days>1</Days></Expiration></Rule>",
    );
    site.put("/plain?lifecycle", &body).await.ok();
    assert_eq!(site.get("/plain?lifecycle").await.ok().elements("ID"), ["logs", "rule-2", "rule-3"]);
    until(&site, "/plain", &["data"]).await;
    until(&site, "/plain?uploads", &[]).await;
    assert_eq!(site.get("/plain/data").await.ok().header("x-amz-expiration"), None);
    let put = site.put("/plain/logs/2", b"1").await.ok();
    assert!(put.header("x-amz-expiration").unwrap().contains("rule-id=\"logs\""), "{put:?}");
    // The other bucket has no rules.
    assert_eq!(site.get("/kept").await.ok().elements("Key"), ["data", "logs/1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_cannot_be_written_is_not_told() {
    let site = Site::start().await;
    site.put("/bucket", b"").await.ok();
    let rule = |prefix: &str, days: i32| {
        format!(
            "<Rule><Status>Enabled</Status><Prefix>{prefix}</Prefix><Expiration><Days>{days}</Days></Expiration></Rule>"
        )
    };
    site.put("/bucket?lifecycle", &rules(&(rule("k", i32::MAX) + &rule("k/soon", 1)))).await.ok();
    for (key, told) in [("k", false), ("k/soon", true)] {
        let target = format!("/bucket/{key}");
        for method in ["PUT", "GET", "HEAD"] {
            let answer = site.call(method, &target, b"").await.ok();
            assert_eq!(answer.header("x-amz-expiration").is_some(), told, "{method} {key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn older_versions_end_and_then_their_marker() {
    let site = Site::with(|mut config| {
        config.day = Duration::from_secs(1);
        config
    })
    .await;
    site.put("/bucket", b"").await.ok();
    site.put(
        "/bucket?versioning",
        b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>",
    )
    .await
    .ok();
    for key in ["a", "b"] {
        for bytes in [b"1", b"2", b"3"] {
            site.put(&format!("/bucket/{key}"), bytes).await.ok();
        }
    }
    site.call("DELETE", "/bucket/b", b"").await.ok();
    let body = rules(
        "<Rule><Status>Enabled</Status><Prefix/><NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays>\
         </NoncurrentVersionExpiration><Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>",
    );
    site.put("/bucket?lifecycle", &body).await.ok();
    until(&site, "/bucket?versions", &["a"]).await;
    assert_eq!(site.get("/bucket/a").await.ok().text(), "3");
}

/// A moment of the future, as S3 writes it.
#[allow(clippy::unwrap_used, reason = "the clock and the text are its own")]
fn from_now(seconds: u64) -> String {
    let at = SystemTime::now() + Duration::from_secs(seconds);
    let at = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let mut text = Vec::new();
    let stamp = s3s::dto::Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(at));
    stamp.format(s3s::dto::TimestampFormat::DateTime, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_locked_version_is_not_removed() {
    let site = Site::start().await;
    site.call_as(ALICE, "PUT", "/vault", &[("x-amz-bucket-object-lock-enabled", "true")], b"").await.ok();
    let suspend = b"<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    site.put("/vault?versioning", suspend).await.is_error(409, "InvalidBucketState");
    let until = from_now(3600);
    let lock = [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", &until)];
    let put = site.call_as(ALICE, "PUT", "/vault/k", &lock, b"kept").await.ok();
    let target = format!("/vault/k?versionId={}", put.header("x-amz-version-id").unwrap());
    let bypass = [("x-amz-bypass-governance-retention", "true")];
    // A delete without a version only hides it.
    site.call("DELETE", "/vault/k", b"").await.ok();
    site.call("DELETE", &target, b"").await.is_error(403, "AccessDenied");
    let hold = |status: &str| format!("<LegalHold><Status>{status}</Status></LegalHold>");
    site.put(&target.replace('?', "?legal-hold&"), hold("ON").as_bytes()).await.ok();
    site.call_as(ALICE, "DELETE", &target, &bypass, b"").await.is_error(403, "AccessDenied");
    site.put(&target.replace('?', "?legal-hold&"), hold("OFF").as_bytes()).await.ok();
    let shorter = format!(
        "<Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>{}</RetainUntilDate></Retention>",
        from_now(60)
    );
    let retention = target.replace('?', "?retention&");
    site.put(&retention, shorter.as_bytes()).await.is_error(403, "AccessDenied");
    site.call_as(ALICE, "PUT", &retention, &bypass, shorter.as_bytes()).await.ok();
    // Only who may change the bucket may pass by.
    let all = r#"{"Statement": [{"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": "s3:DeleteObject*", "Resource": "*"}]}"#;
    site.put("/vault?policy", all.as_bytes()).await.ok();
    site.call_as(BOB, "DELETE", &target, &bypass, b"").await.is_error(403, "AccessDenied");
    site.call_as(ALICE, "DELETE", &target, &bypass, b"").await.ok();
    let config =
        b"<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule><DefaultRetention>\
                   <Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule></ObjectLockConfiguration>";
    site.put("/vault?object-lock", config).await.ok();
    let put = site.put("/vault/d", b"kept").await.ok();
    let target = format!("/vault/d?versionId={}", put.header("x-amz-version-id").unwrap());
    assert_eq!(site.get(&target).await.ok().header("x-amz-object-lock-mode"), Some("COMPLIANCE"));
    site.call_as(ALICE, "DELETE", &target, &bypass, b"").await.is_error(403, "AccessDenied");
    site.put("/plain", b"").await.ok();
    site.call_as(ALICE, "PUT", "/plain/k", &lock, b"").await.is_error(400, "InvalidRequest");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_not_shortened_by_a_time_zone() {
    let site = Site::start().await;
    site.call_as(ALICE, "PUT", "/vault", &[("x-amz-bucket-object-lock-enabled", "true")], b"").await.ok();
    let until = "2090-01-02T00:00:00Z";
    let lock = [("x-amz-object-lock-mode", "COMPLIANCE"), ("x-amz-object-lock-retain-until-date", until)];
    site.call_as(ALICE, "PUT", "/vault/k", &lock, b"kept").await.ok();
    let retain = async |until: &str| {
        let body = format!(
            "<Retention><Mode>COMPLIANCE</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"
        );
        site.put("/vault/k?retention", body.as_bytes()).await
    };
    let kept = async || site.get("/vault/k?retention").await.ok().elements("RetainUntilDate").remove(0);
    // The same moment stays the same, and no other one is earlier.
    retain("2090-01-01T00:01:00-23:59").await.ok();
    assert_eq!(kept().await, "2090-01-02T00:00:00.000Z");
    retain("2090-01-02T01:00:00+01:01").await.is_error(403, "AccessDenied");
    let lock = [lock[0], ("x-amz-object-lock-retain-until-date", "2090-01-01T00:00:00-08:00")];
    site.call_as(ALICE, "PUT", "/vault/k", &lock, b"kept").await.ok();
    assert_eq!(kept().await, "2090-01-01T08:00:00.000Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_without_their_upload_end_unless_they_may_be_all_that_is_left() {
    let site = Site::with(|mut config| {
        config.day = Duration::from_secs(1);
        config
    })
    .await;
    site.put("/bucket", b"").await.ok();
    let mut ids = Vec::new();
    for key in ["goes", "stays"] {
        let begun = site.call("POST", &format!("/bucket/{key}?uploads"), b"").await.ok();
        let id = begun.elements("UploadId").remove(0);
        site.put(&format!("/bucket/{key}?partNumber=1&uploadId={id}"), b"part").await.ok();
        ids.push(id);
    }
    // Without facts, as after a rebuild of the metadata from blocks.
    let (rebuilt, options) = (".s3/part/00/00001", PutOptions::new("rs:n=4,k=2"));
    site.client
        .put(Arc::new(bytes::Bytes::from_static(b"rebuilt")), rebuilt, options, |_, _| {})
        .await
        .unwrap();
    // The gateway that removed the upload has ended before it removed its parts.
    let steps = vec![Step::Remove { name: format!(".s3/upload/bucket/goes\0{}", ids[0]) }];
    site.client.change(&Change { checks: Vec::new(), steps }).await.unwrap();
    let begun = tokio::time::Instant::now();
    let left = [rebuilt.to_owned(), format!(".s3/part/{}/00001", ids[1])];
    loop {
        let parts = site.client.list(".s3/part/", None, 9).await.unwrap().objects;
        let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
        if names == left {
            break;
        }
        assert!(names.len() == 3 && begun.elapsed() < Duration::from_secs(90), "{names:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    site.call("DELETE", "/bucket", b"").await.ok();
    assert_eq!(site.client.list(".s3/", None, 9).await.unwrap().objects.len(), 1);
}
