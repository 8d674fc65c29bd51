//! Who may do what.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::browsers::form;
use crate::site::{ALICE, BOB, LOGS, READER, Site, WRITER, Who};

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_its_owners_until_a_policy_says_more() {
    let site = Site::start().await;
    site.put("/alices", b"").await.ok();
    site.put("/alices/k", b"secret").await.ok();
    for who in [BOB, READER, Who::Nobody] {
        for (method, target) in
            [("GET", "/alices/k"), ("PUT", "/alices/k"), ("DELETE", "/alices/k"), ("GET", "/alices")]
        {
            site.call_as(who, method, target, &[], b"").await.is_error(403, "AccessDenied");
        }
    }
    site.call_as(BOB, "PUT", "/alices", &[], b"").await.is_error(409, "BucketAlreadyExists");
    site.call_as(READER, "PUT", "/readers", &[], b"").await.is_error(403, "AccessDenied");
    let source = [("x-amz-copy-source", "alices/k")];
    site.call_as(BOB, "PUT", "/bobs-own", &[], b"").await.ok();
    site.call_as(BOB, "PUT", "/bobs-own/c", &source, b"").await.is_error(403, "AccessDenied");
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::alices/*"},
        {"Effect": "Deny", "Principal": {"AWS": "bob"}, "Action": "s3:*", "Resource": "*"}]}"#;
    site.put("/alices?policy", b"{}").await.is_error(400, "MalformedPolicy");
    site.put("/alices?policy", policy.as_bytes()).await.ok();
    assert_eq!(site.call_as(Who::Nobody, "GET", "/alices/k", &[], b"").await.ok().text(), "secret");
    site.call_as(Who::Nobody, "PUT", "/alices/k", &[], b"").await.is_error(403, "AccessDenied");
    site.call_as(BOB, "GET", "/alices/k", &[], b"").await.is_error(403, "AccessDenied");
    site.call("DELETE", "/alices?policy", b"").await.ok();
    site.call_as(Who::Nobody, "GET", "/alices/k", &[], b"").await.is_error(403, "AccessDenied");
    site.put("/shared-x", b"").await.ok();
    site.put("/shared-x/k", b"for all").await.ok();
    assert_eq!(site.call_as(READER, "GET", "/shared-x/k", &[], b"").await.ok().text(), "for all");
    site.call_as(READER, "GET", "/shared-x", &[], b"").await.ok();
    site.call_as(READER, "DELETE", "/shared-x/k", &[], b"").await.is_error(403, "AccessDenied");
    let delete = b"<Delete><Object><Key>k</Key></Object></Delete>";
    let denied = site.call_as(READER, "POST", "/shared-x?delete", &[], delete).await.ok();
    assert_eq!(denied.elements("Code"), ["AccessDenied"]);
    let buckets = |who| {
        let site = &site;
        async move { site.call_as(who, "GET", "/", &[], b"").await.ok().elements("Name") }
    };
    assert_eq!(buckets(ALICE).await, ["alices", "shared-x"]);
    assert_eq!(buckets(BOB).await, ["bobs-own"]);
    assert_eq!(buckets(READER).await, ["shared-x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_grants_gives_what_it_says_and_a_block_takes_it_back() {
    let site = Site::start().await;
    site.put("/lists", b"").await.ok();
    site.put("/lists/closed", b"closed").await.ok();
    let put = |target, acl| site.call_as(ALICE, "PUT", target, acl, b"open");
    put("/lists/open", &[("x-amz-acl", "public-read")]).await.ok();
    put("/lists/bobs", &[("x-amz-grant-read", "id=bob")]).await.ok();
    put("/lists/x", &[("x-amz-acl", "public")]).await.is_error(400, "InvalidArgument");
    put("/lists/x", &[("x-amz-grant-read", "id=nobody")]).await.is_error(400, "InvalidArgument");
    let read = |who, target: &'static str| site.call_as(who, "GET", target, &[], b"");
    assert_eq!(read(Who::Nobody, "/lists/open").await.ok().text(), "open");
    assert_eq!(read(BOB, "/lists/bobs").await.ok().text(), "open");
    for (who, target) in
        [(Who::Nobody, "/lists/bobs"), (BOB, "/lists/closed"), (BOB, "/lists"), (BOB, "/lists/none")]
    {
        read(who, target).await.is_error(403, "AccessDenied");
    }
    site.call_as(ALICE, "PUT", "/lists?acl", &[("x-amz-acl", "public-read-write")], b"").await.ok();
    assert_eq!(read(Who::Nobody, "/lists").await.ok().elements("Key"), ["bobs", "closed", "open"]);
    // Who may list is told what there is not.
    read(Who::Nobody, "/lists/none").await.is_error(404, "NoSuchKey");
    site.call_as(BOB, "PUT", "/lists/written", &[], b"by bob").await.ok();
    read(ALICE, "/lists/written").await.ok();
    let shown = site.get("/lists/written?acl").await.ok();
    assert_eq!(
        (shown.elements("ID"), shown.elements("Permission")),
        (vec!["bob".into(); 2], vec!["FULL_CONTROL".into()])
    );
    let status = site.get("/lists?policyStatus").await.ok();
    assert_eq!(status.elements("IsPublic"), ["true"]);
    let blocks = b"<PublicAccessBlockConfiguration><BlockPublicAcls>true</BlockPublicAcls>\
                   <IgnorePublicAcls>true</IgnorePublicAcls></PublicAccessBlockConfiguration>";
    site.put("/lists?publicAccessBlock", blocks).await.ok();
    read(Who::Nobody, "/lists").await.is_error(403, "AccessDenied");
    read(Who::Nobody, "/lists/open").await.is_error(403, "AccessDenied");
    read(BOB, "/lists/bobs").await.ok();
    put("/lists/y", &[("x-amz-acl", "public-read")]).await.is_error(403, "AccessDenied");
    // With this ownership no list counts.
    let rule = b"<OwnershipControls><Rule><ObjectOwnership>BucketOwnerEnforced</ObjectOwnership></Rule></OwnershipControls>";
    site.put("/lists?ownershipControls", rule).await.is_error(400, "InvalidBucketAclWithObjectOwnership");
    site.call_as(ALICE, "PUT", "/lists?acl", &[("x-amz-acl", "private")], b"").await.ok();
    site.put("/lists?ownershipControls", rule).await.ok();
    read(BOB, "/lists/bobs").await.is_error(403, "AccessDenied");
    put("/lists/z", &[("x-amz-acl", "private")]).await.is_error(400, "AccessControlListNotSupported");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_create_has_no_more_than_its_rights_in_buckets_of_its_own_user() {
    let site = Site::start().await;
    for bucket in ["/alices", "/logs-a"] {
        site.put(bucket, b"").await.ok();
        site.put(&format!("{bucket}/k"), b"secret").await.ok();
    }
    site.call_as(BOB, "PUT", "/bobs", &[("x-amz-acl", "public-read-write")], b"").await.ok();
    site.put("/bobs/of-alice", b"secret").await.ok();
    let call = async |method: &str, target: &str| site.call_as(LOGS, method, target, &[], b"").await;
    for (method, target) in [
        ("GET", "/alices/k"),
        ("GET", "/alices/none"),
        ("PUT", "/alices/k"),
        ("DELETE", "/alices/k"),
        ("GET", "/alices"),
        ("GET", "/alices?acl"),
        ("GET", "/alices/k?acl"),
        ("DELETE", "/logs-a/k"),
        ("GET", "/bobs/of-alice"),
    ] {
        let answer = call(method, target).await;
        assert_eq!(answer.status, 403, "{method} {target}: {}", answer.text());
    }
    assert_eq!(call("GET", "/logs-a/k").await.ok().text(), "secret");
    assert_eq!(site.get("/alices/k").await.ok().text(), "secret");
    // What somebody else has given this user is for all its keys, and what is for everybody too.
    site.call_as(BOB, "PUT", "/bobs/given", &[("x-amz-grant-read", "id=alice")], b"given").await.ok();
    assert_eq!(call("GET", "/bobs/given").await.ok().text(), "given");
    site.call_as(ALICE, "PUT", "/alices/open", &[("x-amz-acl", "public-read")], b"open").await.ok();
    assert_eq!(call("GET", "/alices/open").await.ok().text(), "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_list_reads_no_private_version_however_it_is_spelled() {
    let site = Site::start().await;
    site.call_as(ALICE, "PUT", "/spelled", &[("x-amz-acl", "public-read")], b"").await.ok();
    site.put("/spelled/k", b"private").await.ok();
    let keep = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    site.put("/spelled?versioning", keep).await.ok();
    site.call_as(ALICE, "PUT", "/spelled/k", &[("x-amz-acl", "public-read")], b"public").await.ok();
    let call = async |method: &str, target: &str| {
        let list = [("x-amz-acl", "public-read")];
        let headers = if method == "PUT" { &list[..] } else { &[] };
        site.call_as(Who::Nobody, method, target, headers, b"").await
    };
    assert_eq!(call("GET", "/spelled/k").await.ok().text(), "public");
    for version in ["versionId=null", "versionId=nul%6c", "version%49d=null", "x=&version%49%64=%6eull"] {
        for (method, target) in [
            ("GET", format!("/spelled/k?{version}")),
            ("HEAD", format!("/spelled/k?{version}")),
            ("GET", format!("/spelled/k?acl&{version}")),
            ("PUT", format!("/spelled/k?acl&{version}")),
        ] {
            let answer = call(method, &target).await;
            assert_eq!(answer.status, 403, "{method} {target}: {}", answer.text());
        }
    }
    call("GET", "/spelled/k?versionId=77").await.is_error(404, "NoSuchVersion");
    call("GET", "/spelled/k?versionId=%zz").await.is_error(400, "InvalidArgument");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_private_object_that_takes_the_place_of_a_public_one_is_not_read() {
    let site = Site::start().await;
    site.put("/turns", b"").await.ok();
    site.call_as(BOB, "PUT", "/bobs", &[], b"").await.ok();
    let public = [("x-amz-acl", "public-read")];
    let open = site.call_as(ALICE, "PUT", "/turns/k", &public, b"open").await.ok();
    let (open, over) = (open.header("etag").unwrap().to_owned(), AtomicBool::new(false));
    let writer = async {
        for _ in 0..150 {
            site.put("/turns/k", b"secret").await.ok();
            site.call_as(ALICE, "PUT", "/turns/k", &public, b"open").await.ok();
        }
        over.store(true, Relaxed);
    };
    let source = [("x-amz-copy-source", "/turns/k")];
    let reader = async |method: &str, target: &str, who: Who, headers: &[(&str, &str)]| {
        while !over.load(Relaxed) {
            let answer = site.call_as(who, method, target, headers, b"").await;
            let tag = match (answer.status, method) {
                (200, "PUT") => answer.elements("ETag").remove(0).replace("&quot;", "\""),
                (200, _) => answer.header("etag").unwrap().to_owned(),
                _ => continue,
            };
            assert_eq!(tag, open, "{method}: {answer:?}");
        }
    };
    let reads = (0..4).map(|_| reader("GET", "/turns/k", Who::Nobody, &[]));
    let reads = futures::future::join_all(reads);
    let heads = reader("HEAD", "/turns/k", Who::Nobody, &[]);
    let copies = reader("PUT", "/bobs/k", BOB, &source);
    tokio::join!(writer, reads, heads, copies);
    assert_eq!(site.call_as(Who::Nobody, "GET", "/turns/k", &[], b"").await.ok().text(), "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_of_policies_are_kept() {
    let site = Site::start().await;
    site.put("/cond", b"").await.ok();
    for (key, tag) in [("open", "level=public"), ("closed", "level=secret")] {
        site.call_as(ALICE, "PUT", &format!("/cond/{key}"), &[("x-amz-tagging", tag)], b"x").await.ok();
    }
    let set = |statement: &str| {
        let policy = format!(r#"{{"Statement": [{statement}]}}"#);
        let site = &site;
        async move { site.put("/cond?policy", policy.as_bytes()).await }
    };
    let allow = |condition: &str| {
        format!(
            r#"{{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::cond/*", "Condition": {condition}}}"#
        )
    };
    set(&allow(r#"{"StringEquals": {"s3:ExistingObjectTag/level": "public"}}"#)).await.ok();
    let read = |key: &'static str| site.call_as(BOB, "GET", key, &[], b"");
    read("/cond/open").await.ok();
    read("/cond/closed").await.is_error(403, "AccessDenied");
    set(&allow(r#"{"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}"#)).await.ok();
    read("/cond/closed").await.ok();
    set(&allow(r#"{"NotIpAddress": {"aws:SourceIp": "127.0.0.1"}}"#)).await.ok();
    read("/cond/open").await.is_error(403, "AccessDenied");
    set(&allow(r#"{"StringEquals": {"aws:Moon": "full"}}"#)).await.is_error(400, "MalformedPolicy");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_by_condition_is_passed_by_neither_with_a_form_nor_a_document_nor_a_copy() {
    let site = Site::start().await;
    site.put("/denies", b"").await.ok();
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": ["s3:PutObject*", "s3:GetObject"], "Resource": "arn:aws:s3:::denies/*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::denies/b*",
         "Condition": {"StringLike": {"s3:x-amz-acl": "public*"}}},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject*", "Resource": "arn:aws:s3:::denies/b*",
         "Condition": {"StringEquals": {"s3:RequestObjectTag/level": "secret"}}}]}"#;
    site.put("/denies?policy", policy.as_bytes()).await.ok();
    let kind = [("content-type", "multipart/form-data; boundary=x"), ("x-amz-acl", "private")];
    let send = async |field: (&str, &str)| {
        let form = form(&[("key", "b"), field], "text");
        site.call_as(Who::Nobody, "POST", "/denies", &kind, form.as_bytes()).await
    };
    send(("x-amz-acl", "public-read")).await.is_error(403, "AccessDenied");
    send(("x-amz-tagging", "level=secret")).await.is_error(403, "AccessDenied");
    assert_eq!(send(("x-amz-tagging", "level=public")).await.status, 204);
    let tag = async |level: &str| {
        let body =
            format!("<Tagging><TagSet><Tag><Key>level</Key><Value>{level}</Value></Tag></TagSet></Tagging>");
        let header = [("x-amz-tagging", "level=public")];
        site.call_as(BOB, "PUT", "/denies/b?tagging", &header, body.as_bytes()).await
    };
    tag("secret").await.is_error(403, "AccessDenied");
    tag("open").await.ok();
    assert_eq!(site.get("/denies/b?tagging").await.ok().elements("Value"), ["open"]);
    site.call_as(ALICE, "PUT", "/denies/from", &[("x-amz-tagging", "level=secret")], b"x").await.ok();
    let mut copy = vec![("x-amz-copy-source", "/denies/from"), ("x-amz-tagging", "level=public")];
    site.call_as(BOB, "PUT", "/denies/b", &copy, b"").await.is_error(403, "AccessDenied");
    copy.push(("x-amz-tagging-directive", "REPLACE"));
    site.call_as(BOB, "PUT", "/denies/b", &copy, b"").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_is_judged_by_its_key_whatever_version_it_names() {
    let site = Site::start().await;
    site.put("/named", b"").await.ok();
    site.call_as(ALICE, "PUT", "/named/tagged", &[("x-amz-tagging", "level=secret")], b"x").await.ok();
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": "s3:PutObject*", "Resource": "*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObjectAcl", "Resource": "*"},
        {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "*",
         "Condition": {"StringEquals": {"s3:ExistingObjectTag/level": "secret"}}}]}"#;
    site.put("/named?policy", policy.as_bytes()).await.ok();
    let put =
        async |target: &str, headers: &[(&str, &str)]| site.call_as(BOB, "PUT", target, headers, b"y").await;
    for version in ["", "?versionId=null", "?versionId=77"] {
        put(&format!("/named/k{version}"), &[]).await.ok();
        let public = [("x-amz-acl", "public-read")];
        put(&format!("/named/k{version}"), &public).await.is_error(403, "AccessDenied");
        put(&format!("/named/tagged{version}"), &[]).await.is_error(403, "AccessDenied");
    }
    assert_eq!(site.get("/named/tagged").await.ok().text(), "x");
}

#[tokio::test(flavor = "multi_thread")]
async fn conditions_see_the_version_that_is_copied_or_deleted() {
    let site = Site::start().await;
    site.put("/from", b"").await.ok();
    site.call_as(BOB, "PUT", "/bobs", &[], b"").await.ok();
    let keep = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    site.put("/from?versioning", keep).await.ok();
    let mut versions = Vec::new();
    for bytes in [b"closed", b"open  "] {
        let put = site.put("/from/k", bytes).await.ok();
        versions.push(put.header("x-amz-version-id").unwrap().to_owned());
    }
    let [closed, open] = [versions.remove(0), versions.remove(0)];
    let policy = format!(
        r#"{{"Statement": [
        {{"Effect": "Allow", "Principal": {{"AWS": "bob"}}, "Action": ["s3:GetObject*", "s3:DeleteObject*"], "Resource": "*"}},
        {{"Effect": "Deny", "Principal": {{"AWS": "bob"}}, "Action": "s3:*", "Resource": "*",
          "Condition": {{"StringEquals": {{"s3:VersionId": "{closed}"}}}}}}]}}"#
    );
    site.put("/from?policy", policy.as_bytes()).await.ok();
    let copy = async |version: &str, query: &str| {
        let source = format!("/from/k?versionId={version}");
        let target = format!("/bobs/k{query}");
        site.call_as(BOB, "PUT", &target, &[("x-amz-copy-source", &source)], b"").await
    };
    copy(&closed, "").await.is_error(403, "AccessDenied");
    copy(&closed, &format!("?versionId={open}")).await.is_error(403, "AccessDenied");
    copy(&open, "").await.ok();
    let object = |version: &str| format!("<Object><Key>k</Key><VersionId>{version}</VersionId></Object>");
    let delete = format!("<Delete>{}{}</Delete>", object(&closed), object(&open));
    let deleted = site.call_as(BOB, "POST", "/from?delete", &[], delete.as_bytes()).await.ok();
    assert_eq!(deleted.elements("Code"), ["AccessDenied"], "{}", deleted.text());
    assert_eq!(site.get("/from?versions").await.ok().elements("VersionId"), [closed]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_key_of_a_list_to_delete_is_judged_when_it_passes_by_a_lock() {
    let site = Site::start().await;
    site.call_as(ALICE, "PUT", "/vault", &[("x-amz-bucket-object-lock-enabled", "true")], b"").await.ok();
    let until = "2099-01-01T00:00:00Z";
    let lock = [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", until)];
    let (mut delete, mut kept) = (String::new(), String::new());
    for key in ["free", "kept"] {
        let put = site.call_as(ALICE, "PUT", &format!("/vault/{key}"), &lock, b"x").await.ok();
        kept = put.header("x-amz-version-id").unwrap().to_owned();
        delete += &format!("<Object><Key>{key}</Key><VersionId>{kept}</VersionId></Object>");
    }
    let delete = format!("<Delete>{delete}</Delete>");
    let policy = r#"{"Statement": [
        {"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": "s3:DeleteObject*", "Resource": "*"},
        {"Effect": "Allow", "Principal": {"AWS": "bob"}, "Action": "s3:BypassGovernanceRetention",
         "Resource": ["arn:aws:s3:::vault", "arn:aws:s3:::vault/free"]}]}"#;
    site.put("/vault?policy", policy.as_bytes()).await.ok();
    let bypass = [("x-amz-bypass-governance-retention", "true")];
    let deleted = site.call_as(BOB, "POST", "/vault?delete", &bypass, delete.as_bytes()).await.ok();
    assert_eq!(deleted.elements("Code"), ["AccessDenied"], "{}", deleted.text());
    assert_eq!(site.get("/vault?versions").await.ok().elements("VersionId"), [kept]);
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_that_lock_grant_or_tag_need_what_the_same_call_alone_needs() {
    let site = Site::start().await;
    let lock = [("x-amz-bucket-object-lock-enabled", "true")];
    site.call_as(ALICE, "PUT", "/shared-put", &lock, b"").await.ok();
    site.call_as(ALICE, "PUT", "/shared-put/tagged", &[("x-amz-tagging", "a=1")], b"x").await.ok();
    let until = "2099-01-01T00:00:00Z";
    let retain = [("x-amz-object-lock-mode", "GOVERNANCE"), ("x-amz-object-lock-retain-until-date", until)];
    let hold = [("x-amz-object-lock-legal-hold", "ON")];
    let (public, grant) = ([("x-amz-acl", "public-read")], [("x-amz-grant-read", "id=bob")]);
    let (private, tag) = ([("x-amz-acl", "private")], [("x-amz-tagging", "a=1")]);
    // By the rights of a key locks and grants are for those who have `admin`.
    for headers in [&retain[..], &hold, &public, &grant] {
        for (method, target) in [("PUT", "/shared-put/k"), ("POST", "/shared-put/k?uploads")] {
            let put = site.call_as(WRITER, method, target, headers, b"").await;
            put.is_error(403, "AccessDenied");
            site.call_as(ALICE, method, target, headers, b"").await.ok();
        }
        let copy = [headers, &[("x-amz-copy-source", "/shared-put/tagged")]].concat();
        site.call_as(ALICE, "PUT", "/shared-put/copy", &copy, b"").await.ok();
        let policy = br#"{"Statement": {"Effect": "Allow", "Principal": {"AWS": "WRITER"}, "Action": "s3:GetObject", "Resource": "*"}}"#;
        site.put("/shared-put?policy", policy).await.ok();
        site.call_as(WRITER, "PUT", "/shared-put/copy", &copy, b"").await.is_error(403, "AccessDenied");
    }
    for headers in [&private[..], &tag, &[]] {
        site.call_as(WRITER, "PUT", "/shared-put/k", headers, b"x").await.ok();
    }
    // By a policy each needs its own action.
    site.put("/own", b"").await.ok();
    let allow = async |actions: &str| {
        let policy = format!(
            r#"{{"Statement": {{"Effect": "Allow", "Principal": {{"AWS": "bob"}}, "Action": ["s3:GetObject", {actions}], "Resource": "*"}}}}"#
        );
        site.put("/own?policy", policy.as_bytes()).await.ok();
    };
    site.call_as(ALICE, "PUT", "/own/tagged", &tag, b"x").await.ok();
    let put = async |headers: &[(&str, &str)]| site.call_as(BOB, "PUT", "/own/k", headers, b"").await;
    let copy = [("x-amz-copy-source", "/own/tagged")];
    allow(r#""s3:PutObject""#).await;
    for headers in [&tag[..], &public, &copy] {
        put(headers).await.is_error(403, "AccessDenied");
    }
    put(&private).await.ok();
    let kind = [("content-type", "multipart/form-data; boundary=x")];
    allow(r#""s3:PutObject", "s3:PutObjectTagging", "s3:PutObjectAcl""#).await;
    for headers in [&tag[..], &public, &copy] {
        put(headers).await.ok();
    }
    // A form says the same in its fields. Whoever writes by a list of grants owns what it writes.
    let send = async || {
        let form = form(&[("key", "f"), ("x-amz-acl", "public-read"), ("x-amz-tagging", "a=1")], "text");
        site.call_as(Who::Nobody, "POST", "/own", &kind, form.as_bytes()).await
    };
    let policy =
        br#"{"Statement": {"Effect": "Allow", "Principal": "*", "Action": "s3:PutObject", "Resource": "*"}}"#;
    site.put("/own?policy", policy).await.ok();
    send().await.is_error(403, "AccessDenied");
    site.call("DELETE", "/own?policy", b"").await.ok();
    site.call_as(ALICE, "PUT", "/own?acl", &[("x-amz-acl", "public-read-write")], b"").await.ok();
    assert_eq!(send().await.status, 204);
    put(&public).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_and_errors_have_the_name_of_the_request() {
    let site = Site::start().await;
    let answer = site.get("/nothing/there").await;
    answer.is_error(404, "NoSuchBucket");
    let name = answer.header("x-amz-request-id").unwrap().to_owned();
    assert_eq!(answer.elements("RequestId"), std::slice::from_ref(&name));
    let other = site.get("/").await.ok();
    assert_ne!(other.header("x-amz-request-id"), Some(name.as_str()));
}

#[tokio::test]
async fn it_listens_in_plain_text_on_loopback_only() {
    let site = Site::start().await;
    let listen = |addr: [u8; 4]| kintsu_s3::Listen { addr: (addr, 0).into(), trusted: None, tls: None };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys");
    std::fs::write(&path, "[[key]]\naccess = \"A\"\nsecret = \"0123456789abcdef\"").unwrap();
    let keys = std::sync::Arc::new(kintsu_s3::Keys::read(&path).unwrap());
    let start = |addr| {
        kintsu_s3::Server::start(
            site.client.clone(),
            keys.clone(),
            kintsu_s3::Config::new("rs:n=4,k=2"),
            listen(addr),
        )
    };
    let error = start([0, 0, 0, 0]).await.unwrap_err();
    assert!(error.to_string().contains("loopback"), "{error}");
    start([127, 0, 0, 1]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_and_a_refusal_have_one_line_each_with_the_user_in_the_audit_log() {
    // The lines of all tests of this program; nobody else uses this bucket.
    let log = tempfile::NamedTempFile::new().unwrap();
    let file = std::sync::Mutex::new(log.reopen().unwrap());
    tracing_subscriber::fmt().with_env_filter("audit=info").with_ansi(false).with_writer(file).init();
    let site = Site::start().await;
    site.put("/audited", b"").await.ok();
    for key in ["a%20b", "c", "d"] {
        site.put(&format!("/audited/{key}"), b"1").await.ok();
    }
    site.get("/audited/c").await.ok();
    site.call_as(BOB, "PUT", "/audited/c", &[], b"2").await.is_error(403, "AccessDenied");
    site.call_as(Who::Nobody, "DELETE", "/audited/c", &[], b"").await.is_error(403, "AccessDenied");
    site.call_as(BOB, "GET", "/audited/c", &[], b"").await.is_error(403, "AccessDenied");
    site.call("DELETE", "/audited/c", b"").await.ok();
    let delete = b"<Delete><Object><Key>a b</Key></Object><Object><Key>d</Key></Object></Delete>";
    site.call("POST", "/audited?delete", delete).await.ok();

    let text = std::fs::read_to_string(log.path()).unwrap();
    let lines: Vec<_> = text.lines().filter(|line| line.contains("about=\"audited")).collect();
    let shown: Vec<_> = lines.iter().map(|line| line.split(" audit: ").nth(1).unwrap()).collect();
    let alice = "done who=S3 user alice from 127.0.0.1 what=";
    let done = |what: &str| format!("{alice}{what}");
    assert_eq!(
        shown[..4],
        [
            done("\"CreateBucket\" about=\"audited\""),
            done("\"PutObject\" about=\"audited/a b\""),
            done("\"PutObject\" about=\"audited/c\""),
            done("\"PutObject\" about=\"audited/d\""),
        ]
    );
    for (line, who) in shown[4..6].iter().zip(["S3 user bob", "somebody without a key"]) {
        assert!(line.starts_with(&format!("refused who={who} from 127.0.0.1 what=")), "{line}");
        assert!(line.contains("about=\"audited/c\" why=\"") && line.contains("may not s3:"), "{line}");
    }
    assert_eq!(
        shown[6..],
        [
            done("\"DeleteObject\" about=\"audited/c\""),
            done("\"DeleteObjects\" about=\"audited/a b\""),
            done("\"DeleteObjects\" about=\"audited/d\""),
        ]
    );
}
