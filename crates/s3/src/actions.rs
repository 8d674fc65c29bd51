//! What each operation does, in the words of policies, of the file of keys and of lists of grants: one table.

use http::HeaderMap;

use crate::keys::Right;

/// What a list of grants must give for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Granted {
    /// This, of the bucket.
    Bucket(&'static str),
    /// This, of the object.
    Object(&'static str),
    /// Lists of grants cannot give it.
    Never,
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    pub operation: &'static str,
    /// What policies call it.
    pub name: &'static str,
    /// What policies call it if a version is named; `None`: it is about a key, whatever version its request names.
    pub of_version: Option<&'static str>,
    /// What the file of keys calls it.
    pub right: Right,
    pub granted: Granted,
}

const fn action(operation: &'static str, name: &'static str, right: Right, granted: Granted) -> Action {
    Action { operation, name, of_version: None, right, granted }
}

const fn on_version(
    operation: &'static str,
    name: &'static str,
    of_version: &'static str,
    right: Right,
    granted: Granted,
) -> Action {
    Action { operation, name, of_version: Some(of_version), right, granted }
}

/// One that policies call the same with a version and without.
const fn of_any(operation: &'static str, name: &'static str, right: Right) -> Action {
    on_version(operation, name, name, right, Granted::Never)
}

/// Reading an object: what a copy does to its source.
pub(crate) const READ: Action =
    on_version("GetObject", "s3:GetObject", "s3:GetObjectVersion", Right::Read, Granted::Object("READ"));
/// Writing one: what a form does.
pub(crate) const WRITE: Action = action("PutObject", "s3:PutObject", Right::Write, Granted::Bucket("WRITE"));
/// Removing one: what a list of objects to delete does to each.
pub(crate) const REMOVE: Action = on_version(
    "DeleteObject",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    Right::Write,
    Granted::Bucket("WRITE"),
);
/// Listing: who may do it is told that an object does not exist.
pub(crate) const LIST: Action = action("ListObjects", "s3:ListBucket", Right::List, Granted::Bucket("READ"));
/// Tagging an object.
pub(crate) const TAG: Action = on_version(
    "PutObjectTagging",
    "s3:PutObjectTagging",
    "s3:PutObjectVersionTagging",
    Right::Write,
    Granted::Never,
);
const GRANT: Action = on_version(
    "PutObjectAcl",
    "s3:PutObjectAcl",
    "s3:PutObjectVersionAcl",
    Right::Admin,
    Granted::Object("WRITE_ACP"),
);
const RETAIN: Action = of_any("PutObjectRetention", "s3:PutObjectRetention", Right::Admin);
const HOLD: Action = of_any("PutObjectLegalHold", "s3:PutObjectLegalHold", Right::Admin);
/// Removing or changing what is locked in governance mode.
pub(crate) const BYPASS: Action = of_any("", "s3:BypassGovernanceRetention", Right::Admin);

const ACTIONS: &[Action] = &[
    READ,
    WRITE,
    REMOVE,
    LIST,
    action("HeadBucket", "s3:ListBucket", Right::List, Granted::Bucket("READ")),
    action("ListObjectsV2", "s3:ListBucket", Right::List, Granted::Bucket("READ")),
    action("ListObjectVersions", "s3:ListBucketVersions", Right::List, Granted::Bucket("READ")),
    action("ListMultipartUploads", "s3:ListBucketMultipartUploads", Right::List, Granted::Bucket("READ")),
    action("GetBucketLocation", "s3:GetBucketLocation", Right::List, Granted::Never),
    Action { operation: "HeadObject", ..READ },
    Action { operation: "GetObjectAttributes", ..READ },
    on_version(
        "GetObjectTagging",
        "s3:GetObjectTagging",
        "s3:GetObjectVersionTagging",
        Right::Read,
        Granted::Never,
    ),
    on_version(
        "GetObjectAcl",
        "s3:GetObjectAcl",
        "s3:GetObjectVersionAcl",
        Right::Read,
        Granted::Object("READ_ACP"),
    ),
    GRANT,
    action("CopyObject", WRITE.name, Right::Write, WRITE.granted),
    action("CreateMultipartUpload", WRITE.name, Right::Write, WRITE.granted),
    action("UploadPart", WRITE.name, Right::Write, WRITE.granted),
    action("UploadPartCopy", WRITE.name, Right::Write, WRITE.granted),
    action("CompleteMultipartUpload", WRITE.name, Right::Write, WRITE.granted),
    action("AbortMultipartUpload", "s3:AbortMultipartUpload", Right::Write, WRITE.granted),
    action("ListParts", "s3:ListMultipartUploadParts", Right::Write, WRITE.granted),
    TAG,
    on_version(
        "DeleteObjectTagging",
        "s3:DeleteObjectTagging",
        "s3:DeleteObjectVersionTagging",
        Right::Write,
        Granted::Never,
    ),
    of_any("GetObjectRetention", "s3:GetObjectRetention", Right::Read),
    RETAIN,
    of_any("GetObjectLegalHold", "s3:GetObjectLegalHold", Right::Read),
    HOLD,
    action("DeleteBucket", "s3:DeleteBucket", Right::Admin, Granted::Never),
    action("GetBucketAcl", "s3:GetBucketAcl", Right::Admin, Granted::Bucket("READ_ACP")),
    action("PutBucketAcl", "s3:PutBucketAcl", Right::Admin, Granted::Bucket("WRITE_ACP")),
    action("GetBucketVersioning", "s3:GetBucketVersioning", Right::Admin, Granted::Never),
    action("PutBucketVersioning", "s3:PutBucketVersioning", Right::Admin, Granted::Never),
    action("GetBucketTagging", "s3:GetBucketTagging", Right::Admin, Granted::Never),
    action("PutBucketTagging", "s3:PutBucketTagging", Right::Admin, Granted::Never),
    action("DeleteBucketTagging", "s3:PutBucketTagging", Right::Admin, Granted::Never),
    action("GetBucketPolicy", "s3:GetBucketPolicy", Right::Admin, Granted::Never),
    action("PutBucketPolicy", "s3:PutBucketPolicy", Right::Admin, Granted::Never),
    action("DeleteBucketPolicy", "s3:DeleteBucketPolicy", Right::Admin, Granted::Never),
    action("GetBucketPolicyStatus", "s3:GetBucketPolicyStatus", Right::Admin, Granted::Never),
    action("GetBucketCors", "s3:GetBucketCORS", Right::Admin, Granted::Never),
    action("PutBucketCors", "s3:PutBucketCORS", Right::Admin, Granted::Never),
    action("DeleteBucketCors", "s3:PutBucketCORS", Right::Admin, Granted::Never),
    action("GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration", Right::Admin, Granted::Never),
    action("PutBucketLifecycleConfiguration", "s3:PutLifecycleConfiguration", Right::Admin, Granted::Never),
    action("DeleteBucketLifecycle", "s3:PutLifecycleConfiguration", Right::Admin, Granted::Never),
    action("GetPublicAccessBlock", "s3:GetBucketPublicAccessBlock", Right::Admin, Granted::Never),
    action("PutPublicAccessBlock", "s3:PutBucketPublicAccessBlock", Right::Admin, Granted::Never),
    action("DeletePublicAccessBlock", "s3:PutBucketPublicAccessBlock", Right::Admin, Granted::Never),
    action("GetBucketOwnershipControls", "s3:GetBucketOwnershipControls", Right::Admin, Granted::Never),
    action("PutBucketOwnershipControls", "s3:PutBucketOwnershipControls", Right::Admin, Granted::Never),
    action("DeleteBucketOwnershipControls", "s3:PutBucketOwnershipControls", Right::Admin, Granted::Never),
    action("GetObjectLockConfiguration", "s3:GetBucketObjectLockConfiguration", Right::Admin, Granted::Never),
    action("PutObjectLockConfiguration", "s3:PutBucketObjectLockConfiguration", Right::Admin, Granted::Never),
];

/// What an operation does. One that is not in the table needs every right.
pub(crate) fn of(operation: &str) -> Action {
    let known = ACTIONS.iter().find(|action| action.operation == operation);
    known.copied().unwrap_or(action("", "s3:*", Right::Admin, Granted::Never))
}

/// Whoever may write by a list of grants owns what it writes, and may so say who else uses it, and tag it.
const fn of_owner(action: Action) -> Action {
    Action { granted: WRITE.granted, ..action }
}

/// Headers with which an object that is written gets what is otherwise an operation of its own.
const BY_HEADER: [(&str, Action); 9] = [
    ("x-amz-acl", of_owner(GRANT)),
    ("x-amz-grant-full-control", of_owner(GRANT)),
    ("x-amz-grant-read", of_owner(GRANT)),
    ("x-amz-grant-read-acp", of_owner(GRANT)),
    ("x-amz-grant-write-acp", of_owner(GRANT)),
    ("x-amz-tagging", of_owner(TAG)),
    ("x-amz-object-lock-mode", RETAIN),
    ("x-amz-object-lock-retain-until-date", RETAIN),
    ("x-amz-object-lock-legal-hold", HOLD),
];

/// Canned lists that give nothing to anybody but the writer and the owner of the bucket, who has everything anyway.
const OF_OWNER: [&str; 3] = ["private", "bucket-owner-read", "bucket-owner-full-control"];

/// Whether a header with a list of grants gives something to anybody else.
fn gives(name: &str, value: &str, owner: &str) -> bool {
    let to_owner = |grant: &str| {
        let named = grant.trim().split_once('=').filter(|(kind, _)| *kind == "id");
        named.is_some_and(|(_, user)| user.trim_matches('"') == owner)
    };
    match name {
        "x-amz-acl" => !OF_OWNER.contains(&value),
        _ => !value.split(',').all(to_owner),
    }
}

/// Whether an operation does what the headers of [`BY_HEADER`] say.
pub(crate) fn obeys_headers(operation: &str) -> bool {
    ["PutObject", "CopyObject", "CreateMultipartUpload"].contains(&operation)
}

/// What a request to write an object into a bucket of this owner does besides writing, each once: the same must be allowed as if it came by
/// itself.
pub(crate) fn asked_by(headers: &HeaderMap, owner: &str) -> Vec<Action> {
    let says = |(name, action): &&(&str, Action)| {
        let is_list = action.operation == GRANT.operation;
        headers.get_all(*name).iter().any(|value| match value.to_str() {
            Ok(value) if is_list => gives(name, value, owner),
            _ => !value.is_empty(),
        })
    };
    let mut asked: Vec<Action> = BY_HEADER.iter().filter(says).map(|(_, action)| *action).collect();
    asked.dedup();
    asked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_ask_for_operations_of_their_own() {
        let asked = |headers: &[(&'static str, &'static str)]| -> Vec<&str> {
            let headers: HeaderMap = headers
                .iter()
                .map(|(name, value)| {
                    (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
                })
                .collect();
            asked_by(&headers, "owner").into_iter().map(|action| action.operation).collect()
        };
        let full = "x-amz-grant-full-control";
        let none =
            [("x-amz-acl", "private"), ("x-amz-tagging", ""), ("x-amz-meta-a", "1"), (full, "id=\"owner\"")];
        assert!(asked(&none).is_empty());
        for others in ["id=owner, id=bob", "emailAddress=owner", "uri=x", "owner"] {
            assert_eq!(asked(&[(full, others)]), ["PutObjectAcl"], "{others}");
        }
        let all = [
            ("x-amz-acl", "public-read"),
            ("x-amz-grant-read", "id=a"),
            ("x-amz-tagging", "a=1"),
            ("x-amz-object-lock-mode", "GOVERNANCE"),
            ("x-amz-object-lock-retain-until-date", "2030-01-01T00:00:00Z"),
            ("x-amz-object-lock-legal-hold", "ON"),
        ];
        assert_eq!(
            asked(&all),
            ["PutObjectAcl", "PutObjectTagging", "PutObjectRetention", "PutObjectLegalHold"]
        );
        for (_, action) in BY_HEADER {
            let alone = of(action.operation);
            assert_eq!((alone.name, alone.right), (action.name, action.right));
        }
    }

    #[test]
    fn each_operation_stands_in_the_table_once() {
        for (i, action) in ACTIONS.iter().enumerate() {
            assert!(ACTIONS[..i].iter().all(|other| other.operation != action.operation), "{action:?}");
            assert_eq!(of(action.operation).name, action.name);
        }
        assert_eq!((of("Unknown").right, of("Unknown").granted), (Right::Admin, Granted::Never));
    }
}
