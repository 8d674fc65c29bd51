//! Turns a panic of long work into an error, so that those who wait for its end learn of it.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt;

use crate::error::{CoordinatorError, Result};

/// The work's own result, or `Internal` when it panics. Guards that the work holds are dropped before this returns.
///
/// # Errors
/// Those of `work`; `Internal`.
pub async fn guarded<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    // Shared state is behind locks that stay usable after a panic: see `cluster::lock`.
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(result) => result,
        Err(panic) => Err(CoordinatorError::Internal(message(&*panic))),
    }
}

/// The message of a panic.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without text".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_an_error_with_its_words() {
        assert_eq!(guarded(async { Ok(7) }).await.unwrap(), 7);
        for words in [true, false] {
            let work = async move {
                if words {
                    panic!("node {}", 3);
                }
                panic!("plain")
            };
            let error = guarded::<()>(work).await.unwrap_err().to_string();
            assert_eq!(error, format!("internal error: {}", if words { "node 3" } else { "plain" }));
        }
    }
}
