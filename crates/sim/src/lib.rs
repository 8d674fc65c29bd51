//! The simulator: plans on a modelled network.
//!
//! What is played is a [`kintsu_plan::Plan`], the same that agents run. The network is what
//! [`kintsu_plan::Rates`] says: links of nodes and racks and limits between two nodes, shared fairly ([`fair`])
//! by the streams that pass them. There are two players over one network:
//!
//! - [`simulate`] plays one plan slice by slice, for the time of a single repair;
//! - [`fluid`] plays many repairs as flows; [`recover`] makes them of the stripes that a [`Cluster`] lost.
//!
//! What this is not: a model of processors, of TCP, or of failures during a repair. Nothing here reads a clock, does
//! I/O or makes a choice that is not a function of a given seed.

mod cluster;
mod error;
pub mod fair;
mod floor;
pub mod fluid;
mod job;
mod network;
mod overheads;
mod recovery;
mod slices;
mod transfers;

pub use cluster::{Cluster, Failure, LostStripe, Spread};
pub use error::SimError;
pub use job::{Grain, Job, JobFlow, Stage, Traffic};
pub use network::{Link, Network};
pub use overheads::Overheads;
pub use recovery::{Options, Outcome, Scheme, recover, requestors};
pub use slices::{Simulated, simulate};
