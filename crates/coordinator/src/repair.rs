//! Repairs, decided here and done elsewhere: pure state machines and their book-keeping.
//!
//! - [`Queue`]: which stripes are to be mended, for whom, and how many at once.
//! - [`Mend`]: one stripe, from the first plan over faults and re-planning to the blocks' new homes.
//! - [`Auto`]: when repairs start without being asked.
//! - [`Tally`]: what was read and moved.
//!
//! Nothing here reads a clock, does I/O or touches metadata. The driver (`driver::mend`) runs what
//! they order and tells them how it ended.

mod auto;
mod mend;
mod queue;
mod tally;

pub use auto::Auto;
pub use mend::{Attempt, Circumstances, Mend, Verdict};
pub use queue::{AskId, Asked, Command, Outcome, Queue, Want};
pub use tally::Tally;

use kintsu_plan::Method;

/// How a repair is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// The shape of the plan.
    pub method: Method,
    /// Slice in bytes.
    pub slice_bytes: u32,
    /// Mend a block on the node it is on, where that lives (single rotten blocks); else requestors are
    /// spread over all nodes (recovery of whole nodes).
    pub in_place: bool,
}
