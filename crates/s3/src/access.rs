//! The check of each request before it is carried out: the key is known, the bucket exists, and the caller may do it.
//!
//! In this order: a denial in the bucket's policy; the owner of the bucket, by a key with `create`; what the policy allows; the
//! rights of the key; what the lists of grants of bucket and object give. Nobody else may do anything. A public access block takes back what
//! a public policy or a grant to everybody would give.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Uri};
use kintsu_wire::message::ObjectInfo;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::dto::PostObjectInput;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

use crate::actions::{self, Action, Granted};
use crate::audit::Attempt;
use crate::bucket::{Bucket, POLICY};
use crate::condition::Circumstances;
use crate::entry::{self, Entry};
use crate::error::{Asked, because, invalid};
use crate::form::FormTags;
use crate::gateway::{self, Gateway};
use crate::keys::{Key, Keys, Right};
use crate::policy::{Effect, Policy};
use crate::{signed, tags};

/// Who calls: a key, or somebody without one.
#[derive(Debug)]
pub(crate) struct Caller {
    pub key: Option<Arc<Key>>,
}

impl Caller {
    /// The user.
    pub(crate) fn name(&self) -> &str {
        self.user().unwrap_or("anonymous")
    }

    /// The user; `None` for somebody without a key.
    pub(crate) fn user(&self) -> Option<&str> {
        self.key.as_ref().map(|key| key.user.as_str())
    }

    fn owns(&self, bucket: &Bucket) -> bool {
        self.key.as_ref().is_some_and(|key| key.create && key.user == bucket.owner())
    }
}

/// Where a request comes from; the server notes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin {
    pub peer: IpAddr,
    pub tls: bool,
}

/// What a request says of itself, for conditions of policies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestContext<'a> {
    pub headers: &'a HeaderMap,
    pub query: &'a str,
    pub origin: Option<Origin>,
}

impl<'a> RequestContext<'a> {
    /// What a request says.
    pub(crate) fn of(headers: &'a HeaderMap, uri: &'a Uri, extensions: &Extensions) -> Self {
        let origin = extensions.get::<Origin>().copied();
        Self { headers, query: uri.query().unwrap_or_default(), origin }
    }
}

/// The object by whose tags or grants a request was judged, by its id; `None`: there was none. It is kept among the extensions of the
/// request: by the time that the object is read, its key may show another one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged(Option<u64>);

impl Judged {
    fn by(object: Option<&Result<ObjectInfo, S3Error>>) -> Option<Self> {
        object.map(|found| Self(found.as_ref().ok().map(|info| info.id)))
    }
}

/// What somebody wants to do to a bucket, or to a key in it.
#[derive(Clone, Copy)]
pub(crate) struct AccessRequest<'a> {
    pub caller: &'a Caller,
    pub bucket: &'a Bucket,
    pub key: Option<&'a str>,
    pub version: Option<&'a str>,
    pub action: Action,
    pub context: RequestContext<'a>,
}

impl<'a> AccessRequest<'a> {
    /// To read an object.
    pub(crate) fn read(
        caller: &'a Caller,
        bucket: &'a Bucket,
        (key, version): (&'a str, Option<&'a str>),
        context: RequestContext<'a>,
    ) -> Self {
        let version = version.filter(|version| !version.is_empty());
        Self { caller, bucket, key: Some(key), version, action: actions::READ, context }
    }

    fn action(&self) -> &'static str {
        self.action.of_version.filter(|_| self.version.is_some()).unwrap_or(self.action.name)
    }

    fn resource(&self) -> String {
        match self.key {
            Some(key) => format!("arn:aws:s3:::{}/{key}", self.bucket.name),
            None => format!("arn:aws:s3:::{}", self.bucket.name),
        }
    }

    fn circumstances<'c>(
        &'c self,
        tags: &'c [(String, String)],
        prefix: Option<&'c str>,
    ) -> Circumstances<'c> {
        Circumstances {
            headers: self.context.headers,
            query: self.context.query,
            peer: self.context.origin.map(|origin| origin.peer),
            tls: self.context.origin.is_some_and(|origin| origin.tls),
            user: self.caller.user(),
            version: self.version,
            tags,
            prefix,
        }
    }

    /// Whether the caller may list the bucket, and so may know which keys there are.
    fn may_list(&self, policy: Option<&Policy>, public: bool) -> bool {
        let bucket = format!("arn:aws:s3:::{}", self.bucket.name);
        let effect = policy
            .and_then(|policy| policy.judge(actions::LIST.name, &bucket, &self.circumstances(&[], self.key)));
        let granted = || self.caller.key.as_ref().is_some_and(|key| key.has(Right::List, &self.bucket.name));
        effect != Some(Effect::Deny)
            && (effect == Some(Effect::Allow)
                || granted()
                || self.bucket.acl().gives(self.caller, "READ", public, &[self.bucket.owner()]))
    }
}

impl Gateway {
    /// Whether a caller may do something; the object that it depended on, if it did on one.
    ///
    /// # Errors
    /// `AccessDenied`; failures of the cluster.
    pub(crate) async fn allow(&self, access: AccessRequest<'_>) -> S3Result<Option<Judged>> {
        self.judge(access, None).await
    }

    /// Whether a caller may do to this object what it might do to the one by which its request was judged.
    ///
    /// # Errors
    /// `AccessDenied`; failures of the cluster.
    pub(crate) async fn allow_on(
        &self,
        access: AccessRequest<'_>,
        judged: Option<Judged>,
        info: &ObjectInfo,
    ) -> S3Result<()> {
        match judged {
            Some(Judged(id)) if id != Some(info.id) => self.judge(access, Some(info)).await.map(drop),
            _ => Ok(()),
        }
    }

    /// Judges a request by this object, or else by the one that it names, if that matters.
    async fn judge(
        &self,
        access: AccessRequest<'_>,
        object: Option<&ObjectInfo>,
    ) -> S3Result<Option<Judged>> {
        let (bucket, caller, action) = (access.bucket, access.caller, access.action());
        let policy = bucket.fact(POLICY).map(|text| Policy::parse(text, &bucket.name)).transpose()?;
        let mut object = object.map(|info| Ok(info.clone()));
        let mut tags = Vec::new();
        if policy.as_ref().is_some_and(Policy::asks_for_tags) {
            if object.is_none() {
                object = Some(self.requested_object(&access).await?);
            }
            let info = object.as_ref().and_then(|found| found.as_ref().ok());
            tags = tags::parse(info.and_then(|info| Entry(info).fact(entry::TAGS)).unwrap_or_default())?;
        }
        let effect = policy
            .as_ref()
            .and_then(|policy| policy.judge(action, &access.resource(), &access.circumstances(&tags, None)));
        let owns = caller.owns(bucket);
        // An owner who has denied everything to everybody must still be able to take that back.
        let may_repair =
            owns && matches!(action, "s3:GetBucketPolicy" | "s3:PutBucketPolicy" | "s3:DeleteBucketPolicy");
        let denied = || {
            let who = caller.user().unwrap_or("somebody without a key");
            Err(because(
                S3ErrorCode::AccessDenied,
                format!("{who} may not {action} on {}", access.resource()),
            ))
        };
        if effect == Some(Effect::Deny) && !may_repair {
            return denied();
        }
        if owns || caller.key.as_ref().is_some_and(|key| key.has(access.action.right, &bucket.name)) {
            return Ok(Judged::by(object.as_ref()));
        }
        let blocks = bucket.blocks();
        let restricted = blocks.restrict_public_buckets == Some(true);
        if effect == Some(Effect::Allow) && !(restricted && policy.as_ref().is_some_and(Policy::is_public)) {
            return Ok(Judged::by(object.as_ref()));
        }
        let public = blocks.ignore_public_acls != Some(true) && !restricted;
        let given = match access.action.granted {
            Granted::Never => false,
            Granted::Bucket(_) | Granted::Object(_) if bucket.is_enforced() => false,
            Granted::Bucket(right) => bucket.acl().gives(caller, right, public, &[bucket.owner()]),
            Granted::Object(right) => {
                let found = match object.take() {
                    Some(found) => found,
                    None => self.requested_object(&access).await?,
                };
                match found {
                    Ok(info) => {
                        let (entry, owner) = (Entry(&info), bucket.owner());
                        let given =
                            entry.acl(bucket).gives(caller, right, public, &[owner, entry.writer(bucket)]);
                        object = Some(Ok(info));
                        given
                    }
                    // Whoever may list is told that there is none. The request goes no further: what it asks for may appear
                    // meanwhile, and nobody has judged that.
                    Err(missing) if access.may_list(policy.as_ref(), public) => return Err(missing),
                    Err(_) => false,
                }
            }
        };
        if given { Ok(Judged::by(object.as_ref())) } else { denied() }
    }

    /// The object that a request is about, or the error that says that there is none.
    async fn requested_object(&self, access: &AccessRequest<'_>) -> S3Result<Result<ObjectInfo, S3Error>> {
        let Some(key) = access.key else {
            return Ok(Err(because(S3ErrorCode::NoSuchKey, "the request names no object")));
        };
        match self.version(access.bucket, key, access.version).await {
            Ok((_, info)) => Ok(Ok(info)),
            Err(error) => match error.code() {
                S3ErrorCode::NoSuchKey | S3ErrorCode::NoSuchVersion | S3ErrorCode::MethodNotAllowed => {
                    Ok(Err(error))
                }
                _ => Err(error),
            },
        }
    }
}

/// Knows the secrets.
pub(crate) struct Secrets(pub Arc<Keys>);

#[async_trait]
impl S3Auth for Secrets {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let key = self.0.find(access_key);
        let key =
            key.ok_or_else(|| because(S3ErrorCode::InvalidAccessKeyId, "there is no such access key"))?;
        Ok(SecretKey::from(key.secret.clone()))
    }
}

/// Checks requests.
pub(crate) struct AccessCheck(pub Arc<Gateway>);

impl AccessCheck {
    /// Whether this caller may make a request with these parameters.
    async fn may(
        &self,
        caller: &Caller,
        parameters: &[(String, String)],
        cx: &mut S3AccessContext<'_>,
    ) -> S3Result<()> {
        let gateway = &self.0;
        let operation = cx.s3_op().name().to_owned();
        let Some(bucket) = cx.s3_path().get_bucket_name().map(str::to_owned) else {
            // The list of buckets: each caller sees its own, and somebody without a key none.
            return Ok(());
        };
        if operation == "CreateBucket" {
            let may = |key: &Arc<Key>| key.create || key.has(Right::Admin, &bucket);
            return match caller.key.as_ref().is_some_and(may) {
                true => Ok(()),
                false => {
                    let text = format!("{} may not make the bucket {bucket}", caller.name());
                    Err(because(S3ErrorCode::AccessDenied, text))
                }
            };
        }
        if cx.headers().get("content-md5").is_some_and(|digest| digest.is_empty()) {
            return Err(because(
                S3ErrorCode::InvalidDigest,
                "Content-MD5: expected the base64 of 16 bytes, got nothing",
            ));
        }
        let found = Arc::new(gateway.bucket(&bucket).await?);
        cx.extensions_mut().insert(found.clone());
        let expected = cx.headers().get("x-amz-expected-bucket-owner");
        if expected.is_some_and(|expected| expected.as_bytes() != found.owner().as_bytes()) {
            let text = format!("the bucket {bucket} belongs to somebody else than the request expects");
            return Err(because(S3ErrorCode::AccessDenied, text));
        }
        // What decides is in the body: the operation checks each object, or the tags; a form has a check of its own.
        if ["DeleteObjects", "PutObjectTagging", "PostObject"].contains(&operation.as_str()) {
            return Ok(());
        }
        let origin = cx.extensions_mut().get::<Origin>().copied();
        let asked = actions::of(&operation);
        // An operation that makes a version has nothing to do with the one that its request may name.
        let version = parameter(parameters, "versionId").filter(|_| asked.of_version.is_some());
        let access = |action| AccessRequest {
            caller,
            bucket: &found,
            key: cx.s3_path().get_object_key(),
            version: version.filter(|version| !version.is_empty()),
            action,
            context: RequestContext {
                headers: cx.headers(),
                query: cx.uri().query().unwrap_or_default(),
                origin,
            },
        };
        let judged = gateway.allow(access(asked)).await?;
        if actions::obeys_headers(&operation) {
            for action in actions::asked_by(cx.headers(), found.owner()) {
                gateway.allow(access(action)).await?;
            }
        }
        if let Some(judged) = judged {
            cx.extensions_mut().insert(judged);
        }
        Ok(())
    }
}

/// The headers of a request as if they said which tags its object gets.
pub(crate) fn tagged(headers: &HeaderMap, tags: Option<&str>) -> S3Result<HeaderMap> {
    let mut headers = headers.clone();
    headers.remove(TAGGING);
    note(&mut headers, TAGGING, tags)?;
    Ok(headers)
}

const TAGGING: &str = "x-amz-tagging";

fn note(headers: &mut HeaderMap, name: &str, value: Option<&str>) -> S3Result<()> {
    let Some(value) = value else { return Ok(()) };
    let name = HeaderName::try_from(name).map_err(|error| invalid("form", "names of headers", error))?;
    let value = HeaderValue::from_bytes(value.as_bytes());
    let value = value.map_err(|_| invalid(name.as_str(), "a text that can be a header", "another one"))?;
    headers.insert(name, value);
    Ok(())
}

/// The headers of a put that says what a form says. Those of the form's own request say nothing about its object.
fn said_by_form(headers: &HeaderMap, form: &PostObjectInput) -> S3Result<HeaderMap> {
    let others = headers.iter().filter(|(name, _)| !name.as_str().starts_with("x-amz-"));
    let mut said: HeaderMap = others.map(|(name, value)| (name.clone(), value.clone())).collect();
    let until = form.object_lock_retain_until_date.as_ref().map(entry::written).transpose()?;
    for (name, value) in [
        ("x-amz-acl", form.acl.as_ref().map(|acl| acl.as_str())),
        ("x-amz-grant-full-control", form.grant_full_control.as_deref()),
        ("x-amz-grant-read", form.grant_read.as_deref()),
        ("x-amz-grant-read-acp", form.grant_read_acp.as_deref()),
        ("x-amz-grant-write-acp", form.grant_write_acp.as_deref()),
        (TAGGING, form.tagging.as_deref()),
        ("x-amz-storage-class", form.storage_class.as_ref().map(|class| class.as_str())),
        ("x-amz-website-redirect-location", form.website_redirect_location.as_deref()),
        ("x-amz-server-side-encryption", form.server_side_encryption.as_ref().map(|kind| kind.as_str())),
        ("x-amz-server-side-encryption-customer-algorithm", form.sse_customer_algorithm.as_deref()),
        ("x-amz-server-side-encryption-aws-kms-key-id", form.ssekms_key_id.as_deref()),
        ("x-amz-object-lock-mode", form.object_lock_mode.as_ref().map(|mode| mode.as_str())),
        ("x-amz-object-lock-retain-until-date", until.as_deref()),
        (
            "x-amz-object-lock-legal-hold",
            form.object_lock_legal_hold_status.as_ref().map(|hold| hold.as_str()),
        ),
    ] {
        note(&mut said, name, value)?;
    }
    for (name, value) in form.metadata.iter().flatten() {
        note(&mut said, &format!("x-amz-meta-{name}"), Some(value))?;
    }
    Ok(said)
}

/// The value of a parameter of a query. The library refuses a request that says it twice.
pub(crate) fn parameter<'p>(query: &'p [(String, String)], name: &str) -> Option<&'p str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[async_trait]
impl S3Access for AccessCheck {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        Asked::is(cx.s3_op().name());
        let key = cx.credentials().and_then(|known| self.0.keys.find(&known.access_key));
        let caller = Arc::new(Caller { key });
        Asked::is_of(caller.user());
        cx.extensions_mut().insert(caller.clone());
        let attempt = Attempt::of(cx, &caller);
        // Operations get parameters decoded, so they are judged decoded. What cannot be decoded is refused.
        let parameters = tags::parse(cx.uri().query().unwrap_or_default());
        let parameters = parameters.and_then(|known| {
            signed::check(&known, cx.headers(), SystemTime::now())?;
            Ok(known)
        });
        let checked = match parameters {
            Ok(parameters) => self.may(&caller, &parameters, cx).await,
            Err(error) => Err(error),
        };
        if let Some(attempt) = attempt {
            attempt.checked(&checked, cx.extensions_mut());
        }
        checked
    }

    async fn post_object(&self, request: &mut S3Request<PostObjectInput>) -> S3Result<()> {
        if let Some(FormTags(tags)) = request.extensions.remove() {
            request.input.tagging = Some(tags);
        }
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let checked = match said_by_form(&request.headers, &request.input) {
            Ok(headers) => {
                let context = RequestContext::of(&headers, &request.uri, &request.extensions);
                let (caller, bucket, key) = (&*caller, &*bucket, Some(&*request.input.key));
                let mut checked = Ok(());
                for action in [actions::WRITE].into_iter().chain(actions::asked_by(&headers, bucket.owner()))
                {
                    let access = AccessRequest { caller, bucket, key, version: None, action, context };
                    checked = self.0.allow(access).await.map(drop);
                    if checked.is_err() {
                        break;
                    }
                }
                checked
            }
            Err(error) => Err(error),
        };
        // Only the form says which key it is.
        if let Some(attempt) = request.extensions.remove::<Attempt>() {
            attempt.on(&request.input.key).checked(&checked, &mut request.extensions);
        }
        checked
    }
}
