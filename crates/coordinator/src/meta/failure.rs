//! Handles a failure of the metadata's disk: the first error is remembered, with the operation that failed, and
//! every later call is refused with this error.
//!
//! After a failed write or read, the store itself answers every call with an error that no longer says why.
//! Therefore this module watches all reads and writes of the file. Nothing acknowledged is lost: a transaction
//! whose commit failed was not acknowledged, and everything committed before is there at the next start.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use redb::{BackendError, StorageBackend};
use tokio_util::sync::CancellationToken;

use crate::error::{CoordinatorError, Result};

/// Whether the disk of the metadata has failed, and how.
pub struct Failure {
    dir: PathBuf,
    reason: OnceLock<String>,
    happened: CancellationToken,
}

impl Failure {
    pub(super) fn new(dir: &Path) -> Arc<Self> {
        let (reason, happened) = (OnceLock::new(), CancellationToken::new());
        Arc::new(Self { dir: dir.to_owned(), reason, happened })
    }

    /// Waits until the disk fails; waits for ever if it does not fail.
    pub async fn happened(&self) {
        self.happened.cancelled().await;
    }

    /// Refuses every call after a failure.
    ///
    /// # Errors
    /// `Halted` with the first failure.
    pub fn check(&self) -> Result<()> {
        match self.reason.get() {
            None => Ok(()),
            Some(reason) => Err(CoordinatorError::Halted(reason.clone())),
        }
    }

    /// Returns the remembered failure, if there is one, instead of the error of the store.
    pub(crate) fn explain(&self, error: CoordinatorError) -> CoordinatorError {
        self.check().err().unwrap_or(error)
    }

    /// Remembers the first failure.
    fn note(&self, what: &str, error: &io::Error) {
        let said = error.to_string();
        let said = said.split(" (os error").next().unwrap_or_default();
        let (dir, free) = (self.dir.display(), free_bytes(&self.dir));
        let free = free.map_or(String::new(), |bytes| format!(": {bytes} bytes free"));
        let todo = if error.kind() == io::ErrorKind::StorageFull {
            "free some space and start it again"
        } else {
            "repair the disk and start it again, or start on an empty folder with --restore auto"
        };
        let reason =
            format!("metadata cannot be {what}: {said} at {dir}{free}; nothing acknowledged is lost; {todo}");
        if self.reason.set(reason).is_ok() {
            self.happened.cancel();
        }
    }
}

fn free_bytes(dir: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(dir).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The file of the metadata; its failures are noted.
pub struct Watched {
    file: Box<dyn StorageBackend>,
    failure: Arc<Failure>,
}

impl Watched {
    pub fn new(file: Box<dyn StorageBackend>, failure: Arc<Failure>) -> Self {
        Self { file, failure }
    }

    fn noted<T>(&self, what: &str, done: io::Result<T>) -> io::Result<T> {
        done.inspect_err(|error| self.failure.note(what, error))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watched").field(&self.file).finish()
    }
}

type Locked<T> = Result<T, BackendError>;

impl StorageBackend for Watched {
    fn len(&self) -> io::Result<u64> {
        self.noted("read", self.file.len())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.noted("read", self.file.read(offset, out))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.noted("written", self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.noted("written", self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.noted("written", self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<()> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Locked<bool> {
        self.file.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::tests::{open, store};

    #[tokio::test]
    async fn after_a_failure_every_call_says_the_first_one() {
        let dir = tempfile::tempdir().unwrap();
        let meta = open(dir.path());
        store(&meta, "a", 48, 0);
        meta.failure.note("written", &io::Error::from(io::ErrorKind::StorageFull));
        meta.failure.note("read", &io::Error::other("later"));
        meta.failure().happened().await;
        let said = [
            meta.accept_older().unwrap_err().to_string(),
            meta.snapshot().err().unwrap().to_string(),
            meta.off(|_| Ok(())).await.unwrap_err().to_string(),
        ];
        for said in said {
            assert!(said.starts_with("metadata cannot be written: "), "{said}");
            assert!(
                said.contains(&dir.path().display().to_string()) && said.contains("bytes free"),
                "{said}"
            );
            assert!(
                said.ends_with("nothing acknowledged is lost; free some space and start it again"),
                "{said}"
            );
        }
        drop(meta);
        assert_eq!(open(dir.path()).snapshot().unwrap().totals().unwrap().objects, 1);
    }
}
