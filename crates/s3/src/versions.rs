//! Versions: found, listed, and switched on and off. The newest one has the name of the key; the older ones and delete
//! markers stand beside it, the newest first.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use kintsu_client::ClientError;
use kintsu_wire::message::{List, ObjectInfo};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::bucket::{self, Bucket, Versioning};
use crate::entry::{self, Entry};
use crate::error::{because, invalid, of};
use crate::gateway::{self, Gateway};
use crate::list::{Shown, most};
use crate::names;

/// Versions in one page of a search.
const PAGE: u32 = 1000;

/// How often a listing is made again because it changed meanwhile.
const LISTED: u32 = 8;

/// Most pages of a search.
const SEARCHED: u32 = 10;

/// A version that was looked for, and the newest version of its key just before.
pub(crate) struct Named {
    pub current: Option<ObjectInfo>,
    pub found: Option<ObjectInfo>,
}

impl Gateway {
    /// A version of a key, with the name of its object; the newest one if none is named.
    ///
    /// # Errors
    /// `NoSuchKey`, `NoSuchVersion`; `MethodNotAllowed` for a delete marker.
    pub(crate) async fn version(
        &self,
        bucket: &Bucket,
        key: &str,
        version: Option<&str>,
    ) -> S3Result<(String, ObjectInfo)> {
        names::checked_key(key)?;
        let name = names::object(&bucket.name, key);
        let Some(version) = version else {
            if let Some(info) = self.current(&name).await? {
                return Ok((name, info));
            }
            let mut missing = because(S3ErrorCode::NoSuchKey, format!("there is no object {key:?}"));
            missing.set_headers(marker_header("false"));
            if bucket.versioning() == Versioning::Never {
                return Err(missing);
            }
            return Err(match self.newest_older(bucket, key).await? {
                Some(marker) => marked(missing, &marker),
                None => missing,
            });
        };
        match self.find_version(bucket, key, version).await?.found {
            Some(info) if Entry(&info).is_marker() => {
                let error = because(S3ErrorCode::MethodNotAllowed, "this version is a delete marker");
                Err(marked(error, &info))
            }
            Some(info) => Ok((info.name.clone(), info)),
            None => Err(because(S3ErrorCode::NoSuchVersion, format!("{key:?} has no version {version}"))),
        }
    }

    /// Looks for a version among the newest one and the others.
    pub(crate) async fn find_version(&self, bucket: &Bucket, key: &str, version: &str) -> S3Result<Named> {
        let name = names::object(&bucket.name, key);
        let mut current = self.current(&name).await?;
        loop {
            let newest = current.clone().filter(|info| Entry(info).version() == version);
            let found = match newest {
                None => self.older(bucket, key, version).await?,
                newest => newest,
            };
            if found.is_some() {
                return Ok(Named { current, found });
            }
            // Meanwhile it may have become the newest one, because that was deleted.
            let now = self.current(&name).await?;
            if now.as_ref().map(|info| info.id) == current.as_ref().map(|info| info.id) {
                return Ok(Named { current, found });
            }
            current = now;
        }
    }

    /// The newest of the older versions and delete markers of a key.
    pub(crate) async fn newest_older(&self, bucket: &Bucket, key: &str) -> S3Result<Option<ObjectInfo>> {
        let page = self.client.list(&names::versions(&bucket.name, key), None, 1).await.map_err(of)?;
        Ok(page.objects.into_iter().next())
    }

    /// One of them.
    async fn older(&self, bucket: &Bucket, key: &str, version: &str) -> S3Result<Option<ObjectInfo>> {
        if version == entry::NULL {
            return self.older_null(bucket, key).await;
        }
        let Some(id) = entry::id_of_version(version) else { return Ok(None) };
        let found = self.older_of(bucket, key, id).await?;
        Ok(found.filter(|info| Entry(info).version() == version))
    }

    async fn older_of(&self, bucket: &Bucket, key: &str, id: u64) -> S3Result<Option<ObjectInfo>> {
        match self.client.info_of(&names::versions(&bucket.name, key), id).await {
            Ok(info) => Ok(Some(info)),
            Err(ClientError::NotFound(_)) => Ok(None),
            Err(other) => Err(of(other)),
        }
    }

    /// The one among them that was written while versions were not kept, or the delete marker that was made then.
    async fn older_null(&self, bucket: &Bucket, key: &str) -> S3Result<Option<ObjectInfo>> {
        let current = self.current(&names::object(&bucket.name, key)).await?;
        let is_current = current.is_some();
        let newest = match current {
            Some(current) => Some(current),
            None => self.newest_older(bucket, key).await?,
        };
        match newest {
            Some(newest) if Entry(&newest).is_versioned() => {
                self.null_before(bucket, key, Entry(&newest)).await
            }
            // A listing leaves out some of what is known.
            Some(null) if !is_current => self.current(&null.name).await,
            _ => Ok(None),
        }
    }

    /// The null version among those before the newest one, which is kept.
    pub(crate) async fn null_before(
        &self,
        bucket: &Bucket,
        key: &str,
        newest: Entry<'_>,
    ) -> S3Result<Option<ObjectInfo>> {
        match newest.fact(entry::NULL_BEFORE) {
            Some(id) => {
                let Some(id) = entry::id_of_version(id) else { return Ok(None) };
                let found = self.older_of(bucket, key, id).await?;
                Ok(found.filter(|info| !Entry(info).is_versioned()))
            }
            None => self.searched_null(bucket, key).await,
        }
    }

    /// The null version where an earlier Kintsu wrote the newest one, which does not say it: it is searched for among the newest of the
    /// older versions.
    ///
    /// # Errors
    /// `InternalError`: there are too many.
    async fn searched_null(&self, bucket: &Bucket, key: &str) -> S3Result<Option<ObjectInfo>> {
        let (older, mut after) = (names::versions(&bucket.name, key), None);
        for _ in 0..SEARCHED {
            let page = self.client.list(&older, after.as_deref(), PAGE).await.map_err(of)?;
            after = page.last().map(str::to_owned);
            if let Some(null) = page.objects.into_iter().find(|info| !Entry(info).is_versioned()) {
                return self.current(&null.name).await;
            }
            if !page.more {
                return Ok(None);
            }
        }
        let text = format!(
            "{key:?}: expected the null version among its newest {} versions, and it is not; remove some of them",
            SEARCHED * PAGE
        );
        Err(because(S3ErrorCode::InternalError, text))
    }

    /// `GetBucketVersioning`.
    pub(crate) async fn get_bucket_versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        let status = gateway::bucket(&request.extensions)?.fact(bucket::VERSIONING).map(str::to_owned);
        let status = status.map(BucketVersioningStatus::from);
        Ok(S3Response::new(GetBucketVersioningOutput { status, ..GetBucketVersioningOutput::default() }))
    }

    /// `PutBucketVersioning`.
    pub(crate) async fn put_bucket_versioning(
        &self,
        request: S3Request<PutBucketVersioningInput>,
    ) -> S3Result<S3Response<PutBucketVersioningOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let wanted = request.input.versioning_configuration;
        if wanted.mfa_delete.is_some_and(|mfa| mfa.as_str() == MFADelete::ENABLED) {
            return Err(because(S3ErrorCode::NotImplemented, "MfaDelete"));
        }
        let status = wanted.status.map(|status| status.as_str().to_owned()).unwrap_or_default();
        if status != BucketVersioningStatus::ENABLED && status != BucketVersioningStatus::SUSPENDED {
            let text = format!("Status: expected Enabled or Suspended, got {status:?}");
            return Err(because(S3ErrorCode::IllegalVersioningConfigurationException, text));
        }
        if status == BucketVersioningStatus::SUSPENDED && bucket.fact(bucket::LOCK).is_some() {
            let text = "a bucket with object lock keeps its versions";
            return Err(because(S3ErrorCode::InvalidBucketState, text));
        }
        self.set_bucket(&bucket, [(bucket::VERSIONING, Some(status))]).await?;
        Ok(S3Response::new(PutBucketVersioningOutput::default()))
    }

    /// `ListObjectVersions`.
    pub(crate) async fn list_object_versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let (prefix, delimiter) =
            (input.prefix.clone().unwrap_or_default(), input.delimiter.clone().unwrap_or_default());
        let most = most(input.max_keys)?;
        let after = self.after(&bucket, &input).await?;
        let show = Shown::new(input.encoding_type.as_ref())?;
        let merged = self.merged(&bucket, (&prefix, &delimiter), &after, most).await?;
        let (mut versions, mut markers, mut prefixes) = (Vec::new(), Vec::new(), Vec::new());
        let (mut last, mut newest) = (None, after.within.clone());
        for item in merged.items {
            let Item { key, info } = item;
            let Some(info) = info else {
                prefixes.push(CommonPrefix { prefix: Some(show.text(&key)) });
                last = Some((key, None));
                continue;
            };
            let entry = Entry(&info);
            let is_latest = Some(newest.as_ref() != Some(&key));
            newest = Some(key.clone());
            let (shown, version) = (Some(show.text(&key)), Some(entry.version()));
            last = Some((key, version.clone()));
            let (last_modified, owner) = (Some(entry.modified()), Some(entry.owner(&bucket)));
            match entry.is_marker() {
                true => markers.push(DeleteMarkerEntry {
                    is_latest,
                    key: shown,
                    last_modified,
                    owner,
                    version_id: version,
                }),
                false => versions.push(ObjectVersion {
                    e_tag: Some(entry.tag()),
                    is_latest,
                    key: shown,
                    last_modified,
                    owner,
                    size: Some(info.size as i64),
                    storage_class: Some(ObjectVersionStorageClass::from(entry.class().to_owned())),
                    version_id: version,
                    ..ObjectVersion::default()
                }),
            }
        }
        let next = last.filter(|_| merged.more);
        Ok(S3Response::new(ListObjectVersionsOutput {
            common_prefixes: (!prefixes.is_empty()).then_some(prefixes),
            delete_markers: (!markers.is_empty()).then_some(markers),
            delimiter: input.delimiter.map(|text| show.text(&text)),
            encoding_type: input.encoding_type,
            is_truncated: Some(merged.more),
            key_marker: Some(show.text(&input.key_marker.unwrap_or_default())),
            max_keys: Some(most as i32),
            name: Some(bucket.name.clone()),
            next_key_marker: next.as_ref().map(|(key, _)| show.text(key)),
            next_version_id_marker: next.and_then(|(_, version)| version),
            prefix: Some(show.text(&prefix)),
            version_id_marker: input.version_id_marker,
            versions: (!versions.is_empty()).then_some(versions),
            ..ListObjectVersionsOutput::default()
        }))
    }

    /// Where a listing of versions begins.
    async fn after(&self, bucket: &Bucket, input: &ListObjectVersionsInput) -> S3Result<After> {
        let Some(key) = input.key_marker.clone().filter(|key| !key.is_empty()) else {
            if input.version_id_marker.as_ref().is_some_and(|marker| !marker.is_empty()) {
                return Err(invalid("version-id-marker", "a key-marker with it", "none"));
            }
            return Ok(After::default());
        };
        let current = names::object(&bucket.name, &key);
        let older = names::versions(&bucket.name, &key);
        let Some(version) = input.version_id_marker.as_deref().filter(|marker| !marker.is_empty()) else {
            // A common prefix is passed on as it is; then all names with it are left out.
            let is_prefix =
                input.delimiter.as_ref().is_some_and(|d| !d.is_empty() && key.ends_with(d.as_str()));
            let older = match is_prefix {
                true => format!("{}{key}", names::all_versions(&bucket.name)),
                false => names::behind(&older),
            };
            return Ok(After { current: Some(current), older: Some(older), within: None });
        };
        let place = match self.older(bucket, &key, version).await? {
            Some(info) => info.name,
            // It is the newest version, or one that is gone.
            None => older,
        };
        Ok(After { current: Some(current), older: Some(place), within: Some(key) })
    }

    /// The newest and the older versions of a bucket, in order of key, at most `most`.
    async fn merged(
        &self,
        bucket: &Bucket,
        (prefix, delimiter): (&str, &str),
        after: &After,
        most: u32,
    ) -> S3Result<Merged> {
        if most == 0 {
            return Ok(Merged { items: Vec::new(), more: false });
        }
        let page = async |base: &str, after: &Option<String>| {
            let list = List {
                prefix: format!("{base}{prefix}"),
                after: after.clone(),
                limit: most + 1,
                delimiter: delimiter.to_owned(),
            };
            self.client.list_page(list).await.map_err(of)
        };
        let bases = [names::objects(&bucket.name), names::all_versions(&bucket.name)];
        let mut newest = page(&bases[0], &after.current).await?;
        let mut older = page(&bases[1], &after.older).await?;
        // What changes from one to the other meanwhile could be in neither.
        for _ in 0..LISTED {
            let now = page(&bases[0], &after.current).await?;
            let is_same =
                now.objects.iter().map(|info| info.id).eq(newest.objects.iter().map(|info| info.id));
            newest = now;
            if is_same {
                break;
            }
            older = page(&bases[1], &after.older).await?;
        }
        let (mut items, mut more) = (Vec::new(), false);
        for (base, page) in bases.iter().zip([newest, older]) {
            more |= page.more;
            let key = |name: &str| {
                let key = name.strip_prefix(base.as_str()).unwrap_or(name);
                key.split(names::END_OF_KEY).next().unwrap_or(key).to_owned()
            };
            items.extend(page.prefixes.iter().map(|name| Item { key: key(name), info: None }));
            items
                .extend(page.objects.into_iter().map(|info| Item { key: key(&info.name), info: Some(info) }));
        }
        // Stable: of one key the newest version stands before the others, which are in order.
        items.sort_by(|a, b| a.key.cmp(&b.key));
        items.dedup_by(|a, b| a.info.is_none() && b.info.is_none() && a.key == b.key);
        more |= items.len() > most as usize;
        items.truncate(most as usize);
        Ok(Merged { items, more })
    }
}

/// Names after which the two listings begin.
#[derive(Debug, Default)]
struct After {
    current: Option<String>,
    older: Option<String>,
    /// The key of which some versions were listed before.
    within: Option<String>,
}

struct Merged {
    items: Vec<Item>,
    more: bool,
}

/// A version, or (without an object) a common prefix.
struct Item {
    key: String,
    info: Option<ObjectInfo>,
}

fn marker_header(value: &'static str) -> HeaderMap {
    let name = HeaderName::from_static("x-amz-delete-marker");
    HeaderMap::from_iter([(name, HeaderValue::from_static(value))])
}

/// An error that tells of a delete marker.
fn marked(mut error: S3Error, marker: &ObjectInfo) -> S3Error {
    if error.code() == &S3ErrorCode::MethodNotAllowed {
        error.set_status_code(StatusCode::METHOD_NOT_ALLOWED);
    }
    let mut headers = marker_header("true");
    if let Ok(version) = HeaderValue::try_from(Entry(marker).version()) {
        headers.insert(HeaderName::from_static("x-amz-version-id"), version);
    }
    error.set_headers(headers);
    error
}
