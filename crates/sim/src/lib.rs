//! The simulator: plans on a modelled network.
//!
//! The simulator plays a [`kintsu_plan::Plan`], the same plan that agents run. [`kintsu_plan::Rates`] describes
//! the network: links of nodes and racks, and limits between two nodes. The streams that pass a link share it
//! fairly ([`fair`]). There are two players over one network:
//!
//! - [`simulate`] plays one plan slice by slice, for the time of a single repair;
//! - [`fluid`] plays many repairs as flows; [`recover`] makes these flows from the stripes of a [`Cluster`] that
//!   lost blocks; [`schedule`] makes them by a scheduler of [`kintsu_plan::many`].
//!
//! What this is not: a model of processors, of TCP, or of failures during a repair. Nothing here reads a
//! clock, does I/O or makes a choice that is not a function of a given seed.

mod cluster;
mod error;
pub mod fair;
mod floor;
pub mod fluid;
mod job;
mod many;
mod network;
mod overheads;
mod recovery;
mod slices;
mod turns;

pub use cluster::{Cluster, Failure, LostStripe, Spread};
pub use error::SimError;
pub use job::{Grain, RepairModel, Step, StepFlow, Traffic};
pub use many::{Recovered, Scheduled, Stray, least_seconds, schedule};
pub use network::Network;
pub use overheads::Overheads;
pub use recovery::{Options, Outcome, Scheme, recover, requestors};
pub use slices::{Passage, Simulated, passages, simulate, simulate_on};
