//! Carries out lifecycle rules: from time to time each bucket with rules is searched, and what has expired is removed as
//! a client would remove it, unless it has changed since it was looked at. Several gateways may do so at once. Locked
//! versions stay. Parts whose upload is gone are removed too.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kintsu_wire::message::ObjectInfo;
use s3s::{S3ErrorCode, S3Result};
use tokio_util::sync::CancellationToken;

use crate::bucket::{Bucket, Versioning};
use crate::delete::Only;
use crate::entry::Entry;
use crate::error::of;
use crate::gateway::Gateway;
use crate::lifecycle::{Rule, after_days, rules};
use crate::names;

/// Names in one page of a listing.
const PAGE: u32 = 1000;

/// The time between two searches of all buckets: an hour, or with the short days of tests a tenth of a day.
fn pause(day: Duration) -> Duration {
    (day / 10).clamp(Duration::from_secs(1), Duration::from_secs(3600))
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// The versions of a key as they are listed, the newest first. There may be many, so only the last one is kept.
#[derive(Default)]
struct Versions {
    key: String,
    /// Whether the first is what the key shows.
    shown: bool,
    seen: usize,
    last: Option<ObjectInfo>,
}

impl Versions {
    fn add(&mut self, info: ObjectInfo) {
        (self.seen, self.last) = (self.seen + 1, Some(info));
    }
}

impl Gateway {
    /// Carries out the rules of all buckets until the server ends.
    pub(crate) async fn expire(self: Arc<Self>, ending: CancellationToken) {
        let pause = pause(self.config.day);
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = ending.cancelled() => return,
            }
            tokio::select! {
                swept = self.sweep() => match swept {
                    Ok(0) => {}
                    Ok(removed) => tracing::info!("{removed} versions and uploads ended by lifecycle rules"),
                    Err(error) => tracing::warn!("lifecycle rules were not carried out: {error}"),
                },
                () = ending.cancelled() => return,
            }
        }
    }

    /// Goes through all buckets; returns how many versions and uploads ended.
    async fn sweep(&self) -> S3Result<usize> {
        let left = self.end_left_parts().await?;
        if left > 0 {
            tracing::info!("{left} parts of uploads that had ended are removed");
        }
        let mut removed = 0;
        for listed in self.buckets().await? {
            let bucket = match self.bucket(&listed.name).await {
                Ok(bucket) => bucket,
                Err(error) if error.code() == &S3ErrorCode::NoSuchBucket => continue,
                Err(error) => return Err(error),
            };
            let rules = rules(&bucket);
            if rules.is_empty() {
                continue;
            }
            removed += self.end_uploads(&bucket, &rules).await?;
            if rules.iter().any(|rule| rule.expiration().is_some()) {
                removed += self.end_objects(&bucket, &rules).await?;
            }
            if bucket.versioning() != Versioning::Never {
                removed += self.end_versions(&bucket, &rules).await?;
            }
        }
        Ok(removed)
    }

    /// The first rule of some that applies to an object.
    async fn rule<'r>(
        &self,
        rules: impl Iterator<Item = &'r Rule>,
        key: &str,
        info: &ObjectInfo,
    ) -> S3Result<Option<&'r Rule>> {
        let mut whole = None;
        for rule in rules.filter(|rule| rule.fits(key, Entry(info), false)) {
            if !rule.asks_for_tags() {
                return Ok(Some(rule));
            }
            if whole.is_none() {
                whole = self.current(&info.name).await?;
            }
            if whole.as_ref().is_some_and(|info| rule.fits(key, Entry(info), true)) {
                return Ok(Some(rule));
            }
        }
        Ok(None)
    }

    /// Uploads that were begun too long ago.
    async fn end_uploads(&self, bucket: &Bucket, rules: &[Rule]) -> S3Result<usize> {
        let (base, mut removed) = (names::uploads(&bucket.name), 0);
        let limits: Vec<_> = rules.iter().filter_map(|rule| Some((rule, rule.abort_days()?))).collect();
        if limits.is_empty() {
            return Ok(0);
        }
        for upload in self.all(&base).await? {
            let rest = upload.name.strip_prefix(&base).and_then(|rest| rest.split_once(names::END_OF_KEY));
            let Some((key, id)) = rest else { continue };
            let ended = |(rule, days): &(&Rule, i32)| {
                rule.fits_key(key) && after_days(upload.created, *days, self.config.day) <= now()
            };
            if limits.iter().any(ended) && self.abort(&upload, id).await? {
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// What keys show.
    async fn end_objects(&self, bucket: &Bucket, rules: &[Rule]) -> S3Result<usize> {
        let (base, mut after, mut removed) = (names::objects(&bucket.name), None, 0);
        loop {
            let page = self.client.list(&base, after.as_deref(), PAGE).await.map_err(of)?;
            after = page.last().map(str::to_owned);
            for info in page.objects {
                let key = info.name.strip_prefix(&base).unwrap_or(&info.name);
                let ended =
                    |rule: &&Rule| rule.ends(info.created, self.config.day).is_some_and(|end| end <= now());
                if self.rule(rules.iter().filter(ended), key, &info).await?.is_some() {
                    removed += usize::from(self.end(bucket, key, None, &info).await?);
                }
            }
            if !page.more {
                return Ok(removed);
            }
        }
    }

    /// Older versions, and delete markers that hide nothing.
    async fn end_versions(&self, bucket: &Bucket, rules: &[Rule]) -> S3Result<usize> {
        let (base, mut after, mut removed) = (names::all_versions(&bucket.name), None, 0);
        let mut of_key = Versions::default();
        loop {
            let page = self.client.list(&base, after.as_deref(), PAGE).await.map_err(of)?;
            after = page.last().map(str::to_owned);
            for info in page.objects {
                let rest = info.name.strip_prefix(&base).and_then(|rest| rest.split_once(names::END_OF_KEY));
                let Some((key, _)) = rest else { continue };
                if key != of_key.key || of_key.seen == 0 {
                    removed += self.end_marker(bucket, rules, &of_key).await?;
                    of_key = Versions { key: key.to_owned(), ..Versions::default() };
                    if rules.iter().any(|rule| rule.fits_key(key))
                        && let Some(current) = self.current(&names::object(&bucket.name, key)).await?
                    {
                        of_key.shown = true;
                        of_key.add(current);
                    }
                }
                removed += self.end_older(bucket, rules, &of_key, &info).await?;
                of_key.add(info);
            }
            if !page.more {
                return Ok(removed + self.end_marker(bucket, rules, &of_key).await?);
            }
        }
    }

    /// Ends a delete marker that is all there is of its key.
    async fn end_marker(&self, bucket: &Bucket, rules: &[Rule], of_key: &Versions) -> S3Result<usize> {
        let Versions { key, shown: false, seen: 1, last: Some(only) } = of_key else { return Ok(0) };
        let hides_nothing = |rule: &&Rule| {
            let flag = rule.expiration().and_then(|expiration| expiration.expired_object_delete_marker);
            flag == Some(true) || rule.ends(only.created, self.config.day).is_some_and(|end| end <= now())
        };
        if !Entry(only).is_marker()
            || self.rule(rules.iter().filter(hides_nothing), key, only).await?.is_none()
        {
            return Ok(0);
        }
        let ended = self.end(bucket, key, Some(&Entry(only).version()), only).await?;
        Ok(usize::from(ended))
    }

    /// Ends a version that follows those which were seen.
    async fn end_older(
        &self,
        bucket: &Bucket,
        rules: &[Rule],
        of_key: &Versions,
        info: &ObjectInfo,
    ) -> S3Result<usize> {
        // The first of all is not an older version.
        let Versions { key, seen, last: Some(newer), .. } = of_key else { return Ok(0) };
        let ended = |rule: &&Rule| {
            let Some(noncurrent) = rule.noncurrent() else { return false };
            let spared = usize::try_from(noncurrent.newer_noncurrent_versions.unwrap_or(0)).unwrap_or(0);
            let days = noncurrent.noncurrent_days.unwrap_or(i32::MAX);
            *seen > spared && after_days(newer.created, days, self.config.day) <= now()
        };
        if self.rule(rules.iter().filter(ended), key, info).await?.is_none() {
            return Ok(0);
        }
        let ended = self.end(bucket, key, Some(&Entry(info).version()), info).await?;
        Ok(usize::from(ended))
    }

    /// Removes a version if it is still this one; what is locked or was changed stays until the next time.
    async fn end(
        &self,
        bucket: &Bucket,
        key: &str,
        version: Option<&str>,
        info: &ObjectInfo,
    ) -> S3Result<bool> {
        let only = Only { id: Some(info.id), ..Only::default() };
        match self.delete(bucket, key, version, &only, false).await {
            Ok(_) => Ok(true),
            Err(error) => match error.code() {
                S3ErrorCode::AccessDenied | S3ErrorCode::PreconditionFailed | S3ErrorCode::NoSuchKey => {
                    Ok(false)
                }
                _ => Err(error),
            },
        }
    }
}
