//! The table of operations: each request of S3 is passed to the module that carries it out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_trait::async_trait;
use http::Extensions;
use kintsu_client::Client;
use s3s::dto::*;
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result};

use crate::access::Caller;
use crate::audit::Attempt;
use crate::body::{Claims, Intake};
use crate::bucket::{Bucket, Lookups};
use crate::error::{Asked, because};
use crate::memory::{Held, Memory, Told};
use crate::metrics::Counts;
use crate::server::Limits;
use crate::{Keys, S3GatewayError};

/// What the entity tag of an object is made of that comes in one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EntityTags {
    /// The MD5 of its bytes: clients may compare it.
    #[default]
    Md5,
    /// Its CRC-64 and size, which cost nothing, with `-1` behind them, so that no client takes it for an MD5. If the client
    /// sends an MD5, it is compared, and is the tag.
    Crc64,
}

/// How the gateway stores objects.
#[derive(Debug, Clone)]
pub struct Config {
    /// The code of objects for which nothing else is chosen.
    pub code: String,
    /// Codes by storage class, which a client names with each object. `STANDARD` is the class of those that name none.
    pub classes: BTreeMap<String, String>,
    /// Entity tags of new objects.
    pub tags: EntityTags,
    /// What clients may use.
    pub limits: Limits,
    /// The length of a day in lifecycle rules; 24 hours, except in tests.
    pub day: Duration,
}

impl Config {
    /// Everything in one code.
    pub fn new(code: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            classes: BTreeMap::new(),
            tags: EntityTags::default(),
            limits: Limits::default(),
            day: crate::lifecycle::DAY,
        }
    }

    /// Checks the codes' names and the limits.
    ///
    /// # Errors
    /// What was expected, and what came.
    pub fn check(&self) -> Result<(), S3GatewayError> {
        for code in self.classes.values().chain([&self.code]) {
            check_code(code).map_err(|got| S3GatewayError::Invalid {
                what: "code",
                expected: "a code such as rs:n=9,k=6".into(),
                got,
            })?;
        }
        if self.day < Duration::from_secs(1) {
            let (expected, got) = ("at least a second".into(), format!("{:?}", self.day));
            return Err(S3GatewayError::Invalid { what: "length of a day", expected, got });
        }
        self.limits.check()
    }
}

/// Checks the name of a code; one that is registered with the cluster is not looked up.
pub(crate) fn check_code(code: &str) -> Result<(), String> {
    if code.starts_with(kintsu_code::USER) {
        return Ok(());
    }
    kintsu_code::parse(code).map(drop).map_err(|e| format!("{code}: {e}"))
}

/// What every operation works with.
pub(crate) struct Gateway {
    pub client: Client,
    pub config: Config,
    pub keys: Arc<Keys>,
    pub counts: Arc<Counts>,
    memory: Arc<Memory>,
    pub lookups: Lookups,
}

impl Gateway {
    pub(crate) fn new(client: Client, keys: Arc<Keys>, config: Config) -> Self {
        let memory = Memory::new(config.limits.memory_bytes);
        Self { client, config, keys, counts: Arc::default(), memory, lookups: Lookups::default() }
    }

    /// A body of which `len` bytes are to come, if that is known otherwise than from itself.
    pub(crate) fn intake(&self, body: StreamingBlob, len: Option<u64>, claims: &Claims) -> Intake {
        Intake::new(body, len, claims, self.config.tags)
    }

    /// Waits until this many bytes may be held in memory for the request that is carried out.
    ///
    /// # Errors
    /// `SlowDown` after a while.
    pub(crate) async fn memory(&self, bytes: usize) -> S3Result<Held> {
        self.held(self.memory.take(&Asked::taker(), bytes)).await
    }

    /// The same for a body that is read before it is known who sends it.
    ///
    /// # Errors
    /// `SlowDown` after a while.
    pub(crate) async fn memory_of_strangers(&self, bytes: usize) -> S3Result<Held> {
        self.held(self.memory.take_unknown(bytes)).await
    }

    /// The parts of the memory at this moment.
    pub(crate) fn shares_of_memory(&self) -> [Told; 2] {
        self.memory.told()
    }

    async fn held(&self, taking: impl Future<Output = Option<Held>>) -> S3Result<Held> {
        match tokio::time::timeout(self.config.limits.patience, taking).await {
            Ok(Some(held)) => Ok(held),
            _ => {
                self.counts.without_memory.fetch_add(1, Relaxed);
                let text = "the server holds as many bytes as it may for you; try again";
                Err(because(S3ErrorCode::SlowDown, text))
            }
        }
    }

    /// The code of a new object.
    ///
    /// # Errors
    /// `InvalidStorageClass`.
    pub(crate) fn code(&self, bucket: &Bucket, class: Option<&str>) -> S3Result<String> {
        let standard = class.is_none_or(|class| class == StorageClass::STANDARD);
        if let Some(code) = self.config.classes.get(class.unwrap_or(StorageClass::STANDARD)) {
            // The bucket's code is what is usual in it.
            return Ok(bucket.code().filter(|_| standard).unwrap_or_else(|| code.clone()));
        }
        if standard {
            return Ok(bucket.code().unwrap_or_else(|| self.config.code.clone()));
        }
        let mut known: Vec<_> = self.config.classes.keys().map(String::as_str).collect();
        known.push(StorageClass::STANDARD);
        let text = format!("expected one of {}, got {}", known.join(", "), class.unwrap_or_default());
        Err(because(S3ErrorCode::InvalidStorageClass, text))
    }
}

/// The bucket of a request, which the access check has found.
pub(crate) fn bucket(extensions: &Extensions) -> S3Result<Arc<Bucket>> {
    let found = extensions.get::<Arc<Bucket>>().cloned();
    found.ok_or_else(|| because(S3ErrorCode::InternalError, "the request was not checked"))
}

/// Who calls.
pub(crate) fn caller(extensions: &Extensions) -> S3Result<Arc<Caller>> {
    let found = extensions.get::<Arc<Caller>>().cloned();
    found.ok_or_else(|| because(S3ErrorCode::InternalError, "the request was not checked"))
}

/// The operations, for the HTTP layer.
pub(crate) struct Operations(pub Arc<Gateway>);

macro_rules! operations {
    ($($name:ident, $input:ident, $output:ident;)*) => {
        #[async_trait]
        impl S3 for Operations {
            $(
                async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    let attempt = request.extensions.get::<Attempt>().cloned();
                    let done = self.0.$name(request).await;
                    if let Some(attempt) = attempt {
                        attempt.ended(done.as_ref().err());
                    }
                    done
                }
            )*
        }
    };
}

operations! {
    list_buckets, ListBucketsInput, ListBucketsOutput;
    create_bucket, CreateBucketInput, CreateBucketOutput;
    head_bucket, HeadBucketInput, HeadBucketOutput;
    delete_bucket, DeleteBucketInput, DeleteBucketOutput;
    get_bucket_location, GetBucketLocationInput, GetBucketLocationOutput;
    get_bucket_acl, GetBucketAclInput, GetBucketAclOutput;
    put_bucket_acl, PutBucketAclInput, PutBucketAclOutput;
    get_bucket_versioning, GetBucketVersioningInput, GetBucketVersioningOutput;
    put_bucket_versioning, PutBucketVersioningInput, PutBucketVersioningOutput;
    get_bucket_tagging, GetBucketTaggingInput, GetBucketTaggingOutput;
    put_bucket_tagging, PutBucketTaggingInput, PutBucketTaggingOutput;
    delete_bucket_tagging, DeleteBucketTaggingInput, DeleteBucketTaggingOutput;
    get_bucket_policy, GetBucketPolicyInput, GetBucketPolicyOutput;
    put_bucket_policy, PutBucketPolicyInput, PutBucketPolicyOutput;
    delete_bucket_policy, DeleteBucketPolicyInput, DeleteBucketPolicyOutput;
    get_bucket_policy_status, GetBucketPolicyStatusInput, GetBucketPolicyStatusOutput;
    list_objects, ListObjectsInput, ListObjectsOutput;
    list_objects_v2, ListObjectsV2Input, ListObjectsV2Output;
    list_object_versions, ListObjectVersionsInput, ListObjectVersionsOutput;
    put_object, PutObjectInput, PutObjectOutput;
    get_object, GetObjectInput, GetObjectOutput;
    head_object, HeadObjectInput, HeadObjectOutput;
    get_object_attributes, GetObjectAttributesInput, GetObjectAttributesOutput;
    copy_object, CopyObjectInput, CopyObjectOutput;
    delete_object, DeleteObjectInput, DeleteObjectOutput;
    delete_objects, DeleteObjectsInput, DeleteObjectsOutput;
    get_bucket_cors, GetBucketCorsInput, GetBucketCorsOutput;
    put_bucket_cors, PutBucketCorsInput, PutBucketCorsOutput;
    delete_bucket_cors, DeleteBucketCorsInput, DeleteBucketCorsOutput;
    get_bucket_lifecycle_configuration, GetBucketLifecycleConfigurationInput, GetBucketLifecycleConfigurationOutput;
    put_bucket_lifecycle_configuration, PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput;
    delete_bucket_lifecycle, DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput;
    get_public_access_block, GetPublicAccessBlockInput, GetPublicAccessBlockOutput;
    put_public_access_block, PutPublicAccessBlockInput, PutPublicAccessBlockOutput;
    delete_public_access_block, DeletePublicAccessBlockInput, DeletePublicAccessBlockOutput;
    get_bucket_ownership_controls, GetBucketOwnershipControlsInput, GetBucketOwnershipControlsOutput;
    put_bucket_ownership_controls, PutBucketOwnershipControlsInput, PutBucketOwnershipControlsOutput;
    delete_bucket_ownership_controls, DeleteBucketOwnershipControlsInput, DeleteBucketOwnershipControlsOutput;
    get_object_lock_configuration, GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput;
    put_object_lock_configuration, PutObjectLockConfigurationInput, PutObjectLockConfigurationOutput;
    get_object_retention, GetObjectRetentionInput, GetObjectRetentionOutput;
    put_object_retention, PutObjectRetentionInput, PutObjectRetentionOutput;
    get_object_legal_hold, GetObjectLegalHoldInput, GetObjectLegalHoldOutput;
    put_object_legal_hold, PutObjectLegalHoldInput, PutObjectLegalHoldOutput;
    get_object_acl, GetObjectAclInput, GetObjectAclOutput;
    put_object_acl, PutObjectAclInput, PutObjectAclOutput;
    get_object_tagging, GetObjectTaggingInput, GetObjectTaggingOutput;
    put_object_tagging, PutObjectTaggingInput, PutObjectTaggingOutput;
    delete_object_tagging, DeleteObjectTaggingInput, DeleteObjectTaggingOutput;
    create_multipart_upload, CreateMultipartUploadInput, CreateMultipartUploadOutput;
    upload_part, UploadPartInput, UploadPartOutput;
    upload_part_copy, UploadPartCopyInput, UploadPartCopyOutput;
    complete_multipart_upload, CompleteMultipartUploadInput, CompleteMultipartUploadOutput;
    abort_multipart_upload, AbortMultipartUploadInput, AbortMultipartUploadOutput;
    list_multipart_uploads, ListMultipartUploadsInput, ListMultipartUploadsOutput;
    list_parts, ListPartsInput, ListPartsOutput;
}
