//! Moving a block that can still be read (drain): no decoding.

use kintsu_dag::{BlockIndex, NodeId, Sink};

use crate::program::carried;
use crate::{Plan, PlanError, StripeView};

/// Copies a block from its home to a node that holds no block of the stripe yet.
///
/// # Errors
/// `Placement` when the block has no home; `Invalid` for a block that is not stored and for a
/// target with a block of the stripe.
pub fn copy(view: &StripeView, block: BlockIndex, to: NodeId) -> Result<Plan, PlanError> {
    view.check("block to copy", &[block])?;
    let home = view.home(block)?;
    if to.is_client() || view.homes.contains(&Some(to)) {
        return Err(PlanError::Invalid {
            what: format!("new home of {block} of {}", view.id),
            expected: "a storage node without a block of the stripe".into(),
            got: to.to_string(),
        });
    }
    Ok(carried(view, [(block, home, to, Sink::Block)]))
}

/// Reads a block at a node and writes it there once more: for a store that keeps a block aside first, and gives it its
/// place when it is told to.
///
/// # Errors
/// `Invalid` for a block that is not stored, and for a node that is none.
pub fn settle(view: &StripeView, block: BlockIndex, at: NodeId) -> Result<Plan, PlanError> {
    view.check("block to settle", &[block])?;
    if at.is_client() {
        return Err(PlanError::Invalid {
            what: format!("node of {block} of {}", view.id),
            expected: "a storage node".into(),
            got: at.to_string(),
        });
    }
    Ok(carried(view, [(block, at, at, Sink::Block)]))
}
