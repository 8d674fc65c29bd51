//! Buckets and their settings: made, listed, removed; tags, policies; and how facts of objects change.

use std::collections::BTreeMap;

use kintsu_client::ClientError;
use kintsu_wire::message::{Change, Changed, Check, Step};
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::access::{self, AccessRequest, Caller, RequestContext};
use crate::acl::Asked;
use crate::bucket::{self, Bucket, CODE_TAG, written};
use crate::entry::{self, Entry};
use crate::error::{because, invalid, of};
use crate::gateway::{self, Gateway, check_code};
use crate::keys::Right;
use crate::policy::Policy;
use crate::{actions, public, tags};

impl Gateway {
    /// `ListBuckets`: those that the caller owns or has a right for.
    pub(crate) async fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let caller = gateway::caller(&request.extensions)?;
        let input = request.input;
        let prefix = input.prefix.clone().unwrap_or_default();
        let after = input.continuation_token.clone().unwrap_or_default();
        let sees = |bucket: &Bucket| {
            let key = caller.key.as_ref();
            key.is_some_and(|key| key.user == bucket.owner() || key.has(Right::List, &bucket.name))
        };
        let mut shown: Vec<_> = self.buckets().await?;
        shown.retain(|bucket| sees(bucket) && bucket.name.starts_with(&prefix) && bucket.name > after);
        let most = usize::try_from(input.max_buckets.unwrap_or(10_000)).unwrap_or(0);
        let more = shown.len() > most;
        shown.truncate(most);
        let last = shown.last().map(|bucket| bucket.name.clone());
        let buckets = shown.into_iter().map(|bucket| s3s::dto::Bucket {
            bucket_region: None,
            creation_date: Some(seconds(bucket.created)),
            name: Some(bucket.name),
        });
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            continuation_token: last.filter(|_| more),
            owner: Some(entry::owner_of(caller.name())),
            prefix: input.prefix,
        }))
    }

    /// `CreateBucket`.
    pub(crate) async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let caller = gateway::caller(&request.extensions)?;
        let input = request.input;
        if [".-", "-."].iter().any(|pair| input.bucket.contains(pair)) {
            let text = format!("expected no hyphen beside a dot, got {}", input.bucket);
            return Err(because(S3ErrorCode::InvalidBucketName, text));
        }
        let (read, write, full) = (input.grant_read, input.grant_write, input.grant_full_control);
        let grants = [read, write, input.grant_read_acp, input.grant_write_acp, full];
        let canned = input.acl.as_ref().map(BucketCannedACL::as_str);
        let asked = Asked::of_call(canned, grants, None);
        let acl = self.bucket_list(caller.name(), &asked)?;
        let mut facts = BTreeMap::from([(bucket::OWNER.to_owned(), caller.name().to_owned())]);
        facts.extend(acl.clone().map(|acl| (bucket::ACL.to_owned(), acl)));
        if let Some(ownership) = input.object_ownership {
            let ownership = public::checked_ownership(ownership.as_str())?;
            if ownership == ObjectOwnership::BUCKET_OWNER_ENFORCED && acl.is_some() {
                let text = "expected no ACL with BucketOwnerEnforced";
                return Err(because(S3ErrorCode::InvalidBucketAclWithObjectOwnership, text));
            }
            facts.insert(bucket::OWNERSHIP.to_owned(), ownership);
        }
        if input.object_lock_enabled_for_bucket == Some(true) {
            let enabled = Some(ObjectLockEnabled::from_static(ObjectLockEnabled::ENABLED));
            let config = ObjectLockConfiguration { object_lock_enabled: enabled, rule: None };
            facts.extend(written(&config)?.map(|config| (bucket::LOCK.to_owned(), config)));
            let status = BucketVersioningStatus::ENABLED.to_owned();
            facts.insert(bucket::VERSIONING.to_owned(), status);
        }
        let output = CreateBucketOutput { location: Some(format!("/{}", input.bucket)) };
        match self.make_bucket(&input.bucket, facts).await? {
            Ok(()) => Ok(S3Response::new(output)),
            // As S3's first region does: who owns it may make it again.
            Err(there) if there.owner() == caller.name() && there.fact(bucket::ACL) == acl.as_deref() => {
                Ok(S3Response::new(output))
            }
            Err(there) if there.owner() == caller.name() => {
                let text = format!("the bucket {} is there, with another ACL", input.bucket);
                Err(because(S3ErrorCode::BucketAlreadyExists, text))
            }
            Err(_) => {
                let text = format!("the bucket {} belongs to somebody else", input.bucket);
                Err(because(S3ErrorCode::BucketAlreadyExists, text))
            }
        }
    }

    /// `HeadBucket`.
    pub(crate) async fn head_bucket(
        &self,
        _: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    /// `DeleteBucket`.
    pub(crate) async fn delete_bucket(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.remove_bucket(&bucket).await?;
        Ok(S3Response::with_status(DeleteBucketOutput::default(), http::StatusCode::NO_CONTENT))
    }

    /// `GetBucketLocation`.
    pub(crate) async fn get_bucket_location(
        &self,
        _: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }

    /// `GetBucketTagging`.
    pub(crate) async fn get_bucket_tagging(
        &self,
        request: S3Request<GetBucketTaggingInput>,
    ) -> S3Result<S3Response<GetBucketTaggingOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let form = bucket.fact(bucket::TAGS);
        let form = form.ok_or_else(|| because(S3ErrorCode::NoSuchTagSet, "the bucket has no tags"))?;
        Ok(S3Response::new(GetBucketTaggingOutput { tag_set: tags::to_set(Some(form))? }))
    }

    /// `PutBucketTagging`. The tag `kintsu.code` chooses the code of new objects.
    pub(crate) async fn put_bucket_tagging(
        &self,
        request: S3Request<PutBucketTaggingInput>,
    ) -> S3Result<S3Response<PutBucketTaggingOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let form = tags::from_set(request.input.tagging.tag_set, tags::OF_BUCKET)?;
        if let Some((_, code)) = tags::parse(&form)?.into_iter().find(|(key, _)| key == CODE_TAG) {
            check_code(&code).map_err(|got| invalid(CODE_TAG, "a code such as rs:n=9,k=6", got))?;
        }
        self.set_bucket(&bucket, [(bucket::TAGS, Some(form))]).await?;
        Ok(S3Response::with_status(PutBucketTaggingOutput::default(), http::StatusCode::NO_CONTENT))
    }

    /// `DeleteBucketTagging`.
    pub(crate) async fn delete_bucket_tagging(
        &self,
        request: S3Request<DeleteBucketTaggingInput>,
    ) -> S3Result<S3Response<DeleteBucketTaggingOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.set_bucket(&bucket, [(bucket::TAGS, None)]).await?;
        Ok(S3Response::with_status(DeleteBucketTaggingOutput::default(), http::StatusCode::NO_CONTENT))
    }

    /// `GetBucketPolicy`.
    pub(crate) async fn get_bucket_policy(
        &self,
        request: S3Request<GetBucketPolicyInput>,
    ) -> S3Result<S3Response<GetBucketPolicyOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let policy = bucket.fact(bucket::POLICY).map(str::to_owned);
        let none = || because(S3ErrorCode::NoSuchBucketPolicy, "the bucket has no policy");
        Ok(S3Response::new(GetBucketPolicyOutput { policy: Some(policy.ok_or_else(none)?) }))
    }

    /// `PutBucketPolicy`.
    pub(crate) async fn put_bucket_policy(
        &self,
        request: S3Request<PutBucketPolicyInput>,
    ) -> S3Result<S3Response<PutBucketPolicyOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let text = request.input.policy;
        let policy = Policy::parse(&text, &bucket.name)?;
        if policy.is_public() && bucket.blocks().block_public_policy == Some(true) {
            let text = "the bucket's public access block refuses public policies";
            return Err(because(S3ErrorCode::AccessDenied, text));
        }
        self.set_bucket(&bucket, [(bucket::POLICY, Some(text))]).await?;
        Ok(S3Response::with_status(PutBucketPolicyOutput::default(), http::StatusCode::NO_CONTENT))
    }

    /// `DeleteBucketPolicy`.
    pub(crate) async fn delete_bucket_policy(
        &self,
        request: S3Request<DeleteBucketPolicyInput>,
    ) -> S3Result<S3Response<DeleteBucketPolicyOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.set_bucket(&bucket, [(bucket::POLICY, None)]).await?;
        Ok(S3Response::with_status(DeleteBucketPolicyOutput::default(), http::StatusCode::NO_CONTENT))
    }

    /// `GetBucketPolicyStatus`.
    pub(crate) async fn get_bucket_policy_status(
        &self,
        request: S3Request<GetBucketPolicyStatusInput>,
    ) -> S3Result<S3Response<GetBucketPolicyStatusOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let policy_status = Some(PolicyStatus { is_public: Some(public::is_public(&bucket)?) });
        Ok(S3Response::new(GetBucketPolicyStatusOutput { policy_status }))
    }

    /// `GetObjectTagging`.
    pub(crate) async fn get_object_tagging(
        &self,
        request: S3Request<GetObjectTaggingInput>,
    ) -> S3Result<S3Response<GetObjectTaggingOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let (_, info) = self.version(&bucket, &input.key, input.version_id.as_deref()).await?;
        let entry = Entry(&info);
        Ok(S3Response::new(GetObjectTaggingOutput {
            tag_set: tags::to_set(entry.fact(entry::TAGS))?,
            version_id: entry.is_versioned().then(|| entry.version()),
        }))
    }

    /// `PutObjectTagging`.
    pub(crate) async fn put_object_tagging(
        &self,
        request: S3Request<PutObjectTaggingInput>,
    ) -> S3Result<S3Response<PutObjectTaggingOutput>> {
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let input = request.input;
        let form = tags::from_set(input.tagging.tag_set, tags::OF_OBJECT)?;
        // Conditions may ask for the tags, which stand in the body.
        let headers = access::tagged(&request.headers, Some(&form))?;
        let access = AccessRequest {
            caller: &caller,
            bucket: &bucket,
            key: Some(&input.key),
            version: input.version_id.as_deref().filter(|version| !version.is_empty()),
            action: actions::of("PutObjectTagging"),
            context: RequestContext::of(&headers, &request.uri, &request.extensions),
        };
        self.allow(access).await?;
        let retag = |_: Entry<'_>| Ok([(entry::TAGS.to_owned(), Some(form.clone()))].into());
        let version_id = self.describe(&bucket, &input.key, input.version_id.as_deref(), retag).await?;
        Ok(S3Response::new(PutObjectTaggingOutput { version_id }))
    }

    /// `DeleteObjectTagging`.
    pub(crate) async fn delete_object_tagging(
        &self,
        request: S3Request<DeleteObjectTaggingInput>,
    ) -> S3Result<S3Response<DeleteObjectTaggingOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let untag = |_: Entry<'_>| Ok([(entry::TAGS.to_owned(), None)].into());
        let version_id = self.describe(&bucket, &input.key, input.version_id.as_deref(), untag).await?;
        let output = DeleteObjectTaggingOutput { version_id };
        Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
    }

    /// Changes facts of an object, which may get another name or another version meanwhile; returns the version. `news`
    /// tells the new facts of the object as it is; what it judges by must be among them.
    pub(crate) async fn describe(
        &self,
        bucket: &Bucket,
        key: &str,
        version: Option<&str>,
        news: impl Fn(Entry<'_>) -> S3Result<BTreeMap<String, Option<String>>>,
    ) -> S3Result<Option<String>> {
        for _ in 0..crate::delete::TRIES {
            let (name, info) = self.version(bucket, key, version).await?;
            let entry = Entry(&info);
            let facts = news(entry)?;
            let before = facts.keys().map(|name| (name.clone(), entry.owned(name))).collect();
            let checks = vec![
                Check::Is { name: name.clone(), id: Some(info.id) },
                Check::Facts { name: name.clone(), facts: before },
            ];
            let change = Change { checks, steps: vec![Step::Describe { name, facts }] };
            match self.client.change(&change).await {
                Ok(Changed::Done(_)) => return Ok(entry.is_versioned().then(|| entry.version())),
                Ok(Changed::Unmet(_)) | Err(ClientError::NotFound(_)) => {}
                Err(other) => return Err(of(other)),
            }
        }
        Err(crate::delete::crowded(key))
    }
}

fn seconds(since_1970: u64) -> Timestamp {
    Timestamp::from(std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(since_1970))
}

/// The caller as an initiator of uploads.
pub(crate) fn initiator(caller: &Caller) -> Initiator {
    Initiator { display_name: Some(caller.name().to_owned()), id: Some(caller.name().to_owned()) }
}
