//! Objects and versions go. What a delete leaves behind, a marker or the version before, appears in the same transaction.

use kintsu_wire::message::{Attributes, Change, Changed, Check, ObjectInfo, Step};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::access::{AccessRequest, RequestContext};
use crate::audit::Attempt;
use crate::bucket::{self, Bucket, Versioning};
use crate::entry::{self, Entry};
use crate::error::{because, of};
use crate::gateway::{self, Gateway};
use crate::versions::Named;
use crate::{actions, lock, names};

/// Most objects in one request.
const MOST: usize = 1000;

/// How often a change is tried while others change the same key.
pub(crate) const TRIES: usize = 64;

/// What was deleted.
#[derive(Debug, Default)]
pub(crate) struct Deleted {
    /// A delete marker was made or removed.
    marker: bool,
    /// The version of that marker, or the one that was removed.
    version: Option<String>,
}

/// What only a certain object allows.
#[derive(Debug, Default)]
pub(crate) struct Only {
    pub id: Option<u64>,
    pub tag: Option<ETagCondition>,
    pub size: Option<i64>,
    pub modified: Option<Timestamp>,
}

impl Only {
    fn is_empty(&self) -> bool {
        self.id.is_none() && self.tag.is_none() && self.size.is_none() && self.modified.is_none()
    }

    fn judge(&self, current: Option<&ObjectInfo>) -> S3Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        // What is not there need not be deleted.
        let Some(info) = current else { return Ok(()) };
        let entry = Entry(info);
        let tag = match &self.tag {
            Some(ETagCondition::ETag(tag)) => tag.strong_cmp(&entry.tag()),
            Some(ETagCondition::Any) | None => true,
        };
        let id = self.id.is_none_or(|id| id == info.id);
        let size = self.size.is_none_or(|size| size == info.size as i64);
        let modified = self.modified.as_ref().is_none_or(|moment| *moment == entry.modified());
        if id && tag && size && modified {
            return Ok(());
        }
        Err(because(S3ErrorCode::PreconditionFailed, "the object is another one than the request says"))
    }
}

impl Gateway {
    /// Deletes a key or one of its versions. `bypass`: also one that is locked in governance mode.
    ///
    /// # Errors
    /// `AccessDenied`: the version is locked; `PreconditionFailed`: it is another one.
    pub(crate) async fn delete(
        &self,
        bucket: &Bucket,
        key: &str,
        version: Option<&str>,
        only: &Only,
        bypass: bool,
    ) -> S3Result<Deleted> {
        names::checked_key(key)?;
        let mut fresh = None;
        for _ in 0..TRIES {
            let bucket = fresh.as_ref().unwrap_or(bucket);
            let (change, mut deleted) = match version {
                Some(version) => match self.without(bucket, key, version, (only, bypass)).await? {
                    Some(found) => found,
                    None => return Ok(Deleted { marker: false, version: Some(version.to_owned()) }),
                },
                None => self.hidden(bucket, key, only).await?,
            };
            match self.client.change(&change).await.map_err(of)? {
                Changed::Done(made) => {
                    if let Some(marker) = made.first() {
                        deleted = Deleted { marker: true, version: Some(Entry(marker).version()) };
                    }
                    return Ok(deleted);
                }
                Changed::Unmet(_) => fresh = Some(self.bucket(&bucket.name).await?),
            }
        }
        Err(crowded(key))
    }

    /// A delete that names no version.
    async fn hidden(&self, bucket: &Bucket, key: &str, only: &Only) -> S3Result<(Change, Deleted)> {
        let name = names::object(&bucket.name, key);
        let versioning = bucket.versioning();
        if versioning == Versioning::Never && only.is_empty() {
            let steps = vec![Step::Remove { name }];
            return Ok((Change { checks: bucket.checks().into(), steps }, Deleted::default()));
        }
        let current = self.current(&name).await?;
        if current.is_none() && !only.is_empty() && versioning != Versioning::Never {
            // A delete marker is something that does not match.
            only.judge(self.newest_older(bucket, key).await?.as_ref())?;
        } else {
            only.judge(current.as_ref())?;
        }
        let (mut change, place) = self.put_aside(bucket, key, current.as_ref()).await?;
        change.checks.push(Check::Is { name, id: current.map(|info| info.id) });
        change.checks.extend(bucket.checks());
        if versioning != Versioning::Never {
            let mut facts = place;
            facts.insert(entry::MARKER.to_owned(), "1".to_owned());
            let attributes = Attributes { facts, ..Attributes::default() };
            let name = names::versions(&bucket.name, key);
            change.steps.push(Step::Mark { name, newest_first: true, attributes });
        }
        Ok((change, Deleted::default()))
    }

    /// A delete of one version: if it was the newest one, the one before it takes its place. `None`: there is none.
    async fn without(
        &self,
        bucket: &Bucket,
        key: &str,
        version: &str,
        (only, bypass): (&Only, bool),
    ) -> S3Result<Option<(Change, Deleted)>> {
        let name = names::object(&bucket.name, key);
        let older = names::versions(&bucket.name, key);
        let Named { current, found } = self.find_version(bucket, key, version).await?;
        let Some(target) = &found else { return Ok(None) };
        let is_current = current.as_ref().is_some_and(|info| info.id == target.id);
        let mut checks = vec![Check::Is { name: name.clone(), id: current.as_ref().map(|info| info.id) }];
        // The newest of the others, and the one that is the newest without it.
        let rest = self.client.list(&older, None, 2).await.map_err(of)?.objects;
        only.judge(Some(target))?;
        lock::may_remove(Entry(target), bypass)?;
        if bucket.fact(bucket::LOCK).is_some() {
            checks.push(lock::unchanged(Entry(target)));
        }
        checks.extend(bucket.checks());
        let mut steps = Vec::new();
        let deleted = Deleted { marker: Entry(target).is_marker(), version: Some(version.to_owned()) };
        let removed = if is_current { name.clone() } else { target.name.clone() };
        steps.push(Step::Remove { name: removed });
        checks.push(Check::First { prefix: older, id: rest.first().map(|info| info.id) });
        if !is_current {
            checks.push(Check::Is { name: target.name.clone(), id: Some(target.id) });
        }
        // Without a newest version of its own, the key shows the first of the others that is left.
        let next = rest.iter().find(|info| is_current || info.id != target.id);
        if let Some(next) = next.filter(|next| (is_current || current.is_none()) && !Entry(next).is_marker())
        {
            checks.push(Check::Is { name: next.name.clone(), id: Some(next.id) });
            steps.push(Step::Rename { from: next.name.clone(), to: name, newest_first: false });
        }
        Ok(Some((Change { checks, steps }, deleted)))
    }

    /// `DeleteObject`.
    pub(crate) async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let (input, asked) = (&request.input, request.input.bypass_governance_retention);
        let bypass = self.bypasses(&request, asked, (&input.key, input.version_id.as_deref())).await?;
        let input = request.input;
        let only = Only {
            id: None,
            tag: input.if_match,
            size: input.if_match_size,
            modified: input.if_match_last_modified_time,
        };
        let version = input.version_id.filter(|version| !version.is_empty());
        let deleted = self.delete(&bucket, &input.key, version.as_deref(), &only, bypass).await?;
        Ok(S3Response::new(DeleteObjectOutput {
            delete_marker: deleted.marker.then_some(true),
            version_id: deleted.version,
            ..DeleteObjectOutput::default()
        }))
    }

    /// `DeleteObjects`.
    pub(crate) async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let bypass = request.input.bypass_governance_retention == Some(true);
        let Delete { objects, quiet } = request.input.delete;
        if objects.is_empty() || objects.len() > MOST {
            let text = format!("expected 1 to {MOST} objects, got {}", objects.len());
            return Err(because(S3ErrorCode::MalformedXML, text));
        }
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let plain = |object: &ObjectIdentifier| {
            bucket.versioning() == Versioning::Never
                && object.version_id.is_none()
                && object.e_tag.is_none()
                && object.size.is_none()
                && object.last_modified_time.is_none()
        };
        let note = |key: &str, why: Option<&str>| {
            if let Some(attempt) = request.extensions.get::<Attempt>() {
                attempt.on(key).note(why);
            }
        };
        let (mut done, mut together) = (Vec::new(), Vec::new());
        for object in objects {
            let access = |action| AccessRequest {
                caller: &caller,
                bucket: &bucket,
                key: Some(&object.key),
                version: object.version_id.as_deref(),
                action,
                context: RequestContext::of(&request.headers, &request.uri, &request.extensions),
            };
            let allowed = match self.allow(access(actions::REMOVE)).await {
                Ok(_) if bypass => self.allow(access(actions::BYPASS)).await,
                allowed => allowed,
            };
            match allowed.and_then(|_| names::checked_key(&object.key)) {
                Err(error) => done.push((object.key, object.version_id, Err(error))),
                Ok(()) if plain(&object) => together.push(object.key),
                Ok(()) => {
                    let only = Only {
                        id: None,
                        tag: object.e_tag.map(ETagCondition::ETag),
                        size: object.size,
                        modified: object.last_modified_time,
                    };
                    let deleted =
                        self.delete(&bucket, &object.key, object.version_id.as_deref(), &only, bypass).await;
                    done.push((object.key, object.version_id, deleted));
                }
            }
        }
        // These are removed in one transaction; one by one if the bucket keeps versions by now.
        let remove = |key: &String| Step::Remove { name: names::object(&bucket.name, key) };
        let change = Change { checks: bucket.checks().into(), steps: together.iter().map(remove).collect() };
        let removed =
            together.is_empty() || matches!(self.client.change(&change).await.map_err(of)?, Changed::Done(_));
        for key in together {
            let deleted = match removed {
                true => Ok(Deleted::default()),
                false => self.delete(&bucket, &key, None, &Only::default(), bypass).await,
            };
            done.push((key, None, deleted));
        }
        for (key, version_id, done) in done {
            note(&key, done.as_ref().err().map(|error| error.message().unwrap_or_default()));
            match done {
                Ok(done) => deleted.push(DeletedObject {
                    delete_marker: done.marker.then_some(true),
                    delete_marker_version_id: done.version.filter(|_| done.marker),
                    key: Some(key),
                    version_id,
                }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    version_id,
                }),
            }
        }
        let quiet = quiet.unwrap_or(false);
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: (!quiet).then_some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            ..DeleteObjectsOutput::default()
        }))
    }
}

/// Others change the same key all the time.
pub(crate) fn crowded(key: &str) -> s3s::S3Error {
    let text = format!("{key:?} was changed by others {TRIES} times in a row; try again");
    because(S3ErrorCode::ConditionalRequestConflict, text)
}
