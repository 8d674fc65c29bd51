//! The ECDAG: erasure-coding operations as directed acyclic graphs of linear combinations
//! (OpenEC, section 3), their symbolic proof, optimisation, and lowering to per-node tasks.
//!
//! This crate knows no particular code and moves no data. A graph is built by [`Ecdag::join`],
//! [`Ecdag::bind_x`] and [`Ecdag::bind_y`]; given places it becomes a [`Placed`] graph, which
//! lowers to the four kinds of [`Task`].

mod bind;
mod ecdag;
mod error;
mod ids;
mod layout;
mod lower;
mod order;
mod pipelined;
mod prove;
mod shapes;
mod shorten;
mod svg;
mod task;
mod text;

pub use ecdag::{BindX, Ecdag, Join, MAX_VERTICES};
pub use error::DagError;
pub use ids::{BlockId, BlockIndex, NodeId, RackId, StripeId, Vertex};
pub use pipelined::pipelined;
pub use shapes::{chain, star, tree};
pub use task::{NodeTasks, Placed, Sink, Task};
