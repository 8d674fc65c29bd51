//! Why a listener cannot be served, and how a failed question is answered.

use std::io;
use std::net::SocketAddr;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kintsu_analysis::AnalysisError;
use kintsu_client::ClientError;
use kintsu_code::CodeError;
use kintsu_plan::PlanError;
use serde_json::json;

/// Why the page, or numbers of a process, cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// It shows names and places of everything without asking who looks, so it stays on loopback.
    #[error(
        "{what} on {on}: expected an address on loopback, 127.0.0.1:PORT (from elsewhere: ssh -L PORT:127.0.0.1:PORT HOST)"
    )]
    Exposed {
        /// What was to be shown.
        what: &'static str,
        /// The address.
        on: SocketAddr,
    },
    /// The address cannot be listened on.
    #[error("{what} cannot listen on {on}: {source}")]
    Listen {
        /// What was to be shown.
        what: &'static str,
        /// The address.
        on: SocketAddr,
        /// The reason.
        source: io::Error,
    },
}

impl PageError {
    /// Another process listens there.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse)
    }
}

/// A question that cannot be answered.
#[derive(Debug)]
pub struct ApiError {
    status: StatusCode,
    kind: &'static str,
    message: String,
}

impl ApiError {
    /// The question itself is wrong.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, kind: "invalid", message: message.into() }
    }

    /// Too much is asked at once.
    pub fn busy(message: impl Into<String>) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, kind: "busy", message: message.into() }
    }

    /// This one's text.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl From<ClientError> for ApiError {
    fn from(error: ClientError) -> Self {
        let status = match &error {
            ClientError::NotFound(_) => StatusCode::NOT_FOUND,
            ClientError::Invalid(_) => StatusCode::BAD_REQUEST,
            ClientError::Unreachable(_) => StatusCode::BAD_GATEWAY,
            ClientError::Refused(_) => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, kind: error.kind(), message: error.to_string() }
    }
}

impl From<PlanError> for ApiError {
    fn from(error: PlanError) -> Self {
        let kind = match &error {
            PlanError::Unrecoverable { .. } => "unrecoverable",
            PlanError::Placement { .. } => "placement",
            _ => "invalid",
        };
        Self { status: StatusCode::BAD_REQUEST, kind, message: error.to_string() }
    }
}

impl From<CodeError> for ApiError {
    fn from(error: CodeError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<AnalysisError> for ApiError {
    fn from(error: AnalysisError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<kintsu_dag::DagError> for ApiError {
    fn from(error: kintsu_dag::DagError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, kind, message } = self;
        let body = json!({"error": {"kind": kind, "message": message}});
        (status, axum::Json(body)).into_response()
    }
}
