//! Why the server does not start, and how failures of the cluster are told to clients of S3.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use http::StatusCode;
use kintsu_client::ClientError;
use s3s::{S3Error, S3ErrorCode};

use crate::memory::{Line, Taker};

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum S3GatewayError {
    /// It cannot listen there.
    #[error("cannot listen on {on}: {source}")]
    Listen {
        /// The address.
        on: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The address may not be used.
    #[error("{0}")]
    Address(String),
    /// The file of keys cannot be read.
    #[error("cannot read the keys in {}: {source}", path.display())]
    ReadKeys {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of keys says something that it may not.
    #[error("keys in {}: expected {expected}, got {got}", path.display())]
    BadKeys {
        /// The file.
        path: PathBuf,
        /// What was expected.
        expected: String,
        /// What it says.
        got: String,
    },
    /// A setting that cannot be.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which.
        what: &'static str,
        /// What was expected.
        expected: String,
        /// What came.
        got: String,
    },
}

/// What a client is told when the cluster fails.
pub(crate) fn of(error: ClientError) -> S3Error {
    let text = error.to_string();
    match error {
        ClientError::NotFound(_) => because(S3ErrorCode::NoSuchKey, text),
        ClientError::Invalid(_) => because(S3ErrorCode::InvalidArgument, text),
        ClientError::Full(_) => {
            let mut full = because(S3ErrorCode::Custom("InsufficientStorage".into()), text);
            full.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
            full
        }
        ClientError::Unreachable(_) | ClientError::Placement(_) | ClientError::Interrupted(_) => {
            tracing::warn!("a request failed: {text}");
            because(S3ErrorCode::ServiceUnavailable, text)
        }
        _ => {
            tracing::warn!("a request failed: {text}");
            because(S3ErrorCode::InternalError, text)
        }
    }
}

/// A request that is carried out.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    /// Its name, which its answer has too.
    pub id: String,
    /// What it asks for, once that is known.
    pub operation: OnceLock<String>,
    /// Headers for which it was refused because they are not signed.
    pub unsigned: OnceLock<String>,
    /// The connection that it came by.
    pub line: Option<Arc<Line>>,
    /// The user of its key, if it has one, once that is known.
    pub user: OnceLock<Option<String>>,
}

impl Asked {
    /// The request that is carried out asks for this.
    pub(crate) fn is(operation: &str) {
        let _ = REQUEST.try_with(|asked| asked.operation.set(operation.to_owned()));
    }

    /// Whether the request that is carried out asks for this.
    pub(crate) fn asks_for(operation: &str) -> bool {
        REQUEST.try_with(|asked| asked.operation.get().is_some_and(|asks| asks == operation)).unwrap_or(false)
    }

    /// The request that is carried out is one of this user, or of somebody without a key.
    pub(crate) fn is_of(user: Option<&str>) {
        let _ = REQUEST.try_with(|asked| asked.user.set(user.map(str::to_owned)));
    }

    /// Who takes memory for the request that is carried out.
    pub(crate) fn taker() -> Taker {
        let taker = |asked: &Arc<Self>| Taker { line: asked.line.clone(), user: asked.user.get().cloned() };
        REQUEST.try_with(taker).unwrap_or_default()
    }

    /// The request that is carried out has these headers, which are not signed.
    pub(crate) fn has_unsigned(names: String) {
        let _ = REQUEST.try_with(|asked| asked.unsigned.set(names));
    }
}

tokio::task_local! {
    /// The request that is carried out.
    pub(crate) static REQUEST: Arc<Asked>;
}

/// An error with a code and a text.
pub(crate) fn because(code: S3ErrorCode, text: impl Into<String>) -> S3Error {
    let mut error = S3Error::with_message(code, text.into());
    let _ = REQUEST.try_with(|asked| error.set_request_id(asked.id.clone()));
    error
}

/// A request that says something wrong.
pub(crate) fn invalid(what: &str, expected: &str, got: impl std::fmt::Display) -> S3Error {
    because(S3ErrorCode::InvalidArgument, format!("{what}: expected {expected}, got {got}"))
}
