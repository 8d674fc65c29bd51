//! Copies of objects and of parts: the bytes are read and stored through this process, with bounded memory.

use std::collections::BTreeMap;
use std::ops::Range;

use kintsu_client::Found;
use kintsu_wire::message::Attributes;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::access::{self, AccessRequest, Caller, RequestContext};
use crate::body::Claims;
use crate::entry::{self, Entry};
use crate::error::{because, invalid, of};
use crate::gateway::{self, Gateway};
use crate::get::{self, Conditions};
use crate::multipart::checked_number;
use crate::put::{self, Headers, Place, Storing};
use crate::{actions, tags};

/// An object that is copied.
struct Source {
    found: Found,
    bucket: String,
    key: String,
    /// The version that was asked for.
    version: Option<String>,
}

impl Gateway {
    /// The source of a copy, if the caller may read it, its bucket belongs to `owner`, and the conditions hold.
    async fn source(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
        (from, owner): (CopySource, Option<String>),
        conditions: Conditions,
    ) -> S3Result<Source> {
        let CopySource::Bucket { bucket, key, version_id } = from else {
            return Err(because(
                S3ErrorCode::NotImplemented,
                "x-amz-copy-source: expected a bucket and a key",
            ));
        };
        let source = self.bucket(&bucket).await?;
        if owner.is_some_and(|owner| owner != source.owner()) {
            let text = format!("the bucket {bucket} belongs to somebody else than the request expects");
            return Err(because(S3ErrorCode::AccessDenied, text));
        }
        let access = AccessRequest::read(caller, &source, (&*key, version_id.as_deref()), context);
        let judged = self.allow(access).await?;
        let version = access.version;
        let found = self.find(&source, &key, version, 0).await?;
        self.allow_on(access, judged, found.info()).await?;
        conditions.judge(Entry(found.info())).map_err(|error| match error.code() {
            S3ErrorCode::NotModified => because(S3ErrorCode::PreconditionFailed, "the source does not match"),
            _ => error,
        })?;
        let version = version.map(str::to_owned);
        Ok(Source { found, bucket: bucket.into(), key: key.into(), version })
    }

    /// `CopyObject`.
    pub(crate) async fn copy_object(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let context = RequestContext::of(&request.headers, &request.uri, &request.extensions);
        let input = request.input;
        let (asked, wanted) = put::protection!(input);
        let replaces = put::Conditions::of_copy(&request.headers)?;
        let conditions = Conditions {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        let from = (input.copy_source, input.expected_source_bucket_owner);
        let source = self.source(&caller, context, from, conditions).await?;
        let info = source.found.info().clone();
        let entry = Entry(&info);
        let replace = match input.metadata_directive.as_ref().map(MetadataDirective::as_str) {
            None | Some(MetadataDirective::COPY) => false,
            Some(MetadataDirective::REPLACE) => true,
            Some(other) => return Err(invalid("x-amz-metadata-directive", "COPY or REPLACE", other)),
        };
        let retag = input.tagging_directive.as_ref().is_some_and(|d| d.as_str() == TaggingDirective::REPLACE);
        let class = input.storage_class.as_ref().map(StorageClass::as_str);
        let same = source.bucket == bucket.name && source.key == input.key && source.version.is_none();
        if same && !replace && class.is_none_or(|class| class == entry.class()) {
            let text = "a copy onto itself must change the metadata, the storage class or the version";
            return Err(because(S3ErrorCode::InvalidRequest, text));
        }
        let tagging = match retag {
            true => tags::from_header(input.tagging.as_deref())?,
            false => {
                // The object gets the tags of the source, whatever the request says.
                let headers = access::tagged(&request.headers, entry.fact(entry::TAGS))?;
                let context = RequestContext::of(&headers, &request.uri, &request.extensions);
                let (caller, bucket, key) = (&*caller, &*bucket, Some(&*input.key));
                for action in [actions::WRITE].into_iter().chain(actions::asked_by(&headers, bucket.owner()))
                {
                    self.allow(AccessRequest { caller, bucket, key, version: None, action, context }).await?;
                }
                entry.owned(entry::TAGS)
            }
        };
        let headers = match replace {
            true => Headers {
                cache_control: input.cache_control,
                disposition: input.content_disposition,
                encoding: input.content_encoding,
                language: input.content_language,
                expires: input.expires,
                redirect: input.website_redirect_location,
                tagging,
            },
            false => Headers {
                cache_control: entry.owned(entry::CACHE_CONTROL),
                disposition: entry.owned(entry::DISPOSITION),
                encoding: entry.owned(entry::ENCODING),
                language: entry.owned(entry::LANGUAGE),
                expires: get::expires(entry),
                redirect: input.website_redirect_location,
                tagging,
            },
        };
        let attributes = match replace {
            true => put::attributes(input.content_type, input.metadata)?,
            false => Attributes { facts: BTreeMap::new(), ..info.attributes.clone() },
        };
        let known = get::algorithms_of(&entry.sums()).and_then(|names| names.into_iter().next());
        let algorithm = input.checksum_algorithm.or(known).map(|name| name.as_str().to_owned());
        let locks = wanted.facts(&bucket)?;
        let mut facts = put::facts(self.object_list(&bucket, &caller, &asked)?, class, headers)?;
        facts.extend(locks);
        let storing = Storing {
            code: self.code(&bucket, class)?,
            attributes,
            facts,
            place: Place::Key { key: input.key, conditions: replaces },
            claims: Claims { algorithm, ..Claims::default() },
            bucket,
        };
        let version = entry.is_versioned().then(|| entry.version());
        let stored = self.copied(source.found, 0..info.size, &storing).await?;
        let (entry, sums) = (Entry(&stored.info), stored.digests.sums);
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                checksum_type: None,
                e_tag: Some(entry.tag()),
                last_modified: Some(entry.modified()),
            }),
            copy_source_version_id: version,
            version_id: entry.is_versioned().then(|| entry.version()),
            ..CopyObjectOutput::default()
        }))
    }

    /// `UploadPartCopy`.
    pub(crate) async fn upload_part_copy(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let context = RequestContext::of(&request.headers, &request.uri, &request.extensions);
        let input = request.input;
        checked_number(input.part_number)?;
        let upload = self.upload(&bucket, &input.key, &input.upload_id).await?;
        let conditions = Conditions {
            if_match: input.copy_source_if_match,
            if_none_match: input.copy_source_if_none_match,
            if_modified_since: input.copy_source_if_modified_since,
            if_unmodified_since: input.copy_source_if_unmodified_since,
        };
        let from = (input.copy_source, input.expected_source_bucket_owner);
        let source = self.source(&caller, context, from, conditions).await?;
        let info = source.found.info().clone();
        let range = part_of(input.copy_source_range.as_deref(), info.size)?;
        let storing = Storing {
            code: upload.code(),
            attributes: Attributes::default(),
            facts: BTreeMap::new(),
            place: upload.place(input.part_number),
            claims: Claims { algorithm: upload.algorithm(), ..Claims::default() },
            bucket,
        };
        let version = Entry(&info).is_versioned().then(|| Entry(&info).version());
        let stored = self.copied(source.found, range, &storing).await?;
        let (entry, sums) = (Entry(&stored.info), stored.digests.sums);
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(CopyPartResult {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                e_tag: Some(entry.tag()),
                last_modified: Some(entry.modified()),
            }),
            copy_source_version_id: version,
            ..UploadPartCopyOutput::default()
        }))
    }

    async fn copied(&self, from: Found, range: Range<u64>, storing: &Storing) -> S3Result<put::Stored> {
        let len = range.end - range.start;
        // For the read and the write at once: a copy that has one and waits for the other would block others in vain.
        let memory = self.memory(put::memory_of(Some(len)) + get::memory_of(len)).await?;
        let body = self.bytes(from, range, None).await.map_err(of)?;
        let intake = self.intake(body, Some(len), &storing.claims);
        self.store(intake, storing, Some(memory)).await
    }
}

/// The range of a source, `bytes=FIRST-LAST`.
///
/// # Errors
/// `InvalidArgument`; `InvalidRange` beyond the end.
pub(crate) fn part_of(range: Option<&str>, size: u64) -> S3Result<Range<u64>> {
    let Some(text) = range else { return Ok(0..size) };
    let ends = text.strip_prefix("bytes=").and_then(|ends| ends.split_once('-'));
    let ends = ends.and_then(|(first, last)| Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?)));
    match ends {
        Some((first, last)) if first <= last && last < size => Ok(first..last + 1),
        Some((first, last)) if first <= last => {
            let text = format!("x-amz-copy-source-range: expected a range of the {size} bytes, got {text}");
            Err(because(S3ErrorCode::InvalidRange, text))
        }
        _ => Err(invalid("x-amz-copy-source-range", "bytes=FIRST-LAST", text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_range_of_a_source_lies_in_it() {
        assert_eq!(part_of(None, 9).unwrap(), 0..9);
        assert_eq!(part_of(Some("bytes=2-8"), 9).unwrap(), 2..9);
        for bad in ["bytes=2-9", "bytes=3-2", "bytes=-2", "bytes=2-", "2-3", "bytes=a-b"] {
            assert!(part_of(Some(bad), 9).is_err(), "{bad}");
        }
    }
}
