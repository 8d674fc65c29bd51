//! Faults as this crate makes them: [`Fault`] is its error type, because whatever goes wrong in
//! a run has to travel to whoever asked for it.

use kintsu_dag::{BlockId, NodeId};
use kintsu_store::StoreError;
use kintsu_wire::WireError;
use kintsu_wire::message::{Fault, FaultKind};

/// A fault that concerns no block.
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

/// A frame from `peer` that was refused. A stream that was cut is a lost peer.
pub(crate) fn from_wire(peer: NodeId, error: &WireError) -> Fault {
    let kind = match error {
        WireError::Cut { .. } => FaultKind::Lost,
        _ => FaultKind::Invalid,
    };
    fault(kind, peer, error.to_string())
}

/// What the store of `node` refused to do with `block`.
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
