//! What is known of a stored object: its facts, read and written in one place.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use kintsu_wire::message::ObjectInfo;
use s3s::S3Result;
use s3s::dto::{
    Checksum, ETag, ObjectLockLegalHoldStatus, ObjectLockRetention, ObjectLockRetentionMode, Owner,
    Timestamp, TimestampFormat,
};
use time::{OffsetDateTime, UtcOffset};

use crate::acl::Acl;
use crate::bucket::Bucket;
use crate::error::invalid;

/// The MD5 of the bytes as hex digits; of a multipart object the MD5 of those of its parts, and their number.
pub(crate) const ETAG: &str = "etag";
/// It was written while versions were kept, so its id is its version.
pub(crate) const VERSIONED: &str = "v";
/// The id of the null version among those before it; empty if there was none. Only versions that are kept say it.
pub(crate) const NULL_BEFORE: &str = "null";
/// It is a delete marker.
pub(crate) const MARKER: &str = "marker";
/// The storage class.
pub(crate) const CLASS: &str = "class";
/// Who wrote it.
pub(crate) const WRITER: &str = "owner";
/// Its retention. Listings show it, so that a removal can judge it.
pub(crate) const LOCK: &str = "lock";
/// Its legal hold.
pub(crate) const HOLD: &str = "hold";
/// Its list of grants.
pub(crate) const ACL: &str = ".acl";
/// Its tags, as a form.
pub(crate) const TAGS: &str = ".tags";
/// The lengths of its parts.
pub(crate) const PARTS: &str = ".parts";
/// The checksums of its parts, in order, if they are not too many.
pub(crate) const PART_SUMS: &str = ".part-sums";
/// It is a part of an upload. A part that was rebuilt from blocks has no facts.
pub(crate) const PART: &str = "part";
/// The upload that made it.
pub(crate) const UPLOAD: &str = ".upload";
/// The code of an upload.
pub(crate) const CODE: &str = ".code";
/// Headers that are given back as they came.
pub(crate) const CACHE_CONTROL: &str = ".cache-control";
/// See [`CACHE_CONTROL`].
pub(crate) const DISPOSITION: &str = ".content-disposition";
/// See [`CACHE_CONTROL`].
pub(crate) const ENCODING: &str = ".content-encoding";
/// See [`CACHE_CONTROL`].
pub(crate) const LANGUAGE: &str = ".content-language";
/// See [`CACHE_CONTROL`].
pub(crate) const EXPIRES: &str = ".expires";
/// See [`CACHE_CONTROL`].
pub(crate) const REDIRECT: &str = ".website-redirect-location";
/// Whether the checksum is of all bytes or of the checksums of parts.
pub(crate) const SUM_TYPE: &str = "sum-type";

/// What the facts that are checksums are called, by algorithm.
const SUMS: [(&str, &str); 5] = [
    ("CRC32", "crc32"),
    ("CRC32C", "crc32c"),
    ("CRC64NVME", "crc64nvme"),
    ("SHA1", "sha1"),
    ("SHA256", "sha256"),
];

/// The version of an object that was written while versions were not kept.
pub(crate) const NULL: &str = "null";

/// The id of the object that is a version with this name; `None`: there can be none, or it is [`NULL`].
pub(crate) fn id_of_version(version: &str) -> Option<u64> {
    u64::from_str_radix(version, 16).ok().filter(|id| format!("{id:016x}") == version)
}

/// An object with its facts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<'o>(pub &'o ObjectInfo);

impl<'o> Entry<'o> {
    pub(crate) fn fact(self, name: &str) -> Option<&'o str> {
        self.0.attributes.facts.get(name).map(String::as_str)
    }

    pub(crate) fn owned(self, name: &str) -> Option<String> {
        self.fact(name).map(str::to_owned)
    }

    /// The entity tag. An object that was not put by S3 has one of its checksum and size.
    pub(crate) fn etag(self) -> String {
        let made = || {
            let sum = self.0.checksum.map_or(self.0.id, |sum| sum.0);
            format!("{sum:016x}{:016x}-1", self.0.size)
        };
        self.owned(ETAG).unwrap_or_else(made)
    }

    pub(crate) fn tag(self) -> ETag {
        ETag::Strong(self.etag())
    }

    pub(crate) fn is_marker(self) -> bool {
        self.fact(MARKER).is_some()
    }

    pub(crate) fn is_versioned(self) -> bool {
        self.fact(VERSIONED).is_some()
    }

    /// What a version says of the null version before it ([`NULL_BEFORE`]), if this is the newest one before it. `None`: that is not known,
    /// because an earlier Kintsu wrote the newest.
    pub(crate) fn null_before(newest: Option<Self>) -> Option<String> {
        match newest {
            None => Some(String::new()),
            Some(newest) if newest.is_versioned() => newest.owned(NULL_BEFORE),
            Some(null) => Some(format!("{:016x}", null.0.id)),
        }
    }

    /// The name of the version.
    pub(crate) fn version(self) -> String {
        if self.is_versioned() { format!("{:016x}", self.0.id) } else { NULL.to_owned() }
    }

    pub(crate) fn modified(self) -> Timestamp {
        Timestamp::from(self.modified_at())
    }

    pub(crate) fn modified_at(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.0.created)
    }

    pub(crate) fn class(self) -> &'o str {
        self.fact(CLASS).unwrap_or("STANDARD")
    }

    /// Who it belongs to: who wrote it.
    pub(crate) fn writer<'b>(self, bucket: &'b Bucket) -> &'b str
    where
        'o: 'b,
    {
        self.fact(WRITER).unwrap_or(bucket.owner())
    }

    /// The same for an answer.
    pub(crate) fn owner(self, bucket: &Bucket) -> Owner {
        owner_of(self.writer(bucket))
    }

    /// Its retention, which may have ended.
    pub(crate) fn retention(self) -> Option<ObjectLockRetention> {
        let (mode, until) = self.fact(LOCK)?.split_once(' ')?;
        Some(ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from(mode.to_owned())),
            retain_until_date: Some(Timestamp::parse(TimestampFormat::DateTime, until).ok()?),
        })
    }

    /// Its legal hold.
    pub(crate) fn hold(self) -> Option<ObjectLockLegalHoldStatus> {
        self.owned(HOLD).map(ObjectLockLegalHoldStatus::from)
    }

    /// Its list of grants.
    pub(crate) fn acl(self, bucket: &Bucket) -> Acl {
        Acl::of(self.fact(ACL), self.writer(bucket))
    }

    pub(crate) fn sums(self) -> Checksum {
        Checksum {
            checksum_crc32: self.owned(SUMS[0].1),
            checksum_crc32c: self.owned(SUMS[1].1),
            checksum_crc64nvme: self.owned(SUMS[2].1),
            checksum_sha1: self.owned(SUMS[3].1),
            checksum_sha256: self.owned(SUMS[4].1),
            checksum_type: self.owned(SUM_TYPE).map(Into::into),
        }
    }

    /// The checksum of a part of a multipart object, from 1, with the algorithm's place.
    pub(crate) fn part_sum(self, part: usize) -> Option<(usize, String)> {
        let (name, sums) = self.fact(PART_SUMS)?.split_once(' ')?;
        let place = SUMS.iter().position(|(_, fact)| *fact == name)?;
        Some((place, sums.split(',').nth(part.checked_sub(1)?)?.to_owned()))
    }

    /// The lengths of the parts of a multipart object, in bytes.
    pub(crate) fn parts(self) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        for run in self.fact(PARTS)?.split(',') {
            let (len, count) = run.split_once('*').unwrap_or((run, "1"));
            let (len, count): (u64, usize) = (len.parse().ok()?, count.parse().ok()?);
            out.extend(std::iter::repeat_n(len, count.min(10_000)));
        }
        Some(out)
    }
}

/// A user as an owner.
pub(crate) fn owner_of(name: &str) -> Owner {
    Owner { display_name: Some(name.to_owned()), id: Some(name.to_owned()) }
}

/// The fact for a retention.
///
/// # Errors
/// `InvalidArgument`: a date that cannot be written.
pub(crate) fn retained(mode: &str, until: &Timestamp) -> S3Result<String> {
    Ok(format!("{mode} {}", written(until)?))
}

/// The end of a retention, as S3 writes it: in UTC.
///
/// # Errors
/// `InvalidArgument`: a date that cannot be written.
pub(crate) fn written(until: &Timestamp) -> S3Result<String> {
    let mut text = Vec::new();
    let written = in_utc("retain-until-date", until)?.format(TimestampFormat::DateTime, &mut text);
    written.map_err(|error| invalid("retain-until-date", "a date", error))?;
    String::from_utf8(text).map_err(|error| invalid("retain-until-date", "a date", error))
}

/// The same moment in UTC. A client may say it in any time zone. The library keeps that, and writes the local time as if it were UTC: what
/// is kept would be another moment than the one that was checked.
///
/// # Errors
/// `InvalidArgument`: in UTC it is beyond the year 9999.
pub(crate) fn in_utc(what: &str, moment: &Timestamp) -> S3Result<Timestamp> {
    let utc = OffsetDateTime::from(moment.clone()).checked_to_offset(UtcOffset::UTC);
    utc.map(Timestamp::from).ok_or_else(|| invalid(what, "a date before the year 10000", "a later one"))
}

/// The fact for the lengths of parts: equal ones in a row are counted.
pub(crate) fn lengths(parts: &[u64]) -> String {
    let runs = parts.chunk_by(|a, b| a == b);
    let text = runs.map(|run| match run.len() {
        1 => run[0].to_string(),
        count => format!("{}*{count}", run[0]),
    });
    text.collect::<Vec<_>>().join(",")
}

/// The facts for checksums.
pub(crate) fn note_sums(facts: &mut BTreeMap<String, String>, sums: &Checksum) {
    for (value, (_, name)) in values(sums).into_iter().zip(SUMS) {
        if let Some(value) = value {
            facts.insert(name.to_owned(), value.clone());
        }
    }
}

/// The checksums in the order of their algorithms.
pub(crate) fn values(sums: &Checksum) -> [Option<&String>; 5] {
    [
        sums.checksum_crc32.as_ref(),
        sums.checksum_crc32c.as_ref(),
        sums.checksum_crc64nvme.as_ref(),
        sums.checksum_sha1.as_ref(),
        sums.checksum_sha256.as_ref(),
    ]
}

/// The facts that are checksums, in the same order.
pub(crate) fn sum_facts() -> [&'static str; 5] {
    SUMS.map(|(_, name)| name)
}

/// The names of the algorithms, in the same order.
pub(crate) fn algorithms() -> [&'static str; 5] {
    SUMS.map(|(name, _)| name)
}

/// Objects for tests.
#[cfg(test)]
pub(crate) mod fixture {
    use kintsu_wire::message::{Attributes, Encoding, ObjectInfo};

    /// A stored object with these facts.
    pub(crate) fn stored(
        name: impl Into<String>,
        size: u64,
        facts: impl IntoIterator<Item = (String, String)>,
    ) -> ObjectInfo {
        let facts = facts.into_iter().collect();
        ObjectInfo {
            name: name.into(),
            size,
            code: String::new(),
            encoding: Encoding::Online,
            encoded: true,
            stripes: 1,
            created: 0,
            checksum: None,
            attributes: Attributes { facts, ..Attributes::default() },
            id: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_in_utc() {
        let written = |text| written(&Timestamp::parse(TimestampFormat::DateTime, text).unwrap());
        for (date, utc) in [
            ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00.000Z"),
            ("2030-01-01T00:00:00-08:00", "2030-01-01T08:00:00.000Z"),
            ("2030-01-01T00:00:00.5+01:30", "2029-12-31T22:30:00.500Z"),
        ] {
            assert_eq!(written(date).unwrap(), utc);
        }
        assert!(written("9999-12-31T23:59:59-00:01").is_err());
    }

    #[test]
    fn lengths_of_parts_are_short() {
        let parts = [vec![8 << 20; 9_999], vec![5]].concat();
        let text = lengths(&parts);
        assert_eq!(text, "8388608*9999,5");
        let info = fixture::stored("s3/b/k", 5, [(PARTS.to_owned(), text)]);
        assert_eq!(Entry(&info).parts(), Some(parts));
        assert_eq!(Entry(&info).version(), "null");
        assert_eq!(id_of_version("00000000000000ff"), Some(255));
        for none in ["null", "ff", "00000000000000FF", "+0000000000000ff", ""] {
            assert_eq!(id_of_version(none), None, "{none}");
        }
        assert_eq!(Entry(&info).etag(), "00000000000000010000000000000005-1");
    }
}
