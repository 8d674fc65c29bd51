//! Lifecycle rules: kept, and asked when an object, an older version or an upload ends. What carries them out is
//! [`crate::expiry`].

use std::time::{Duration, SystemTime};

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};
use time::OffsetDateTime;

use crate::bucket::{self, Bucket, written};
use crate::entry::{self, Entry};
use crate::error::{because, invalid};
use crate::gateway::{self, Gateway};
use crate::tags;

/// The length of a day, unless a test makes it shorter.
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// Most rules of a bucket.
const MOST_RULES: usize = 1000;

/// Longest id of a rule in bytes.
const ID_BYTES: usize = 255;

/// When something ends that began at `begun`, in seconds since 1970. Days begin at midnight, as in S3; shorter ones, of
/// tests, do not.
pub(crate) fn after_days(begun: u64, days: i32, day: Duration) -> u64 {
    let end = begun.saturating_add(day.as_secs() * u64::from(days.unsigned_abs()));
    if day == DAY { end.next_multiple_of(DAY.as_secs()) } else { end }
}

/// A rule with what it applies to.
pub(crate) struct Rule(LifecycleRule);

impl Rule {
    pub(crate) fn expiration(&self) -> Option<&LifecycleExpiration> {
        self.0.expiration.as_ref()
    }

    pub(crate) fn noncurrent(&self) -> Option<&NoncurrentVersionExpiration> {
        self.0.noncurrent_version_expiration.as_ref()
    }

    pub(crate) fn abort_days(&self) -> Option<i32> {
        self.0.abort_incomplete_multipart_upload.as_ref()?.days_after_initiation
    }

    /// What the keys begin with: all of these.
    fn prefixes(&self) -> impl Iterator<Item = &str> {
        let filter = self.0.filter.as_ref();
        let and = filter.and_then(|filter| filter.and.as_ref());
        let all = [
            self.0.prefix.as_deref(),
            filter.and_then(|filter| filter.prefix.as_deref()),
            and.and_then(|and| and.prefix.as_deref()),
        ];
        all.into_iter().flatten()
    }

    pub(crate) fn fits_key(&self, key: &str) -> bool {
        self.prefixes().all(|prefix| key.starts_with(prefix))
    }

    fn fits_size(&self, size: u64) -> bool {
        let filter = self.0.filter.as_ref();
        let and = filter.and_then(|filter| filter.and.as_ref());
        let above = [
            filter.and_then(|filter| filter.object_size_greater_than),
            and.and_then(|and| and.object_size_greater_than),
        ];
        let below = [
            filter.and_then(|filter| filter.object_size_less_than),
            and.and_then(|and| and.object_size_less_than),
        ];
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        above.into_iter().flatten().all(|least| size > least)
            && below.into_iter().flatten().all(|most| size < most)
    }

    /// The tags that an object must have.
    fn tags(&self) -> Vec<&Tag> {
        let filter = self.0.filter.as_ref();
        let and = filter.and_then(|filter| filter.and.as_ref()).and_then(|and| and.tags.as_ref());
        filter.and_then(|filter| filter.tag.as_ref()).into_iter().chain(and.into_iter().flatten()).collect()
    }

    /// Whether it asks for tags, which listings do not show.
    pub(crate) fn asks_for_tags(&self) -> bool {
        !self.tags().is_empty()
    }

    /// Whether it applies to an object with this key. `tags`: also its tags are compared.
    pub(crate) fn fits(&self, key: &str, entry: Entry<'_>, tags: bool) -> bool {
        self.fits_key(key) && self.fits_size(entry.0.size) && (!tags || self.fits_tags(entry))
    }

    fn fits_tags(&self, entry: Entry<'_>) -> bool {
        let wanted = self.tags();
        if wanted.is_empty() {
            return true;
        }
        let has = tags::parse(entry.fact(entry::TAGS).unwrap_or_default()).unwrap_or_default();
        wanted.iter().all(|tag| {
            let (key, value) =
                (tag.key.as_deref().unwrap_or_default(), tag.value.as_deref().unwrap_or_default());
            has.iter().any(|(k, v)| k == key && v == value)
        })
    }

    /// When the newest version of a key ends, in seconds since 1970.
    pub(crate) fn ends(&self, begun: u64, day: Duration) -> Option<u64> {
        let expiration = self.expiration()?;
        match (expiration.days, &expiration.date) {
            (Some(days), _) => Some(after_days(begun, days, day)),
            (None, Some(date)) => {
                crate::get::seconds(date).duration_since(SystemTime::UNIX_EPOCH).ok().map(|d| d.as_secs())
            }
            (None, None) => None,
        }
    }
}

/// The rules of a bucket that are enabled.
pub(crate) fn rules(bucket: &Bucket) -> Vec<Rule> {
    let kept = bucket.document::<BucketLifecycleConfiguration>(bucket::LIFECYCLE);
    let rules = kept.map(|kept| kept.rules).unwrap_or_default();
    rules.into_iter().filter(|rule| rule.status.as_str() == ExpirationStatus::ENABLED).map(Rule).collect()
}

/// The header that tells when an object ends, and by which rule. There is none for an end beyond the year 9999, which cannot be written.
pub(crate) fn expires(bucket: &Bucket, key: &str, entry: Entry<'_>, day: Duration) -> Option<String> {
    bucket.fact(bucket::LIFECYCLE)?;
    let ends = |rule: Rule| {
        let at = rule.ends(entry.0.created, day).filter(|_| rule.fits(key, entry, true))?;
        Some((at, rule.0.id.unwrap_or_default()))
    };
    let (at, id) = rules(bucket).into_iter().filter_map(ends).min()?;
    let mut date = Vec::new();
    let at = OffsetDateTime::from_unix_timestamp(i64::try_from(at).ok()?).ok()?;
    Timestamp::from(at).format(TimestampFormat::HttpDate, &mut date).ok()?;
    Some(format!("expiry-date=\"{}\", rule-id=\"{}\"", String::from_utf8(date).ok()?, tags::encoded(&id)))
}

fn check(rule: &LifecycleRule) -> S3Result<()> {
    let malformed = |text: &str| Err(because(S3ErrorCode::MalformedXML, text));
    if rule.transitions.is_some() || rule.noncurrent_version_transitions.is_some() {
        let text = "transitions between storage classes; the class of an object is chosen when it is written";
        return Err(because(S3ErrorCode::NotImplemented, text));
    }
    let status = rule.status.as_str();
    if status != ExpirationStatus::ENABLED && status != ExpirationStatus::DISABLED {
        return malformed(&format!("Status: expected Enabled or Disabled, got {status:?}"));
    }
    if rule.id.as_ref().is_some_and(|id| id.len() > ID_BYTES) {
        return Err(invalid("ID", "at most 255 characters", "more"));
    }
    if rule.prefix.is_some() && rule.filter.is_some() {
        return malformed("expected a Prefix or a Filter, got both");
    }
    let abort = rule.abort_incomplete_multipart_upload.as_ref();
    let noncurrent = rule.noncurrent_version_expiration.as_ref();
    if rule.expiration.is_none() && noncurrent.is_none() && abort.is_none() {
        return Err(because(
            S3ErrorCode::InvalidRequest,
            "expected at least one action in each rule, got none",
        ));
    }
    if let Some(expiration) = &rule.expiration {
        let ways = [
            expiration.days.is_some(),
            expiration.date.is_some(),
            expiration.expired_object_delete_marker.is_some(),
        ];
        if ways.into_iter().filter(|way| *way).count() != 1 {
            return malformed("Expiration: expected one of Days, Date and ExpiredObjectDeleteMarker");
        }
    }
    let days = [
        rule.expiration.as_ref().and_then(|expiration| expiration.days),
        noncurrent.map(|noncurrent| noncurrent.noncurrent_days.unwrap_or(0)),
        abort.map(|abort| abort.days_after_initiation.unwrap_or(0)),
    ];
    if let Some(days) = days.into_iter().flatten().find(|days| *days < 1) {
        return Err(invalid("days", "1 or more", days));
    }
    Ok(())
}

/// Checks rules, gives those without one an id, and has their dates in UTC.
fn checked(mut rules: Vec<LifecycleRule>) -> S3Result<Vec<LifecycleRule>> {
    if rules.is_empty() || rules.len() > MOST_RULES {
        let text = format!("expected 1 to {MOST_RULES} rules, got {}", rules.len());
        return Err(because(S3ErrorCode::MalformedXML, text));
    }
    for i in 0..rules.len() {
        check(&rules[i])?;
        let id = rules[i].id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| format!("rule-{}", i + 1));
        if rules[..i].iter().any(|other| other.id.as_ref() == Some(&id)) {
            return Err(invalid("ID", "each id once", id));
        }
        rules[i].id = Some(id);
        if let Some(date) = rules[i].expiration.as_mut().and_then(|expiration| expiration.date.as_mut()) {
            *date = entry::in_utc("Date", date)?;
        }
    }
    Ok(rules)
}

impl Gateway {
    /// `GetBucketLifecycleConfiguration`.
    pub(crate) async fn get_bucket_lifecycle_configuration(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let kept =
            gateway::bucket(&request.extensions)?.document::<BucketLifecycleConfiguration>(bucket::LIFECYCLE);
        let none = || because(S3ErrorCode::NoSuchLifecycleConfiguration, "the bucket has no lifecycle rules");
        let rules = Some(kept.ok_or_else(none)?.rules);
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
            rules,
            ..GetBucketLifecycleConfigurationOutput::default()
        }))
    }

    /// `PutBucketLifecycleConfiguration`.
    pub(crate) async fn put_bucket_lifecycle_configuration(
        &self,
        request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let sent = request.input.lifecycle_configuration.map(|sent| sent.rules).unwrap_or_default();
        let rules = BucketLifecycleConfiguration { rules: checked(sent)? };
        self.set_bucket(&bucket, [(bucket::LIFECYCLE, written(&rules)?)]).await?;
        Ok(S3Response::new(PutBucketLifecycleConfigurationOutput::default()))
    }

    /// `DeleteBucketLifecycle`.
    pub(crate) async fn delete_bucket_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        self.set_bucket(&bucket, [(bucket::LIFECYCLE, None)]).await?;
        Ok(S3Response::with_status(DeleteBucketLifecycleOutput::default(), http::StatusCode::NO_CONTENT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> LifecycleRule {
        LifecycleRule {
            abort_incomplete_multipart_upload: None,
            expiration: Some(LifecycleExpiration { days: Some(1), ..LifecycleExpiration::default() }),
            filter: None,
            id: None,
            noncurrent_version_expiration: None,
            noncurrent_version_transitions: None,
            prefix: Some("a/".to_owned()),
            status: ExpirationStatus::from_static(ExpirationStatus::ENABLED),
            transitions: None,
        }
    }

    #[test]
    fn days_end_at_midnight() {
        assert_eq!(after_days(0, 1, DAY), 86_400);
        assert_eq!(after_days(1, 1, DAY), 2 * 86_400);
        assert_eq!(after_days(1, 2, Duration::from_secs(10)), 21);
    }

    #[test]
    fn rules_have_ids_and_wrong_ones_are_refused() {
        let good = checked(vec![rule(), rule()]).unwrap();
        assert_eq!(
            good.iter().map(|rule| rule.id.as_deref().unwrap()).collect::<Vec<_>>(),
            ["rule-1", "rule-2"]
        );
        let days = |days| Some(LifecycleExpiration { days: Some(days), ..LifecycleExpiration::default() });
        let status = |status: &str| ExpirationStatus::from(status.to_owned());
        for wrong in [
            LifecycleRule { expiration: days(0), ..rule() },
            LifecycleRule { expiration: None, ..rule() },
            LifecycleRule { expiration: Some(LifecycleExpiration::default()), ..rule() },
            LifecycleRule { status: status("enabled"), ..rule() },
            LifecycleRule { id: Some("i".repeat(256)), ..rule() },
            LifecycleRule { transitions: Some(Vec::new()), ..rule() },
            LifecycleRule { filter: Some(LifecycleRuleFilter::default()), ..rule() },
        ] {
            assert!(checked(vec![wrong.clone()]).is_err(), "{wrong:?}");
        }
        let date = |text| {
            let date = Some(Timestamp::parse(TimestampFormat::DateTime, text).unwrap());
            let expiration = Some(LifecycleExpiration { date, ..LifecycleExpiration::default() });
            checked(vec![LifecycleRule { expiration, ..rule() }])
        };
        let kept = serde_json::to_string(&date("2030-01-01T00:00:00-08:00").unwrap()).unwrap();
        assert!(kept.contains("\"2030-01-01T08:00:00.000Z\""), "{kept}");
        assert!(date("9999-12-31T23:59:59-00:01").is_err());
        let twice = LifecycleRule { id: Some("x".to_owned()), ..rule() };
        assert!(checked(vec![twice.clone(), twice]).is_err());
        assert!(checked(Vec::new()).is_err());
    }
}
