//! Why a request of a client failed.

use std::collections::BTreeSet;

use kintsu_dag::{BlockId, NodeId};
use kintsu_plan::PlanError;
use kintsu_wire::message::{Fault, StripeInfo};
use tonic::{Code, Status};

/// Why a request of a client failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is no such object or node.
    #[error("{0}")]
    NotFound(String),
    /// The name is taken.
    #[error("{0}")]
    Exists(String),
    /// A bad request; says what was expected and what came.
    #[error("{0}")]
    Invalid(String),
    /// More blocks are lost than the code tolerates; says which are left and which are needed.
    #[error("cannot be read: {0}")]
    Unrecoverable(String),
    /// The cluster's state does not allow it: most often too few nodes or racks are alive for the code's
    /// placement.
    #[error("{0}")]
    Placement(String),
    /// No node has room for a block.
    #[error("no space left: {0}")]
    Full(String),
    /// The coordinator, or a node, does not answer at an address.
    #[error("{0}")]
    Unreachable(String),
    /// The received data are not what was requested.
    #[error("corrupt: {0}")]
    Corrupt(String),
    /// The coordinator refuses this client: wrong or missing token, another protocol version, or another
    /// cluster.
    #[error("refused: {0}")]
    Refused(String),
    /// The object or the put ended meanwhile: replaced, removed, or its lease ran out.
    #[error("interrupted: {0}")]
    Interrupted(String),
    /// An I/O error of the source or the sink, or of a node.
    #[error("{0}")]
    Io(String),
}

impl ClientError {
    /// Turns the coordinator's answer into an error; names `endpoint` if there was no answer at all.
    pub(crate) fn from_status(endpoint: &str, status: &Status) -> Self {
        let message = kintsu_wire::words(status);
        if is_transport(status) {
            return Self::unreachable(endpoint, &message);
        }
        if kintsu_wire::other_cluster(status).is_some() {
            // What it says about our cluster, for example that it has no such put, means nothing.
            return Self::Refused(message);
        }
        match status.code() {
            Code::NotFound => Self::NotFound(message),
            Code::AlreadyExists => Self::Exists(message),
            Code::InvalidArgument | Code::OutOfRange => Self::Invalid(message),
            Code::Unimplemented => {
                let advice = "is this the coordinator's address (--coordinator, KINTSU_COORDINATOR)?";
                Self::Invalid(format!("what answers at {endpoint}: {message}; {advice}"))
            }
            Code::DataLoss => Self::Unrecoverable(message),
            Code::FailedPrecondition => Self::Placement(message),
            Code::ResourceExhausted => Self::Full(message),
            Code::Unauthenticated | Code::PermissionDenied => Self::Refused(message),
            Code::Aborted => Self::Interrupted(message),
            Code::Unavailable => Self::Io(message),
            Code::Internal if message.starts_with("protocol error") => {
                Self::Invalid(format!("what answers at {endpoint} is no coordinator of Kintsu: {message}"))
            }
            _ => Self::Io(format!("the coordinator at {endpoint}: {message}")),
        }
    }

    /// What kind of error it is, as one word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NotFound(_) => "not_found",
            Self::Exists(_) => "exists",
            Self::Invalid(_) => "invalid",
            Self::Unrecoverable(_) => "unrecoverable",
            Self::Placement(_) => "placement",
            Self::Full(_) => "full",
            Self::Unreachable(_) => "unreachable",
            Self::Corrupt(_) => "corrupt",
            Self::Refused(_) => "refused",
            Self::Interrupted(_) => "interrupted",
            Self::Io(_) => "io",
        }
    }

    /// The sink of a read took no more.
    pub fn of_sink(error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => {
                Self::Io("what was read could not be written: the reader of the pipe has closed it".into())
            }
            _ => Self::Io(format!("what was read could not be written: {error}")),
        }
    }

    pub(crate) fn unreachable(endpoint: &str, reason: &str) -> Self {
        Self::Unreachable(format!("no coordinator answers at {endpoint} ({reason}); {}", advice(reason)))
    }

    /// Adds the object, the stripe and what is wrong with its blocks to a planner's error. `why_not`: why a block cannot be
    /// read on its node; `None` if it can.
    pub(crate) fn about(
        self,
        name: &str,
        stripe: &StripeInfo,
        why_not: impl Fn(BlockId, NodeId) -> Option<String>,
    ) -> Self {
        let Self::Unrecoverable(why) = self else { return self };
        let note = if stripe.encoded { "" } else { " (it has no parity yet: see `kintsu encode`)" };
        let wrong = stripe.blocks.iter().flatten().filter_map(|place| {
            let lost = || format!("flagged lost on {}", place.node);
            let why = if place.lost { Some(lost()) } else { why_not(place.id, place.node) };
            Some(format!("; {}: {}", place.id.index, why?))
        });
        Self::Unrecoverable(format!("{name}, stripe {}: {why}{note}{}", stripe.id, wrong.collect::<String>()))
    }

    /// Adds the nodes that a read left aside because they were slow.
    pub(crate) fn without(mut self, slow: &BTreeSet<NodeId>) -> Self {
        if slow.is_empty() {
            return self;
        }
        let names: Vec<_> = slow.iter().map(ToString::to_string).collect();
        let note = format!(" (left aside because they were slow: {})", names.join(", "));
        match &mut self {
            Self::Unrecoverable(text) | Self::Unreachable(text) | Self::Corrupt(text) | Self::Io(text) => {
                text.push_str(&note);
            }
            _ => {}
        }
        self
    }

    pub(crate) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_))
    }
}

/// What can be done about a coordinator that does not answer.
fn advice(reason: &str) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| reason.contains(word));
    if says(&["certificate", "wrong peer", "fatal alert"]) {
        "each side must trust the other's authority, and both certificates must be in force: see docs/security.md"
    } else if says(&[
        "frame with invalid size",
        "corrupt message",
        "closed because of a broken pipe",
        "connection closed",
    ]) {
        "does only one side speak TLS (--tls DIR, or KINTSU_TLS, makes this one speak it), or is this another port than the \
         coordinator's?"
    } else {
        "`kintsu up` starts a cluster there"
    }
}

/// Whether a status was made on our side because no answer came.
pub(crate) fn is_transport(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

/// Whether the connection ended before the request was sent, so that the call can be repeated safely.
pub(crate) fn is_unsent(status: &Status) -> bool {
    is_transport(status) && status.code() == Code::Cancelled
}

impl From<PlanError> for ClientError {
    fn from(error: PlanError) -> Self {
        let text = error.to_string();
        match error {
            PlanError::Unrecoverable { .. } => Self::Unrecoverable(text),
            PlanError::Placement { .. } => Self::Placement(text),
            _ => Self::Invalid(text),
        }
    }
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

impl From<Fault> for ClientError {
    fn from(fault: Fault) -> Self {
        use kintsu_wire::message::FaultKind as Kind;
        let text = fault.to_string();
        match fault.kind {
            Kind::Lost | Kind::Stalled => Self::Unreachable(text),
            Kind::Corrupt | Kind::Missing | Kind::Stale | Kind::Mismatch => Self::Corrupt(text),
            Kind::Full => Self::Full(text),
            Kind::Invalid => Self::Invalid(text),
            Kind::Aborted => Self::Interrupted(text),
            Kind::Io => Self::Io(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_answers_in_another_language_is_at_another_port() {
        let said = |reason| ClientError::unreachable("127.0.0.1:1", reason).to_string();
        let closed = ["stream closed because of a broken pipe", "operation was canceled: connection closed"];
        for reason in closed.into_iter().chain(["frame with invalid size"]) {
            assert!(said(reason).contains("another port than the coordinator's"), "{}", said(reason));
        }
        assert!(said("Connection refused").ends_with("`kintsu up` starts a cluster there"));
    }
}
