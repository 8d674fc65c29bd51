//! Plans: pure functions from a stripe, what is lost and the topology to placed graphs, and
//! from placed graphs to the programs that nodes run.
//!
//! Nothing here reads a clock, draws random numbers or does I/O.

mod error;
mod layout;
mod method;
mod program;
mod topology;

pub use error::PlanError;
pub use layout::{Layout, LayoutKind};
pub use method::Method;
pub use program::{BlockBinding, JobId, Lane, Peer, Plan, Program, Window};
pub use topology::{Node, StripeView, Topology};
