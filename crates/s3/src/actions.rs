//! What each operation does, in the words of policies, of the file of keys and of lists of grants: one table.

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
#[derive(Debug, Clone, Copy)]
pub(crate) struct Action {
    pub operation: &'static str,
    /// What policies call it.
    pub name: &'static str,
    /// What policies call it if a version is named.
    pub of_version: &'static str,
    /// What the file of keys calls it.
    pub right: Right,
    pub granted: Granted,
}

const fn action(operation: &'static str, name: &'static str, right: Right, granted: Granted) -> Action {
    Action { operation, name, of_version: name, right, granted }
}

const fn on_version(
    operation: &'static str,
    name: &'static str,
    of_version: &'static str,
    right: Right,
    granted: Granted,
) -> Action {
    Action { operation, name, of_version, right, granted }
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
/// Removing or changing what is locked in governance mode.
pub(crate) const BYPASS: Action = action("", "s3:BypassGovernanceRetention", Right::Admin, Granted::Never);

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
    on_version("HeadObject", READ.name, READ.of_version, Right::Read, READ.granted),
    on_version("GetObjectAttributes", READ.name, READ.of_version, Right::Read, READ.granted),
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
    on_version(
        "PutObjectAcl",
        "s3:PutObjectAcl",
        "s3:PutObjectVersionAcl",
        Right::Admin,
        Granted::Object("WRITE_ACP"),
    ),
    action("CopyObject", WRITE.name, Right::Write, WRITE.granted),
    action("CreateMultipartUpload", WRITE.name, Right::Write, WRITE.granted),
    action("UploadPart", WRITE.name, Right::Write, WRITE.granted),
    action("UploadPartCopy", WRITE.name, Right::Write, WRITE.granted),
    action("CompleteMultipartUpload", WRITE.name, Right::Write, WRITE.granted),
    action("AbortMultipartUpload", "s3:AbortMultipartUpload", Right::Write, WRITE.granted),
    action("ListParts", "s3:ListMultipartUploadParts", Right::Write, WRITE.granted),
    on_version(
        "PutObjectTagging",
        "s3:PutObjectTagging",
        "s3:PutObjectVersionTagging",
        Right::Write,
        Granted::Never,
    ),
    on_version(
        "DeleteObjectTagging",
        "s3:DeleteObjectTagging",
        "s3:DeleteObjectVersionTagging",
        Right::Write,
        Granted::Never,
    ),
    action("GetObjectRetention", "s3:GetObjectRetention", Right::Read, Granted::Never),
    action("PutObjectRetention", "s3:PutObjectRetention", Right::Admin, Granted::Never),
    action("GetObjectLegalHold", "s3:GetObjectLegalHold", Right::Read, Granted::Never),
    action("PutObjectLegalHold", "s3:PutObjectLegalHold", Right::Admin, Granted::Never),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_stands_in_the_table_once() {
        for (i, action) in ACTIONS.iter().enumerate() {
            assert!(ACTIONS[..i].iter().all(|other| other.operation != action.operation), "{action:?}");
            assert_eq!(of(action.operation).name, action.name);
        }
        assert_eq!((of("Unknown").right, of("Unknown").granted), (Right::Admin, Granted::Never));
    }
}
