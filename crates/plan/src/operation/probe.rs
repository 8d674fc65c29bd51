//! Measuring links: bytes that are made where they are sent from, and dropped where they arrive (ECPipe, section 6.2,
//! measures links before it repairs).

use std::sync::Arc;

use kintsu_code::Code;
use kintsu_dag::{BlockIndex, NodeId, Sink, StripeId};

use crate::program::carried;
use crate::{Layout, LayoutKind, Plan, StripeView};

/// The stripe of all probes: real ones have higher numbers. Agents make its bytes, and never store them.
pub const PROBE: StripeId = StripeId(0);

/// A plan that sends `bytes` from one node to another, and the stripe that it is a plan for. `code` is one with a single
/// data block.
pub fn probe(code: Arc<dyn Code>, from: NodeId, to: NodeId, bytes: u64, slice: u32) -> (StripeView, Plan) {
    let layout = Layout {
        kind: LayoutKind::Contiguous,
        block_bytes: bytes,
        cell_bytes: slice,
        w: 1,
        data_bytes: bytes,
    };
    let mut homes = vec![None; code.n()];
    homes[0] = Some(from);
    let view = StripeView { id: PROBE, code, layout, homes };
    let plan = carried(&view, [(BlockIndex(0), from, to, Sink::Nothing)]);
    (view, plan)
}
