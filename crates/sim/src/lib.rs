//! The simulator: plans on a modelled network.
//!
//! What is played is a [`kintsu_plan::Plan`], the same that agents run. The network is what
//! [`kintsu_plan::Rates`] says: links of nodes and racks and limits between two nodes, shared fairly ([`fair`])
//! by the streams that pass them. [`simulate`] plays one plan slice by slice, for the time of a single repair.
//!
//! What this is not: a model of processors, of TCP, or of failures during a repair. Nothing here reads a clock, does
//! I/O or draws a random number that is not a function of a given seed.

mod error;
pub mod fair;
mod network;
mod overheads;
mod slices;
mod transfers;

pub use error::SimError;
pub use network::{Link, Network};
pub use overheads::Overheads;
pub use slices::{Simulated, simulate};
