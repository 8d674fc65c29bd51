//! Objects come in: their bytes are stored while they come, and the object takes its place in one transaction with all
//! that follows from it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName};
use kintsu_client::{ClientError, Finish, PutOptions};
use kintsu_wire::message::{Attributes, Change, Check, Ending, ObjectInfo, Step};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::body::{Claims, Digests, Intake, Watch};
use crate::bucket::{Bucket, Versioning};
use crate::entry::{self, Entry};
use crate::error::{because, invalid, of};
use crate::gateway::{self, Gateway};
use crate::memory::Held;
use crate::{lifecycle, lock, names, tags};

/// Bodies up to this many bytes are collected before they are stored.
const COLLECTED: u64 = 4 << 20;

/// Memory of a stream: three stripes of at most 24 MiB.
const STREAM_BYTES: usize = 72 << 20;

/// The memory that a body needs.
pub(crate) fn memory_of(len: Option<u64>) -> usize {
    len.filter(|len| *len <= COLLECTED).map_or(STREAM_BYTES, |len| len as usize)
}

/// Most bytes of an object that comes in one request.
const MOST_BYTES: u64 = 5 << 30;

/// Who may use an object that a request makes, and its lock. Refuses keys that cannot be, and encryption.
macro_rules! protection {
    ($input:ident) => {{
        $crate::names::checked_key(&$input.key)?;
        $crate::put::refuse_encryption(
            $input.server_side_encryption.as_ref(),
            $input.sse_customer_algorithm.as_deref(),
        )?;
        let grants =
            [$input.grant_read, $input.grant_read_acp, $input.grant_write_acp, $input.grant_full_control];
        let wanted = $crate::lock::Wanted {
            mode: $input.object_lock_mode,
            until: $input.object_lock_retain_until_date,
            hold: $input.object_lock_legal_hold_status,
        };
        ($crate::acl::Asked::of_put($input.acl.as_ref(), grants), wanted)
    }};
}
pub(crate) use protection;

/// When an object may take its place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Conditions {
    pub if_match: Option<ETagCondition>,
    pub if_none_match: Option<ETagCondition>,
}

impl Conditions {
    /// Those in the headers of a copy, which the library leaves there.
    ///
    /// # Errors
    /// `InvalidArgument`: there is no entity tag.
    pub(crate) fn of_copy(headers: &HeaderMap) -> S3Result<Self> {
        let read = |name: HeaderName| {
            let condition =
                headers.get(&name).map(|value| ETagCondition::parse_http_header(value.as_bytes()));
            let wrong = |error| invalid(name.as_str(), "an entity tag or *", error);
            condition.transpose().map_err(wrong)
        };
        Ok(Self { if_match: read(IF_MATCH)?, if_none_match: read(IF_NONE_MATCH)? })
    }

    fn is_empty(&self) -> bool {
        self.if_match.is_none() && self.if_none_match.is_none()
    }

    /// # Errors
    /// `PreconditionFailed`; `NoSuchKey` if there is nothing to match.
    fn judge(&self, current: Option<&ObjectInfo>) -> S3Result<()> {
        let failed = |what: &str| {
            let text = format!("at least one of the preconditions you specified did not hold: {what}");
            Err(because(S3ErrorCode::PreconditionFailed, text))
        };
        let tag = current.map(|info| Entry(info).tag());
        match (&self.if_match, &tag) {
            (None, _) | (Some(ETagCondition::Any), Some(_)) => {}
            (Some(_), None) => return Err(because(S3ErrorCode::NoSuchKey, "If-Match: there is no object")),
            (Some(ETagCondition::ETag(wanted)), Some(tag)) if wanted.strong_cmp(tag) => {}
            (Some(ETagCondition::ETag(_)), Some(_)) => return failed("If-Match"),
        }
        match (&self.if_none_match, &tag) {
            (None, _) | (Some(_), None) => Ok(()),
            (Some(ETagCondition::Any), Some(_)) => failed("If-None-Match"),
            (Some(ETagCondition::ETag(other)), Some(tag)) if other.weak_cmp(tag) => failed("If-None-Match"),
            (Some(ETagCondition::ETag(_)), Some(_)) => Ok(()),
        }
    }
}

/// Facts of an object.
pub(crate) type Facts = BTreeMap<String, String>;

/// Where an object takes its place.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// It becomes the newest version of a key.
    Key { key: String, conditions: Conditions },
    /// It becomes a part of an upload, whose object is this one.
    Part { upload: String, id: u64, number: i32, of: String },
}

/// An object that is to be stored.
pub(crate) struct Storing {
    pub bucket: Arc<Bucket>,
    pub place: Place,
    pub code: String,
    pub attributes: Attributes,
    pub facts: Facts,
    pub claims: Claims,
}

/// What was stored.
pub(crate) struct Stored {
    pub info: ObjectInfo,
    pub digests: Digests,
}

/// What is decided when all bytes are written.
struct End<'d> {
    gateway: &'d Gateway,
    storing: &'d Storing,
    watch: Watch,
    /// The digests, once the bytes are judged.
    digests: Mutex<Option<Digests>>,
    refused: Mutex<Option<S3Error>>,
    attempts: AtomicUsize,
}

impl End<'_> {
    async fn ending(&self) -> S3Result<Ending> {
        let judged = || -> S3Result<Digests> {
            let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(digests) => Ok(digests.clone()),
                None => Ok(known.insert(self.watch.judge(&self.storing.claims)?).clone()),
            }
        };
        let digests = judged()?;
        let mut facts = self.storing.facts.clone();
        facts.extend(digests.etag().map(|tag| (entry::ETAG.to_owned(), tag)));
        entry::note_sums(&mut facts, &digests.sums);
        // If a check has not held, what it was made from is read again.
        let again = self.attempts.fetch_add(1, Relaxed) > 0;
        let fresh = if again { Some(self.gateway.bucket(&self.storing.bucket.name).await?) } else { None };
        let bucket = fresh.as_ref().unwrap_or(&self.storing.bucket);
        let change = match &self.storing.place {
            Place::Key { key, conditions } => {
                let (change, place) = self.gateway.take_place(bucket, key, conditions).await?;
                facts.extend(place);
                lock::add_default(bucket, &mut facts)?;
                change
            }
            Place::Part { upload, id, .. } => {
                // If it was completed or aborted meanwhile, nobody would ever remove the part.
                let there =
                    if again { self.gateway.current(upload).await?.map(|info| info.id) } else { Some(*id) };
                if there != Some(*id) {
                    return Err(crate::multipart::no_upload());
                }
                facts.insert(entry::PART.to_owned(), "1".to_owned());
                let upload = Check::Is { name: upload.clone(), id: Some(*id) };
                Change { checks: vec![bucket.check(), upload], steps: Vec::new() }
            }
        };
        Ok(Ending { change, facts })
    }
}

impl Finish for End<'_> {
    fn finish(&self) -> Pin<Box<dyn Future<Output = Result<Ending, ClientError>> + Send + '_>> {
        Box::pin(async {
            self.ending().await.map_err(|error| {
                *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                ClientError::Interrupted("the gateway refuses the object".into())
            })
        })
    }
}

impl Gateway {
    /// What happens when an object takes its place as the newest version of a key, and the facts of that place.
    ///
    /// # Errors
    /// A condition does not hold; the bucket is gone.
    pub(crate) async fn take_place(
        &self,
        bucket: &Bucket,
        key: &str,
        conditions: &Conditions,
    ) -> S3Result<(Change, Facts)> {
        let (name, versioning) = (names::object(&bucket.name, key), bucket.versioning());
        let mut checks = Vec::from(bucket.checks());
        let mut steps = Vec::new();
        if versioning == Versioning::Never && conditions.is_empty() {
            steps.push(Step::Remove { name });
            return Ok((Change { checks, steps }, Facts::new()));
        }
        let current = self.current(&name).await?;
        conditions.judge(current.as_ref())?;
        checks.push(Check::Is { name: name.clone(), id: current.as_ref().map(|info| info.id) });
        let (kept, facts) = self.put_aside(bucket, key, current.as_ref()).await?;
        checks.extend(kept.checks);
        steps.extend(kept.steps);
        Ok((Change { checks, steps }, facts))
    }

    /// What becomes of the newest version of a key, and of the null version, when another one comes; and the facts of that one.
    pub(crate) async fn put_aside(
        &self,
        bucket: &Bucket,
        key: &str,
        current: Option<&ObjectInfo>,
    ) -> S3Result<(Change, Facts)> {
        let (name, older) = (names::object(&bucket.name, key), names::versions(&bucket.name, key));
        let (mut change, mut facts) = (Change::default(), Facts::new());
        let keep = match bucket.versioning() {
            Versioning::Never => false,
            Versioning::Enabled => {
                let newest = self.newest(bucket, key, current, &mut change).await?;
                facts.insert(entry::VERSIONED.to_owned(), "1".to_owned());
                let before = Entry::null_before(newest.as_ref().map(Entry));
                facts.extend(before.map(|before| (entry::NULL_BEFORE.to_owned(), before)));
                true
            }
            Versioning::Suspended => {
                // The new one is the null version: there is no other then.
                let newest = self.newest(bucket, key, current, &mut change).await?;
                let old = match newest {
                    Some(newest) if Entry(&newest).is_versioned() => {
                        self.null_before(bucket, key, Entry(&newest)).await?
                    }
                    marker => marker.filter(|_| current.is_none()),
                };
                if let Some(old) = old {
                    change.checks.push(Check::Is { name: old.name.clone(), id: Some(old.id) });
                    change.steps.push(Step::Remove { name: old.name });
                }
                current.is_some_and(|current| Entry(current).is_versioned())
            }
        };
        if current.is_some() {
            change.steps.push(match keep {
                true => Step::Rename { from: name, to: older, newest_first: true },
                false => Step::Remove { name },
            });
        }
        Ok((change, facts))
    }

    /// The newest version of a key or its newest delete marker. The caller checks that the current object is still this one; if
    /// there is none, a check is added that the marker is still the newest.
    async fn newest(
        &self,
        bucket: &Bucket,
        key: &str,
        current: Option<&ObjectInfo>,
        change: &mut Change,
    ) -> S3Result<Option<ObjectInfo>> {
        if let Some(current) = current {
            return Ok(Some(current.clone()));
        }
        let newest = self.newest_older(bucket, key).await?;
        let (prefix, id) = (names::versions(&bucket.name, key), newest.as_ref().map(|info| info.id));
        change.checks.push(Check::First { prefix, id });
        Ok(newest)
    }

    /// The object of this name, if there is one.
    pub(crate) async fn current(&self, name: &str) -> S3Result<Option<ObjectInfo>> {
        match self.client.info(name).await {
            Ok(info) => Ok(Some(info)),
            Err(ClientError::NotFound(_)) => Ok(None),
            Err(other) => Err(of(other)),
        }
    }

    /// Stores a body as an object, in memory that was acquired before or is acquired now.
    ///
    /// # Errors
    /// A body that ends early or is not what the client says; a condition that does not hold; too little memory or space;
    /// failures of the cluster. Nothing has changed then.
    pub(crate) async fn store(
        &self,
        intake: Intake,
        storing: &Storing,
        memory: Option<Held>,
    ) -> S3Result<Stored> {
        let name = match &storing.place {
            Place::Key { key, .. } => names::object(&storing.bucket.name, key),
            Place::Part { of, number, .. } => names::part(of, *number),
        };
        let options = PutOptions {
            replace: true,
            attributes: storing.attributes.clone(),
            kept_bytes: Some(STREAM_BYTES),
            // Parts are joined.
            alone: matches!(storing.place, Place::Part { .. }),
            ..PutOptions::new(&storing.code)
        };
        let watch = intake.watch();
        let end = End {
            gateway: self,
            storing,
            watch: watch.clone(),
            digests: Mutex::default(),
            refused: Mutex::default(),
            attempts: AtomicUsize::new(0),
        };
        if let Some(len) = intake.len().filter(|len| *len > MOST_BYTES) {
            let text = format!("expected at most {MOST_BYTES} bytes in one request, got {len}");
            return Err(because(S3ErrorCode::EntityTooLarge, text));
        }
        let _memory = match memory {
            Some(memory) => memory,
            None => self.memory(memory_of(intake.len())).await?,
        };
        let stored = match intake.len() {
            Some(len) if len <= COLLECTED => {
                let bytes = intake.collect(len as usize).await?;
                self.client.put_then(Arc::new(bytes), &name, options, &end).await
            }
            _ => {
                let mut stream = intake;
                self.client.put_stream_then(&mut stream, &name, options, &end).await
            }
        };
        let taken =
            |slot: &Mutex<Option<S3Error>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        match stored {
            Ok(info) => {
                let digests = end.digests.lock().unwrap_or_else(PoisonError::into_inner).take();
                let digests = digests.ok_or_else(|| because(S3ErrorCode::InternalError, "no digests"))?;
                Ok(Stored { info, digests })
            }
            // A coordinator that was restarted no longer knows the put: that is no matter of the key.
            Err(ClientError::NotFound(text)) => Err(of(ClientError::Interrupted(text))),
            Err(error) => Err(taken(&end.refused).or_else(|| watch.failure()).unwrap_or_else(|| of(error))),
        }
    }

    /// `PutObject`.
    pub(crate) async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let input = request.input;
        if input.write_offset_bytes.is_some() {
            let text = "x-amz-write-offset-bytes: objects are written whole";
            return Err(because(S3ErrorCode::NotImplemented, text));
        }
        let (asked, wanted) = protection!(input);
        let class = input.storage_class.as_ref().map(StorageClass::as_str);
        let locks = wanted.facts(&bucket)?;
        let mut storing = Storing {
            code: self.code(&bucket, class)?,
            attributes: attributes(input.content_type, input.metadata)?,
            facts: facts(
                self.object_list(&bucket, &caller, &asked)?,
                class,
                Headers {
                    cache_control: input.cache_control,
                    disposition: input.content_disposition,
                    encoding: input.content_encoding,
                    language: input.content_language,
                    expires: input.expires,
                    redirect: input.website_redirect_location,
                    tagging: input.tagging,
                },
            )?,
            place: Place::Key {
                key: input.key,
                conditions: Conditions { if_match: input.if_match, if_none_match: input.if_none_match },
            },
            claims: Claims {
                md5: input.content_md5,
                sums: Checksum {
                    checksum_crc32: input.checksum_crc32,
                    checksum_crc32c: input.checksum_crc32c,
                    checksum_crc64nvme: input.checksum_crc64nvme,
                    checksum_sha1: input.checksum_sha1,
                    checksum_sha256: input.checksum_sha256,
                    checksum_type: None,
                },
                algorithm: algorithm(input.checksum_algorithm, &request.headers),
                trailers: request.trailing_headers,
            },
            bucket,
        };
        storing.facts.extend(locks);
        let body = input.body.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty()));
        let intake = self.intake(body, None, &storing.claims);
        let Stored { info, digests } = self.store(intake, &storing, None).await?;
        let entry = Entry(&info);
        let key = names::key(&storing.bucket.name, &info.name);
        let expiration = lifecycle::expires(&storing.bucket, key, entry, self.config.day);
        Ok(S3Response::new(PutObjectOutput {
            e_tag: Some(entry.tag()),
            expiration,
            version_id: entry.is_versioned().then(|| entry.version()),
            checksum_crc32: digests.sums.checksum_crc32,
            checksum_crc32c: digests.sums.checksum_crc32c,
            checksum_crc64nvme: digests.sums.checksum_crc64nvme,
            checksum_sha1: digests.sums.checksum_sha1,
            checksum_sha256: digests.sums.checksum_sha256,
            ..PutObjectOutput::default()
        }))
    }
}

/// The algorithm of a checksum that is wanted, or that is announced to come behind the bytes.
pub(crate) fn algorithm(wanted: Option<ChecksumAlgorithm>, headers: &HeaderMap) -> Option<String> {
    let announced = || {
        let trailer = headers.get("x-amz-trailer")?.to_str().ok()?;
        let name = trailer.split(',').find_map(|name| name.trim().strip_prefix("x-amz-checksum-"))?;
        Some(name.to_owned())
    };
    announced().or_else(|| wanted.map(|wanted| wanted.as_str().to_owned()))
}

/// What a put must not ask for, because it would not be done.
///
/// # Errors
/// `NotImplemented`; `InvalidArgument`: there is no such encryption.
pub(crate) fn refuse_encryption(kind: Option<&ServerSideEncryption>, customer: Option<&str>) -> S3Result<()> {
    let known =
        [ServerSideEncryption::AES256, ServerSideEncryption::AWS_KMS, ServerSideEncryption::AWS_KMS_DSSE];
    match (kind.map(ServerSideEncryption::as_str), customer) {
        (None, None) => Ok(()),
        (Some(_), Some(_)) => Err(invalid("x-amz-server-side-encryption", "one kind of encryption", "two")),
        (Some(other), None) if !known.contains(&other) => {
            Err(invalid("x-amz-server-side-encryption", &known.join(", "), other))
        }
        _ => Err(because(S3ErrorCode::NotImplemented, "encryption by the server; encrypt before the upload")),
    }
}

/// The attributes of an object.
pub(crate) fn attributes(kind: Option<ContentType>, metadata: Option<Metadata>) -> S3Result<Attributes> {
    let user: BTreeMap<_, _> = metadata.unwrap_or_default().into_iter().collect();
    let attributes =
        Attributes { content_type: kind.map(|kind| kind.to_string()), user, ..Attributes::default() };
    attributes.check().map_err(|(expected, got)| {
        because(S3ErrorCode::MetadataTooLarge, format!("metadata: expected {expected}, got {got}"))
    })?;
    Ok(attributes)
}

/// Headers that are kept as they come.
#[derive(Debug, Default)]
pub(crate) struct Headers {
    pub cache_control: Option<String>,
    pub disposition: Option<String>,
    pub encoding: Option<String>,
    pub language: Option<String>,
    pub expires: Option<Timestamp>,
    pub redirect: Option<String>,
    pub tagging: Option<String>,
}

/// The facts of an object that are known before its bytes.
pub(crate) fn facts(
    (owner, acl): (String, Option<String>),
    class: Option<&str>,
    headers: Headers,
) -> S3Result<Facts> {
    let mut facts = Facts::from([(entry::WRITER.to_owned(), owner)]);
    facts.extend(acl.map(|acl| (entry::ACL.to_owned(), acl)));
    let mut note = |name: &str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            facts.insert(name.to_owned(), value);
        }
    };
    note(entry::CLASS, class.filter(|class| *class != StorageClass::STANDARD).map(str::to_owned));
    note(entry::CACHE_CONTROL, headers.cache_control);
    note(entry::DISPOSITION, headers.disposition);
    note(entry::ENCODING, headers.encoding.map(|value| without_transfer(&value)));
    note(entry::LANGUAGE, headers.language);
    note(entry::REDIRECT, headers.redirect);
    note(entry::TAGS, tags::from_header(headers.tagging.as_deref())?);
    if let Some(expires) = headers.expires {
        let mut text = Vec::new();
        let written = expires.format(TimestampFormat::HttpDate, &mut text);
        written.map_err(|e| invalid("Expires", "a date", e))?;
        note(entry::EXPIRES, String::from_utf8(text).ok());
    }
    Ok(facts)
}

/// `aws-chunked` says how the body is sent; it is no property of the object.
fn without_transfer(encoding: &str) -> String {
    let kept = encoding.split(',').map(str::trim).filter(|part| *part != "aws-chunked");
    kept.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_tags() {
        let tag = |text: &str| Some(ETagCondition::ETag(ETag::Strong(text.into())));
        let any = || Some(ETagCondition::Any);
        let info = entry::fixture::stored("s3/b/k", 0, [(entry::ETAG.to_owned(), "e".to_owned())]);
        let cases = [
            (None, None, true, true),
            (None, any(), false, true),
            (None, tag("e"), false, true),
            (None, tag("f"), true, true),
            (any(), None, true, false),
            (tag("e"), None, true, false),
            (tag("f"), None, false, false),
        ];
        for (if_match, if_none_match, with, without) in cases {
            let conditions = Conditions { if_match, if_none_match };
            assert_eq!(conditions.judge(Some(&info)).is_ok(), with, "{conditions:?}");
            assert_eq!(conditions.judge(None).is_ok(), without, "{conditions:?}");
        }
    }

    #[test]
    fn how_a_body_was_sent_is_not_kept() {
        assert_eq!(without_transfer("aws-chunked"), "");
        assert_eq!(without_transfer("gzip, aws-chunked"), "gzip");
    }
}
