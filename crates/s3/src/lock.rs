//! Object lock: versions that stay until a date (retention) or until somebody lets go (legal hold).
//!
//! A lock is a fact of the version. Whoever removes the version or changes the lock has the transaction check that the
//! lock is still the one that was judged. A lock binds clients of S3, at all gateways; `kintsu rm` does not know it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use kintsu_wire::message::Check;
use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::access::{AccessRequest, RequestContext};
use crate::actions;
use crate::bucket::{self, Bucket, Versioning, written};
use crate::entry::{self, Entry, retained};
use crate::error::{because, invalid};
use crate::gateway::{self, Gateway};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The longest time that new objects may be locked for: a hundred years.
const MOST_DAYS: i32 = 36_500;

const GOVERNANCE: &str = ObjectLockRetentionMode::GOVERNANCE;
const COMPLIANCE: &str = ObjectLockRetentionMode::COMPLIANCE;

fn malformed(what: &str, expected: &str, got: &str) -> s3s::S3Error {
    because(S3ErrorCode::MalformedXML, format!("{what}: expected {expected}, got {got:?}"))
}

fn checked_mode(mode: &str) -> S3Result<()> {
    match mode {
        GOVERNANCE | COMPLIANCE => Ok(()),
        other => Err(malformed("Mode", "GOVERNANCE or COMPLIANCE", other)),
    }
}

fn checked_hold(status: &str) -> S3Result<()> {
    match status {
        ObjectLockLegalHoldStatus::ON | ObjectLockLegalHoldStatus::OFF => Ok(()),
        other => Err(malformed("Status", "ON or OFF", other)),
    }
}

fn checked(config: &ObjectLockConfiguration) -> S3Result<()> {
    let enabled = config.object_lock_enabled.as_ref().map(ObjectLockEnabled::as_str).unwrap_or_default();
    if enabled != ObjectLockEnabled::ENABLED {
        return Err(malformed("ObjectLockEnabled", "Enabled", enabled));
    }
    let Some(retention) = config.rule.as_ref().and_then(|rule| rule.default_retention.as_ref()) else {
        return Ok(());
    };
    checked_mode(retention.mode.as_ref().map(ObjectLockRetentionMode::as_str).unwrap_or_default())?;
    let days = match (retention.days, retention.years) {
        (Some(days), None) => days,
        (None, Some(years)) => years.saturating_mul(365),
        _ => return Err(malformed("DefaultRetention", "Days or Years", "both or none")),
    };
    if !(1..=MOST_DAYS).contains(&days) {
        let mut error = because(
            S3ErrorCode::Custom("InvalidRetentionPeriod".into()),
            format!("expected a retention of 1 to {MOST_DAYS} days, got {days}"),
        );
        error.set_status_code(http::StatusCode::BAD_REQUEST);
        return Err(error);
    }
    Ok(())
}

/// What a put says of the lock of its object.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub mode: Option<ObjectLockMode>,
    pub until: Option<Timestamp>,
    pub hold: Option<ObjectLockLegalHoldStatus>,
}

impl Wanted {
    /// The facts for it.
    ///
    /// # Errors
    /// The bucket has no object lock; something that cannot be.
    pub(crate) fn facts(self, bucket: &Bucket) -> S3Result<BTreeMap<String, String>> {
        let mut facts = BTreeMap::new();
        if self.mode.is_none() && self.until.is_none() && self.hold.is_none() {
            return Ok(facts);
        }
        needs_lock(bucket)?;
        match (self.mode, self.until) {
            (None, None) => {}
            (Some(mode), Some(until)) => {
                checked_mode(mode.as_str())?;
                in_future(&until)?;
                facts.insert(entry::LOCK.to_owned(), retained(mode.as_str(), &until)?);
            }
            _ => {
                let text = "expected both x-amz-object-lock-mode and -retain-until-date, got one of them";
                return Err(because(S3ErrorCode::InvalidArgument, text));
            }
        }
        if let Some(hold) = self.hold {
            checked_hold(hold.as_str())?;
            facts.insert(entry::HOLD.to_owned(), hold.as_str().to_owned());
        }
        Ok(facts)
    }
}

/// Adds the lock that new objects of a bucket get, if they have none of their own.
pub(crate) fn add_default(bucket: &Bucket, facts: &mut BTreeMap<String, String>) -> S3Result<()> {
    let config = bucket.document::<ObjectLockConfiguration>(bucket::LOCK);
    let retention = config.and_then(|config| config.rule).and_then(|rule| rule.default_retention);
    let Some(DefaultRetention { days, mode, years }) = retention else { return Ok(()) };
    if facts.contains_key(entry::LOCK) {
        return Ok(());
    }
    let days = days.or(years.map(|years| years.saturating_mul(365))).unwrap_or(0).clamp(0, MOST_DAYS);
    let until = Timestamp::from(SystemTime::now() + DAY * days.unsigned_abs());
    let mode = mode.as_ref().map(ObjectLockRetentionMode::as_str).unwrap_or(GOVERNANCE);
    facts.insert(entry::LOCK.to_owned(), retained(mode, &until)?);
    Ok(())
}

fn needs_lock(bucket: &Bucket) -> S3Result<()> {
    match bucket.fact(bucket::LOCK) {
        Some(_) => Ok(()),
        None => Err(because(S3ErrorCode::InvalidRequest, "the bucket has no object lock")),
    }
}

fn in_future(until: &Timestamp) -> S3Result<()> {
    if *until > Timestamp::from(SystemTime::now()) {
        return Ok(());
    }
    Err(invalid("retain-until-date", "a date in the future", format!("{until:?}")))
}

/// The mode and the end of a retention that has not ended.
fn active(entry: Entry<'_>) -> Option<(String, Timestamp)> {
    let ObjectLockRetention { mode, retain_until_date } = entry.retention()?;
    let until = retain_until_date.filter(|until| *until > Timestamp::from(SystemTime::now()))?;
    Some((mode.map(|mode| mode.as_str().to_owned()).unwrap_or_default(), until))
}

fn locked(text: &str) -> s3s::S3Error {
    because(S3ErrorCode::AccessDenied, format!("the version is locked: {text}"))
}

/// Whether a version may be removed. `bypass`: the caller may pass by governance mode.
///
/// # Errors
/// `AccessDenied`: it is locked.
pub(crate) fn may_remove(entry: Entry<'_>, bypass: bool) -> S3Result<()> {
    if entry.fact(entry::HOLD) == Some(ObjectLockLegalHoldStatus::ON) {
        return Err(locked("it has a legal hold"));
    }
    match active(entry) {
        Some((mode, _)) if mode != GOVERNANCE || !bypass => Err(locked("its retention has not ended")),
        _ => Ok(()),
    }
}

/// That the lock of a version is the one that was judged.
pub(crate) fn unchanged(entry: Entry<'_>) -> Check {
    let facts = [entry::LOCK, entry::HOLD].map(|name| (name.to_owned(), entry.owned(name)));
    Check::Facts { name: entry.0.name.clone(), facts: facts.into() }
}

/// Whether a retention may become another one.
fn may_change(entry: Entry<'_>, new: &ObjectLockRetention, bypass: bool) -> S3Result<()> {
    let Some((mode, until)) = active(entry) else { return Ok(()) };
    let same_mode = new.mode.as_ref().is_some_and(|new| new.as_str() == mode);
    let longer = new.retain_until_date.as_ref().is_some_and(|new| *new >= until);
    match mode.as_str() {
        _ if same_mode && longer => Ok(()),
        GOVERNANCE if bypass => Ok(()),
        _ => Err(locked("its retention can only become longer")),
    }
}

impl Gateway {
    /// Whether a request asks to pass by the governance mode of a version, and its caller may.
    pub(crate) async fn bypasses<T>(
        &self,
        request: &S3Request<T>,
        asked: Option<bool>,
        (key, version): (&str, Option<&str>),
    ) -> S3Result<bool> {
        if asked != Some(true) {
            return Ok(false);
        }
        let (bucket, caller) = (gateway::bucket(&request.extensions)?, gateway::caller(&request.extensions)?);
        let context = RequestContext::of(&request.headers, &request.uri, &request.extensions);
        let (caller, bucket, key) = (&*caller, &*bucket, Some(key));
        let version = version.filter(|version| !version.is_empty());
        self.allow(AccessRequest { caller, bucket, key, version, action: actions::BYPASS, context }).await?;
        Ok(true)
    }

    /// `GetObjectLockConfiguration`.
    pub(crate) async fn get_object_lock_configuration(
        &self,
        request: S3Request<GetObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<GetObjectLockConfigurationOutput>> {
        let config = gateway::bucket(&request.extensions)?.document(bucket::LOCK);
        let none =
            || because(S3ErrorCode::ObjectLockConfigurationNotFoundError, "the bucket has no object lock");
        let object_lock_configuration = Some(config.ok_or_else(none)?);
        Ok(S3Response::new(GetObjectLockConfigurationOutput { object_lock_configuration }))
    }

    /// `PutObjectLockConfiguration`.
    pub(crate) async fn put_object_lock_configuration(
        &self,
        request: S3Request<PutObjectLockConfigurationInput>,
    ) -> S3Result<S3Response<PutObjectLockConfigurationOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let config = request.input.object_lock_configuration;
        let config = config.ok_or_else(|| malformed("body", "an ObjectLockConfiguration", "none"))?;
        checked(&config)?;
        if bucket.versioning() != Versioning::Enabled {
            let text = "a bucket needs versions for object lock";
            return Err(because(S3ErrorCode::InvalidBucketState, text));
        }
        self.set_bucket(&bucket, [(bucket::LOCK, written(&config)?)]).await?;
        Ok(S3Response::new(PutObjectLockConfigurationOutput::default()))
    }

    /// `GetObjectRetention`.
    pub(crate) async fn get_object_retention(
        &self,
        request: S3Request<GetObjectRetentionInput>,
    ) -> S3Result<S3Response<GetObjectRetentionOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        needs_lock(&bucket)?;
        let input = request.input;
        let (_, info) = self.version(&bucket, &input.key, input.version_id.as_deref()).await?;
        let none = || because(S3ErrorCode::NoSuchObjectLockConfiguration, "the version has no retention");
        let retention = Some(Entry(&info).retention().ok_or_else(none)?);
        Ok(S3Response::new(GetObjectRetentionOutput { retention }))
    }

    /// `PutObjectRetention`. One without a mode ends a retention.
    pub(crate) async fn put_object_retention(
        &self,
        request: S3Request<PutObjectRetentionInput>,
    ) -> S3Result<S3Response<PutObjectRetentionOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        needs_lock(&bucket)?;
        let (input, asked) = (&request.input, request.input.bypass_governance_retention);
        let bypass = self.bypasses(&request, asked, (&input.key, input.version_id.as_deref())).await?;
        let input = request.input;
        let new = input.retention.unwrap_or_default();
        let fact = match (&new.mode, &new.retain_until_date) {
            (None, None) => None,
            (Some(mode), Some(until)) => {
                checked_mode(mode.as_str())?;
                in_future(until)?;
                Some(retained(mode.as_str(), until)?)
            }
            _ => return Err(malformed("Retention", "Mode and RetainUntilDate", "one of them")),
        };
        self.describe(&bucket, &input.key, input.version_id.as_deref(), |entry| {
            may_change(entry, &new, bypass)?;
            Ok([(entry::LOCK.to_owned(), fact.clone())].into())
        })
        .await?;
        Ok(S3Response::new(PutObjectRetentionOutput::default()))
    }

    /// `GetObjectLegalHold`.
    pub(crate) async fn get_object_legal_hold(
        &self,
        request: S3Request<GetObjectLegalHoldInput>,
    ) -> S3Result<S3Response<GetObjectLegalHoldOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        needs_lock(&bucket)?;
        let input = request.input;
        let (_, info) = self.version(&bucket, &input.key, input.version_id.as_deref()).await?;
        let none = || because(S3ErrorCode::NoSuchObjectLockConfiguration, "the version has no legal hold");
        let status = Some(Entry(&info).hold().ok_or_else(none)?);
        Ok(S3Response::new(GetObjectLegalHoldOutput { legal_hold: Some(ObjectLockLegalHold { status }) }))
    }

    /// `PutObjectLegalHold`.
    pub(crate) async fn put_object_legal_hold(
        &self,
        request: S3Request<PutObjectLegalHoldInput>,
    ) -> S3Result<S3Response<PutObjectLegalHoldOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        needs_lock(&bucket)?;
        let input = request.input;
        let status = input.legal_hold.and_then(|hold| hold.status);
        let status = status.map(|status| status.as_str().to_owned()).unwrap_or_default();
        checked_hold(&status)?;
        self.describe(&bucket, &input.key, input.version_id.as_deref(), |_| {
            Ok([(entry::HOLD.to_owned(), Some(status.clone()))].into())
        })
        .await?;
        Ok(S3Response::new(PutObjectLegalHoldOutput::default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kintsu_wire::message::ObjectInfo;

    fn from_now(seconds: i64) -> Timestamp {
        let by = Duration::from_secs(seconds.unsigned_abs());
        let now = SystemTime::now();
        Timestamp::from(if seconds < 0 { now - by } else { now + by })
    }

    fn retention(mode: &str, seconds: i64) -> ObjectLockRetention {
        ObjectLockRetention {
            mode: Some(ObjectLockRetentionMode::from(mode.to_owned())),
            retain_until_date: Some(from_now(seconds)),
        }
    }

    fn object(retention: Option<ObjectLockRetention>, hold: Option<&str>) -> ObjectInfo {
        let mut facts = BTreeMap::new();
        if let Some(ObjectLockRetention { mode: Some(mode), retain_until_date: Some(until) }) = retention {
            facts.insert(entry::LOCK.to_owned(), retained(mode.as_str(), &until).unwrap());
        }
        facts.extend(hold.map(|hold| (entry::HOLD.to_owned(), hold.to_owned())));
        entry::fixture::stored("s3/b/k", 0, facts)
    }

    #[test]
    fn a_locked_version_stays() {
        for (lock, hold, without, with) in [
            (None, None, true, true),
            (None, Some("ON"), false, false),
            (None, Some("OFF"), true, true),
            (Some(retention(GOVERNANCE, 60)), None, false, true),
            (Some(retention(GOVERNANCE, 60)), Some("ON"), false, false),
            (Some(retention(COMPLIANCE, 60)), None, false, false),
            (Some(retention(COMPLIANCE, -60)), None, true, true),
        ] {
            let info = object(lock.clone(), hold);
            let may = |bypass| may_remove(Entry(&info), bypass).is_ok();
            assert_eq!((may(false), may(true)), (without, with), "{lock:?} {hold:?}");
        }
    }

    #[test]
    fn a_retention_becomes_longer_and_not_shorter() {
        let none = ObjectLockRetention::default();
        for (old, new, without, with) in [
            (retention(GOVERNANCE, 60), retention(GOVERNANCE, 90), true, true),
            (retention(GOVERNANCE, 60), retention(GOVERNANCE, 30), false, true),
            (retention(GOVERNANCE, 60), retention(COMPLIANCE, 90), false, true),
            (retention(GOVERNANCE, 60), none.clone(), false, true),
            (retention(COMPLIANCE, 60), retention(COMPLIANCE, 90), true, true),
            (retention(COMPLIANCE, 60), retention(COMPLIANCE, 30), false, false),
            (retention(COMPLIANCE, 60), retention(GOVERNANCE, 90), false, false),
            (retention(COMPLIANCE, -60), none, true, true),
        ] {
            let info = object(Some(old.clone()), None);
            let may = |bypass| may_change(Entry(&info), &new, bypass).is_ok();
            assert_eq!((may(false), may(true)), (without, with), "{old:?} {new:?}");
        }
    }
}
