//! What is kept under which name of an object of the cluster.
//!
//! | name | what |
//! |---|---|
//! | `s3/BUCKET/KEY` | the newest version of an object, unless that is a delete marker |
//! | `.s3/bucket/BUCKET` | a bucket and its settings; no bytes |
//! | `.s3/version/BUCKET/KEY` NUL and 16 hex digits | older versions and delete markers, the newest first |
//! | `.s3/upload/BUCKET/KEY` NUL and the id | a multipart upload under way; no bytes |
//! | `.s3/part/ID/NUMBER` | its parts |
//!
//! The order of names is that of S3 (bytes of UTF-8). No key contains a NUL, which sorts first, so the versions of a key
//! stand before those of all longer keys.

use s3s::{S3Error, S3ErrorCode, S3Result};

use crate::error::because;

/// All buckets.
pub(crate) const BUCKETS: &str = ".s3/bucket/";

/// All uploads.
pub(crate) const UPLOADS: &str = ".s3/upload/";

/// All parts of uploads.
pub(crate) const PARTS: &str = ".s3/part/";

/// Longest key in bytes.
pub(crate) const KEY_BYTES: usize = 1024;

/// Separates a key from what follows it.
pub(crate) const END_OF_KEY: char = '\0';

/// Checks a key.
///
/// # Errors
/// `KeyTooLongError`; `InvalidArgument` for an empty one or one with a NUL.
pub(crate) fn checked_key(key: &str) -> S3Result<()> {
    if key.len() > KEY_BYTES {
        return Err(too_long(key.len()));
    }
    if key.is_empty() || key.contains(END_OF_KEY) {
        return Err(crate::error::invalid("key", "1 to 1024 bytes without NUL", format!("{key:?}")));
    }
    Ok(())
}

pub(crate) fn too_long(len: usize) -> S3Error {
    let text = format!("expected a key of at most {KEY_BYTES} bytes, got {len}");
    because(S3ErrorCode::KeyTooLongError, text)
}

pub(crate) fn bucket(bucket: &str) -> String {
    format!("{BUCKETS}{bucket}")
}

/// What the names of all objects of a bucket begin with.
pub(crate) fn objects(bucket: &str) -> String {
    format!("s3/{bucket}/")
}

pub(crate) fn object(bucket: &str, key: &str) -> String {
    format!("s3/{bucket}/{key}")
}

/// The key of an object of a bucket.
pub(crate) fn key<'n>(bucket: &str, name: &'n str) -> &'n str {
    name.strip_prefix(&objects(bucket)).unwrap_or(name)
}

/// What the names of all older versions in a bucket begin with.
pub(crate) fn all_versions(bucket: &str) -> String {
    format!(".s3/version/{bucket}/")
}

/// What the names of the older versions of a key begin with.
pub(crate) fn versions(bucket: &str, key: &str) -> String {
    format!(".s3/version/{bucket}/{key}{END_OF_KEY}")
}

/// What the names of all uploads to a bucket begin with.
pub(crate) fn uploads(bucket: &str) -> String {
    format!("{UPLOADS}{bucket}/")
}

pub(crate) fn upload(bucket: &str, key: &str, id: &str) -> String {
    format!("{UPLOADS}{bucket}/{key}{END_OF_KEY}{id}")
}

/// The id of an upload, from its name.
pub(crate) fn id_of_upload(name: &str) -> Option<&str> {
    name.rsplit_once(END_OF_KEY).map(|(_, id)| id)
}

/// What the names of the parts of an upload begin with.
pub(crate) fn parts(upload: &str) -> String {
    format!("{PARTS}{upload}/")
}

pub(crate) fn part(upload: &str, number: i32) -> String {
    format!("{PARTS}{upload}/{number:05}")
}

/// The name behind all others that begin like this.
pub(crate) fn behind(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_key_stand_before_those_of_longer_keys() {
        let mut names: Vec<_> =
            ["a", "a\u{1}", "a b", "a/b", "ab", "é"].map(|key| versions("b", key) + "f").into();
        let sorted = names.clone();
        names.sort();
        assert_eq!(names, sorted);
    }

    #[test]
    fn keys_are_1_to_1024_bytes_of_text() {
        for good in ["a", "/", "..", "a\u{1}\u{7f}", &"é".repeat(512)] {
            checked_key(good).unwrap();
        }
        for bad in ["", "a\0b", &"é".repeat(513)] {
            assert!(checked_key(bad).is_err(), "{bad:?}");
        }
    }
}
