//! What is known of a bucket. It is an object without bytes, whose facts are the bucket's settings.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kintsu_client::ClientError;
use kintsu_wire::message::{Attributes, Change, Changed, Check, ObjectInfo, Step};
use s3s::dto::{ObjectOwnership, PublicAccessBlockConfiguration};
use s3s::{S3Error, S3ErrorCode, S3Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::acl::Acl;
use crate::delete::{TRIES, crowded};
use crate::error::{because, of};
use crate::gateway::Gateway;
use crate::names;

/// The fact that names who made it.
pub(crate) const OWNER: &str = "owner";
/// The fact that says whether versions are kept.
pub(crate) const VERSIONING: &str = "versioning";
/// The fact that holds the policy.
pub(crate) const POLICY: &str = ".policy";
/// The fact that holds the tags.
pub(crate) const TAGS: &str = ".tags";
/// The fact that holds the list of grants.
pub(crate) const ACL: &str = ".acl";
/// The fact that says who owns new objects, and whether lists of grants count.
pub(crate) const OWNERSHIP: &str = ".ownership";
/// The fact that holds the public access block.
pub(crate) const BLOCKS: &str = ".public-access";
/// The fact that holds the rules of cross-origin requests.
pub(crate) const CORS: &str = ".cors";
/// The fact that holds the lifecycle rules.
pub(crate) const LIFECYCLE: &str = ".lifecycle";
/// The fact that says that objects can be locked, and how new ones are.
pub(crate) const LOCK: &str = ".lock";
/// The tag whose value is the code of new objects.
pub(crate) const CODE_TAG: &str = "kintsu.code";

/// Whether versions are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Versioning {
    /// It never was so.
    Never,
    /// Every put makes one.
    Enabled,
    /// Those that there are stay; a put replaces the null version.
    Suspended,
}

/// Lookups of the objects of buckets, which every request needs. Those that ask for the same one while it is looked up share the next
/// lookup: it begins after they came, so nobody gets what was before.
#[derive(Default)]
pub(crate) struct Lookups(Mutex<HashMap<String, Arc<Turns>>>);

/// The lookups of one object, one after the other.
#[derive(Default)]
struct Turns {
    begun: AtomicU64,
    /// The number of the last one, and what it found.
    last: tokio::sync::Mutex<(u64, Option<Found>)>,
}

type Found = Result<ObjectInfo, ClientError>;

/// One who asks.
struct Asks<'l> {
    of: &'l Lookups,
    name: &'l str,
    turns: Arc<Turns>,
}

impl Drop for Asks<'_> {
    fn drop(&mut self) {
        let mut all = self.of.all();
        // Nobody else asks: the others are in the table and here.
        if Arc::strong_count(&self.turns) == 2 {
            all.remove(self.name);
        }
    }
}

impl Lookups {
    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<Turns>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn share<F: Future<Output = Found>>(&self, name: &str, look: impl FnOnce() -> F) -> Found {
        let turns = self.all().entry(name.to_owned()).or_default().clone();
        let asks = Asks { of: self, name, turns };
        let before = asks.turns.begun.load(SeqCst);
        let mut last = asks.turns.last.lock().await;
        match &*last {
            (number, Some(found)) if *number > before => found.clone(),
            _ => {
                let number = asks.turns.begun.fetch_add(1, SeqCst) + 1;
                let found = look().await;
                *last = (number, Some(found.clone()));
                found
            }
        }
    }
}

/// A bucket, as it was at some moment.
#[derive(Debug, Clone)]
pub(crate) struct Bucket {
    pub name: String,
    /// The id of its object: it is another one if the bucket was removed and made again.
    pub id: u64,
    /// Seconds since 1970.
    pub created: u64,
    facts: BTreeMap<String, String>,
}

impl Bucket {
    fn of(name: &str, info: ObjectInfo) -> Self {
        Self { name: name.into(), id: info.id, created: info.created, facts: info.attributes.facts }
    }

    pub(crate) fn fact(&self, name: &str) -> Option<&str> {
        self.facts.get(name).map(String::as_str)
    }

    pub(crate) fn owner(&self) -> &str {
        self.fact(OWNER).unwrap_or_default()
    }

    pub(crate) fn versioning(&self) -> Versioning {
        match self.fact(VERSIONING) {
            Some("Enabled") => Versioning::Enabled,
            Some(_) => Versioning::Suspended,
            None => Versioning::Never,
        }
    }

    /// Its list of grants.
    pub(crate) fn acl(&self) -> Acl {
        Acl::of(self.fact(ACL), self.owner())
    }

    /// Who owns new objects, if that was said.
    pub(crate) fn ownership(&self) -> Option<&str> {
        self.fact(OWNERSHIP)
    }

    /// Whether lists of grants do not count.
    pub(crate) fn is_enforced(&self) -> bool {
        self.ownership() == Some(ObjectOwnership::BUCKET_OWNER_ENFORCED)
    }

    /// What is refused and ignored of what makes it public.
    pub(crate) fn blocks(&self) -> PublicAccessBlockConfiguration {
        self.document(BLOCKS).unwrap_or_default()
    }

    /// A setting that is kept as a document.
    pub(crate) fn document<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let text = self.fact(name)?;
        match serde_json::from_str(text) {
            Ok(document) => Some(document),
            Err(error) => {
                tracing::warn!("the fact {name} of the bucket {} cannot be read: {error}", self.name);
                None
            }
        }
    }

    /// The code that its tags choose.
    pub(crate) fn code(&self) -> Option<String> {
        let tags = crate::tags::parse(self.fact(TAGS)?).ok()?;
        tags.into_iter().find(|(key, _)| key == CODE_TAG).map(|(_, value)| value)
    }

    /// That it still exists.
    pub(crate) fn check(&self) -> Check {
        Check::Is { name: names::bucket(&self.name), id: Some(self.id) }
    }

    /// That it still exists, and keeps and locks versions as it did: what becomes of the version before rests on that.
    pub(crate) fn checks(&self) -> [Check; 2] {
        let facts = [VERSIONING, LOCK].map(|name| (name.to_owned(), self.fact(name).map(str::to_owned)));
        [self.check(), Check::Facts { name: names::bucket(&self.name), facts: facts.into() }]
    }
}

impl Gateway {
    /// The bucket as it is now.
    ///
    /// # Errors
    /// `NoSuchBucket`; failures of the cluster.
    pub(crate) async fn bucket(&self, name: &str) -> S3Result<Bucket> {
        let object = names::bucket(name);
        match self.lookups.share(&object, || self.client.info(&object)).await {
            Ok(info) => Ok(Bucket::of(name, info)),
            Err(ClientError::NotFound(_)) => Err(no_such(name)),
            Err(other) => Err(of(other)),
        }
    }

    /// Makes a bucket; returns the one that there is if it exists.
    pub(crate) async fn make_bucket(
        &self,
        name: &str,
        facts: BTreeMap<String, String>,
    ) -> S3Result<Result<(), Bucket>> {
        let object = names::bucket(name);
        let attributes = Attributes { facts, ..Attributes::default() };
        let change = Change {
            checks: vec![Check::Is { name: object.clone(), id: None }],
            steps: vec![Step::Mark { name: object, newest_first: false, attributes }],
        };
        match self.client.change(&change).await.map_err(of)? {
            Changed::Done(_) => Ok(Ok(())),
            Changed::Unmet(_) => Ok(Err(self.bucket(name).await?)),
        }
    }

    /// Removes a bucket that has no objects and no versions, with the uploads to it.
    ///
    /// # Errors
    /// `BucketNotEmpty`; `NoSuchBucket` if it was removed meanwhile.
    pub(crate) async fn remove_bucket(&self, bucket: &Bucket) -> S3Result<()> {
        let not_empty = || {
            let text = format!("expected no object and no version in {}, got at least one", bucket.name);
            Err(because(S3ErrorCode::BucketNotEmpty, text))
        };
        let [objects, versions] = [names::objects(&bucket.name), names::all_versions(&bucket.name)];
        let uploads = names::uploads(&bucket.name);
        let first = |prefix: &str| Check::First { prefix: prefix.to_owned(), id: None };
        for _ in 0..TRIES {
            // Uploads to a bucket that stays go on.
            for prefix in [&objects, &versions] {
                if !self.client.list(prefix, None, 1).await.map_err(of)?.objects.is_empty() {
                    return not_empty();
                }
            }
            // One by one, because a change has a size.
            loop {
                let page = self.client.list(&uploads, None, 1000).await.map_err(of)?;
                for upload in &page.objects {
                    self.abort(upload, names::id_of_upload(&upload.name).unwrap_or_default()).await?;
                }
                if !page.more {
                    break;
                }
            }
            let checks = vec![bucket.check(), first(&objects), first(&versions), first(&uploads)];
            let steps = vec![Step::Remove { name: names::bucket(&bucket.name) }];
            match self.client.change(&Change { checks, steps }).await.map_err(of)? {
                Changed::Done(_) => return Ok(()),
                Changed::Unmet(0) => return Err(no_such(&bucket.name)),
                Changed::Unmet(3) => {}
                Changed::Unmet(_) => return not_empty(),
            }
        }
        Err(crowded(&bucket.name))
    }

    /// Changes settings of a bucket.
    ///
    /// # Errors
    /// `NoSuchBucket`; `OperationAborted` if somebody else changes at the same time how it keeps or locks versions.
    pub(crate) async fn set_bucket(
        &self,
        bucket: &Bucket,
        facts: impl IntoIterator<Item = (&'static str, Option<String>)>,
    ) -> S3Result<()> {
        let facts: BTreeMap<_, _> = facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let of_versions = facts.contains_key(VERSIONING) || facts.contains_key(LOCK);
        let checks = if of_versions { bucket.checks().into() } else { vec![bucket.check()] };
        let name = names::bucket(&bucket.name);
        let change = Change { checks, steps: vec![Step::Describe { name, facts }] };
        match self.client.change(&change).await.map_err(of)? {
            Changed::Done(_) => Ok(()),
            Changed::Unmet(0) => Err(no_such(&bucket.name)),
            Changed::Unmet(_) => {
                let text = format!("somebody else changes the versions of {} now; try again", bucket.name);
                Err(because(S3ErrorCode::OperationAborted, text))
            }
        }
    }

    /// All buckets.
    pub(crate) async fn buckets(&self) -> S3Result<Vec<Bucket>> {
        let found = self.all(names::BUCKETS).await?;
        let bucket = |info: ObjectInfo| {
            let name = info.name.strip_prefix(names::BUCKETS)?.to_owned();
            Some(Bucket::of(&name, info))
        };
        Ok(found.into_iter().filter_map(bucket).collect())
    }

    /// All objects whose names begin like this, page by page: for prefixes with few of them.
    pub(crate) async fn all(&self, prefix: &str) -> S3Result<Vec<ObjectInfo>> {
        let (mut out, mut after) = (Vec::new(), None);
        loop {
            let page = self.client.list(prefix, after.as_deref(), 1000).await.map_err(of)?;
            after = page.last().map(str::to_owned);
            out.extend(page.objects);
            if !page.more {
                return Ok(out);
            }
        }
    }
}

/// The fact for a document.
///
/// # Errors
/// `InternalError`: it cannot be written.
pub(crate) fn written<T: Serialize>(document: &T) -> S3Result<Option<String>> {
    let text = serde_json::to_string(document);
    text.map(Some).map_err(|error| because(S3ErrorCode::InternalError, error.to_string()))
}

/// The answer for a bucket that does not exist.
pub(crate) fn no_such(name: &str) -> S3Error {
    because(S3ErrorCode::NoSuchBucket, format!("there is no bucket {name}"))
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use tokio::sync::watch;

    use super::*;
    use crate::entry::fixture::stored;

    #[tokio::test]
    async fn who_asks_during_a_lookup_shares_the_next_one() {
        let (lookups, now) = (Lookups::default(), watch::Sender::new(0));
        // Finds how often the time had moved when it began, after the time moves again.
        let look = || {
            let mut moved = now.subscribe();
            let size = *moved.borrow_and_update();
            async move {
                moved.changed().await.unwrap();
                Ok(stored("s3", size, []))
            }
        };
        let ask = || Box::pin(lookups.share("s3", look).map(|found| found.unwrap().size));
        let mut first = ask();
        assert_eq!((&mut first).now_or_never(), None);
        let mut others: Vec<_> = (0..4).map(|_| ask()).collect();
        assert!(others.iter_mut().all(|asks| asks.now_or_never().is_none()));
        now.send_replace(1);
        assert_eq!(first.await, 0);
        // The one whose turn it is goes away, and another looks.
        let mut gone = others.remove(0);
        assert_eq!((&mut gone).now_or_never(), None);
        drop(gone);
        assert!(others.iter_mut().all(|asks| asks.now_or_never().is_none()));
        now.send_replace(2);
        assert_eq!(futures::future::join_all(others).await, [1; 3]);
        assert!(lookups.all().is_empty());
    }
}
