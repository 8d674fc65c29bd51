//! Objects go out: whole, ranges and parts, under conditions. The bytes come through a queue of a few pieces, so a client
//! that reads slowly holds no more memory than another one, and not for ever: `patience`.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::{StreamExt, stream};
use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};
use kintsu_client::{ClientError, Found, GetOptions};
use kintsu_wire::message::ObjectInfo;
use memchr::memmem::find;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use tokio::sync::mpsc;

use crate::access::{AccessRequest, Judged, RequestContext};
use crate::body::from_queue;
use crate::bucket::Bucket;
use crate::entry::{self, Entry, algorithms, values};
use crate::error::{because, invalid, of};
use crate::gateway::{self, Gateway};
use crate::memory::Held;
use crate::{lifecycle, names, sums, tags};

/// Memory of a read: what the client library reads ahead.
const READ_BYTES: u64 = 24 << 20;

/// The memory that a read of this many bytes needs.
pub(crate) fn memory_of(len: u64) -> usize {
    READ_BYTES.min(len) as usize
}

/// Pieces that wait for the client.
const PIECES: usize = 4;

/// When an object may be read.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
    pub if_modified_since: Option<Timestamp>,
    pub if_unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// # Errors
    /// `PreconditionFailed`; `NotModified`.
    pub(crate) fn judge(&self, entry: Entry<'_>) -> S3Result<()> {
        let (tag, modified) = (entry.tag(), entry.modified_at());
        let strong = |wanted: &ETagCondition| match wanted {
            ETagCondition::Any => true,
            ETagCondition::ETag(wanted) => wanted.strong_cmp(&tag),
        };
        let after = |moment: &Timestamp| modified > seconds(moment);
        let failed =
            |what: &str| Err(because(S3ErrorCode::PreconditionFailed, format!("{what} does not hold")));
        match (&self.if_match, &self.if_unmodified_since) {
            (Some(wanted), _) if !strong(wanted) => return failed("If-Match"),
            (None, Some(moment)) if after(moment) => return failed("If-Unmodified-Since"),
            _ => {}
        }
        let unchanged = match (&self.if_none_match, &self.if_modified_since) {
            (Some(ETagCondition::Any), _) => true,
            (Some(ETagCondition::ETag(known)), _) => known.weak_cmp(&tag),
            (None, Some(moment)) => !after(moment),
            (None, None) => false,
        };
        if unchanged { Err(not_modified(entry)) } else { Ok(()) }
    }
}

/// A moment of HTTP, which counts in seconds.
pub(crate) fn seconds(moment: &Timestamp) -> SystemTime {
    let mut text = Vec::new();
    let whole = moment.format(TimestampFormat::EpochSeconds, &mut text).ok();
    let text = whole.and_then(|()| String::from_utf8(text).ok()).unwrap_or_default();
    let seconds: f64 = text.parse().unwrap_or(0.0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.max(0.0) as u64)
}

fn not_modified(entry: Entry<'_>) -> S3Error {
    let mut error = because(S3ErrorCode::NotModified, "not modified");
    let mut headers = HeaderMap::new();
    if let Ok(tag) = entry.tag().to_http_header() {
        headers.insert(ETAG, tag);
    }
    let mut text = Vec::new();
    if entry.modified().format(TimestampFormat::HttpDate, &mut text).is_ok()
        && let Ok(date) = http::HeaderValue::from_bytes(&text)
    {
        headers.insert(LAST_MODIFIED, date);
    }
    error.set_headers(headers);
    error
}

/// The part of an object that a request wants.
struct Wanted {
    range: Range<u64>,
    /// `Content-Range`, if it is not the whole object.
    header: Option<String>,
    parts: Option<i32>,
}

/// What a request to read an object says.
struct Reading<'a> {
    key: &'a str,
    version: Option<&'a str>,
    conditions: Conditions,
    range: Option<&'a s3s::dto::Range>,
    part: Option<i32>,
    /// Whether it asks for checksums.
    sums: bool,
}

/// The [`Reading`] of an input of `GetObject` or `HeadObject`: two types with the same fields.
macro_rules! reading {
    ($input:ident) => {
        Reading {
            key: &$input.key,
            version: $input.version_id.as_deref(),
            conditions: Conditions {
                if_match: $input.if_match,
                if_none_match: $input.if_none_match,
                if_modified_since: $input.if_modified_since,
                if_unmodified_since: $input.if_unmodified_since,
            },
            range: $input.range.as_ref(),
            part: $input.part_number,
            sums: $input.checksum_mode.is_some(),
        }
    };
}

/// What a request to read an object gets.
struct Granted {
    wanted: Wanted,
    sums: Checksum,
    /// `x-amz-expiration`.
    ends: Option<String>,
}

/// # Errors
/// `InvalidRange`; `InvalidPart`.
fn wanted(entry: Entry<'_>, range: Option<&s3s::dto::Range>, part: Option<i32>) -> S3Result<Wanted> {
    let size = entry.0.size;
    let lengths = entry.parts();
    let count = lengths.as_ref().map(|parts| parts.len() as i32);
    let of = |range: Range<u64>| {
        (!range.is_empty()).then(|| format!("bytes {}-{}/{size}", range.start, range.end - 1))
    };
    if let Some(part) = part {
        if range.is_some() {
            return Err(because(S3ErrorCode::InvalidRequest, "expected a range or a part number, got both"));
        }
        let lengths = lengths.unwrap_or_else(|| vec![size]);
        let index = usize::try_from(part).ok().and_then(|part| part.checked_sub(1));
        let Some((index, len)) = index.and_then(|index| Some((index, *lengths.get(index)?))) else {
            let text = format!("partNumber: expected 1 to {}, got {part}", lengths.len());
            return Err(because(S3ErrorCode::InvalidPart, text));
        };
        let start: u64 = lengths[..index].iter().sum();
        let range = start..start + len;
        return Ok(Wanted { header: of(range.clone()), range, parts: count });
    }
    let Some(range) = range else { return Ok(Wanted { range: 0..size, header: None, parts: count }) };
    let range = range.check(size).map_err(|_| {
        because(S3ErrorCode::InvalidRange, format!("expected a range of the {size} bytes, got {range:?}"))
    })?;
    Ok(Wanted { header: of(range.clone()), range, parts: count })
}

impl Gateway {
    /// A stream of bytes of an object that was found, when the first of them have come.
    ///
    /// # Errors
    /// None can be read.
    pub(crate) async fn bytes(
        &self,
        found: Found,
        range: Range<u64>,
        memory: Option<Held>,
    ) -> Result<StreamingBlob, ClientError> {
        if range.is_empty() {
            return Ok(StreamingBlob::from(s3s::Body::empty()));
        }
        let (queue, mut pieces) = mpsc::channel::<Result<Bytes, ClientError>>(PIECES);
        // Held until both ends are gone: the read, and the pieces that wait for the client.
        let memory = memory.map(Arc::new);
        let taken = memory.clone();
        tokio::spawn(async move {
            let _memory = memory;
            let (into, mut from) = mpsc::channel(PIECES);
            let reading = found.send(Some(range), GetOptions::default(), into);
            let pass_on = queue.clone();
            let passing = async move {
                while let Some(piece) = from.recv().await {
                    // A connection that takes nothing is closed. Then, dropping the receiver ends the read.
                    if pass_on.send(Ok(piece)).await.is_err() {
                        return;
                    }
                }
            };
            let (ended, ()) = tokio::join!(reading, passing);
            if let Err(error) = ended {
                tracing::debug!("a read ended early: {error}");
                // The connection is cut, so that the client does not take the piece for the whole.
                let _ = queue.send(Err(error)).await;
            }
        });
        let first = pieces.recv().await.transpose()?;
        let rest = stream::unfold((pieces, taken), |(mut pieces, memory)| async move {
            pieces.recv().await.map(|piece| (piece.map_err(io::Error::other), (pieces, memory)))
        });
        Ok(from_queue(stream::iter(first.map(Ok)).chain(rest)))
    }

    /// What a request to read an object gets, with or without its bytes.
    ///
    /// # Errors
    /// A condition does not hold; `InvalidRange`; `InvalidPart`.
    fn granted(&self, bucket: &Bucket, entry: Entry<'_>, reading: &Reading<'_>) -> S3Result<Granted> {
        let &Reading { key, version, ref conditions, range, part, sums } = reading;
        conditions.judge(entry)?;
        let wanted = wanted(entry, range, part)?;
        let sums = shown_sums(entry, sums, wanted.header.is_none(), part);
        // A version that is asked for by its id has no such header.
        let ends = match version {
            None => lifecycle::expires(bucket, key, entry, self.config.day),
            Some(_) => None,
        };
        Ok(Granted { wanted, sums, ends })
    }

    /// `GetObject`.
    pub(crate) async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let context = RequestContext::of(&request.headers, &request.uri, &request.extensions);
        let judged = request.extensions.get::<Judged>().copied();
        let input = request.input;
        let at = match input.range {
            Some(s3s::dto::Range::Int { first, .. }) => first,
            _ => 0,
        };
        let reading = reading!(input);
        let access = AccessRequest::read(&caller, &bucket, (reading.key, reading.version), context);
        let find = async || {
            let found = self.find(&bucket, reading.key, reading.version, at).await?;
            self.allow_on(access, judged, found.info()).await?;
            Ok::<_, S3Error>(found)
        };
        let mut found = find().await?;
        let (info, granted, body) = loop {
            let info = found.info().clone();
            let granted = self.granted(&bucket, Entry(&info), &reading)?;
            let range = granted.wanted.range.clone();
            let memory = self.memory(memory_of(range.end - range.start)).await?;
            match self.bytes(found, range, Some(memory)).await {
                Ok(body) => break (info, granted, body),
                // If it has given way to another one meanwhile, that one is read.
                Err(error) => {
                    found = find().await?;
                    if found.info().id == info.id {
                        return Err(of(error));
                    }
                }
            }
        };
        let Granted { wanted: Wanted { range, header, parts }, sums, ends } = granted;
        let (entry, len) = (Entry(&info), range.end - range.start);
        let retention = entry.retention().unwrap_or_default();
        let tag_count = tags::parse(entry.fact(entry::TAGS).unwrap_or_default())?.len() as i32;
        Ok(S3Response::new(GetObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            body: Some(body),
            cache_control: entry.owned(entry::CACHE_CONTROL),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
            content_disposition: entry.owned(entry::DISPOSITION),
            content_encoding: entry.owned(entry::ENCODING),
            content_language: entry.owned(entry::LANGUAGE),
            content_length: Some(len as i64),
            content_range: header,
            content_type: Some(content_type(&info)),
            e_tag: Some(entry.tag()),
            expiration: ends,
            expires: expires(entry),
            object_lock_legal_hold_status: entry.hold(),
            object_lock_mode: retention.mode.map(|mode| ObjectLockMode::from(mode.as_str().to_owned())),
            object_lock_retain_until_date: retention.retain_until_date,
            last_modified: Some(entry.modified()),
            metadata: metadata(&info),
            parts_count: parts.filter(|_| input.part_number.is_some()),
            storage_class: class(entry),
            tag_count: (tag_count > 0).then_some(tag_count),
            version_id: entry.is_versioned().then(|| entry.version()).or(input.version_id),
            website_redirect_location: entry.owned(entry::REDIRECT),
            ..GetObjectOutput::default()
        }))
    }

    /// A version of an object whose caller may read what is said about it, and its bucket.
    ///
    /// # Errors
    /// There is none; `AccessDenied`.
    async fn seen<T>(
        &self,
        request: &S3Request<T>,
        key: &str,
        version: Option<&str>,
    ) -> S3Result<(Arc<Bucket>, ObjectInfo)> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let context = RequestContext::of(&request.headers, &request.uri, &request.extensions);
        let judged = request.extensions.get::<Judged>().copied();
        let (_, info) = self.version(&bucket, key, version).await?;
        let access = AccessRequest::read(&caller, &bucket, (key, version), context);
        self.allow_on(access, judged, &info).await?;
        Ok((bucket, info))
    }

    /// `HeadObject`.
    pub(crate) async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let (key, version) = (&request.input.key, request.input.version_id.as_deref());
        let (bucket, info) = self.seen(&request, key, version).await?;
        let (input, entry) = (request.input, Entry(&info));
        let Granted { wanted: Wanted { range, header, parts }, sums, ends } =
            self.granted(&bucket, entry, &reading!(input))?;
        let retention = entry.retention().unwrap_or_default();
        let partial = header.is_some();
        let tag_count = tags::parse(entry.fact(entry::TAGS).unwrap_or_default())?.len();
        let mut response = S3Response::new(HeadObjectOutput {
            accept_ranges: Some("bytes".to_owned()),
            cache_control: entry.owned(entry::CACHE_CONTROL),
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            checksum_type: sums.checksum_type,
            content_disposition: entry.owned(entry::DISPOSITION),
            content_encoding: entry.owned(entry::ENCODING),
            content_language: entry.owned(entry::LANGUAGE),
            content_length: Some((range.end - range.start) as i64),
            content_range: header,
            content_type: Some(content_type(&info)),
            e_tag: Some(entry.tag()),
            expiration: ends,
            expires: expires(entry),
            object_lock_legal_hold_status: entry.hold(),
            object_lock_mode: retention.mode.map(|mode| ObjectLockMode::from(mode.as_str().to_owned())),
            object_lock_retain_until_date: retention.retain_until_date,
            last_modified: Some(entry.modified()),
            metadata: metadata(&info),
            parts_count: parts.filter(|_| input.part_number.is_some()),
            storage_class: class(entry),
            version_id: entry.is_versioned().then(|| entry.version()).or(input.version_id),
            website_redirect_location: entry.owned(entry::REDIRECT),
            ..HeadObjectOutput::default()
        });
        if tag_count > 0 {
            response.headers.insert("x-amz-tagging-count", HeaderValue::from(tag_count));
        }
        if partial {
            response.status = Some(http::StatusCode::PARTIAL_CONTENT);
        }
        Ok(response)
    }

    /// `GetObjectAttributes`.
    pub(crate) async fn get_object_attributes(
        &self,
        request: S3Request<GetObjectAttributesInput>,
    ) -> S3Result<S3Response<GetObjectAttributesOutput>> {
        let (key, version) = (&request.input.key, request.input.version_id.as_deref());
        let (_, info) = self.seen(&request, key, version).await?;
        let (input, entry) = (request.input, Entry(&info));
        // Some clients send one header with all names, others one for each.
        let sent =
            request.headers.get_all("x-amz-object-attributes").iter().filter_map(|names| names.to_str().ok());
        let asked: Vec<String> =
            sent.flat_map(|names| names.split(',')).map(|name| name.trim().to_owned()).collect();
        let known = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"];
        if let Some(other) = asked.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(invalid("x-amz-object-attributes", &known.join(", "), other));
        }
        let wants = |name: &str| asked.iter().any(|asked| asked == name);
        let sums = entry.sums();
        let has_sums = values(&sums).iter().any(Option::is_some);
        Ok(S3Response::new(GetObjectAttributesOutput {
            checksum: (wants("Checksum") && has_sums).then_some(sums),
            e_tag: wants("ETag").then(|| entry.tag()),
            last_modified: Some(entry.modified()),
            object_parts: entry.parts().filter(|_| wants("ObjectParts")).map(|parts| {
                page_of_parts(
                    entry,
                    &parts,
                    input.part_number_marker.unwrap_or(0),
                    input.max_parts.unwrap_or(1000),
                )
            }),
            object_size: wants("ObjectSize").then_some(info.size as i64),
            storage_class: wants("StorageClass").then(|| StorageClass::from(entry.class().to_owned())),
            version_id: entry.is_versioned().then(|| entry.version()),
            ..GetObjectAttributesOutput::default()
        }))
    }
}

/// The answer to `GetObjectAttributes` with its entity tag without quotes, as AWS writes it; the library writes them there as in all other documents.
/// `None` if it has no tag.
pub(crate) fn unquoted(document: &[u8]) -> Option<Bytes> {
    const BEGIN: &[u8] = b"<ETag>\"";
    const END: &[u8] = b"\"</ETag>";
    let from = find(document, BEGIN)? + BEGIN.len();
    let to = from + find(&document[from..], END)?;
    Some([&document[..from - 1], &document[from..to], &document[to + 1..]].concat().into())
}

fn page_of_parts(entry: Entry<'_>, parts: &[u64], after: i32, most: i32) -> GetObjectAttributesParts {
    let (from, most) = (usize::try_from(after).unwrap_or(0), usize::try_from(most).unwrap_or(0).min(1000));
    let page = parts.iter().enumerate().skip(from).take(most);
    let page: Vec<_> = page
        .map(|(i, len)| {
            let sums = sums::of_part(entry, i + 1);
            ObjectPart {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                part_number: Some(i as i32 + 1),
                size: Some(*len as i64),
            }
        })
        .collect();
    let end = from + page.len();
    GetObjectAttributesParts {
        is_truncated: Some(end < parts.len()),
        max_parts: Some(most as i32),
        next_part_number_marker: Some(end as i32),
        part_number_marker: Some(after),
        parts: Some(page),
        total_parts_count: Some(parts.len() as i32),
    }
}

/// The checksums that an answer has: of the whole object, or of one part.
fn shown_sums(entry: Entry<'_>, wanted: bool, whole: bool, part: Option<i32>) -> Checksum {
    match part.and_then(|part| usize::try_from(part).ok()) {
        _ if !wanted => Checksum::default(),
        Some(part) if entry.parts().is_some() => sums::of_part(entry, part),
        _ if whole || part.is_some() => entry.sums(),
        _ => Checksum::default(),
    }
}

/// What an object says of its content.
pub(crate) fn content_type(info: &ObjectInfo) -> String {
    info.attributes.content_type.clone().unwrap_or_else(|| "binary/octet-stream".to_owned())
}

fn metadata(info: &ObjectInfo) -> Option<Metadata> {
    let user = &info.attributes.user;
    (!user.is_empty()).then(|| user.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
}

fn class(entry: Entry<'_>) -> Option<StorageClass> {
    entry.owned(entry::CLASS).map(StorageClass::from)
}

/// The date in `Expires`.
pub(crate) fn expires(entry: Entry<'_>) -> Option<Timestamp> {
    Timestamp::parse(TimestampFormat::HttpDate, entry.fact(entry::EXPIRES)?).ok()
}

/// The algorithms of an object's checksums.
pub(crate) fn algorithms_of(sums: &Checksum) -> Option<Vec<ChecksumAlgorithm>> {
    let has = values(sums).into_iter().zip(algorithms());
    let names: Vec<_> = has
        .filter(|(value, _)| value.is_some())
        .map(|(_, name)| ChecksumAlgorithm::from_static(name))
        .collect();
    (!names.is_empty()).then_some(names)
}

impl Gateway {
    /// Looks up a version of a key to read it from a byte on.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchVersion`; `MethodNotAllowed` for a delete marker.
    pub(crate) async fn find(
        &self,
        bucket: &crate::bucket::Bucket,
        key: &str,
        version: Option<&str>,
        at: u64,
    ) -> S3Result<Found> {
        if version.is_none() {
            match self.client.find(&names::object(&bucket.name, key), at).await {
                Ok(found) => return Ok(found),
                Err(kintsu_client::ClientError::NotFound(_)) => {}
                Err(other) => return Err(crate::error::of(other)),
            }
        }
        // A version has another name when it becomes the newest one, or another one does.
        for _ in 0..crate::delete::TRIES {
            let (name, info) = self.version(bucket, key, version).await?;
            match self.client.find(&name, at).await {
                Ok(found) if found.info().id == info.id => return Ok(found),
                Ok(_) | Err(kintsu_client::ClientError::NotFound(_)) => {}
                Err(other) => return Err(crate::error::of(other)),
            }
        }
        Err(because(S3ErrorCode::ServiceUnavailable, "the object was changed meanwhile; try again"))
    }
}
