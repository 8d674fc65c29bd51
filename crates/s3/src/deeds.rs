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
pub(crate) struct Deed {
    pub operation: &'static str,
    /// What policies call it.
    pub action: &'static str,
    /// What policies call it if a version is named.
    pub of_version: &'static str,
    /// What the file of keys calls it.
    pub right: Right,
    pub granted: Granted,
}

const fn deed(operation: &'static str, action: &'static str, right: Right, granted: Granted) -> Deed {
    Deed { operation, action, of_version: action, right, granted }
}

const fn on_version(
    operation: &'static str,
    action: &'static str,
    of_version: &'static str,
    right: Right,
    granted: Granted,
) -> Deed {
    Deed { operation, action, of_version, right, granted }
}

/// Reading an object: what a copy does to its source.
pub(crate) const READ: Deed =
    on_version("GetObject", "s3:GetObject", "s3:GetObjectVersion", Right::Read, Granted::Object("READ"));
/// Writing one: what a form does.
pub(crate) const WRITE: Deed = deed("PutObject", "s3:PutObject", Right::Write, Granted::Bucket("WRITE"));
/// Removing one: what a list of objects to delete does to each.
pub(crate) const REMOVE: Deed = on_version(
    "DeleteObject",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    Right::Write,
    Granted::Bucket("WRITE"),
);
/// Listing: who may do it is told that an object does not exist.
pub(crate) const LIST: Deed = deed("ListObjects", "s3:ListBucket", Right::List, Granted::Bucket("READ"));
/// Removing or changing what is locked in governance mode.
pub(crate) const BYPASS: Deed = deed("", "s3:BypassGovernanceRetention", Right::Admin, Granted::Never);

const DEEDS: &[Deed] = &[
    READ,
    WRITE,
    REMOVE,
    LIST,
    deed("HeadBucket", "s3:ListBucket", Right::List, Granted::Bucket("READ")),
    deed("ListObjectsV2", "s3:ListBucket", Right::List, Granted::Bucket("READ")),
    deed("ListObjectVersions", "s3:ListBucketVersions", Right::List, Granted::Bucket("READ")),
    deed("ListMultipartUploads", "s3:ListBucketMultipartUploads", Right::List, Granted::Bucket("READ")),
    deed("GetBucketLocation", "s3:GetBucketLocation", Right::List, Granted::Never),
    on_version("HeadObject", READ.action, READ.of_version, Right::Read, READ.granted),
    on_version("GetObjectAttributes", READ.action, READ.of_version, Right::Read, READ.granted),
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
    deed("CopyObject", WRITE.action, Right::Write, WRITE.granted),
    deed("CreateMultipartUpload", WRITE.action, Right::Write, WRITE.granted),
    deed("UploadPart", WRITE.action, Right::Write, WRITE.granted),
    deed("UploadPartCopy", WRITE.action, Right::Write, WRITE.granted),
    deed("CompleteMultipartUpload", WRITE.action, Right::Write, WRITE.granted),
    deed("AbortMultipartUpload", "s3:AbortMultipartUpload", Right::Write, WRITE.granted),
    deed("ListParts", "s3:ListMultipartUploadParts", Right::Write, WRITE.granted),
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
    deed("GetObjectRetention", "s3:GetObjectRetention", Right::Read, Granted::Never),
    deed("PutObjectRetention", "s3:PutObjectRetention", Right::Admin, Granted::Never),
    deed("GetObjectLegalHold", "s3:GetObjectLegalHold", Right::Read, Granted::Never),
    deed("PutObjectLegalHold", "s3:PutObjectLegalHold", Right::Admin, Granted::Never),
    deed("DeleteBucket", "s3:DeleteBucket", Right::Admin, Granted::Never),
    deed("GetBucketAcl", "s3:GetBucketAcl", Right::Admin, Granted::Bucket("READ_ACP")),
    deed("PutBucketAcl", "s3:PutBucketAcl", Right::Admin, Granted::Bucket("WRITE_ACP")),
    deed("GetBucketVersioning", "s3:GetBucketVersioning", Right::Admin, Granted::Never),
    deed("PutBucketVersioning", "s3:PutBucketVersioning", Right::Admin, Granted::Never),
    deed("GetBucketTagging", "s3:GetBucketTagging", Right::Admin, Granted::Never),
    deed("PutBucketTagging", "s3:PutBucketTagging", Right::Admin, Granted::Never),
    deed("DeleteBucketTagging", "s3:PutBucketTagging", Right::Admin, Granted::Never),
    deed("GetBucketPolicy", "s3:GetBucketPolicy", Right::Admin, Granted::Never),
    deed("PutBucketPolicy", "s3:PutBucketPolicy", Right::Admin, Granted::Never),
    deed("DeleteBucketPolicy", "s3:DeleteBucketPolicy", Right::Admin, Granted::Never),
    deed("GetBucketPolicyStatus", "s3:GetBucketPolicyStatus", Right::Admin, Granted::Never),
    deed("GetBucketCors", "s3:GetBucketCORS", Right::Admin, Granted::Never),
    deed("PutBucketCors", "s3:PutBucketCORS", Right::Admin, Granted::Never),
    deed("DeleteBucketCors", "s3:PutBucketCORS", Right::Admin, Granted::Never),
    deed("GetBucketLifecycleConfiguration", "s3:GetLifecycleConfiguration", Right::Admin, Granted::Never),
    deed("PutBucketLifecycleConfiguration", "s3:PutLifecycleConfiguration", Right::Admin, Granted::Never),
    deed("DeleteBucketLifecycle", "s3:PutLifecycleConfiguration", Right::Admin, Granted::Never),
    deed("GetPublicAccessBlock", "s3:GetBucketPublicAccessBlock", Right::Admin, Granted::Never),
    deed("PutPublicAccessBlock", "s3:PutBucketPublicAccessBlock", Right::Admin, Granted::Never),
    deed("DeletePublicAccessBlock", "s3:PutBucketPublicAccessBlock", Right::Admin, Granted::Never),
    deed("GetBucketOwnershipControls", "s3:GetBucketOwnershipControls", Right::Admin, Granted::Never),
    deed("PutBucketOwnershipControls", "s3:PutBucketOwnershipControls", Right::Admin, Granted::Never),
    deed("DeleteBucketOwnershipControls", "s3:PutBucketOwnershipControls", Right::Admin, Granted::Never),
    deed("GetObjectLockConfiguration", "s3:GetBucketObjectLockConfiguration", Right::Admin, Granted::Never),
    deed("PutObjectLockConfiguration", "s3:PutBucketObjectLockConfiguration", Right::Admin, Granted::Never),
];

/// What an operation does. One that is not in the table needs every right.
pub(crate) fn of(operation: &str) -> Deed {
    let known = DEEDS.iter().find(|deed| deed.operation == operation);
    known.copied().unwrap_or(deed("", "s3:*", Right::Admin, Granted::Never))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_stands_in_the_table_once() {
        for (i, deed) in DEEDS.iter().enumerate() {
            assert!(DEEDS[..i].iter().all(|other| other.operation != deed.operation), "{deed:?}");
            assert_eq!(of(deed.operation).action, deed.action);
        }
        assert_eq!((of("Unknown").right, of("Unknown").granted), (Right::Admin, Granted::Never));
    }
}
