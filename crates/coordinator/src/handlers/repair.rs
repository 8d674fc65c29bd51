//! Repairs now, without waiting for the grace time. What is under repair already is not repaired
//! twice: the call then reports how that ended. When the caller goes away the repairs go on.

use std::sync::Arc;

use kintsu_wire::message::{Repair, RepairTarget};

use crate::cluster::{Cluster, unknown_node};
use crate::driver::{DEFAULT_SLICE_BYTES, Listener, Source, ask};
use crate::error::{CoordinatorError, Result};
use crate::repair::Order;

/// Smallest and largest slice in bytes.
const SLICES: std::ops::RangeInclusive<u32> = 512..=16 << 20;

/// See the head of this file.
pub async fn handle(cluster: &Arc<Cluster>, request: Repair, listener: Listener) -> Result<()> {
    let slice_bytes = match request.slice_bytes {
        0 => DEFAULT_SLICE_BYTES,
        bytes if SLICES.contains(&bytes) => bytes,
        bytes => {
            return Err(CoordinatorError::Invalid {
                what: "slice",
                expected: format!("{} to {} bytes", SLICES.start(), SLICES.end()),
                got: bytes.to_string(),
            });
        }
    };
    let source = match request.target {
        RepairTarget::Node(node) => {
            if cluster.members().node(node).is_none() {
                return Err(unknown_node(node));
            }
            Source::Node(node)
        }
        RepairTarget::Object(name) => {
            let wanted = name.clone();
            cluster.meta.off(move |meta| meta.snapshot()?.object(&wanted)).await?;
            Source::Object(name)
        }
        RepairTarget::All => Source::Everything(cluster.members().down()),
    };
    let order = Order { method: request.method, slice_bytes, in_place: false };
    ask(cluster, source, order, Some(listener));
    Ok(())
}
