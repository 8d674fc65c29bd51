//! The coordinator's errors, and how they are sent over gRPC.

use kintsu_dag::NodeId;
use kintsu_plan::PlanError;
use tonic::{Code, Status};

use crate::engine::gate::Untrusted;
use crate::engine::identity::Refused;

/// Why a request or the start of a coordinator failed. Nothing was changed unless the error says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CoordinatorError {
    /// A parameter out of its range.
    #[error("{what}: expected {expected}, got {got}")]
    Invalid {
        /// Which parameter.
        what: &'static str,
        /// What was expected.
        expected: String,
        /// What came.
        got: String,
    },
    /// A name, id or put that is not there.
    #[error("{what} {name:?}: expected one that exists, got none of that name")]
    NotFound {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
    },
    /// A name or id that is taken.
    #[error("{what} {name:?}: expected a free name, got one that is taken{hint}")]
    Exists {
        /// What kind of thing.
        what: &'static str,
        /// Its name.
        name: String,
        /// What can be done about it; begins with its own separator, may be empty.
        hint: String,
    },
    /// The state of the cluster does not allow it.
    #[error("{what}: expected {expected}, got {got}")]
    Conflict {
        /// What was tried.
        what: String,
        /// The state it needs.
        expected: String,
        /// The present state.
        got: String,
    },
    /// A writer of a volume that somebody else has taken over, or that has no lease.
    #[error("{what}: expected {expected}, got {got}")]
    Fenced {
        /// What was tried.
        what: String,
        /// Who may do it.
        expected: String,
        /// Who tried.
        got: String,
    },
    /// No plan could be made: too few nodes, too many losses, or the proof of a graph fails.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A repair for which no plan could be made, with the missing blocks and where they should be.
    #[error("{error}; missing: {missing}")]
    Missing {
        /// Why there is no plan.
        error: PlanError,
        /// The missing blocks, as text for people.
        missing: String,
    },
    /// A code that cannot be built, or a definition whose proof fails.
    #[error("code: {0}")]
    Code(#[from] kintsu_code::CodeError),
    /// The metadata on disk contradict themselves or are of another version.
    #[error("metadata: {what}: expected {expected}, got {got}")]
    Corrupt {
        /// Which row.
        what: String,
        /// What was expected there.
        expected: String,
        /// What was read.
        got: String,
    },
    /// The metadata store failed.
    #[error("metadata store: {0}")]
    Storage(String),
    /// The disk of the metadata failed: the coordinator stops.
    #[error("{0}")]
    Halted(String),
    /// A listener or a token that is not safe.
    #[error(transparent)]
    Wire(#[from] kintsu_wire::WireError),
    /// A copy of the metadata that cannot be used.
    #[error(transparent)]
    Copy(#[from] kintsu_wire::copy::CopyError),
    /// No agent keeps a copy of the metadata that can be used.
    #[error("{0}")]
    NoCopy(String),
    /// Another coordinator uses the directory, the port is taken, or other I/O failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A fault of this program: a task panicked.
    #[error("internal error: {0}")]
    Internal(String),
    /// A node could not be reached or gave up.
    #[error("{node} is unavailable: {reason}")]
    Unavailable {
        /// Which node.
        node: kintsu_dag::NodeId,
        /// Why.
        reason: String,
    },
}

/// The crate's result.
pub type Result<T, E = CoordinatorError> = std::result::Result<T, E>;

impl From<Refused> for CoordinatorError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Client => Self::Invalid {
                what: "node id",
                expected: format!("at most {}", u32::MAX - 1),
                got: NodeId::CLIENT.0.to_string(),
            },
            Refused::Conflict { what, expected, got } => Self::Conflict { what, expected, got },
        }
    }
}

impl From<Untrusted> for CoordinatorError {
    fn from(Untrusted { what, reasons }: Untrusted) -> Self {
        Self::Conflict {
            what,
            expected: "metadata that know all that is stored".into(),
            got: reasons.join("; "),
        }
    }
}

impl From<CoordinatorError> for Status {
    fn from(error: CoordinatorError) -> Self {
        use CoordinatorError as E;
        let code = match &error {
            E::Invalid { .. } | E::Code(_) | E::Plan(PlanError::Invalid { .. }) => Code::InvalidArgument,
            E::NotFound { .. } => Code::NotFound,
            E::Exists { .. } => Code::AlreadyExists,
            E::Conflict { .. } | E::Plan(_) | E::Missing { .. } | E::Wire(_) => Code::FailedPrecondition,
            E::Corrupt { .. } | E::Copy(_) => Code::DataLoss,
            E::Fenced { .. } => Code::Aborted,
            E::Storage(_) | E::Internal(_) => Code::Internal,
            E::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull => {
                Code::ResourceExhausted
            }
            E::Io { .. } => Code::Internal,
            E::Unavailable { .. } | E::Halted(_) | E::NoCopy(_) => Code::Unavailable,
        };
        Status::new(code, shortened(error.to_string()))
    }
}

/// Most bytes of a message: it is sent in a header, which must not be long.
const MESSAGE_BYTES: usize = 2 << 10;

/// Cuts out the middle of a message that is too long: a message may quote what a caller sent.
fn shortened(message: String) -> String {
    if message.len() <= MESSAGE_BYTES {
        return message;
    }
    let (head, tail) = (MESSAGE_BYTES / 2, message.len() - MESSAGE_BYTES / 2);
    let (head, tail) = (message.floor_char_boundary(head), message.ceil_char_boundary(tail));
    format!("{} ... {}", &message[..head], &message[tail..])
}

macro_rules! storage {
    ($($error:ty),*) => {$(
        impl From<$error> for CoordinatorError {
            fn from(error: $error) -> Self {
                redb::Error::from(error).into()
            }
        }
    )*};
}

storage!(
    redb::TransactionError,
    redb::TableError,
    redb::StorageError,
    redb::CommitError,
    redb::DatabaseError,
    redb::SetDurabilityError
);

impl From<redb::Error> for CoordinatorError {
    fn from(error: redb::Error) -> Self {
        match error {
            redb::Error::Io(source) => Self::Io { what: "metadata store".into(), source },
            other => Self::Storage(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_keeps_its_ends() {
        let got = format!("a{}z", "ö".repeat(1 << 20));
        let error = CoordinatorError::Invalid { what: "name", expected: "a short one".into(), got };
        let message = Status::from(error).message().to_owned();
        assert!(message.starts_with("name: expected a short one, got a"), "{message}");
        assert!(message.ends_with('z') && message.len() < MESSAGE_BYTES + 10, "{}", message.len());
    }
}
