//! The file of keys: who may call, with which secret, and what each may do. It is read again when it changes.
//!
//! ```toml
//! [[key]]
//! access = "AKIDALICE0001"
//! secret = "at least 16 characters"
//! user = "alice"                    # several keys may be of one user; without it the user is the access key
//! email = "alice@example.com"       # what grants in ACLs may name the user by; not needed
//! create = true                     # may make buckets, and may do everything with buckets of this user
//! [key.buckets]
//! "logs-*" = ["read", "list"]       # or "write", "admin"
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;

use crate::S3GatewayError;

/// The file is looked at this often at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Shortest secret in bytes.
const SECRET_BYTES: usize = 16;

/// What a key may do with the objects of a bucket, and with the bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Right {
    /// Read objects and what is known of them.
    Read,
    /// Write and remove objects.
    Write,
    /// List objects.
    List,
    /// Make and remove the bucket, and change its settings.
    Admin,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    key: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    access: String,
    secret: String,
    user: Option<String>,
    email: Option<String>,
    #[serde(default)]
    create: bool,
    #[serde(default)]
    buckets: BTreeMap<String, Vec<Right>>,
}

/// One key.
pub(crate) struct Key {
    pub secret: String,
    pub user: String,
    email: Option<String>,
    pub create: bool,
    /// Rights by patterns of bucket names.
    buckets: Vec<(String, Vec<Right>)>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Not the secret.
        f.debug_struct("Key").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Key {
    /// Whether it was given a right for a bucket.
    pub(crate) fn has(&self, right: Right, bucket: &str) -> bool {
        self.buckets.iter().any(|(pattern, rights)| matches(pattern, bucket) && rights.contains(&right))
    }
}

/// Whether a text fits a pattern in which `*` stands for any text and `?` for one character.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => (p, t) = (p + 1, t + 1),
            // The last star takes one character more.
            _ => match star {
                Some((at, taken)) => {
                    (p, t) = (at + 1, taken + 1);
                    star = Some((at, taken + 1));
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

type Table = BTreeMap<String, Arc<Key>>;

/// The keys in a file.
pub struct Keys {
    path: PathBuf,
    table: RwLock<Table>,
    seen: Mutex<Seen>,
}

struct Seen {
    looked: Instant,
    stamp: Option<(SystemTime, u64)>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Keys {
    /// Reads a file of keys.
    ///
    /// # Errors
    /// It cannot be read; it has no key, an access key twice, a short secret, or something unknown.
    pub fn read(path: &Path) -> Result<Self, S3GatewayError> {
        let stamp = stamp(path);
        let table = parse(path)?;
        let seen = Mutex::new(Seen { looked: Instant::now(), stamp });
        Ok(Self { path: path.to_owned(), table: RwLock::new(table), seen })
    }

    /// How many keys there are.
    pub fn count(&self) -> usize {
        self.table.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The key with this access key, by the file as it is now.
    pub(crate) fn find(&self, access: &str) -> Option<Arc<Key>> {
        self.refresh();
        self.table.read().unwrap_or_else(PoisonError::into_inner).get(access).cloned()
    }

    /// Whether there is a key of this user.
    pub(crate) fn has_user(&self, user: &str) -> bool {
        self.table.read().unwrap_or_else(PoisonError::into_inner).values().any(|key| key.user == user)
    }

    /// The user with this address.
    pub(crate) fn user_of(&self, email: &str) -> Option<String> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let key = table.values().find(|key| key.email.as_deref() == Some(email))?;
        Some(key.user.clone())
    }

    /// Reads the file again if it has changed. If it is wrong, the keys stay as they are.
    fn refresh(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.looked.elapsed() < LOOK_EVERY {
            return;
        }
        seen.looked = Instant::now();
        let now = stamp(&self.path);
        if now == seen.stamp {
            return;
        }
        seen.stamp = now;
        match parse(&self.path) {
            Ok(table) => {
                tracing::info!("{} keys in {}", table.len(), self.path.display());
                *self.table.write().unwrap_or_else(PoisonError::into_inner) = table;
            }
            Err(error) => tracing::warn!("the keys stay as they are: {error}"),
        }
    }
}

fn stamp(path: &Path) -> Option<(SystemTime, u64)> {
    let known = std::fs::metadata(path).ok()?;
    Some((known.modified().ok()?, known.len()))
}

fn parse(path: &Path) -> Result<Table, S3GatewayError> {
    let read = std::fs::read_to_string(path);
    let text = read.map_err(|source| S3GatewayError::ReadKeys { path: path.to_owned(), source })?;
    parse_text(path, &text)
}

/// The keys in this text of a file.
pub(crate) fn parse_text(path: &Path, text: &str) -> Result<Table, S3GatewayError> {
    let bad = |expected: &str, got: String| S3GatewayError::BadKeys {
        path: path.to_owned(),
        expected: expected.to_owned(),
        got,
    };
    // The text of the error would show a part of the file.
    let file: File = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
        bad(
            "tables [[key]] with access, secret, user, email, create and buckets",
            format!("{} in line {line}", error.message()),
        )
    })?;
    let mut table = Table::new();
    for row in file.key {
        if row.access.is_empty() || row.access.contains(['/', ',', ' ']) {
            return Err(bad("access keys without slash, comma and blank", format!("{:?}", row.access)));
        }
        if row.secret.len() < SECRET_BYTES {
            let expected = format!("secrets of at least {SECRET_BYTES} characters");
            return Err(bad(&expected, format!("{} characters for {}", row.secret.len(), row.access)));
        }
        let key = Key {
            secret: row.secret,
            user: row.user.unwrap_or_else(|| row.access.clone()),
            email: row.email,
            create: row.create,
            buckets: row.buckets.into_iter().collect(),
        };
        if table.insert(row.access.clone(), Arc::new(key)).is_some() {
            return Err(bad("each access key once", format!("{} twice", row.access)));
        }
    }
    if table.is_empty() {
        return Err(bad("at least one [[key]]", "none".to_owned()));
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [[key]]
        access = "A"
        secret = "0123456789abcdef"
        create = true
        [key.buckets]
        "logs-*" = ["read", "list"]
        [[key]]
        access = "B"
        secret = "0123456789abcdef"
        user = "bob"
        email = "bob@example.com"
    "#;

    #[test]
    fn keys_have_users_and_rights() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, GOOD).unwrap();
        let keys = Keys::read(&path).unwrap();
        let (a, b) = (keys.find("A").unwrap(), keys.find("B").unwrap());
        assert_eq!((a.user.as_str(), a.create, b.user.as_str(), b.create), ("A", true, "bob", false));
        assert!(a.has(Right::Read, "logs-1") && !a.has(Right::Write, "logs-1") && !a.has(Right::Read, "log"));
        assert!(keys.find("C").is_none());
        assert!(keys.has_user("bob") && keys.has_user("A") && !keys.has_user("B"));
        assert_eq!((keys.user_of("bob@example.com").as_deref(), keys.user_of("bob")), (Some("bob"), None));
        assert!(!format!("{a:?}").contains("0123"));
    }

    #[test]
    fn wrong_files_are_refused_without_showing_a_secret() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        let secret = "secret = \"0123456789abcdef\"";
        for wrong in [
            "".to_owned(),
            format!("[[key]]\naccess = \"A\"\n{secret}\nother = 1"),
            format!("[[key]]\naccess = \"A\"\n{secret}x"),
            "[[key]]\naccess = \"A\"\nsecret = \"short\"".to_owned(),
            format!("[[key]]\naccess = \"A/B\"\n{secret}"),
            format!("[[key]]\naccess = \"A\"\n{secret}\n[[key]]\naccess = \"A\"\n{secret}"),
            format!("[[key]]\naccess = \"A\"\n{secret}\n[key.buckets]\na = [\"rule\"]"),
        ] {
            std::fs::write(&path, &wrong).unwrap();
            let error = Keys::read(&path).unwrap_err().to_string();
            assert!(!error.contains("0123456789"), "{error}");
        }
        assert!(matches!(Keys::read(&dir.path().join("none")), Err(S3GatewayError::ReadKeys { .. })));
    }

    #[test]
    fn a_file_that_changes_is_read_again_and_a_wrong_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        std::fs::write(&path, GOOD).unwrap();
        let keys = Keys::read(&path).unwrap();
        let later = |keys: &Keys| {
            let mut seen = keys.seen.lock().unwrap();
            seen.looked = Instant::now().checked_sub(LOOK_EVERY).unwrap();
        };
        std::fs::write(&path, GOOD.replace("\"B\"", "\"CC\"")).unwrap();
        later(&keys);
        assert!(keys.find("CC").is_some() && keys.find("B").is_none());
        std::fs::write(&path, "[[key]]").unwrap();
        later(&keys);
        assert!(keys.find("CC").is_some());
    }

    #[test]
    fn patterns_match_as_a_whole() {
        for (pattern, text) in
            [("*", ""), ("a*", "a"), ("*b*d", "abcbd"), ("a?c", "abc"), ("s3:Get*", "s3:GetObject")]
        {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("a", "ab"), ("a*b", "a"), ("?", ""), ("*b", "bc")] {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
