//! What keeps a bucket from becoming public by mistake, and who owns what others write into it.

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::bucket::{self, Bucket, written};
use crate::error::because;
use crate::gateway::{self, Gateway};
use crate::policy::Policy;

fn custom(code: &'static str, status: http::StatusCode, text: impl Into<String>) -> S3Error {
    let mut error = because(S3ErrorCode::Custom(code.into()), text);
    error.set_status_code(status);
    error
}

/// Whether everybody may do something with a bucket, by its policy or by its list of grants.
pub(crate) fn is_public(bucket: &Bucket) -> S3Result<bool> {
    let by_policy = match bucket.fact(bucket::POLICY) {
        Some(text) => Policy::parse(text, &bucket.name)?.is_public(),
        None => false,
    };
    Ok(by_policy || bucket.acl().is_public())
}

/// Checks who shall own new objects.
///
/// # Errors
/// `MalformedXML`.
pub(crate) fn checked_ownership(ownership: &str) -> S3Result<String> {
    let known = [
        ObjectOwnership::BUCKET_OWNER_ENFORCED,
        ObjectOwnership::BUCKET_OWNER_PREFERRED,
        ObjectOwnership::OBJECT_WRITER,
    ];
    if known.contains(&ownership) {
        return Ok(ownership.to_owned());
    }
    let text = format!("ObjectOwnership: expected one of {}, got {ownership:?}", known.join(", "));
    Err(because(S3ErrorCode::MalformedXML, text))
}

impl Gateway {
    /// `GetPublicAccessBlock`.
    pub(crate) async fn get_public_access_block(
        &self,
        request: S3Request<GetPublicAccessBlockInput>,
    ) -> S3Result<S3Response<GetPublicAccessBlockOutput>> {
        let blocks = gateway::bucket(&request.extensions)?.document(bucket::BLOCKS);
        let none = || {
            let text = "the bucket has no public access block";
            custom("NoSuchPublicAccessBlockConfiguration", http::StatusCode::NOT_FOUND, text)
        };
        let public_access_block_configuration = Some(blocks.ok_or_else(none)?);
        Ok(S3Response::new(GetPublicAccessBlockOutput { public_access_block_configuration }))
    }

    /// `PutPublicAccessBlock`.
    pub(crate) async fn put_public_access_block(
        &self,
        request: S3Request<PutPublicAccessBlockInput>,
    ) -> S3Result<S3Response<PutPublicAccessBlockOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let sent = request.input.public_access_block_configuration;
        let said = |value: Option<bool>| Some(value.unwrap_or(false));
        let blocks = PublicAccessBlockConfiguration {
            block_public_acls: said(sent.block_public_acls),
            block_public_policy: said(sent.block_public_policy),
            ignore_public_acls: said(sent.ignore_public_acls),
            restrict_public_buckets: said(sent.restrict_public_buckets),
        };
        self.set_bucket(&bucket, [(bucket::BLOCKS, written(&blocks)?)]).await?;
        Ok(S3Response::new(PutPublicAccessBlockOutput::default()))
    }

    /// `DeletePublicAccessBlock`.
    pub(crate) async fn delete_public_access_block(
        &self,
        request: S3Request<DeletePublicAccessBlockInput>,
    ) -> S3Result<S3Response<DeletePublicAccessBlockOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.set_bucket(&bucket, [(bucket::BLOCKS, None)]).await?;
        let output = DeletePublicAccessBlockOutput::default();
        Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
    }

    /// `GetBucketOwnershipControls`.
    pub(crate) async fn get_bucket_ownership_controls(
        &self,
        request: S3Request<GetBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<GetBucketOwnershipControlsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let none =
            || because(S3ErrorCode::OwnershipControlsNotFoundError, "the bucket has no ownership controls");
        let object_ownership = ObjectOwnership::from(bucket.ownership().ok_or_else(none)?.to_owned());
        let rules = vec![OwnershipControlsRule { object_ownership }];
        let ownership_controls = Some(OwnershipControls { rules });
        Ok(S3Response::new(GetBucketOwnershipControlsOutput { ownership_controls }))
    }

    /// `PutBucketOwnershipControls`.
    pub(crate) async fn put_bucket_ownership_controls(
        &self,
        request: S3Request<PutBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<PutBucketOwnershipControlsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let rules = request.input.ownership_controls.rules;
        let [rule] = rules.as_slice() else {
            let text = format!("expected one rule, got {}", rules.len());
            return Err(because(S3ErrorCode::MalformedXML, text));
        };
        let ownership = checked_ownership(rule.object_ownership.as_str())?;
        if ownership == ObjectOwnership::BUCKET_OWNER_ENFORCED && bucket.fact(bucket::ACL).is_some() {
            let text = "the bucket has an ACL that gives others rights; make it private first";
            return Err(because(S3ErrorCode::InvalidBucketAclWithObjectOwnership, text));
        }
        self.set_bucket(&bucket, [(bucket::OWNERSHIP, Some(ownership))]).await?;
        Ok(S3Response::new(PutBucketOwnershipControlsOutput::default()))
    }

    /// `DeleteBucketOwnershipControls`.
    pub(crate) async fn delete_bucket_ownership_controls(
        &self,
        request: S3Request<DeleteBucketOwnershipControlsInput>,
    ) -> S3Result<S3Response<DeleteBucketOwnershipControlsOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.set_bucket(&bucket, [(bucket::OWNERSHIP, None)]).await?;
        let output = DeleteBucketOwnershipControlsOutput::default();
        Ok(S3Response::with_status(output, http::StatusCode::NO_CONTENT))
    }
}
