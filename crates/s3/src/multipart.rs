//! Objects that come in parts. Each part is an object of its own until the upload is completed; then the stripes of all
//! parts become one object in one transaction, and no byte is copied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kintsu_client::{ClientError, joined_checksum};
use kintsu_wire::message::{Attributes, Change, Changed, Check, List, ObjectInfo, Step};
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::body::{Claims, hex, unhex};
use crate::bucket::Bucket;
use crate::delete::{TRIES, crowded};
use crate::entry::{self, Entry, values};
use crate::error::{because, invalid, of};
use crate::gateway::{self, Gateway};
use crate::list::{Shown, most};
use crate::put::{self, Conditions, Headers, Place, Stored, Storing};
use crate::{lock, names, settings, sums};

/// The largest number of a part.
const MOST_PARTS: i32 = 10_000;

/// Names in one page of a listing.
const PAGE: u32 = 1000;

/// The fact of an upload that says which checksum its parts have.
const ALGORITHM: &str = "algorithm";

/// An upload under way.
pub(crate) struct Upload {
    /// The name of its object.
    pub name: String,
    pub info: ObjectInfo,
    pub id: String,
}

impl Upload {
    fn fact(&self, name: &str) -> Option<&str> {
        Entry(&self.info).fact(name)
    }

    pub(crate) fn algorithm(&self) -> Option<String> {
        self.fact(ALGORITHM).map(str::to_owned)
    }

    pub(crate) fn code(&self) -> String {
        self.fact(entry::CODE).unwrap_or_default().to_owned()
    }

    /// Where a part takes its place.
    pub(crate) fn place(&self, number: i32) -> Place {
        Place::Part { upload: self.name.clone(), id: self.info.id, number, of: self.id.clone() }
    }

    fn is_full(&self) -> bool {
        self.fact(entry::SUM_TYPE) == Some(ChecksumType::FULL_OBJECT)
    }
}

/// The answer for an upload that does not exist.
pub(crate) fn no_upload() -> S3Error {
    because(S3ErrorCode::NoSuchUpload, "there is no such upload: it was completed or aborted, or never began")
}

/// # Errors
/// `InvalidArgument`.
pub(crate) fn checked_number(number: i32) -> S3Result<()> {
    match (1..=MOST_PARTS).contains(&number) {
        true => Ok(()),
        false => Err(invalid("partNumber", "1 to 10000", number)),
    }
}

/// A new id: seconds since 1970, so that uploads of a key are in the order of their begin, and a random number.
fn new_id(now: u64) -> S3Result<String> {
    let mut random = [0; 12];
    getrandom::fill(&mut random)
        .map_err(|e| because(S3ErrorCode::InternalError, format!("no random bytes: {e}")))?;
    Ok(format!("{now:08x}{}", hex(&random)))
}

impl Gateway {
    /// An upload.
    ///
    /// # Errors
    /// `NoSuchUpload`.
    pub(crate) async fn upload(&self, bucket: &Bucket, key: &str, id: &str) -> S3Result<Upload> {
        names::checked_key(key)?;
        if id.len() != 32 || unhex(id).is_none() {
            return Err(no_upload());
        }
        let name = names::upload(&bucket.name, key, id);
        match self.client.info(&name).await {
            Ok(info) => Ok(Upload { name, info, id: id.to_owned() }),
            Err(ClientError::NotFound(_)) => Err(no_upload()),
            Err(other) => Err(of(other)),
        }
    }

    /// `CreateMultipartUpload`.
    pub(crate) async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let input = request.input;
        let (asked, wanted) = put::protection!(input);
        let class = input.storage_class.as_ref().map(StorageClass::as_str);
        let headers = Headers {
            cache_control: input.cache_control,
            disposition: input.content_disposition,
            encoding: input.content_encoding,
            language: input.content_language,
            expires: input.expires,
            redirect: input.website_redirect_location,
            tagging: input.tagging,
        };
        let mut facts = put::facts(self.object_list(&bucket, &caller, &asked)?, class, headers)?;
        facts.extend(wanted.facts(&bucket)?);
        facts.insert(entry::CODE.to_owned(), self.code(&bucket, class)?);
        let algorithm = input.checksum_algorithm.map(|algorithm| algorithm.as_str().to_uppercase());
        let kind =
            sums::sum_type(algorithm.as_deref(), input.checksum_type.as_ref().map(ChecksumType::as_str))?;
        facts.extend(algorithm.clone().map(|algorithm| (ALGORITHM.to_owned(), algorithm)));
        facts.extend(kind.map(|kind| (entry::SUM_TYPE.to_owned(), kind.to_owned())));
        let attributes = Attributes { facts, ..put::attributes(input.content_type, input.metadata)? };
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs());
        let id = new_id(now)?;
        let mark = Step::Mark {
            name: names::upload(&bucket.name, &input.key, &id),
            newest_first: false,
            attributes,
        };
        let change = Change { checks: vec![bucket.check()], steps: vec![mark] };
        match self.client.change(&change).await.map_err(of)? {
            Changed::Done(_) => Ok(S3Response::new(CreateMultipartUploadOutput {
                bucket: Some(bucket.name.clone()),
                checksum_algorithm: algorithm.map(ChecksumAlgorithm::from),
                checksum_type: kind.map(ChecksumType::from_static),
                key: Some(input.key),
                upload_id: Some(id),
                ..CreateMultipartUploadOutput::default()
            })),
            Changed::Unmet(_) => Err(crate::bucket::no_such(&bucket.name)),
        }
    }

    /// `UploadPart`.
    pub(crate) async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        checked_number(input.part_number)?;
        let upload = self.upload(&bucket, &input.key, &input.upload_id).await?;
        let storing = Storing {
            code: upload.code(),
            attributes: Attributes::default(),
            facts: BTreeMap::new(),
            place: upload.place(input.part_number),
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
                algorithm: upload
                    .algorithm()
                    .or_else(|| put::algorithm(input.checksum_algorithm, &request.headers)),
                trailers: request.trailing_headers,
            },
            bucket,
        };
        let body = input.body.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty()));
        let intake = self.intake(body, None, &storing.claims);
        let Stored { info, digests } = self.store(intake, &storing, None).await?;
        Ok(S3Response::new(UploadPartOutput {
            checksum_crc32: digests.sums.checksum_crc32,
            checksum_crc32c: digests.sums.checksum_crc32c,
            checksum_crc64nvme: digests.sums.checksum_crc64nvme,
            checksum_sha1: digests.sums.checksum_sha1,
            checksum_sha256: digests.sums.checksum_sha256,
            e_tag: Some(Entry(&info).tag()),
            ..UploadPartOutput::default()
        }))
    }

    /// `CompleteMultipartUpload`.
    pub(crate) async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let mut bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let conditions = Conditions { if_match: input.if_match, if_none_match: input.if_none_match };
        let wanted = input.multipart_upload.and_then(|list| list.parts).unwrap_or_default();
        let claimed = Checksum {
            checksum_crc32: input.checksum_crc32,
            checksum_crc32c: input.checksum_crc32c,
            checksum_crc64nvme: input.checksum_crc64nvme,
            checksum_sha1: input.checksum_sha1,
            checksum_sha256: input.checksum_sha256,
            checksum_type: None,
        };
        for attempt in 0..TRIES {
            if attempt > 0 {
                bucket = Arc::new(self.bucket(&bucket.name).await?);
            }
            let upload = match self.upload(&bucket, &input.key, &input.upload_id).await {
                Err(error) if error.code() == &S3ErrorCode::NoSuchUpload => {
                    return self.completed_before(&bucket, &input.key, &input.upload_id).await?.ok_or(error);
                }
                other => other?,
            };
            let stored = self.all(&names::parts(&upload.id)).await?;
            let parts = chosen(&wanted, &stored, self.config.limits.part_bytes)?;
            let size: u64 = parts.iter().map(|part| part.size).sum();
            if let Some(expected) = input.mpu_object_size.filter(|expected| *expected != size as i64) {
                let text =
                    format!("x-amz-mp-object-size: the client says {expected}, the parts have {size} bytes");
                return Err(because(S3ErrorCode::InvalidRequest, text));
            }
            let (mut change, place) = self.take_place(&bucket, &input.key, &conditions).await?;
            let mut facts = facts_of(&upload, &parts)?;
            sums::check(&claimed, &facts)?;
            lock::add_default(&bucket, &mut facts)?;
            facts.extend(place);
            change.checks.push(Check::Is { name: upload.name.clone(), id: Some(upload.info.id) });
            let kept: BTreeMap<&str, u64> = parts.iter().map(|part| (part.name.as_str(), part.id)).collect();
            change
                .checks
                .extend(kept.iter().map(|(name, id)| Check::Is { name: name.to_string(), id: Some(*id) }));
            let left = stored.iter().filter(|part| !kept.contains_key(part.name.as_str()));
            change.steps.extend(left.map(|part| Step::Remove { name: part.name.clone() }));
            change.steps.push(Step::Remove { name: upload.name.clone() });
            let sums = parts.iter().map(|part| part.checksum.map(|sum| (sum, part.size)));
            let checksum = sums.collect::<Option<Vec<_>>>().map(joined_checksum);
            change.steps.push(Step::Join {
                name: names::object(&bucket.name, &input.key),
                parts: parts.iter().map(|part| part.name.clone()).collect(),
                attributes: Attributes { facts, ..upload.info.attributes.clone() },
                checksum,
            });
            if let Changed::Done(made) = self.client.change(&change).await.map_err(of)? {
                let made = made.last().ok_or_else(|| because(S3ErrorCode::InternalError, "no object"))?;
                return Ok(answer(&bucket, &input.key, made));
            }
        }
        Err(crowded(&input.key))
    }

    /// The answer to a completion whose first answer was lost.
    async fn completed_before(
        &self,
        bucket: &Bucket,
        key: &str,
        id: &str,
    ) -> S3Result<Option<S3Response<CompleteMultipartUploadOutput>>> {
        let current = self.current(&names::object(&bucket.name, key)).await?;
        let same = current.filter(|info| Entry(info).fact(entry::UPLOAD) == Some(id));
        Ok(same.map(|info| answer(bucket, key, &info)))
    }

    /// `AbortMultipartUpload`.
    pub(crate) async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let upload = self.upload(&bucket, &input.key, &input.upload_id).await?;
        if !self.abort(&upload.info, &upload.id).await? {
            return Err(no_upload());
        }
        let output = AbortMultipartUploadOutput::default();
        Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
    }

    /// Removes an upload and its parts; returns whether it was still there.
    pub(crate) async fn abort(&self, upload: &ObjectInfo, id: &str) -> S3Result<bool> {
        let removed = |parts: Vec<ObjectInfo>| parts.into_iter().map(|part| Step::Remove { name: part.name });
        let mut steps = vec![Step::Remove { name: upload.name.clone() }];
        steps.extend(removed(self.all(&names::parts(id)).await?));
        let checks = vec![Check::Is { name: upload.name.clone(), id: Some(upload.id) }];
        if let Changed::Unmet(_) = self.client.change(&Change { checks, steps }).await.map_err(of)? {
            return Ok(false);
        }
        // From now on no part can be added. If this process ends here, the hourly search finds those that have come meanwhile.
        let late: Vec<_> = removed(self.all(&names::parts(id)).await?).collect();
        if !late.is_empty() {
            self.client.change(&Change { checks: Vec::new(), steps: late }).await.map_err(of)?;
        }
        Ok(true)
    }

    /// Removes parts whose upload is gone; returns how many. Parts without facts stay: they come from a rebuild of the metadata
    /// from blocks, and may be all that is left of objects.
    pub(crate) async fn end_left_parts(&self) -> S3Result<usize> {
        // In this order: an upload is there before its parts are, and none comes back.
        let mut left = BTreeSet::new();
        let mut after = None;
        loop {
            let list =
                List { prefix: names::PARTS.to_owned(), after, limit: PAGE, delimiter: "/".to_owned() };
            let page = self.client.list_page(list).await.map_err(of)?;
            after = page.last().map(str::to_owned);
            left.extend(page.prefixes);
            if !page.more {
                break;
            }
        }
        let mut after = None;
        while !left.is_empty() {
            let page = self.client.list(names::UPLOADS, after.as_deref(), PAGE).await.map_err(of)?;
            after = page.last().map(str::to_owned);
            for id in page.objects.iter().filter_map(|upload| names::id_of_upload(&upload.name)) {
                left.remove(&names::parts(id));
            }
            if !page.more {
                break;
            }
        }
        let mut removed = 0;
        for prefix in left {
            let mut parts = self.all(&prefix).await?;
            parts.retain(|part| !part.attributes.facts.is_empty());
            removed += parts.len();
            let steps: Vec<_> = parts.into_iter().map(|part| Step::Remove { name: part.name }).collect();
            if !steps.is_empty() {
                self.client.change(&Change { checks: Vec::new(), steps }).await.map_err(of)?;
            }
        }
        Ok(removed)
    }

    /// `ListParts`.
    pub(crate) async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let input = request.input;
        let upload = self.upload(&bucket, &input.key, &input.upload_id).await?;
        let (most, after) = (most(input.max_parts)?, input.part_number_marker.unwrap_or(0));
        let prefix = names::parts(&upload.id);
        let from = names::part(&upload.id, after.clamp(0, MOST_PARTS + 1));
        let (objects, more) = match most {
            0 => (Vec::new(), false),
            _ => {
                let page = self.client.list(&prefix, Some(&from), most).await.map_err(of)?;
                (page.objects, page.more)
            }
        };
        let parts: Vec<_> = objects.iter().map(shown).collect();
        Ok(S3Response::new(ListPartsOutput {
            bucket: Some(bucket.name.clone()),
            checksum_algorithm: upload.algorithm().map(ChecksumAlgorithm::from),
            checksum_type: upload.fact(entry::SUM_TYPE).map(|kind| ChecksumType::from(kind.to_owned())),
            initiator: Some(settings::initiator(&caller)),
            is_truncated: Some(more),
            key: Some(input.key),
            max_parts: Some(most as i32),
            next_part_number_marker: Some(parts.last().and_then(|part| part.part_number).unwrap_or(after)),
            owner: Some(Entry(&upload.info).owner(&bucket)),
            part_number_marker: Some(after),
            parts: Some(parts),
            storage_class: Some(StorageClass::from(Entry(&upload.info).class().to_owned())),
            upload_id: Some(upload.id.clone()),
            ..ListPartsOutput::default()
        }))
    }

    /// `ListMultipartUploads`.
    pub(crate) async fn list_multipart_uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let input = request.input;
        let (most, show) = (most(input.max_uploads)?, Shown::new(input.encoding_type.as_ref())?);
        let (prefix, delimiter) = (input.prefix.unwrap_or_default(), input.delimiter.unwrap_or_default());
        let base = names::uploads(&bucket.name);
        let key_marker = input.key_marker.unwrap_or_default();
        let id_marker = input.upload_id_marker.clone().unwrap_or_default();
        let after = match (key_marker.is_empty(), id_marker.is_empty()) {
            (true, _) => None,
            (false, false) => Some(names::upload(&bucket.name, &key_marker, &id_marker)),
            (false, true) if !delimiter.is_empty() && key_marker.ends_with(&delimiter) => {
                Some(format!("{base}{key_marker}"))
            }
            (false, true) => Some(names::behind(&names::upload(&bucket.name, &key_marker, ""))),
        };
        let list = List {
            prefix: format!("{base}{prefix}"),
            after,
            limit: most.max(1),
            delimiter: delimiter.clone(),
        };
        let mut page = self.client.list_page(list).await.map_err(of)?;
        if most == 0 {
            (page.objects, page.prefixes, page.more) = (Vec::new(), Vec::new(), false);
        }
        let key = |name: &str| {
            let key = name.strip_prefix(base.as_str()).unwrap_or(name);
            let (key, id) = key.split_once(names::END_OF_KEY).unwrap_or((key, ""));
            (key.to_owned(), id.to_owned())
        };
        let last = page.last().filter(|_| page.more).map(key);
        let upload = |info: &ObjectInfo| {
            let ((key, id), entry) = (key(&info.name), Entry(info));
            MultipartUpload {
                checksum_algorithm: entry.owned(ALGORITHM).map(ChecksumAlgorithm::from),
                checksum_type: entry.owned(entry::SUM_TYPE).map(ChecksumType::from),
                initiated: Some(entry.modified()),
                initiator: Some(settings::initiator(&caller)),
                key: Some(show.text(&key)),
                owner: Some(entry.owner(&bucket)),
                storage_class: Some(StorageClass::from(entry.class().to_owned())),
                upload_id: Some(id),
            }
        };
        let prefixes =
            page.prefixes.iter().map(|name| CommonPrefix { prefix: Some(show.text(&key(name).0)) });
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(bucket.name.clone()),
            common_prefixes: (!page.prefixes.is_empty()).then(|| prefixes.collect()),
            delimiter: (!delimiter.is_empty()).then(|| show.text(&delimiter)),
            encoding_type: input.encoding_type,
            is_truncated: Some(page.more),
            key_marker: Some(show.text(&key_marker)),
            max_uploads: Some(most as i32),
            next_key_marker: last.as_ref().map(|(key, _)| show.text(key)),
            next_upload_id_marker: last.map(|(_, id)| id).filter(|id| !id.is_empty()),
            prefix: Some(show.text(&prefix)),
            upload_id_marker: input.upload_id_marker,
            uploads: Some(page.objects.iter().map(upload).collect()),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}

fn answer(bucket: &Bucket, key: &str, info: &ObjectInfo) -> S3Response<CompleteMultipartUploadOutput> {
    let entry = Entry(info);
    let sums = entry.sums();
    S3Response::new(CompleteMultipartUploadOutput {
        bucket: Some(bucket.name.clone()),
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        checksum_type: sums.checksum_type,
        e_tag: Some(entry.tag()),
        key: Some(key.to_owned()),
        location: Some(format!("/{}/{key}", bucket.name)),
        version_id: entry.is_versioned().then(|| entry.version()),
        ..CompleteMultipartUploadOutput::default()
    })
}

fn number(part: &ObjectInfo) -> Option<i32> {
    part.name.rsplit_once('/')?.1.parse().ok()
}

fn shown(info: &ObjectInfo) -> Part {
    let (entry, sums) = (Entry(info), Entry(info).sums());
    Part {
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        e_tag: Some(entry.tag()),
        last_modified: Some(entry.modified()),
        part_number: number(info),
        size: Some(info.size as i64),
    }
}

/// The stored parts that a client wants, in order.
///
/// # Errors
/// `MalformedXML`: none; `InvalidPartOrder`; `InvalidPart`: one that is not there, or is another one; `EntityTooSmall`.
fn chosen<'p>(
    wanted: &[CompletedPart],
    stored: &'p [ObjectInfo],
    least: u64,
) -> S3Result<Vec<&'p ObjectInfo>> {
    if wanted.is_empty() {
        return Err(because(S3ErrorCode::MalformedXML, "expected at least one part, got none"));
    }
    let by_number: BTreeMap<i32, &ObjectInfo> =
        stored.iter().filter_map(|part| Some((number(part)?, part))).collect();
    let (mut parts, mut last) = (Vec::with_capacity(wanted.len()), 0);
    for part in wanted {
        let number = part.part_number.unwrap_or_default();
        if number <= last {
            let text = format!("expected part numbers that grow, got {number} after {last}");
            return Err(because(S3ErrorCode::InvalidPartOrder, text));
        }
        last = number;
        let found = by_number.get(&number).copied();
        let same = |found: &&ObjectInfo| {
            let entry = Entry(found);
            let tag = part.e_tag.as_ref().is_some_and(|tag| tag.value() == entry.etag());
            let claims = [
                part.checksum_crc32.as_ref(),
                part.checksum_crc32c.as_ref(),
                part.checksum_crc64nvme.as_ref(),
                part.checksum_sha1.as_ref(),
                part.checksum_sha256.as_ref(),
            ];
            let sums = entry.sums();
            let differs = |(claim, sum): (Option<&String>, Option<&String>)| {
                claim.is_some() && sum.is_some() && claim != sum
            };
            tag && !claims.into_iter().zip(values(&sums)).any(differs)
        };
        let Some(found) = found.filter(same) else {
            let text = format!("part {number} was not uploaded, or is another one than the request says");
            return Err(because(S3ErrorCode::InvalidPart, text));
        };
        parts.push(found);
    }
    let before_last = parts.len() - 1;
    if let Some(small) = parts[..before_last].iter().find(|part| part.size < least) {
        let text =
            format!("expected parts of at least {least} bytes, except the last one, got {}", small.size);
        return Err(because(S3ErrorCode::EntityTooSmall, text));
    }
    Ok(parts)
}

/// What is known of an object that is made of these parts.
fn facts_of(upload: &Upload, parts: &[&ObjectInfo]) -> S3Result<BTreeMap<String, String>> {
    let mut facts = upload.info.attributes.facts.clone();
    facts.remove(entry::CODE);
    facts.remove(ALGORITHM);
    let mut md5 = Md5::new();
    for part in parts {
        let tag = Entry(part).etag();
        md5.update(&unhex(&tag).unwrap_or_else(|| tag.into_bytes()));
    }
    facts.insert(entry::ETAG.to_owned(), format!("{}-{}", hex(&md5.finalize()), parts.len()));
    let lengths: Vec<u64> = parts.iter().map(|part| part.size).collect();
    facts.insert(entry::PARTS.to_owned(), entry::lengths(&lengths));
    facts.insert(entry::UPLOAD.to_owned(), upload.id.clone());
    if let Some(algorithm) = upload.algorithm() {
        let sum = sums::whole_sum(&algorithm, upload.is_full(), parts)?;
        facts.extend(sums::of_parts(&algorithm, parts).map(|sums| (entry::PART_SUMS.to_owned(), sums)));
        let sums = sums::named(&algorithm, sum);
        entry::note_sums(&mut facts, &sums);
    }
    Ok(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(number: i32, bytes: &[u8]) -> ObjectInfo {
        let facts = BTreeMap::from([(entry::ETAG.to_owned(), hex(&Md5::checksum(bytes)))]);
        entry::fixture::stored(names::part("u", number), bytes.len() as u64, facts)
    }

    #[test]
    fn parts_are_chosen_in_order_and_by_their_tags() {
        let stored = [part(1, b"aaaaaa"), part(3, b"bb"), part(4, b"c")];
        let want = |numbers: &[i32]| -> Vec<CompletedPart> {
            let tag = |number: &i32| {
                stored.iter().find(|part| super::number(part) == Some(*number)).map(|part| Entry(part).tag())
            };
            let one = |number: &i32| CompletedPart {
                part_number: Some(*number),
                e_tag: tag(number),
                ..Default::default()
            };
            numbers.iter().map(one).collect()
        };
        let code = |wanted: &[CompletedPart]| chosen(wanted, &stored, 6).unwrap_err().code().clone();
        assert_eq!(chosen(&want(&[1, 4]), &stored, 6).unwrap().len(), 2);
        assert_eq!(code(&[]), S3ErrorCode::MalformedXML);
        assert_eq!(code(&want(&[3, 1])), S3ErrorCode::InvalidPartOrder);
        assert_eq!(code(&want(&[1, 2])), S3ErrorCode::InvalidPart);
        assert_eq!(code(&want(&[1, 3, 4])), S3ErrorCode::EntityTooSmall);
        let mut other = want(&[1]);
        other[0].e_tag = Some(ETag::Strong("x".into()));
        assert_eq!(code(&other), S3ErrorCode::InvalidPart);
    }
}
