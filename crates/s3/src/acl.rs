//! Lists of grants of buckets and objects: made from a canned name, from headers or from a document, kept as a fact, and
//! asked who may do what.
//!
//! The owner of a bucket may do everything with it and with its objects, whatever their lists say. A list without grants of
//! its own is not kept: then the owner has everything, and nobody else has anything. Of an owner's keys that is true of those
//! with `create`; the others have what the file of keys says.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::access::Caller;
use crate::bucket::{self, Bucket};
use crate::entry::{self, Entry};
use crate::error::{because, invalid};
use crate::gateway::{self, Gateway};

const EVERYBODY: &str = "http://acs.amazonaws.com/groups/global/AllUsers";
const AUTHENTICATED: &str = "http://acs.amazonaws.com/groups/global/AuthenticatedUsers";

/// Most grants of one list.
const MOST: usize = 100;

/// Who has a right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Who {
    /// Also somebody without a key.
    Everybody,
    /// Each key.
    Authenticated,
    /// The keys of one user.
    User(String),
}

impl Who {
    fn is(&self, caller: &Caller) -> bool {
        match (self, &caller.key) {
            (Self::Everybody, _) | (Self::Authenticated, Some(_)) => true,
            (Self::User(user), Some(key)) => key.user == *user,
            (_, None) => false,
        }
    }

    fn is_public(&self) -> bool {
        !matches!(self, Self::User(_))
    }
}

/// The rights that there are, by their names in S3.
const RIGHTS: [&str; 5] = ["READ", "WRITE", "READ_ACP", "WRITE_ACP", FULL];
const FULL: &str = "FULL_CONTROL";

/// A list of grants: who, and one of [`RIGHTS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<(Who, &'static str)>);

/// The list of which nothing is kept: the owner has everything.
fn own(owner: &str) -> Acl {
    Acl(vec![(Who::User(owner.to_owned()), FULL)])
}

fn known_right(text: &str) -> S3Result<&'static str> {
    let known = RIGHTS.iter().find(|right| **right == text);
    known.copied().ok_or_else(|| {
        because(
            S3ErrorCode::MalformedACLError,
            format!("expected a permission of {}, got {text}", RIGHTS.join(", ")),
        )
    })
}

impl Acl {
    /// The list in a fact; without one that of the owner.
    pub(crate) fn of(fact: Option<&str>, owner: &str) -> Self {
        let Some(fact) = fact else { return own(owner) };
        let grant = |line: &str| {
            let (right, who) = line.split_once(' ')?;
            let who = match who {
                "*" => Who::Everybody,
                "+" => Who::Authenticated,
                user => Who::User(user.strip_prefix('=')?.to_owned()),
            };
            Some((who, known_right(right).ok()?))
        };
        Self(fact.lines().filter_map(grant).collect())
    }

    /// The fact for it: none if it says what is so without it.
    fn fact(&self, owner: &str) -> Option<String> {
        if *self == own(owner) {
            return None;
        }
        let line = |(who, right): &(Who, &str)| match who {
            Who::Everybody => format!("{right} *\n"),
            Who::Authenticated => format!("{right} +\n"),
            Who::User(user) => format!("{right} ={user}\n"),
        };
        Some(self.0.iter().map(line).collect())
    }

    /// Whether it gives a caller a right. `public`: grants to everybody and to all keys count. `owners`: of the bucket and of the object;
    /// what it gives them is not for keys that were to have less than their user.
    pub(crate) fn gives(&self, caller: &Caller, right: &str, public: bool, owners: &[&str]) -> bool {
        let restricted = caller.key.as_ref().is_some_and(|key| !key.create);
        let counts = |who: &Who| match who {
            Who::User(user) => !(restricted && owners.contains(&user.as_str())),
            Who::Everybody | Who::Authenticated => public,
        };
        self.0.iter().any(|(who, has)| (*has == right || *has == FULL) && who.is(caller) && counts(who))
    }

    /// Whether it gives anything to everybody or to all keys.
    pub(crate) fn is_public(&self) -> bool {
        self.0.iter().any(|(who, _)| who.is_public())
    }

    fn canned(name: &str, owner: &str, of_bucket: &str) -> S3Result<Self> {
        let mut grants = match name {
            "private" => Vec::new(),
            "public-read" => vec![(Who::Everybody, "READ")],
            "public-read-write" => vec![(Who::Everybody, "READ"), (Who::Everybody, "WRITE")],
            "authenticated-read" => vec![(Who::Authenticated, "READ")],
            "bucket-owner-read" => vec![(Who::User(of_bucket.to_owned()), "READ")],
            "bucket-owner-full-control" => vec![(Who::User(of_bucket.to_owned()), FULL)],
            other => {
                let known = "private, public-read, public-read-write, authenticated-read, bucket-owner-read, \
                             bucket-owner-full-control";
                return Err(invalid("x-amz-acl", known, other));
            }
        };
        let all = (Who::User(owner.to_owned()), FULL);
        grants.retain(|(who, _)| *who != all.0);
        grants.push(all);
        Ok(Self(grants))
    }

    fn shown(&self) -> Grants {
        let mut grants = self.0.clone();
        // Groups first: clients compare lists that are sorted so.
        grants.sort_by_key(|(who, _)| !who.is_public());
        grants
            .into_iter()
            .map(|(who, right)| Grant {
                grantee: Some(grantee(who)),
                permission: Some(Permission::from_static(right)),
            })
            .collect()
    }
}

fn grantee(who: Who) -> Grantee {
    let group = |uri: &str| Grantee {
        display_name: None,
        email_address: None,
        id: None,
        type_: Type::from_static(Type::GROUP),
        uri: Some(uri.to_owned()),
    };
    match who {
        Who::Everybody => group(EVERYBODY),
        Who::Authenticated => group(AUTHENTICATED),
        Who::User(user) => Grantee {
            display_name: Some(user.clone()),
            email_address: None,
            id: Some(user),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        },
    }
}

/// Which list a request asks for.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub canned: Option<String>,
    /// The headers of grants, in the order of [`RIGHTS`].
    pub grants: [Option<String>; 5],
    pub list: Option<AccessControlPolicy>,
}

impl Asked {
    /// What the headers of a put say.
    pub(crate) fn of_put(
        canned: Option<&ObjectCannedACL>,
        [read, read_acp, write_acp, full]: [Option<String>; 4],
    ) -> Self {
        let canned = canned.map(|canned| canned.as_str().to_owned());
        Self { canned, grants: [read, None, read_acp, write_acp, full], list: None }
    }

    /// What the headers and the document of a call about a list say; the grants in the order of [`RIGHTS`].
    pub(crate) fn of_call(
        canned: Option<&str>,
        grants: [Option<String>; 5],
        list: Option<AccessControlPolicy>,
    ) -> Self {
        Self { canned: canned.map(str::to_owned), grants, list }
    }

    fn is_empty(&self) -> bool {
        self.canned.is_none() && self.grants.iter().all(Option::is_none) && self.list.is_none()
    }
}

impl Gateway {
    /// The list that a request asks for; `None`: it asks for none.
    ///
    /// # Errors
    /// It is not clear, or names somebody who does not exist; the bucket allows no lists, or no public ones.
    fn asked_list(&self, asked: &Asked, owner: &str, bucket: Option<&Bucket>) -> S3Result<Option<Acl>> {
        if asked.is_empty() {
            return Ok(None);
        }
        let ways = [asked.canned.is_some(), asked.grants.iter().any(Option::is_some), asked.list.is_some()];
        if ways.into_iter().filter(|way| *way).count() > 1 {
            let text = "expected a canned ACL, headers with grants or a document, got more than one of these";
            return Err(because(S3ErrorCode::InvalidRequest, text));
        }
        let of_bucket = bucket.map_or(owner, Bucket::owner);
        let acl = match (&asked.canned, &asked.list) {
            (Some(name), _) => Acl::canned(name, owner, of_bucket)?,
            (None, Some(list)) => self.of_document(list)?,
            (None, None) => self.of_headers(&asked.grants)?,
        };
        if acl.0.len() > MOST {
            let text = format!("expected at most {MOST} grants, got {}", acl.0.len());
            return Err(because(S3ErrorCode::MalformedACLError, text));
        }
        if acl.is_public() && bucket.is_some_and(|bucket| bucket.blocks().block_public_acls == Some(true)) {
            let text = "the bucket's public access block refuses public ACLs";
            return Err(because(S3ErrorCode::AccessDenied, text));
        }
        Ok(Some(acl))
    }

    fn of_document(&self, list: &AccessControlPolicy) -> S3Result<Acl> {
        let missing =
            |what: &str| because(S3ErrorCode::MalformedACLError, format!("expected {what} in each grant"));
        let grant = |grant: &Grant| {
            let grantee = grant.grantee.as_ref().ok_or_else(|| missing("a grantee"))?;
            let right = grant.permission.as_ref().ok_or_else(|| missing("a permission"))?;
            let who = match (&grantee.id, &grantee.uri, &grantee.email_address) {
                (Some(id), _, _) => self.named("id", id)?,
                (None, Some(uri), _) => self.named("uri", uri)?,
                (None, None, Some(email)) => self.named("emailAddress", email)?,
                (None, None, None) => return Err(missing("an ID, a URI or an address")),
            };
            Ok((who, known_right(right.as_str())?))
        };
        list.grants.iter().flatten().map(grant).collect::<S3Result<_>>().map(Acl)
    }

    fn of_headers(&self, headers: &[Option<String>; 5]) -> S3Result<Acl> {
        let mut grants = Vec::new();
        for (text, right) in headers.iter().zip(RIGHTS) {
            for one in text.iter().flat_map(|text| text.split(',')) {
                let (kind, value) = one
                    .trim()
                    .split_once('=')
                    .ok_or_else(|| invalid("x-amz-grant", "id=, uri= or emailAddress=", one))?;
                grants.push((self.named(kind.trim(), value.trim().trim_matches('"'))?, right));
            }
        }
        Ok(Acl(grants))
    }

    /// Somebody who is named in a grant.
    fn named(&self, kind: &str, value: &str) -> S3Result<Who> {
        match (kind, value) {
            ("uri", EVERYBODY) => Ok(Who::Everybody),
            ("uri", AUTHENTICATED) => Ok(Who::Authenticated),
            ("id", user) if self.keys.has_user(user) => Ok(Who::User(user.to_owned())),
            ("emailAddress", email) => self.keys.user_of(email).map(Who::User).ok_or_else(|| {
                let text = format!("no key in the file of keys has the address {email:?}");
                because(S3ErrorCode::UnresolvableGrantByEmailAddress, text)
            }),
            _ => Err(invalid("grantee", "the name of a user, AllUsers or AuthenticatedUsers", value)),
        }
    }

    /// Who owns a new object, and the fact of its list.
    pub(crate) fn object_list(
        &self,
        bucket: &Bucket,
        caller: &Caller,
        asked: &Asked,
    ) -> S3Result<(String, Option<String>)> {
        let gives_owner = asked.canned.as_deref() == Some("bucket-owner-full-control");
        match bucket.ownership() {
            Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) if asked.is_empty() || gives_owner => {
                return Ok((bucket.owner().to_owned(), None));
            }
            Some(ObjectOwnership::BUCKET_OWNER_ENFORCED) => return Err(no_lists()),
            Some(ObjectOwnership::BUCKET_OWNER_PREFERRED) if gives_owner => {
                return Ok((bucket.owner().to_owned(), None));
            }
            _ => {}
        }
        let owner = caller.name();
        let acl = self.asked_list(asked, owner, Some(bucket))?;
        Ok((owner.to_owned(), acl.and_then(|acl| acl.fact(owner))))
    }

    /// The fact of the list of a new bucket.
    pub(crate) fn bucket_list(&self, owner: &str, asked: &Asked) -> S3Result<Option<String>> {
        Ok(self.asked_list(asked, owner, None)?.and_then(|acl| acl.fact(owner)))
    }

    /// `GetBucketAcl`.
    pub(crate) async fn get_bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let grants = Some(bucket.acl().shown());
        Ok(S3Response::new(GetBucketAclOutput { grants, owner: Some(entry::owner_of(bucket.owner())) }))
    }

    /// `PutBucketAcl`.
    pub(crate) async fn put_bucket_acl(
        &self,
        request: S3Request<PutBucketAclInput>,
    ) -> S3Result<S3Response<PutBucketAclOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        if bucket.is_enforced() {
            return Err(no_lists());
        }
        let (read, write, full) = (input.grant_read, input.grant_write, input.grant_full_control);
        let grants = [read, write, input.grant_read_acp, input.grant_write_acp, full];
        let canned = input.acl.as_ref().map(BucketCannedACL::as_str);
        let asked = Asked::of_call(canned, grants, input.access_control_policy);
        let acl = self.asked_list(&asked, bucket.owner(), Some(&bucket))?.ok_or_else(nothing)?;
        self.set_bucket(&bucket, [(bucket::ACL, acl.fact(bucket.owner()))]).await?;
        Ok(S3Response::new(PutBucketAclOutput::default()))
    }

    /// `GetObjectAcl`.
    pub(crate) async fn get_object_acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        let (_, info) = self.version(&bucket, &input.key, input.version_id.as_deref()).await?;
        let entry = Entry(&info);
        Ok(S3Response::new(GetObjectAclOutput {
            grants: Some(entry.acl(&bucket).shown()),
            owner: Some(entry.owner(&bucket)),
            ..GetObjectAclOutput::default()
        }))
    }

    /// `PutObjectAcl`.
    pub(crate) async fn put_object_acl(
        &self,
        request: S3Request<PutObjectAclInput>,
    ) -> S3Result<S3Response<PutObjectAclOutput>> {
        let bucket = gateway::bucket(&request.extensions)?;
        let input = request.input;
        if bucket.is_enforced() {
            return Err(no_lists());
        }
        let (read, write, full) = (input.grant_read, input.grant_write, input.grant_full_control);
        let grants = [read, write, input.grant_read_acp, input.grant_write_acp, full];
        let canned = input.acl.as_ref().map(ObjectCannedACL::as_str);
        let asked = Asked::of_call(canned, grants, input.access_control_policy);
        let version = input.version_id.as_deref();
        self.describe(&bucket, &input.key, version, |entry| {
            let owner = entry.writer(&bucket);
            let acl = self.asked_list(&asked, owner, Some(&bucket))?.ok_or_else(nothing)?;
            Ok([(entry::ACL.to_owned(), acl.fact(owner))].into())
        })
        .await?;
        Ok(S3Response::new(PutObjectAclOutput::default()))
    }
}

fn nothing() -> s3s::S3Error {
    because(
        S3ErrorCode::MissingSecurityHeader,
        "expected a canned ACL, headers with grants or a document, got none",
    )
}

fn no_lists() -> s3s::S3Error {
    let text = "the bucket has the ownership BucketOwnerEnforced, which allows no ACL";
    because(S3ErrorCode::AccessControlListNotSupported, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_comes_back_from_its_fact_as_it_was() {
        for name in [
            "private",
            "public-read",
            "public-read-write",
            "authenticated-read",
            "bucket-owner-read",
            "bucket-owner-full-control",
        ] {
            let acl = Acl::canned(name, "bob", "alice").unwrap();
            assert_eq!(Acl::of(acl.fact("bob").as_deref(), "bob"), acl, "{name}");
            assert_eq!(acl.fact("bob").is_none(), name == "private", "{name}");
        }
        assert!(Acl::canned("public", "bob", "alice").is_err());
        let none = Acl(Vec::new());
        assert_eq!(Acl::of(none.fact("bob").as_deref(), "bob"), none);
    }

    #[test]
    fn a_list_gives_what_it_says() {
        let nobody = Caller { key: None };
        let acl = Acl::canned("public-read", "bob", "alice").unwrap();
        assert!(acl.gives(&nobody, "READ", true, &[]) && !acl.gives(&nobody, "READ", false, &[]));
        assert!(!acl.gives(&nobody, "WRITE", true, &[]) && !acl.gives(&nobody, "READ_ACP", true, &[]));
        assert!(acl.is_public() && !own("bob").is_public());
        let known = Acl::canned("authenticated-read", "bob", "alice").unwrap();
        assert!(!known.gives(&nobody, "READ", true, &[]));
        // Somebody without a key is not a user of that name.
        assert!(!own("anonymous").gives(&nobody, "READ", true, &[]));
    }
}
