//! How this crate makes faults. [`Fault`] is its error type, because every error of a run is sent to the
//! conductor.

use kintsu_dag::{BlockId, NodeId};
use kintsu_store::StoreError;
use kintsu_wire::WireError;
use kintsu_wire::message::{Fault, FaultKind};

/// A fault that is not about a block.
pub(crate) fn fault(kind: FaultKind, node: NodeId, detail: impl Into<String>) -> Fault {
    Fault { kind, node, block: None, detail: detail.into() }
}

/// A program that makes no sense.
pub(crate) fn invalid(
    node: NodeId,
    what: impl std::fmt::Display,
    expected: impl std::fmt::Display,
    got: impl std::fmt::Display,
) -> Fault {
    fault(FaultKind::Invalid, node, format!("{what}: expected {expected}, got {got}"))
}

/// The fault for a bad frame from `peer`. A stream that was cut means a lost peer.
pub(crate) fn from_wire(peer: NodeId, error: &WireError) -> Fault {
    let kind = match error {
        WireError::Cut { .. } => FaultKind::Lost,
        _ => FaultKind::Invalid,
    };
    fault(kind, peer, error.to_string())
}

/// The fault for a failed call to the store of `node` about `block`.
pub fn from_store(node: NodeId, block: BlockId, error: &StoreError) -> Fault {
    let kind = match error {
        StoreError::NotFound { .. } => FaultKind::Missing,
        StoreError::Stale { .. } => FaultKind::Stale,
        StoreError::DigestMismatch { .. } => FaultKind::Mismatch,
        StoreError::Full { .. } => FaultKind::Full,
        StoreError::Invalid { .. } => FaultKind::Invalid,
        rot if rot.is_rot() => FaultKind::Corrupt,
        _ => FaultKind::Io,
    };
    Fault { kind, node, block: Some(block), detail: error.to_string() }
}
