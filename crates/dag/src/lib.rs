//! The ECDAG: erasure-coding operations as directed acyclic graphs of linear combinations
//! (OpenEC, section 3), their symbolic proof, optimisation, and lowering to per-node tasks.
//!
//! This crate knows no particular code and moves no data. A graph is built by [`Ecdag::join`],
//! [`Ecdag::bind_x`] and [`Ecdag::bind_y`]; given places it becomes a [`Placed`] graph, which
//! lowers to the four kinds of [`Task`]. [`star`], [`tree`] and [`chain`] build the usual shapes of
//! repair for any linear map, [`over_tree`] all others, and [`pipelined`] makes any graph rack-aware.
//!
//! ```
//! use kintsu_dag::{Ecdag, NodeId, Placed, Sink, Vertex};
//! # fn main() -> Result<(), kintsu_dag::DagError> {
//! // OpenEC's Listing 3: both parities of RS(6,4), computed together where block 0 is.
//! let data = [0, 1, 2, 3].map(Vertex);
//! let mut graph = Ecdag::new(6, 1);
//! graph.join(Vertex(4), &data, &[1, 1, 1, 1])?;
//! graph.join(Vertex(5), &data, &[1, 2, 4, 8])?;
//! let both = graph.bind_x(&[Vertex(4), Vertex(5)])?;
//! graph.bind_y(both, Vertex(0))?;
//! let placed = Placed {
//!     graph,
//!     load_at: data.map(|v| (v, NodeId(v.0))).into(),
//!     compute_at: Default::default(),
//!     persist_at: [4, 5].map(|i| (Vertex(i), (NodeId(i), Sink::Block))).into(),
//! };
//! let lists = placed.lower()?;
//! assert_eq!(lists.len(), 6);
//! assert_eq!(lists[0].sends, [(Vertex(4), NodeId(4)), (Vertex(5), NodeId(5))]);
//! # Ok(())
//! # }
//! ```

mod bind;
mod data;
mod drawing;
mod ecdag;
mod error;
mod fuse;
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

pub use data::{BindData, Elements, GraphData, JoinData, PlacedData};
pub use drawing::{Drawing, DrawnBox, DrawnEdge, DrawnFrame};
pub use ecdag::{BindX, Ecdag, Join, MAX_VERTICES};
pub use error::DagError;
pub use fuse::fuse;
pub use ids::{BlockId, BlockIndex, NodeId, RackId, StripeId, Vertex};
pub use pipelined::pipelined;
pub use shapes::{chain, over_tree, star, tree};
pub use task::{NodeTasks, Placed, Sink, Task};
